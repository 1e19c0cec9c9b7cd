//! One run held against another: what got better or worse, and what nobody can tell.
//!
//! Plain data: `compare` makes it out of two verdicts, reports print it, and a verdict whose gate
//! has a baseline carries it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the comparison found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// What differs between the two runs that must not. If it is not empty, changes are given only where they were
    /// asked for all the same, and mean what the reader makes of them.
    pub incomparable: Vec<Difference>,
    /// What is to be said before all else: it changes how the rest is read.
    pub called_out: Vec<String>,
    /// The limit before and now.
    pub limit: LimitChange,
    /// Each quantity at each level that both ran, then over all of these levels together.
    pub changes: Vec<Change>,
    /// What levels are counted in: `streams` or `requests/s`.
    pub unit: String,
    /// Chance that any of the changes is called better or worse in two runs of the same server, at most.
    pub false_alarm_ratio: f64,
    /// Changes below this share matter to nobody, however sure they are.
    pub least_effect_ratio: f64,
    /// Standard deviation, as a share, that two runs of one server are taken to differ by where they were not repeated.
    pub run_noise_ratio: f64,
}

/// Something that must be alike and is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// What it is: `model`.
    pub what: String,
    /// What the base had.
    pub base: String,
    /// What the new run has.
    pub new: String,
}

/// How the limit moved. A limit lies above the highest clean level and not above the lowest firing one; `null` is not known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LimitChange {
    /// Highest clean and lowest firing level of the base, over all its repeats.
    pub base: [Option<f64>; 2],
    /// The same of the new run.
    pub new: [Option<f64>; 2],
    /// What can be said of it.
    pub judgement: Judgement,
}

/// One quantity at one level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Which quantity.
    pub metric: Metric,
    /// The level; `null` for all levels together, whose values are geometric means.
    pub level: Option<f64>,
    /// What the base measured: seconds, a rate per second, or a share, by metric.
    pub base: f64,
    /// What the new run measured.
    pub new: f64,
    /// New over base less 1; of a share, new less base.
    pub effect_ratio: Option<f64>,
    /// Ends of the effect's 95 % interval, of this change alone; `null` where they are not known.
    pub interval_ratio: Option<[f64; 2]>,
    /// By how much it can have got worse at most, with 95 % confidence for this change alone.
    pub worst_ratio: Option<f64>,
    /// Chance of so large a difference in two runs of one server, two-sided, for this change alone.
    pub p_value: Option<f64>,
    /// What can be said of it.
    pub judgement: Judgement,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Median time to first token, s.
    TtftP50,
    /// 99th percentile of the time to first token, s.
    TtftP99,
    /// Median gap between chunks, s.
    GapP50,
    /// 99th percentile of the gaps, s.
    GapP99,
    /// Median end-to-end time, s.
    E2eP50,
    /// Output tokens per second.
    OutputTokens,
    /// Failed over ended requests.
    ErrorRate,
}

impl Metric {
    /// All of them, in the order of a report.
    pub const ALL: [Metric; 7] = [
        Metric::TtftP50,
        Metric::TtftP99,
        Metric::GapP50,
        Metric::GapP99,
        Metric::E2eP50,
        Metric::OutputTokens,
        Metric::ErrorRate,
    ];

    /// Its name, as thresholds write it.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::TtftP50 => "ttft p50",
            Metric::TtftP99 => "ttft p99",
            Metric::GapP50 => "gap p50",
            Metric::GapP99 => "gap p99",
            Metric::E2eP50 => "e2e p50",
            Metric::OutputTokens => "output_tokens_per_s",
            Metric::ErrorRate => "error_rate",
        }
    }

    /// Whether more of it is better.
    pub const fn more_is_better(self) -> bool {
        matches!(self, Metric::OutputTokens)
    }
}

/// What can be said of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// It got better by more than noise, and by enough to matter.
    Better,
    /// It got worse likewise.
    Worse,
    /// Any change is too small to matter.
    Same,
    /// Noise, or too little data.
    CannotTell,
}

impl Judgement {
    /// The judgement in words.
    pub fn words(self) -> &'static str {
        match self {
            Judgement::Better => "better",
            Judgement::Worse => "worse",
            Judgement::Same => "same",
            Judgement::CannotTell => "cannot tell",
        }
    }
}
