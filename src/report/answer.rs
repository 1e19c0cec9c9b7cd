//! The answer in words, once for all reports: the sentence at the top, and the labelled
//! entries under it (`first alert`, `because`, `not because`, `do`, …).

use super::text::{instant, level, number, percent, plain, seconds};
use crate::model::recording::StopReason;
use crate::model::time::ClockKind;
use crate::model::units::prometheus_duration;
use crate::model::verdict::{
    CheckState, Confidence, Evidence, FirstAlert, Gate, Prediction, RunOutcome, StepOutcome, Verdict,
};

/// One labelled entry of the answer; its first line is the one to read if only one is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What the lines tell: `because`.
    pub label: &'static str,
    /// How it is to be taken.
    pub tone: Tone,
    /// The lines, plain text.
    pub lines: Vec<String>,
}

/// How an entry is to be taken; colours follow from it, and never say more than the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Something fired or failed.
    Bad,
    /// All is well.
    Good,
    /// Not known.
    Doubt,
    /// Neither.
    Plain,
}

/// The tone of a run's outcome.
pub fn tone(outcome: RunOutcome) -> Tone {
    match outcome {
        RunOutcome::Alert => Tone::Bad,
        RunOutcome::Clean => Tone::Good,
        RunOutcome::Inconclusive => Tone::Doubt,
    }
}

/// The answer in one sentence, with its full stop.
pub fn sentence(v: &Verdict) -> String {
    if v.void.is_some() {
        return "The run is void: the GPU had errors that could not be corrected.".into();
    }
    match (v.outcome, &v.first_alert) {
        (RunOutcome::Alert, Some(a)) => {
            let (name, at) = (plain(&a.alert), level(v, a.concurrency));
            let limit = if v.hardware.is_some() { " The hardware limits this, not the configuration." } else { "" };
            match v.highest_clean_concurrency {
                Some(clean) => {
                    format!("{name} fires first, at {at}; at {} every rule stays quiet.{limit}", number(clean))
                }
                None => format!("{name} fires first, at {at}; no lower level is known to be clean.{limit}"),
            }
        }
        (RunOutcome::Clean, _) => format!("No alert fires{}: the limit is higher.", up_to(v)),
        (_, a) => {
            let seen = a.as_ref().map(|a| format!(" ({} fired at {})", plain(&a.alert), level(v, a.concurrency)));
            format!("The run does not tell which alert is the first{}.", seen.unwrap_or_default())
        }
    }
}

/// ` up to 64 streams`, where a clean level is known.
fn up_to(v: &Verdict) -> String {
    v.highest_clean_concurrency.map(|c| format!(" up to {}", level(v, c))).unwrap_or_default()
}

/// The answer as labelled entries.
pub fn entries(v: &Verdict) -> Vec<Entry> {
    let mut out = vec![headline(v)];
    if let Some(e) = &v.explanation {
        let mut lines = vec![match e.confidence {
            Confidence::High => plain(&e.summary),
            Confidence::Medium => format!("{} (likely)", plain(&e.summary)),
            Confidence::Low => format!("{} (a guess)", plain(&e.summary)),
        }];
        lines.extend(e.evidence.iter().map(evidence));
        out.push(entry("because", Tone::Plain, lines));
        let not: Vec<String> = e
            .runner_up
            .iter()
            .chain(&e.ruled_out)
            .map(|r| format!("{}: {}", plain(&r.pair), plain(&r.why_not)))
            .collect();
        out.push(entry("not because", Tone::Plain, not));
        out.push(entry("do", Tone::Plain, e.advice.iter().map(|a| plain(a)).collect()));
    }
    out.push(entry("also fired", Tone::Plain, v.other_alerts.iter().map(|a| other(v, a)).collect()));
    out.push(entry("as deployed", Tone::Plain, v.as_deployed.iter().map(|d| deployed(v, d)).collect()));
    out.extend(v.prediction.as_ref().map(|p| prediction(v, p)));
    out.extend(v.gate.as_ref().map(gate));
    out.push(entry("run", Tone::Plain, vec![run(v)]));
    out.retain(|e| !e.lines.is_empty());
    out
}

