//! The command line: clap structs only. What each command does is in `app`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::model::units;

/// Finds the load at which the first production alert of an LLM server fires, and explains it.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, about, max_term_width = 110, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Raise the load step by step until the first alert fires, and say why
    Run(Box<RunArgs>),
    /// Probe target, metrics and GPU, send one request, print the plan and how long it takes; no load
    Check(Box<RunArgs>),
    /// Make the verdict of a recording again, offline
    Judge(JudgeArgs),
    /// Hold a run against an earlier one: what got worse by more than noise
    Compare(CompareArgs),
    /// Ask a recording in PromQL
    Query(QueryArgs),
    /// Hand a recording's data to other tools
    Export(ExportArgs),
    /// Judge a live server by the same rules, without any load
    Watch(WatchArgs),
    /// Print the rules with the scenario's limits filled in, ready for Prometheus
    Rules(RulesArgs),
    /// Serve the stand-in vLLM in real time
    Sim(SimArgs),
    /// Print the JSON Schema of verdict.json
    Schema,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Run a command and end it when standard input closes; what `--launch` starts servers with
    #[command(hide = true)]
    Supervise {
        /// The program and its arguments
        #[arg(last = true, required = true)]
        argv: Vec<String>,
    },
}

/// `run` and `check`. Flags override the scenario file.
#[derive(Debug, Default, Args)]
pub struct RunArgs {
    /// Scenario file; without one, the built-in chat scenario
    pub scenario: Option<PathBuf>,

    /// Base URL of the server, with or without /v1
    #[arg(long, visible_aliases = ["base-url", "target"], value_name = "URL", help_heading = "Target")]
    pub url: Option<String>,
    /// Model to ask for; default: the one that the server lists
    #[arg(long, value_name = "NAME", help_heading = "Target")]
    pub model: Option<String>,
    /// API key; default: OPENAI_API_KEY, which is sent over HTTPS or to loopback only
    #[arg(long, value_name = "KEY", help_heading = "Target", hide_env_values = true)]
    pub api_key: Option<String>,
    /// Header to send with each request; may be repeated
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", help_heading = "Target")]
    pub headers: Vec<String>,
    /// Metrics page; default: /metrics beside the API
    #[arg(long, value_name = "URL", help_heading = "Target")]
    pub metrics_url: Option<String>,
    /// JSON object that is merged into each request's body
    #[arg(long, value_name = "JSON", help_heading = "Target")]
    pub extra_body: Option<String>,
    /// PEM file of certificates to trust beside the system's
    #[arg(long, value_name = "FILE", help_heading = "Target")]
    pub ca_file: Option<PathBuf>,
    /// Take any certificate
    #[arg(long, help_heading = "Target")]
    pub insecure: bool,
    /// Open a connection for each request instead of keeping them
    #[arg(long, help_heading = "Target")]
    pub new_connection: bool,
    /// Test the embedded stand-in with this profile instead of a server
    #[arg(long, value_name = "PROFILE", help_heading = "Target", conflicts_with = "url")]
    pub sim: Option<String>,
    /// Start the server that the scenario's `server` table describes, and stop it at the end
    #[arg(long, help_heading = "Target", conflicts_with = "sim")]
    pub launch: bool,
    /// Set a parameter of the scenario's `server` table, such as model=NAME; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", help_heading = "Target")]
    pub set: Vec<String>,

