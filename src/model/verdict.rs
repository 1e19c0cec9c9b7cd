//! The answer of a run: sole input of every report, and `verdict.json` as it stands.
//!
//! Keys end in their unit (`_s`, `_ratio`, `_mhz`, …). Unknown is `null`, never 0. Times are
//! seconds since the start of the run. Numbers that later releases added read as unknown from
//! an older file, so that a baseline outlives the release that wrote it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::comparison::Comparison;
use super::recording::StopReason;
use super::step::{CutShort, Load, Phase};
use super::time::ClockKind;

/// Version of the verdict's wire form.
pub const SCHEMA: &str = "plimsoll.verdict/1";

/// Everything that a run found out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// [`SCHEMA`].
    pub schema: String,
    /// The program that judged.
    pub tool: Tool,
    /// Name of the scenario.
    pub scenario: String,
    /// The server under test.
    pub target: Target,
    /// Which clock timed the run.
    pub clock: ClockKind,
    /// Factor on every `for`, range and interval of the rules; 1 in production.
    pub time_scale: f64,
    /// What made this run's prompts differ from any other run's.
    pub nonce: String,
    /// Seed of lengths and arrivals.
    pub seed: u64,
    /// How often the ladder was run.
    pub repeats: u32,
    /// What was asked of the server, for comparing runs.
    pub workload: WorkloadSummary,
    /// The SLO targets that the rules were given.
    pub slo: Slo,
    /// Length of the run, s.
    pub duration_s: f64,
    /// Why the ladder stopped; `null` if the run was killed.
    pub stopped: Option<StopReason>,
    /// The answer in a word.
    pub outcome: RunOutcome,
    /// The first alert, if any fired.
    pub first_alert: Option<FirstAlert>,
    /// Highest level at which every rule was quiet, below the lowest that fired.
    pub highest_clean_concurrency: Option<f64>,
    /// Lowest level at which a rule fired.
    pub lowest_firing_concurrency: Option<f64>,
    /// Whether both bounds were run once more, and agreed; `null` if they were not run again.
    pub confirmed: Option<bool>,
    /// Why the first alert fired.
    pub explanation: Option<Explanation>,
    /// Set where the hardware explains the first alert (a GPU that is hot, slowed or shared): the capacity found is then
    /// that of the hardware in this state, not of the configuration. `null` where nothing speaks of the hardware.
    pub hardware: Option<HardwareLimit>,
    /// Why the run is void, so that it has no answer: memory of the GPU that could not be corrected. `null` if it is not.
    pub void: Option<String>,
    /// Every other alert that fired, by onset.
    pub other_alerts: Vec<FirstAlert>,
    /// What the sizes say the limit should be, where they are known.
    pub prediction: Option<Prediction>,
    /// The steps in the order in which they were run.
    pub steps: Vec<StepVerdict>,
    /// What one production Prometheus would have paged, over the climb.
    pub as_deployed: Vec<AsDeployed>,
    /// The gate, if the scenario has one.
    pub gate: Option<Gate>,
    /// This run held against the gate's baseline, if it names one.
    #[serde(default)]
    pub comparison: Option<Comparison>,
    /// What is doubtful about the run as a whole.
    pub caveats: Vec<Caveat>,
}

/// Who judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tool {
    /// `plimsoll`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Reading of PromQL: `3.x` or `2.x`.
    pub promql: String,
}

/// The server under test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Target {
    /// Base URL without credentials.
    pub url: String,
    /// Model name that was sent.
    pub model: String,
    /// Engine, if it was recognised.
    pub engine: Option<String>,
    /// Its version, if it told.
    pub version: Option<String>,
    /// Longest sequence, tokens.
    pub max_model_len: Option<u32>,
    /// Size of the KV cache pool, tokens.
    pub kv_cache_tokens: Option<u64>,
    /// Blocks of the pool that requests can use.
    pub kv_cache_blocks: Option<u64>,
    /// Tokens a block.
    pub block_size: Option<u64>,
    /// The argv that started the server, if we did.
    pub server_command: Option<Vec<String>>,
}

