//! What the server told of single requests, and how late we were ourselves, as series of our own.
//!
//! Both are made only where there is something: a server without per-request metrics has no such series, and
//! rules that read them fall back on its histograms.

use super::client::JOB;
use super::store::{SeriesId, Store, TimesId, stale_marker};
use crate::model::recording::{Health, Recording};
use crate::model::request::{RequestTimeline, ServerTimings};
use crate::model::sample::{Labels, NAME};
use crate::model::time::Offset;

/// What is picked out of a request's timings, s.
type Pick = fn(&ServerTimings) -> Option<f64>;

/// Name of each series (`_sum` and `_count` behind it) and what it adds up.
const TOLD: [(&str, Pick); 3] = [
    ("plimsoll_server_ttft_seconds", |t| t.ttft_s),
    ("plimsoll_server_queue_seconds", |t| t.queue_s),
    ("plimsoll_server_itl_seconds", |t| t.mean_itl_s),
];

/// How late a ticker of ours was, s.
pub(super) const LAG: &str = "plimsoll_client_lag_seconds";

/// Adds both at `instants`, which are in order.
pub(super) fn add(store: &mut Store, recording: &Recording, instants: &[Offset], instance: &str) {
    let times = store.add_times(instants.iter().map(|&t| recording.unix_ms(t)).collect());
    let labels = |name: &str| Labels::new([(NAME, name), ("job", JOB), ("instance", instance)]);
    for (name, pick) in TOLD {
        // A request's timings come with the end of its answer.
        let mut told: Vec<(Offset, f64)> =
            recording.requests.iter().filter_map(|r| Some((r.finished, r.server.as_ref().and_then(pick)?))).collect();
        if told.is_empty() {
            continue;
        }
        told.sort_by_key(|(at, _)| *at);
        let (mut sums, mut counts) = (Vec::with_capacity(instants.len()), Vec::with_capacity(instants.len()));
        let (mut next, mut sum) = (0, 0.0);
        for instant in instants {
            while let Some((_, v)) = told.get(next).filter(|(at, _)| at <= instant) {
                sum += v;
                next += 1;
            }
            sums.push(sum);
            counts.push(next as f64);
        }
        store.add_series(labels(&format!("{name}_sum")), times, 0, sums);
        store.add_series(labels(&format!("{name}_count")), times, 0, counts);
    }
    let lags: Vec<(Offset, f64)> =
        recording.health.iter().filter_map(|h| Some((h.at, h.lag_max_us? as f64 / 1e6))).collect();
    if lags.is_empty() {
        return;
    }
    let cells = instants.iter().map(|t| {
        let upto = lags.partition_point(|(at, _)| at <= t);
        upto.checked_sub(1).map_or(stale_marker(), |i| lags[i].1)
    });
    store.add_series(labels(LAG), times, 0, cells.collect());
}

/// The same while the run goes on, one more instant at a time.
pub(super) struct Growing {
    instance: String,
    times: TimesId,
    /// Sum and number of what was told so far, with their series once there is anything.
    told: [(f64, f64, Option<[SeriesId; 2]>); 3],
    lag: Option<SeriesId>,
}

impl Growing {
    /// Nothing told yet; `times` are those of the instants.
    pub(super) fn new(instance: &str, times: TimesId) -> Growing {
        Growing { instance: instance.into(), times, told: [(0.0, 0.0, None); 3], lag: None }
    }

    /// One more instant, whose time the store has already, with the requests that ended since the one before.
    pub(super) fn add<'r>(
        &mut self,
        store: &mut Store,
        at: Offset,
        ended: impl Iterator<Item = &'r RequestTimeline>,
        health: &[Health],
        keep: impl Fn(&str) -> bool,
    ) {
        let labels = |name: &str| Labels::new([(NAME, name), ("job", JOB), ("instance", self.instance.as_str())]);
        let mut ended: Vec<&RequestTimeline> = ended.filter(|r| r.server.is_some()).collect();
        ended.sort_by_key(|r| r.finished);
        // The instants before this one.
        let past = store.times_len(self.times) - 1;
        for ((name, pick), (sum, n, ids)) in TOLD.iter().zip(&mut self.told) {
            for v in ended.iter().filter_map(|r| r.server.as_ref().and_then(pick)) {
                *sum += v;
                *n += 1.0;
            }
            match ids {
                Some([of_sum, of_count]) => {
                    store.push_cell(*of_sum, *sum);
                    store.push_cell(*of_count, *n);
                }
                None if *n > 0.0 => {
                    let mut begin = |part: &str, value: f64| {
                        let mut cells = vec![0.0; past];
                        cells.push(value);
                        store.add_series(labels(&format!("{name}_{part}")), self.times, 0, cells)
                    };
                    if ["sum", "count"].iter().any(|part| keep(&format!("{name}_{part}"))) {
                        *ids = Some([begin("sum", *sum), begin("count", *n)]);
                    }
                }
                None => {}
            }
        }
        let upto = health.partition_point(|h| h.at <= at);
        let lag = health[..upto].iter().rev().find_map(|h| h.lag_max_us).map(|us| us as f64 / 1e6);
        match (self.lag, lag) {
            (Some(id), lag) => store.push_cell(id, lag.unwrap_or(stale_marker())),
            (None, Some(lag)) if keep(LAG) => {
                let mut cells = vec![stale_marker(); past];
                cells.push(lag);
                self.lag = Some(store.add_series(labels(LAG), self.times, 0, cells));
            }
            (None, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::recording::{Event, Header};
    use crate::model::request::Outcome;
    use crate::model::time::ClockKind;

    fn recording() -> Recording {
        Recording::new(Header { ..Header::blank(ClockKind::Real, 0) })
    }

    fn request(finished_ms: u64, server: Option<ServerTimings>) -> RequestTimeline {
        RequestTimeline {
            finished: Offset::from_millis(finished_ms),
            server,
            outcome: Outcome::Completed,
            ..RequestTimeline::blank(0)
        }
    }

    #[test]
    fn timings_count_when_their_request_ends_and_are_absent_where_none_are_told() {
        let mut r = recording();
        let told = |ttft_s| Some(ServerTimings { ttft_s: Some(ttft_s), queue_s: None, mean_itl_s: None });
        for (at, server) in [(2_500, told(0.5)), (500, told(0.25)), (700, None)] {
            r.apply(Event::Request(request(at, server)));
        }
        r.apply(Event::Health(Health {
            at: Offset::from_millis(1_500),
            lag_max_us: Some(20_000),
            ..Health::default()
        }));
        let mut store = Store::new();
        let instants: Vec<Offset> = (0..4).map(|s| Offset::from_millis(s * 1_000)).collect();
        add(&mut store, &r, &instants, "host:80");
        let of = |name: &str| -> Vec<f64> {
            let id = store.named(name)[0];
            store.samples(store.series(id)).map(|(_, v)| v).collect()
        };
        assert_eq!(of("plimsoll_server_ttft_seconds_sum"), [0.0, 0.25, 0.25, 0.75]);
        assert_eq!(of("plimsoll_server_ttft_seconds_count"), [0.0, 1.0, 1.0, 2.0]);
        assert!(store.named("plimsoll_server_queue_seconds_sum").is_empty());
        let lag = of(LAG);
        assert!(lag[0].is_nan() && lag[1].is_nan());
        assert_eq!(lag[2..], [0.02, 0.02]);
    }
}