fn entry(label: &'static str, tone: Tone, lines: Vec<String>) -> Entry {
    Entry { label, tone, lines }
}

/// The first entry: what fired first, or that nothing did, or that nobody knows.
fn headline(v: &Verdict) -> Entry {
    if let Some(why) = &v.void {
        return entry("no answer", Tone::Doubt, vec![format!("the run is void: {}", plain(why))]);
    }
    match (v.outcome, &v.first_alert) {
        (RunOutcome::Alert, Some(a)) => {
            let clean = match (v.highest_clean_concurrency, v.confirmed) {
                (Some(c), Some(true)) => format!("clean at {}, both confirmed", number(c)),
                (Some(c), Some(false)) => format!("clean at {}, but running both again did not agree", number(c)),
                (Some(c), None) => format!("clean at {}", number(c)),
                (None, _) => "no lower level is known to be clean".into(),
            };
            let head = format!("{} at {} ({clean})", plain(&a.alert), level(v, a.concurrency));
            let mut lines = vec![head, moments(a)];
            lines.extend(a.summary.as_ref().map(|s| plain(s)));
            if v.hardware.is_some() {
                lines.push(
                    "what was found is the limit of this hardware in this state, not of the configuration".into(),
                );
            }
            entry("first alert", Tone::Bad, lines)
        }
        (RunOutcome::Clean, _) => {
            let end = match v.stopped {
                Some(StopReason::EndOfLadder) => ", the end of the ladder",
                Some(StopReason::MaxDuration) => ", where `max_duration` ended the climb",
                _ => "",
            };
            entry(
                "no alert",
                Tone::Good,
                vec![format!("every rule stayed quiet{}{end}: the limit is higher", up_to(v))],
            )
        }
        (_, a) => {
            let mut lines = vec!["inconclusive: the run does not tell which alert is the first".to_owned()];
            lines.extend(
                a.as_ref().map(|a| format!("{} fired at {}: {}", plain(&a.alert), level(v, a.concurrency), moments(a))),
            );
            let doubtful: Vec<u32> =
                v.steps.iter().filter(|s| s.outcome == StepOutcome::Inconclusive).map(|s| s.step).collect();
            if !doubtful.is_empty() {
                lines.push(format!("inconclusive steps: {}", super::text::runs(&doubtful)));
            }
            entry("no answer", Tone::Doubt, lines)
        }
    }
}

/// `step 3, engine="0", true since 190 s, pending from 212 s, firing from 272 s`.
fn moments(a: &FirstAlert) -> String {
    let mut out = format!("step {}", a.step);
    for (name, value) in &a.labels {
        out += &format!(", {}=\"{}\"", plain(name), plain(value));
    }
    if let Some(onset) = a.onset_s {
        out += &format!(", true since {}", instant(onset));
    }
    if let Some(pending) = a.pending_at_s.filter(|p| *p < a.fired_at_s) {
        out += &format!(", pending from {}", instant(pending));
    }
    out + &format!(", firing from {}", instant(a.fired_at_s))
}

fn other(v: &Verdict, a: &FirstAlert) -> String {
    format!("{} at {}: {}", plain(&a.alert), level(v, a.concurrency), moments(a))
}

/// An observation, with its numbers where the words do not give them.
fn evidence(e: &Evidence) -> String {
    let says = plain(&e.says);
    let numbers: Vec<String> = [("median", e.median), ("max", e.max)]
        .into_iter()
        .filter_map(|(word, x)| x.map(number).filter(|x| !says.contains(x.as_str())).map(|x| format!("{word} {x}")))
        .collect();
    if numbers.is_empty() { says } else { format!("{says} ({})", numbers.join(", ")) }
}

