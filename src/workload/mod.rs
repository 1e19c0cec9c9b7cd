//! What to send: (seed, nonce, request index) to a prompt.
//!
//! A [`Workload`] is a pure function of its spec, the seed, the run's nonce and the request's
//! index: the same four give the same bytes, at any concurrency. Lengths come from (seed, index)
//! alone, so that two runs of one seed apply the same load; texts also from the nonce, so that a
//! second run against a warm server does not measure its prefix cache. [`Calibration`] is what
//! was learnt of the server's tokenizer, and lets a prompt be made of an exact number of tokens.

mod conversation;
mod csv;
pub mod dataset;
mod lengths;
mod synthetic;
mod text;
pub mod trace;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use conversation::ConversationSpec;
pub use dataset::DatasetSpec;
pub use lengths::{Lengths, Spread};
pub use synthetic::{FixedSpec, SharedPrefixSpec, SyntheticSpec};
pub use text::{CANDIDATES, Calibration, FIRST_WORD, candidates};
pub use trace::TraceSpec;

/// What to send, as a scenario states it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum WorkloadSpec {
    /// Every request of one length.
    Fixed(FixedSpec),
    /// Lengths drawn from distributions.
    Synthetic(SyntheticSpec),
    /// Groups of requests that share the head of their prompt.
    SharedPrefix(SharedPrefixSpec),
    /// Several turns, each with all that was said before.
    Conversation(ConversationSpec),
    /// Prompts of the user's own.
    Dataset(DatasetSpec),
    /// Lengths and arrivals of recorded traffic.
    Trace(TraceSpec),
}

impl WorkloadSpec {
    /// The file that it reads, if it reads one.
    pub fn path_mut(&mut self) -> Option<&mut std::path::PathBuf> {
        match self {
            WorkloadSpec::Dataset(d) => Some(&mut d.path),
            WorkloadSpec::Trace(t) => Some(&mut t.path),
            _ => None,
        }
    }
}

impl Default for WorkloadSpec {
    fn default() -> WorkloadSpec {
        WorkloadSpec::Synthetic(SyntheticSpec::default())
    }
}

/// Who speaks in a chat message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions ahead of the conversation.
    System,
    /// The person.
    User,
    /// The model, in an earlier turn.
    Assistant,
}

/// One message of a chat prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: String,
}

/// One request, before it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Index of the request in its run, from 0.
    pub index: u64,
    /// The chat messages.
    pub messages: Vec<Message>,
    /// Length that the chat-templated prompt was made for, tokens; `None` where the text was given and its length is unknown.
    pub asked_prompt_tokens: Option<u32>,
    /// `max_tokens` to ask for; `None` leaves it to the server.
    pub asked_output_tokens: Option<u32>,
}

/// Why a workload cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// A length below what any prompt costs.
    #[error("prompt of {asked} tokens asked for, expected at least {least}: the chat template alone takes {overhead}")]
    TooShort {
        /// Tokens that were asked for.
        asked: u32,
        /// Shortest prompt that still differs from the others.
        least: u32,
        /// Tokens of the template.
        overhead: u32,
    },
    /// A file that cannot be used.
    #[error("{path}: {what}")]
    Dataset {
        /// The file.
        path: String,
        /// What is wrong with it.
        what: String,
    },
    /// A setting outside its range.
    #[error("workload: {0}")]
    Setting(String),
}

impl WorkloadError {
    /// Advice, where there is any.
    pub fn hint(&self) -> Option<String> {
        match self {
            WorkloadError::TooShort { least, .. } => Some(format!("set input_tokens to {least} or more")),
            WorkloadError::Dataset { what, .. } if what.contains("rows cannot be used") => {
                Some("mend these rows, or leave them out with broken_rows = \"skip\"".into())
            }
            WorkloadError::Dataset { .. } | WorkloadError::Setting(_) => None,
        }
    }
}

/// A source of prompts. See the folder's text for what it is a function of.
#[derive(Clone, Debug)]
pub struct Workload {
    source: Source,
    calibration: Calibration,
    seed: u64,
    text_seed: u64,
}

#[derive(Clone, Debug)]
enum Source {
    Drawn(synthetic::Drawn),
    Conversations(conversation::Conversations),
    Dataset(dataset::Dataset),
    Trace(trace::Trace),
}

impl Workload {
    /// A workload of `spec`. `nonce` makes the texts differ from those of any other run.
    ///
    /// # Errors
    /// If a length is shorter than the server's chat template, a setting is out of range, or a file cannot be used.
    pub fn new(
        spec: &WorkloadSpec,
        seed: u64,
        nonce: &str,
        calibration: Calibration,
    ) -> Result<Workload, WorkloadError> {
        let drawn = |d: synthetic::Drawn| d.check(&calibration).map(|()| Source::Drawn(d));
        let source = match spec {
            WorkloadSpec::Fixed(s) => drawn(synthetic::Drawn::fixed(s))?,
            WorkloadSpec::Synthetic(s) => drawn(synthetic::Drawn::synthetic(s))?,
            WorkloadSpec::SharedPrefix(s) => drawn(synthetic::Drawn::shared_prefix(s))?,
            WorkloadSpec::Conversation(s) => Source::Conversations(conversation::Conversations::new(s, &calibration)?),
            WorkloadSpec::Dataset(s) => Source::Dataset(dataset::Dataset::open(s)?),
            WorkloadSpec::Trace(s) => Source::Trace(trace::Trace::open(s, &calibration)?),
        };
        Ok(Workload { source, calibration, seed, text_seed: text::hash(seed, nonce) })
    }

    /// The request of that index.
    pub fn request(&self, index: u64) -> Prompt {
        let (seed, text_seed, calibration) = (self.seed, self.text_seed, &self.calibration);
        match &self.source {
            Source::Drawn(d) => d.request(index, seed, text_seed, calibration),
            Source::Conversations(c) => c.request(index, seed, text_seed, calibration),
            Source::Dataset(d) => d.request(index, seed, text_seed, calibration),
            Source::Trace(t) => t.request(index, text_seed, calibration),
        }
    }

    /// How many consecutive indices belong together and must be sent one after another: the turns of a conversation; 1 elsewhere.
    pub fn turns(&self) -> u32 {
        match &self.source {
            Source::Conversations(c) => c.turns(),
            _ => 1,
        }
    }

    /// How long to wait after the answer before, until the request of that index is sent.
    pub fn think_time(&self, index: u64) -> Duration {
        match &self.source {
            Source::Conversations(c) if !index.is_multiple_of(u64::from(c.turns())) => c.think_time(index, self.seed),
            _ => Duration::ZERO,
        }
    }

    /// Longest prompt and longest answer that it can ask for, tokens; `None` where the lengths are not known ahead.
    pub fn longest(&self) -> (Option<u32>, Option<u32>) {
        match &self.source {
            Source::Drawn(d) => d.longest(),
            Source::Conversations(c) => c.longest(),
            Source::Dataset(_) => (None, None),
            Source::Trace(t) => t.longest(),
        }
    }

    /// Lines of a data set that surely do not fit into a model of `max_model_len` tokens.
    pub fn lines_longer_than(&self, max_model_len: u32) -> Vec<u64> {
        match &self.source {
            Source::Dataset(d) => d.lines_longer_than(max_model_len),
            _ => Vec::new(),
        }
    }

    /// Times between the arrivals of recorded traffic, in units of their mean; empty where none are recorded.
    pub fn recorded_gaps(&self) -> Vec<f64> {
        match &self.source {
            Source::Trace(t) => t.gaps(),
            _ => Vec::new(),
        }
    }
}
