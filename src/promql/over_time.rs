//! Functions of range vectors.

use super::eval::{Eval, Names, absent};
use super::expr::Expr;
use super::func::Func;
use super::select::Bounds;
use super::vector::unique;
use super::{Element, EvalError, Reading};

type Points<'a> = &'a [(i64, f64)];

/// Evaluates a function that takes a range vector.
pub(super) fn evaluate(eval: &Eval<'_>, func: Func, args: &[Expr], names: Names) -> Result<Vec<Element>, EvalError> {
    let (range, number) = match (func, args) {
        (Func::QuantileOverTime, [q, range]) => (range, eval.scalar(q)?),
        (Func::PredictLinear, [range, ahead]) => (range, eval.scalar(ahead)?),
        (_, [range, ..]) => (range, f64::NAN),
        (_, []) => unreachable!("the parser checked the arguments"),
    };
    if func == Func::AbsentOverTime {
        let mut found = false;
        eval.windows(range, Names::Keep, |_, _, _| found = true)?;
        return Ok(if found { Vec::new() } else { vec![absent(range)] });
    }
    // Of all of them only this one keeps the metric's name.
    let names = if func == Func::LastOverTime { names } else { Names::Drop };
    let reading = eval.engine.reading;
    let mut out = Vec::new();
    eval.windows(range, names, |labels, points, bounds| {
        let value = match func {
            Func::Rate => extrapolated(points, bounds, reading, true, bounds.range_ms as f64 / 1e3),
            Func::Increase => extrapolated(points, bounds, reading, true, 1.0),
            Func::Delta => extrapolated(points, bounds, reading, false, 1.0),
            Func::Irate => instantaneous(points, true),
            Func::Idelta => instantaneous(points, false),
            Func::PredictLinear => regression(points, eval.now_ms).map(|(slope, at_now)| slope * number + at_now),
            Func::Deriv => regression(points, points[0].0).map(|(slope, _)| slope),
            Func::QuantileOverTime => Some(quantile(number, &mut points.iter().map(|p| p.1).collect::<Vec<_>>())),
            _ => Some(simple(func, points)),
        };
        if let Some(value) = value {
            out.push(Element { labels: labels.clone(), value });
        }
    })?;
    if names == Names::Drop && !named_once(range) {
        unique(&out, func.name())?;
    }
    Ok(out)
}

/// Whether all series of a range have one name, so that taking it off makes no two alike.
fn named_once(range: &Expr) -> bool {
    match range.bare() {
        Expr::Range(s, _) => s.metric().is_some(),
        _ => false,
    }
}

/// The growth over the whole window: what was seen, stretched to the window's edges as far as
/// the samples' spacing lets one believe (`extrapolatedRate` of Prometheus), divided by `per`.
/// `None` below two samples.
fn extrapolated(points: Points<'_>, bounds: Bounds, reading: Reading, counter: bool, per: f64) -> Option<f64> {
    let [(t0, v0), .., (tn, vn)] = *points else { return None };
    let mut growth = vn - v0;
    if counter {
        // A drop is a restart: what was reached before it is added back.
        growth += points.windows(2).filter(|w| w[1].1 < w[0].1).map(|w| w[0].1).fold(0.0, |a, b| a + b);
    }
    let span = (tn - t0) as f64 / 1e3;
    let spacing = span / (points.len() - 1) as f64;
    let limit = spacing * 1.1;
    let mut head = (t0 - (bounds.end_ms - bounds.range_ms)) as f64 / 1e3;
    let mut tail = (bounds.end_ms - tn) as f64 / 1e3;
    // A counter does not reach below zero: no further back than where the line meets it.
    let clamp = |head: f64| {
        let zero = span * (v0 / growth);
        if counter && growth > 0.0 && v0 >= 0.0 && zero < head { zero } else { head }
    };
    let half = |edge: f64| if edge >= limit { spacing / 2.0 } else { edge };
    head = match reading {
        Reading::V2 => half(clamp(head)),
        Reading::V3 => clamp(half(head)),
    };
    tail = half(tail);
    // In this order, since 2.x shows its last digits in the quantiles of equal buckets.
    Some(growth * ((span + head + tail) / span / per))
}

/// Rate or difference of the last two samples.
fn instantaneous(points: Points<'_>, rate: bool) -> Option<f64> {
    let [.., (t0, v0), (t1, v1)] = *points else { return None };
    if t1 == t0 {
        return None;
    }
    if !rate {
        return Some(v1 - v0);
    }
    let growth = if v1 < v0 { v1 } else { v1 - v0 };
    Some(growth / ((t1 - t0) as f64 / 1e3))
}

