//! Progress on standard error while a run goes on: a view on a terminal ([`View`]), one line that is rewritten where
//! that is too small for it, a plain line now and then elsewhere. All are told the same things.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use crate::analyze::Gauges;
use crate::model::recording::Header;
use crate::model::sample::Scrape;
use crate::model::step::{Phase, StepPlan};
use crate::model::time::{ClockKind, Offset};
use crate::model::units::{human_seconds, prometheus_duration};
use crate::model::verdict::{AlertState, StepOutcome, StepVerdict};
use crate::rules::ENOUGH;
use crate::rules::live::Standing;

use super::prepare::Prepared;
use super::steps::{Rest, StepLengths};
use super::tui::View;

/// How often plain lines come at most.
const PLAIN_EVERY: Duration = Duration::from_secs(15);

/// What a line of progress shows.
#[derive(Clone, Debug, Default)]
pub struct Now {
    /// What is being done: `ramp`, `warm-up`, `measure`, `prolong`, `drain`.
    pub doing: &'static str,
    /// Until it is over, as far as is known.
    pub left: Duration,
    /// Observations that the step still lacks, where it is prolonged for them.
    pub missing: Option<u64>,
    /// What may come after the step.
    pub rest: Rest,
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests ended so far, and failures among them.
    pub ended: [u64; 2],
    /// Median time to first token of the last seconds, s.
    pub ttft_s: Option<f64>,
    /// 99th percentile of it, s.
    pub ttft_p99_s: Option<f64>,
    /// Median gap between chunks of the last seconds, s.
    pub gap_s: Option<f64>,
    /// 99th percentile of it, s.
    pub gap_p99_s: Option<f64>,
    /// Chunks with output per second, of the last seconds.
    pub chunks_per_s: f64,
    /// What the server's page says.
    pub gauges: Gauges,
    /// How the alerts stand in the step.
    pub alerts: Vec<Standing>,
    /// That nothing comes from the server, in words.
    pub silence: Option<String>,
}

impl Now {
    /// The line.
    fn line(&self) -> String {
        let number = |v: Option<f64>, digits: usize| v.map_or_else(|| "-".into(), |v| format!("{v:.digits$}"));
        let time = |v: Option<f64>| v.map_or_else(|| "-".into(), human_seconds);
        let lacking = self.missing.map(|n| format!(" ({:.0} of {ENOUGH:.0} observations)", ENOUGH - n as f64));
        let failed = if self.ended[1] > 0 { format!(", {} failed", self.ended[1]) } else { String::new() };
        let mut out = format!(
            "  {:<7} {:>4} s left{}  {} in flight, {} done{failed}  ttft {}  gap {}  waiting {}  running {}  kv {}",
            self.doing,
            self.left.as_secs(),
            lacking.unwrap_or_default(),
            self.in_flight,
            self.ended[0],
            time(self.ttft_s),
            time(self.gap_s),
            number(self.gauges.waiting, 0),
            number(self.gauges.running, 0),
            number(self.gauges.kv_usage, 2),
        );
        out += &alerts(&self.alerts);
        let run = self.run_left();
        if !run.is_empty() {
            out += &format!("  run: {run}");
        }
        match &self.silence {
            Some(says) => format!("  {} s left  {says}", self.left.as_secs()),
            None => out,
        }
    }

    /// What is left of the run, in words; empty where that is not known.
    pub fn run_left(&self) -> String {
        if self.rest.most.is_zero() {
            return String::new();
        }
        between(Rest { least: self.left + self.rest.least, most: self.left + self.rest.most })
    }
}

/// `  RequestsWaiting fires in 42 s`: what fires or is about to, the quiet ones left out.
fn alerts(alerts: &[Standing]) -> String {
    let mut out = String::new();
    for a in alerts {
        match (a.state, a.fires_in) {
            (AlertState::Firing, _) => out += &format!("  {} fires", a.alert),
            (AlertState::Pending, Some(left)) => out += &format!("  {} fires in {} s", a.alert, left.as_secs()),
            _ => {}
        }
    }
    out
}

/// `6m to 1h50m left`, to the minute where it is many.
fn between(rest: Rest) -> String {
    let coarse = |d: Duration| {
        let s = d.as_secs();
        prometheus_duration(Duration::from_secs(if s >= 600 { s / 60 * 60 } else { s }))
    };
    let (least, most) = (coarse(rest.least), coarse(rest.most));
    if least == most { format!("{most} left") } else { format!("{least} to {most} left") }
}

/// The writer of progress.
pub struct Progress {
    terminal: bool,
    live: bool,
    last: Option<Offset>,
    drawn: bool,
    /// The view, while the run goes on and there is a terminal to draw on.
    view: Option<View>,
}

impl Progress {
    /// Progress of a run. Under simulated time, minutes pass in a blink: only steps are told.
    pub fn new(clock: ClockKind, plain: bool) -> Progress {
        Progress {
            terminal: !plain && std::io::stderr().is_terminal(),
            live: clock == ClockKind::Real,
            last: None,
            drawn: false,
            view: None,
        }
    }

