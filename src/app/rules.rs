//! `plimsoll rules`: the rules as they judge, ready for Prometheus, and a test that proves them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::analyze::{self, Analysis};
use crate::cli::RulesArgs;
use crate::error::{Exit, Refusal};
use crate::rules::{RuleSet, builtin, print, promtool};
use crate::scenario::Scenario;

use super::judge::{self, Recorded};
use super::prepare;

/// What the printed rules are called in the test that is made for them.
const RULE_FILE: &str = "rules.yml";

/// Prints rules with their limits filled in, or the test of a recording's rules.
pub fn rules(args: &RulesArgs) -> anyhow::Result<Exit> {
    if let Some(dir) = &args.tests {
        return tests(dir, &args.rules);
    }
    match &args.of {
        Some(dir) if dir.is_dir() => {
            if args.slo.is_some() || args.engine.is_some() {
                let says = format!("{} is a recording, which has an engine and limits of its own", dir.display());
                return Err(Refusal::usage(says, "leave out --engine and --slo, or name a scenario").into());
            }
            recorded(dir, &args.rules)
        }
        scenario => shipped(args, scenario.as_deref()),
    }
}

/// The rules by which a scenario is judged, those on the GPU included.
fn shipped(args: &RulesArgs, scenario: Option<&Path>) -> anyhow::Result<Exit> {
    let mut scenario = match scenario {
        Some(path) => Scenario::read(path).map_err(Refusal::from)?,
        None => Scenario::default(),
    };
    if let Some(text) = &args.slo {
        scenario.slo.set(text).map_err(|says| Refusal::usage(format!("--slo: {says}"), ""))?;
    }
    if let Some(engine) = &args.engine {
        scenario.rules.engine.clone_from(engine);
    }
    let engine = &scenario.rules.engine;
    if builtin::file(&format!("builtin:{engine}.yml")).is_none() {
        let known: Vec<&str> =
            builtin::names().filter_map(|n| n.strip_prefix("builtin:")?.strip_suffix(".yml")).collect();
        let flag = if args.engine.is_some() { "--engine" } else { "rules.engine" };
        let says = format!("{flag}: no rules are shipped for `{engine}`, expected one of {}", known.join(", "));
        return Err(Refusal::usage(says, "").into());
    }
    if !args.rules.is_empty() {
        scenario.rules.files.clone_from(&args.rules);
    }
    let mut files = Vec::new();
    for path in &scenario.rules.files {
        files.push(prepare::read(path)?);
    }
    if files.is_empty() || scenario.rules.shipped {
        files.extend(builtin::files(engine, true));
    }
    let set = prepare::load(&files, &scenario)?;
    print(&set, &BTreeMap::new())
}

/// The rules by which a recording was judged, with the numbers that it tells.
fn recorded(dir: &Path, others: &[PathBuf]) -> anyhow::Result<Exit> {
    let Recorded { recording, scenario, rules } = judge::read(dir, others)?;
    let store = analyze::store(&recording, &scenario);
    let analysis = Analysis::new(&recording, &scenario, &rules, &store);
    print(&rules, &analysis.judge().constants())
}

fn print(set: &RuleSet, constants: &BTreeMap<String, f64>) -> anyhow::Result<Exit> {
    super::answer(|out| {
        if set.time_scale != 1.0 {
            let scale = set.time_scale;
            writeln!(
                out,
                "# Every `for`, range and interval is multiplied by {scale}, as in the run: not for production."
            )?;
        }
        if constants.is_empty() && !set.facts.is_empty() {
            let names: Vec<&str> = set.facts.iter().map(|f| f.becomes.as_str()).collect();
            writeln!(out, "# Only a recording tells {}: `plimsoll rules RESULT_DIR`.", names.join(", "))?;
        }
        Ok(out.write_all(print::yaml(set, constants).as_bytes())?)
    })
}

/// What `promtool test rules` proves a recording's rules with.
fn tests(dir: &Path, others: &[PathBuf]) -> anyhow::Result<Exit> {
    let Recorded { recording, scenario, rules } = judge::read(dir, others)?;
    let store = analyze::store(&recording, &scenario);
    let analysis = Analysis::new(&recording, &scenario, &rules, &store);
    let proof = promtool::tests(analysis.judge(), &analysis.verdict(), RULE_FILE);
    for says in &proof.differs {
        super::note(says);
    }
    super::answer(|out| Ok(out.write_all(proof.tests.as_bytes())?))
}
