//! What the loader fills in: the limit on the right of a comparison, and shorter times.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::promql::Expr;

/// Limits that come from the product rather than from the rule file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Target of the 99th percentile of the time to first token, s.
    pub ttft_p99_s: f64,
    /// Target of the 99th percentile of the inter-token latency, s.
    pub itl_p99_s: f64,
    /// Highest share of failed requests.
    pub error_rate_ratio: f64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { ttft_p99_s: 1.0, itl_p99_s: 0.1, error_rate_ratio: 0.01 }
    }
}

impl Limits {
    /// What `plimsoll_limit` may say.
    pub const NAMES: [&'static str; 3] = ["slo.ttft_p99", "slo.itl_p99", "slo.error_rate"];

    /// The limit of that name.
    pub fn named(&self, name: &str) -> Option<f64> {
        match name {
            "slo.ttft_p99" => Some(self.ttft_p99_s),
            "slo.itl_p99" => Some(self.itl_p99_s),
            "slo.error_rate" => Some(self.error_rate_ratio),
            _ => None,
        }
    }
}

/// The number on the right of the comparison that decides: the outermost, of set operators the left one's.
pub fn limit_of(expr: &Expr) -> Option<f64> {
    match expr.bare() {
        Expr::Binary(b) if b.op.is_comparison() => match b.rhs.bare() {
            Expr::Number(n) => Some(*n),
            _ => None,
        },
        Expr::Binary(b) if b.op.is_set() => limit_of(&b.lhs),
        _ => None,
    }
}

/// A duration times `factor`, to the millisecond, and at least one unless it is zero.
pub fn scaled(d: Duration, factor: f64) -> Duration {
    if d.is_zero() {
        return d;
    }
    let ms = (d.as_secs_f64() * factor * 1e3).round().max(1.0);
    Duration::from_millis(ms as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deciding_number_is_found() {
        for (text, limit) in [
            ("x > 1", Some(1.0)),
            ("(x > 2)", Some(2.0)),
            ("x > 3 and y < 4", Some(3.0)),
            ("x > y", None),
            ("x + 1", None),
        ] {
            assert_eq!(limit_of(&crate::promql::parse(text).unwrap()), limit, "{text}");
        }
    }

    #[test]
    fn durations_scale_to_the_millisecond() {
        assert_eq!(scaled(Duration::from_secs(60), 0.1), Duration::from_secs(6));
        assert_eq!(scaled(Duration::from_millis(3), 0.01), Duration::from_millis(1));
        assert_eq!(scaled(Duration::ZERO, 0.5), Duration::ZERO);
    }
}
