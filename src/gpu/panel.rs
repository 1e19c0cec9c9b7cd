//! What `plimsoll check` shows of the GPU.

use std::fmt;

use serde::Serialize;

use crate::model::sample::Sample;

use super::field::Field;

/// A source and its devices, for a person (`Display`, several lines) or a program (serde).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Panel {
    /// The source as `--gpu` names it.
    pub source: String,
    /// Version of the driver; `None` where the source does not tell.
    pub driver: Option<String>,
    /// The devices that were chosen, by index.
    pub devices: Vec<PanelDevice>,
    /// What else is worth knowing, a line each.
    pub remarks: Vec<String>,
    /// What one round of reading cost, µs; `None` where it was not measured.
    pub poll_us: Option<u64>,
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PanelDevice {
    /// Index as the source gives it.
    pub index: String,
    /// UUID.
    pub uuid: String,
    /// Model; `None` where the source does not tell.
    pub name: Option<String>,
    /// PCI bus id; `None` where the source does not tell.
    pub pci_bus_id: Option<String>,
    /// MIG slices that are read, by UUID.
    pub mig: Vec<String>,
    /// What was read last: key and value in the unit of its series.
    pub readings: Vec<(&'static str, f64)>,
    /// What the device refuses: key and reason.
    pub refused: Vec<(&'static str, String)>,
    /// Processes that hold its memory: pid, and bytes where the driver tells; `None` where it does not list them.
    pub processes: Option<Vec<(u32, Option<u64>)>>,
    /// Whether it was lost.
    pub lost: bool,
}

impl PanelDevice {
    fn reading(&self, field: Field) -> Option<f64> {
        self.readings.iter().find(|(key, _)| *key == field.key()).map(|&(_, v)| v)
    }
}

impl Panel {
    /// The panel of a source that is only known by what it says: pages and logs.
    pub fn of_samples(source: String, samples: &[Sample]) -> Panel {
        let mut panel = Panel { source, ..Panel::default() };
        for sample in samples {
            let Some(uuid) = sample.labels.get("UUID") else { continue };
            let at = panel.devices.iter().position(|d| d.uuid == uuid).unwrap_or_else(|| {
                panel.devices.push(PanelDevice {
                    index: sample.labels.get("gpu").unwrap_or_default().into(),
                    uuid: uuid.into(),
                    name: sample.labels.get("modelName").map(Into::into),
                    ..PanelDevice::default()
                });
                panel.devices.len() - 1
            });
            let device = &mut panel.devices[at];
            if let Some(field) = Field::from_series(sample.labels.name())
                && device.reading(field).is_none()
            {
                device.readings.push((field.key(), sample.value));
            }
        }
        panel
    }

    /// The source and its devices in one line.
    pub fn headline(&self) -> String {
        let driver = self.driver.as_ref().map_or(String::new(), |d| format!(", driver {d}"));
        let devices: Vec<String> = self
            .devices
            .iter()
            .map(|d| format!("{} {} ({})", d.index, d.name.as_deref().unwrap_or("GPU"), d.uuid))
            .collect();
        let count = match devices.len() {
            1 => "1 GPU".to_string(),
            n => format!("{n} GPUs"),
        };
        format!("{}{driver}, {count}: {}", self.source, devices.join(", "))
    }
}

impl fmt::Display for Panel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gpu       {}", self.source)?;
        if let Some(driver) = &self.driver {
            write!(f, ", driver {driver}")?;
        }
        if let Some(us) = self.poll_us {
            write!(f, ", {us} us a round")?;
        }
        writeln!(f)?;
        for device in &self.devices {
            write!(f, "{device}")?;
        }
        for remark in &self.remarks {
            writeln!(f, "  note   {remark}")?;
        }
        Ok(())
    }
}

