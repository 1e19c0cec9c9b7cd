//! The answer in words, once for all reports: the sentence at the top, and the labelled
//! entries under it (`first alert`, `because`, `not because`, `do`, …).

use super::text::{instant, level, level_unit, number, percent, plain, seconds};
use crate::model::recording::StopReason;
use crate::model::time::ClockKind;
use crate::model::units::prometheus_duration;
use crate::model::verdict::{
    CheckState, Confidence, Evidence, FirstAlert, Gate, Prediction, RunOutcome, StepOutcome, StepVerdict, Verdict,
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
        (_, Some(a)) => format!(
            "The run does not tell which alert is the first ({} fired at {}).",
            plain(&a.alert),
            level(v, a.concurrency)
        ),
        (_, None) if rules_off(v) => "Nothing was judged: the rules are off.".into(),
        (_, None) => match v.highest_clean_concurrency {
            Some(_) => format!("No alert fires{}, but {}.", up_to(v), unfinished(v)),
            None => format!("No answer: {}.", unfinished(v)),
        },
    }
}

/// Whether nothing was asked to judge.
fn rules_off(v: &Verdict) -> bool {
    v.caveats.iter().any(|c| c.code == "rules_off")
}

/// Why a run without an alert gives no answer.
fn unfinished(v: &Verdict) -> &'static str {
    match v.stopped {
        Some(StopReason::TargetLost) => "the target was lost",
        Some(StopReason::MaxDuration) => "`max_duration` was over before the ladder's end",
        Some(StopReason::Interrupted) => "the run was interrupted before the ladder's end",
        None => "the run was killed before the ladder's end",
        Some(_) if v.highest_clean_concurrency.is_some() => "the levels above could not be judged",
        Some(_) => "no level could be judged",
    }
}

/// Levels of which nothing is known, since no step at them could be judged, in words: `1 and 2`.
fn not_judged(v: &Verdict) -> Option<String> {
    let open = |s: &&StepVerdict| s.outcome == StepOutcome::Inconclusive;
    let known = |x: f64| v.steps.iter().any(|s| s.concurrency == x && s.outcome != StepOutcome::Inconclusive);
    let mut levels: Vec<f64> = v.steps.iter().filter(open).map(|s| s.concurrency).filter(|x| !known(*x)).collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    let mut names: Vec<String> = levels.into_iter().map(number).collect();
    let last = names.pop()?;
    Some(if names.is_empty() { last } else { format!("{} and {last}", names.join(", ")) })
}

