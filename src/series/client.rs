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

use super::store::{Store, stale_marker};
use crate::model::recording::Recording;
use crate::model::request::{FailureClass, Outcome, RequestTimeline};
use crate::model::sample::{Labels, NAME};
use crate::model::step::Load;
use crate::model::time::Offset;

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

/// Bounds of the first-token histogram, s: those that servers use.
const TTFT_BOUNDS_S: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];

/// Bounds of the gap histogram, s.
const GAP_BOUNDS_S: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];

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
    let mut column = |name: &str, label: Option<(&str, &str)>, cells: Vec<f64>| {
        let labels = [(NAME, name), ("job", JOB), ("instance", instance)].into_iter().chain(label);
        store.add_series(Labels::new(labels), times, 0, cells);
    };
    for (name, histogram) in [("plimsoll_client_ttft_seconds", seen.ttft), ("plimsoll_client_gap_seconds", seen.gap)] {
        let Columns { buckets, sum, count } = histogram.columns();
        for (bound, cells) in buckets {
            column(&format!("{name}_bucket"), Some(("le", &bound)), cells);
        }
        column(&format!("{name}_bucket"), Some(("le", "+Inf")), count.clone());
        column(&format!("{name}_sum"), None, sum);
        column(&format!("{name}_count"), None, count);
    }
    // Every outcome is there from the start at 0: an increase from "absent" would be invisible.
    column("plimsoll_requests_total", Some(("outcome", "completed")), seen.completed.running());
    for (class, failed) in CLASSES.iter().zip(seen.failed) {
        column("plimsoll_requests_total", Some(("outcome", class.as_str())), failed.running());
    }
    column("plimsoll_requests_sent_total", None, seen.sent.running());
    column("plimsoll_in_flight", None, seen.in_flight.running());
    column("plimsoll_client_waiting_first_token", None, seen.waiting.running());
    column("plimsoll_client_late_first_token", None, seen.late.running());
    column("plimsoll_client_longest_wait_seconds", None, seen.longest_wait.seconds());
    column("plimsoll_client_longest_silence_seconds", None, seen.longest_silence.seconds());
    column("plimsoll_output_tokens_total", None, seen.output_tokens.running());
    column("plimsoll_prompt_tokens_total", None, seen.prompt_tokens.running());
    let steps = |of: fn(Load, u32) -> Option<f64>| -> Vec<f64> {
        let at = |t: &Offset| recording.steps.iter().rfind(|s| s.contains(*t)).and_then(|s| of(s.load, s.step));
        instants.iter().map(|t| at(t).unwrap_or(stale_marker())).collect()
    };
    column("plimsoll_step", None, steps(|_, step| Some(f64::from(step))));
    for (name, cells) in [
        ("plimsoll_concurrency", steps(|load, _| matches!(load, Load::Concurrency(_)).then(|| load.level()))),
        ("plimsoll_request_rate", steps(|load, _| matches!(load, Load::Rate(_)).then(|| load.level()))),
    ] {
        if cells.iter().any(|c| !c.is_nan()) {
            column(name, None, cells);
        }
    }
}

/// Every class of failure.
const CLASSES: [FailureClass; 13] = [
    FailureClass::Connect,
    FailureClass::Auth,
    FailureClass::RateLimited,
    FailureClass::Unavailable,
    FailureClass::HttpStatus,
    FailureClass::ConnectionReset,
    FailureClass::StallTimeout,
    FailureClass::ErrorInStream,
    FailureClass::Truncated,
    FailureClass::Aborted,
    FailureClass::EmptyOutput,
    FailureClass::NotStreamed,
    FailureClass::Protocol,
];

/// A change for each instant, which added up give a counter or a gauge. Changes after the last
/// instant are not seen.
#[derive(Clone)]
struct Changes(Vec<i64>);

impl Changes {
    fn add(&mut self, slot: usize, n: i64) {
        if let Some(c) = self.0.get_mut(slot) {
            *c += n;
        }
    }

    fn running(self) -> Vec<f64> {
        let mut sum = 0;
        let step = |c| {
            sum += c;
            sum as f64
        };
        self.0.into_iter().map(step).collect()
    }
}

/// The largest of what was told for each instant, µs.
#[derive(Clone)]
struct Largest(Vec<u64>);

