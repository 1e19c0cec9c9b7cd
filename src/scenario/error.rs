//! What is wrong with a scenario: file, line, what was met, and the nearest valid key.

use std::path::PathBuf;

/// Why a scenario cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("cannot read the scenario {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line of it is wrong.
    #[error("{origin}:{line}:{column}: {says}")]
    Line {
        /// The file as it was given.
        origin: String,
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// What was met and what is allowed.
        says: String,
        /// The nearest valid key; empty without one.
        hint: String,
    },
    /// Its parts do not fit together.
    #[error("{origin}: {says}")]
    Contradiction {
        /// The file as it was given.
        origin: String,
        /// What does not fit.
        says: String,
    },
}

impl ScenarioError {
    /// From the TOML reader's error, whose span becomes a line.
    pub(super) fn pointed(origin: &str, text: &str, error: &toml::de::Error) -> ScenarioError {
        let message = error.message().lines().next().unwrap_or("").trim().to_owned();
        let told = error.span().map_or(0, |s| s.start).min(text.len());
        let at = key_place(text, told, &message).unwrap_or(told);
        let before = &text[..at];
        ScenarioError::Line {
            origin: origin.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before.rsplit('\n').next().map_or(0, str::len) + 1,
            hint: nearest(&message).map(|key| format!("did you mean `{key}`?")).unwrap_or_default(),
            says: match text.lines().nth(before.matches('\n').count()).map(str::trim) {
                Some(line) if !line.is_empty() => format!("{message}, in `{line}`"),
                _ => message,
            },
        }
    }

    /// What to do; empty where the message says it all.
    pub fn hint(&self) -> &str {
        match self {
            ScenarioError::Line { hint, .. } => hint,
            ScenarioError::Read { .. } | ScenarioError::Contradiction { .. } => "",
        }
    }
}

/// Where the key of an unknown-field error stands. In a table that picks its kind by a key of its own
/// the reader only tells where the table begins.
fn key_place(text: &str, from: usize, message: &str) -> Option<usize> {
    let key = message.strip_prefix("unknown field `")?.split('`').next()?;
    let mut at = from - text[..from].rsplit('\n').next().map_or(0, str::len);
    for line in text[at..].split_inclusive('\n') {
        let code = line.trim_start();
        let rest = code.strip_prefix(key).map(str::trim_start);
        if rest.is_some_and(|r| r.starts_with(['=', '.'])) {
            return Some(at + line.len() - code.len());
        }
        at += line.len();
    }
    None
}

/// Out of "unknown field `a`, expected one of `b`, `c`": the key that is most like `a`.
fn nearest(message: &str) -> Option<String> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let met = quoted.next().filter(|_| message.starts_with("unknown"))?;
    quoted
        .map(|key| (strsim::jaro_winkler(met, key), key))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(likeness, _)| *likeness > 0.7)
        .map(|(_, key)| key.to_owned())
}