/// Slope per second and value at `at_ms` of the least-squares line. `None` below two samples.
fn regression(points: Points<'_>, at_ms: i64) -> Option<(f64, f64)> {
    if points.len() < 2 {
        return None;
    }
    let first = points[0].1;
    if points.iter().all(|p| p.1 == first) {
        return Some(if first.is_infinite() { (f64::NAN, f64::NAN) } else { (0.0, first) });
    }
    let n = points.len() as f64;
    let (mut x, mut y, mut xy, mut xx) = (Sum::default(), Sum::default(), Sum::default(), Sum::default());
    for &(t, v) in points {
        let dt = (t - at_ms) as f64 / 1e3;
        x.add(dt);
        y.add(v);
        xy.add(dt * v);
        xx.add(dt * dt);
    }
    let (x, y, xy, xx) = (x.total(), y.total(), xy.total(), xx.total());
    let slope = (xy - x * y / n) / (xx - x * x / n);
    Some((slope, y / n - slope * x / n))
}

/// Functions of the values alone; there is at least one.
fn simple(func: Func, points: Points<'_>) -> f64 {
    let values = || points.iter().map(|p| p.1);
    let pairs = |f: fn(f64, f64) -> bool| points.windows(2).filter(|w| f(w[0].1, w[1].1)).count() as f64;
    match func {
        Func::AvgOverTime => mean(values()),
        Func::SumOverTime => values().collect::<Sum>().total(),
        Func::CountOverTime => points.len() as f64,
        Func::PresentOverTime => 1.0,
        Func::LastOverTime => points[points.len() - 1].1,
        // A NaN gives way to any number.
        Func::MaxOverTime => values().fold(f64::NAN, |a, v| if v > a || a.is_nan() { v } else { a }),
        Func::MinOverTime => values().fold(f64::NAN, |a, v| if v < a || a.is_nan() { v } else { a }),
        Func::StddevOverTime => variance(values()).sqrt(),
        Func::StdvarOverTime => variance(values()),
        Func::Changes => pairs(|a, b| a != b && !(a.is_nan() && b.is_nan())),
        Func::Resets => pairs(|a, b| b < a),
        _ => unreachable!("every function of a range is listed"),
    }
}

/// The `q`-quantile, interpolated between neighbours; NaN counts as the smallest. Sorts `values`.
pub(super) fn quantile(q: f64, values: &mut [f64]) -> f64 {
    if values.is_empty() || q.is_nan() {
        return f64::NAN;
    }
    if !(0.0..=1.0).contains(&q) {
        return if q < 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    values.sort_by(|a, b| {
        a.is_nan().cmp(&b.is_nan()).reverse().then(a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal))
    });
    let n = values.len() as f64;
    let rank = q * (n - 1.0);
    let low = rank.floor().max(0.0);
    let high = (low + 1.0).min(n - 1.0);
    let weight = rank - rank.floor();
    values[low as usize] * (1.0 - weight) + values[high as usize] * weight
}

/// A compensated sum (Neumaier): exact far beyond the last digits that rules compare.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    sum: f64,
    lost: f64,
}

impl Sum {
    pub(super) fn add(&mut self, x: f64) {
        let t = self.sum + x;
        if t.is_infinite() {
            self.lost = 0.0;
        } else if self.sum.abs() >= x.abs() {
            self.lost += (self.sum - t) + x;
        } else {
            self.lost += (x - t) + self.sum;
        }
        self.sum = t;
    }

    pub(super) fn total(self) -> f64 {
        if self.sum.is_infinite() { self.sum } else { self.sum + self.lost }
    }
}

impl FromIterator<f64> for Sum {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Sum {
        let mut s = Sum::default();
        values.into_iter().for_each(|v| s.add(v));
        s
    }
}

/// The mean; where the sum would overflow, by adding up shares.
pub(super) fn mean(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let n = values.clone().count() as f64;
    let sum = values.clone().collect::<Sum>().total();
    if sum.is_infinite() && values.clone().all(f64::is_finite) {
        return values.map(|v| v / n).collect::<Sum>().total();
    }
    sum / n
}

/// The population variance (Welford).
pub(super) fn variance(values: impl Iterator<Item = f64>) -> f64 {
    let (mut n, mut mean, mut m2) = (0.0, Sum::default(), Sum::default());
    for v in values {
        n += 1.0;
        let delta = v - mean.total();
        mean.add(delta / n);
        m2.add(delta * (v - mean.total()));
    }
    m2.total() / n
}
