//! What the plots of a report need beyond the verdict: signals over time and distributions.
//!
//! The verdict holds a few numbers a step; a timeline needs every scrape. This is that, cut
//! down to what is drawn. What the client saw is derived here, from the recording; the
//! server's and the GPU's signals are filled in by whoever can query them by neutral names.

/// One signal over time: seconds since the start of the run and the value then. `None` breaks
/// the line: nothing was known there.
pub type Trace = Vec<(f64, Option<f64>)>;

/// Everything that is drawn and is not in the verdict. Empty parts are not drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlotData {
    /// Requests that wait.
    pub waiting: Trace,
    /// Requests that run.
    pub running: Trace,
    /// Share of the KV pool that requests hold, 0 to 1.
    pub kv_cache_usage: Trace,
    /// Preemptions since the start of the run.
    pub preemptions: Trace,
    /// Each request: when its latency began to count, and its time to first token, both s.
    pub ttft: Vec<TtftDot>,
    /// Gaps between output chunks by time of arrival.
    pub gaps: Vec<GapBin>,
    /// Distribution of the gaps of each step.
    pub gap_histograms: Vec<GapHistogram>,
    /// Each GPU.
    pub gpus: Vec<GpuTraces>,
}

/// One request in the timeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TtftDot {
    /// When its latency began to count, s.
    pub at_s: f64,
    /// Time to first token, s; `None` if no token came, for a failure or the end of the run.
    pub ttft_s: Option<f64>,
    /// Whether it failed.
    pub failed: bool,
}

/// The gaps that ended in one stretch of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GapBin {
    /// Middle of the stretch, s.
    pub at_s: f64,
    /// Median, s.
    pub p50_s: f64,
    /// 99th percentile, s.
    pub p99_s: f64,
}

/// How the gaps of one step are distributed.
#[derive(Clone, Debug, PartialEq)]
pub struct GapHistogram {
    /// Number of the step, from 0.
    pub step: u32,
    /// Upper edge of each bin, s, ascending; the first bin begins at the ratio of two neighbours below it.
    pub edges_s: Vec<f64>,
    /// Gaps in each bin.
    pub counts: Vec<u64>,
}

/// The signals of one GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuTraces {
    /// Index or name, as the verdict has it.
    pub device: String,
    /// SM clock, MHz.
    pub sm_clock_mhz: Trace,
    /// Temperature, °C.
    pub temperature_c: Trace,
    /// Power, W.
    pub power_w: Trace,
    /// Stretches in which a reason for lowered clocks was set, s.
    pub throttled_s: Vec<[f64; 2]>,
}
