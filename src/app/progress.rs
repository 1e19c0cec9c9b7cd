//! Progress on standard error while a run goes on: one line that is rewritten on a terminal,
//! a plain line now and then elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use crate::model::step::{Phase, StepPlan};
use crate::model::time::{ClockKind, Offset};
use crate::model::units::human_seconds;
use crate::model::verdict::{AlertState, StepOutcome, StepVerdict};

/// How often plain lines come at most.
const PLAIN_EVERY: Duration = Duration::from_secs(15);

/// What a line of progress shows.
#[derive(Clone, Debug, Default)]
pub struct Now {
    /// What is being done: `ramp`, `warm-up`, `measure`, `drain`.
    pub doing: &'static str,
    /// Until it is over.
    pub left: Duration,
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests ended in this step, and failures among them.
    pub ended: [u64; 2],
    /// Median time to first token of this step, s.
    pub ttft_s: Option<f64>,
    /// Median gap between chunks of this step, s.
    pub gap_s: Option<f64>,
    /// Requests that wait in the server.
    pub waiting: Option<f64>,
    /// Requests that run in the server.
    pub running: Option<f64>,
    /// Share of the KV pool in use, 0 to 1.
    pub kv_usage: Option<f64>,
}

/// The writer of progress.
pub struct Progress {
    terminal: bool,
    live: bool,
    last: Option<Offset>,
    drawn: bool,
}

impl Progress {
    /// Progress of a run. Under simulated time, minutes pass in a blink: only steps are told.
    pub fn new(clock: ClockKind, plain: bool) -> Progress {
        Progress {
            terminal: !plain && std::io::stderr().is_terminal(),
            live: clock == ClockKind::Real,
            last: None,
            drawn: false,
        }
    }

    /// A line of its own.
    pub fn say(&mut self, text: &str) {
        self.clear();
        let _ = writeln!(std::io::stderr(), "{text}");
    }

    /// A step begins.
    pub fn begin(&mut self, plan: &StepPlan, warmup: Duration, hold: Duration) {
        let phase = match plan.phase {
            Phase::Climb => "climb",
            Phase::Narrow => "narrow",
            Phase::Confirm => "confirm",
        };
        self.last = None;
        self.say(&format!(
            "step {}  {}  {phase}  warm-up {} s, measure {} s{}",
            plan.step,
            plan.load,
            warmup.as_secs(),
            hold.as_secs(),
            if plan.drain_first { ", drained first" } else { "" }
        ));
    }

    /// How it goes.
    pub fn tick(&mut self, at: Offset, now: &Now) {
        if !self.live || (!self.terminal && self.last.is_some_and(|l| at.since(l) < PLAIN_EVERY)) {
            return;
        }
        self.last = Some(at);
        let number = |v: Option<f64>, digits: usize| v.map_or_else(|| "-".into(), |v| format!("{v:.digits$}"));
        let time = |v: Option<f64>| v.map_or_else(|| "-".into(), human_seconds);
        let line = format!(
            "  {:>4} s left  {:<8} {:>4} in flight  {:>5} done{}  ttft {}  gap {}  waiting {}  running {}  kv {}",
            now.left.as_secs(),
            now.doing,
            now.in_flight,
            now.ended[0],
            if now.ended[1] > 0 { format!(", {} failed", now.ended[1]) } else { String::new() },
            time(now.ttft_s),
            time(now.gap_s),
            number(now.waiting, 0),
            number(now.running, 0),
            number(now.kv_usage, 2),
        );
        let mut err = std::io::stderr().lock();
        // Losing the terminal must not end the run.
        let _ = if self.terminal {
            self.drawn = true;
            write!(err, "\r\x1b[2K{line}").and_then(|()| err.flush())
        } else {
            writeln!(err, "{line}")
        };
    }

    /// A step is judged.
    pub fn end(&mut self, step: &StepVerdict) {
        let named = |state: AlertState| {
            let names: Vec<&str> = step.alerts.iter().filter(|a| a.state == state).map(|a| a.alert.as_str()).collect();
            names.join(", ")
        };
        let outcome = match step.outcome {
            StepOutcome::Clean => "clean".to_owned(),
            StepOutcome::Firing => format!("firing: {}", named(AlertState::Firing)),
            StepOutcome::Inconclusive => {
                let reasons: Vec<&str> = step.caveats.iter().map(|c| c.says.as_str()).collect();
                match (named(AlertState::NotEvaluable), named(AlertState::NoData)) {
                    (a, b) if a.is_empty() && b.is_empty() => format!("inconclusive: {}", reasons.join("; ")),
                    (a, b) if b.is_empty() => format!("inconclusive: cannot judge {a}"),
                    (a, b) if a.is_empty() => format!("inconclusive: no data for {b}"),
                    (a, b) => format!("inconclusive: cannot judge {a}; no data for {b}"),
                }
            }
        };
        let time = |v: Option<f64>| v.map_or_else(|| "-".into(), human_seconds);
        self.say(&format!(
            "        {outcome}  (ttft p50 {}, gap p50 {}, {} requests{})",
            time(step.client.ttft_s.p50),
            time(step.client.gap_s.p50),
            step.requests.sent,
            if step.requests.failed.total > 0 {
                format!(", {} failed", step.requests.failed.total)
            } else {
                String::new()
            },
        ));
    }

    /// Leaves the terminal clean.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
