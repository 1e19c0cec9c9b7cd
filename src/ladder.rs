//! How many at once: the ladder decides each step from the steps before it, and never sleeps.
//!
//! Climb the list until a step fires; narrow between the highest clean and the lowest firing
//! level until they are within the tolerance; run each of the two once more. A step whose level
//! is not above its predecessor's starts drained, so that no queue of a higher step poisons it.
//!
//! All of it rests on one assumption: that more load does not put out an alert. It is what allows to
//! bisect, and what makes a level that could not be judged harmless where a level above it is clean.
//! A run can contradict it (a level fires below one that was clean); then the lowest firing level is the
//! answer, and nothing above it counts as clean.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::recording::StopReason;
use crate::model::step::{Load, Phase, StepPlan};
use crate::model::units;
use crate::model::verdict::StepOutcome;

mod levels;

pub use levels::{LevelsError, parse_levels};

/// `[ladder]` of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LadderSpec {
    /// Levels of a closed loop: a list, or `1..64x2` (doubling), `1..10+1` (adding).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Levels>,
    /// Levels of an open loop in requests per second, in the same forms; instead of `concurrency`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_rate: Option<Levels>,
    /// How long a step is measured; by default what the rules need.
    #[serde(with = "units::duration_opt", skip_serializing_if = "Option::is_none")]
    pub hold: Option<Duration>,
    /// How far a step is prolonged for rules that still lack observations; by default eight times `hold`.
    #[serde(with = "units::duration_opt", skip_serializing_if = "Option::is_none")]
    pub max_hold: Option<Duration>,
    /// Shortest warm-up of a step; twice the P99 request duration of the step before goes above it.
    #[serde(with = "units::duration")]
    pub warmup: Duration,
    /// Over how long the workers of a step are added.
    #[serde(with = "units::duration")]
    pub ramp: Duration,
    /// Longest wait for the server to come to rest before a step that starts drained.
    #[serde(with = "units::duration")]
    pub drain_timeout: Duration,
    /// Whether to look between the highest clean and the lowest firing level.
    pub narrow: bool,
    /// Whether to run the two bounds once more.
    pub confirm: bool,
    /// How near the bounds must come: this many streams, or `tolerance_ratio`, whichever is larger.
    pub tolerance: f64,
    /// The same as a share of the firing level.
    pub tolerance_ratio: f64,
    /// Longest whole run. Kept by planning: a step that would not fit is not begun, and none is cut.
    #[serde(with = "units::duration_opt", skip_serializing_if = "Option::is_none")]
    pub max_duration: Option<Duration>,
    /// How often the whole ladder is run.
    pub repeats: u32,
    /// Whether to post `/reset_prefix_cache` before the first step and before each that starts drained.
    pub prefix_reset: bool,
}

impl Default for LadderSpec {
    fn default() -> LadderSpec {
        LadderSpec {
            concurrency: None,
            request_rate: None,
            hold: None,
            max_hold: None,
            warmup: Duration::from_secs(15),
            ramp: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(120),
            narrow: true,
            confirm: true,
            tolerance: 1.0,
            tolerance_ratio: 0.05,
            max_duration: None,
            repeats: 1,
            prefix_reset: false,
        }
    }
}

/// Levels as a scenario may write them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number, a list such as [1, 2, 4], or a range such as \"1..64x2\"")]
pub enum Levels {
    /// `3`.
    One(f64),
    /// `[1, 2, 4]`.
    List(Vec<f64>),
    /// `"1..64x2"`, `"1..10+1"` or `"1,2,4"`.
    Text(String),
}

/// What the levels of a ladder are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// Streams at once.
    Closed,
    /// Requests per second.
    Open,
}

/// A ladder ready to climb: ascending levels, and how to end.
#[derive(Clone, Debug, PartialEq)]
pub struct Ladder {
    /// What the levels are.
    pub kind: Loop,
    /// Ascending, without repeats, at least one.
    pub levels: Vec<f64>,
    narrow: bool,
    confirm: bool,
    tolerance: f64,
    tolerance_ratio: f64,
    repeats: u32,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Past {
    /// The level it ran at.
    pub level: f64,
    /// Why it was run.
    pub phase: Phase,
    /// Which repeat it belonged to.
    pub repeat: u32,
    /// How it was judged.
    pub outcome: StepOutcome,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// Run this step.
    Run(StepPlan),
    /// Nothing more to find out.
    Done(StopReason),
}

impl Ladder {
    /// A ladder from its spec.
    ///
    /// # Errors
    /// If both or neither kind of level is given in a way that cannot be read, or a level is out of range.
    pub fn new(spec: &LadderSpec) -> Result<Ladder, LevelsError> {
        let (kind, levels) = match (&spec.concurrency, &spec.request_rate) {
            (Some(_), Some(_)) => return Err(LevelsError::Both),
            (Some(levels), None) => (Loop::Closed, parse_levels(levels, Loop::Closed)?),
            (None, Some(levels)) => (Loop::Open, parse_levels(levels, Loop::Open)?),
            (None, None) => (Loop::Closed, parse_levels(&Levels::Text("1..64x2".into()), Loop::Closed)?),
        };
        Ok(Ladder {
            kind,
            levels,
            narrow: spec.narrow,
            confirm: spec.confirm,
            tolerance: spec.tolerance,
            tolerance_ratio: spec.tolerance_ratio,
            repeats: spec.repeats.max(1),
        })
    }