impl Largest {
    fn tell(&mut self, slot: usize, us: u64) {
        self.0[slot] = self.0[slot].max(us);
    }

    fn seconds(self) -> Vec<f64> {
        self.0.into_iter().map(|us| us as f64 / 1e6).collect()
    }
}

/// Observations by instant and bucket.
struct Histogram {
    /// Upper bounds, s, and the same in whole µs, which no observation in whole µs falls between.
    bounds_s: Vec<f64>,
    bounds_us: Vec<u64>,
    /// For each 4,096 µs from 0 on, the first bucket that such an observation can fall into.
    near: Vec<usize>,
    /// `[slot * bounds + bucket]`: observations that fall into a finite bucket.
    finite: Vec<u32>,
    /// Observations in all, the misses included.
    total: Changes,
    sum_us: Changes,
}

impl Histogram {
    fn new(slots: usize, bounds: &[f64], target: Duration) -> Histogram {
        let mut bounds_s: Vec<f64> = bounds.iter().copied().chain([target.as_secs_f64()]).collect();
        bounds_s.sort_by(f64::total_cmp);
        bounds_s.dedup();
        // The nudge undoes what a bound such as 0.07 loses in binary.
        let bounds_us: Vec<u64> = bounds_s.iter().map(|b| (b * 1e6 + 1e-3).floor() as u64).collect();
        let near = (0..1_024).map(|i| bounds_us.partition_point(|&b| b < i << 12)).collect();
        let zeros = Changes(vec![0; slots]);
        Histogram {
            near,
            finite: vec![0; slots * bounds_s.len()],
            bounds_s,
            bounds_us,
            total: zeros.clone(),
            sum_us: zeros,
        }
    }

    /// Puts an observation into its finite bucket; the caller counts it in `total`.
    fn place(&mut self, slot: usize, us: u64) {
        let n = self.bounds_us.len();
        let mut bucket = self.near[((us >> 12) as usize).min(self.near.len() - 1)];
        while bucket < n && us > self.bounds_us[bucket] {
            bucket += 1;
        }
        if bucket < n
            && let Some(c) = self.finite.get_mut(slot * n + bucket)
        {
            *c += 1;
        }
        self.sum_us.add(slot, i64::try_from(us).unwrap_or(i64::MAX));
    }

    fn observe(&mut self, slot: usize, us: u64) {
        self.place(slot, us);
        self.total.add(slot, 1);
    }

    fn columns(self) -> Columns {
        let n = self.bounds_s.len();
        let mut so_far = vec![0_u64; n];
        let slots = self.finite.len() / n;
        let mut columns = vec![Vec::with_capacity(slots); n];
        for row in self.finite.chunks_exact(n) {
            let mut below = 0;
            for (b, (c, column)) in row.iter().zip(&mut columns).enumerate() {
                so_far[b] += u64::from(*c);
                below += so_far[b];
                column.push(below as f64);
            }
        }
        let texts = self.bounds_s.iter().map(|b| format!("{b:?}"));
        let sum = self.sum_us.running().into_iter().map(|us| us / 1e6).collect();
        Columns { buckets: texts.zip(columns).collect(), sum, count: self.total.running() }
    }
}

/// A histogram as the cells of its series.
struct Columns {
    /// Cumulative counts of the finite buckets, by the text of their bound.
    buckets: Vec<(String, Vec<f64>)>,
    /// Seconds.
    sum: Vec<f64>,
    count: Vec<f64>,
}

/// All that is gathered in one pass over the timelines.
struct Seen<'a> {
    instants: &'a [Offset],
    ttft_target: Duration,
    ttft: Histogram,
    gap: Histogram,
    completed: Changes,
    failed: Vec<Changes>,
    sent: Changes,
    in_flight: Changes,
    waiting: Changes,
    late: Changes,
    longest_wait: Largest,
    longest_silence: Largest,
    output_tokens: Changes,
    prompt_tokens: Changes,
}

