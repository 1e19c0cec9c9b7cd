//! The answer on a terminal.

use std::io::{self, Write};

use crate::model::verdict::Verdict;

/// How the terminal is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether to colour; nothing is said by colour alone.
    pub color: bool,
    /// Columns to fill.
    pub width: u16,
}

/// Writes the answer, its caveats and the table of the steps.
///
/// # Errors
/// If the writer fails.
pub fn write(verdict: &Verdict, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let _ = style;
    writeln!(out, "{:?}", verdict.outcome)
}