    /// The next step, given all steps so far in the order in which they were run.
    pub fn next(&self, history: &[Past]) -> Next {
        let repeat = history.last().map_or(0, |p| p.repeat);
        let of_repeat: Vec<Past> = history.iter().filter(|p| p.repeat == repeat).copied().collect();
        match self.next_in_repeat(&of_repeat) {
            Ok((level, phase)) => Next::Run(self.plan(history, level, phase, repeat)),
            Err(_) if repeat + 1 < self.repeats => {
                Next::Run(self.plan(history, self.levels[0], Phase::Climb, repeat + 1))
            }
            Err(reason) => Next::Done(reason),
        }
    }

    /// Most steps that the ladder can still run after `history`: for a worst-case plan.
    pub fn most_steps(&self) -> usize {
        let climb = self.levels.len();
        let widest = self
            .levels
            .iter()
            .scan(0.0, |below, &level| {
                // The tolerance is a share of the firing level, which narrowing can bring down to `below`.
                let gap = (level - *below) / self.width_wanted(*below);
                *below = level;
                Some(gap)
            })
            .fold(1.0_f64, f64::max);
        let narrow = if self.narrow { widest.log2().ceil().max(0.0) as usize } else { 0 };
        (climb + narrow + if self.confirm { 2 } else { 0 }) * self.repeats as usize
    }

    fn next_in_repeat(&self, history: &[Past]) -> Result<(f64, Phase), StopReason> {
        let Some(firing) = lowest_firing(history) else {
            let climbed = history.iter().map(|p| p.level).fold(0.0, f64::max);
            let above = self.levels.iter().copied().find(|&l| l > climbed);
            return above.map(|l| (l, Phase::Climb)).ok_or(StopReason::EndOfLadder);
        };
        let clean = highest_clean_below(history, firing);
        if self.narrow
            && !history.iter().any(|p| p.phase == Phase::Confirm)
            && let Some(middle) = self.middle(history, firing)
        {
            return Ok((middle, Phase::Narrow));
        }
        if self.confirm {
            let seen = |level: f64| history.iter().any(|p| p.phase == Phase::Confirm && p.level == level);
            let confirms = history.iter().filter(|p| p.phase == Phase::Confirm).count();
            // The clean bound first: it is what users run at. Two confirmations at most, even when
            // one of them moves a bound: the answer is then an interval.
            if confirms < 2 {
                if let Some(clean) = clean.filter(|&c| !seen(c)) {
                    return Ok((clean, Phase::Confirm));
                }
                if !seen(firing) {
                    return Ok((firing, Phase::Confirm));
                }
            }
        }
        Err(StopReason::BoundaryFound)
    }

    /// A level strictly between the lowest firing level and the highest that did not fire below it,
    /// clean or not: where a step below could not be judged, the firing bound can still come down to
    /// it. `None` if they are near enough.
    fn middle(&self, history: &[Past], firing: f64) -> Option<f64> {
        let below = history.iter().map(|p| p.level).filter(|l| *l < firing).fold(0.0, f64::max);
        if firing - below <= self.width_wanted(firing) {
            return None;
        }
        let middle = match self.kind {
            Loop::Closed => ((below + firing) / 2.0).floor(),
            // Two decimals keep a rate legible; below that the tolerance decides.
            Loop::Open => ((below + firing) / 2.0 * 100.0).round() / 100.0,
        };
        (middle > below && middle < firing).then_some(middle)
    }

    fn width_wanted(&self, firing: f64) -> f64 {
        match self.kind {
            Loop::Closed => self.tolerance.max(self.tolerance_ratio * firing).max(1.0),
            Loop::Open => (self.tolerance_ratio * firing).max(0.01),
        }
    }