    /// Streams at once: 1,2,4,8 or 1..64x2 or 1..10+1
    #[arg(long, visible_alias = "max-concurrency", value_name = "LEVELS", help_heading = "Load")]
    pub concurrency: Option<String>,
    /// Requests per second of an open loop, in the same forms
    #[arg(long, value_name = "LEVELS", help_heading = "Load", conflicts_with = "concurrency")]
    pub request_rate: Option<String>,
    /// How long each step is measured, e.g. 90s; default: what the rules need
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Load")]
    pub hold: Option<Duration>,
    /// How far a step is prolonged to get the 100 first tokens that a P99 needs, e.g. 20m; default: 8 times --hold
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Load")]
    pub max_hold: Option<Duration>,
    /// Shortest warm-up of a step, e.g. 15s
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Load")]
    pub warmup: Option<Duration>,
    /// Longest whole run, e.g. 30m; kept by planning, no step is cut
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Load")]
    pub max_duration: Option<Duration>,
    /// Prompt length in tokens
    #[arg(long, visible_alias = "isl", value_name = "TOKENS", help_heading = "Load")]
    pub input_len: Option<u32>,
    /// Answer length in tokens
    #[arg(long, visible_alias = "osl", value_name = "TOKENS", help_heading = "Load")]
    pub output_len: Option<u32>,
    /// Seed of lengths and arrivals
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub seed: Option<u64>,
    /// What makes this run's prompts differ from any other run's; default: random, and recorded
    #[arg(long, value_name = "TEXT", help_heading = "Load")]
    pub nonce: Option<String>,
    /// Run the ladder this many times
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub repeats: Option<u32>,

    /// Rule file to judge by, instead of the shipped ones; may be repeated; `off` judges nothing
    #[arg(long, value_name = "FILE", help_heading = "Judging")]
    pub rules: Vec<String>,
    /// Targets: ttft:p99:1s,itl:p99:100ms,error_rate:1%
    #[arg(long, value_name = "TARGETS", help_heading = "Judging")]
    pub slo: Option<String>,
    /// Shrink every `for`, range and interval of the rules by this factor (experiments only); ramp and warm-up stay
    #[arg(long, value_name = "FACTOR", help_heading = "Judging")]
    pub time_scale: Option<f64>,
    /// Where the GPU is read: auto, nvml, dcgm=URL, smi=FILE or off
    #[arg(long, value_name = "SOURCE", help_heading = "Judging")]
    pub gpu: Option<String>,
    /// Fail with exit code 99 unless at least this many streams are clean
    #[arg(long, value_name = "STREAMS", help_heading = "Judging")]
    pub gate: Option<u32>,

    /// Folder for the recording; default: results/UTC-SCENARIO
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Put the verdict as JSON on standard output
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Plain progress lines, even on a terminal
    #[arg(long, help_heading = "Output")]
    pub no_tui: bool,
}

/// `judge`.
#[derive(Debug, Args)]
pub struct JudgeArgs {
    /// A run's folder
    pub dir: PathBuf,
    /// Rule file to judge by, instead of those of the run; may be repeated; `off` judges nothing. The run's own
    /// reports stay then: the answer is only printed, unless --out says where to
    #[arg(long, value_name = "FILE")]
    pub rules: Vec<PathBuf>,
    /// Folder for the reports; default: the run's own, but with --rules none
    #[arg(long, value_name = "DIR", conflicts_with = "dry_run")]
    pub out: Option<PathBuf>,
    /// Put the verdict as JSON on standard output
    #[arg(long)]
    pub json: bool,
    /// Write no report anywhere
    #[arg(long)]
    pub dry_run: bool,
}

/// `compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The earlier run: its folder, or its verdict.json
    pub base: PathBuf,
    /// The run in question, in the same forms
    pub new: PathBuf,
    /// Compare runs that differ in model, scenario, lengths, GPU or server flags all the same
    #[arg(long)]
    pub force: bool,
    /// Standard deviation by which two runs of one server differ, as a share; default: the gate's, else 0.01
    #[arg(long, value_name = "SHARE")]
    pub run_noise: Option<f64>,
    /// How the answer is printed
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: CompareFormat,
}

/// How `compare` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompareFormat {
    /// A table for a terminal
    Text,
    /// For a pull request
    Markdown,
    /// For programs
    Json,
}

/// `query`.
#[derive(Debug, Args)]
pub struct QueryArgs {
    /// A run's folder
    pub dir: PathBuf,
    /// The expression
    pub expr: String,
    /// When, counted from the start of the run; default: its end
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "range")]
    pub at: Option<Duration>,
    /// From when to when, e.g. 0s..300s
    #[arg(long, value_name = "FROM..TO")]
    pub range: Option<String>,
    /// Distance of the evaluations of a range
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s", requires = "range")]
    pub step: Duration,
    /// Which Prometheus to follow where versions differ: 2 (as of 2.42) or 3; default: that of the scenario
    #[arg(long, value_name = "MAJOR", value_parser = clap::value_parser!(u8).range(2..=3))]
    pub prometheus: Option<u8>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The format
    pub format: ExportFormat,
    /// A run's folder
    pub dir: PathBuf,
    /// File to write; default: standard output
    #[arg(long, short)]
    pub output: Option<PathBuf>,
}