/// What was asked of the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WorkloadSummary {
    /// The workload's kind as the scenario names it.
    pub kind: String,
    /// Prompt tokens as the server counted them.
    pub prompt_tokens: Spread,
    /// Output tokens as the server counted them.
    pub output_tokens: Spread,
}

/// The targets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Slo {
    /// Target of the 99th percentile of the time to first token, s.
    pub ttft_p99_s: f64,
    /// Target of the 99th percentile of the inter-token latency, s.
    pub itl_p99_s: f64,
    /// Highest share of failed requests.
    pub error_rate_ratio: f64,
}

/// The answer in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// An alert fired.
    Alert,
    /// The whole ladder passed: the limit is higher.
    Clean,
    /// Nothing can be said; the caveats tell why.
    Inconclusive,
}

/// An alert and where it fired.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FirstAlert {
    /// Name of the rule.
    pub alert: String,
    /// Level of the step: streams, or requests per second.
    pub concurrency: f64,
    /// Number of the step, from 0.
    pub step: u32,
    /// Labels of the alert, without its name.
    pub labels: BTreeMap<String, String>,
    /// When its condition began, read from the whole run, s.
    pub onset_s: Option<f64>,
    /// When it became pending in its step, s.
    pub pending_at_s: Option<f64>,
    /// When it fired in its step, s.
    pub fired_at_s: f64,
    /// The rule's own `summary` annotation, filled in.
    pub summary: Option<String>,
    /// The pair that explains it, for an alert that was not the first; `None` too where no pair does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<Cause>,
}

/// A pair, and what it says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cause {
    /// Name of the pair rule.
    pub pair: String,
    /// One sentence with the numbers in it.
    pub summary: String,
}

/// Why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// Name of the pair rule, or `Unexplained`.
    pub pair: String,
    /// The resource that ran out, as a word: `kv_cache`, `sequences`, `token_budget`, …
    pub resource: Option<String>,
    /// One sentence with the numbers in it.
    pub summary: String,
    /// How sure.
    pub confidence: Confidence,
    /// What supports it, strongest first.
    pub evidence: Vec<Evidence>,
    /// The next best pair, and why it is not the answer.
    pub runner_up: Option<RuledOut>,
    /// What else was looked at and excluded.
    pub ruled_out: Vec<RuledOut>,
    /// What to do, most useful first.
    pub advice: Vec<String>,
}

/// The hardware limits, not the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HardwareLimit {
    /// Name of the pair rule that says so.
    pub pair: String,
    /// The finding in a sentence.
    pub says: String,
}

/// How sure a diagnosis is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// A guess.
    Low,
    /// Likely.
    Medium,
    /// Shown by the numbers.
    High,
}

/// One observation that supports a diagnosis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// The observation in words.
    pub says: String,
    /// The expression that it was read with, if it was.
    pub expr: Option<String>,
    /// Median over the step.
    pub median: Option<f64>,
    /// Maximum over the step.
    pub max: Option<f64>,
}

/// A pair that is not the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuledOut {
    /// Name of the pair rule.
    pub pair: String,
    /// Why not.
    pub why_not: String,
}

/// What the sizes say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prediction {
    /// Streams that should fit.
    pub concurrency: f64,
    /// How it was reckoned, in words.
    pub says: String,
    /// Measured limit over predicted one.
    pub measured_over_predicted_ratio: Option<f64>,
}

