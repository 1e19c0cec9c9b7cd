//! The events of a run, and the recording that they add up to.
//!
//! Left of it, code touches the world and may only append events; right of it everything is
//! a pure function of [`Recording`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::request::RequestTimeline;
use super::sample::Scrape;
use super::step::{CutShort, StepPlan, StepSpan};
use super::time::{ClockKind, Offset, Span};

/// Version of the recording's wire form; raised with every change that an older reader
/// would misread.
pub const FORMAT: &str = "plimsoll.run/1";

/// What was known before the first request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// Version of the program that wrote it.
    pub tool_version: String,
    /// Name of the scenario.
    pub scenario: String,
    /// The scenario as resolved, as TOML: what `judge` reads its rules' limits from.
    pub scenario_toml: String,
    /// Text of every rule file that judged the run, by name, so that the recording judges alone.
    pub rule_files: Vec<RuleFile>,
    /// Which clock timed it.
    pub clock: ClockKind,
    /// Unix milliseconds of offset zero.
    pub epoch_unix_ms: i64,
    /// What made this run's prompts differ from any other run's.
    pub nonce: String,
    /// Seed of lengths and arrivals.
    pub seed: u64,
    /// Factor on every `for`, range and interval; 1 in production.
    pub time_scale: f64,
    /// The server as probed.
    pub target: TargetFacts,
    /// The argv that started the server, if we did.
    pub server_command: Option<Vec<String>>,
}

impl Header {
    /// One that tells nothing but how time went, at the scale of production.
    pub fn blank(clock: ClockKind, epoch_unix_ms: i64) -> Header {
        Header {
            format: FORMAT.into(),
            tool_version: env!("CARGO_PKG_VERSION").into(),
            scenario: String::new(),
            scenario_toml: String::new(),
            rule_files: Vec::new(),
            clock,
            epoch_unix_ms,
            nonce: String::new(),
            seed: 0,
            time_scale: 1.0,
            target: TargetFacts::default(),
            server_command: None,
        }
    }
}

/// One rule file as it was loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleFile {
    /// Its path as given, or `builtin:vllm.yml`.
    pub name: String,
    /// Its text, before limits and scale were filled in.
    pub text: String,
}

/// What probing the target told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetFacts {
    /// Base URL, without credentials and query.
    pub url: String,
    /// What the host's name was resolved to, once, before the start; empty where it is an address or a socket.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// URL of the metrics page, if one is read.
    pub metrics_url: Option<String>,
    /// Model name that is sent.
    pub model: String,
    /// `vllm`, or another engine's name; `None` where nothing told.
    pub engine: Option<String>,
    /// The engine's version, if it tells.
    pub version: Option<String>,
    /// Longest sequence that the server takes, tokens.
    pub max_model_len: Option<u32>,
    /// Whether prompt lengths were calibrated with `/tokenize`.
    pub tokenize: bool,
    /// Whether chunks carry a running usage count.
    pub continuous_usage: bool,
    /// Whether the server takes `min_tokens` and `ignore_eos`.
    pub exact_output: bool,
    /// Whether requests come back with the server's own timings.
    pub per_request_metrics: bool,
}

/// One thing that happened, in the order in which it became known.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A step began to add its load.
    StepStarted {
        /// When.
        at: Offset,
        /// What it is.
        plan: StepPlan,
    },
    /// The step's warm-up is over: what follows is judged.
    MeasureStarted {
        /// When.
        at: Offset,
        /// Number of the step.
        step: u32,
    },
    /// The step's measurement is over.
    StepEnded {
        /// When.
        at: Offset,
        /// Number of the step.
        step: u32,
        /// Whether that was before its time.
        cut_short: Option<CutShort>,
    },
    /// A request came to its end.
    Request(RequestTimeline),
    /// A page was read, or could not be.
    Scrape(Scrape),
    /// How the client itself fared.
    Health(Health),
    /// Anything else worth keeping.
    Note(Note),
    /// The run is over.
    Ended(Ended),
}

impl Event {
    /// When the event became known.
    pub fn at(&self) -> Offset {
        match self {
            Event::StepStarted { at, .. } | Event::MeasureStarted { at, .. } | Event::StepEnded { at, .. } => *at,
            Event::Request(r) => r.finished,
            Event::Scrape(s) => s.received,
            Event::Health(h) => h.at,
            Event::Note(n) => n.at,
            Event::Ended(e) => e.at,
        }
    }
}

