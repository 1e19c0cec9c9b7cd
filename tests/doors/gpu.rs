//! Readings of a scripted GPU.

use plimsoll::gpu::field::Field;
use plimsoll::gpu::scripted::Scripted;
use plimsoll::gpu::{Depth, GpuSource};
use serde_json::Value;

use crate::{Case, Faults};

pub fn check(case: &Case, file: &str, faults: &mut Faults) {
    let name = &case.name;
    let text = case.read(file);
    let rounds = text.lines().filter(|l| !l.trim().is_empty()).count();
    let mut source = match Scripted::from_jsonl(&text) {
        Ok(source) => source,
        Err(e) => {
            faults.0.push(format!("{name}: {e}"));
            return;
        }
    };
    let readings: Vec<_> = (0..rounds).map(|_| source.poll(Depth::Round)).collect();
    // Every value of the first device's field, in NVML's unit, or nothing where it is refused.
    let values = |key: &str| -> Option<Vec<f64>> {
        let (field, factor) = match key {
            "power_w" => (Field::from_key("power_mw")?, 1.0),
            key => (Field::from_key(key)?, 1.0),
        };
        let of = |r: &plimsoll::gpu::GpuReading| {
            r.samples.iter().find(|s| s.labels.name() == field.series()).map(|s| s.value)
        };
        let all: Vec<f64> = readings.iter().filter_map(of).map(|v| v * factor).collect();
        (!all.is_empty()).then_some(all)
    };
    for (key, want) in &case.expect() {
        match key.as_str() {
            "samples" => {
                let got = readings.iter().filter(|r| !r.samples.is_empty()).count() as u64;
                faults.check(name, key, got, want.as_u64().unwrap());
            }
            "unsupported_fields" => {
                let mut got: Vec<&str> = source.refused().into_values().flatten().map(|(k, _)| k).collect();
                got.sort_unstable();
                let want: Vec<&str> = want.as_array().unwrap().iter().map(|k| k.as_str().unwrap()).collect();
                faults.check(name, key, got, want);
                let told =
                    readings.iter().flat_map(|r| &r.notes).filter(|n| n.code.as_str() == "gpu_unsupported").count();
                faults.check(name, "refusals are told once", told, 1);
            }
            // Reading went on to the end, and nothing failed.
            "exit_code_effect" => faults.check(name, key, want.as_str(), Some("none")),
            key => {
                let want = match want {
                    Value::Array(a) => Some(a.iter().map(|v| v.as_f64().unwrap()).collect::<Vec<f64>>()),
                    _ => None,
                };
                faults.check(name, key, values(key), want);
            }
        }
    }
}
