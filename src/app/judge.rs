//! `plimsoll judge`: the right half alone, from a recording.

use std::path::Path;

use anyhow::Context;

use crate::analyze;
use crate::cli::JudgeArgs;
use crate::error::{Exit, Refusal};
use crate::model::recording::{Recording, RuleFile};
use crate::model::verdict::Verdict;
use crate::record;
use crate::report;
use crate::rules::RuleSet;
use crate::scenario::Scenario;

use super::{gate, prepare, run};

/// A recording with what it was judged by.
pub struct Recorded {
    /// The recording.
    pub recording: Recording,
    /// Its scenario, as resolved when it ran.
    pub scenario: Scenario,
    /// Its rules, or others.
    pub rules: RuleSet,
}

/// Reads a run's folder.
///
/// # Errors
/// If there is no recording, or it cannot be read, or its rules cannot be loaded.
pub fn read(dir: &Path, others: &[impl AsRef<Path>]) -> anyhow::Result<Recorded> {
    let recording = open(dir)?;
    let scenario = Scenario::parse(&recording.header.scenario_toml, &format!("the scenario in {}", dir.display()))
        .map_err(Refusal::from)?;
    let files = if others.is_empty() {
        recording.header.rule_files.clone()
    } else {
        let mut files: Vec<RuleFile> = Vec::new();
        for path in others {
            files.push(prepare::read(path.as_ref())?);
        }
        // Names, facts and pairs of the run go on serving the tables and the explanation.
        files.extend(recording.header.rule_files.iter().filter(|f| f.name.starts_with("builtin:")).cloned());
        files
    };
    let rules = prepare::load(&files, &scenario)?;
    Ok(Recorded { recording, scenario, rules })
}

/// The recording in a run's folder.
///
/// # Errors
/// If there is none, or it cannot be read.
pub fn open(dir: &Path) -> Result<Recording, Refusal> {
    record::read(dir).map_err(|error| {
        let says = format!("{:#}", anyhow::Error::from(error));
        Refusal::usage(says, "name the folder of a run, such as results/<utc>-<scenario>")
    })
}

/// Judges a recording again.
pub fn judge(args: &JudgeArgs) -> anyhow::Result<Exit> {
    let off = args.rules.iter().any(|file| file.as_os_str() == "off");
    if off && args.rules.len() > 1 {
        return Err(
            Refusal::usage("--rules off judges nothing, and stands beside rule files", "give one of both").into()
        );
    }
    let Recorded { recording, mut scenario, mut rules } = read(&args.dir, if off { &[] } else { &args.rules[..] })?;
    if !args.rules.is_empty() {
        scenario.rules.enabled = !off;
    }
    if off {
        rules = prepare::load(&[], &scenario)?;
    }
    // What other rules say must not take the place of what the run's own rules said.
    let reports = match &args.out {
        Some(out) => Some(out.as_path()),
        None if args.dry_run || !args.rules.is_empty() => None,
        None => Some(args.dir.as_path()),
    };
    if let Some(folder) = reports {
        std::fs::create_dir_all(folder)
            .map_err(|e| Refusal::usage(format!("cannot make the folder {}: {e}", folder.display()), ""))?;
    }
    let verdict = answer(&recording, &scenario, &rules, &args.dir, reports)?;
    super::tell(&verdict, args.json, reports)?;
    Ok(run::exit(&verdict, scenario.rules.enabled))
}

/// The right half: the verdict of a recording, held against the baseline that was kept beside it in `run`, and its
/// reports in `folder` if there is one.
///
/// # Errors
/// If the baseline cannot be read, or a report cannot be written.
pub fn answer(
    recording: &Recording,
    scenario: &Scenario,
    rules: &RuleSet,
    run: &Path,
    folder: Option<&Path>,
) -> anyhow::Result<Verdict> {
    let store = analyze::store(recording, scenario);
    let verdict = || -> Result<Verdict, Refusal> {
        let mut verdict = analyze::Analysis::new(recording, scenario, rules, &store).verdict();
        gate::hold(&mut verdict, scenario, run)?;
        Ok(verdict)
    };
    let Some(folder) = folder else { return Ok(verdict()?) };
    let (verdict, plots) = std::thread::scope(|scope| {
        let plots = scope.spawn(|| analyze::plots(recording, rules, &store));
        // A panic there is ours as well: go on panicking.
        (verdict(), plots.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let verdict = verdict?;
    report::write_all(folder, &verdict, Some(&plots))
        .with_context(|| format!("writing the reports into {}", folder.display()))?;
    Ok(verdict)
}
