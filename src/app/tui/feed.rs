//! From what is read to what is shown.

use crate::gpu::field::{REASONS, Weight};
use crate::model::sample::Scrape;
use crate::model::time::Offset;
use crate::model::verdict::AlertState;
use crate::rules::live::Standing;

use super::board::{Alert, Board, Gpu};

impl Board {
    /// Takes in how the alerts stand at `now`, the firing ones first, then those that fire soonest.
    pub fn stand(&mut self, standing: &[Standing], now: Offset) {
        let count = |state| standing.iter().filter(|s| s.state == state).count();
        self.others = [count(AlertState::Quiet), count(AlertState::NoData) + count(AlertState::NotEvaluable)];
        self.alerts = standing
            .iter()
            .filter(|s| matches!(s.state, AlertState::Pending | AlertState::Firing))
            .map(|s| Alert {
                name: s.alert.clone(),
                firing: s.state == AlertState::Firing,
                held: s.since.map(|since| now.since(since)).unwrap_or_default(),
                fires_in: s.fires_in.unwrap_or_default(),
                summary: s.summary.clone().unwrap_or_default(),
            })
            .collect();
        self.alerts.sort_by_key(|a| (!a.firing, a.fires_in));
    }

    /// Takes in a reading of the GPUs; a failed one leaves nothing to show.
    pub fn read_gpus(&mut self, scrape: &Scrape) {
        self.gpus.clear();
        let mut seen: Vec<&str> = Vec::new();
        for sample in scrape.result.iter().flatten() {
            let Some(uuid) = sample.labels.get("UUID") else { continue };
            let at = seen.iter().position(|u| *u == uuid).unwrap_or_else(|| {
                seen.push(uuid);
                let label = |name: &str| sample.labels.get(name).unwrap_or_default().to_owned();
                let name = [label("gpu"), label("modelName")].join(" ");
                self.gpus.push(Gpu { name: name.trim().to_owned(), ..Gpu::default() });
                seen.len() - 1
            });
            let gpu = &mut self.gpus[at];
            match sample.labels.name() {
                "DCGM_FI_DEV_SM_CLOCK" => gpu.clock_mhz = Some(sample.value),
                "DCGM_FI_DEV_GPU_TEMP" => gpu.temperature_c = Some(sample.value),
                "DCGM_FI_DEV_POWER_USAGE" => gpu.power_w = Some(sample.value),
                "DCGM_FI_DEV_CLOCKS_EVENT_REASONS" => {
                    let mask = sample.value as u64;
                    let set = REASONS.iter().filter(|r| r.weight != Weight::Ignored && mask & r.bit != 0);
                    gpu.slowed_by = set.map(|r| r.name).collect();
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::{Labels, NAME, Sample, SourceKind};

    #[test]
    fn a_reading_is_one_line_a_device() {
        let sample = |uuid: &str, name: &str, value: f64| Sample {
            labels: Labels::new([(NAME, name), ("UUID", uuid), ("gpu", &uuid[4..]), ("modelName", "NVIDIA L4")]),
            value,
        };
        let samples = vec![
            sample("GPU-0", "DCGM_FI_DEV_SM_CLOCK", 1_020.0),
            sample("GPU-1", "DCGM_FI_DEV_SM_CLOCK", 2_040.0),
            sample("GPU-0", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", f64::from(0x1 | 0x20)),
            sample("GPU-0", "DCGM_FI_DEV_GPU_TEMP", 87.0),
        ];
        let mut board = Board::default();
        let at = Offset::ZERO;
        let scrape = Scrape { source: SourceKind::Gpu, target: 0, sent: at, received: at, result: Ok(samples) };
        board.read_gpus(&scrape);
        board.read_gpus(&scrape);
        assert_eq!(board.gpus.len(), 2);
        assert_eq!(board.gpus[0].slowed_by, ["sw_thermal_slowdown"]);
        assert_eq!((board.gpus[0].clock_mhz, board.gpus[0].temperature_c), (Some(1_020.0), Some(87.0)));
        assert_eq!((board.gpus[1].name.as_str(), board.gpus[1].power_w), ("1 NVIDIA L4", None));
    }
}
