//! What the plots need beyond the verdict: what the client saw, and the server's and GPUs' signals.

use crate::gpu::field::{REASONS, Weight};
use crate::model::plot::{GpuTraces, PlotData, Trace};
use crate::model::recording::Recording;
use crate::model::sample::SourceKind;
use crate::promql::Engine;
use crate::rules::RuleSet;
use crate::series::Store;

use super::server::Signals;

/// Everything that is drawn and is not in the verdict.
pub fn plots(recording: &Recording, rules: &RuleSet, store: &Store) -> PlotData {
    let signals = Signals::new(recording, rules, store, &Engine::default());
    let trace = |name: &str| -> Trace {
        let start = recording.header.epoch_unix_ms;
        signals.trace(name).into_iter().map(|(t, v)| ((t - start) as f64 / 1e3, v)).collect()
    };
    let preemptions = trace("plimsoll:preemptions");
    let before = preemptions.iter().find_map(|(_, v)| *v).unwrap_or(0.0);
    PlotData {
        waiting: trace("plimsoll:waiting"),
        running: trace("plimsoll:running"),
        kv_cache_usage: trace("plimsoll:kv_usage"),
        preemptions: preemptions.into_iter().map(|(t, v)| (t, v.map(|v| v - before))).collect(),
        gpus: gpus(recording),
        ..PlotData::of_requests(recording)
    }
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
