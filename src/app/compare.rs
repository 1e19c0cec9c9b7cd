//! `plimsoll compare`: what changed between two runs, and whether that is more than noise.

use std::path::Path;

use crate::cli::{CompareArgs, CompareFormat};
use crate::compare::{self, Settings};
use crate::error::{Exit, Refusal};
use crate::model::comparison::{Comparison, Judgement};
use crate::model::verdict::Verdict;
use crate::report;
use crate::scenario::Scenario;

use super::{gate, judge};

/// Compares, prints, and answers with the exit code of a gate: 99 if anything got worse, 4 if the runs cannot be compared.
pub fn compare(args: &CompareArgs) -> anyhow::Result<Exit> {
    let (base, _) = read(&args.base)?;
    let (new, scenario) = read(&args.new)?;
    let run_noise = args.run_noise.unwrap_or_else(|| gate::run_noise(scenario.as_ref()));
    let mut found = compare::compare(&base, &new, Settings { run_noise });
    let refused = !found.incomparable.is_empty() && !args.force;
    if refused {
        found.changes.clear();
        found.limit.judgement = Judgement::CannotTell;
    }
    super::answer(|out| {
        match args.format {
            CompareFormat::Text => {
                let style = report::terminal::Style { color: super::colour(), width: super::width() };
                report::compare::write(&found, out, style)?;
            }
            CompareFormat::Markdown => report::compare::markdown(&found, out)?,
            CompareFormat::Json => {
                serde_json::to_writer_pretty(&mut *out, &found)?;
                writeln!(out)?;
            }
        }
        Ok(())
    })?;
    super::ci::append(|_| {
        let mut text = Vec::new();
        // A Vec takes everything.
        let _ = report::compare::markdown(&found, &mut text);
        text
    });
    if refused {
        let differs: Vec<&str> = found.incomparable.iter().map(|d| d.what.as_str()).collect();
        return Err(Refusal {
            exit: Exit::Inconclusive,
            says: format!("the two runs cannot be compared: they differ in {}", differs.join(", ")),
            hint: "--force compares all the same; what differs then stands above the table".into(),
        }
        .into());
    }
    Ok(exit(&found))
}

fn exit(c: &Comparison) -> Exit {
    let worse = c.limit.judgement == Judgement::Worse || c.changes.iter().any(|x| x.judgement == Judgement::Worse);
    match worse {
        true => Exit::GateFailed,
        false if c.changes.is_empty() => Exit::Inconclusive,
        false => Exit::Done,
    }
}

/// The verdict in a file, or of a run's folder: made anew from the recording where there is one, so that two folders
/// are judged by one program. The scenario comes with a recording.
fn read(path: &Path) -> anyhow::Result<(Verdict, Option<Scenario>)> {
    let none: [&Path; 0] = [];
    if path.join("run.jsonl").exists() {
        let recorded = judge::read(path, &none)?;
        let verdict = crate::analyze::verdict(&recorded.recording, &recorded.scenario, &recorded.rules);
        return Ok((verdict, Some(recorded.scenario)));
    }
    let file = if path.is_dir() { path.join("verdict.json") } else { path.to_owned() };
    let text = std::fs::read_to_string(&file).map_err(|e| {
        Refusal::usage(
            format!("cannot read {}: {e}", file.display()),
            "name the folder of a run, such as results/<utc>-<scenario>, or a verdict.json",
        )
    })?;
    Ok((gate::parse(&text, &file)?, None))
}
