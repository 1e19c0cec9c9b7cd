//! The CSV log of `nvidia-smi`.
//!
//! ```text
//! nvidia-smi --query-gpu=timestamp,index,uuid,name,clocks.sm,clocks.mem,temperature.gpu,temperature.memory,\
//! power.draw,enforced.power.limit,utilization.gpu,memory.used,clocks_event_reasons.active --format=csv -l 1 -f gpu.csv
//! ```
//!
//! Here lines become groups; [`follow`](super::follow) reads the file and places them on our clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::model::sample::Sample;

use super::card::Tags;
use super::field::{Field, REASONS};
use super::select::Present;
use super::{GpuNote, NoteCode};

/// What a log's columns are called, in order of preference where several give one field.
const COLUMNS: [(&str, Field); 21] = [
    ("clocks.current.sm", Field::SmClock),
    ("clocks.sm", Field::SmClock),
    ("clocks.current.memory", Field::MemClock),
    ("clocks.mem", Field::MemClock),
    ("clocks.max.sm", Field::MaxSmClock),
    ("temperature.gpu", Field::Temperature),
    ("temperature.memory", Field::MemoryTemperature),
    ("power.draw", Field::Power),
    ("power.draw.average", Field::Power),
    ("power.draw.instant", Field::Power),
    ("enforced.power.limit", Field::PowerLimit),
    ("power.limit", Field::PowerLimit),
    ("utilization.gpu", Field::GpuUtilization),
    ("utilization.memory", Field::MemoryUtilization),
    ("memory.used", Field::MemoryUsed),
    ("memory.free", Field::MemoryFree),
    ("memory.total", Field::MemoryTotal),
    ("fan.speed", Field::Fan),
    ("ecc.errors.uncorrected.volatile.total", Field::EccUncorrected),
    ("clocks_event_reasons.active", Field::ThrottleReasons),
    ("clocks_throttle_reasons.active", Field::ThrottleReasons),
];

/// All devices at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The log's own time, as if its stamps were UTC: Unix milliseconds.
    pub log_ms: i64,
    /// The values of each device, under DCGM's names.
    pub samples: Vec<Sample>,
    /// What is worth telling of these lines.
    pub notes: Vec<GpuNote>,
}

/// Lines to groups, as they come.
#[derive(Debug, Default)]
pub struct Log {
    columns: Option<Columns>,
    open: Option<(Group, BTreeSet<String>)>,
    /// UUIDs of the last whole group: once they are all there again, the group is whole without waiting
    /// for the next line.
    roll: BTreeSet<String>,
    /// PCI bus ids by UUID, where the log has them.
    pub(super) buses: BTreeMap<String, String>,
    refused_told: BTreeSet<(String, String)>,
    odd_told: bool,
}

#[derive(Debug, Default)]
struct Columns {
    timestamp: usize,
    index: Option<usize>,
    uuid: Option<usize>,
    name: Option<usize>,
    bus: Option<usize>,
    fields: Vec<(usize, Field)>,
    reasons: Vec<(usize, u64)>,
    width: usize,
}

impl Columns {
    /// Reads a header; `None` if the line is none.
    fn of(line: &str) -> Option<Columns> {
        let names: Vec<&str> = line.split(',').map(|c| c.split('[').next().unwrap_or_default().trim()).collect();
        let at = |wanted: &[&str]| wanted.iter().find_map(|w| names.iter().position(|n| n == w));
        let mut columns = Columns {
            timestamp: at(&["timestamp"])?,
            index: at(&["index"]),
            uuid: at(&["uuid", "gpu_uuid"]),
            name: at(&["name", "gpu_name"]),
            bus: at(&["pci.bus_id", "gpu_bus_id"]),
            width: names.len(),
            ..Columns::default()
        };
        for (name, field) in COLUMNS {
            if columns.fields.iter().all(|(_, f)| *f != field)
                && let Some(i) = at(&[name])
            {
                columns.fields.push((i, field));
            }
        }
        for reason in &REASONS {
            let (new, old) =
                (format!("clocks_event_reasons.{}", reason.name), format!("clocks_throttle_reasons.{}", reason.name));
            if let Some(i) = at(&[&new, &old]) {
                columns.reasons.push((i, reason.bit));
            }
        }
        Some(columns)
    }
}

impl Log {
    /// Takes whole lines; returns the groups that they complete.
    pub fn feed(&mut self, lines: &str) -> Vec<Group> {
        let mut done = Vec::new();
        for line in lines.lines().filter(|l| !l.trim().is_empty()) {
            if let Some(columns) = Columns::of(line) {
                // A log that was begun anew may have other columns.
                self.columns = Some(columns);
                continue;
            }
            self.line(line, &mut done);
        }
        done
    }