/// How the client fared over the second before `at`. Under simulated time all is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
    /// When it was taken.
    #[serde(skip)]
    pub at: Offset,
    /// Worst lateness of a ticker on the runtime, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_max_us: Option<u64>,
    /// CPU of our own process, in cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<f64>,
    /// Open file descriptors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Cores that our own process may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<f64>,
    /// File descriptors that may be open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_limit: Option<u64>,
    /// Connections that are open to the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// Local ports that connections to one address may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<u64>,
    /// Longest time between the instant at which a request could have been sent and its write, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_late_max_us: Option<u64>,
    /// Longest time between the kernel's stamp of arriving bytes and their read, µs. `None` where nothing was read, or no
    /// read was stamped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_late_max_us: Option<u64>,
    /// 99th percentile, over all stamped reads, of the time by which a chunk's stamp may be too late, µs, rounded up to a power
    /// of two: chunks that shared a read share its stamp. `None` as above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blur_p99_us: Option<u64>,
    /// Reads that came with the kernel's stamp.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stamped_reads: Option<u64>,
    /// Reads that had to be stamped by ourselves, since the kernel's stamp was missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unstamped_reads: Option<u64>,
}

/// A remark with a code that programs can test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// When.
    pub at: Offset,
    /// A snake_case word: `prefix_reset`, `drain`, `server_died`, `gpu_lost`, …
    pub code: String,
    /// What happened, in a line.
    pub says: String,
}

/// Why the ladder stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The boundary is known within its tolerance and confirmed.
    BoundaryFound,
    /// Every step of the list passed.
    EndOfLadder,
    /// The server does not answer any more.
    TargetLost,
    /// The next step would not have fitted into `max_duration`.
    MaxDuration,
    /// Ctrl-C.
    Interrupted,
    /// What was measured can no longer count, and nothing that follows could: the hardware broke.
    Void,
}

/// The last event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// When.
    pub at: Offset,
    /// Why.
    pub reason: StopReason,
}

/// All of a run, read back or held in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// What was known before the first request.
    pub header: Header,
    /// The steps, in order; the last may be unfinished.
    pub steps: Vec<StepSpan>,
    /// The requests, in the order in which they ended.
    pub requests: Vec<RequestTimeline>,
    /// The scrapes, in the order in which they were received.
    pub scrapes: Vec<Scrape>,
    /// Readings of the client's own state.
    pub health: Vec<Health>,
    /// Remarks.
    pub notes: Vec<Note>,
    /// Why the run ended; `None` if it was killed, or goes on.
    pub ended: Option<Ended>,
    /// The latest instant that any event speaks of.
    pub last: Offset,
}

impl Recording {
    /// An empty recording.
    pub fn new(header: Header) -> Recording {
        Recording {
            header,
            steps: Vec::new(),
            requests: Vec::new(),
            scrapes: Vec::new(),
            health: Vec::new(),
            notes: Vec::new(),
            ended: None,
            last: Offset::ZERO,
        }
    }

    /// Takes in one event. A step that is open when the recording stops reaches to [`Recording::last`];
    /// call [`Recording::close`] to make it so.
    pub fn apply(&mut self, event: Event) {
        self.last = self.last.max(event.at());
        match event {
            Event::StepStarted { at, plan } => self.steps.push(StepSpan {
                step: plan.step,
                load: plan.load,
                phase: plan.phase,
                repeat: plan.repeat,
                warmup: Span::new(at, OPEN),
                measured: Span::new(OPEN, OPEN),
                cut_short: None,
            }),
            Event::MeasureStarted { at, step } => {
                if let Some(s) = self.steps.iter_mut().rfind(|s| s.step == step) {
                    s.warmup.end = at;
                    s.measured = Span::new(at, OPEN);
                }
            }
            Event::StepEnded { at, step, cut_short } => {
                if let Some(s) = self.steps.iter_mut().rfind(|s| s.step == step) {
                    s.cut_short = cut_short;
                    end(s, at);
                }
            }
            Event::Request(r) => self.requests.push(r),
            Event::Scrape(s) => self.scrapes.push(s),
            Event::Health(h) => self.health.push(h),
            Event::Note(n) => self.notes.push(n),
            Event::Ended(e) => self.ended = Some(e),
        }
    }

    /// Ends whatever step is still open at the last known instant.
    pub fn close(&mut self) {
        let last = self.last;
        for s in &mut self.steps {
            if s.measured.end == OPEN {
                s.cut_short.get_or_insert(CutShort::Interrupted);
                end(s, last);
            }
        }
    }

    /// Prometheus time of an offset: Unix milliseconds.
    pub fn unix_ms(&self, at: Offset) -> i64 {
        self.header.epoch_unix_ms + i64::try_from(at.as_millis()).unwrap_or(i64::MAX)
    }

    /// Length of the run so far.
    pub fn duration(&self) -> Duration {
        self.last.as_duration()
    }
}

/// Stands for "not yet" in a step whose marks are still to come.
const OPEN: Offset = Offset(u64::MAX);

fn end(s: &mut StepSpan, at: Offset) {
    if s.warmup.end == OPEN {
        s.warmup.end = at;
        s.measured.start = at;
    }
    s.measured.end = at;
}
