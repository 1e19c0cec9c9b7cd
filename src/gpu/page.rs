//! Pages of GPU exporters: dcgm-exporter under its own names, nvidia_gpu_exporter translated to them.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::sample::{Sample, ScrapeFailure, SourceKind};
use crate::scrape::Page;
use crate::scrape::exposition::Parser;
use crate::scrape::fetch::Fetcher;

use super::card::Tags;
use super::field::{Dropped, Field, REASONS};
use super::panel::Panel;
use super::select::{Present, Visible, choose};
use super::{GpuError, GpuNote, GpuReading, NoteCode};

/// Reads one exporter's page.
#[derive(Debug)]
pub struct PageReader {
    address: String,
    fetcher: Fetcher,
    parser: Parser,
    intake: Intake,
}

/// Longest page that is read; a node with 16 GPUs and every field is far below.
const MAX_BYTES: usize = 16 << 20;
/// Time after which Prometheus too would give up.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

impl PageReader {
    /// Prepares reading `url`.
    ///
    /// # Errors
    /// [`GpuError::Unavailable`] if that is no address.
    pub fn new(url: &str) -> Result<PageReader, GpuError> {
        let page = Page { url: url.into(), source: SourceKind::Gpu, target: 0, bearer: None, headers: Vec::new() };
        let fetcher = Fetcher::new(&page, TIMEOUT, MAX_BYTES)
            .map_err(|e| GpuError::Unavailable { via: "dcgm", why: e.to_string() })?;
        let address = url.split(['?', '#']).next().unwrap_or_default().to_owned();
        Ok(PageReader { address, fetcher, parser: Parser::new(), intake: Intake::default() })
    }

    /// Reads the page for the first time, and settles which devices are read.
    ///
    /// # Errors
    /// If there is no page, nothing of a GPU on it, or not what was asked for.
    pub async fn open(&mut self, asked: &[String]) -> Result<(Panel, GpuReading), GpuError> {
        // Without its query, which may be a secret.
        let at = self.address.clone();
        let unavailable = move |why: String| GpuError::Unavailable { via: "dcgm", why: format!("{at}: {why}") };
        let samples = self.samples().await.map_err(|f| unavailable(f.detail))?;
        let translated = translate(&samples);
        if translated.is_empty() {
            return Err(unavailable("the page has neither DCGM_FI_… nor nvidia_smi_… series".into()));
        }
        self.intake.open(asked, &present(&translated))?;
        let reading = self.intake.take(translated);
        let panel = Panel::of_samples("dcgm".into(), &reading.samples);
        Ok((panel, reading))
    }

    /// Reads the page.
    ///
    /// # Errors
    /// Why there was no page this time.
    pub async fn poll(&mut self) -> Result<GpuReading, ScrapeFailure> {
        let samples = self.samples().await?;
        Ok(self.intake.take(translate(&samples)))
    }

    async fn samples(&mut self) -> Result<Vec<Sample>, ScrapeFailure> {
        let body = self.fetcher.get().await?;
        let parsed = self.parser.parse(&body.bytes, body.format);
        parsed.map(|p| p.samples).map_err(|e| ScrapeFailure { class: "parse".into(), detail: e.to_string() })
    }
}

/// Readings of a source that is only known by what it says: which devices are wanted, which were there,
/// and what was dropped. Shared by pages and logs.
#[derive(Debug, Default)]
pub(super) struct Intake {
    /// UUIDs that are read; `None` reads all.
    wanted: Option<BTreeSet<String>>,
    devices: BTreeMap<String, Known>,
    drop_told: BTreeSet<(String, Field)>,
}

#[derive(Debug)]
struct Known {
    tags: Tags,
    here: bool,
    dropped: u64,
}

impl Intake {
    /// Settles which devices are read. Our own `CUDA_VISIBLE_DEVICES` says nothing of another machine's.
    pub(super) fn open(&mut self, asked: &[String], present: &[Present]) -> Result<(), GpuError> {
        if !asked.is_empty() {
            let (chosen, _) = choose(asked, &Visible::default(), present)?;
            self.wanted = Some(chosen.into_iter().map(|c| c.uuid).collect());
        }
        Ok(())
    }

