//! How long a step must be measured before an alert can be judged.

use std::time::Duration;

use super::error::RuleError;
use super::file::{Alert, RuleSet};
use super::rewrite::scaled;
use super::selectors::{absolute_window, reads};

/// How often production looks, and how often we did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Production's scrape interval; 15 s by default.
    pub scrape: Duration,
    /// Production's evaluation interval; 15 s by default.
    pub evaluation: Duration,
    /// Spacing of the recorded scrapes: the resolution of the phases. Not scaled.
    pub poll: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        let fifteen = Duration::from_secs(15);
        Timing { scrape: fifteen, evaluation: fifteen, poll: Duration::from_secs(1) }
    }
}

impl Timing {
    /// Production's intervals times `factor`; what we recorded stays as it is.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Timing {
        let scrape = scaled(self.scrape, factor).max(Duration::from_millis(1));
        Timing {
            scrape,
            evaluation: scaled(self.evaluation, factor).max(Duration::from_millis(1)),
            poll: self.poll.clamp(Duration::from_millis(1), scrape),
        }
    }

    /// Starts of the production grid that the recording can tell apart, ms after the view's start.
    pub(crate) fn phases(&self) -> impl Iterator<Item = i64> + use<> {
        let (step, end) = (self.poll_ms(), self.scrape_ms());
        (0..end).step_by(usize::try_from(step).unwrap_or(1).max(1))
    }

    pub(crate) fn scrape_ms(&self) -> i64 {
        whole_ms(self.scrape)
    }

    pub(crate) fn evaluation_ms(&self) -> i64 {
        whole_ms(self.evaluation)
    }

    pub(crate) fn poll_ms(&self) -> i64 {
        whole_ms(self.poll)
    }

    /// The shortest measurement in which `alert` (already scaled, as these intervals) can fire at
    /// every phase: the wait for the first scrape and the first evaluation, a second scrape if it
    /// reads a range, its `for`, and its whole window where the window's length scales its value
    /// (a rate held against a number other than zero).
    ///
    /// A longer window of a quantile or a ratio does not count: the view begins with the step, so
    /// these read the step's own samples from the second scrape on.
    pub fn length_of(&self, alert: &Alert) -> Duration {
        let ranged = reads(&alert.expr).iter().any(|r| r.range_ms.is_some());
        let window = absolute_window(&alert.expr).unwrap_or_default();
        let fill = if ranged { window.max(self.scrape) } else { Duration::ZERO };
        self.scrape.max(self.evaluation) + fill + alert.hold + self.poll
    }
}

fn whole_ms(d: Duration) -> i64 {
    i64::try_from(d.as_millis()).unwrap_or(i64::MAX).max(1)
}

impl RuleSet {
    /// The shortest measurement of a step in which every alert can fire at every phase, and the
    /// rule that needs it; `None` without alerts. `timing` is not yet scaled.
    pub fn step_length(&self, timing: Timing) -> Option<(Duration, &str)> {
        let timing = timing.scaled(self.time_scale);
        self.alerts().map(|a| (timing.length_of(a), a.name.as_str())).max_by_key(|(d, _)| *d)
    }

    /// Checks that every window of an alert holds at least 4 scrapes, of production's grid and of
    /// ours. `timing` is not yet scaled.
    ///
    /// # Errors
    /// Names the rule whose window is too short. Without a time scale the rule file is taken as
    /// it is, since production would run it so.
    pub fn check_windows(&self, timing: Timing) -> Result<(), RuleError> {
        if self.time_scale >= 1.0 {
            return Ok(());
        }
        for alert in self.alerts() {
            let windows = reads(&alert.expr).into_iter().filter_map(|r| r.range_ms);
            let Some(shortest) = windows.min() else { continue };
            // Production's own grid is scaled like the window, so only our polls can be too few.
            let every = timing.poll;
            if (shortest as f64) < 4.0 * every.as_secs_f64() * 1e3 {
                return Err(RuleError::Window {
                    rule: alert.name.clone(),
                    window_s: shortest as f64 / 1e3,
                    every_s: every.as_secs_f64(),
                });
            }
        }
        Ok(())
    }

    /// The shortest `for` of any alert that has one: a request longer than that makes scaled
    /// alerts meaningless. `None` if no alert waits.
    pub fn shortest_for(&self) -> Option<Duration> {
        self.alerts().map(|a| a.hold).filter(|d| !d.is_zero()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::recording::RuleFile;
    use crate::rules::Limits;

    fn set(scale: f64) -> RuleSet {
        let text = "
groups:
  - name: g
    rules:
      - {alert: Gauge, expr: x > 0, for: 1m}
      - {alert: Quantile, expr: 'histogram_quantile(0.99, sum by (le) (rate(t_bucket[5m]))) > 1'}
      - {alert: Rate, expr: 'rate(y_total[2m]) > 3'}
      - {alert: Zero, expr: 'rate(y_total[1m]) > 0'}
";
        RuleSet::load(&[RuleFile { name: "x.yml".into(), text: text.into() }], &Limits::default(), scale).unwrap()
    }

    #[test]
    fn each_rule_needs_its_time() {
        let timing = Timing::default();
        let s = set(1.0);
        for (name, seconds) in [("Gauge", 76), ("Quantile", 31), ("Rate", 136), ("Zero", 31)] {
            assert_eq!(timing.length_of(s.find(name).unwrap()).as_secs(), seconds, "{name}");
        }
        assert_eq!(s.step_length(timing).unwrap().1, "Rate");
    }

    #[test]
    fn a_scale_that_leaves_too_few_scrapes_is_refused() {
        let timing = Timing::default();
        assert!(set(1.0).check_windows(timing).is_ok());
        assert!(set(0.1).check_windows(timing).is_ok());
        assert!(matches!(set(0.05).check_windows(timing), Err(RuleError::Window { rule, .. }) if rule == "Zero"));
        assert_eq!(set(0.1).shortest_for(), Some(Duration::from_secs(6)));
    }
}
