//! The first-alert concurrency of two runs, compared as what it is: an interval.

use std::collections::BTreeSet;

use crate::model::comparison::{Judgement, LimitChange};
use crate::model::step::CutShort;
use crate::model::verdict::{StepOutcome, Verdict};

/// Highest clean and lowest firing level of a run. Where repeats disagree, the interval that holds them all.
pub fn bounds(v: &Verdict) -> [Option<f64>; 2] {
    let repeats: BTreeSet<u32> = v.steps.iter().map(|s| s.repeat).collect();
    if repeats.len() < 2 {
        return [v.highest_clean_concurrency, v.lowest_firing_concurrency];
    }
    let mut out: Option<[Option<f64>; 2]> = None;
    for repeat in repeats {
        let of = || v.steps.iter().filter(move |s| s.repeat == repeat && s.cut_short != Some(CutShort::TargetLost));
        let levels = |outcome| of().filter(move |s| s.outcome == outcome).map(|s| s.concurrency);
        let firing = levels(StepOutcome::Firing).min_by(f64::total_cmp);
        let below = firing.unwrap_or(f64::INFINITY);
        let clean = levels(StepOutcome::Clean).filter(|l| *l < below).max_by(f64::total_cmp);
        out = Some(match out {
            None => [clean, firing],
            // Unknown takes in everything: no clean level is below all, no firing one above all.
            Some([c, f]) => [c.zip(clean).map(|(a, b)| a.min(b)), f.zip(firing).map(|(a, b)| a.max(b))],
        });
    }
    out.unwrap_or([None, None])
}

/// What can be said of the limit. It moved if the two intervals part. Where they only touch, a level that was clean
/// fires now or the other way round: that counts if the level was run at least twice in either run, and came out the
/// same each time.
pub fn compare(base: &Verdict, new: &Verdict) -> LimitChange {
    let (b, n) = (bounds(base), bounds(new));
    let judgement = if b == n && b != [None, None] {
        Judgement::Same
    } else if parted(base, n[1], new, b[0]) {
        Judgement::Worse
    } else if parted(new, b[1], base, n[0]) {
        Judgement::Better
    } else {
        Judgement::CannotTell
    };
    LimitChange { base: b, new: n, judgement }
}

/// Whether `low` fires in a run at or below the level `high` that is clean in the other.
fn parted(clean_in: &Verdict, low: Option<f64>, firing_in: &Verdict, high: Option<f64>) -> bool {
    match (low, high) {
        (Some(l), Some(h)) if l < h => true,
        (Some(l), Some(h)) if l == h => {
            settled(clean_in, l, StepOutcome::Clean) && settled(firing_in, l, StepOutcome::Firing)
        }
        _ => false,
    }
}

fn settled(v: &Verdict, level: f64, outcome: StepOutcome) -> bool {
    let mut at = v.steps.iter().filter(|s| s.concurrency == level && s.cut_short.is_none());
    at.clone().count() >= 2 && at.all(|s| s.outcome == outcome)
}