    /// Takes one round of translated samples: the wanted and possible ones, what is ours, and what to tell.
    pub(super) fn take(&mut self, samples: Vec<Sample>) -> GpuReading {
        let mut reading = GpuReading::default();
        let mut seen: BTreeMap<String, Tags> = BTreeMap::new();
        for sample in samples {
            let Some(uuid) = sample.labels.get("UUID") else { continue };
            if self.wanted.as_ref().is_some_and(|w| !w.contains(uuid)) {
                continue;
            }
            let tags = seen.entry(uuid.into()).or_insert_with(|| tags(&sample));
            let known =
                self.devices.entry(uuid.into()).or_insert_with(|| Known { tags: tags.clone(), here: true, dropped: 0 });
            let field = Field::from_series(sample.labels.name());
            let judged = match field {
                Some(field) => field.judge(sample.value),
                None if super::field::is_blank(sample.value) => Err(Dropped::Blank),
                None => Ok(sample.value),
            };
            match (judged, field) {
                (Ok(_), _) => reading.samples.push(sample),
                (Err(why), field) => {
                    known.dropped += 1;
                    // A blank says that the device lacks the field, which is no news of every field of DCGM.
                    if let (Some(field), Dropped::Impossible) = (field, why)
                        && self.drop_told.insert((uuid.into(), field))
                    {
                        let says = format!(
                            "{}: {} read {}, not possible: dropped",
                            known.tags.says(),
                            field.key(),
                            sample.value
                        );
                        reading.notes.push(GpuNote { code: NoteCode::Dropped, says });
                    }
                }
            }
        }
        for (uuid, known) in &mut self.devices {
            let here = seen.contains_key(uuid);
            if known.here && !here {
                let says = format!("{} is no longer there", known.tags.says());
                reading.notes.push(GpuNote { code: NoteCode::Lost, says });
            }
            known.here = here;
            let up = if here { 1.0 } else { 0.0 };
            let ours = [("plimsoll_gpu_up", up), ("plimsoll_gpu_dropped_readings_total", known.dropped as f64)];
            for (series, value) in ours {
                reading.samples.push(Sample { labels: known.tags.labels(series), value });
            }
        }
        reading
    }
}

fn tags(sample: &Sample) -> Tags {
    let label = |name: &str| sample.labels.get(name).unwrap_or_default().to_string();
    Tags { index: label("gpu"), uuid: label("UUID"), name: label("modelName") }
}

/// The devices of translated samples, in the order in which they come.
fn present(samples: &[Sample]) -> Vec<Present> {
    let mut present: Vec<Present> = Vec::new();
    for sample in samples {
        let t = tags(sample);
        if !t.uuid.is_empty() && present.iter().all(|p| p.uuid != t.uuid) {
            let index = t.index.parse().unwrap_or(u32::MAX);
            present.push(Present { index, uuid: t.uuid, name: t.name, ..Present::default() });
        }
    }
    present
}

/// A page's samples under DCGM's names, with the labels that all sources have. What is not of a GPU is left out.
pub fn translate(page: &[Sample]) -> Vec<Sample> {
    if page.iter().any(|s| s.labels.name().starts_with("DCGM_")) { from_dcgm(page) } else { from_nvidia_smi(page) }
}

/// Labels that tell series of a page apart and are true of the device; the rest (host, pod, driver) is
/// the scraper's business, and pods that share a device would repeat its series.
const KEPT: [&str; 7] = ["__name__", "gpu", "UUID", "modelName", "GPU_I_ID", "GPU_I_PROFILE", "err_code"];

fn from_dcgm(page: &[Sample]) -> Vec<Sample> {
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    for sample in page.iter().filter(|s| s.labels.name().starts_with("DCGM_")) {
        let mut labels = sample.labels.without(|name| !KEPT.contains(&name));
        // The name before DCGM 3.3.
        if labels.name() == "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS" {
            labels = labels.with("__name__", Field::ThrottleReasons.series());
        }
        if labels.get("UUID").is_some() && seen.insert(labels.clone()) {
            out.push(Sample { labels, value: sample.value });
        }
    }
    out
}