/// One step, judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepVerdict {
    /// Number of the step, from 0.
    pub step: u32,
    /// Level: streams, or requests per second.
    pub concurrency: f64,
    /// What the level is.
    pub load: Load,
    /// Why it was run.
    pub phase: Phase,
    /// Which repeat of the ladder, from 0.
    pub repeat: u32,
    /// From the first added worker to the end of the warm-up, s.
    pub warmup_s: [f64; 2],
    /// What was judged, s.
    pub measured_s: [f64; 2],
    /// Whether it ended before its time.
    pub cut_short: Option<CutShort>,
    /// The step in a word.
    pub outcome: StepOutcome,
    /// Requests sent in the measured window.
    pub requests: Requests,
    /// What was asked of the load generator.
    pub offered: Offered,
    /// What it did.
    pub achieved: Achieved,
    /// What the client saw.
    pub client: ClientStats,
    /// What the server's page said; `null` without one.
    pub server: Option<ServerStats>,
    /// Each GPU.
    pub gpu: Vec<GpuStats>,
    /// How the client itself fared.
    pub client_health: ClientHealth,
    /// Every rule that is an alert, in the order of the files.
    pub alerts: Vec<AlertVerdict>,
    /// What is doubtful about this step.
    pub caveats: Vec<Caveat>,
}

/// A step in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// No rule fired, and every rule could be evaluated.
    Clean,
    /// A rule fired.
    Firing,
    /// No rule fired, but something stood in the way of saying that none would.
    Inconclusive,
}

/// Requests of a step, by how they ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Requests {
    /// Sent in the measured window.
    pub sent: u64,
    /// Of these, whole answers (whenever they ended).
    pub completed: u64,
    /// Of these, failures by class.
    pub failed: Failed,
    /// Of these, still without an end when the window ended.
    pub in_flight_at_end: u64,
    /// Of these, still without a first token when the window ended.
    pub censored: u64,
}

/// Failures by class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Failed {
    /// All of them.
    pub total: u64,
    /// By [`FailureClass`](super::request::FailureClass).
    pub by_class: BTreeMap<String, u64>,
}

/// What was asked of the load generator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Offered {
    /// Streams at once, in a closed loop.
    pub concurrency: Option<u32>,
    /// Requests per second, in an open one.
    pub requests_per_s: Option<f64>,
}

/// What the load generator did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Achieved {
    /// Requests in flight, time average over the window.
    pub mean_in_flight: Option<f64>,
    /// Requests sent per second.
    pub requests_per_s: Option<f64>,
    /// Requests completed per second of the window.
    pub completed_per_s: Option<f64>,
}

/// Quantiles of one quantity, with what they rest on. Linear interpolation between ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Quantiles {
    /// Samples.
    pub n: u64,
    /// Arithmetic mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 95 % confidence interval of the 99th percentile by order statistics; an end that n cannot give is `null`.
    pub p99_ci95: Option<[Option<f64>; 2]>,
    /// Largest.
    pub max: Option<f64>,
}

/// Middle and ends of a signal over a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Spread {
    /// Smallest.
    pub min: Option<f64>,
    /// Median.
    pub median: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
}

/// What the client saw. Times to first token, per output token and end to end belong to
/// the window in which their request was sent; gaps and tokens to the one in which they arrived.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClientStats {
    /// Time to first token, s.
    pub ttft_s: Quantiles,
    /// Time between two chunks that carry output, s.
    pub gap_s: Quantiles,
    /// Time per token, s; absent where tokens cannot be told apart.
    pub itl_s: Quantiles,
    /// (last − first token)/(tokens − 1) per request, s.
    pub tpot_s: Quantiles,
    /// Start to end of completed requests, s.
    pub e2e_s: Quantiles,
    /// Worst gap of each request, s.
    pub worst_gap_s: Quantiles,
    /// Time that opening each of the step's connections took, TLS included, s; no latency contains it. `None` if none was
    /// opened for the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_s: Option<Quantiles>,
    /// Output tokens per second that arrived in the window.
    pub output_tokens_per_s: Option<f64>,
    /// Prompt tokens per second of requests whose first token arrived in the window.
    pub prompt_tokens_per_s: Option<f64>,
    /// Requests per second that met every target.
    pub goodput_per_s: Option<f64>,
    /// Failed over ended requests.
    pub error_rate_ratio: Option<f64>,
    /// How far these numbers can be trusted.
    pub noise: Noise,
}

