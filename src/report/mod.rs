//! Reports: each a function of the verdict into a writer, so that `judge` remakes them byte for byte.
//!
//! [`terminal`] answers the person who waits, [`json`] the program that asked; [`markdown`],
//! [`junit`] and [`annotations`] speak to CI, [`csv`] to spreadsheets, [`vllm_bench`] to scripts
//! that parse what `vllm bench serve` writes, [`html`] with its [`plot`]s to whoever plans
//! capacity, and [`png`] is the main one of these as a picture. [`compare`] holds one verdict against another. What they say they share as data: the
//! answer ([`answer`]), the caveats ([`caveats`]), the table of the steps ([`rows`]) and that of the GPUs ([`gpu`]). Each
//! escapes what comes from outside in the manner of its format, after [`text::plain`].

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::model::plot::PlotData;
use crate::model::verdict::Verdict;

pub mod annotations;
pub mod answer;
pub mod caveats;
pub mod compare;
pub mod csv;
pub mod gpu;
pub mod html;
pub mod json;
pub mod junit;
pub mod markdown;
pub mod plot;
pub mod png;
pub mod rows;
pub mod schema;
pub mod terminal;
pub mod text;
pub mod vllm_bench;

/// Writes every report of a verdict into `dir`, which must exist, and returns their paths.
/// Without `plots` the page has only those plots that the verdict itself can fill.
///
/// # Errors
/// If a file cannot be written.
pub fn write_all(dir: &Path, verdict: &Verdict, plots: Option<&PlotData>) -> io::Result<Vec<PathBuf>> {
    Ok(vec![
        file(dir, "verdict.json", &|out| json::write(verdict, out))?,
        file(dir, "report.md", &|out| markdown::write(verdict, out, markdown::SUMMARY_LIMIT_BYTES))?,
        file(dir, "junit.xml", &|out| junit::write(verdict, out))?,
        file(dir, "steps.csv", &|out| csv::write(verdict, out))?,
        file(dir, "report.html", &|out| html::write(verdict, plots, out))?,
    ])
}

/// Writes one file whole: readers of a folder that is written after each step see the old
/// report or the new one, never half of one.
fn file(dir: &Path, name: &str, write: &dyn Fn(&mut dyn Write) -> io::Result<()>) -> io::Result<PathBuf> {
    let mut bytes = Vec::new();
    write(&mut bytes)?;
    let (path, unfinished) = (dir.join(name), dir.join(format!(".{name}.tmp")));
    std::fs::write(&unfinished, bytes)?;
    std::fs::rename(&unfinished, &path)?;
    Ok(path)
}