    /// Whether a header was seen.
    pub fn has_header(&self) -> bool {
        self.columns.is_some()
    }

    fn line(&mut self, line: &str, done: &mut Vec<Group>) {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let Some((columns, log_ms)) = self
            .columns
            .as_ref()
            .filter(|c| c.width == cells.len())
            .and_then(|c| Some((c, stamp_ms(cells[c.timestamp])?)))
        else {
            self.odd(line);
            return;
        };
        let cell = |at: Option<usize>| at.map(|i| cells[i]).filter(|c| !c.starts_with('[')).unwrap_or_default();
        let (index, bus) = (cell(columns.index), cell(columns.bus));
        let uuid = match cell(columns.uuid) {
            "" if !bus.is_empty() => bus,
            "" if !index.is_empty() => index,
            "" => "0",
            uuid => uuid,
        };
        let tags = Tags { index: index.into(), uuid: uuid.into(), name: cell(columns.name).into() };
        if !bus.is_empty() {
            self.buses.insert(tags.uuid.clone(), bus.into());
        }
        let mut values = BTreeMap::new();
        let mut notes = Vec::new();
        for &(i, field) in &columns.fields {
            match number(cells[i]) {
                Ok(value) => drop(values.insert(field, value)),
                Err(said) => {
                    let lost = said.contains("lost") || said.contains("reset");
                    if self.refused_told.insert((tags.uuid.clone(), format!("{}{lost}", field.key()))) {
                        let code = if lost { NoteCode::Lost } else { NoteCode::Unsupported };
                        let says = format!("{} does not give {}: {said}", tags.says(), field.key());
                        notes.push(GpuNote { code, says });
                    }
                }
            }
        }
        if !values.contains_key(&Field::ThrottleReasons) && columns.reasons.iter().any(|(i, _)| is_flag(cells[*i])) {
            let mask: u64 = columns.reasons.iter().filter(|(i, _)| cells[*i] == "Active").map(|(_, bit)| bit).sum();
            values.insert(Field::ThrottleReasons, mask as f64);
        }
        let samples = values.into_iter().map(|(f, value)| Sample { labels: tags.labels(f.series()), value });
        let samples: Vec<Sample> = samples.collect();
        if self.open.as_ref().is_some_and(|(_, seen)| seen.contains(&tags.uuid)) {
            self.close(done);
        }
        let (group, seen) = self
            .open
            .get_or_insert_with(|| (Group { log_ms, samples: Vec::new(), notes: Vec::new() }, BTreeSet::new()));
        group.samples.extend(samples);
        group.notes.extend(notes);
        seen.insert(tags.uuid);
        if *seen == self.roll {
            self.close(done);
        }
    }

    /// The group that is still open, at the end of a log.
    pub fn finish(&mut self) -> Option<Group> {
        let mut done = Vec::new();
        self.close(&mut done);
        done.pop()
    }

    fn close(&mut self, done: &mut Vec<Group>) {
        if let Some((group, seen)) = self.open.take() {
            self.roll = seen;
            done.push(group);
        }
    }

    fn odd(&mut self, line: &str) {
        if !std::mem::replace(&mut self.odd_told, true)
            && let Some((group, _)) = &mut self.open
        {
            let line: String = line.chars().take(120).collect();
            let lost = if line.to_ascii_lowercase().contains("lost") { NoteCode::Lost } else { NoteCode::Unreadable };
            group.notes.push(GpuNote { code: lost, says: format!("the log has a line that is no reading: {line}") });
        }
    }

    /// The devices of some groups, in the order in which they come.
    pub(super) fn present(&self, groups: &VecDeque<Group>) -> Vec<Present> {
        let mut present: Vec<Present> = Vec::new();
        for sample in groups.iter().flat_map(|g| &g.samples) {
            let label = |name: &str| sample.labels.get(name).unwrap_or_default().to_string();
            let uuid = label("UUID");
            if present.iter().all(|p| p.uuid != uuid) {
                let pci_bus_id = self.buses.get(&uuid).cloned();
                let index = label("gpu").parse().unwrap_or(u32::MAX);
                present.push(Present { index, uuid, pci_bus_id, name: label("modelName"), mig: Vec::new() });
            }
        }
        present
    }
}

fn is_flag(cell: &str) -> bool {
    matches!(cell, "Active" | "Not Active")
}

/// `1980 MHz`, `0x0000000000000004`, `41`; an error holds what stands there instead.
fn number(cell: &str) -> Result<f64, &str> {
    let first = cell.split_whitespace().next().unwrap_or_default();
    if let Some(hex) = first.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).map(|v| v as f64).map_err(|_| cell);
    }
    first.parse::<f64>().map_err(|_| cell.trim_matches(['[', ']']))
}