/// Standard errors of a step's numbers as shares of them, by bootstrap over blocks of time: requests of one moment are
/// not independent, so blocks are drawn and not requests. What would differ between two *runs* they cannot see.
/// `null` where a step has too few blocks or samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Noise {
    /// Blocks that the window was cut into.
    pub blocks: u64,
    /// Length of one, s.
    pub block_s: Option<f64>,
    /// Of the median time to first token.
    pub ttft_p50_ratio: Option<f64>,
    /// Of its 99th percentile.
    pub ttft_p99_ratio: Option<f64>,
    /// Of the median gap.
    pub gap_p50_ratio: Option<f64>,
    /// Of its 99th percentile.
    pub gap_p99_ratio: Option<f64>,
    /// Of the median end-to-end time.
    pub e2e_p50_ratio: Option<f64>,
    /// Of the output tokens per second.
    pub output_tokens_ratio: Option<f64>,
}

/// What the server's page said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ServerStats {
    /// Good scrapes in the window.
    pub scrapes: u64,
    /// Failed scrapes in the window.
    pub failed_scrapes: u64,
    /// Requests that wait.
    pub waiting: Spread,
    /// Requests that run.
    pub running: Spread,
    /// Share of the KV pool that requests hold, 0 to 1.
    pub kv_cache_usage: Spread,
    /// Preemptions in the window.
    pub preemptions: Option<f64>,
    /// 99th percentile of the server's time to first token, s.
    pub ttft_p99_s: Option<f64>,
    /// Mean of the server's time to first token, s.
    pub ttft_mean_s: Option<f64>,
    /// 99th percentile of the server's inter-token latency, s.
    pub itl_p99_s: Option<f64>,
    /// Mean of the server's inter-token latency, s.
    pub itl_mean_s: Option<f64>,
    /// Mean wait in the queue, s.
    pub queue_mean_s: Option<f64>,
    /// Mean prefill time, s.
    pub prefill_mean_s: Option<f64>,
    /// Prefix-cache hits over queries.
    pub prefix_cache_hit_rate: Option<f64>,
    /// Accepted over drafted tokens.
    pub draft_acceptance_rate: Option<f64>,
    /// Generated tokens per second.
    pub generation_tokens_per_s: Option<f64>,
}

/// One GPU over a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GpuStats {
    /// Index as the source gives it.
    pub device: String,
    /// UUID.
    pub uuid: String,
    /// Model.
    pub name: Option<String>,
    /// Rounds of reading that fell into the step.
    pub samples: u64,
    /// SM clock, MHz.
    pub sm_clock_mhz: Spread,
    /// Memory clock, MHz.
    pub memory_clock_mhz: Spread,
    /// Temperature, °C.
    pub temperature_c: Spread,
    /// Temperature of the memory, °C.
    pub memory_temperature_c: Spread,
    /// Power, W.
    pub power_w: Spread,
    /// Share of time in which any kernel ran, percent: no measure of saturation.
    pub utilization_pct: Spread,
    /// Memory in use, MiB.
    pub memory_used_mib: Spread,
    /// Energy over the step, J.
    pub energy_j: Option<f64>,
    /// What the energy was read from.
    pub energy_from: Option<EnergyFrom>,
    /// Energy of this GPU per 1,000 output tokens of the server, J.
    pub energy_j_per_1k_tokens: Option<f64>,
    /// Reasons for lowered clocks, each with its share of the samples; idleness is none.
    pub throttle_reasons: Vec<ThrottleReason>,
    /// Most processes at once that hold memory of it and are not the server's; `null` where the driver does not tell.
    pub neighbours: Option<u64>,
    /// Most memory that they held, bytes.
    pub neighbour_memory_bytes: Option<u64>,
    /// Largest share of the multiprocessors' time that they took between two step borders, percent.
    pub neighbour_sm_pct: Option<f64>,
    /// Uncorrected memory errors that came up in the step; above 0 the step is void.
    pub ecc_uncorrected: Option<u64>,
    /// XID error codes that came up in the step.
    pub xids: Vec<u32>,
    /// Whether the GPU was lost in the step, or before it.
    pub lost: bool,
}

