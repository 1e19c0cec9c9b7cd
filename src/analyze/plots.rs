//! What the plots need beyond the verdict, cut out of the recording.

use crate::gpu::field::{REASONS, Weight};
use crate::model::plot::{GapBin, GapHistogram, GpuTraces, PlotData, Trace, TtftDot};
use crate::model::recording::Recording;
use crate::model::request::Outcome;
use crate::model::sample::SourceKind;

use super::Stores;
use super::quantiles::at;

/// Upper edges of the bins of a gap histogram: ten a decade, 100 us to 100 s.
const BINS: i32 = 60;
/// How many stretches of time the gaps of a run are told in, about.
const STRETCHES: f64 = 240.0;

/// Everything that is drawn and is not in the verdict.
pub fn plots(recording: &Recording, stores: &Stores) -> PlotData {
    let trace = |name: &str| -> Trace {
        let start = recording.header.epoch_unix_ms;
        stores.signals.trace(name).into_iter().map(|(t, v)| ((t - start) as f64 / 1e3, v)).collect()
    };
    let preemptions = trace("plimsoll:preemptions");
    let before = preemptions.iter().find_map(|(_, v)| *v).unwrap_or(0.0);
    PlotData {
        waiting: trace("plimsoll:waiting"),
        running: trace("plimsoll:running"),
        kv_cache_usage: trace("plimsoll:kv_usage"),
        preemptions: preemptions.into_iter().map(|(t, v)| (t, v.map(|v| v - before))).collect(),
        ttft: recording
            .requests
            .iter()
            .map(|r| TtftDot {
                at_s: r.began().as_secs_f64(),
                ttft_s: r.ttft().map(|d| d.as_secs_f64()),
                failed: matches!(r.outcome, Outcome::Failed { .. }),
            })
            .collect(),
        gaps: gaps(recording),
        gap_histograms: histograms(recording),
        gpus: gpus(recording),
    }
}

fn gaps(recording: &Recording) -> Vec<GapBin> {
    let length = (recording.last.as_secs_f64() / STRETCHES).max(0.001);
    let mut bins: Vec<Vec<f64>> = Vec::new();
    for r in &recording.requests {
        for pair in r.chunks.windows(2) {
            let bin = (pair[1].at.as_secs_f64() / length) as usize;
            if bins.len() <= bin {
                bins.resize_with(bin + 1, Vec::new);
            }
            bins[bin].push(pair[1].at.since(pair[0].at).as_secs_f64());
        }
    }
    let summary = |(i, mut gaps): (usize, Vec<f64>)| {
        gaps.sort_by(f64::total_cmp);
        Some(GapBin { at_s: (i as f64 + 0.5) * length, p50_s: at(&gaps, 0.5)?, p99_s: at(&gaps, 0.99)? })
    };
    bins.into_iter().enumerate().filter_map(summary).collect()
}

fn histograms(recording: &Recording) -> Vec<GapHistogram> {
    let edges: Vec<f64> = (1..=BINS).map(|i| 1e-4 * 10f64.powf(f64::from(i) / 10.0)).collect();
    let of_step = |step: &crate::model::step::StepSpan| {
        let mut counts = vec![0; edges.len()];
        for r in &recording.requests {
            for pair in r.chunks.windows(2).filter(|p| step.measured.contains(p[1].at)) {
                let gap = pair[1].at.since(pair[0].at).as_secs_f64();
                counts[edges.partition_point(|e| *e < gap).min(edges.len() - 1)] += 1;
            }
        }
        GapHistogram { step: step.step, edges_s: edges.clone(), counts }
    };
    recording.steps.iter().map(of_step).filter(|h| h.counts.iter().any(|&c| c > 0)).collect()
}

fn gpus(recording: &Recording) -> Vec<GpuTraces> {
    let suspect: u64 = REASONS.iter().filter(|r| r.weight == Weight::Suspect).map(|r| r.bit).sum();
    let mut out: Vec<GpuTraces> = Vec::new();
    // Of each device: whether it was slowed at its last reading.
    let mut slowed: Vec<bool> = Vec::new();
    for scrape in recording.scrapes.iter().filter(|s| s.source == SourceKind::Gpu) {
        let Ok(samples) = &scrape.result else { continue };
        let at_s = scrape.sent.as_secs_f64();
        for sample in samples {
            let Some(device) = sample.labels.get("gpu") else { continue };
            let i = out.iter().position(|g| g.device == device).unwrap_or_else(|| {
                out.push(GpuTraces { device: device.to_owned(), ..GpuTraces::default() });
                slowed.push(false);
                out.len() - 1
            });
            let trace = match sample.labels.name() {
                "DCGM_FI_DEV_SM_CLOCK" => &mut out[i].sm_clock_mhz,
                "DCGM_FI_DEV_GPU_TEMP" => &mut out[i].temperature_c,
                "DCGM_FI_DEV_POWER_USAGE" => &mut out[i].power_w,
                "DCGM_FI_DEV_CLOCKS_EVENT_REASONS" => {
                    let now = sample.value as u64 & suspect != 0;
                    let before = std::mem::replace(&mut slowed[i], now);
                    match out[i].throttled_s.last_mut() {
                        // A stretch lasts until a reading says that it is over.
                        Some(last) if before => last[1] = at_s,
                        _ if now => out[i].throttled_s.push([at_s, at_s]),
                        _ => {}
                    }
                    continue;
                }
                _ => continue,
            };
            trace.push((at_s, Some(sample.value)));
        }
    }
    out
}
