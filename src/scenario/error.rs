//! What is wrong with a scenario: file, line, what was met, and the nearest valid key.

use std::path::PathBuf;

use crate::model::near::did_you_mean;

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
        let message = in_words(error.message().lines().next().unwrap_or("").trim());
        let told = error.span().map_or(0, |s| s.start).min(text.len());
        let at = key_place(text, told, &message).unwrap_or(told);
        let before = &text[..at];
        ScenarioError::Line {
            origin: origin.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before.rsplit('\n').next().map_or(0, str::len) + 1,
            hint: if message == "missing field `kind`" {
                "give `kind = \"fixed\"`, or synthetic, shared_prefix, conversation, dataset or trace".into()
            } else {
                key_meant(&message)
            },
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
    let begin = from - text[..from].rsplit('\n').next().map_or(0, str::len);
    let assigned = |rest: &str| rest.trim_start().starts_with(['=', '.']);
    let mut at = begin;
    for line in text[begin..].split_inclusive('\n') {
        let code = line.trim_start();
        if code.strip_prefix(key).is_some_and(assigned) {
            return Some(at + line.len() - code.len());
        }
        at += line.len();
    }
    // In a table within a line.
    let places = text[begin..].match_indices(key).map(|(i, _)| begin + i);
    let inside = |i: &usize| {
        let before = text[..*i].trim_end_matches([' ', '\t']);
        before.ends_with(['{', ',']) && assigned(&text[*i + key.len()..])
    };
    places.into_iter().find(inside)
}

/// The reader's message without the names that types have in the program.
pub fn in_words(message: &str) -> String {
    let Some((met, expected)) = message.split_once(", expected ").filter(|_| message.starts_with("invalid ")) else {
        return message.to_owned();
    };
    let expected = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0 on",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" => "a text in quotes",
        "a sequence" => "a list in brackets",
        "a map" => "a table",
        of if of.starts_with("struct ") || of.starts_with("internally tagged enum ") => "a table",
        other => other,
    };
    let met = met.replace("floating point `", "number `").replace("integer `", "number `");
    let met =
        met.replace(": sequence", ": a list").replace(": map", ": a table").replace(": string \"", ": the text \"");
    format!("{met}, expected {expected}")
}

/// Out of "unknown field `a`, expected one of `b`, `c`": the hint which of them is most like `a`; empty if none is.
pub fn key_meant(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let met = quoted.next().filter(|_| message.starts_with("unknown"));
    met.map_or_else(String::new, |met| did_you_mean(met, quoted))
}
