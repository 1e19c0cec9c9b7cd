//! Reading pages of metrics.
//!
//! [`exposition`] turns the bytes of a page into samples, as Prometheus would; [`fetch`] gets
//! one page within limits of time and size; [`poller`] does so on a grid and sends every
//! reading, and every failure, as an event. A failed scrape is an event, never silence.

pub mod exposition;
pub mod fetch;
pub mod poller;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use fetch::Page;
pub use poller::{Pages, Poller};

/// How the metrics page is read: the scenario's `[metrics]` table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScrapeSpec {
    /// Time between two readings, on a grid that begins with the first one. Shrunk by `time_scale`.
    #[serde(with = "crate::model::units::duration")]
    pub interval: Duration,
    /// A reading that takes longer has failed. Production's 10 s, whatever the interval: a page
    /// that is merely slow delays the next reading instead. Not shrunk by `time_scale`.
    #[serde(with = "crate::model::units::duration")]
    pub timeout: Duration,
    /// A page longer than this, after decompression, has failed; bytes.
    pub max_bytes: usize,
}

impl Default for ScrapeSpec {
    fn default() -> ScrapeSpec {
        ScrapeSpec { interval: Duration::from_secs(1), timeout: Duration::from_secs(10), max_bytes: 16 * 1024 * 1024 }
    }
}

impl ScrapeSpec {
    /// The same with its interval multiplied by `time_scale`, at least one millisecond.
    #[must_use]
    pub fn scaled(&self, time_scale: f64) -> ScrapeSpec {
        let interval = self.interval.mul_f64(time_scale.max(0.0)).max(Duration::from_millis(1));
        ScrapeSpec { interval, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_reads_durations_and_refuses_unknown_keys() {
        let spec: ScrapeSpec = toml::from_str("interval = \"500ms\"").unwrap();
        assert_eq!(spec.interval, Duration::from_millis(500));
        assert_eq!(spec.timeout, Duration::from_secs(10));
        assert_eq!(spec.scaled(0.1).interval, Duration::from_millis(50));
        assert!(toml::from_str::<ScrapeSpec>("every = \"1s\"").is_err());
    }
}