impl<'a> Seen<'a> {
    fn new(instants: &'a [Offset], targets: &ClientTargets) -> Seen<'a> {
        let n = instants.len();
        let zeros = Changes(vec![0; n]);
        Seen {
            instants,
            ttft_target: targets.ttft,
            ttft: Histogram::new(n, TTFT_BOUNDS_S, targets.ttft),
            gap: Histogram::new(n, GAP_BOUNDS_S, targets.gap),
            completed: zeros.clone(),
            failed: vec![zeros.clone(); CLASSES.len()],
            sent: zeros.clone(),
            in_flight: zeros.clone(),
            waiting: zeros.clone(),
            late: zeros.clone(),
            longest_wait: Largest(vec![0; n]),
            longest_silence: Largest(vec![0; n]),
            output_tokens: zeros.clone(),
            prompt_tokens: zeros,
        }
    }

    /// The first instant at which something that happened at `at` is known.
    fn slot(&self, at: Offset) -> usize {
        self.instants.partition_point(|&t| t < at)
    }

    fn take(&mut self, r: &RequestTimeline) {
        // A request that is still in flight has no end: its `finished` is when it was looked at.
        let end = match r.outcome {
            Outcome::InFlight => Offset(u64::MAX),
            _ => r.finished,
        };
        let (sent, ended) = (self.slot(r.sent), self.slot(end));
        self.sent.add(sent, 1);
        self.in_flight.add(sent, 1);
        self.in_flight.add(ended, -1);
        self.take_first_token(r, end);
        self.take_chunks(r, sent, ended);
        match &r.outcome {
            Outcome::Completed => self.completed.add(ended, 1),
            Outcome::Failed { class, .. } => {
                let i = CLASSES.iter().position(|c| c == class).expect("every class is listed");
                self.failed[i].add(ended, 1);
            }
            Outcome::Cut | Outcome::InFlight => {}
        }
        self.prompt_tokens.add(ended, r.usage.prompt_tokens.map_or(0, i64::from));
    }

    /// The wait for the first token, and whether it is a miss.
    fn take_first_token(&mut self, r: &RequestTimeline, end: Offset) {
        let began = r.began();
        let first = r.first_token();
        let known = first.unwrap_or(end);
        // The first microsecond at which the wait is longer than the target.
        let late_at = began + self.ttft_target + Duration::from_micros(1);
        let (from, to) = (self.slot(began), self.slot(known));
        self.waiting.add(from, 1);
        self.waiting.add(to, -1);
        for slot in from..to {
            self.longest_wait.tell(slot, self.instants[slot].0 - began.0);
        }
        let late = late_at <= known && known > began;
        if late {
            let slot = self.slot(late_at);
            self.ttft.total.add(slot, 1);
            self.late.add(slot, 1);
            self.late.add(to, -1);
        }
        if let Some(first) = first {
            self.ttft.place(to, first.since(began).as_micros() as u64);
            if !late {
                self.ttft.total.add(to, 1);
            }
        }
        if matches!(r.outcome, Outcome::Failed { .. }) && !late {
            let ended = self.slot(end);
            self.ttft.total.add(ended, 1);
        }
    }

    /// Gaps, tokens and silences, walking chunks and instants side by side.
    fn take_chunks(&mut self, r: &RequestTimeline, sent: usize, ended: usize) {
        let (mut slot, mut last, mut tokens) = (sent, r.sent, 0_u32);
        for (i, c) in r.chunks.iter().enumerate() {
            while slot < self.instants.len() && self.instants[slot] < c.at {
                self.longest_silence.tell(slot, self.instants[slot].0.saturating_sub(last.0));
                slot += 1;
            }
            if i > 0 {
                self.gap.observe(slot, c.at.0.saturating_sub(last.0));
            }
            last = c.at;
            let now = c.running_tokens.unwrap_or(tokens + 1).max(tokens);
            self.output_tokens.add(slot, i64::from(now - tokens));
            tokens = now;
        }
        for slot in slot..ended.min(self.instants.len()) {
            self.longest_silence.tell(slot, self.instants[slot].0.saturating_sub(last.0));
        }
        // What the server counted beyond what the chunks showed is known at the end.
        let counted = r.usage.completion_tokens.unwrap_or(tokens);
        self.output_tokens.add(ended, i64::from(counted.saturating_sub(tokens)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::recording::{Event, Header, TargetFacts};
    use crate::model::request::{TokenChunk, Usage};
    use crate::model::step::{Phase, StepPlan};
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
