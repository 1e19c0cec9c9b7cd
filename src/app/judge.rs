//! `plimsoll judge`: the right half alone, from a recording.

use std::path::Path;

use anyhow::Context;

use crate::analyze;
use crate::cli::JudgeArgs;
use crate::error::{Exit, Refusal};
use crate::model::recording::{Recording, RuleFile};
use crate::record;
use crate::report;
use crate::rules::RuleSet;
use crate::scenario::Scenario;

use super::{prepare, run};

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
    let Recorded { recording, scenario, rules } = read(&args.dir, &args.rules)?;
    let stores = analyze::Stores::new(&recording, &scenario, &rules);
    let verdict = analyze::Analysis::new(&recording, &scenario, &rules, &stores).verdict();
    let mut written = None;
    if !args.dry_run {
        report::write_all(&args.dir, &verdict, Some(&analyze::plots(&recording, &stores)))
            .with_context(|| format!("writing the reports into {}", args.dir.display()))?;
        written = Some(args.dir.as_path());
    }
    super::tell(&verdict, args.json, written)?;
    Ok(run::exit(&verdict, scenario.rules.enabled || !args.rules.is_empty()))
}