/// What `export` can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// All series with timestamps, for `promtool tsdb create-blocks-from openmetrics`
    Openmetrics,
    /// One row a step
    Csv,
    /// One object a step with the keys of `vllm bench serve`
    VllmBench,
    /// The main plot, latency against load, as a picture
    Png,
}

/// `watch`.
#[derive(Debug, Default, Args)]
pub struct WatchArgs {
    /// Base URL of the server, with or without /v1, or the URL of its metrics page
    pub url: String,
    /// API key for the metrics page, if it asks for one
    #[arg(long, value_name = "KEY", hide_env_values = true)]
    pub api_key: Option<String>,
    /// Header to send with each request; may be repeated
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// Rule file to judge by, instead of the shipped alerts; may be repeated
    #[arg(long, value_name = "FILE")]
    pub rules: Vec<String>,
    /// Targets: ttft:p99:1s,itl:p99:100ms
    #[arg(long, value_name = "TARGETS")]
    pub slo: Option<String>,
    /// Where the GPU is read: auto, nvml, dcgm=URL, smi=FILE or off
    #[arg(long, value_name = "SOURCE", default_value = "off")]
    pub gpu: String,
    /// Watch for as long as the rules need, print the answer, and end: 0 all quiet, 99 an alert fires, 4 not known
    #[arg(long)]
    pub once: bool,
    /// How long `--once` watches, e.g. 90s; default: what the rules need
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "once")]
    pub window: Option<Duration>,
    /// Answer as JSON on standard output; without --once, a line for each change
    #[arg(long)]
    pub json: bool,
    /// Plain lines, even on a terminal
    #[arg(long)]
    pub no_tui: bool,
}

/// `rules`.
#[derive(Debug, Args)]
pub struct RulesArgs {
    /// Scenario whose limits are filled in, or a run's folder, whose rules are printed with its numbers
    #[arg(value_name = "SCENARIO|RESULT_DIR")]
    pub of: Option<PathBuf>,
    /// Engine whose rules are printed [default: the scenario's, vllm]
    #[arg(long)]
    pub engine: Option<String>,
    /// Targets: ttft:p99:1s,itl:p99:100ms,error_rate:1%
    #[arg(long, value_name = "TARGETS")]
    pub slo: Option<String>,
    /// Rule file to print or to test, instead of those of the scenario or the run; may be repeated
    #[arg(long, value_name = "FILE")]
    pub rules: Vec<PathBuf>,
    /// Write a test for `promtool test rules` out of a run's series; put what `rules RESULT_DIR` prints beside it
    /// as rules.yml
    #[arg(long, value_name = "RESULT_DIR", conflicts_with_all = ["of", "engine", "slo"])]
    pub tests: Option<PathBuf>,
}

/// `sim`.
#[derive(Debug, Args)]
pub struct SimArgs {
    /// Named profile; `list` prints them
    #[arg(long, default_value = "quickstart")]
    pub profile: String,
    /// Address to listen on; port 0 lets the system choose
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8000")]
    pub listen: std::net::SocketAddr,
    /// Seed of its jitter
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Change a setting of the profile, as in `engine.max_num_seqs=3` or `api.tokenize_us=400.0`; may be repeated
    #[arg(long, value_name = "SETTING=VALUE")]
    pub set: Vec<String>,
    /// What goes wrong and when, as in `kind="freeze", at="10s", for="20s"` or `kind={slow={factor=3.0}}`; may be
    /// repeated. While it runs, POST /sim/faults takes the same as JSON
    #[arg(long, value_name = "FAULT")]
    pub fault: Vec<String>,
}

fn duration(text: &str) -> Result<Duration, String> {
    units::parse_duration(text)
}
