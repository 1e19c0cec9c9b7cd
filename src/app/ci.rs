//! What a CI system is told besides: the job's summary and annotations of GitHub Actions.

use std::io::Write;

use crate::model::verdict::Verdict;
use crate::report;

/// Names the file that the job's summary is appended to.
const SUMMARY: &str = "GITHUB_STEP_SUMMARY";
/// Is `true` within GitHub Actions.
const ACTIONS: &str = "GITHUB_ACTIONS";

/// Appends the report to the job's summary, and prints annotations, where GitHub Actions runs us.
/// Annotations go to standard error, which the runner reads as well: standard output is the answer.
pub fn tell(verdict: &Verdict) {
    append(|room| {
        let mut text = Vec::new();
        // A Vec takes everything.
        let _ = report::markdown::write(verdict, &mut text, room);
        text
    });
    if std::env::var(ACTIONS).is_ok_and(|v| v == "true") {
        let _ = report::annotations::write(verdict, &mut std::io::stderr().lock());
    }
}

/// Appends what `text` makes of the room that is left to the job's summary, if there is one.
/// A summary that cannot be written does not change the answer; it is said on standard error.
pub fn append(text: impl FnOnce(usize) -> Vec<u8>) {
    let Some(path) = std::env::var_os(SUMMARY).filter(|p| !p.is_empty()) else { return };
    let appended = std::fs::OpenOptions::new().append(true).create(true).open(&path).and_then(|mut file| {
        let taken = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        let mut text = text(report::markdown::SUMMARY_LIMIT_BYTES.saturating_sub(taken));
        if taken > 0 {
            text.insert(0, b'\n');
        }
        file.write_all(&text)
    });
    if let Err(error) = appended {
        let _ = writeln!(std::io::stderr(), "plimsoll: cannot append to {SUMMARY} ({}): {error}", path.display());
    }
}
