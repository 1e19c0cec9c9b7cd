//! What the plots of a report need beyond the verdict: signals over time and distributions.
//!
//! The verdict holds a few numbers a step; a timeline needs every scrape. This is that, cut
//! down to what is drawn. What the client saw is derived here, from the recording; the
//! server's and the GPU's signals are filled in by whoever can query them by neutral names.

use super::recording::Recording;
use super::request::Outcome;
use super::step::StepSpan;
use super::time::{Offset, Span};

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

impl PlotData {
    /// What the client saw, cut down to what is drawn; the rest is left empty, for the series to fill.
    pub fn of_requests(recording: &Recording) -> PlotData {
        let ttft = recording.requests.iter().map(|r| TtftDot {
            at_s: r.began().as_secs_f64(),
            ttft_s: r.ttft().map(|d| d.as_secs_f64()),
            failed: matches!(r.outcome, Outcome::Failed { .. }),
        });
        let gaps = Gaps::of(recording);
        PlotData {
            ttft: ttft.collect(),
            gap_histograms: gaps.histograms(&recording.steps),
            gaps: gaps.bins(),
            ..PlotData::default()
        }
    }
}

/// As many stretches of time as a plot has room for.
const STRETCHES: u64 = 240;
/// Bins a factor of ten: one is 12 % wider than the next.
const BINS_A_DECADE: i32 = 20;
/// The bin of 0.1 ms, below which nothing is told apart: such gaps are chunks of one read.
const LOWEST_BIN: i32 = -4 * BINS_A_DECADE;

/// Every gap of a run, by when it ended and by how long it was. An hour of 64 streams has some
/// eleven million of them, so one pass serves both.
struct Gaps {
    /// Length of a stretch of time, µs.
    width_us: u64,
    /// The gaps that ended in each stretch, µs.
    by_time: Vec<Vec<u64>>,
    /// For each step the gaps that ended while it was measured, by bin from the lowest on.
    by_length: Vec<Vec<u64>>,
}

impl Gaps {
    fn of(recording: &Recording) -> Gaps {
        let bin_of = Bins::new();
        let steps = &recording.steps;
        let mut gaps = Gaps {
            // Whole seconds, so that a stretch holds whole scrapes and the same gaps whatever the plot's width.
            width_us: recording.last.0.div_ceil(STRETCHES).div_ceil(1_000_000).max(1) * 1_000_000,
            by_time: Vec::new(),
            by_length: vec![Vec::new(); steps.len()],
        };
        for r in &recording.requests {
            // Chunks come in order of time, so the step and the stretch of one are nearly always those of the next.
            let (mut stretch, mut until_us) = (0, 0);
            let (mut step, mut measured) = (usize::MAX, Span::new(Offset::ZERO, Offset::ZERO));
            for pair in r.chunks.windows(2) {
                let (at, gap_us) = (pair[1].at, pair[1].at.0.saturating_sub(pair[0].at.0));
                if at.0 >= until_us {
                    stretch = (at.0 / gaps.width_us) as usize;
                    until_us = (stretch as u64 + 1) * gaps.width_us;
                    if gaps.by_time.len() <= stretch {
                        gaps.by_time.resize_with(stretch + 1, Vec::new);
                    }
                }
                gaps.by_time[stretch].push(gap_us);
                if !measured.contains(at) {
                    let Some(now) = steps.iter().position(|s| s.measured.contains(at)) else { continue };
                    (step, measured) = (now, steps[now].measured);
                }
                let (bins, bin) = (&mut gaps.by_length[step], bin_of.bin(gap_us));
                if bins.len() <= bin {
                    bins.resize(bin + 1, 0);
                }
                bins[bin] += 1;
            }
        }
        gaps
    }

