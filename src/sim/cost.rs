//! How long an engine step takes.
//!
//! vLLM's source does not say, so this is a model: a step costs
//!
//! ```text
//! t = base + a*P + b*D + s*S + p*N + c*C + q*A
//! P  prompt tokens computed in the step (after a preemption, answer tokens too)
//! D  sequences that decode
//! S  draft tokens that are verified
//! N  passes of the drafter: the most draft tokens of one sequence
//! C  context tokens that the decodes read
//! A  for each prompt chunk, its tokens times the context it attends to (half of itself, all before it)
//! ```
//!
//! times a jitter drawn from the seed and the number of the step, times a pace that wanders slowly
//! and differs from run to run, divided by the share of its clock that the GPU has.

use serde::{Deserialize, Serialize};

use super::chance;
use crate::model::time::Offset;

/// The constants of the step time, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CostSpec {
    /// A step with nothing in it: reading the weights, launching kernels, scheduling.
    pub base_us: f64,
    /// One prompt token.
    pub prefill_us: f64,
    /// One decoding sequence.
    pub decode_us: f64,
    /// One draft token that is verified.
    pub draft_us: f64,
    /// One pass of the drafter, which makes a draft token for each sequence.
    pub drafter_us: f64,
    /// One context token that a decode reads.
    pub context_us: f64,
    /// One pair of a prompt token and a context token that it attends to.
    pub attention_us: f64,
    /// Standard deviation of a step's time as a share of it, 0 for none.
    pub jitter: f64,
    /// Standard deviation of a pace that all steps of one moment share, 0 for none: clocks, caches, other work on the machine.
    pub wander: f64,
    /// Over how long that pace changes, s.
    pub wander_s: f64,
    /// Standard deviation of a pace that a whole run keeps, 0 for none: what a restart of the same server changes.
    pub run_jitter: f64,
}

impl Default for CostSpec {
    fn default() -> Self {
        CostSpec::l4_8b()
    }
}

/// No cost, and a pace that never changes.
const STEADY: CostSpec = CostSpec {
    drafter_us: 0.0,
    base_us: 0.0,
    prefill_us: 0.0,
    decode_us: 0.0,
    draft_us: 0.0,
    context_us: 0.0,
    attention_us: 0.0,
    jitter: 0.0,
    wander: 0.0,
    wander_s: 20.0,
    run_jitter: 0.0,
};

impl CostSpec {
    /// An 8B model in 16 bits on an NVIDIA L4.
    ///
    /// From the data sheet (NVIDIA L4: 300 GB/s, 121 TFLOPS dense in bf16) and the model's shape
    /// (Llama 3.1 8B: 8.03 G parameters, 32 layers, 8 KV heads of 128): 16.06 GB of weights at 85 %
    /// of the bandwidth are 63 ms; a prompt token is 16.06 GFLOP, at 60 % of the peak 0.22 ms; a
    /// context token is 131,072 bytes of KV, 0.51 us. A drafter of one such layer and the output head (1.5 GB)
    /// takes 5.9 ms a pass.
    pub const fn l4_8b() -> CostSpec {
        CostSpec {
            base_us: 63_000.0,
            prefill_us: 220.0,
            decode_us: 40.0,
            draft_us: 60.0,
            drafter_us: 5_900.0,
            context_us: 0.51,
            attention_us: 0.004,
            jitter: 0.01,
            ..STEADY
        }
    }

    /// An 8B model in 16 bits on an NVIDIA H100 SXM.
    ///
    /// From the data sheet (NVIDIA H100 SXM: 3.35 TB/s, 989 TFLOPS dense in bf16) and the model's
    /// shape as in [`CostSpec::l4_8b`]: the weights at 80 % of the bandwidth are 6.0 ms, and 0.8 ms
    /// go to launching; a prompt token at 55 % of the peak is 0.03 ms; a context token is 0.049 us; a pass of
    /// the drafter is 0.56 ms.
    pub const fn h100_8b() -> CostSpec {
        CostSpec {
            base_us: 6_800.0,
            prefill_us: 30.0,
            decode_us: 12.0,
            draft_us: 15.0,
            drafter_us: 560.0,
            context_us: 0.049,
            attention_us: 0.0005,
            jitter: 0.015,
            ..STEADY
        }
    }

    /// A two-layer toy model on two CPU cores that it shares with its client, fitted to recorded
    /// runs of a real vLLM 0.31.0 (see `tests/sim/against_real.rs`).
    pub const fn cpu_tiny() -> CostSpec {
        CostSpec {
            base_us: 4_250.0,
            prefill_us: 48.0,
            decode_us: 380.0,
            draft_us: 20.0,
            drafter_us: 500.0,
            context_us: 0.44,
            attention_us: 0.083,
            jitter: 0.12,
            ..STEADY
        }
    }

