//! What the client saw, as series: the one list of the series of our own, and how they are made.
//!
//! All of them are synthesised from the request timelines at the instants of the server's
//! scrapes, so that both can stand in one expression. At each instant only what had happened by
//! then counts, so a verdict made while the run goes on and one made later agree.
//!
//! **Misses.** A request that fails is a miss of the target for the first token: it counts in
//! `+Inf`, and so in `_count`, and in no finite bucket. So does one that waits for its first
//! token for longer than the target, from the instant at which it is late; when its token comes, the
//! finite buckets above its wait follow. A frozen server thus cannot look clean because it sends
//! no more tokens to observe. An answer that breaks after a timely first token is observed twice: as
//! the time that it took, and as a miss when it broke. Requests that we ended ourselves are neither.

use std::time::Duration;

use self::seen::Seen;
use super::store::{Store, is_stale};
use crate::model::recording::Recording;
use crate::model::sample::{Labels, NAME};
use crate::model::time::Offset;

mod grow;
mod histogram;
mod seen;

pub(super) use grow::Growing;

/// The `job` label of our own series.
pub const JOB: &str = "plimsoll";

/// A series of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnSeries {
    /// Its metric name; a histogram has `_bucket`, `_sum` and `_count` behind it, a summary the last two.
    pub name: &'static str,
    /// `counter`, `gauge`, `histogram`, or `summary` (`_sum` and `_count` alone).
    pub kind: &'static str,
    /// What it counts, with its unit.
    pub help: &'static str,
}

const fn own(name: &'static str, kind: &'static str, help: &'static str) -> OwnSeries {
    OwnSeries { name, kind, help }
}

/// Every series of our own.
pub const SERIES: &[OwnSeries] = &[
    own("plimsoll_client_ttft_seconds", "histogram", "time to first token as the user felt it, s; misses in +Inf"),
    own("plimsoll_client_gap_seconds", "histogram", "time between two chunks that carry output, s"),
    own("plimsoll_requests_total", "counter", "requests that ended, by outcome: completed, or a class of failure"),
    own("plimsoll_requests_sent_total", "counter", "requests sent"),
    own("plimsoll_in_flight", "gauge", "requests sent and not ended"),
    own("plimsoll_client_waiting_first_token", "gauge", "requests due and still without a first token"),
    own("plimsoll_client_late_first_token", "gauge", "those of them that wait for longer than the target"),
    own(
        "plimsoll_client_longest_wait_seconds",
        "gauge",
        "longest wait so far for a first token that is still to come, s",
    ),
    own(
        "plimsoll_client_longest_silence_seconds",
        "gauge",
        "longest time since a request in flight was sent or got output, s",
    ),
    own("plimsoll_output_tokens_total", "counter", "output tokens received"),
    own(
        "plimsoll_prompt_tokens_total",
        "counter",
        "prompt tokens of the requests that ended, as the server counted them",
    ),
    own("plimsoll_concurrency", "gauge", "streams of the current step, closed loop"),
    own("plimsoll_request_rate", "gauge", "requests per second of the current step, open loop"),
    own("plimsoll_step", "gauge", "number of the current step, from 0"),
    own("plimsoll_client_lag_seconds", "gauge", "how late a ticker of ours was; absent in simulated time, s"),
    own("plimsoll_server_ttft_seconds", "summary", "times to first token that the server told of single requests, s"),
    own("plimsoll_server_queue_seconds", "summary", "times in the queue that the server told of single requests, s"),
    own(
        "plimsoll_server_itl_seconds",
        "summary",
        "mean inter-token latencies that the server told of single requests, s",
    ),
];

/// The scenario's latency targets. Each becomes a bucket bound, so that no interpolation stands
/// between a quantile alert and its limit.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientTargets {
    /// Target for the first token; a request that waits for longer is a miss.
    pub ttft: Duration,
    /// Target for the time between two chunks.
    pub gap: Duration,
}

impl Default for ClientTargets {
    fn default() -> ClientTargets {
        ClientTargets { ttft: Duration::from_secs(1), gap: Duration::from_millis(100) }
    }
}

