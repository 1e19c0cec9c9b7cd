//! Axes: the range that holds the data, round ticks, and their words.
//!
//! The drawing library's own ticks are kept off: its logarithmic ones are a power of ten apart.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// How values become lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// Equal differences are equal lengths.
    Linear,
    /// Equal ratios are equal lengths.
    Log,
}

/// One axis.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    /// Values with a tick.
    pub(super) ticks: Vec<f64>,
    write: fn(f64) -> String,
}

impl Axis {
    /// From 0 to at least `high`, with about `n` ticks.
    pub(super) fn from_zero(high: f64, n: u32, write: fn(f64) -> String) -> Axis {
        let high = if high > 0.0 && high.is_finite() { high } else { 1.0 };
        let step = round_step(high / f64::from(n.max(1)));
        let top = (high / step).ceil() * step;
        let count = (top / step).round() as u32;
        Axis {
            scale: Scale::Linear,
            low: 0.0,
            high: top,
            ticks: (0..=count).map(|i| f64::from(i) * step).collect(),
            write,
        }
    }

    /// From `low` to `high` as they are, with about `n` ticks at round values between them.
    pub(super) fn between(low: f64, high: f64, n: u32, write: fn(f64) -> String) -> Axis {
        let high = if high > low { high } else { low + 1.0 };
        let step = round_step((high - low) / f64::from(n.max(1)));
        let first = (low / step).ceil() as i64;
        let last = (high / step).floor() as i64;
        Axis { scale: Scale::Linear, low, high, ticks: (first..=last).map(|i| i as f64 * step).collect(), write }
    }

    /// A logarithmic axis around all positive `values`, with about `n` ticks; `None` without such.
    pub(super) fn log(values: impl IntoIterator<Item = f64>, n: usize, write: fn(f64) -> String) -> Option<Axis> {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for v in values.into_iter().filter(|v| *v > 0.0 && v.is_finite()) {
            (low, high) = (low.min(v), high.max(v));
        }
        if high == 0.0 {
            return None;
        }
        // Some air around the data, and at least a factor of four, or noise would fill the plot.
        let middle = (low * high).sqrt();
        let (low, high) = ((low / 1.25).min(middle / 2.0), (high * 1.25).max(middle * 2.0));
        let ticks = [&[1.0][..], &[1.0, 3.0], &[1.0, 2.0, 5.0], &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0]]
            .into_iter()
            .map(|mantissas| log_ticks(low, high, mantissas))
            .rfind(|ticks| ticks.len() <= n.max(2))
            .unwrap_or_else(|| log_ticks(low, high, &[1.0]));
        Some(Axis { scale: Scale::Log, low, high, ticks, write })
    }

    /// The same axis with its ticks at these values.
    pub(super) fn with_ticks(mut self, ticks: Vec<f64>) -> Axis {
        self.ticks = ticks;
        self
    }

    /// How far along the axis a value lies, 0 to 1; what is outside lies on the edge.
    pub(super) fn share(&self, value: f64) -> f64 {
        let value = if value.is_nan() { self.low } else { value.clamp(self.low, self.high) };
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        }
    }

    /// The words of a tick.
    pub(super) fn words(&self, tick: f64) -> String {
        (self.write)(tick)
    }

    /// Lower end.
    pub(super) fn low(&self) -> f64 {
        self.low
    }

    /// Upper end.
    pub(super) fn high(&self) -> f64 {
        self.high
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        from + (self.share(*value) * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        self.words(*value)
    }
}

/// The least of 1, 2, 5 times a power of ten that is not below `x`.
fn round_step(x: f64) -> f64 {
    let power = 10_f64.powf(x.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|m| m * power).find(|s| *s >= x * 0.999_999).unwrap_or(10.0 * power)
}

fn log_ticks(low: f64, high: f64, mantissas: &[f64]) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    (first..=last)
        .flat_map(|e| mantissas.iter().map(move |m| if e < 0 { m / 10_f64.powi(-e) } else { m * 10_f64.powi(e) }))
        .filter(|t| (low..=high).contains(t))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::text::number;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(Axis::from_zero(6.0, 4, number).ticks, [0.0, 2.0, 4.0, 6.0]);
        assert_eq!(Axis::from_zero(0.0, 4, number).ticks, [0.0, 0.5, 1.0]);
        assert_eq!(Axis::between(12.0, 58.0, 4, number).ticks, [20.0, 40.0]);
        assert_eq!(Axis::log([0.14, 2.9], 6, number).unwrap().ticks, [0.2, 0.5, 1.0, 2.0]);
        assert_eq!(Axis::log([0.02, 0.021], 4, number).unwrap().ticks, [0.015, 0.02, 0.03]);
        assert!(Axis::log([0.0, f64::NAN], 6, number).is_none());
    }
}
