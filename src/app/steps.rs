//! How long the parts of a step take, and how long a whole ladder can take at worst.

use std::time::Duration;

use crate::ladder::{Ladder, LadderSpec, Past, lowest_firing};
use crate::model::step::StepPlan;
use crate::model::units::prometheus_duration;
use crate::model::verdict::StepVerdict;
use crate::rules::ENOUGH;

/// How many holds a step may take by default to get its observations: one stream with requests of
/// five seconds gets its hundred in eight and a half minutes, and every level above it sooner.
const PATIENCE: u32 = 8;

/// How long a ladder may still take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// If no further alert fires and every step gets its observations at once.
    pub least: Duration,
    /// At worst.
    pub most: Duration,
}

/// Lengths that hold for every step of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepLengths {
    /// Over how long workers are added.
    pub ramp: Duration,
    /// Shortest warm-up, from the last added worker on.
    pub warmup: Duration,
    /// How long is measured.
    pub hold: Duration,
    /// How long is measured at most, while rules still lack observations.
    pub max_hold: Duration,
    /// Longest wait for the server to come to rest.
    pub drain: Duration,
}

impl StepLengths {
    /// From the scenario and the shortest hold that its rules need.
    ///
    /// # Errors
    /// If the scenario's hold is shorter than its rules need: such a step could not fire.
    pub fn new(spec: &LadderSpec, needed: Duration) -> Result<StepLengths, String> {
        let hold = spec.hold.unwrap_or(needed);
        if hold < needed {
            return Err(format!(
                "ladder.hold is {}, but the rules need {} to fire within a step",
                prometheus_duration(hold),
                prometheus_duration(needed)
            ));
        }
        let max_hold = spec.max_hold.unwrap_or(hold * PATIENCE);
        if max_hold < hold {
            return Err(format!(
                "ladder.max_hold is {}, expected at least the hold of {}",
                prometheus_duration(max_hold),
                prometheus_duration(hold)
            ));
        }
        Ok(StepLengths { ramp: spec.ramp, warmup: spec.warmup, hold, max_hold, drain: spec.drain_timeout })
    }

    /// The warm-up of a step: at least twice the P99 request duration of the step before, so that
    /// what was in flight then, and the burst that the new workers begin with, is over.
    pub fn warmup_after(&self, previous: Option<&StepVerdict>) -> Duration {
        let p99 = previous.and_then(|v| v.client.e2e_s.p99).unwrap_or(0.0);
        self.warmup.max(Duration::try_from_secs_f64(2.0 * p99).unwrap_or(Duration::ZERO))
    }

    /// What a step needs to be whole: what `max_duration` must leave room for. It is prolonged for
    /// observations only as far as there is room.
    pub fn whole(&self, plan: &StepPlan, warmup: Duration) -> Duration {
        self.ramp + warmup + self.hold + if plan.drain_first { self.drain } else { Duration::ZERO }
    }

    /// The longest that a whole ladder can take, while no request outlasts half the warm-up.
    pub fn worst_ladder(&self, ladder: &Ladder) -> Duration {
        let steps = u32::try_from(ladder.most_steps()).unwrap_or(u32::MAX);
        let climbing = u32::try_from(ladder.levels.len()).unwrap_or(u32::MAX);
        (self.ramp + self.warmup + self.max_hold) * steps + self.drain * steps.saturating_sub(climbing)
    }

    /// When a step, measured for `elapsed` so far, will have the observations that it still lacks, counted
    /// from the begin of its measurement; `None` if `longest` will not bring them, so that it need
    /// not be prolonged in vain. A pace a quarter better than so far counts as within reach.
    pub fn enough_at(elapsed: Duration, missing: u64, longest: Duration) -> Option<Duration> {
        const BETTER: f64 = 1.25;
        let seen = ENOUGH - missing as f64;
        let whole = (elapsed.as_secs_f64() * ENOUGH / seen).max(0.0);
        (seen > 0.0 && whole <= longest.as_secs_f64() * BETTER).then(|| Duration::from_secs_f64(whole).min(longest))
    }

    /// What may come after a step at `level` that goes on, `history` being the steps before it.
    pub fn rest(&self, ladder: &Ladder, history: &[Past], level: f64) -> Rest {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let to_come = match lowest_firing(history) {
            None => ladder.levels.iter().filter(|l| **l > level).count(),
            Some(_) => 0,
        };
        let at_most = ladder.most_steps().saturating_sub(history.len() + 1);
        Rest {
            least: (self.ramp + self.warmup + self.hold) * count(to_come),
            most: (self.drain + self.ramp + self.warmup + self.max_hold) * count(at_most),
        }
    }

    /// What a step takes that needs `observed` for its observations, if it passes.
    pub fn likely(&self, observed: Duration) -> Duration {
        let measured = if observed > self.max_hold { self.hold } else { observed.max(self.hold) };
        self.ramp + self.warmup + measured
    }

    /// What a ladder takes when every step gets its observations within the hold, and all pass.
    pub fn best_ladder(&self, ladder: &Ladder) -> Duration {
        let climbing = u32::try_from(ladder.levels.len()).unwrap_or(u32::MAX);
        (self.ramp + self.warmup + self.hold) * climbing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_step_is_prolonged_only_where_that_helps() {
        let enough = |missing, longest| StepLengths::enough_at(100 * S, missing, longest * S);
        // 50 in 100 s: the other 50 in another 100 s.
        assert_eq!(enough(50, 800), Some(200 * S));
        assert_eq!(enough(90, 800), Some(800 * S));
        assert_eq!(enough(95, 800), None);
        // Nothing came at all.
        assert_eq!(enough(100, 800), None);
    }

    #[test]
    fn what_is_left_shrinks_with_every_step() {
        use crate::model::step::Phase;
        use crate::model::verdict::StepOutcome;
        let spec =
            LadderSpec { ramp: S, warmup: S, hold: Some(8 * S), max_hold: Some(18 * S), ..LadderSpec::default() };
        let spec =
            LadderSpec { concurrency: Some(crate::ladder::Levels::List(vec![1.0, 2.0])), drain_timeout: S, ..spec };
        let (lengths, ladder) = (StepLengths::new(&spec, 8 * S).unwrap(), Ladder::new(&spec).unwrap());
        // Two levels to climb, one apart, and both once more: four steps at most.
        assert_eq!(lengths.rest(&ladder, &[], 1.0), Rest { least: 10 * S, most: 63 * S });
        let past = |outcome| [Past { level: 1.0, phase: Phase::Climb, repeat: 0, outcome }];
        assert_eq!(lengths.rest(&ladder, &past(StepOutcome::Clean), 2.0), Rest { least: Duration::ZERO, most: 42 * S });
        assert_eq!(lengths.rest(&ladder, &past(StepOutcome::Firing), 1.0).least, Duration::ZERO);
    }

    #[test]
    fn a_hold_too_short_to_fire_is_refused_with_the_length_needed() {
        let spec = LadderSpec { hold: Some(30 * S), ..LadderSpec::default() };
        let error = StepLengths::new(&spec, 90 * S).unwrap_err();
        assert!(error.contains("30s") && error.contains("1m30s"), "{error}");
        assert_eq!(StepLengths::new(&LadderSpec::default(), 90 * S).unwrap().max_hold, 720 * S);
        let spec = LadderSpec { max_hold: Some(S), ..LadderSpec::default() };
        assert!(StepLengths::new(&spec, 90 * S).is_err());
    }
}
