//! What the server told of single requests, and how late we were ourselves, as series of our own.
//!
//! Both are made only where there is something: a server without per-request metrics has no such series, and
//! rules that read them fall back on its histograms.

use super::client::JOB;
use super::store::{Store, stale_marker};
use crate::model::recording::Recording;
use crate::model::request::ServerTimings;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::recording::{Event, Header, Health};
    use crate::model::request::{Outcome, RequestTimeline};
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
