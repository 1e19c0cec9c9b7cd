//! One load step: what was planned, and what in fact was.

use serde::{Deserialize, Serialize};

use super::time::{Offset, Span};

/// How much load a step applies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// Closed loop: this many streams at all times.
    Concurrency(u32),
    /// Open loop: requests per second, whatever the server does.
    Rate(f64),
}

impl Load {
    /// The number that orders steps: streams, or requests per second.
    pub fn level(self) -> f64 {
        match self {
            Load::Concurrency(c) => f64::from(c),
            Load::Rate(r) => r,
        }
    }
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Load::Concurrency(1) => write!(f, "1 stream"),
            Load::Concurrency(c) => write!(f, "{c} streams"),
            Load::Rate(r) => write!(f, "{r} requests/s"),
        }
    }
}

/// Why the ladder ran a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// On the way up, in the order of the list.
    Climb,
    /// Between the highest clean and the lowest firing level.
    Narrow,
    /// One of the two bounds once more.
    Confirm,
}

/// What the ladder asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepPlan {
    /// Number of the step, from 0.
    pub step: u32,
    /// The load to apply.
    pub load: Load,
    /// Why it is run.
    pub phase: Phase,
    /// Which repeat of the ladder, from 0.
    pub repeat: u32,
    /// Whether everything must be drained before it starts.
    pub drain_first: bool,
}

/// When a step's parts in fact were; measured, not assumed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepSpan {
    /// Number of the step, from 0.
    pub step: u32,
    /// The load that was applied.
    pub load: Load,
    /// Why it was run.
    pub phase: Phase,
    /// Which repeat of the ladder, from 0.
    pub repeat: u32,
    /// From the first added worker to the end of the warm-up.
    pub warmup: Span,
    /// What is judged.
    pub measured: Span,
    /// Whether the step ended before its planned end, and why.
    pub cut_short: Option<CutShort>,
}

/// Why a step ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CutShort {
    /// Ctrl-C.
    Interrupted,
    /// The target was lost.
    TargetLost,
}

impl StepSpan {
    /// Begin of the warm-up to the end of the measurement.
    pub fn whole(&self) -> Span {
        Span::new(self.warmup.start, self.measured.end)
    }

    /// Whether `at` lies in the warm-up or the measurement.
    pub fn contains(&self, at: Offset) -> bool {
        self.whole().contains(at)
    }
}