/// That the server hangs, in the first step in which it does.
fn silent(v: &Verdict) -> Option<String> {
    let of = |s: &StepVerdict| s.caveats.iter().find(|c| c.code == "server_silent").map(|c| plain(&c.says));
    v.steps.iter().find_map(|s| Some(format!("the server hangs at {}: {}", level(v, s.concurrency), of(s)?)))
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
        out.push(entry("do", Tone::Plain, alternatives(v, &e.advice, e.resource.as_deref())));
    }
    out.push(entry("also fired", Tone::Plain, v.other_alerts.iter().map(|a| other(v, a)).collect()));
    out.push(entry("as deployed", Tone::Plain, v.as_deployed.iter().map(|d| deployed(v, d)).collect()));
    out.extend(repeats(v));
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
            let mut known = match (v.highest_clean_concurrency, v.confirmed) {
                (Some(c), Some(true)) => format!("clean at {}, both confirmed", number(c)),
                (Some(c), Some(false)) => format!("clean at {}, but running both again did not agree", number(c)),
                (Some(c), None) => format!("clean at {}", number(c)),
                (None, _) => "no lower level is known to be clean".into(),
            };
            if let Some(levels) = not_judged(v) {
                known += &format!("; {levels} not judged");
            }
            let head = format!("{} at {} ({known})", plain(&a.alert), level(v, a.concurrency));
            let mut lines = vec![head, moments(v, a)];
            lines.extend(a.summary.as_ref().map(|s| plain(s)));
            if v.hardware.is_some() {
                lines.push(
                    "what was found is the limit of this hardware in this state, not of the configuration".into(),
                );
            }
            // Others may page before it: the order is that of the conditions, not of the pages.
            let sooner = v.other_alerts.iter().filter(|o| o.step == a.step && o.fired_at_s < a.fired_at_s);
            if let Some(o) = sooner.min_by(|x, y| x.fired_at_s.total_cmp(&y.fired_at_s)) {
                lines.push(format!(
                    "its condition began first; {} fires sooner, at {}, since its rule waits less",
                    plain(&o.alert),
                    instant(o.fired_at_s)
                ));
            }
            entry("first alert", Tone::Bad, lines)
        }
        (RunOutcome::Clean, _) => {
            let end = match v.stopped {
                Some(StopReason::EndOfLadder) => ", the end of the ladder",
                Some(StopReason::MaxDuration) => ", where `max_duration` ended the climb",
                _ => "",
            };
            let open = not_judged(v).map(|levels| format!(" ({levels} not judged)")).unwrap_or_default();
            entry(
                "no alert",
                Tone::Good,
                vec![format!("every rule stayed quiet{}{end}: the limit is higher{open}", up_to(v))],
            )
        }
        (_, Some(a)) => {
            let lines = vec![
                "inconclusive: the run does not tell which alert is the first".to_owned(),
                format!("{} fired at {}: {}", plain(&a.alert), level(v, a.concurrency), moments(v, a)),
            ];
            entry("no answer", Tone::Doubt, lines)
        }
        (_, None) if rules_off(v) => {
            let says = "the rules are off: nothing was judged, and the steps below are what was measured";
            entry("not judged", Tone::Doubt, vec![says.into()])
        }
        (_, None) => {
            let mut lines = vec![match v.highest_clean_concurrency {
                Some(_) => format!("inconclusive: every rule stayed quiet{}, but {}", up_to(v), unfinished(v)),
                None if v.other_alerts.is_empty() => format!("inconclusive: no alert fired, but {}", unfinished(v)),
                None => format!("inconclusive: {}", unfinished(v)),
            }];
            lines.extend(not_judged(v).map(|levels| match levels.as_str() {
                "1" if level_unit(v) == "streams" => "1 stream could not be judged".to_owned(),
                levels => format!("{levels} {} could not be judged", level_unit(v)),
            }));
            lines.extend(v.caveats.iter().filter(|c| c.code == "target_lost").map(|c| plain(&c.says)));
            lines.extend(silent(v));
            entry("no answer", Tone::Doubt, lines)
        }
    }
}

/// What to do, as alternatives: each but the first begins with `or`. The last is always there: to stay
/// where it was clean, as far as it is the load that fires the alert.
fn alternatives(v: &Verdict, advice: &[String], resource: Option<&str>) -> Vec<String> {
    let mut out: Vec<String> = advice.iter().map(|a| plain(a)).collect();
    let by_load = ["kv_cache", "sequences", "token_budget", "prefill", "compute", "queue_cap"];
    if resource.is_some_and(|r| by_load.contains(&r)) {
        match (v.highest_clean_concurrency, v.lowest_firing_concurrency) {
            (Some(clean), _) => out.push(format!("stay at {}, the highest level that was clean", level(v, clean))),
            (None, Some(firing)) if firing > 1.0 => out.push(format!("stay below {}", level(v, firing))),
            _ => {}
        }
    }
    for line in out.iter_mut().skip(1) {
        if !line.starts_with("or ") {
            line.insert_str(0, "or ");
        }
    }
    out
}

