//! What a scenario says about the GPU: `[gpu]`, and the command line's `--gpu`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model::units;

/// The section `[gpu]` of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GpuSpec {
    /// Where readings come from.
    pub source: Source,
    /// Which devices, each as an index, a UUID or its begin, a PCI bus id, or a MIG device. Empty:
    /// those that `CUDA_VISIBLE_DEVICES` shows, or all.
    pub devices: Vec<String>,
    /// Whether a run without GPU readings is refused.
    pub required: bool,
    /// Time between two rounds, 200 ms to 1 min; below that nothing new comes.
    #[serde(with = "crate::model::units::duration")]
    pub interval: Duration,
    /// What to add to the timestamps of an `nvidia-smi` log to get this machine's UTC time. `None`:
    /// whole quarters of an hour, told from the first line that is written while we look.
    pub smi_clock_offset: Option<ClockOffset>,
    /// The NVML library, where it is not `libnvidia-ml.so.1` on the loader's path.
    pub nvml_library: Option<PathBuf>,
}

impl Default for GpuSpec {
    fn default() -> GpuSpec {
        GpuSpec {
            source: Source::Auto,
            devices: Vec::new(),
            required: false,
            interval: Duration::from_secs(1),
            smi_clock_offset: None,
            nvml_library: None,
        }
    }
}

impl GpuSpec {
    /// Fastest and slowest polling that makes sense.
    pub const INTERVALS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(60)];

    /// A spec that reads `source` and is otherwise as by default: what `--gpu SOURCE` means without a file.
    pub fn of(source: Source) -> GpuSpec {
        GpuSpec { source, ..GpuSpec::default() }
    }

    /// The same with its interval multiplied by `time_scale`, at least one millisecond.
    #[must_use]
    pub fn scaled(&self, time_scale: f64) -> GpuSpec {
        let interval = self.interval.mul_f64(time_scale.max(0.0)).max(Duration::from_millis(1));
        GpuSpec { interval, ..self.clone() }
    }

    /// Checks what the types leave open; before [`GpuSpec::scaled`].
    ///
    /// # Errors
    /// Says which key, the value met, and the values allowed.
    pub fn check(&self) -> Result<(), String> {
        let [low, high] = GpuSpec::INTERVALS;
        if self.interval < low || self.interval > high {
            return Err(format!(
                "gpu.interval is {}, expected {} to {}",
                units::prometheus_duration(self.interval),
                units::prometheus_duration(low),
                units::prometheus_duration(high)
            ));
        }
        for device in &self.devices {
            super::select::Pick::parse(device).map_err(|e| e.to_string())?;
        }
        if self.required && self.source == Source::Off {
            return Err("gpu.required is true while gpu.source is `off`".into());
        }
        Ok(())
    }
}

