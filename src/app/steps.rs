//! How long the parts of a step take, and how long a whole ladder can take at worst.

use std::time::Duration;

use crate::ladder::{Ladder, LadderSpec};
use crate::model::step::StepPlan;
use crate::model::units::prometheus_duration;
use crate::model::verdict::StepVerdict;

/// How many holds a step may take by default to get its observations: one stream with requests of
/// five seconds gets its hundred in eight and a half minutes, and every level above it sooner.
const PATIENCE: u32 = 8;

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
    fn a_hold_too_short_to_fire_is_refused_with_the_length_needed() {
        let spec = LadderSpec { hold: Some(30 * S), ..LadderSpec::default() };
        let error = StepLengths::new(&spec, 90 * S).unwrap_err();
        assert!(error.contains("30s") && error.contains("1m30s"), "{error}");
        assert_eq!(StepLengths::new(&LadderSpec::default(), 90 * S).unwrap().max_hold, 720 * S);
        let spec = LadderSpec { max_hold: Some(S), ..LadderSpec::default() };
        assert!(StepLengths::new(&spec, 90 * S).is_err());
    }
}
