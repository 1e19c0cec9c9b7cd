//! Made-up prompts: one length, drawn lengths, and groups that share a head.

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use super::text::{self, Calibration};
use super::{Lengths, Message, Prompt, Role, WorkloadError};

/// Every request of one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FixedSpec {
    /// Prompt, tokens, chat template included.
    pub input_tokens: u32,
    /// Answer, tokens.
    pub output_tokens: u32,
}

/// Lengths drawn from distributions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SyntheticSpec {
    /// Prompt, tokens, chat template included.
    pub input_tokens: Lengths,
    /// Answer, tokens.
    pub output_tokens: Lengths,
}

impl Default for SyntheticSpec {
    /// A chat: some 500 tokens in, some 150 out.
    fn default() -> SyntheticSpec {
        let around = |mean: f64, stdev: f64, min, max| Lengths::Spread(super::Spread::Normal { mean, stdev, min, max });
        SyntheticSpec { input_tokens: around(512.0, 128.0, 64, 1_024), output_tokens: around(160.0, 40.0, 16, 320) }
    }
}

/// Groups of requests that share the head of their prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedPrefixSpec {
    /// How many different heads there are; requests take them in turn.
    pub groups: u32,
    /// Length of the shared head, tokens.
    pub prefix_tokens: u32,
    /// The rest of the prompt, tokens, chat template included.
    pub input_tokens: Lengths,
    /// Answer, tokens.
    pub output_tokens: Lengths,
}

/// All three kinds are one: a head of some length, shared by a group, and a tail of its own.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    groups: u32,
    prefix_tokens: u32,
    input: Lengths,
    output: Lengths,
}

impl Drawn {
    pub(super) fn fixed(s: &FixedSpec) -> Drawn {
        Drawn {
            groups: 0,
            prefix_tokens: 0,
            input: Lengths::Exact(s.input_tokens),
            output: Lengths::Exact(s.output_tokens),
        }
    }

    pub(super) fn synthetic(s: &SyntheticSpec) -> Drawn {
        Drawn { groups: 0, prefix_tokens: 0, input: s.input_tokens.clone(), output: s.output_tokens.clone() }
    }

    pub(super) fn shared_prefix(s: &SharedPrefixSpec) -> Drawn {
        Drawn {
            groups: s.groups.max(1),
            prefix_tokens: s.prefix_tokens,
            input: s.input_tokens.clone(),
            output: s.output_tokens.clone(),
        }
    }

    pub(super) fn check(&self, calibration: &Calibration) -> Result<(), WorkloadError> {
        for lengths in [&self.input, &self.output] {
            if let Some(fault) = lengths.fault() {
                return Err(WorkloadError::Setting(fault));
            }
        }
        let (asked, least) = (self.input.bounds().0, calibration.shortest_prompt());
        if asked < least {
            return Err(WorkloadError::TooShort { asked, least, overhead: calibration.overhead_tokens });
        }
        Ok(())
    }

    pub(super) fn longest(&self) -> (Option<u32>, Option<u32>) {
        (Some(self.prefix_tokens.saturating_add(self.input.bounds().1)), Some(self.output.bounds().1))
    }

    pub(super) fn request(&self, index: u64, seed: u64, text_seed: u64, calibration: &Calibration) -> Prompt {
        let mut lengths = Pcg64Mcg::seed_from_u64(text::mix(seed, index));
        let tail = self.input.draw(&mut lengths);
        let output = self.output.draw(&mut lengths);
        let mut content = text::opening(calibration, self.prefix_tokens + tail);
        if self.groups > 0 && self.prefix_tokens > 0 {
            // The head's own index lies outside of those of requests, so that no tail repeats it.
            let group = u64::MAX - index % u64::from(self.groups);
            text::write(&mut content, calibration, self.prefix_tokens, text_seed, group);
        }
        text::write(&mut content, calibration, tail.saturating_sub(calibration.overhead_tokens), text_seed, index);
        Prompt {
            index,
            messages: vec![Message { role: Role::User, content }],
            asked_prompt_tokens: Some(self.prefix_tokens + tail),
            asked_output_tokens: Some(output),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::workload::{Workload, WorkloadSpec};

    use super::*;

    fn workload(spec: &str, nonce: &str) -> Workload {
        let spec: WorkloadSpec = toml::from_str(spec).unwrap();
        Workload::new(&spec, 1, nonce, Calibration::one_token_words(11)).unwrap()
    }

    fn words(p: &Prompt) -> Vec<&str> {
        p.messages[0].content.split(' ').collect()
    }

    #[test]
    fn prompts_have_their_exact_length_and_never_the_same_head() {
        let w = workload("kind = \"fixed\"\ninput_tokens = 64\noutput_tokens = 8", "a");
        let mut heads = BTreeSet::new();
        for i in 0..2_000 {
            let p = w.request(i);
            // One word a token after the first, which is in the template's 11.
            assert_eq!(words(&p).len() - 1 + 11, 64);
            assert_eq!((p.asked_prompt_tokens, p.asked_output_tokens), (Some(64), Some(8)));
            assert!(heads.insert(words(&p)[..5].join(" ")), "request {i} begins as another does");
        }
        assert_eq!(w.request(5), w.request(5));
        assert_ne!(w.request(0).messages, w.request(1).messages);
    }

    #[test]
    fn lengths_come_from_the_seed_and_texts_also_from_the_nonce() {
        let spec = r#"
            kind = "synthetic"
            input_tokens = { distribution = "uniform", min = 50, max = 500 }
            output_tokens = { distribution = "uniform", min = 5, max = 50 }"#;
        let (a, b) = (workload(spec, "a"), workload(spec, "b"));
        for i in 0..100 {
            let (p, q) = (a.request(i), b.request(i));
            assert_eq!((p.asked_prompt_tokens, p.asked_output_tokens), (q.asked_prompt_tokens, q.asked_output_tokens));
            assert_ne!(p.messages, q.messages);
        }
    }

    #[test]
    fn groups_share_their_head_and_nothing_else() {
        let w = workload(
            "kind = \"shared_prefix\"\ngroups = 3\nprefix_tokens = 100\ninput_tokens = 50\noutput_tokens = 5",
            "a",
        );
        let (p, q, r) = (w.request(0), w.request(3), w.request(1));
        assert_eq!(p.asked_prompt_tokens, Some(150));
        assert_eq!(words(&p).len() - 1 + 11, 150);
        assert_eq!(words(&p)[..101], words(&q)[..101]);
        assert_ne!(words(&p)[101..106], words(&q)[101..106]);
        assert_ne!(words(&p)[1..6], words(&r)[1..6]);
    }

    #[test]
    fn a_prompt_below_the_template_is_refused() {
        let spec: WorkloadSpec = toml::from_str("kind = \"fixed\"\ninput_tokens = 4\noutput_tokens = 8").unwrap();
        let e = Workload::new(&spec, 1, "a", Calibration::one_token_words(11)).unwrap_err();
        assert_eq!(
            e.to_string(),
            "prompt of 4 tokens asked for, expected at least 15: the chat template alone takes 11"
        );
        assert!(
            toml::from_str::<WorkloadSpec>("kind = \"fixed\"\ninput_tokens = 4\noutput_tokens = 8\nfoo = 1").is_err()
        );
    }
}