    /// Duration of one step in microseconds, at least 1.
    ///
    /// `clock` is the share of its full clock that the GPU runs at, 0 exclusive to 1; reading
    /// memory does not slow down with it, but this model takes the simple bound that all does.
    pub fn step_us(&self, load: &StepLoad, clock: f64, seed: u64, step: u64) -> u64 {
        let t = self.base_us
            + self.prefill_us * load.prefill_tokens as f64
            + self.decode_us * load.decodes as f64
            + self.draft_us * load.drafts as f64
            + self.drafter_us * load.draft_passes as f64
            + self.context_us * load.context_tokens as f64
            + self.attention_us * load.attention_pairs;
        let noise = (1.0 + self.jitter * chance::normal(seed, 0x57e9, step)).max(0.2);
        ((t * noise / clock.max(0.01)).round() as u64).max(1)
    }

    /// By how much longer a step that starts at `at` takes than the model says: 1 on average.
    ///
    /// The wander is drawn at knots `wander_s` apart and is a straight line between them; two thirds of the
    /// variance of the knots is that of the line, which is made up for.
    pub fn pace(&self, at: Offset, seed: u64) -> f64 {
        if self.wander == 0.0 && self.run_jitter == 0.0 {
            return 1.0;
        }
        let place = at.as_secs_f64() / self.wander_s.max(0.001);
        let (knot, share) = (place.floor(), place.fract());
        let drawn = |n: f64| chance::normal(seed, 0xd21f, n as u64);
        let line = drawn(knot) * (1.0 - share) + drawn(knot + 1.0) * share;
        (self.run_jitter * chance::normal(seed, 0x2b1d, 0) + self.wander * line * 1.5_f64.sqrt()).exp()
    }
}

/// What a step computes, as far as its time depends on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepLoad {
    /// Tokens of prompts (or of preempted requests) that are computed.
    pub prefill_tokens: u64,
    /// Sequences that decode one token.
    pub decodes: u64,
    /// Draft tokens that are verified.
    pub drafts: u64,
    /// Most draft tokens of one sequence: the drafter makes one for each sequence in a pass.
    pub draft_passes: u64,
    /// Context that the decodes read.
    pub context_tokens: u64,
    /// Prompt tokens times the context that each attends to.
    pub attention_pairs: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_costs_what_is_in_it() {
        let cost = CostSpec { jitter: 0.0, ..CostSpec::h100_8b() };
        let decode = |n| StepLoad { decodes: n, context_tokens: 1_000 * n, ..StepLoad::default() };
        for (load, clock, want) in [
            (StepLoad::default(), 1.0, 6_800),
            (decode(1), 1.0, 6_861),
            (decode(10), 1.0, 7_410),
            (decode(10), 0.5, 14_820),
            (StepLoad { drafts: 30, draft_passes: 3, ..decode(10) }, 1.0, 9_540),
            (StepLoad { prefill_tokens: 1_000, attention_pairs: 500_000.0, ..StepLoad::default() }, 1.0, 37_050),
        ] {
            assert_eq!(cost.step_us(&load, clock, 1, 1), want, "{load:?} at {clock}");
        }
    }

    #[test]
    fn the_pace_wanders_and_differs_from_run_to_run() {
        let cost = CostSpec { wander: 0.05, wander_s: 10.0, run_jitter: 0.02, ..STEADY };
        let at = |s: u32| Offset(u64::from(s) * 1_000_000);
        // Near in time is near in pace; far apart is another draw; the same seed is the same run.
        let (a, b, far) = (cost.pace(at(100), 1), cost.pace(at(101), 1), cost.pace(at(500), 1));
        assert!((a - b).abs() < 0.03 && a != far && a == cost.pace(at(100), 1));
        let deviation = |draws: Vec<f64>| {
            let mean = draws.iter().sum::<f64>() / draws.len() as f64;
            (draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64).sqrt()
        };
        // Within a run the wander; between runs of one moment both.
        let within = deviation((0..3_000).map(|s| cost.pace(at(s), 3).ln()).collect());
        assert!((within - 0.05).abs() < 0.006, "{within}");
        let between = deviation((0..3_000).map(|seed| cost.pace(at(7), seed).ln()).collect());
        assert!((between - 0.05_f64.hypot(0.02)).abs() < 0.006, "{between}");
        assert_eq!(STEADY.pace(at(7), 1), 1.0);
    }

    #[test]
    fn jitter_comes_from_the_seed_alone() {
        let cost = CostSpec::l4_8b();
        let t = |seed, step| cost.step_us(&StepLoad::default(), 1.0, seed, step);
        assert_eq!(t(1, 5), t(1, 5));
        assert_ne!(t(1, 5), t(2, 5));
        assert_ne!(t(1, 5), t(1, 6));
    }
}
