//! A source that replays what a driver answered: one JSON line a round.
//!
//! ```text
//! {"t_s": 0, "devices": [{"index": 0, "uuid": "GPU-…", "name": "…", "fields": {"power_mw": {"ok": 61000}, "fan_pct": {"err": "NotSupported"}}}]}
//! {"init_err": "DriverNotLoaded"}
//! ```
//!
//! Keys and units are those of [`Field::key`]; a key that is not there is not spoken of at all.
//! `compute_processes` is a number of processes or a list `[{"pid": 7, "bytes": 1048576}]`. A device that
//! is missing from a line is lost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;

use super::card::{Answer, Card, Process, Query, Refusal, Tags};
use super::field::Field;
use super::fleet::Fleet;
use super::panel::Panel;
use super::{Depth, GpuError, GpuReading, GpuSource};

/// Replays a script; each poll takes the next line, and the last one stays.
#[derive(Debug)]
pub struct Scripted {
    fleet: Fleet<ScriptedCard>,
    lines: VecDeque<Line>,
    now: Arc<Mutex<Line>>,
}

/// One round of a script.
#[derive(Clone, Debug, Default, Deserialize)]
struct Line {
    #[serde(default)]
    t_s: f64,
    #[serde(default)]
    init_err: Option<String>,
    #[serde(default)]
    devices: Vec<Device>,
}

#[derive(Clone, Debug, Deserialize)]
struct Device {
    index: u32,
    uuid: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    fields: BTreeMap<String, Said>,
}

/// `{"ok": value}` or `{"err": reason}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Ok(serde_json::Value),
    Err(String),
}

impl Scripted {
    /// Reads a script.
    ///
    /// # Errors
    /// [`GpuError::Unavailable`] where the script says that the library failed, or is no script.
    pub fn from_jsonl(text: &str) -> Result<Scripted, GpuError> {
        let bad = |why: String| GpuError::Unavailable { via: "script", why };
        let mut lines = VecDeque::new();
        for (i, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
            let line: Line = serde_json::from_str(line).map_err(|e| bad(format!("line {}: {e}", i + 1)))?;
            lines.push_back(line);
        }
        let first = lines.front().cloned().ok_or_else(|| bad("the script is empty".into()))?;
        if let Some(error) = &first.init_err {
            return Err(bad(format!("the library failed: {error}")));
        }
        let now = Arc::new(Mutex::new(first.clone()));
        let mut fleet = Fleet::new("script", None, Vec::new());
        for device in first.devices {
            let tags = Tags { index: device.index.to_string(), uuid: device.uuid.clone(), name: device.name };
            fleet = fleet.with(tags, None, ScriptedCard { uuid: device.uuid, now: Arc::clone(&now) });
        }
        Ok(Scripted { fleet, lines, now })
    }

    /// Time of the round that is polled next, s; `None` at the end.
    pub fn next_at_s(&self) -> Option<f64> {
        self.lines.front().map(|l| l.t_s)
    }

    /// What each device refuses, by UUID: keys with reasons.
    pub fn refused(&self) -> BTreeMap<String, Vec<(&'static str, String)>> {
        self.fleet.refused()
    }
}

impl GpuSource for Scripted {
    fn describe(&self) -> Panel {
        self.fleet.describe()
    }

    fn poll(&mut self, depth: Depth) -> GpuReading {
        if let Some(line) = self.lines.pop_front() {
            *self.now.lock().unwrap_or_else(PoisonError::into_inner) = line;
        }
        self.fleet.poll(depth)
    }
}

/// One device of a script.
#[derive(Debug)]
pub struct ScriptedCard {
    uuid: String,
    now: Arc<Mutex<Line>>,
}

impl ScriptedCard {
    /// What the script says of a field; `None` if nothing.
    fn said(&self, field: Field) -> Option<Result<serde_json::Value, Refusal>> {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(device) = now.devices.iter().find(|d| d.uuid == self.uuid) else { return Some(Err(Refusal::Lost)) };
        Some(match device.fields.get(field.key())? {
            Said::Ok(value) => Ok(value.clone()),
            Said::Err(reason) => Err(refusal(reason)),
        })
    }
}

impl Card for ScriptedCard {
    fn ask(&mut self, query: Query) -> Vec<(Field, Answer)> {
        let number = |v: serde_json::Value| v.as_f64().ok_or_else(|| Refusal::NotNow("no number".into()));
        let answer = |&field: &Field| {
            let answer = self.said(field)?.and_then(number);
            Some((field, answer.map(|v| in_unit_of_the_series(field, v))))
        };
        query.fields().iter().filter_map(answer).collect()
    }

    fn processes(&mut self) -> Result<Vec<Process>, Refusal> {
        let said = self.said(Field::Processes).unwrap_or_else(|| Err(Refusal::NotNow("not in the script".into())))?;
        if let Some(count) = said.as_u64() {
            let pid = |i: u64| u32::try_from(i).unwrap_or(u32::MAX);
            return Ok((0..count).map(|i| Process { pid: pid(i), bytes: None }).collect());
        }
        let list = said.as_array().ok_or_else(|| Refusal::NotNow("no list".into()))?;
        let one = |p: &serde_json::Value| {
            Some(Process { pid: u32::try_from(p["pid"].as_u64()?).ok()?, bytes: p["bytes"].as_u64() })
        };
        Ok(list.iter().filter_map(one).collect())
    }
}

