//! One metric of two runs: by how much it changed, and how far that can be noise.

use super::statistics::{chi_squared, critical, two_sided};
use super::{Level, Settings, judge};
use crate::model::comparison::{Change, Metric};
use crate::model::verdict::StepVerdict;

/// Degrees of freedom from which on the spread between repeats is trusted instead of a floor.
const ENOUGH_REPEATS: f64 = 6.0;

/// A change and its noise.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// Which quantity.
    pub metric: Metric,
    /// The level; `None` for all of them.
    pub level: Option<f64>,
    /// Value of the base.
    pub base: f64,
    /// Value of the new run.
    pub new: f64,
    /// ln(new/base); of a share, new less base. `None` where there is no ratio.
    pub size: Option<f64>,
    /// Standard error of `size`, and its degrees of freedom; `None` where it is not known.
    pub error: Option<(f64, f64)>,
}

impl Effect {
    /// Two-sided p-value of no change.
    pub fn p_value(&self) -> Option<f64> {
        let (se, df) = self.error?;
        (se > 0.0).then_some(two_sided(self.size? / se, df))
    }

    /// The change; `sure` if it is one with all comparisons accounted for.
    pub fn change(&self, sure: bool, least: f64) -> Change {
        let effect = self.size.map(|s| self.share(s));
        let ends = |tail: f64| {
            let ((se, df), size) = (self.error?, self.size?);
            let off = critical(tail, df) * se;
            Some([size - off, size + off])
        };
        let interval = ends(0.025).map(|e| e.map(|x| self.share(x)));
        let worst = ends(0.05).map(
            |[low, high]| {
                if self.metric.more_is_better() { -self.share(low) } else { self.share(high) }
            },
        );
        let judgement =
            judge(effect.unwrap_or(0.0), interval, sure && effect.is_some(), least, self.metric.more_is_better());
        Change {
            metric: self.metric,
            level: self.level,
            base: self.base,
            new: self.new,
            effect_ratio: effect,
            interval_ratio: interval,
            worst_ratio: worst,
            p_value: self.p_value(),
            judgement,
        }
    }

    /// A size as a share: of a ratio its distance from 1.
    fn share(&self, size: f64) -> f64 {
        if self.metric == Metric::ErrorRate { size } else { size.exp_m1() }
    }
}

