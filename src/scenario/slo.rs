//! `[slo]`: the targets, which become the limits of the rules.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::units;
use crate::model::verdict::Slo;

/// The targets of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SloSpec {
    /// Limit of the 99th percentile of the time to first token.
    #[serde(with = "units::duration")]
    pub ttft_p99: Duration,
    /// Limit of the 99th percentile of the inter-token latency.
    #[serde(with = "units::duration")]
    pub itl_p99: Duration,
    /// Highest share of failed requests, 0 to 1.
    pub error_rate: f64,
}

impl Default for SloSpec {
    fn default() -> SloSpec {
        SloSpec { ttft_p99: Duration::from_secs(1), itl_p99: Duration::from_millis(100), error_rate: 0.01 }
    }
}

impl SloSpec {
    /// Takes over `ttft:p99:1s,itl:p99:100ms,error_rate:1%`.
    ///
    /// # Errors
    /// Names the part that cannot be read, and the forms allowed.
    pub fn set(&mut self, text: &str) -> Result<(), String> {
        for part in text.split(',').map(str::trim) {
            let bad =
                || format!("cannot read the target `{part}`, expected ttft:p99:TIME, itl:p99:TIME or error_rate:SHARE");
            match part.split(':').collect::<Vec<_>>()[..] {
                ["ttft", "p99", time] => self.ttft_p99 = units::parse_duration(time)?,
                ["itl", "p99", time] => self.itl_p99 = units::parse_duration(time)?,
                ["error_rate", share] => {
                    let (number, by) = share.strip_suffix('%').map_or((share, 1.0), |n| (n, 100.0));
                    self.error_rate = number.trim().parse::<f64>().map_err(|_| bad())? / by;
                }
                _ => return Err(bad()),
            }
        }
        self.check()
    }

    /// As the verdict states them.
    pub fn targets(&self) -> Slo {
        Slo {
            ttft_p99_s: self.ttft_p99.as_secs_f64(),
            itl_p99_s: self.itl_p99.as_secs_f64(),
            error_rate_ratio: self.error_rate,
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        for (name, target) in [("ttft_p99", self.ttft_p99), ("itl_p99", self.itl_p99)] {
            if target.is_zero() {
                return Err(format!("slo.{name} is 0s, expected a time above 0"));
            }
        }
        if !(0.0..1.0).contains(&self.error_rate) {
            return Err(format!("slo.error_rate is {}, expected a share from 0 to below 1", self.error_rate));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_read_from_the_command_line() {
        let mut slo = SloSpec::default();
        slo.set("ttft:p99:750ms, itl:p99:50ms,error_rate:0.5%").unwrap();
        assert_eq!(slo.targets(), Slo { ttft_p99_s: 0.75, itl_p99_s: 0.05, error_rate_ratio: 0.005 });
        for bad in ["ttft:p95:1s", "ttft", "itl:p99:fast", "error_rate:150%", "ttft:p99:0s"] {
            assert!(SloSpec::default().set(bad).is_err(), "{bad}");
        }
    }
}