/// Labels that tell one alert from another: not those of the rule and of the one server that was tested.
fn telling(v: &Verdict, a: &FirstAlert) -> Vec<(String, String)> {
    const OF_THE_TARGET: [&str; 4] = ["instance", "job", "model_name", "severity"];
    let engines = || v.steps.iter().flat_map(|s| &s.alerts).filter_map(|x| x.labels.get("engine"));
    let one_engine = engines().all(|e| Some(e) == a.labels.get("engine"));
    let tells = |name: &str| !(OF_THE_TARGET.contains(&name) || name == "engine" && one_engine);
    a.labels.iter().filter(|(n, _)| tells(n)).map(|(n, v)| (n.clone(), v.clone())).collect()
}

/// `step 3, engine="1", true since 190 s, pending from 212 s, firing from 272 s`.
fn moments(v: &Verdict, a: &FirstAlert) -> String {
    let mut out = format!("step {}", a.step);
    for (name, value) in telling(v, a) {
        out += &format!(", {}=\"{}\"", plain(&name), plain(&value));
    }
    if let Some(onset) = a.onset_s.filter(|o| instant(*o) != instant(a.pending_at_s.unwrap_or(a.fired_at_s))) {
        out += &format!(", true since {}", instant(onset));
    }
    if let Some(pending) = a.pending_at_s.filter(|p| *p < a.fired_at_s) {
        out += &format!(", pending from {}", instant(pending));
    }
    out + &format!(", firing from {}", instant(a.fired_at_s))
}

/// With its own cause, where that is another than the first alert's.
fn other(v: &Verdict, a: &FirstAlert) -> String {
    let mut out = format!("{} at {}: {}", plain(&a.alert), level(v, a.concurrency), moments(v, a));
    let known = v.explanation.as_ref().map(|e| e.pair.as_str());
    if let Some(why) = a.because.as_ref().filter(|why| Some(why.pair.as_str()) != known) {
        out += &format!("; because {} ({})", plain(&why.summary), plain(&why.pair));
    }
    out
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
        _ if instant(d.active_at_s) != instant(d.fired_at_s) => {
            out += &format!(", for what began at {}", instant(d.active_at_s));
        }
        _ => {}
    }
    out
}

/// Where each repeat of the ladder fired first: how much the answer can be relied on.
fn repeats(v: &Verdict) -> Option<Entry> {
    if v.repeats < 2 {
        return None;
    }
    let of = |repeat: u32| {
        let own = || v.steps.iter().filter(move |s| s.repeat == repeat);
        let firing = own().filter(|s| s.outcome == StepOutcome::Firing).map(|s| s.concurrency).min_by(f64::total_cmp);
        own().next().map(|_| firing.map_or_else(|| "none".into(), number))
    };
    let found: Vec<String> = (0..v.repeats).map_while(of).collect();
    let agree = found.windows(2).all(|w| w[0] == w[1]);
    let line = match (agree, found.first().map(String::as_str)) {
        (_, None) => return None,
        (true, Some("none")) => format!("no alert in any of {}", found.len()),
        (true, Some(first)) => format!("the lowest level that fired was {first} in each of {}", found.len()),
        (false, _) => format!("the lowest level that fired differs: {}", found.join(", ")),
    };
    Some(entry("repeats", Tone::Plain, vec![line]))
}

/// What the sizes say, held against what was found where a boundary was.
fn prediction(v: &Verdict, p: &Prediction) -> Entry {
    // Sizes tell of requests at once, whatever the loop.
    let fits = if p.concurrency == 1.0 { "1 stream".to_owned() } else { format!("{} streams", number(p.concurrency)) };
    let mut line = format!("{fits} should fit into the KV pool: {}", plain(&p.says));
    if let (RunOutcome::Alert, Some(clean), "streams") = (v.outcome, v.highest_clean_concurrency, level_unit(v)) {
        line += &format!(
            "; {} clean in fact",
            if clean == 1.0 { "1 was".into() } else { format!("{} were", number(clean)) }
        );
    }
    entry("estimate", Tone::Plain, vec![line])
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
        Some(StopReason::Void) => ", until it was void",
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
