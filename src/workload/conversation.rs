//! Conversations: each turn sends all that was said before, so that a prefix cache has something to do.
//!
//! The earlier answers are made up from the seed, at the length that was asked for, and are not the server's own: only so does a
//! run send the same bytes at any concurrency. What a cache can keep of a conversation is therefore its prompts, not its answers.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use super::text::{self, Calibration, mix};
use super::{Lengths, Message, Prompt, Role, WorkloadError};

/// Conversations of several turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConversationSpec {
    /// Questions in a conversation.
    pub turns: u32,
    /// Tokens that a question adds to the prompt, chat template included; the answer before it is not counted here.
    pub input_tokens: Lengths,
    /// Answer, tokens.
    pub output_tokens: Lengths,
    /// Mean time between an answer and the next question; drawn exponentially, at most five times this.
    #[serde(default, with = "crate::model::units::duration")]
    pub think_time: Duration,
}

#[derive(Clone, Debug)]
pub(super) struct Conversations(ConversationSpec);

impl Conversations {
    pub(super) fn new(spec: &ConversationSpec, calibration: &Calibration) -> Result<Conversations, WorkloadError> {
        if spec.turns == 0 {
            return Err(WorkloadError::Setting("turns = 0, expected at least 1".into()));
        }
        for lengths in [&spec.input_tokens, &spec.output_tokens] {
            if let Some(fault) = lengths.fault() {
                return Err(WorkloadError::Setting(fault));
            }
        }
        let asked = spec.input_tokens.bounds().0;
        let least = calibration.shortest_prompt().max(calibration.turn_tokens + 1);
        if asked < least {
            return Err(WorkloadError::TooShort { asked, least, overhead: calibration.overhead_tokens });
        }
        Ok(Conversations(spec.clone()))
    }

    pub(super) fn turns(&self) -> u32 {
        self.0.turns
    }

    pub(super) fn longest(&self) -> (Option<u32>, Option<u32>) {
        let (input, output) = (self.0.input_tokens.bounds().1, self.0.output_tokens.bounds().1);
        let earlier = (input.saturating_add(output)).saturating_mul(self.0.turns - 1);
        (Some(input.saturating_add(earlier)), Some(output))
    }

    /// Input and output lengths of one turn.
    fn lengths(&self, index: u64, seed: u64) -> (u32, u32) {
        let mut rng = Pcg64Mcg::seed_from_u64(mix(seed, index));
        (self.0.input_tokens.draw(&mut rng), self.0.output_tokens.draw(&mut rng))
    }

    pub(super) fn think_time(&self, index: u64, seed: u64) -> Duration {
        let mut rng = Pcg64Mcg::seed_from_u64(mix(seed ^ 0x7468_696e, index));
        let factor: f64 = -(1.0 - rng.random::<f64>()).ln();
        self.0.think_time.mul_f64(factor.min(5.0))
    }

    pub(super) fn request(&self, index: u64, seed: u64, text_seed: u64, calibration: &Calibration) -> Prompt {
        let turn = index % u64::from(self.0.turns);
        let mut messages = Vec::new();
        let mut total = 0;
        for (i, at) in (index - turn..=index).enumerate() {
            let (input, output) = self.lengths(at, seed);
            let template = if i == 0 { calibration.overhead_tokens } else { calibration.turn_tokens };
            let mut question = text::opening(calibration, input);
            text::write(&mut question, calibration, input.saturating_sub(template), text_seed, at);
            messages.push(Message { role: Role::User, content: question });
            total += input;
            if at == index {
                return Prompt { index, messages, asked_prompt_tokens: Some(total), asked_output_tokens: Some(output) };
            }
            let mut answer = text::opening(calibration, output);
            text::write(&mut answer, calibration, output, mix(text_seed, 7), at);
            messages.push(Message { role: Role::Assistant, content: answer });
            total += output;
        }
        unreachable!("the range ends with `index`")
    }
}

#[cfg(test)]
mod tests {
    use crate::workload::{Workload, WorkloadSpec};

    use super::*;

    #[test]
    fn a_turn_repeats_what_was_said_and_adds_a_question() {
        let spec: WorkloadSpec = toml::from_str(
            "kind = \"conversation\"\nturns = 3\ninput_tokens = 60\noutput_tokens = 20\nthink_time = \"2s\"",
        )
        .unwrap();
        let w = Workload::new(&spec, 1, "a", Calibration::one_token_words(11)).unwrap();
        assert_eq!(w.turns(), 3);
        assert_eq!(w.longest(), (Some(60 * 3 + 20 * 2), Some(20)));
        let (first, second, other) = (w.request(3), w.request(4), w.request(6));
        assert_eq!(second.messages.len(), 3);
        assert_eq!(second.messages[0], first.messages[0]);
        assert_eq!(second.asked_prompt_tokens, Some(60 + 20 + 60));
        assert_eq!(other.messages.len(), 1);
        assert_ne!(other.messages[0], first.messages[0]);
        assert!(w.think_time(4) > Duration::ZERO && w.think_time(4) <= Duration::from_secs(10));
        assert_eq!(w.think_time(3), Duration::ZERO, "a new conversation begins at once");
    }
}