/// How nvidia_gpu_exporter's unit becomes DCGM's.
#[derive(Clone, Copy)]
enum Unit {
    Same,
    /// Hz to MHz.
    Hertz,
    /// 0..1 to percent.
    Ratio,
    /// Bytes to MiB.
    Bytes,
}

impl Unit {
    fn convert(self, value: f64) -> f64 {
        match self {
            Unit::Same => value,
            Unit::Hertz => value / 1e6,
            // It divided a whole percentage by 100; that is undone without a trace of the division.
            Unit::Ratio => (value * 1e8).round() / 1e6,
            Unit::Bytes => value / 1_048_576.0,
        }
    }
}

/// After the exporter's prefix `nvidia_smi_`.
const NVIDIA_SMI: [(&str, Field, Unit); 17] = [
    ("clocks_current_sm_clock_hz", Field::SmClock, Unit::Hertz),
    ("clocks_current_memory_clock_hz", Field::MemClock, Unit::Hertz),
    ("clocks_max_sm_clock_hz", Field::MaxSmClock, Unit::Hertz),
    ("temperature_gpu", Field::Temperature, Unit::Same),
    ("temperature_memory", Field::MemoryTemperature, Unit::Same),
    ("power_draw_watts", Field::Power, Unit::Same),
    ("enforced_power_limit_watts", Field::PowerLimit, Unit::Same),
    ("utilization_gpu_ratio", Field::GpuUtilization, Unit::Ratio),
    ("utilization_memory_ratio", Field::MemoryUtilization, Unit::Ratio),
    ("memory_used_bytes", Field::MemoryUsed, Unit::Bytes),
    ("memory_free_bytes", Field::MemoryFree, Unit::Bytes),
    ("memory_total_bytes", Field::MemoryTotal, Unit::Bytes),
    ("fan_speed_ratio", Field::Fan, Unit::Ratio),
    ("ecc_errors_uncorrected_volatile_total", Field::EccUncorrected, Unit::Same),
    ("clocks_event_reasons_active", Field::ThrottleReasons, Unit::Same),
    ("clocks_throttle_reasons_active", Field::ThrottleReasons, Unit::Same),
    ("compute_apps", Field::Processes, Unit::Same),
];

/// One device of nvidia_gpu_exporter's page.
#[derive(Default)]
struct Told {
    tags: Tags,
    values: BTreeMap<Field, f64>,
    /// The mask that single reasons add up to.
    reasons: Option<u64>,
}

