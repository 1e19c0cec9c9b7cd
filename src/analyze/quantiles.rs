//! Quantiles of exact samples, with what they rest on.

use crate::model::verdict::{Quantiles, Spread};

/// Mean, percentiles, the 99th's confidence interval, and the largest of the samples; any unit.
/// Percentiles interpolate linearly between ranks (numpy's and `vllm bench serve`'s default).
pub fn quantiles(mut samples: Vec<f64>) -> Quantiles {
    let n = samples.len();
    let mean = (n > 0).then(|| samples.iter().sum::<f64>() / n as f64);
    let interval = interval(n, 0.99);
    let read = [0.5, 0.9, 0.99].into_iter().filter_map(|q| between(n, q)).flat_map(|(below, above, _)| [below, above]);
    place(&mut samples, read.chain(interval.into_iter().flatten()).chain(n.checked_sub(1)).collect());
    Quantiles {
        n: n as u64,
        mean,
        p50: at(&samples, 0.5),
        p90: at(&samples, 0.9),
        p99: at(&samples, 0.99),
        p99_ci95: (n > 0).then(|| interval.map(|rank| rank.map(|i| samples[i]))),
        max: samples.last().copied(),
    }
}

/// Brings what belongs to these places of the ascending order there, which takes far less time
/// than sorting all of it.
fn place(samples: &mut [f64], mut ranks: Vec<usize>) {
    ranks.sort_unstable();
    ranks.dedup();
    let (mut rest, mut begin) = (samples, 0);
    for rank in ranks {
        rest.select_nth_unstable_by(rank - begin, f64::total_cmp);
        rest = &mut rest[rank - begin + 1..];
        begin = rank + 1;
    }
}

/// Smallest, median and largest of a signal; NaN is no reading.
pub fn spread(samples: impl IntoIterator<Item = f64>) -> Spread {
    let mut samples: Vec<f64> = samples.into_iter().filter(|v| !v.is_nan()).collect();
    samples.sort_by(f64::total_cmp);
    Spread { min: samples.first().copied(), median: at(&samples, 0.5), max: samples.last().copied() }
}

/// Quantile `q` of ascending samples; `None` without any.
pub fn at(sorted: &[f64], q: f64) -> Option<f64> {
    let (below, above, weight) = between(sorted.len(), q)?;
    Some(sorted[below] + (sorted[above] - sorted[below]) * weight)
}

/// The two places of an ascending order that quantile `q` lies between, and how far from the first it
/// is as a share of the way to the second; `None` without any sample.
fn between(n: usize, q: f64) -> Option<(usize, usize, f64)> {
    let rank = q * n.checked_sub(1)? as f64;
    Some((rank.floor() as usize, rank.ceil() as usize, rank - rank.floor()))
}

/// Places in an ascending order of `n` samples of the two-sided 95 % interval of quantile `q` (at
/// least 0.5), from order statistics, without any assumption about the distribution: the ends are
/// samples whose chance of lying on the wrong side is at most 2.5 % each. An end that so few samples
/// cannot give is `None`.
fn interval(n: usize, q: f64) -> [Option<usize>; 2] {
    const TAIL: f64 = 0.025;
    let p = 1.0 - q;
    // How many samples lie above the quantile is binomial(n, p); walk its distribution from 0.
    let (lower, upper) = if (n as f64) * p < 500.0 {
        let mut mass = q.powf(n as f64);
        let mut below = 0.0; // P(above <= i - 1)
        let mut most_low = None; // largest r with P(above <= r) <= TAIL
        let mut i = 0usize;
        let least_high = loop {
            if 1.0 - below <= TAIL || i > n {
                break i; // smallest m with P(above >= m) <= TAIL
            }
            below += mass;
            if below <= TAIL {
                most_low = Some(i);
            }
            mass *= (n - i.min(n)) as f64 / (i as f64 + 1.0) * (p / q);
            i += 1;
        };
        ((n + 1).checked_sub(least_high).filter(|&j| j >= 1), most_low.map(|r| n - r))
    } else {
        // The normal approximation is exact to a rank or two here.
        let centre = n as f64 * q;
        let width = 1.959_964 * (n as f64 * q * p).sqrt();
        (Some((centre - width).floor().max(1.0) as usize), Some((centre + width).ceil() as usize + 1))
    };
    // Ranks count from 1.
    [lower.map(|j| j - 1), upper.filter(|&k| k >= 1 && k <= n).map(|k| k - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(n: u32) -> Vec<f64> {
        (1..=n).map(f64::from).collect()
    }

    #[test]
    fn quantiles_are_numpys() {
        let q = quantiles(vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!((q.n, q.p50, q.max, q.mean), (4, Some(2.5), Some(4.0), Some(2.5)));
        assert!((q.p99.unwrap() - 3.97).abs() < 1e-12);
        assert_eq!(quantiles(vec![7.0]).p99, Some(7.0));
        assert_eq!(quantiles(Vec::new()), Quantiles::default());
    }

    /// Reference values: the exact binomial tables' ranks for a 95 % interval of the 99th percentile.
    #[test]
    fn the_interval_needs_samples() {
        // 0.99^367 = 0.02502 is still above 2.5 %, 0.99^368 is below.
        assert_eq!(quantiles(ramp(367)).p99_ci95.unwrap()[1], None);
        assert_eq!(quantiles(ramp(368)).p99_ci95.unwrap()[1], Some(368.0));
        let [low, high] = quantiles(ramp(1000)).p99_ci95.unwrap();
        // above ~ binomial(1000, 0.01): P(<= 3) = 0.0101, P(<= 4) = 0.0287, P(>= 17) = 0.0264, P(>= 18) = 0.0138.
        assert_eq!((low, high), (Some(983.0), Some(997.0)));
        // above ~ binomial(3, 0.01): P(>= 1) = 0.0297, P(>= 2) = 0.0003.
        assert_eq!(quantiles(ramp(3)).p99_ci95.unwrap(), [Some(2.0), None]);
    }

    #[test]
    fn the_order_of_the_samples_changes_nothing() {
        let mut state = 1_u64;
        for n in [1_usize, 2, 7, 100, 101, 1_000, 60_000] {
            let mut samples: Vec<f64> = Vec::new();
            for _ in 0..n {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                samples.push(((state >> 40) % 1_000) as f64);
            }
            let mut sorted = samples.clone();
            sorted.sort_by(f64::total_cmp);
            let q = quantiles(samples);
            assert_eq!([q.p50, q.p90, q.p99], [0.5, 0.9, 0.99].map(|p| at(&sorted, p)), "{n}");
            assert_eq!(q.max, sorted.last().copied());
            assert_eq!(q, quantiles(sorted), "sums of whole numbers are exact in any order");
        }
    }

    #[test]
    fn many_samples_agree_with_few() {
        let [low, high] = quantiles(ramp(100_000)).p99_ci95.unwrap();
        assert!((low.unwrap() - 98_938.0).abs() <= 2.0, "{low:?}");
        assert!((high.unwrap() - 99_063.0).abs() <= 2.0, "{high:?}");
    }

    #[test]
    fn spread_ignores_nan() {
        let s = spread([f64::NAN, 3.0, 1.0]);
        assert_eq!((s.min, s.median, s.max), (Some(1.0), Some(2.0), Some(3.0)));
        assert_eq!(spread([f64::NAN]), Spread::default());
    }
}