impl fmt::Display for PanelDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {:<6} {}, {}", self.index, self.name.as_deref().unwrap_or("GPU"), self.uuid)?;
        match &self.pci_bus_id {
            Some(pci) => writeln!(f, ", at {pci}")?,
            None => writeln!(f)?,
        }
        if self.lost {
            return writeln!(f, "         lost: it does not answer");
        }
        let now = [
            self.of(Field::SmClock, Field::MaxSmClock, "MHz", "SM"),
            self.reading(Field::Temperature).map(|v| format!("{v} °C")),
            self.of(Field::Power, Field::PowerLimit, "W", "drawn"),
            self.reading(Field::GpuUtilization).map(|v| format!("{v} % busy")),
            self.of(Field::MemoryUsed, Field::MemoryTotal, "MiB", "used"),
        ];
        line(f, "now", now.into_iter().flatten().collect())?;
        let limits = [
            self.reading(Field::MaxOperatingTemperature).map(|v| format!("software slows it down above {v} °C")),
            self.reading(Field::SlowdownTemperature).map(|v| format!("hardware at {v} °C")),
            self.reading(Field::ShutdownTemperature).map(|v| format!("off at {v} °C")),
        ];
        line(f, "limits", limits.into_iter().flatten().collect())?;
        line(f, "mig", self.mig.clone())?;
        line(f, "reads", self.readings.iter().map(|(key, _)| (*key).to_string()).collect())?;
        line(f, "refuses", self.refused.iter().map(|(key, why)| format!("{key} ({why})")).collect())?;
        let held = |&(pid, bytes): &(u32, Option<u64>)| match bytes {
            Some(b) => format!("pid {pid} ({} MiB)", b >> 20),
            None => format!("pid {pid}"),
        };
        line(f, "held by", self.processes.iter().flatten().map(held).collect())
    }
}

impl PanelDevice {
    /// `1980 of 1980 MHz SM`, or without the limit.
    fn of(&self, now: Field, limit: Field, unit: &str, what: &str) -> Option<String> {
        let value = self.reading(now)?;
        Some(match self.reading(limit) {
            Some(limit) => format!("{value:.0} of {limit:.0} {unit} {what}"),
            None => format!("{value:.0} {unit} {what}"),
        })
    }
}

fn line(f: &mut fmt::Formatter<'_>, head: &str, parts: Vec<String>) -> fmt::Result {
    if parts.is_empty() { Ok(()) } else { writeln!(f, "         {head:<8} {}", parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panel_reads_well() {
        let panel = Panel {
            source: "nvml".into(),
            driver: Some("570.00".into()),
            poll_us: Some(212),
            remarks: vec!["CUDA_VISIBLE_DEVICES shows 1 of 2 GPUs".into()],
            devices: vec![PanelDevice {
                index: "0".into(),
                uuid: "GPU-a".into(),
                name: Some("Mock H200".into()),
                pci_bus_id: Some("00000000:5D:00.0".into()),
                readings: vec![
                    (Field::SmClock.key(), 1_215.0),
                    (Field::MaxSmClock.key(), 1_980.0),
                    (Field::Temperature.key(), 88.0),
                    (Field::SlowdownTemperature.key(), 89.0),
                    (Field::Power.key(), 120.4),
                ],
                refused: vec![(Field::MemoryTemperature.key(), "not supported".into())],
                processes: Some(vec![(1_000, Some(1 << 30)), (1_001, None)]),
                ..PanelDevice::default()
            }],
        };
        let expected = "\
gpu       nvml, driver 570.00, 212 us a round
  0      Mock H200, GPU-a, at 00000000:5D:00.0
         now      1215 of 1980 MHz SM, 88 °C, 120 W drawn
         limits   hardware at 89 °C
         reads    sm_clock_mhz, max_sm_clock_mhz, temperature_c, slowdown_temperature_c, power_mw
         refuses  memory_temperature_c (not supported)
         held by  pid 1000 (1024 MiB), pid 1001
  note   CUDA_VISIBLE_DEVICES shows 1 of 2 GPUs
";
        assert_eq!(panel.to_string(), expected);
        assert_eq!(panel.headline(), "nvml, driver 570.00, 1 GPU: 0 Mock H200 (GPU-a)");
    }
}
