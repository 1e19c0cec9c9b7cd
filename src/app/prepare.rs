//! Everything that can be refused before anything is sent: scenario, rules, ladder, lengths.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use crate::analyze;
use crate::cli::RunArgs;
use crate::error::Refusal;
use crate::ladder::Ladder;
use crate::model::recording::RuleFile;
use crate::model::time::ClockKind;
use crate::model::units::prometheus_duration as time;
use crate::rules::{Group, Limits, Rule, RuleError, RuleSet, builtin};
use crate::scenario::Scenario;

use super::gate;
use super::launch;
use super::resolve::{self, Resolved};
use super::steps::StepLengths;

/// How long a step is measured when no rule needs any length.
const SHORTEST: Duration = Duration::from_secs(10);

/// What a run takes before its first step, at the least.
const BREATH: Duration = Duration::from_secs(1);

/// A run that can begin.
pub struct Prepared {
    /// What is to be done.
    pub scenario: Scenario,
    /// A key from the command line; never written anywhere.
    pub api_key: Option<String>,
    /// The rule files as they go into the recording.
    pub rule_files: Vec<RuleFile>,
    /// The same with limits and scale filled in.
    pub rules: RuleSet,
    /// How many at once.
    pub ladder: Ladder,
    /// How long.
    pub lengths: StepLengths,
    /// Which rule decides the length of a step, if one does.
    pub longest_rule: Option<String>,
    /// The text of the verdict that the gate holds the run against, if it names one.
    pub baseline: Option<String>,
}

impl Prepared {
    /// From the command line.
    ///
    /// # Errors
    /// Whatever is wrong with scenario, flags or rules.
    pub fn new(args: &RunArgs) -> Result<Prepared, Refusal> {
        let Resolved { scenario, api_key } = resolve::resolve(args)?;
        let usage = |says: String| Refusal::usage(says, "");
        let ladder = Ladder::new(&scenario.ladder).map_err(|e| usage(e.to_string()))?;
        let rule_files = rule_files(&scenario)?;
        let rules = load(&rule_files, &scenario)?;
        gate::check(&scenario, &rules, &ladder)?;
        let baseline = gate::baseline(&scenario, clock(&scenario))?;
        let timing = analyze::timing(&scenario);
        rules.check_windows(timing).map_err(refuse)?;
        let needed = rules.step_length(timing);
        let longest_rule = needed.map(|(_, rule)| rule.to_owned());
        // Where nothing is judged, a step may be as short as one likes.
        let unjudged = scenario.ladder.hold.unwrap_or(SHORTEST).min(SHORTEST);
        let hold = needed.map_or(unjudged, |(length, _)| length);
        let lengths = StepLengths::new(&scenario.ladder, hold).map_err(|says| {
            let hint = longest_rule.as_ref().map_or_else(String::new, |rule| {
                format!("the longest is {rule}; leave out hold, or use time_scale for experiments")
            });
            Refusal::usage(says, hint)
        })?;
        if let Some(most) = scenario.ladder.max_duration {
            let one = lengths.ramp + lengths.warmup + lengths.hold;
            // A breath for what comes before the first step.
            if most <= one + BREATH {
                let says = format!(
                    "max_duration is {}, but one step takes {}: ramp {}, warm-up {}, measurement {}",
                    time(most),
                    time(one),
                    time(lengths.ramp),
                    time(lengths.warmup),
                    time(lengths.hold)
                );
                let climb = time(lengths.best_ladder(&ladder));
                return Err(Refusal::usage(
                    says,
                    format!("leave it out, or give --max-duration {climb} or more: what a climb takes at the least"),
                ));
            }
        }
        if args.launch
            && let Some(server) = &scenario.server
        {
            launch::find(server)?;
        }
        Ok(Prepared { scenario, api_key, rule_files, rules, ladder, lengths, longest_rule, baseline })
    }

    /// Which clock the run is timed by.
    pub fn clock(&self) -> ClockKind {
        clock(&self.scenario)
    }
}

/// Simulated time is the stand-in's alone.
fn clock(scenario: &Scenario) -> ClockKind {
    if scenario.sim.is_some() { ClockKind::Simulated } else { ClockKind::Real }
}

/// The texts of the rule files that a scenario names, or of the shipped ones.
fn rule_files(scenario: &Scenario) -> Result<Vec<RuleFile>, Refusal> {
    let spec = &scenario.rules;
    if !spec.enabled {
        return Ok(Vec::new());
    }
    if builtin::file(&format!("builtin:{}.yml", spec.engine)).is_none() {
        let says = format!("rules.engine is `{}`, for which no rules are shipped", spec.engine);
        return Err(Refusal::usage(says, "use vllm, or bring rules with rules.files and a facts file"));
    }
    let gpu = scenario.gpu.source != crate::gpu::Source::Off;
    let shipped = builtin::files(&spec.engine, gpu);
    if spec.files.is_empty() {
        return Ok(shipped);
    }
    let mut out: Vec<RuleFile> = Vec::new();
    for path in &spec.files {
        out.push(read(path)?);
    }
    if spec.shipped {
        // Names and facts of the engine serve the pairs and the tables, whoever's alerts judge.
        out.extend(shipped);
    }
    Ok(out)
}

/// One rule file.
///
/// # Errors
/// If it cannot be read.
pub fn read(path: &Path) -> Result<RuleFile, Refusal> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Refusal::usage(format!("cannot read the rule file {}: {e}", path.display()), ""))?;
    Ok(RuleFile { name: path.display().to_string(), text })
}

/// Rules with the scenario's limits and scale.
///
/// # Errors
/// Names file, group, rule and expression.
pub fn load(files: &[RuleFile], scenario: &Scenario) -> Result<RuleSet, Refusal> {
    let slo = scenario.targets();
    let limits =
        Limits { ttft_p99_s: slo.ttft_p99_s, itl_p99_s: slo.itl_p99_s, error_rate_ratio: slo.error_rate_ratio };
    let mut set = RuleSet::load(files, &limits, scenario.time_scale).map_err(refuse)?;
    give_way(&mut set);
    Ok(set)
}

/// Where users bring rules of their own, the engine's shipped alerts do not judge beside them, and
/// of two rules with one name theirs stands. The shipped names and pairs go on explaining, and the
/// client's own alerts go on judging: a server must not look clean because its metrics went quiet.
fn give_way(set: &mut RuleSet) {
    const ENGINES_OWN_ALERTS_STAY: [&str; 2] = ["builtin:client.yml", "builtin:gpu.yml"];
    let name = |rule: &Rule| match rule {
        Rule::Record(r) => r.name.clone(),
        Rule::Alert(a) => a.name.clone(),
    };
    let (shipped, own): (Vec<&Group>, Vec<&Group>) = set.groups.iter().partition(|g| g.file.starts_with("builtin:"));
    if own.is_empty() || shipped.is_empty() {
        return;
    }
    let theirs: BTreeSet<String> = own.iter().flat_map(|g| &g.rules).map(name).collect();
    for group in set.groups.iter_mut().filter(|g| g.file.starts_with("builtin:")) {
        let alerts_stay = ENGINES_OWN_ALERTS_STAY.contains(&group.file.as_str());
        group.rules.retain(|rule| {
            let alert_proper = matches!(rule, Rule::Alert(a) if a.explains.is_none());
            !theirs.contains(&name(rule)) && (alerts_stay || !alert_proper)
        });
    }
}

fn refuse(error: RuleError) -> Refusal {
    Refusal::usage(error.to_string(), error.hint().unwrap_or_default())
}