fn deployed(v: &Verdict, d: &crate::model::verdict::AsDeployed) -> String {
    let mut out = format!("{} would have paged at {}", plain(&d.alert), instant(d.fired_at_s));
    if let Some(then) = d.concurrency_then {
        out += &format!(", under {}", level(v, then));
    }
    match d.concurrency_blamed {
        Some(blamed) if d.concurrency_then != Some(blamed) => {
            out += &format!(", for what began at {} under {}", instant(d.active_at_s), level(v, blamed));
        }
        _ => out += &format!(", for what began at {}", instant(d.active_at_s)),
    }
    out
}

fn prediction(v: &Verdict, p: &Prediction) -> Entry {
    let mut line = format!("{} should fit: {}", level(v, p.concurrency), plain(&p.says));
    if let Some(r) = p.measured_over_predicted_ratio {
        line += &format!("; measured over reckoned {}", number(r));
    }
    entry("reckoned", Tone::Plain, vec![line])
}

fn gate(g: &Gate) -> Entry {
    let bad = g.checks.iter().filter(|c| c.state != CheckState::Passed).count();
    let head = match (g.passed, g.checks.len()) {
        (true, 0) => "passed: it has no checks".to_owned(),
        (true, n) => format!("passed: {n} of {n} checks"),
        (false, n) => format!("not passed: {bad} of {n} checks"),
    };
    // What stands in the way comes first; what passed can be skipped.
    let mut checks: Vec<_> = g.checks.iter().collect();
    checks.sort_by_key(|c| match c.state {
        CheckState::Failed => 0,
        CheckState::Unresolved => 1,
        CheckState::Passed => 2,
    });
    let lines = checks.iter().map(|c| format!("{}: {} ({})", check_word(c.state), plain(&c.check), plain(&c.says)));
    entry("gate", if g.passed { Tone::Good } else { Tone::Bad }, [head].into_iter().chain(lines).collect())
}

/// The outcome of a check in a word.
pub fn check_word(state: CheckState) -> &'static str {
    match state {
        CheckState::Passed => "passed",
        CheckState::Failed => "failed",
        CheckState::Unresolved => "unresolved",
    }
}

/// What was run, where, and for how long.
fn run(v: &Verdict) -> String {
    let mut out = format!("{}: {} at {}", plain(&v.scenario), plain(&v.target.model), plain(&v.target.url));
    if let Some(engine) = &v.target.engine {
        out += &format!(", {}", plain(engine));
        if let Some(version) = &v.target.version {
            out += &format!(" {}", plain(version));
        }
    }
    let length = prometheus_duration(std::time::Duration::from_secs(v.duration_s.max(0.0).round() as u64));
    out += &match v.clock {
        ClockKind::Real => format!(", {length}"),
        ClockKind::Simulated => format!(", {length} of simulated time"),
    };
    if v.time_scale != 1.0 {
        out += &format!(", every `for` and range times {}", number(v.time_scale));
    }
    if v.repeats > 1 {
        out += &format!(", {} repeats", v.repeats);
    }
    out += match v.stopped {
        Some(StopReason::BoundaryFound) => ", until the boundary was found",
        Some(StopReason::EndOfLadder) => ", to the end of the ladder",
        Some(StopReason::TargetLost) => ", until the target was lost",
        Some(StopReason::MaxDuration) => ", until `max_duration`",
        Some(StopReason::Interrupted) => ", until it was interrupted",
        None => ", until it was killed",
    };
    out
}

/// The targets in words: `TTFT P99 1 s, ITL P99 100 ms, errors 1 %`.
pub fn targets(v: &Verdict) -> String {
    format!(
        "TTFT P99 {}, ITL P99 {}, errors {}",
        seconds(v.slo.ttft_p99_s),
        seconds(v.slo.itl_p99_s),
        percent(v.slo.error_rate_ratio)
    )
}
