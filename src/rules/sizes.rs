//! The sizes of the requests as series of our own, so that pair rules can reckon with them.

use crate::model::recording::Recording;
use crate::model::sample::{Labels, NAME, SourceKind};
use crate::series::Store;

/// Median prompt of a step's requests, tokens.
pub const PROMPT: &str = "plimsoll_request_prompt_tokens";
/// Median answer of a step's requests, tokens.
pub const OUTPUT: &str = "plimsoll_request_output_tokens";

/// Prompt and answer sizes of a step's requests as the server counted them, else as they were asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sizes {
    /// Prompt tokens, sorted.
    pub prompt: Vec<f64>,
    /// Answer tokens, sorted.
    pub output: Vec<f64>,
}

impl Sizes {
    /// Of the requests that `step` sent.
    pub fn of(recording: &Recording, step: u32) -> Sizes {
        let mut sizes = Sizes::default();
        for r in recording.requests.iter().filter(|r| r.step == step) {
            sizes.prompt.extend(r.usage.prompt_tokens.or(r.asked_prompt_tokens).map(f64::from));
            // An answer that was cut off says nothing about how long answers are.
            let full = if r.completed() { Some(r.output_tokens()) } else { r.asked_output_tokens };
            sizes.output.extend(full.map(f64::from));
        }
        sizes.prompt.sort_by(f64::total_cmp);
        sizes.output.sort_by(f64::total_cmp);
        sizes
    }

    /// Whether the requests are of different sizes.
    pub fn vary(&self) -> bool {
        [&self.prompt, &self.output].iter().any(|of| of.first() != of.last())
    }
}

/// Writes both sizes at every scrape of each step.
pub(crate) fn push_sizes(recording: &Recording, into: &mut Store) {
    let times: Vec<_> = recording.scrapes.iter().filter(|s| s.source == SourceKind::Server).map(|s| s.sent).collect();
    for step in &recording.steps {
        let sizes = Sizes::of(recording, step.step);
        for (name, values) in [(PROMPT, &sizes.prompt), (OUTPUT, &sizes.output)] {
            let Some(median) = middle(values) else { continue };
            let labels = Labels::new([(NAME, name), ("job", "plimsoll")]);
            for t in times.iter().filter(|t| step.contains(**t)) {
                into.push(&labels, recording.unix_ms(*t), median);
            }
        }
    }
}

/// Median of sorted values; the lower middle of an even number, so that it is a value that was met.
pub fn middle(sorted: &[f64]) -> Option<f64> {
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}
