//! `histogram_quantile` over classic buckets.

use super::vector::{Groups, Key};
use super::{Element, Reading};

/// Upper bound and count of one bucket; counts include the buckets below.
type Bucket = (f64, f64);

/// The label that holds a bucket's upper bound.
const BOUND: &str = "le";

/// The `q`-quantile of each histogram in `buckets`, which have no names any more.
pub(super) fn quantiles(q: f64, buckets: Vec<Element>, reading: Reading) -> Vec<Element> {
    let bound = [Box::from(BOUND)];
    let mut histograms = Groups::new(Key::Without(&bound));
    for e in &buckets {
        // What has no bound that reads as a number is no bucket.
        if let Some(upper) = e.labels.get(BOUND).and_then(parse_bound) {
            histograms.entry(&e.labels, Vec::new).0.push((upper, e.value));
        }
    }
    let histograms = histograms.items.into_iter();
    histograms
        .map(|(labels, mut b)| Element {
            labels: Key::Without(&bound).labels(&labels),
            value: quantile(q, &mut b, reading),
        })
        .collect()
}

fn parse_bound(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// The quantile of one histogram (`bucketQuantile` of Prometheus).
fn quantile(q: f64, buckets: &mut Vec<Bucket>, reading: Reading) -> f64 {
    if q.is_nan() {
        return f64::NAN;
    }
    if q < 0.0 {
        return f64::NEG_INFINITY;
    }
    if q > 1.0 {
        return f64::INFINITY;
    }
    if !buckets.is_sorted_by(|a, b| a.0 <= b.0) {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    if buckets.last().is_none_or(|b| b.0 != f64::INFINITY) {
        return f64::NAN;
    }
    // Bounds that are spelt differently are one bucket.
    buckets.dedup_by(|b, a| {
        let same = a.0 == b.0;
        if same {
            a.1 += b.1;
        }
        same
    });
    make_monotonic(buckets, reading);
    let total = buckets[buckets.len() - 1].1;
    if buckets.len() < 2 || total == 0.0 || total.is_nan() {
        return f64::NAN;
    }
    let rank = q * total;
    let finite = &buckets[..buckets.len() - 1];
    let b = finite.partition_point(|b| b.1 < rank || b.1.is_nan());
    if b == finite.len() {
        return finite[b - 1].0;
    }
    let (upper, count) = finite[b];
    if b == 0 {
        return if upper <= 0.0 { upper } else { upper * (rank / count) };
    }
    let (lower, below) = finite[b - 1];
    lower + (upper - lower) * ((rank - below) / (count - below))
}

/// Counts must not fall from bucket to bucket; sums of floats may, in their last digits.
fn make_monotonic(buckets: &mut [Bucket], reading: Reading) {
    let mut prev = buckets[0].1;
    for b in &mut buckets[1..] {
        if b.1 < prev || (reading == Reading::V3 && b.1 != prev && almost_equal(prev, b.1)) {
            b.1 = prev;
        } else {
            prev = b.1;
        }
    }
}

/// Whether two numbers differ by less than 1e-12 of their sum.
fn almost_equal(a: f64, b: f64) -> bool {
    const EPSILON: f64 = 1e-12;
    let (sum, diff) = (a.abs() + b.abs(), (a - b).abs());
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        return diff < EPSILON * f64::MIN_POSITIVE;
    }
    diff / sum.min(f64::MAX) < EPSILON
}
