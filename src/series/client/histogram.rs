//! Counters, gauges and histograms by instant, as they are gathered from the timelines.

use std::time::Duration;

/// A change for each instant, which added up give a counter or a gauge. Changes after the last
/// instant are not seen.
#[derive(Clone)]
pub(super) struct Changes(pub(super) Vec<i64>);

impl Changes {
    pub(super) fn add(&mut self, slot: usize, n: i64) {
        if let Some(c) = self.0.get_mut(slot) {
            *c += n;
        }
    }

    /// Goes on from a single instant to the last one of `fresh`.
    pub(super) fn go_on(&mut self, fresh: &Changes) {
        if let (Some(so_far), Some(c)) = (self.0.last_mut(), fresh.0.last()) {
            *so_far += c;
        }
    }

    pub(super) fn running(self) -> Vec<f64> {
        let mut sum = 0;
        let step = |c| {
            sum += c;
            sum as f64
        };
        self.0.into_iter().map(step).collect()
    }
}

/// The largest of what was told for each instant, µs.
#[derive(Clone)]
pub(super) struct Largest(pub(super) Vec<u64>);

impl Largest {
    pub(super) fn tell(&mut self, slot: usize, us: u64) {
        self.0[slot] = self.0[slot].max(us);
    }

    pub(super) fn seconds(self) -> Vec<f64> {
        self.0.into_iter().map(|us| us as f64 / 1e6).collect()
    }
}

/// Observations by instant and bucket.
#[derive(Clone)]
pub(super) struct Histogram {
    /// Upper bounds, s, and the same in whole µs, which no observation in whole µs falls between.
    bounds_s: Vec<f64>,
    bounds_us: Vec<u64>,
    /// For each 4,096 µs from 0 on, the first bucket that such an observation can fall into.
    near: Vec<usize>,
    /// `[slot * bounds + bucket]`: observations that fall into a finite bucket.
    finite: Vec<u64>,
    /// Observations in all, the misses included.
    pub(super) total: Changes,
    sum_us: Changes,
}

impl Histogram {
    pub(super) fn new(slots: usize, bounds: &[f64], target: Duration) -> Histogram {
        let mut bounds_s: Vec<f64> = bounds.iter().copied().chain([target.as_secs_f64()]).collect();
        bounds_s.sort_by(f64::total_cmp);
        bounds_s.dedup();
        // The nudge undoes what a bound such as 0.07 loses in binary.
        let bounds_us: Vec<u64> = bounds_s.iter().map(|b| (b * 1e6 + 1e-3).floor() as u64).collect();
        let near = (0..1_024).map(|i| bounds_us.partition_point(|&b| b < i << 12)).collect();
        let zeros = Changes(vec![0; slots]);
        Histogram {
            near,
            finite: vec![0; slots * bounds_s.len()],
            bounds_s,
            bounds_us,
            total: zeros.clone(),
            sum_us: zeros,
        }
    }

    /// Puts an observation into its finite bucket; the caller counts it in `total`.
    pub(super) fn place(&mut self, slot: usize, us: u64) {
        let n = self.bounds_us.len();
        let mut bucket = self.near[((us >> 12) as usize).min(self.near.len() - 1)];
        while bucket < n && us > self.bounds_us[bucket] {
            bucket += 1;
        }
        if bucket < n
            && let Some(c) = self.finite.get_mut(slot * n + bucket)
        {
            *c += 1;
        }
        self.sum_us.add(slot, i64::try_from(us).unwrap_or(i64::MAX));
    }

    pub(super) fn observe(&mut self, slot: usize, us: u64) {
        self.place(slot, us);
        self.total.add(slot, 1);
    }

    /// Goes on from a single instant to the last one of `fresh`, which has the same bounds.
    pub(super) fn go_on(&mut self, fresh: &Histogram) {
        let last = fresh.finite.len() - self.finite.len();
        for (so_far, c) in self.finite.iter_mut().zip(&fresh.finite[last..]) {
            *so_far += c;
        }
        self.total.go_on(&fresh.total);
        self.sum_us.go_on(&fresh.sum_us);
    }

    pub(super) fn columns(self) -> Columns {
        let n = self.bounds_s.len();
        let mut so_far = vec![0_u64; n];
        let slots = self.finite.len() / n;
        let mut columns = vec![Vec::with_capacity(slots); n];
        for row in self.finite.chunks_exact(n) {
            let mut below = 0;
            for (b, (c, column)) in row.iter().zip(&mut columns).enumerate() {
                so_far[b] += c;
                below += so_far[b];
                column.push(below as f64);
            }
        }
        let texts = self.bounds_s.iter().map(|b| format!("{b:?}"));
        let sum = self.sum_us.running().into_iter().map(|us| us / 1e6).collect();
        Columns { buckets: texts.zip(columns).collect(), sum, count: self.total.running() }
    }
}

/// A histogram as the cells of its series.
pub(super) struct Columns {
    /// Cumulative counts of the finite buckets, by the text of their bound.
    pub(super) buckets: Vec<(String, Vec<f64>)>,
    /// Seconds.
    pub(super) sum: Vec<f64>,
    pub(super) count: Vec<f64>,
}
