//! The few distributions and the one correction that comparing needs.

use statrs::distribution::{ChiSquared, ContinuousCDF, Normal, StudentsT};

/// Which of the hypotheses are rejected at the family's level `alpha`, by Holm's method: the smallest p-value is held
/// against `alpha`/m, the next against `alpha`/(m − 1), and so on until the first that is not rejected.
/// What has no p-value is never rejected, and not counted.
pub fn holm(p_values: &[Option<f64>], alpha: f64) -> Vec<bool> {
    let mut order: Vec<(usize, f64)> = p_values.iter().enumerate().filter_map(|(i, p)| Some((i, (*p)?))).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut rejected = vec![false; p_values.len()];
    let mut left = order.len();
    for (i, p) in order {
        if p > alpha / left as f64 {
            break;
        }
        rejected[i] = true;
        left -= 1;
    }
    rejected
}

/// Two-sided p-value of a statistic `t` with `df` degrees of freedom; infinite ones are the normal distribution's.
pub fn two_sided(t: f64, df: f64) -> f64 {
    let below = match student(df) {
        Some(d) => d.cdf(-t.abs()),
        None => standard().map_or(1.0, |d| d.cdf(-t.abs())),
    };
    (2.0 * below).min(1.0)
}

/// The value that a statistic with `df` degrees of freedom exceeds with probability `tail`, 0 to 0.5 exclusive.
pub fn critical(tail: f64, df: f64) -> f64 {
    match student(df) {
        Some(d) => -d.inverse_cdf(tail),
        None => standard().map_or(f64::INFINITY, |d| -d.inverse_cdf(tail)),
    }
}

/// The value that a sum of `df` squared standard normal draws exceeds with probability `tail`.
pub fn chi_squared(tail: f64, df: f64) -> f64 {
    ChiSquared::new(df).map_or(f64::INFINITY, |d| d.inverse_cdf(1.0 - tail))
}

/// Student's distribution, unless `df` is so large that the normal one is the same to four digits.
fn student(df: f64) -> Option<StudentsT> {
    (df < 2_000.0).then(|| StudentsT::new(0.0, 1.0, df.max(1.0)).ok()).flatten()
}

fn standard() -> Option<Normal> {
    Normal::new(0.0, 1.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holm_stops_at_the_first_that_is_not_sure() {
        // Holm's own example of the idea: 0.01 <= 0.05/4, 0.015 <= 0.05/3, 0.03 > 0.05/2.
        let p = [Some(0.03), Some(0.01), None, Some(0.04), Some(0.015)];
        assert_eq!(holm(&p, 0.05), [false, true, false, false, true]);
        assert_eq!(holm(&[], 0.05), Vec::<bool>::new());
    }

    /// Against printed tables.
    #[test]
    fn critical_values_are_those_of_the_tables() {
        for (tail, df, expected) in
            [(0.025, 4.0, 2.776), (0.005, 10.0, 3.169), (0.025, f64::INFINITY, 1.960), (0.0005, 30.0, 3.646)]
        {
            let got = critical(tail, df);
            assert!((got - expected).abs() < 0.001, "{tail} {df}: {got}");
            assert!((two_sided(got, df) - 2.0 * tail).abs() < 1e-6, "{tail} {df}");
        }
        assert!((chi_squared(0.05, 4.0) - 9.488).abs() < 0.001);
    }
}