/// Where GPU readings come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// NVML if there is one, else nothing.
    #[default]
    Auto,
    /// The driver's library on this machine.
    Nvml,
    /// The page of a dcgm-exporter or nvidia_gpu_exporter, by its URL.
    Dcgm(String),
    /// The CSV log of `nvidia-smi`, by its path.
    Smi(PathBuf),
    /// Nothing.
    Off,
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Source, String> {
        let bad = |why: &str| format!("gpu source is `{text}`, expected auto, nvml, dcgm=URL, smi=FILE or off{why}");
        match text.split_once('=') {
            Some(("dcgm", url)) if url.starts_with("http://") || url.starts_with("https://") => {
                let host = url.split_once("://").map_or("", |(_, rest)| rest.split('/').next().unwrap_or_default());
                if host.contains('@') {
                    // The source is part of the recording, where no secret may be.
                    return Err("gpu source dcgm=URL has a user name or password in it, expected a URL without".into());
                }
                Ok(Source::Dcgm(url.into()))
            }
            Some(("dcgm", _)) => Err(bad(", with a URL that begins with http:// or https://")),
            Some(("smi", file)) if !file.is_empty() => Ok(Source::Smi(file.into())),
            None => match text {
                "auto" => Ok(Source::Auto),
                "nvml" => Ok(Source::Nvml),
                "off" => Ok(Source::Off),
                _ => Err(bad("")),
            },
            Some(_) => Err(bad("")),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Auto => f.write_str("auto"),
            Source::Nvml => f.write_str("nvml"),
            Source::Dcgm(url) => write!(f, "dcgm={url}"),
            Source::Smi(file) => write!(f, "smi={}", file.display()),
            Source::Off => f.write_str("off"),
        }
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Source, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A signed shift of a clock, milliseconds; written `-2h`, `+350ms`, `0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffset(pub i64);

impl FromStr for ClockOffset {
    type Err = String;

    fn from_str(text: &str) -> Result<ClockOffset, String> {
        let (sign, size) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        let ms = i64::try_from(units::parse_duration(size)?.as_millis())
            .map_err(|_| format!("clock offset `{text}` is longer than the age of the universe"))?;
        Ok(ClockOffset(sign * ms))
    }
}

impl fmt::Display for ClockOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "+" };
        write!(f, "{sign}{}", units::prometheus_duration(Duration::from_millis(self.0.unsigned_abs())))
    }
}

impl Serialize for ClockOffset {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ClockOffset {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<ClockOffset, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_read_and_print() {
        for text in ["auto", "nvml", "off", "dcgm=http://10.0.0.7:9400/metrics", "smi=logs/gpu.csv"] {
            assert_eq!(text.parse::<Source>().unwrap().to_string(), text);
        }
        for bad in ["", "dcgm", "dcgm=", "dcgm=10.0.0.7:9400", "smi=", "smi", "rocm", "nvml=1"] {
            let e = bad.parse::<Source>().unwrap_err();
            assert!(e.contains("expected auto, nvml, dcgm=URL, smi=FILE or off"), "{bad}: {e}");
        }
    }

    #[test]
    fn a_password_is_refused_and_not_repeated() {
        let e = "dcgm=http://ops:hunter2@10.0.0.7:9400/metrics".parse::<Source>().unwrap_err();
        assert!(e.contains("without") && !e.contains("hunter2"), "{e}");
        assert!("dcgm=http://10.0.0.7:9400/metrics@1".parse::<Source>().is_ok());
    }

    #[test]
    fn a_section_round_trips_and_refuses_what_it_does_not_know() {
        let text = "source = \"dcgm=http://127.0.0.1:9400/metrics\"\ndevices = [\"0\", \"GPU-4f\"]\nrequired = true\ninterval = \"2s\"\nsmi_clock_offset = \"-2h\"\n";
        let spec: GpuSpec = toml::from_str(text).unwrap();
        assert_eq!(spec.smi_clock_offset, Some(ClockOffset(-7_200_000)));
        assert_eq!(spec.interval, Duration::from_secs(2));
        let back: GpuSpec = toml::from_str(&toml::to_string(&spec).unwrap()).unwrap();
        assert_eq!(back, spec);
        assert_eq!(toml::from_str::<GpuSpec>("").unwrap(), GpuSpec::default());
        let default: GpuSpec = toml::from_str(&toml::to_string(&GpuSpec::default()).unwrap()).unwrap();
        assert_eq!(default, GpuSpec::default());
        assert!(toml::from_str::<GpuSpec>("sauce = \"nvml\"").is_err());
        assert!(toml::from_str::<GpuSpec>("source = \"rocm\"").is_err());
    }

    #[test]
    fn nonsense_is_refused_with_its_name() {
        let fast = GpuSpec { interval: Duration::from_millis(20), ..GpuSpec::default() };
        assert_eq!(fast.check().unwrap_err(), "gpu.interval is 20ms, expected 200ms to 1m");
        let nobody = GpuSpec { devices: vec!["the big one".into()], ..GpuSpec::default() };
        assert!(nobody.check().unwrap_err().contains("`the big one`"));
        let torn = GpuSpec { required: true, source: Source::Off, ..GpuSpec::default() };
        assert!(torn.check().is_err());
        assert!(GpuSpec::default().check().is_ok());
        assert_eq!(GpuSpec::default().scaled(0.1).interval, Duration::from_millis(100));
    }
}