/// `2026/02/12 15:30:35.110` as if it were UTC, Unix milliseconds.
fn stamp_ms(cell: &str) -> Option<i64> {
    let (date, time) = cell.split_once(' ')?;
    let mut date = date.split('/');
    let mut next = || date.next()?.parse::<i16>().ok();
    let (year, month, day) = (next()?, next()?, next()?);
    let (clock, millis) = time.split_once('.').unwrap_or((time, "0"));
    let mut clock = clock.split(':');
    let mut next = || clock.next()?.parse::<i8>().ok();
    let (hour, minute, second) = (next()?, next()?, next()?);
    let millis: f64 = format!("0.{millis}").parse().ok()?;
    let (month, day) = (i8::try_from(month).ok()?, i8::try_from(day).ok()?);
    let at = jiff::civil::DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    let unix = jiff::tz::Offset::UTC.to_timestamp(at).ok()?.as_millisecond();
    Some(unix + (millis * 1_000.0).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "timestamp, index, uuid, name, clocks.current.sm [MHz], temperature.gpu, power.draw [W], memory.used [MiB], clocks_event_reasons.active\n";

    fn row(second: u32, index: u32, temperature: &str) -> String {
        format!(
            "2026/01/01 02:00:{second:02}.110, {index}, GPU-{index}, NVIDIA L4, 1980 MHz, {temperature}, 61.25 W, 20747 MiB, 0x0000000000000024\n"
        )
    }

    #[test]
    fn a_group_is_whole_when_its_devices_are_there_again() {
        let mut log = Log::default();
        assert!(log.feed(HEADER).is_empty() && log.has_header());
        assert!(log.feed(&row(0, 0, "60")).is_empty());
        assert!(log.feed(&row(0, 1, "61")).is_empty(), "nothing tells yet that there is no third");
        let first = log.feed(&row(1, 0, "62"));
        assert_eq!((first.len(), first[0].samples.len()), (1, 10));
        assert_eq!(log.feed(&row(1, 1, "63")).len(), 1, "the devices are known now");
        let values: Vec<(&str, f64)> = first[0].samples[..5].iter().map(|s| (s.labels.name(), s.value)).collect();
        assert_eq!(
            values,
            [
                ("DCGM_FI_DEV_SM_CLOCK", 1_980.0),
                ("DCGM_FI_DEV_GPU_TEMP", 60.0),
                ("DCGM_FI_DEV_POWER_USAGE", 61.25),
                ("DCGM_FI_DEV_FB_USED", 20_747.0),
                ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 36.0),
            ]
        );
        // 2026-01-01 02:00:00.110 read as UTC.
        assert_eq!(first[0].log_ms, 1_767_232_800_110);
    }

    #[test]
    fn what_is_not_there_is_told_once_and_is_no_zero() {
        let mut log = Log::default();
        log.feed(HEADER);
        let text = row(0, 0, "[N/A]") + &row(1, 0, "[N/A]") + &row(2, 0, "[GPU is lost]");
        let mut groups = log.feed(&text);
        groups.extend(log.finish());
        assert!(groups.iter().flat_map(|g| &g.samples).all(|s| s.labels.name() != "DCGM_FI_DEV_GPU_TEMP"));
        let codes: Vec<NoteCode> = groups.iter().flat_map(|g| &g.notes).map(|n| n.code).collect();
        assert_eq!(codes, [NoteCode::Unsupported, NoteCode::Lost]);
    }

    #[test]
    fn single_reasons_and_odd_lines() {
        let mut log = Log::default();
        let text = "timestamp, index, clocks_throttle_reasons.sw_power_cap, clocks_throttle_reasons.hw_slowdown\n\
            2026/01/01 00:00:00.000, 0, Active, Not Active\n\
            Unable to determine the device handle for GPU 0000:5D:00.0: GPU is lost.\n\
            2026/01/01 00:00:01.000, 0, Active, Active\n";
        let mut groups = log.feed(text);
        groups.extend(log.finish());
        assert_eq!(groups.iter().map(|g| g.samples[0].value).collect::<Vec<_>>(), [4.0, 12.0]);
        assert_eq!(groups[0].samples[0].labels.get("UUID"), Some("0"), "without a uuid the index must do");
        assert_eq!(groups[0].notes.len(), 1);
    }

    #[test]
    fn stamps_with_and_without_a_fraction() {
        assert_eq!(stamp_ms("1970/01/02 00:00:01"), Some(86_401_000));
        assert_eq!(stamp_ms("1970/01/02 00:00:01.5"), Some(86_401_500));
        for bad in ["", "1970-01-02 00:00:01", "1970/13/02 00:00:01", "noon"] {
            assert_eq!(stamp_ms(bad), None, "{bad}");
        }
    }
}
