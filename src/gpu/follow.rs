//! A log that grows, on our clock.
//!
//! The stamps of `nvidia-smi` are local time without a zone, so their distance from UTC is either given
//! (`gpu.smi_clock_offset`) or told from the first line that is written while we look: the nearest
//! quarter of an hour, as zones are. What lies ahead of our clock waits until its time has come.

use std::collections::VecDeque;
use std::path::PathBuf;

use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::page::Intake;
use super::panel::Panel;
use super::smi::{Group, Log};
use super::spec::ClockOffset;
use super::{GpuError, GpuNote, GpuReading, NoteCode};

/// A whole number of quarters of an hour that brings `log_ms` next to `now_ms`.
pub fn zone_shift_ms(log_ms: i64, now_ms: i64) -> i64 {
    const QUARTER: i64 = 15 * 60 * 1_000;
    let distance = now_ms - log_ms;
    (distance + QUARTER / 2).div_euclid(QUARTER) * QUARTER
}

/// Follows a log file.
#[derive(Debug)]
pub struct LogReader {
    path: PathBuf,
    position: u64,
    partial: Vec<u8>,
    log: Log,
    shift_ms: Option<i64>,
    waiting: VecDeque<Group>,
    intake: Intake,
}

/// One group on our clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// When it was read, by the log: Unix milliseconds.
    pub unix_ms: i64,
    /// What it says.
    pub reading: GpuReading,
}

impl LogReader {
    /// Prepares following `path`.
    pub fn new(path: PathBuf, shift: Option<ClockOffset>) -> LogReader {
        LogReader {
            path,
            position: 0,
            partial: Vec::new(),
            log: Log::default(),
            shift_ms: shift.map(|s| s.0),
            waiting: VecDeque::new(),
            intake: Intake::default(),
        }
    }

    /// Reads what is already there.
    ///
    /// # Errors
    /// If there is no such log, it is no log, or lacks a device that was asked for.
    pub async fn open(&mut self, asked: &[String]) -> Result<Panel, GpuError> {
        let unavailable = |why: String| GpuError::Unavailable { via: "smi", why };
        let shown = self.path.display().to_string();
        self.read().await.map_err(|e| unavailable(format!("the log {shown} cannot be read: {e}")))?;
        if !self.log.has_header() {
            return Err(unavailable(format!(
                "the log {shown} does not begin with a header that has a `timestamp` column, as nvidia-smi --query-gpu=timestamp,index,uuid,… --format=csv -l 1 writes it"
            )));
        }
        let present = self.log.present(&self.waiting);
        self.intake.open(asked, &present)?;
        let last = self.waiting.back().map(|g| g.samples.as_slice()).unwrap_or_default();
        let mut panel = Panel::of_samples("smi".into(), last);
        for device in &mut panel.devices {
            device.pci_bus_id = self.log.buses.get(&device.uuid).cloned();
        }
        if panel.devices.is_empty() {
            panel.remarks.push("the log has no readings yet".into());
        }
        Ok(panel)
    }

    /// Reads what was added, and gives what lies at or before `now_ms` and was not given before.
    ///
    /// # Errors
    /// If the file cannot be read any more.
    pub async fn poll(&mut self, now_ms: i64) -> Result<Vec<Placed>, std::io::Error> {
        let before = self.waiting.len();
        self.read().await?;
        if self.shift_ms.is_none() && self.waiting.len() > before {
            let newest = self.waiting.back().expect("it has just grown");
            self.shift_ms = Some(zone_shift_ms(newest.log_ms, now_ms));
        }
        let Some(shift) = self.shift_ms else { return Ok(Vec::new()) };
        let mut placed = Vec::new();
        while let Some(group) = self.waiting.pop_front_if(|g| g.log_ms + shift <= now_ms) {
            let mut reading = self.intake.take(group.samples);
            reading.notes.extend(group.notes);
            placed.push(Placed { unix_ms: group.log_ms + shift, reading });
        }
        Ok(placed)
    }

    /// What was never given, and why; `None` if nothing.
    pub fn left_over(&self) -> Option<GpuNote> {
        let n = self.waiting.len();
        let why = match self.shift_ms {
            _ if n == 0 => return None,
            None => "no line came while we looked, so their clock is unknown",
            Some(_) => "they lie ahead of our clock",
        };
        let says = format!("{n} readings of the log were not used: {why}; set gpu.smi_clock_offset");
        Some(GpuNote { code: NoteCode::Unreadable, says })
    }

    async fn read(&mut self) -> Result<(), std::io::Error> {
        let mut file = tokio::fs::File::open(&self.path).await?;
        if file.metadata().await?.len() < self.position {
            // It was begun anew.
            self.position = 0;
            self.partial.clear();
        }
        file.seek(std::io::SeekFrom::Start(self.position)).await?;
        self.position += file.read_to_end(&mut self.partial).await? as u64;
        let whole = self.partial.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        let lines: Vec<u8> = self.partial.drain(..whole).collect();
        self.waiting.extend(self.log.feed(&String::from_utf8_lossy(&lines)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_quarters_of_an_hour() {
        let hour = 3_600_000;
        for (log, now, shift) in [
            (2 * hour + 110, 1_300, -2 * hour),
            (1_000, 5 * hour + 30 * 60_000 + 2_500, 5 * hour + 30 * 60_000),
            (10_000, 9_500, 0),
            (0, 8 * 60_000, 900_000),
        ] {
            assert_eq!(zone_shift_ms(log, now), shift, "{log} {now}");
        }
    }
}