/// Adds the series of our own at `instants`, which are in order.
pub(super) fn add(
    store: &mut Store,
    recording: &Recording,
    targets: &ClientTargets,
    instants: &[Offset],
    instance: &str,
) {
    let mut seen = Seen::new(instants, targets);
    for r in &recording.requests {
        seen.take(r);
    }
    let times = store.add_times(instants.iter().map(|&t| recording.unix_ms(t)).collect());
    seen.columns(&recording.steps, |name, label, cells| {
        // A closed loop has no rate, and an open one no concurrency.
        if cells.iter().any(|c| !is_stale(*c)) || name == "plimsoll_step" {
            store.add_series(labels(name, label, instance), times, 0, cells);
        }
    });
}

/// The labels of a series of our own.
fn labels(name: &str, label: Option<(&str, &str)>, instance: &str) -> Labels {
    Labels::new([(NAME, name), ("job", JOB), ("instance", instance)].into_iter().chain(label))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::recording::{Event, Header, TargetFacts};
    use crate::model::request::{FailureClass, Outcome, RequestTimeline, TokenChunk, Usage};
    use crate::model::step::{Load, Phase, StepPlan};
    use crate::model::time::ClockKind;

    fn request(sent_ms: u64, chunks_ms: &[u64], finished_ms: u64, outcome: Outcome) -> RequestTimeline {
        let chunk = |ms: &u64| TokenChunk { at: Offset::from_millis(*ms), running_tokens: None };
        RequestTimeline {
            sent: Offset::from_millis(sent_ms),
            chunks: chunks_ms.iter().map(chunk).collect(),
            finished: Offset::from_millis(finished_ms),
            usage: Usage { prompt_tokens: Some(7), completion_tokens: Some(5), cached_tokens: None },
            outcome,
            ..RequestTimeline::blank(0)
        }
    }

    /// A recording without a metrics page, so that instants are whole seconds up to 6 s.
    fn recorded(requests: Vec<RequestTimeline>) -> Recording {
        let mut recording = Recording::new(Header {
            target: TargetFacts { url: "https://user@host/v1".into(), ..TargetFacts::default() },
            ..Header::blank(ClockKind::Simulated, 1_000_000)
        });
        let plan = StepPlan { step: 3, load: Load::Concurrency(4), phase: Phase::Climb, repeat: 0, drain_first: false };
        recording.apply(Event::StepStarted { at: Offset::from_millis(1_000), plan });
        recording.apply(Event::MeasureStarted { at: Offset::from_millis(2_000), step: 3 });
        for r in requests {
            recording.apply(Event::Request(r));
        }
        recording.apply(Event::StepEnded { at: Offset::from_millis(6_000), step: 3, cut_short: None });
        recording
    }

    /// The values at 0 s, 1 s, … 6 s; NaN for a marker.
    fn of(recording: &Recording, name: &str, label: Option<(&str, &str)>) -> Vec<f64> {
        let store = Store::from_recording(recording);
        let fits = |l: &Labels| label.is_none_or(|(n, v)| l.get(n) == Some(v));
        let id = store.named(name).iter().find(|id| fits(&store.series(**id).labels)).expect(name);
        let series = store.series(*id);
        assert_eq!(series.labels.get("instance"), Some("host:443"));
        let samples: Vec<(i64, f64)> = store.samples(series).collect();
        assert_eq!(samples[0].0, 1_000_000);
        samples.into_iter().map(|(_, v)| v).collect()
    }

    fn failed() -> Outcome {
        Outcome::Failed { class: FailureClass::Truncated, status: None, detail: String::new() }
    }

    const TTFT: &str = "plimsoll_client_ttft_seconds_bucket";

    #[test]
    fn a_good_answer_counts_when_its_tokens_arrive() {
        let r = recorded(vec![request(500, &[1_500, 1_600, 2_700], 2_800, Outcome::Completed)]);
        assert_eq!(of(&r, TTFT, Some(("le", "1.0"))), [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(of(&r, TTFT, Some(("le", "0.75"))), [0.0; 7]);
        assert_eq!(of(&r, TTFT, Some(("le", "+Inf"))), [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        let gap = "plimsoll_client_gap_seconds_bucket";
        assert_eq!(of(&r, gap, Some(("le", "0.1"))), [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(of(&r, gap, Some(("le", "2.5"))), [0.0, 0.0, 1.0, 2.0, 2.0, 2.0, 2.0]);
        assert_eq!(of(&r, "plimsoll_in_flight", None), [0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(of(&r, "plimsoll_client_waiting_first_token", None), [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(of(&r, "plimsoll_client_longest_wait_seconds", None), [0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(of(&r, "plimsoll_client_longest_silence_seconds", None), [0.0, 0.5, 0.4, 0.0, 0.0, 0.0, 0.0]);
        // Two tokens seen at 2 s, and at the end the five that the server counted.
        assert_eq!(of(&r, "plimsoll_output_tokens_total", None), [0.0, 0.0, 2.0, 5.0, 5.0, 5.0, 5.0]);
        assert_eq!(of(&r, "plimsoll_prompt_tokens_total", None)[2..4], [0.0, 7.0]);
        assert_eq!(of(&r, "plimsoll_requests_total", Some(("outcome", "completed")))[2..4], [0.0, 1.0]);
        let concurrency = of(&r, "plimsoll_concurrency", None);
        assert!(concurrency[0].is_nan() && concurrency[6].is_nan());
        assert_eq!(concurrency[1..6], [4.0; 5]);
    }

    #[test]
    fn a_late_first_token_is_a_miss_as_soon_as_it_is_late() {
        let r = recorded(vec![request(500, &[4_500], 5_000, Outcome::Completed)]);
        assert_eq!(of(&r, TTFT, Some(("le", "+Inf"))), [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(of(&r, TTFT, Some(("le", "5.0"))), [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
        assert_eq!(of(&r, TTFT, Some(("le", "1.0"))), [0.0; 7]);
        assert_eq!(of(&r, "plimsoll_client_late_first_token", None), [0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn failures_are_misses_and_what_we_ended_is_not() {
        let inf = Some(("le", "+Inf"));
        // Broken before its first token, broken after it, and both late already.
        let early = recorded(vec![request(500, &[], 900, failed())]);
        assert_eq!(of(&early, TTFT, inf), [0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(of(&early, "plimsoll_requests_total", Some(("outcome", "truncated")))[6], 1.0);
        let broken = recorded(vec![request(500, &[900], 2_500, failed())]);
        assert_eq!(of(&broken, TTFT, inf), [0.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]);
        let late = recorded(vec![request(500, &[], 3_500, failed())]);
        assert_eq!(of(&late, TTFT, inf), [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        for outcome in [Outcome::Cut, Outcome::InFlight] {
            let ours = recorded(vec![request(500, &[], 900, outcome.clone())]);
            let late = if outcome == Outcome::InFlight { 1.0 } else { 0.0 };
            assert_eq!(of(&ours, TTFT, inf)[6], late, "one that goes on becomes late");
            assert_eq!(of(&ours, "plimsoll_in_flight", None)[6], late);
        }
    }

    #[test]
    fn the_list_names_what_is_made() {
        let store = Store::from_recording(&recorded(Vec::new()));
        let mut listed: Vec<String> = Vec::new();
        // What a closed loop in simulated time, against a server without timings of its own, does not have.
        let absent = |s: &OwnSeries| s.kind == "summary" || s.name == "plimsoll_client_lag_seconds";
        for s in SERIES.iter().filter(|s| s.name != "plimsoll_request_rate" && !absent(s)) {
            match s.kind {
                "histogram" => listed.extend(["bucket", "sum", "count"].map(|part| format!("{}_{part}", s.name))),
                _ => listed.push(s.name.into()),
            }
        }
        listed.sort_unstable();
        assert_eq!(store.names(), listed);
    }
}
