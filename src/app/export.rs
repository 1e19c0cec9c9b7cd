//! `plimsoll export`: a recording's data for other tools.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::cli::{ExportArgs, ExportFormat};
use crate::error::Refusal;
use crate::model::recording::Recording;
use crate::model::verdict::Verdict;
use crate::record::openmetrics;
use crate::report;
use crate::report::vllm_bench::{Detail, Requests};
use crate::series::{Series, Store, is_stale};

use super::judge;
use super::query;

/// Writes the data to the file that was asked for, else to `out`.
///
/// # Errors
/// If the recording or its verdict cannot be read, or the data cannot be written.
pub fn export(args: &ExportArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    // Everything is read before the file is made: a failure leaves no empty one.
    let recorded = match args.format {
        ExportFormat::Csv | ExportFormat::Png => None,
        ExportFormat::Openmetrics | ExportFormat::VllmBench => Some(judge::read(&args.dir, &[] as &[&Path])?),
    };
    let verdict = match args.format {
        ExportFormat::Openmetrics => None,
        ExportFormat::Csv | ExportFormat::VllmBench | ExportFormat::Png => Some(verdict(&args.dir)?),
    };
    let picture = match (&verdict, args.format) {
        (Some(verdict), ExportFormat::Png) => Some(picture(verdict, args)?),
        _ => None,
    };
    let write = |out: &mut dyn Write| match (&recorded, &verdict) {
        (None, Some(_)) if picture.is_some() => out.write_all(picture.as_deref().unwrap_or_default()),
        (Some(recorded), None) => open_metrics(&query::store(recorded), out),
        (None, Some(verdict)) => report::csv::write(verdict, out),
        (Some(recorded), Some(verdict)) => vllm_bench(verdict, &recorded.recording, out),
        (None, None) => unreachable!("each format reads one of the two"),
    };
    match &args.output {
        None => write(out).context("standard output could not be written"),
        Some(path) => {
            let context = || format!("the file {} could not be written", path.display());
            let mut file = BufWriter::new(File::create(path).with_context(context)?);
            write(&mut file).and_then(|()| file.flush()).with_context(context)
        }
    }
}

/// All series of a store with their times, sorted by labels, so that each metric stands
/// together. Staleness markers cannot be said in OpenMetrics and are left out: within the
/// look-back behind one, a Prometheus that loaded the text still sees the older value.
///
/// # Errors
/// If `out` fails.
pub fn open_metrics(store: &Store, out: &mut dyn Write) -> io::Result<()> {
    let mut series: Vec<&Series> = store.all().collect();
    series.sort_by(|a, b| (a.labels.name(), &a.labels).cmp(&(b.labels.name(), &b.labels)));
    let rows = series.into_iter().map(|s| (&s.labels, store.samples(s).filter(|(_, value)| !is_stale(*value))));
    openmetrics::write(out, rows)
}

/// One object a step, one a line, under the keys of `vllm bench serve`.
fn vllm_bench(verdict: &Verdict, recording: &Recording, out: &mut dyn Write) -> io::Result<()> {
    for step in &verdict.steps {
        let requests = Requests::of(recording, step.step);
        report::vllm_bench::write(verdict, step, Some(&requests), Detail::Aggregates, out)?;
    }
    Ok(())
}

/// The main plot as a picture. A terminal is no place for it.
fn picture(verdict: &Verdict, args: &ExportArgs) -> anyhow::Result<Vec<u8>> {
    if args.output.is_none() && io::stdout().is_terminal() {
        let hint = "name a file with --output plot.png";
        return Err(Refusal::usage("a picture cannot be shown on a terminal", hint).into());
    }
    report::png::picture(verdict)?.ok_or_else(|| {
        let says = format!("{}: no step measured a latency, so there is nothing to draw", args.dir.display());
        Refusal::usage(says, "").into()
    })
}

/// The verdict that the run or the last `judge` left in the folder.
fn verdict(dir: &Path) -> anyhow::Result<Verdict> {
    let path: PathBuf = dir.join("verdict.json");
    let text = std::fs::read_to_string(&path).map_err(|e| {
        let hint = format!("make it with `plimsoll judge {}`", dir.display());
        Refusal::usage(format!("the verdict {} could not be read: {e}", path.display()), hint)
    })?;
    report::json::read(&text).with_context(|| format!("the verdict {} could not be read", path.display()))
}