    /// The climb begins: from here on there is something to look at.
    pub fn climb(&mut self, prepared: &Prepared, header: &Header) {
        if self.live && self.terminal {
            self.clear();
            self.view = View::take(prepared, header);
        }
    }

    /// What was scraped so far, in the whole run.
    pub fn scraped(&mut self, scrapes: &[Scrape]) {
        if let Some(view) = &mut self.view {
            view.scraped(scrapes);
        }
    }

    /// The run comes to its end: what is in flight is waited for.
    pub fn ending(&mut self) {
        if let Some(view) = &mut self.view {
            view.ending();
        }
    }

    /// A line of its own.
    pub fn say(&mut self, text: &str) {
        if let Some(view) = &mut self.view {
            return view.say(text);
        }
        self.clear();
        let _ = writeln!(std::io::stderr(), "{text}");
    }

    /// A step begins.
    pub fn begin(&mut self, plan: &StepPlan, warmup: Duration, lengths: &StepLengths, rest: Rest) {
        let phase = match plan.phase {
            Phase::Climb => "climb",
            Phase::Narrow => "narrow",
            Phase::Confirm => "confirm",
        };
        self.last = None;
        if let Some(view) = &mut self.view {
            view.begin(plan);
        }
        let own = Rest { least: lengths.ramp + warmup + lengths.hold, most: lengths.ramp + warmup + lengths.max_hold };
        let run = Rest { least: own.least + rest.least, most: own.most + rest.most };
        self.say(&format!(
            "step {}  {}  {phase}{}  warm-up {} s, measure {} s (up to {} s for observations){}{}",
            plan.step,
            plan.load,
            if plan.repeat > 0 { format!(", repeat {}", plan.repeat + 1) } else { String::new() },
            warmup.as_secs(),
            lengths.hold.as_secs(),
            lengths.max_hold.as_secs(),
            if plan.drain_first { ", drained first" } else { "" },
            if self.live { format!("; run: {}", between(run)) } else { String::new() },
        ));
    }

    /// Whether it is told how it goes: under simulated time it is not.
    pub fn wants(&self) -> bool {
        self.live
    }

    /// How it goes.
    pub fn tick(&mut self, at: Offset, now: &Now) {
        if let Some(view) = &mut self.view {
            return view.tick(at, now);
        }
        if !self.live || (!self.terminal && self.last.is_some_and(|l| at.since(l) < PLAIN_EVERY)) {
            return;
        }
        self.last = Some(at);
        let line = now.line();
        let mut err = std::io::stderr().lock();
        // Losing the terminal must not end the run.
        let _ = if self.terminal {
            self.drawn = true;
            // A line that wraps could not be drawn over.
            let room = terminal_size::terminal_size_of(std::io::stderr()).map_or(usize::MAX, |(w, _)| usize::from(w.0));
            let line: String = line.chars().take(room.saturating_sub(1)).collect();
            write!(err, "\r\x1b[2K{line}").and_then(|()| err.flush())
        } else {
            writeln!(err, "{line}")
        };
    }

    /// A step is judged.
    pub fn end(&mut self, step: &StepVerdict) {
        if let Some(view) = &mut self.view {
            view.end(step);
        }
        let named = |state: AlertState| {
            let names: Vec<&str> = step.alerts.iter().filter(|a| a.state == state).map(|a| a.alert.as_str()).collect();
            names.join(", ")
        };
        let outcome = match step.outcome {
            StepOutcome::Inconclusive if step.cut_short.is_some() => "cut short".to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::Labels;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_prolonged_step_says_what_it_waits_for_and_what_the_run_still_takes() {
        let rest = Rest { least: 91 * S, most: 7_000 * S };
        let gauges = Gauges { waiting: Some(1.0), running: Some(4.0), kv_usage: Some(0.874) };
        let now =
            Now { doing: "prolong", left: 57 * S, missing: Some(57), rest, in_flight: 5, gauges, ..Now::default() };
        assert_eq!(
            now.line(),
            "  prolong   57 s left (43 of 100 observations)  5 in flight, 0 done  ttft -  gap -  \
             waiting 1  running 4  kv 0.87  run: 2m28s to 1h57m left"
        );
        let stands = |alert: &str, state, fires_in| Standing {
            alert: alert.into(),
            labels: Labels::default(),
            state,
            since: None,
            fires_in,
            value: None,
            summary: None,
            because: None,
        };
        let alerts = vec![
            stands("A", AlertState::Quiet, None),
            stands("B", AlertState::Pending, Some(42 * S)),
            stands("C", AlertState::Firing, None),
        ];
        let now = Now { alerts, ..now };
        assert!(now.line().contains("kv 0.87  B fires in 42 s  C fires  run:"), "{}", now.line());
        let now = Now { silence: Some("1 request hangs".into()), ..now };
        assert_eq!(now.line(), "  57 s left  1 request hangs");
    }
}
