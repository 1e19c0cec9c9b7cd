//! One pass over the timelines: what had happened by each instant.

use std::time::Duration;

use super::ClientTargets;
use super::histogram::{Changes, Columns, Histogram, Largest};
use crate::model::request::{FailureClass, Outcome, RequestTimeline};
use crate::model::step::{Load, StepSpan};
use crate::model::time::Offset;
use crate::series::store::stale_marker;

/// Bounds of the first-token histogram, s: those that servers use.
const TTFT_BOUNDS_S: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];

/// Bounds of the gap histogram, s.
const GAP_BOUNDS_S: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];

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

/// All that is gathered in one pass over the timelines.
#[derive(Clone)]
pub(super) struct Seen {
    instants: Vec<Offset>,
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

impl Seen {
    /// Nothing seen yet at `instants`, which are in order.
    pub(super) fn new(instants: &[Offset], targets: &ClientTargets) -> Seen {
        let n = instants.len();
        let zeros = Changes(vec![0; n]);
        Seen {
            instants: instants.to_vec(),
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

    /// Adds what another pass saw at its last instant to what this one, of a single instant, has seen so far: counters and
    /// gauges go on from there.
    pub(super) fn go_on(&mut self, fresh: &Seen) {
        self.instants = fresh.instants.last().copied().into_iter().collect();
        self.ttft.go_on(&fresh.ttft);
        self.gap.go_on(&fresh.gap);
        let failed = self.failed.iter_mut().zip(&fresh.failed);
        let pairs = [
            (&mut self.completed, &fresh.completed),
            (&mut self.sent, &fresh.sent),
            (&mut self.in_flight, &fresh.in_flight),
            (&mut self.waiting, &fresh.waiting),
            (&mut self.late, &fresh.late),
            (&mut self.output_tokens, &fresh.output_tokens),
            (&mut self.prompt_tokens, &fresh.prompt_tokens),
        ];
        for (so_far, fresh) in pairs.into_iter().chain(failed) {
            so_far.go_on(fresh);
        }
        self.longest_wait = Largest(fresh.longest_wait.0.last().copied().into_iter().collect());
        self.longest_silence = Largest(fresh.longest_silence.0.last().copied().into_iter().collect());
    }

    /// Hands over the cells of every series by name and further label, in an order that is always the same; `steps`
    /// tells which load was applied.
    pub(super) fn columns(self, steps: &[StepSpan], mut column: impl FnMut(&str, Option<(&str, &str)>, Vec<f64>)) {
        for (name, histogram) in
            [("plimsoll_client_ttft_seconds", self.ttft), ("plimsoll_client_gap_seconds", self.gap)]
        {
            let Columns { buckets, sum, count } = histogram.columns();
            for (bound, cells) in buckets {
                column(&format!("{name}_bucket"), Some(("le", &bound)), cells);
            }
            column(&format!("{name}_bucket"), Some(("le", "+Inf")), count.clone());
            column(&format!("{name}_sum"), None, sum);
            column(&format!("{name}_count"), None, count);
        }
        // Every outcome is there from the start at 0: an increase from "absent" would be invisible.
        column("plimsoll_requests_total", Some(("outcome", "completed")), self.completed.running());
        for (class, failed) in CLASSES.iter().zip(self.failed) {
            column("plimsoll_requests_total", Some(("outcome", class.as_str())), failed.running());
        }
        column("plimsoll_requests_sent_total", None, self.sent.running());
        column("plimsoll_in_flight", None, self.in_flight.running());
        column("plimsoll_client_waiting_first_token", None, self.waiting.running());
        column("plimsoll_client_late_first_token", None, self.late.running());
        column("plimsoll_client_longest_wait_seconds", None, self.longest_wait.seconds());
        column("plimsoll_client_longest_silence_seconds", None, self.longest_silence.seconds());
        column("plimsoll_output_tokens_total", None, self.output_tokens.running());
        column("plimsoll_prompt_tokens_total", None, self.prompt_tokens.running());
        let instants = self.instants;
        let steps = |of: fn(Load, u32) -> Option<f64>| -> Vec<f64> {
            let at = |t: &Offset| steps.iter().rfind(|s| s.contains(*t)).and_then(|s| of(s.load, s.step));
            instants.iter().map(|t| at(t).unwrap_or(stale_marker())).collect()
        };
        column("plimsoll_step", None, steps(|_, step| Some(f64::from(step))));
        for (name, cells) in [
            ("plimsoll_concurrency", steps(|load, _| matches!(load, Load::Concurrency(_)).then(|| load.level()))),
            ("plimsoll_request_rate", steps(|load, _| matches!(load, Load::Rate(_)).then(|| load.level()))),
        ] {
            column(name, None, cells);
        }
    }

    /// The first instant at which something that happened at `at` is known.
    fn slot(&self, at: Offset) -> usize {
        self.instants.partition_point(|&t| t < at)
    }

    /// Takes in one timeline.
    pub(super) fn take(&mut self, r: &RequestTimeline) {
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