    fn bins(self) -> Vec<GapBin> {
        let width_s = self.width_us as f64 / 1e6;
        let bin = |(i, mut all): (usize, Vec<u64>)| {
            // The nearest rank is exact enough for a line of a few pixels.
            let mut rank = |q: f64| {
                let rank = (all.len().checked_sub(1)? as f64 * q).round() as usize;
                Some(*all.select_nth_unstable(rank).1 as f64 / 1e6)
            };
            Some(GapBin { at_s: (i as f64 + 0.5) * width_s, p50_s: rank(0.5)?, p99_s: rank(0.99)? })
        };
        self.by_time.into_iter().enumerate().filter_map(bin).collect()
    }

    /// The histogram of each step that has gaps.
    fn histograms(&self, steps: &[StepSpan]) -> Vec<GapHistogram> {
        let edge = |bin: usize| 10_f64.powf(f64::from(LOWEST_BIN + bin as i32 + 1) / f64::from(BINS_A_DECADE));
        let histogram = |(bins, step): (&Vec<u64>, &StepSpan)| {
            let first = bins.iter().position(|n| *n > 0)?;
            Some(GapHistogram {
                step: step.step,
                edges_s: (first..bins.len()).map(edge).collect(),
                counts: bins[first..].to_vec(),
            })
        };
        self.by_length.iter().zip(steps).filter_map(histogram).collect()
    }
}

/// Which bin a gap falls into: looked up for the gaps that nearly all are, reckoned for the others.
struct Bins(Vec<u8>);

impl Bins {
    fn new() -> Bins {
        Bins((0..1 << 16).map(|us| reckoned(us) as u8).collect())
    }

    fn bin(&self, us: u64) -> usize {
        usize::try_from(us).ok().and_then(|us| self.0.get(us)).map_or_else(|| reckoned(us), |&bin| usize::from(bin))
    }
}

fn reckoned(us: u64) -> usize {
    let bin = ((us as f64 / 1e6).max(1e-4).log10() * f64::from(BINS_A_DECADE)).floor() as i32;
    (bin - LOWEST_BIN).max(0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::recording::{Event, Header};
    use crate::model::request::{RequestTimeline, TokenChunk};
    use crate::model::step::{Load, Phase, StepPlan};
    use crate::model::time::ClockKind;

    fn recording() -> Recording {
        let mut r = Recording::new(Header { ..Header::blank(ClockKind::Simulated, 0) });
        let plan = StepPlan { step: 0, load: Load::Concurrency(1), phase: Phase::Climb, repeat: 0, drain_first: false };
        r.apply(Event::StepStarted { at: Offset::ZERO, plan });
        r.apply(Event::MeasureStarted { at: Offset::from_millis(1_000), step: 0 });
        let stamps = [500, 520, 990, 1_010, 1_030, 2_030];
        r.apply(Event::Request(RequestTimeline {
            sent: Offset::from_millis(300),
            chunks: stamps.map(|ms| TokenChunk { at: Offset::from_millis(ms), running_tokens: None }).to_vec(),
            finished: Offset::from_millis(2_040),
            outcome: Outcome::Completed,
            ..RequestTimeline::blank(0)
        }));
        r.apply(Event::StepEnded { at: Offset::from_millis(2_000), step: 0, cut_short: None });
        r
    }

    #[test]
    fn gaps_are_binned_by_arrival_and_counted_in_the_step_that_measured_them() {
        let data = PlotData::of_requests(&recording());
        assert_eq!(data.ttft, [TtftDot { at_s: 0.3, ttft_s: Some(0.2), failed: false }]);
        let bins: Vec<(f64, f64, f64)> = data.gaps.iter().map(|b| (b.at_s, b.p50_s, b.p99_s)).collect();
        assert_eq!(bins, [(0.5, 0.47, 0.47), (1.5, 0.02, 0.02), (2.5, 1.0, 1.0)]);
        // The warm-up's gaps and the one that ended after the window are not the step's.
        let [histogram] = data.gap_histograms.as_slice() else { panic!("one step") };
        assert_eq!((histogram.step, histogram.counts.iter().sum::<u64>()), (0, 2));
        let edge = histogram.edges_s[0];
        assert!(edge > 0.02 && edge / 10_f64.powf(1.0 / 20.0) <= 0.02 + 1e-9, "{edge}");
    }
}
