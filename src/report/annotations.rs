//! Workflow commands of GitHub Actions, which it shows beside the job: what failed the gate as
//! errors, what is doubtful as warnings, the answer as a notice.

use std::io::{self, Write};

use super::answer;
use super::caveats;
use super::text::plain;
use crate::model::verdict::{CheckState, RunOutcome, Verdict};

/// GitHub shows ten of a kind for a step and drops the rest without a word.
const MOST: usize = 10;

/// Writes the annotations, one a line.
///
/// # Errors
/// If the writer fails.
pub fn write(verdict: &Verdict, out: &mut dyn Write) -> io::Result<()> {
    let mut errors = Vec::new();
    let mut warnings = Vec::new();
    for check in verdict.gate.iter().flat_map(|g| &g.checks).filter(|c| c.state != CheckState::Passed) {
        let title = format!("gate: check {}", answer::check_word(check.state));
        errors.push((title, format!("{}: {}", plain(&check.check), plain(&check.says))));
    }
    for c in caveats::grouped(verdict) {
        let hint = if c.hint.is_empty() { String::new() } else { format!("\nhint: {}", c.hint) };
        warnings.push((format!("caveat: {}", c.code), format!("{}{hint}", c.line())));
    }
    let mut words = answer::sentence(verdict);
    for e in answer::entries(verdict).iter().filter(|e| matches!(e.label, "because" | "do")) {
        words += &format!("\n{}: {}", e.label, e.lines[0]);
    }
    let own = (format!("plimsoll: {}", plain(&verdict.scenario)), words);
    let notices = match verdict.outcome {
        RunOutcome::Alert | RunOutcome::Clean => vec![own],
        RunOutcome::Inconclusive => {
            warnings.insert(0, own);
            vec![]
        }
    };
    for (level, items) in [("error", errors), ("warning", warnings), ("notice", notices)] {
        let shown = if items.len() > MOST { MOST - 1 } else { items.len() };
        for (title, message) in &items[..shown] {
            writeln!(out, "::{level} title={}::{}", property(title), data(message))?;
        }
        if shown < items.len() {
            writeln!(out, "::{level} title=plimsoll::{} more are in verdict.json", items.len() - shown)?;
        }
    }
    Ok(())
}

/// The text of a command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// The value of a property of a command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_end_its_command() {
        assert_eq!(data("a%0A\n::error::x"), "a%250A%0A::error::x");
        assert_eq!(property("a,b::c\r"), "a%2Cb%3A%3Ac%0D");
    }
}