/// What a step's energy was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EnergyFrom {
    /// The card's energy counter.
    Counter,
    /// The integral of the power samples: coarser.
    Power,
}

/// A reason for lowered clocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThrottleReason {
    /// NVML's name in snake_case.
    pub reason: String,
    /// Share of the samples in which it was set.
    pub share_ratio: f64,
}

/// How the client itself fared. `null` throughout under simulated time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClientHealth {
    /// 99th percentile of the runtime's lateness, s.
    pub lag_p99_s: Option<f64>,
    /// CPU of our process, cores, mean.
    pub cpu_cores: Option<f64>,
    /// Share of the reads that the kernel stamped at their arrival; the others were stamped when they were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_stamped_ratio: Option<f64>,
    /// 99th percentile over the seconds of the step of the longest time from arrival to read, s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_late_p99_s: Option<f64>,
    /// 99th percentile over the seconds of the step of the time by which chunks' stamps may be late, s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blur_p99_s: Option<f64>,
    /// 99th percentile over the seconds of the step of the longest time by which a request was sent late, s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_late_p99_s: Option<f64>,
    /// (mean in flight − rate × mean latency) / mean in flight; 0 in a steady step.
    pub littles_law_residual: Option<f64>,
}

/// State of an alert in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlertState {
    /// Its condition never held at an evaluation.
    Quiet,
    /// Its condition held, but not for long enough.
    Pending,
    /// It fired.
    Firing,
    /// Its metrics were never there, or the window held no observation. Never a pass.
    NoData,
    /// It could not be judged: too few observations, failed scrapes, too short a step. Never a pass.
    NotEvaluable,
}

/// One alert in one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AlertVerdict {
    /// Name of the rule.
    pub alert: String,
    /// Its state: the worst over phases and label sets.
    pub state: AlertState,
    /// When it became pending, s.
    pub pending_at_s: Option<f64>,
    /// When it fired, s.
    pub fired_at_s: Option<f64>,
    /// When its condition began, read from the whole run, s.
    pub onset_s: Option<f64>,
    /// Value at the time it fired, or the last one.
    pub value: Option<f64>,
    /// The limit it is held against, where the rule has the form `expr > number`.
    pub limit: Option<f64>,
    /// Labels of the alert, without its name.
    pub labels: BTreeMap<String, String>,
    /// Share of the phases of the production grid in which it fired.
    pub phase_share: Option<f64>,
    /// Why it has no data or was not evaluable.
    pub because: Option<String>,
}

/// What production would have paged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AsDeployed {
    /// Name of the rule.
    pub alert: String,
    /// When its condition began for production, s.
    pub active_at_s: f64,
    /// When it would have paged, s.
    pub fired_at_s: f64,
    /// Level that was applied when it paged.
    pub concurrency_then: Option<f64>,
    /// Level of the step that holds the begin: the one to blame.
    pub concurrency_blamed: Option<f64>,
}

/// The gate's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gate {
    /// Whether every check passed.
    pub passed: bool,
    /// Each check.
    pub checks: Vec<Check>,
}

/// One check of a gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// The check as the scenario states it.
    pub check: String,
    /// Its outcome.
    pub state: CheckState,
    /// What was measured.
    pub measured: Option<f64>,
    /// The outcome in words.
    pub says: String,
}

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// It holds.
    Passed,
    /// It does not.
    Failed,
    /// Too little was seen to say: not a pass.
    Unresolved,
}

/// Something doubtful, with what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Caveat {
    /// A snake_case word for programs.
    pub code: String,
    /// What is doubtful.
    pub says: String,
    /// What to do.
    pub hint: String,
}

impl Caveat {
    /// A caveat from its parts.
    pub fn new(code: &str, says: impl Into<String>, hint: impl Into<String>) -> Caveat {
        Caveat { code: code.into(), says: says.into(), hint: hint.into() }
    }
}
