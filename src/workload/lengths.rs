//! How long prompts and answers are: one length, or a distribution that is always bounded.

use rand::RngExt;
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, Serialize};

/// A length in tokens: a number, or a table such as `{ distribution = "uniform", min = 100, max = 200 }`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Lengths {
    /// Always this many tokens.
    Exact(u32),
    /// Drawn anew for every request.
    Spread(Spread),
}

/// A bounded distribution of lengths. Draws outside of the bounds are moved to the nearer one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "distribution", rename_all = "snake_case", deny_unknown_fields)]
pub enum Spread {
    /// Every length from `min` to `max` alike.
    Uniform {
        /// Smallest, tokens.
        min: u32,
        /// Largest, tokens.
        max: u32,
    },
    /// Gauss's bell.
    Normal {
        /// Mean, tokens.
        mean: f64,
        /// Standard deviation, tokens.
        stdev: f64,
        /// Smallest, tokens.
        min: u32,
        /// Largest, tokens.
        max: u32,
    },
    /// The logarithm is normal: many short ones, few very long ones, as people's chats are.
    Lognormal {
        /// Median, tokens.
        median: f64,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
        /// Smallest, tokens.
        min: u32,
        /// Largest, tokens.
        max: u32,
    },
    /// A list of lengths, each with its weight.
    Weighted {
        /// Lengths in tokens.
        values: Vec<u32>,
        /// Weight of each, in the same order; any scale.
        weights: Vec<f64>,
    },
}

impl Lengths {
    /// One draw, tokens.
    pub fn draw(&self, rng: &mut impl rand::Rng) -> u32 {
        let spread = match self {
            Lengths::Exact(n) => return *n,
            Lengths::Spread(s) => s,
        };
        let bounded = |x: f64, min: u32, max: u32| (x.round().clamp(0.0, f64::from(u32::MAX)) as u32).clamp(min, max);
        match spread {
            Spread::Uniform { min, max } => rng.random_range(*min..=*max),
            Spread::Normal { mean, stdev, min, max } => bounded(mean + stdev * normal(rng), *min, *max),
            Spread::Lognormal { median, sigma, min, max } => bounded(median * (sigma * normal(rng)).exp(), *min, *max),
            Spread::Weighted { values, weights } => {
                let mut left = rng.random::<f64>() * weights.iter().sum::<f64>();
                for (v, w) in values.iter().zip(weights) {
                    if left < *w {
                        return *v;
                    }
                    left -= w;
                }
                values.last().copied().unwrap_or(1)
            }
        }
    }

    /// Smallest and largest draw, tokens.
    pub fn bounds(&self) -> (u32, u32) {
        match self {
            Lengths::Exact(n) => (*n, *n),
            Lengths::Spread(
                Spread::Uniform { min, max } | Spread::Normal { min, max, .. } | Spread::Lognormal { min, max, .. },
            ) => (*min, *max),
            Lengths::Spread(Spread::Weighted { values, .. }) => {
                (values.iter().copied().min().unwrap_or(1), values.iter().copied().max().unwrap_or(1))
            }
        }
    }

    /// Says what is wrong with the settings, if anything is.
    pub(super) fn fault(&self) -> Option<String> {
        let (min, max) = self.bounds();
        if min == 0 {
            return Some("a length of 0 tokens, expected at least 1".into());
        }
        if min > max {
            return Some(format!("lengths from {min} to {max} tokens, expected min not above max"));
        }
        match self {
            Lengths::Spread(Spread::Normal { mean, stdev, .. }) if !(*mean > 0.0 && *stdev >= 0.0) => {
                Some(format!("mean {mean} and stdev {stdev}, expected a positive mean and a stdev of 0 or more"))
            }
            Lengths::Spread(Spread::Lognormal { median, sigma, .. }) if !(*median > 0.0 && *sigma >= 0.0) => {
                Some(format!("median {median} and sigma {sigma}, expected a positive median and a sigma of 0 or more"))
            }
            Lengths::Spread(Spread::Weighted { values, weights }) => {
                let sound = !values.is_empty()
                    && values.len() == weights.len()
                    && weights.iter().all(|w| w.is_finite() && *w >= 0.0)
                    && weights.iter().sum::<f64>() > 0.0;
                (!sound).then(|| {
                    format!(
                        "{} values with {} weights, expected as many of both, and a positive sum",
                        values.len(),
                        weights.len()
                    )
                })
            }
            _ => None,
        }
    }
}

/// One standard normal draw, by Box and Muller.
fn normal(rng: &mut impl rand::Rng) -> f64 {
    let u = 1.0 - rng.random::<f64>();
    let v = rng.random::<f64>();
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

impl<'de> Deserialize<'de> for Lengths {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Lengths, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Lengths;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number of tokens, or a table with its `distribution`")
            }
            fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<Lengths, E> {
                u32::try_from(n)
                    .map(Lengths::Exact)
                    .map_err(|_| E::custom(format!("{n} tokens, expected at most {}", u32::MAX)))
            }
            fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<Lengths, E> {
                u32::try_from(n).map(Lengths::Exact).map_err(|_| E::custom(format!("{n} tokens, expected 1 or more")))
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Lengths, A::Error> {
                Spread::deserialize(MapAccessDeserializer::new(map)).map(Lengths::Spread)
            }
        }
        d.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn a_number_and_every_distribution_are_read_and_stay_in_bounds() {
        #[derive(Deserialize)]
        struct Holder {
            n: Lengths,
        }
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(7);
        for (text, mean) in [
            ("n = 128", 128.0),
            (r#"n = { distribution = "uniform", min = 100, max = 200 }"#, 150.0),
            (r#"n = { distribution = "normal", mean = 150.0, stdev = 10.0, min = 100, max = 200 }"#, 150.0),
            (r#"n = { distribution = "lognormal", median = 150, sigma = 0.1, min = 100, max = 250 }"#, 150.75),
            (r#"n = { distribution = "weighted", values = [100, 200], weights = [1, 3] }"#, 175.0),
        ] {
            let lengths = toml::from_str::<Holder>(text).unwrap().n;
            assert_eq!(lengths.fault(), None, "{text}");
            let (min, max) = lengths.bounds();
            let draws: Vec<u32> = (0..4_000).map(|_| lengths.draw(&mut rng)).collect();
            assert!(draws.iter().all(|n| (min..=max).contains(n)), "{text}");
            let got = draws.iter().map(|n| f64::from(*n)).sum::<f64>() / 4_000.0;
            assert!((got - mean).abs() < 2.5, "{text}: mean {got}");
        }
        for bad in [r#"n = { distribution = "uniform", min = 1, max = 2, mean = 3 }"#, "n = -1", r#"n = "many""#] {
            assert!(toml::from_str::<Holder>(bad).is_err(), "{bad}");
        }
        assert!(Lengths::Exact(0).fault().is_some());
    }
}