/// The effects of one metric at each level, and over all of them if they are several.
pub(super) fn of(metric: Metric, levels: &[Level<'_>], settings: Settings) -> Vec<Effect> {
    match metric {
        Metric::ErrorRate => shares(levels),
        _ => ratios(metric, levels, settings),
    }
}

/// A statistic of a step with its standard error as a share; degrees of freedom are those of the step's blocks.
fn statistic(s: &StepVerdict, metric: Metric) -> Option<(f64, Option<f64>)> {
    let (c, n) = (&s.client, &s.client.noise);
    let (value, error) = match metric {
        Metric::TtftP50 => (c.ttft_s.p50, n.ttft_p50_ratio),
        Metric::TtftP99 => (c.ttft_s.p99, n.ttft_p99_ratio),
        Metric::GapP50 => (c.gap_s.p50, n.gap_p50_ratio),
        Metric::GapP99 => (c.gap_s.p99, n.gap_p99_ratio),
        Metric::E2eP50 => (c.e2e_s.p50, n.e2e_p50_ratio),
        Metric::OutputTokens => (c.output_tokens_per_s, n.output_tokens_ratio),
        Metric::ErrorRate => (c.error_rate_ratio, None),
    };
    value.filter(|v| *v > 0.0).map(|v| (v, error))
}

/// One side of one level: the mean of the logarithms over its steps.
struct Side {
    mean: f64,
    /// Variance of the mean from within the steps, and its degrees of freedom; `None` if a step does not know its own.
    within: Option<(f64, f64)>,
    steps: f64,
    /// Sum of squares between the steps, beyond what is within them.
    squares: f64,
}

fn side(steps: &[&StepVerdict], metric: Metric) -> Option<Side> {
    let known: Vec<(f64, Option<f64>, f64)> = steps
        .iter()
        .filter_map(|s| statistic(s, metric).map(|(v, e)| (v.ln(), e, s.client.noise.blocks as f64 - 1.0)))
        .collect();
    let k = known.len() as f64;
    if known.is_empty() {
        return None;
    }
    let mean = known.iter().map(|(x, _, _)| x).sum::<f64>() / k;
    let within: Option<Vec<(f64, f64)>> =
        known.iter().map(|(_, e, df)| e.filter(|_| *df >= 1.0).map(|e| ((e / k).powi(2), *df))).collect();
    let squares = known.iter().map(|(x, _, _)| (x - mean).powi(2)).sum::<f64>();
    Some(Side { mean, within: within.map(|parts| sum(&parts)), steps: k, squares })
}

/// A sum of independent variances and its degrees of freedom, after Welch and Satterthwaite.
fn sum(parts: &[(f64, f64)]) -> (f64, f64) {
    let total: f64 = parts.iter().map(|(v, _)| v).sum();
    let below: f64 = parts.iter().map(|(v, df)| v * v / df).sum();
    (total, if below > 0.0 { total * total / below } else { f64::INFINITY })
}

fn ratios(metric: Metric, levels: &[Level<'_>], settings: Settings) -> Vec<Effect> {
    let sides: Vec<(f64, Side, Side)> =
        levels.iter().filter_map(|l| Some((l.level, side(&l.base, metric)?, side(&l.new, metric)?))).collect();
    let between = between(&sides, settings);
    let mut out = Vec::new();
    let (mut weights, mut weighted, mut unknown) = (0.0, 0.0, false);
    let (mut least_steps, mut df_of_all) = ([f64::INFINITY; 2], 0.0);
    for (level, b, n) in &sides {
        let size = n.mean - b.mean;
        let within = b.within.zip(n.within).map(|(b, n)| sum(&[b, n]));
        let error = within.map(|(v, df)| {
            let (v, df) = sum(&[(v, df), between.over(b.steps, n.steps)]);
            (v.sqrt(), df)
        });
        match within {
            Some((v, df)) => {
                let w = 1.0 / v.max(1e-12);
                weights += w;
                weighted += w * size;
                df_of_all += df;
                least_steps = [least_steps[0].min(b.steps), least_steps[1].min(n.steps)];
            }
            None => unknown = true,
        }
        out.push(Effect {
            metric,
            level: Some(*level),
            base: b.mean.exp(),
            new: n.mean.exp(),
            size: Some(size),
            error,
        });
    }
    if sides.len() > 1 && weights > 0.0 && !unknown {
        let geometric =
            |of: fn(&(f64, Side, Side)) -> f64| (sides.iter().map(of).sum::<f64>() / sides.len() as f64).exp();
        // What a whole run differs by is common to all of its levels: it does not average out over them.
        let (v, df) = sum(&[(1.0 / weights, df_of_all), between.over(least_steps[0], least_steps[1])]);
        out.push(Effect {
            metric,
            level: None,
            base: geometric(|s| s.1.mean),
            new: geometric(|s| s.2.mean),
            size: Some(weighted / weights),
            error: Some((v.sqrt(), df)),
        });
    }
    out
}

/// What runs differ by beyond the noise within their steps: a variance, and its degrees of freedom.
struct Between {
    variance: f64,
    df: f64,
    /// Whether each repeat is a run of its own, so that it averages out over them.
    per_repeat: bool,
}

impl Between {
    /// For the difference of two means over so many steps.
    fn over(&self, base: f64, new: f64) -> (f64, f64) {
        let share = if self.per_repeat { 1.0 / base + 1.0 / new } else { 2.0 };
        (self.variance * share, self.df)
    }
}

/// From the spread of levels that were run several times; not below the floor, unless there were enough repeats to
/// know better.
fn between(sides: &[(f64, Side, Side)], settings: Settings) -> Between {
    let all = || sides.iter().flat_map(|(_, b, n)| [b, n]);
    let df: f64 = all().map(|s| s.steps - 1.0).sum();
    let squares: f64 = all().map(|s| s.squares).sum();
    // What is within the steps shows between them too, and is reckoned already.
    let within: f64 = all().filter_map(|s| s.within.map(|(v, _)| v * s.steps * (s.steps - 1.0))).sum();
    let floor = settings.run_noise.powi(2);
    let seen = if df > 0.0 { ((squares - within) / df).max(0.0) } else { 0.0 };
    // A spread that the floor makes unlikely: this machine is not as quiet as the floor takes it for.
    let more = df > 0.0 && squares > chi_squared(0.05, df) * (within / df + floor);
    if df >= ENOUGH_REPEATS && all().all(|s| s.steps >= 2.0) {
        Between { variance: seen, df, per_repeat: true }
    } else if more {
        Between { variance: seen, df, per_repeat: false }
    } else {
        Between { variance: floor, df: f64::INFINITY, per_repeat: false }
    }
}

/// Differences of the shares of failed requests, with two failures and two successes added to each pair.
fn shares(levels: &[Level<'_>]) -> Vec<Effect> {
    let count = |steps: &[&StepVerdict]| {
        let failed: u64 = steps.iter().map(|s| s.requests.failed.total).sum();
        let ended: u64 = steps.iter().map(|s| s.requests.completed + s.requests.failed.total).sum();
        (failed as f64, ended as f64)
    };
    let effect = |level: Option<f64>, (bf, bn): (f64, f64), (nf, nn): (f64, f64)| {
        (bn > 0.0 && nn > 0.0).then(|| {
            let variance = |x: f64, n: f64| {
                let p = (x + 1.0) / (n + 2.0);
                p * (1.0 - p) / (n + 2.0)
            };
            Effect {
                metric: Metric::ErrorRate,
                level,
                base: bf / bn,
                new: nf / nn,
                size: Some((nf + 1.0) / (nn + 2.0) - (bf + 1.0) / (bn + 2.0)),
                error: Some(((variance(bf, bn) + variance(nf, nn)).sqrt(), f64::INFINITY)),
            }
        })
    };
    let counts: Vec<_> = levels.iter().map(|l| (l.level, count(&l.base), count(&l.new))).collect();
    let mut out: Vec<Effect> = counts.iter().filter_map(|(l, b, n)| effect(Some(*l), *b, *n)).collect();
    if counts.len() > 1 {
        let add = |a: (f64, f64), c: (f64, f64)| (a.0 + c.0, a.1 + c.1);
        let base = counts.iter().map(|c| c.1).fold((0.0, 0.0), add);
        let new = counts.iter().map(|c| c.2).fold((0.0, 0.0), add);
        out.extend(effect(None, base, new));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variances_add_and_their_degrees_follow_the_larger() {
        assert_eq!(sum(&[(1.0, 10.0), (0.0, 3.0)]), (1.0, 10.0));
        let (v, df) = sum(&[(1.0, 10.0), (1.0, 10.0)]);
        assert_eq!((v, df), (2.0, 20.0));
        assert_eq!(sum(&[(1.0, f64::INFINITY)]), (1.0, f64::INFINITY));
    }

    #[test]
    fn the_spread_of_enough_repeats_stands_for_the_floor() {
        let settings = Settings { run_noise: 0.01 };
        let side = |steps: f64, squares: f64| Side { mean: 0.0, within: Some((0.0, 9.0)), steps, squares };
        // Four levels, three runs a side, each 2 % off: 16 degrees of freedom.
        let repeated: Vec<(f64, Side, Side)> =
            (0..4).map(|i| (f64::from(i), side(3.0, 8e-4), side(3.0, 8e-4))).collect();
        let found = between(&repeated, settings);
        assert!(found.per_repeat && (found.variance - 4e-4).abs() < 1e-12 && found.df == 16.0);
        // One run a side: the floor.
        let once = vec![(1.0, side(1.0, 0.0), side(1.0, 0.0))];
        let floor = between(&once, settings);
        assert!(!floor.per_repeat && floor.variance == 1e-4 && floor.df.is_infinite());
        // One level confirmed, and far off: more than the floor, with the little that is known of it.
        let off = vec![(1.0, side(2.0, 2e-3), side(1.0, 0.0))];
        let found = between(&off, settings);
        assert!(!found.per_repeat && (found.variance - 2e-3).abs() < 1e-12 && found.df == 1.0);
    }
}