/// From the unit of the key to that of the series.
fn in_unit_of_the_series(field: Field, value: f64) -> f64 {
    match field {
        Field::Power | Field::PowerLimit => value / 1_000.0,
        Field::MemoryUsed | Field::MemoryFree | Field::MemoryTotal => value / 1_048_576.0,
        _ => value,
    }
}

/// The names that nvml-wrapper gives to errors.
fn refusal(name: &str) -> Refusal {
    match name {
        "NotSupported" | "InvalidArg" => Refusal::NotSupported,
        "NoPermission" => Refusal::NoPermission,
        "FailedToLoadSymbol" | "FunctionNotFound" => Refusal::MissingSymbol,
        "GpuLost" | "ResetRequired" => Refusal::Lost,
        other => Refusal::NotNow(other.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::NoteCode;

    fn value(reading: &GpuReading, series: &str) -> Option<f64> {
        reading.samples.iter().find(|s| s.labels.name() == series).map(|s| s.value)
    }

    fn line(fields: &str) -> String {
        format!("{{\"devices\": [{{\"index\": 0, \"uuid\": \"GPU-a\", \"name\": \"N\", \"fields\": {{{fields}}}}}]}}\n")
    }

    #[test]
    fn a_refused_field_is_told_once_and_is_absent() {
        let text = line(r#""power_mw": {"ok": 61000}, "temperature_c": {"err": "NotSupported"}, "fan_pct": {"err": "NoPermission"}"#).repeat(3);
        let mut script = Scripted::from_jsonl(&text).unwrap();
        let first = script.poll(Depth::Round);
        assert_eq!(value(&first, "DCGM_FI_DEV_POWER_USAGE"), Some(61.0));
        assert_eq!(value(&first, "DCGM_FI_DEV_GPU_TEMP"), None);
        let told: Vec<NoteCode> = first.notes.iter().map(|n| n.code).collect();
        assert_eq!(told, [NoteCode::Unsupported]);
        assert!(first.notes[0].says.contains("temperature_c (not supported)"));
        assert!(first.notes[0].says.contains("fan_pct (no permission)"));
        assert!(script.poll(Depth::Border).notes.is_empty());
    }

    #[test]
    fn a_passing_error_is_a_gap_and_no_end() {
        let text = line(r#""power_mw": {"ok": 1000}"#)
            + &line(r#""power_mw": {"err": "Unknown"}"#)
            + &line(r#""power_mw": {"ok": 3000}"#);
        let mut script = Scripted::from_jsonl(&text).unwrap();
        let powers: Vec<Option<f64>> =
            (0..3).map(|_| value(&script.poll(Depth::Round), "DCGM_FI_DEV_POWER_USAGE")).collect();
        assert_eq!(powers, [Some(1.0), None, Some(3.0)]);
    }

    #[test]
    fn a_lost_device_stays_lost() {
        let text = line(r#""power_mw": {"ok": 1000}"#)
            + &line(r#""power_mw": {"err": "GpuLost"}"#)
            + &line(r#""power_mw": {"ok": 3000}"#);
        let mut script = Scripted::from_jsonl(&text).unwrap();
        script.poll(Depth::Round);
        let second = script.poll(Depth::Round);
        assert_eq!(second.notes.len(), 1);
        assert_eq!(second.notes[0].code, NoteCode::Lost);
        let third = script.poll(Depth::Round);
        for reading in [&second, &third] {
            assert_eq!(reading.samples.len(), 1);
            assert_eq!(value(reading, "plimsoll_gpu_up"), Some(0.0));
        }
        assert!(third.notes.is_empty());
        assert!(script.describe().devices[0].lost);
    }

    #[test]
    fn what_cannot_be_is_dropped_and_counted() {
        let text = line(r#""temperature_c": {"ok": 255}, "utilization_gpu_pct": {"ok": 0}"#).repeat(2);
        let mut script = Scripted::from_jsonl(&text).unwrap();
        let first = script.poll(Depth::Round);
        assert_eq!(value(&first, "DCGM_FI_DEV_GPU_TEMP"), None);
        assert_eq!(value(&first, "DCGM_FI_DEV_GPU_UTIL"), Some(0.0), "0 % is a reading");
        assert!(first.notes.iter().any(|n| n.code == NoteCode::Dropped));
        let second = script.poll(Depth::Round);
        assert_eq!(value(&second, "plimsoll_gpu_dropped_readings_total"), Some(2.0));
        assert!(second.notes.is_empty());
    }

    #[test]
    fn a_library_that_failed_and_a_script_that_is_none_are_told() {
        let e = Scripted::from_jsonl("{\"init_err\": \"DriverNotLoaded\"}").unwrap_err();
        assert!(e.to_string().contains("DriverNotLoaded"));
        assert!(Scripted::from_jsonl("").is_err());
        assert!(Scripted::from_jsonl("nonsense").unwrap_err().to_string().contains("line 1"));
    }
}