fn from_nvidia_smi(page: &[Sample]) -> Vec<Sample> {
    let mut devices: BTreeMap<&str, Told> = BTreeMap::new();
    for sample in page {
        let Some(name) = sample.labels.name().strip_prefix("nvidia_smi_") else { continue };
        let Some(uuid) = sample.labels.get("uuid") else { continue };
        let Told { tags, values, reasons } = devices.entry(uuid).or_default();
        // It strips `GPU-` from what nvidia-smi prints.
        tags.uuid = if uuid.starts_with("GPU-") { uuid.into() } else { format!("GPU-{uuid}") };
        if name == "gpu_info" {
            tags.name = sample.labels.get("name").unwrap_or_default().into();
            if let Some(index) = sample.labels.get("index") {
                tags.index = index.into();
            }
        } else if name == "index" {
            tags.index = format!("{}", sample.value);
        } else if let Some((_, field, unit)) = NVIDIA_SMI.iter().find(|(n, ..)| *n == name) {
            values.insert(*field, unit.convert(sample.value));
        } else if let Some(reason) =
            name.strip_prefix("clocks_event_reasons_").or_else(|| name.strip_prefix("clocks_throttle_reasons_"))
            && let Some(known) = REASONS.iter().find(|r| r.name == reason)
        {
            *reasons.get_or_insert(0) |= if sample.value == 0.0 { 0 } else { known.bit };
        }
    }
    let mut out = Vec::new();
    for Told { tags, mut values, reasons } in devices.into_values() {
        if let Some(mask) = reasons {
            values.entry(Field::ThrottleReasons).or_insert(mask as f64);
        }
        out.extend(values.into_iter().map(|(f, value)| Sample { labels: tags.labels(f.series()), value }));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scrape::exposition::parse;

    fn samples(text: &str) -> Vec<Sample> {
        parse(text.as_bytes(), None).unwrap()
    }

    #[test]
    fn one_device_however_many_pods_share_it() {
        let text = "\
DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"GPU-a\",modelName=\"L4\",Hostname=\"h\",pod=\"x\"} 60
DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"GPU-a\",modelName=\"L4\",Hostname=\"h\",pod=\"y\"} 60
DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu=\"0\",UUID=\"GPU-a\",modelName=\"L4\"} 4
go_goroutines 7
";
        let got = translate(&samples(text));
        let names: Vec<String> = got.iter().map(|s| s.labels.to_string()).collect();
        let labels = "{UUID=\"GPU-a\",gpu=\"0\",modelName=\"L4\"}";
        assert_eq!(
            names,
            [format!("DCGM_FI_DEV_GPU_TEMP{labels}"), format!("DCGM_FI_DEV_CLOCKS_EVENT_REASONS{labels}")]
        );
    }

    #[test]
    fn blanks_are_dropped_and_counted_and_a_vanished_device_is_told_once() {
        let mut intake = Intake::default();
        let both = "\
DCGM_FI_DEV_MEMORY_TEMP{gpu=\"0\",UUID=\"GPU-a\"} 9223372036854775794
DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"GPU-a\"} 60
DCGM_FI_DEV_GPU_TEMP{gpu=\"1\",UUID=\"GPU-b\"} 999
DCGM_FI_PROF_SM_ACTIVE{gpu=\"1\",UUID=\"GPU-b\"} 0.5
";
        let reading = intake.take(translate(&samples(both)));
        let of = |r: &GpuReading, name: &str, uuid: &str| {
            r.samples.iter().find(|s| s.labels.name() == name && s.labels.get("UUID") == Some(uuid)).map(|s| s.value)
        };
        assert_eq!(of(&reading, "DCGM_FI_DEV_MEMORY_TEMP", "GPU-a"), None);
        assert_eq!(of(&reading, "plimsoll_gpu_dropped_readings_total", "GPU-a"), Some(1.0));
        assert_eq!(of(&reading, "DCGM_FI_PROF_SM_ACTIVE", "GPU-b"), Some(0.5));
        assert_eq!(reading.notes.len(), 1, "999 °C is told, a blank is not");

        let one = "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"GPU-a\"} 61\n";
        let reading = intake.take(translate(&samples(one)));
        assert_eq!(reading.notes.len(), 1);
        assert_eq!(reading.notes[0].code, NoteCode::Lost);
        assert_eq!(of(&reading, "plimsoll_gpu_up", "GPU-b"), Some(0.0));
        assert!(intake.take(translate(&samples(one))).notes.is_empty());
    }

    #[test]
    fn single_reasons_make_the_mask_where_there_is_none() {
        let text = "\
nvidia_smi_clocks_throttle_reasons_sw_power_cap{uuid=\"df6e\"} 1
nvidia_smi_clocks_throttle_reasons_hw_thermal_slowdown{uuid=\"df6e\"} 1
nvidia_smi_clocks_throttle_reasons_gpu_idle{uuid=\"df6e\"} 0
nvidia_smi_gpu_info{uuid=\"df6e\",name=\"NVIDIA L4\",index=\"3\"} 1
";
        let got = translate(&samples(text));
        assert_eq!(got.len(), 1);
        assert_eq!(got[0].value, 68.0);
        assert_eq!(got[0].labels.get("UUID"), Some("GPU-df6e"));
        assert_eq!((got[0].labels.get("gpu"), got[0].labels.get("modelName")), (Some("3"), Some("NVIDIA L4")));
    }
}
