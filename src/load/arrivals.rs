//! When an open loop sends: arrival times drawn ahead of the clock, as a function of the seed.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use crate::model::time::Offset;

/// The pattern of an open loop's arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ArrivalSpec {
    /// How the gaps between arrivals are drawn.
    pub pattern: ArrivalPattern,
    /// Shape of the gamma distribution: 1 is Poisson, below 1 comes in bursts, above 1 is more even. Only with `gamma`.
    pub burstiness: f64,
    /// Most requests in flight; what is due beyond that waits here, and its latency counts the wait.
    pub max_in_flight: u32,
}

impl Default for ArrivalSpec {
    fn default() -> ArrivalSpec {
        ArrivalSpec { pattern: ArrivalPattern::Poisson, burstiness: 1.0, max_in_flight: 4_096 }
    }
}

/// How the gaps between arrivals are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrivalPattern {
    /// All alike.
    Constant,
    /// Exponentially: people who know nothing of each other.
    Poisson,
    /// From a gamma distribution.
    Gamma,
    /// As the workload's trace has them, scaled to the rate; Poisson where it has none.
    Trace,
}

/// A rate that goes from one value to another in a straight line and then stays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatePlan {
    /// When the change begins.
    pub start: Offset,
    /// Rate at the start, requests per second.
    pub from: f64,
    /// Rate after the ramp, requests per second.
    pub to: f64,
    /// Length of the change.
    pub ramp: Duration,
}

impl RatePlan {
    /// Rate at `at`, requests per second.
    pub fn rate(&self, at: Offset) -> f64 {
        let (t, ramp) = (at.since(self.start).as_secs_f64(), self.ramp.as_secs_f64());
        if t >= ramp { self.to } else { self.from + (self.to - self.from) * t / ramp }
    }

    /// The instant by which `arrivals` are expected since the start; `None` if the rate ends at 0 before that.
    fn reached(&self, arrivals: f64) -> Option<Offset> {
        let (r0, r1, ramp) = (self.from, self.to, self.ramp.as_secs_f64());
        let in_ramp = (r0 + r1) / 2.0 * ramp;
        let t = if arrivals < in_ramp {
            // The area under the line up to t: r0 t + a t².
            let a = (r1 - r0) / (2.0 * ramp);
            if a.abs() < 1e-12 {
                arrivals / r0
            } else {
                ((r0 * r0 + 4.0 * a * arrivals).max(0.0).sqrt() - r0) / (2.0 * a)
            }
        } else if r1 > 0.0 {
            ramp + (arrivals - in_ramp) / r1
        } else {
            return None;
        };
        Duration::try_from_secs_f64(t).ok().map(|t| self.start + t)
    }
}

/// Draws arrival times.
#[derive(Clone, Debug)]
pub struct Arrivals {
    spec: ArrivalSpec,
    rng: Pcg64Mcg,
    plan: RatePlan,
    /// Arrivals since the plan's start that the next one makes, in units of mean gaps.
    mass: f64,
    /// Recorded gaps in units of their mean, and which one is next.
    recorded: Vec<f64>,
    next: usize,
}

impl Arrivals {
    /// Arrivals after `plan`, from `seed`; `recorded` gaps, in units of their mean, are for the pattern `trace`.
    pub fn new(spec: ArrivalSpec, seed: u64, plan: RatePlan, recorded: Vec<f64>) -> Arrivals {
        let rng = Pcg64Mcg::seed_from_u64(seed ^ 0x6172_7269_7661_6c73);
        Arrivals { spec, rng, plan, mass: 0.0, recorded, next: 0 }
    }

    /// Goes on with another plan.
    pub fn follow(&mut self, plan: RatePlan) {
        (self.plan, self.mass) = (plan, 0.0);
    }

    /// When the next request is due; `None` if none will be.
    pub fn draw(&mut self) -> Option<Offset> {
        self.mass += match self.spec.pattern {
            ArrivalPattern::Constant => 1.0,
            ArrivalPattern::Trace if !self.recorded.is_empty() => {
                let gap = self.recorded[self.next % self.recorded.len()];
                self.next += 1;
                gap
            }
            ArrivalPattern::Poisson | ArrivalPattern::Trace => self.exponential(),
            ArrivalPattern::Gamma => self.gamma(self.spec.burstiness.max(1e-3)),
        };
        self.plan.reached(self.mass)
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.rng.random::<f64>()).ln()
    }

    fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.rng.random::<f64>(), self.rng.random::<f64>());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// A gamma draw of the given shape with mean 1 (Marsaglia and Tsang, 2000).
    fn gamma(&mut self, shape: f64) -> f64 {
        let raised = if shape < 1.0 { shape + 1.0 } else { shape };
        let d = raised - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        let drawn = loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            let u = 1.0 - self.rng.random::<f64>();
            if v > 0.0 && u.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                break d * v;
            }
        };
        let lowered = if shape < 1.0 { drawn * (1.0 - self.rng.random::<f64>()).powf(1.0 / shape) } else { drawn };
        lowered / shape
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(pattern: ArrivalPattern, burstiness: f64) -> Vec<f64> {
        let spec = ArrivalSpec { pattern, burstiness, ..ArrivalSpec::default() };
        let plan = RatePlan { start: Offset::ZERO, from: 50.0, to: 50.0, ramp: Duration::ZERO };
        let mut arrivals = Arrivals::new(spec, 3, plan, Vec::new());
        let times: Vec<f64> = (0..20_000).map(|_| arrivals.draw().unwrap().as_secs_f64()).collect();
        times.windows(2).map(|w| w[1] - w[0]).collect()
    }

    #[test]
    fn each_pattern_has_its_rate_and_its_spread() {
        // The coefficient of variation is 0, 1, and 1/sqrt(shape).
        for (pattern, burstiness, cv) in [
            (ArrivalPattern::Constant, 1.0, 0.0),
            (ArrivalPattern::Poisson, 1.0, 1.0),
            (ArrivalPattern::Gamma, 0.25, 2.0),
            (ArrivalPattern::Gamma, 4.0, 0.5),
        ] {
            let gaps = gaps(pattern, burstiness);
            let n = gaps.len() as f64;
            let mean = gaps.iter().sum::<f64>() / n;
            let var = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / n;
            assert!((mean - 0.02).abs() < 0.001, "{pattern:?}: mean {mean}");
            assert!((var.sqrt() / mean - cv).abs() < 0.08, "{pattern:?}: cv {}", var.sqrt() / mean);
        }
    }

    #[test]
    fn a_ramp_adds_up_to_its_area() {
        let plan = RatePlan { start: Offset::from_millis(1_000), from: 0.0, to: 20.0, ramp: Duration::from_secs(10) };
        let spec = ArrivalSpec { pattern: ArrivalPattern::Constant, ..ArrivalSpec::default() };
        let mut arrivals = Arrivals::new(spec, 1, plan, Vec::new());
        let times: Vec<Offset> = (0..140).map(|_| arrivals.draw().unwrap()).collect();
        assert_eq!(times[99], Offset::from_millis(11_000), "half of 20 a second for 10 s");
        assert_eq!(times[139], Offset::from_millis(13_000));
        assert_eq!(plan.rate(Offset::from_millis(6_000)), 10.0);
        let stop = RatePlan { from: 20.0, to: 0.0, ramp: Duration::from_secs(1), ..plan };
        arrivals.follow(stop);
        assert_eq!(std::iter::from_fn(|| arrivals.draw()).count(), 9, "the tenth would be due when the rate is 0");
    }
}
