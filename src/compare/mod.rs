//! Holds one verdict against another: what got better or worse by more than noise, and what nobody can tell.
//!
//! A pure function of two verdicts. What it needs of the recordings stands in the verdict: each
//! statistic of a step with its standard error ([`Noise`](crate::model::verdict::Noise)), found by
//! bootstrap over blocks of time when the run was judged. So a baseline is one file of some kilobytes.
//!
//! For each metric and level the logarithm of new over base is held against its standard error. Three
//! parts make it up: the noise within the steps of either run; where a level was run several times
//! (repeats, confirmations), the spread between those; and where runs were not repeated, a floor for what no single
//! run can see ([`Settings::run_noise`]). A change counts if it is sure, with the number of
//! comparisons accounted for by Holm's method, and large enough to matter.
//!
//! Sources: Holm, "A simple sequentially rejective multiple test procedure", 1979; Welch–Satterthwaite for the degrees of
//! freedom of a sum of variances; Agresti and Caffo, "Simple and effective confidence intervals for proportions", 2000.

mod alike;
mod effect;
mod limit;
mod statistics;

use crate::model::comparison::{Change, Comparison, Judgement, Metric};
use crate::model::verdict::{ServerStats, StepVerdict, Verdict};

pub use alike::differences;
pub use effect::Effect;
pub use limit::bounds;
pub use statistics::critical;

/// Changes below this share matter to nobody, however sure they are.
pub const LEAST_EFFECT: f64 = 0.05;

/// Chance that anything is called changed when nothing did, over all comparisons of two runs.
pub const FALSE_ALARM: f64 = 0.01;

/// By how much two runs of one server differ although nothing changed, as a standard deviation: restarts, clocks, other
/// tenants. A single run cannot see it.
pub const RUN_NOISE: f64 = 0.01;

/// What a comparison rests on beside the two verdicts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// See [`RUN_NOISE`]; a share.
    pub run_noise: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { run_noise: RUN_NOISE }
    }
}

/// Compares `new` with `base`, whether they are comparable or not; [`Comparison::incomparable`] tells.
pub fn compare(base: &Verdict, new: &Verdict, settings: Settings) -> Comparison {
    let levels = levels(base, new);
    let mut effects: Vec<Effect> = Vec::new();
    for metric in Metric::ALL {
        effects.extend(effect::of(metric, &levels, settings));
    }
    let least = |m: Metric| match m {
        // A share has no ratio where it was zero: what matters is a tenth of its target.
        Metric::ErrorRate => new.slo.error_rate_ratio / 10.0,
        _ => LEAST_EFFECT,
    };
    let p_values: Vec<Option<f64>> = effects.iter().map(Effect::p_value).collect();
    let sure = statistics::holm(&p_values, FALSE_ALARM);
    let mut changes: Vec<Change> = effects.iter().zip(sure).map(|(e, sure)| e.change(sure, least(e.metric))).collect();
    // By level, then all together; within them in the order of the metrics.
    changes.sort_by(|a, b| {
        let key = |c: &Change| c.level.unwrap_or(f64::INFINITY);
        key(a).total_cmp(&key(b)).then(a.metric.cmp(&b.metric))
    });
    Comparison {
        incomparable: differences(base, new),
        called_out: called_out(base, new, &levels),
        limit: limit::compare(base, new),
        changes,
        unit: match new.steps.first().map(|s| s.load) {
            Some(crate::model::step::Load::Rate(_)) => "requests/s".into(),
            _ => "streams".into(),
        },
        false_alarm_ratio: FALSE_ALARM,
        least_effect_ratio: LEAST_EFFECT,
        run_noise_ratio: settings.run_noise,
    }
}

/// The steps of one level in both runs; neither side is empty.
pub(crate) struct Level<'v> {
    level: f64,
    base: Vec<&'v StepVerdict>,
    new: Vec<&'v StepVerdict>,
}

/// The levels that both ran, ascending, with every step that ran whole.
fn levels<'v>(base: &'v Verdict, new: &'v Verdict) -> Vec<Level<'v>> {
    fn at(v: &Verdict, level: f64) -> Vec<&StepVerdict> {
        v.steps.iter().filter(|s| s.concurrency == level && s.cut_short.is_none()).collect()
    }
    let mut all: Vec<f64> = new.steps.iter().map(|s| s.concurrency).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all.into_iter()
        .map(|level| Level { level, base: at(base, level), new: at(new, level) })
        .filter(|l| !l.base.is_empty() && !l.new.is_empty())
        .collect()
}

/// What changes how the rest is read: rates whose fall means that the prompts or the traffic changed, not the server,
/// and the size of the KV pool.
fn called_out(base: &Verdict, new: &Verdict, levels: &[Level<'_>]) -> Vec<String> {
    type Rate = fn(&ServerStats) -> Option<f64>;
    let rates: [(&str, Rate); 2] = [
        ("the prefix-cache hit rate fell", |s| s.prefix_cache_hit_rate),
        ("the draft acceptance rate fell", |s| s.draft_acceptance_rate),
    ];
    let mut out = Vec::new();
    for (says, of) in rates {
        let mean = |steps: &[&StepVerdict]| {
            let known: Vec<f64> = steps.iter().filter_map(|s| s.server.as_ref().and_then(of)).collect();
            (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
        };
        let both = levels.iter().filter_map(|l| Some((mean(&l.base)?, mean(&l.new)?, l.level)));
        let most = both.filter(|(b, n, _)| b - n > LEAST_EFFECT).max_by(|x, y| (x.0 - x.1).total_cmp(&(y.0 - y.1)));
        out.extend(most.map(|(b, n, at)| {
            format!(
                "{says} from {:.0} % to {:.0} % at {at}: most often the start of the prompts, or the traffic, changed",
                b * 100.0,
                n * 100.0
            )
        }));
    }
    if let (Some(b), Some(n)) = (base.target.kv_cache_tokens, new.target.kv_cache_tokens)
        && b != n
    {
        out.push(format!("the KV cache pool holds {n} tokens, and held {b}"));
    }
    out
}

/// Judges an effect. It moved if that is `sure` and it is off by `least`; it is the same if its whole 95 % interval
/// lies within that; else nobody can tell.
pub fn judge(effect: f64, interval: Option<[f64; 2]>, sure: bool, least: f64, more_is_better: bool) -> Judgement {
    match interval {
        _ if sure && effect.abs() >= least => {
            if (effect > 0.0) == more_is_better {
                Judgement::Better
            } else {
                Judgement::Worse
            }
        }
        Some([low, high]) if low >= -least && high <= least => Judgement::Same,
        _ => Judgement::CannotTell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_if_it_is_sure_and_large_enough() {
        for (effect, interval, sure, more, expected) in [
            (0.2, Some([0.1, 0.3]), true, false, Judgement::Worse),
            (0.2, Some([0.1, 0.3]), true, true, Judgement::Better),
            (0.2, Some([-0.1, 0.5]), false, false, Judgement::CannotTell),
            (-0.2, Some([-0.3, -0.1]), true, false, Judgement::Better),
            (0.02, Some([0.01, 0.03]), true, false, Judgement::Same),
            (0.04, Some([0.01, 0.08]), true, false, Judgement::CannotTell),
            (1.0, None, false, false, Judgement::CannotTell),
        ] {
            assert_eq!(judge(effect, interval, sure, LEAST_EFFECT, more), expected, "{effect} {interval:?}");
        }
    }
}