    fn plan(&self, history: &[Past], level: f64, phase: Phase, repeat: u32) -> StepPlan {
        StepPlan {
            step: u32::try_from(history.len()).unwrap_or(u32::MAX),
            load: match self.kind {
                Loop::Closed => Load::Concurrency(level as u32),
                Loop::Open => Load::Rate(level),
            },
            phase,
            repeat,
            drain_first: history.last().is_some_and(|p| level <= p.level),
        }
    }
}

/// The lowest level at which any step fired.
pub fn lowest_firing(history: &[Past]) -> Option<f64> {
    history.iter().filter(|p| p.outcome == StepOutcome::Firing).map(|p| p.level).min_by(f64::total_cmp)
}

/// The highest level below `firing` at which a step was clean, and none was not.
pub fn highest_clean_below(history: &[Past], firing: f64) -> Option<f64> {
    history
        .iter()
        .filter(|p| p.outcome == StepOutcome::Clean && p.level < firing)
        .map(|p| p.level)
        .max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ladder(levels: &str, tweak: impl FnOnce(&mut LadderSpec)) -> Ladder {
        let mut spec = LadderSpec { concurrency: Some(Levels::Text(levels.into())), ..LadderSpec::default() };
        tweak(&mut spec);
        Ladder::new(&spec).unwrap()
    }

    /// Climbs against a server that fires from `limit` on; gives each step as `level` and phase letter.
    fn climb(ladder: &Ladder, judge: impl Fn(f64, usize) -> StepOutcome) -> (String, StopReason) {
        let mut history = Vec::new();
        let mut out = Vec::new();
        for _ in 0..100 {
            match ladder.next(&history) {
                Next::Done(reason) => return (out.join(" "), reason),
                Next::Run(plan) => {
                    let level = plan.load.level();
                    out.push(format!(
                        "{}{}{}",
                        level,
                        match plan.phase {
                            Phase::Climb => "",
                            Phase::Narrow => "n",
                            Phase::Confirm => "c",
                        },
                        if plan.drain_first { "'" } else { "" }
                    ));
                    let outcome = judge(level, history.len());
                    history.push(Past { level, phase: plan.phase, repeat: plan.repeat, outcome });
                }
            }
        }
        panic!("the ladder does not end: {out:?}");
    }

    fn fires_from(limit: f64) -> impl Fn(f64, usize) -> StepOutcome {
        move |level, _| if level >= limit { StepOutcome::Firing } else { StepOutcome::Clean }
    }

    #[test]
    fn climbs_narrows_and_confirms() {
        let cases: [(&str, f64, &str, StopReason); 5] = [
            ("1..64x2", 6.0, "1 2 4 8 6n' 5n' 5c' 6c", StopReason::BoundaryFound),
            ("1..64x2", 8.0, "1 2 4 8 6n' 7n 7c' 8c", StopReason::BoundaryFound),
            ("1..8x2", 100.0, "1 2 4 8", StopReason::EndOfLadder),
            ("1..8x2", 1.0, "1 1c'", StopReason::BoundaryFound),
            ("8,16", 1.0, "8 4n' 2n' 1n' 1c'", StopReason::BoundaryFound),
        ];
        for (levels, limit, steps, reason) in cases {
            let got = climb(&ladder(levels, |_| {}), fires_from(limit));
            assert_eq!(got, (steps.to_owned(), reason), "{levels} firing from {limit}");
        }
    }

    #[test]
    fn an_inconclusive_middle_does_not_loop() {
        let judge = |level: f64, _| match level {
            l if l >= 8.0 => StepOutcome::Firing,
            l if l <= 4.0 => StepOutcome::Clean,
            _ => StepOutcome::Inconclusive,
        };
        let (steps, reason) = climb(&ladder("1..64x2", |_| {}), judge);
        assert_eq!((steps.as_str(), reason), ("1 2 4 8 6n' 7n 4c' 8c", StopReason::BoundaryFound));
    }

    #[test]
    fn a_confirmation_that_disagrees_ends_the_ladder_too() {
        // The clean bound fires when it is run again.
        let judge = |level: f64, nth: usize| {
            if level >= 6.0 || nth >= 5 { StepOutcome::Firing } else { StepOutcome::Clean }
        };
        let (steps, reason) = climb(&ladder("1..64x2", |_| {}), judge);
        assert_eq!(reason, StopReason::BoundaryFound);
        assert!(steps.starts_with("1 2 4 8 6n'"), "{steps}");
    }

    #[test]
    fn repeats_start_again_from_the_bottom_drained() {
        let got = climb(&ladder("1..4x2", |s| s.repeats = 2), fires_from(100.0));
        assert_eq!(got.0, "1 2 4 1' 2 4");
    }

    #[test]
    fn wide_levels_stop_within_five_percent() {
        let (steps, _) = climb(&ladder("64..1024x2", |s| s.confirm = false), fires_from(700.0));
        assert_eq!(steps, "64 128 256 512 1024 768n' 640n' 704n 672n'");
    }

    #[test]
    fn the_plan_is_no_shorter_than_any_climb() {
        for levels in ["1..64x2", "1..10+1", "5", "64..1024x2"] {
            let ladder = ladder(levels, |_| {});
            for limit in 1..1100 {
                let (steps, _) = climb(&ladder, fires_from(f64::from(limit)));
                let count = steps.split(' ').count();
                assert!(count <= ladder.most_steps(), "{levels} from {limit}: {count} > {}", ladder.most_steps());
            }
        }
    }
}
