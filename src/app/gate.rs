//! What of a gate can be refused before anything is sent, and its baseline.

use std::path::Path;

use crate::compare;
use crate::error::Refusal;
use crate::ladder::Ladder;
use crate::model::near::did_you_mean;
use crate::model::verdict::Verdict;
use crate::rules::RuleSet;
use crate::scenario::{Says, Scenario};

/// The copy of the baseline in a run's folder: the recording judges alone, wherever the original went.
pub const BASELINE: &str = "baseline.json";

/// Thresholds speak of levels that the ladder runs for sure, and of rules that there are.
///
/// # Errors
/// Names the threshold and what is allowed.
pub fn check(scenario: &Scenario, rules: &RuleSet, ladder: &Ladder) -> Result<(), Refusal> {
    for t in scenario.gate.iter().flat_map(|g| &g.thresholds) {
        if let Some(at) = t.at.filter(|at| !ladder.levels.contains(at)) {
            let levels: Vec<String> = ladder.levels.iter().map(ToString::to_string).collect();
            let says =
                format!("the threshold `{}` is at {at}, expected a level of the ladder: {}", t.text, levels.join(", "));
            return Err(Refusal::usage(says, "add the level to ladder.concurrency"));
        }
        if let Says::Not(name) = &t.says
            && scenario.rules.enabled
            && rules.find(name).is_none()
        {
            let mut known: Vec<&str> = rules.alerts().chain(rules.pairs()).map(|a| a.name.as_str()).collect();
            known.sort_unstable();
            known.dedup();
            let says = format!("the threshold `{}` names no rule, expected one of {}", t.text, known.join(", "));
            return Err(Refusal::usage(says, did_you_mean(name, known)));
        }
    }
    Ok(())
}

/// The baseline that the scenario names, as it stands on disk; `None` if it names none.
///
/// # Errors
/// If it cannot be read, is no verdict, or is of another scenario, clock or scale, which no run of ours can mend.
pub fn baseline(scenario: &Scenario, clock: crate::model::time::ClockKind) -> Result<Option<String>, Refusal> {
    let Some(path) = scenario.gate.as_ref().and_then(|g| g.against.as_ref()) else { return Ok(None) };
    let text = std::fs::read_to_string(path).map_err(|e| {
        Refusal::usage(
            format!("cannot read the baseline {} of gate.against: {e}", path.display()),
            "it is the verdict.json of an earlier run; the path is relative to the scenario",
        )
    })?;
    let verdict = parse(&text, path)?;
    let ours = [
        ("scenario", scenario.name.clone(), verdict.scenario.clone()),
        ("time_scale", scenario.time_scale.to_string(), verdict.time_scale.to_string()),
        ("clock", format!("{clock:?}").to_lowercase(), format!("{:?}", verdict.clock).to_lowercase()),
    ];
    for (what, now, then) in ours {
        if now != then {
            let says = format!("the baseline {} is of {what} {then}, and this run is of {now}", path.display());
            return Err(Refusal::usage(says, "make the baseline with the same scenario"));
        }
    }
    Ok(Some(text))
}

/// A verdict out of its JSON.
///
/// # Errors
/// If it is none.
pub fn parse(text: &str, path: &Path) -> Result<Verdict, Refusal> {
    crate::report::json::read(text).map_err(|e| {
        Refusal::usage(format!("{} is no verdict: {e}", path.display()), "name a verdict.json, or the folder of a run")
    })
}

/// Holds a verdict against the baseline that was kept in the run's folder, if its gate has one.
///
/// # Errors
/// If the baseline cannot be read.
pub fn hold(verdict: &mut Verdict, scenario: &Scenario, folder: &Path) -> Result<(), Refusal> {
    if scenario.gate.as_ref().is_none_or(|g| g.against.is_none()) {
        return Ok(());
    }
    let path = folder.join(BASELINE);
    let text = std::fs::read_to_string(&path)
        .map_err(|e| Refusal::usage(format!("cannot read the baseline {}: {e}", path.display()), ""))?;
    crate::analyze::hold_against(verdict, scenario, &parse(&text, &path)?);
    Ok(())
}

/// The run-to-run noise that a scenario states, for comparing outside of its gate.
pub fn run_noise(scenario: Option<&Scenario>) -> f64 {
    scenario.and_then(|s| s.gate.as_ref()).map_or(compare::RUN_NOISE, |g| g.run_noise.0)
}
