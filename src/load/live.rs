//! How the load fares right now, for a display; no verdict rests on it.

use std::collections::VecDeque;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::model::request::{Outcome, RequestTimeline};
use crate::model::time::Offset;

/// The last seconds of load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Live {
    /// Requests on their way.
    pub in_flight: u64,
    /// Requests that ended, since the load began.
    pub ended: u64,
    /// Of these, the failed ones.
    pub failed: u64,
    /// Median time to first token; `None` if no first token came lately.
    pub ttft_p50: Option<Duration>,
    /// 99th percentile of it.
    pub ttft_p99: Option<Duration>,
    /// Median time between two chunks.
    pub gap_p50: Option<Duration>,
    /// 99th percentile of it.
    pub gap_p99: Option<Duration>,
    /// Chunks with output per second.
    pub chunks_per_s: f64,
}

/// How many looks are shown together.
const LOOKS: usize = 10;

/// Collects between looks. A chunk counts in the look after its arrival; whatever is in flight is read at the look, so
/// that nothing is counted on the path of the tokens.
#[derive(Debug)]
pub(super) struct Meter {
    now: Slice,
    past: VecDeque<Slice>,
    looked: Offset,
    ended: u64,
    failed: u64,
}

#[derive(Debug)]
struct Slice {
    ttft: Histogram<u32>,
    gap: Histogram<u32>,
    chunks: u64,
    length: Duration,
}

impl Slice {
    fn new() -> Slice {
        // One microsecond to one hour, two digits: some 20 kB. Longer times count as an hour.
        let histogram = || {
            Histogram::new_with_bounds(1, 3_600_000_000, 2).expect("the bounds are constants that the crate accepts")
        };
        Slice { ttft: histogram(), gap: histogram(), chunks: 0, length: Duration::ZERO }
    }
}

impl Meter {
    pub(super) fn new(now: Offset) -> Meter {
        Meter { now: Slice::new(), past: VecDeque::new(), looked: now, ended: 0, failed: 0 }
    }

    /// A request ended.
    pub(super) fn end(&mut self, timeline: &RequestTimeline) {
        self.ended += 1;
        self.failed += u64::from(matches!(timeline.outcome, Outcome::Failed { .. }));
        self.add(timeline);
    }

    /// Counts what of a request came since the last look.
    fn add(&mut self, timeline: &RequestTimeline) {
        let since = self.looked;
        let micros = |d: Duration| u64::try_from(d.as_micros()).unwrap_or(u64::MAX);
        if let Some(first) = timeline.first_token().filter(|at| *at >= since) {
            self.now.ttft.saturating_record(micros(first.since(timeline.began())));
        }
        let chunks = &timeline.chunks;
        let fresh = chunks.len() - chunks.partition_point(|c| c.at < since);
        self.now.chunks += fresh as u64;
        for pair in chunks.windows(2).rev().take(fresh) {
            self.now.gap.saturating_record(micros(pair[1].at.since(pair[0].at)));
        }
    }

    /// A look at `now`, with the requests that are in flight.
    pub(super) fn look<'a>(&mut self, now: Offset, flights: impl Iterator<Item = &'a RequestTimeline>) -> Live {
        let mut in_flight = 0;
        for t in flights {
            in_flight += 1;
            self.add(t);
        }
        self.now.length = now.since(self.looked);
        self.looked = now;
        self.past.push_back(std::mem::replace(&mut self.now, Slice::new()));
        if self.past.len() > LOOKS {
            self.past.pop_front();
        }
        let mut all = Slice::new();
        for slice in &self.past {
            // Equal bounds: adding cannot fail.
            let _ = all.ttft.add(&slice.ttft);
            let _ = all.gap.add(&slice.gap);
            all.chunks += slice.chunks;
            all.length += slice.length;
        }
        let at = |h: &Histogram<u32>, q| (!h.is_empty()).then(|| Duration::from_micros(h.value_at_quantile(q)));
        Live {
            in_flight,
            ended: self.ended,
            failed: self.failed,
            ttft_p50: at(&all.ttft, 0.5),
            ttft_p99: at(&all.ttft, 0.99),
            gap_p50: at(&all.gap, 0.5),
            gap_p99: at(&all.gap, 0.99),
            chunks_per_s: if all.length.is_zero() { 0.0 } else { all.chunks as f64 / all.length.as_secs_f64() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::request::TokenChunk;

    #[test]
    fn a_chunk_counts_once_whether_its_request_ended_or_not() {
        let mut meter = Meter::new(Offset::ZERO);
        let mut t = RequestTimeline::blank(0);
        let chunk = |ms| TokenChunk { at: Offset::from_millis(ms), running_tokens: None };
        t.chunks = vec![chunk(100), chunk(120)];
        let live = meter.look(Offset::from_millis(500), [&t].into_iter());
        assert_eq!((live.in_flight, live.chunks_per_s), (1, 4.0));
        assert!(live.ttft_p99.unwrap().abs_diff(Duration::from_millis(100)) < Duration::from_millis(2));
        t.chunks.push(chunk(600));
        meter.end(&t);
        let live = meter.look(Offset::from_millis(1_000), std::iter::empty());
        assert_eq!((live.in_flight, live.ended, live.chunks_per_s), (0, 1, 3.0));
        assert!(live.gap_p99.unwrap() >= Duration::from_millis(475));
    }
}
