//! The checks of the gate. What cannot be shown is unresolved, which is not a pass: a threshold passes or fails
//! if the 95 % interval of its number lies wholly on one side of the limit.

use std::cell::LazyCell;

use super::Analysis;
use super::client::{self, Samples};
use super::noise::{self, Of};
use crate::compare::critical;
use crate::diagnose::FORBIDDEN_SHARE;
use crate::model::sample::Labels;
use crate::model::step::StepSpan;
use crate::model::time::Offset;
use crate::model::verdict::{
    AlertState, AlertVerdict, Check, CheckState, Gate, Quantiles, StepOutcome, StepVerdict, Verdict,
};
use crate::scenario::{Latency, Measure, Says, Statistic, Threshold};

mod baseline;

pub use baseline::hold_against;

/// Fewest samples of which a 99th percentile decides anything.
const ENOUGH_FOR_P99: u64 = 100;
/// Both tails of a 95 % interval.
const TAIL: f64 = 0.025;

/// A step with what the client saw in it, once that is asked for.
type Seen<'a, F> = (&'a StepSpan, LazyCell<Samples, F>);

impl Analysis<'_> {
    /// Every check but those against a baseline, which are unresolved until [`hold_against`] is given it.
    pub(super) fn gate(&self, verdict: &Verdict) -> Option<Gate> {
        let spec = self.scenario.gate.as_ref()?;
        // Measured when the first threshold asks for the step, and once for all of them.
        let seen: Vec<Seen<_>> = self.recording.steps.iter().map(|span| (span, self.seen(span))).collect();
        let mut checks: Vec<Check> = Vec::new();
        checks.extend(spec.min_clean_concurrency.map(|least| min_clean(verdict, least)));
        checks.extend(spec.thresholds.iter().map(|t| self.threshold(t, &seen, verdict)));
        if spec.against.is_some() {
            let says = "the baseline was not read".into();
            checks.push(Check { check: AGAINST.into(), state: CheckState::Unresolved, measured: None, says });
        }
        if let Some(why) = &verdict.void {
            for check in &mut checks {
                *check = Check {
                    check: check.check.clone(),
                    state: CheckState::Unresolved,
                    measured: None,
                    says: format!("the run is void: {why}"),
                };
            }
        }
        (!checks.is_empty()).then(|| gate(checks))
    }

    /// Whether a threshold on the level of `span` cannot be decided yet by what was seen.
    pub fn gate_undecided(&self, span: &StepSpan) -> bool {
        let level = span.load.level();
        let thresholds = self.scenario.gate.iter().flat_map(|g| &g.thresholds).filter(|t| t.at == Some(level));
        let seen = self.seen(span);
        thresholds
            .filter_map(|t| match &t.says {
                Says::Number { of, must, limit } => Some(self.number(*of, &seen, &[span]).state(*must, *limit)),
                Says::Not(_) => None,
            })
            .any(|state| state == CheckState::Unresolved)
    }

    /// What the client saw in a step, once it is asked for.
    fn seen(&self, span: &StepSpan) -> LazyCell<Samples, impl FnOnce() -> Samples> {
        LazyCell::new(move || client::measure(&self.recording.requests, span, &self.slo).samples)
    }

    fn threshold<F: FnOnce() -> Samples>(&self, t: &Threshold, seen: &[Seen<'_, F>], verdict: &Verdict) -> Check {
        let whole = |(s, _): &&Seen<'_, F>| s.cut_short.is_none() && t.at.is_none_or(|at| s.load.level() == at);
        let seen: Vec<&Seen<'_, F>> = seen.iter().filter(whole).collect();
        let spans: Vec<&StepSpan> = seen.iter().map(|(span, _)| *span).collect();
        let check = |state, measured, says: String| Check { check: t.text.clone(), state, measured, says };
        if spans.is_empty() {
            let at = t.at.map_or_else(String::new, |at| format!(" at {at}"));
            return check(CheckState::Unresolved, None, format!("no whole step was run{at}"));
        }
        match &t.says {
            Says::Not(name) => self.forbidden(t, name, &spans, verdict),
            Says::Number { of, must, limit } => {
                let mut groups: Vec<(Option<f64>, Vec<&Seen<'_, F>>)> = Vec::new();
                for step in seen {
                    // Failures are rare: without a level they are counted over the whole run.
                    let level = (*of != Measure::ErrorRate || t.at.is_some()).then(|| step.0.load.level());
                    match groups.iter_mut().find(|(l, _)| *l == level) {
                        Some((_, steps)) => steps.push(step),
                        None => groups.push((level, vec![step])),
                    }
                }
                let found = groups.into_iter().map(|(level, steps)| {
                    let mut samples = Samples::default();
                    for (_, one) in &steps {
                        samples.append(Samples::clone(one));
                    }
                    let spans: Vec<&StepSpan> = steps.iter().map(|(span, _)| *span).collect();
                    let number = self.number(*of, &samples, &spans);
                    (number.state(*must, *limit), level, number)
                });
                // The worst stands for all.
                let Some((state, level, number)) = found.max_by_key(|(state, ..)| severity(*state)) else {
                    return check(CheckState::Unresolved, None, "no whole step was run".into());
                };
                let at = level.filter(|_| t.at.is_none()).map_or_else(String::new, |l| format!("at {l}: "));
                check(state, number.value, format!("{at}{}", number.words(*of)))
            }
        }
    }

    /// The number that a threshold speaks of, with its interval.
    fn number(&self, of: Measure, samples: &Samples, spans: &[&StepSpan]) -> Number {
        let stats = samples.stats();
        let bootstrap = |value: Option<f64>, what: Of, x: &[(Offset, f64)]| {
            let ends = value.zip(noise::error(samples, what, x)).map(|(v, (se, df))| {
                let off = critical(TAIL, df) * se;
                [Some(v * (-off).exp()), Some(v * off.exp())]
            });
            Number { value, interval: ends.unwrap_or([None, None]), n: x.len() as u64 }
        };
        match of {
            Measure::Latency(latency, statistic) => {
                let (q, x): (&Quantiles, &[(Offset, f64)]) = match latency {
                    Latency::Ttft => (&stats.ttft_s, &samples.ttft),
                    Latency::Gap => (&stats.gap_s, &samples.gaps),
                    Latency::Itl => (&stats.itl_s, &samples.itl),
                    Latency::Tpot => (&stats.tpot_s, &samples.tpot),
                    Latency::E2e => (&stats.e2e_s, &samples.e2e),
                };
                match statistic {
                    Statistic::Mean => bootstrap(q.mean, Of::Mean, x),
                    Statistic::P50 => bootstrap(q.p50, Of::Quantile(0.5), x),
                    Statistic::P90 => bootstrap(q.p90, Of::Quantile(0.9), x),
                    Statistic::P99 => p99(q, bootstrap(q.p99, Of::Quantile(0.99), x)),
                    // The largest that was seen is a fact, not an estimate.
                    Statistic::Max => Number { value: q.max, interval: [q.max; 2], n: q.n },
                }
            }
            Measure::ErrorRate => {
                let n = samples.completed + samples.failed;
                Number { value: stats.error_rate_ratio, interval: wilson(samples.failed, n), n }
            }
            Measure::OutputTokens => bootstrap(stats.output_tokens_per_s, Of::Sum, &samples.output_tokens),
            Measure::PromptTokens => bootstrap(stats.prompt_tokens_per_s, Of::Sum, &samples.prompt_tokens),
            Measure::Goodput => bootstrap(stats.goodput_per_s, Of::Sum, &samples.good),
            Measure::Preemptions | Measure::PrefixCacheHits | Measure::DraftAcceptance => {
                let known: Vec<f64> = spans
                    .iter()
                    .filter_map(|s| self.judge.server_stats(s))
                    .filter_map(|s| match of {
                        Measure::Preemptions => s.preemptions,
                        Measure::PrefixCacheHits => s.prefix_cache_hit_rate,
                        _ => s.draft_acceptance_rate,
                    })
                    .collect();
                let sum: f64 = known.iter().sum();
                let value = match of {
                    _ if known.is_empty() => None,
                    Measure::Preemptions => Some(sum),
                    _ => Some(sum / known.len() as f64),
                };
                // The server counted them all.
                Number { value, interval: [value; 2], n: known.len() as u64 }
            }
        }
    }

    /// An alert that must not fire, or a pair that must not hold, in any of `spans`.
    fn forbidden(&self, t: &Threshold, name: &str, spans: &[&StepSpan], verdict: &Verdict) -> Check {
        let check = |state, measured, says: String| Check { check: t.text.clone(), state, measured, says };
        let Some(rule) = self.judge.rules().find(name) else {
            return check(CheckState::Unresolved, None, format!("there is no rule {name}"));
        };
        if rule.explains.is_none() {
            let all: Vec<_> = spans
                .iter()
                .filter_map(|s| verdict.steps.iter().find(|v| v.step == s.step))
                .flat_map(|s| s.alerts.iter().filter(|a| a.alert == name).map(move |a| (s.concurrency, a.state)))
                .collect();
            let at = |state| all.iter().find(|(_, s)| *s == state).map(|(level, _)| *level);
            return if let Some(level) = at(AlertState::Firing) {
                check(CheckState::Failed, Some(level), format!("it fired at {level}"))
            } else if let Some(level) = at(AlertState::NoData).or(at(AlertState::NotEvaluable)) {
                check(CheckState::Unresolved, None, format!("it could not be judged at {level}"))
            } else {
                check(CheckState::Passed, None, format!("it did not fire in {} steps", spans.len()))
            };
        }
        let over_run = rule.annotations.get("plimsoll_view").is_some_and(|v| v == "run");
        let mut most: Option<(f64, f64)> = None;
        let mut unread = None;
        for span in spans {
            let window = self.judge.window(span.measured);
            let held = if over_run {
                self.judge.held_over_run(&rule.expr, None, window, &Labels::default())
            } else {
                self.judge.lens(span.whole()).held_while(&rule.expr, None, window, &Labels::default())
            };
            if held.of == 0 || !self.judge.reads_any(rule, span) {
                unread.get_or_insert(span.load.level());
            } else if most.is_none_or(|(share, _)| held.share() > share) {
                most = Some((held.share(), span.load.level()));
            }
        }
        match (most, unread) {
            (Some((share, level)), _) if share >= FORBIDDEN_SHARE => check(
                CheckState::Failed,
                Some(share),
                format!("it held for {:.0} % of the step at {level}", share * 100.0),
            ),
            (_, Some(level)) => check(CheckState::Unresolved, None, format!("what it reads was not there at {level}")),
            (Some((share, _)), None) => {
                check(CheckState::Passed, Some(share), format!("it held for at most {:.0} % of a step", share * 100.0))
            }
            (None, None) => check(CheckState::Unresolved, None, "no whole step was run".into()),
        }
    }
}

/// A number with its 95 % interval; an end that is not known is `None`.
struct Number {
    value: Option<f64>,
    interval: [Option<f64>; 2],
    n: u64,
}

impl Number {
    fn state(&self, must: crate::scenario::Compare, limit: f64) -> CheckState {
        match self.interval.map(|end| end.map(|x| must.holds(x, limit))) {
            _ if self.value.is_none() => CheckState::Unresolved,
            [Some(true), Some(true)] => CheckState::Passed,
            [Some(false), Some(false)] => CheckState::Failed,
            // One end is not known. A number may still be shown to miss its limit by the other.
            [Some(false), None] if matches!(must, crate::scenario::Compare::Below { .. }) => CheckState::Failed,
            _ => CheckState::Unresolved,
        }
    }

    fn words(&self, of: Measure) -> String {
        let word = |x: Option<f64>| x.map_or_else(|| "unknown".into(), |x| of.words(x));
        let [low, high] = self.interval;
        let value = word(self.value);
        match (low, high) {
            (None, None) => format!("{value}, of too few samples ({}) for an interval", self.n),
            _ if low == high => value,
            _ => format!("{value}, 95 % interval {} to {}, of {} samples", word(low), word(high), self.n),
        }
    }
}

/// A 99th percentile by order statistics, or by bootstrap where that is wider: requests of one moment are not independent.
fn p99(q: &Quantiles, bootstrap: Number) -> Number {
    let [low, high] = q.p99_ci95.unwrap_or([None, None]);
    let [wide_low, wide_high] = bootstrap.interval;
    let low = low.map(|l| wide_low.map_or(l, |w| w.min(l)));
    let high = high.filter(|_| q.n >= ENOUGH_FOR_P99).map(|h| wide_high.map_or(h, |w| w.max(h)));
    Number { value: q.p99, interval: [low, high], n: q.n }
}

/// Wilson's 95 % interval of a share.
fn wilson(hits: u64, n: u64) -> [Option<f64>; 2] {
    if n == 0 {
        return [None, None];
    }
    let (x, n) = (hits as f64, n as f64);
    let z = critical(TAIL, f64::INFINITY);
    let (p, zz) = (x / n, z * z);
    let centre = p + zz / (2.0 * n);
    let off = z * (p * (1.0 - p) / n + zz / (4.0 * n * n)).sqrt();
    [centre - off, centre + off].map(|e| Some((e / (1.0 + zz / n)).clamp(0.0, 1.0)))
}

fn gate(checks: Vec<Check>) -> Gate {
    Gate { passed: checks.iter().all(|c| c.state == CheckState::Passed), checks }
}

fn severity(state: CheckState) -> u8 {
    match state {
        CheckState::Failed => 2,
        CheckState::Unresolved => 1,
        CheckState::Passed => 0,
    }
}

fn min_clean(verdict: &Verdict, least: f64) -> Check {
    let clean = verdict.highest_clean_concurrency;
    let (state, says) = match (clean, verdict.lowest_firing_concurrency) {
        (Some(c), _) if c >= least => (CheckState::Passed, format!("{c} were clean")),
        (c, Some(f)) if f <= least => {
            let up_to = c.map_or_else(|| "none was clean".into(), |c| format!("only {c} were clean"));
            (CheckState::Failed, format!("{up_to}, and an alert fired at {f}"))
        }
        (Some(c), _) => (CheckState::Unresolved, format!("{c} were clean, and nothing was shown for {least}")),
        (None, Some(f)) => (CheckState::Unresolved, format!("nothing was shown below {f}, where an alert fired")),
        (None, None) => (CheckState::Unresolved, format!("no step was clean: {}", unjudged(verdict))),
    };
    Check { check: format!("min_clean_concurrency >= {least}"), state, measured: clean, says }
}

/// Why the lowest level that was run could not be judged, in words.
fn unjudged(verdict: &Verdict) -> String {
    let open = |s: &&StepVerdict| s.outcome == StepOutcome::Inconclusive;
    let Some(step) = verdict.steps.iter().filter(open).min_by(|a, b| a.concurrency.total_cmp(&b.concurrency)) else {
        return "no step was run to its end".into();
    };
    let blind = |a: &&AlertVerdict| matches!(a.state, AlertState::NotEvaluable | AlertState::NoData);
    let alert = step.alerts.iter().find(blind).map(|a| match &a.because {
        Some(because) => format!("{}: {because}", a.alert),
        None => format!("{} had no data", a.alert),
    });
    let why = match step.cut_short {
        Some(_) => "it was cut short".into(),
        None => {
            alert.or_else(|| step.caveats.first().map(|c| c.says.clone())).unwrap_or_else(|| "no rule judges".into())
        }
    };
    format!("{} could not be judged: {why}", step.concurrency)
}

/// What the checks against a baseline are called where they cannot be made.
const AGAINST: &str = "against the baseline";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Compare;

    #[test]
    fn an_interval_on_one_side_decides() {
        let below = Compare::Below { or_equal: false };
        let above = Compare::Above { or_equal: false };
        let n = |low, high| Number { value: Some(1.0), interval: [low, high], n: 500 };
        for (number, must, expected) in [
            (n(Some(0.8), Some(0.9)), below, CheckState::Passed),
            (n(Some(0.8), Some(1.1)), below, CheckState::Unresolved),
            (n(Some(1.1), Some(1.2)), below, CheckState::Failed),
            (n(Some(1.1), None), below, CheckState::Failed),
            (n(Some(0.8), None), below, CheckState::Unresolved),
            (n(None, None), below, CheckState::Unresolved),
            (n(Some(1.1), Some(1.2)), above, CheckState::Passed),
            (n(Some(1.1), None), above, CheckState::Unresolved),
            (Number { value: None, interval: [None, None], n: 0 }, above, CheckState::Unresolved),
        ] {
            assert_eq!(number.state(must, 1.0), expected, "{:?}", number.interval);
        }
    }

    /// By hand: z = 1.96; 0 of n ends at z²/(n + z²).
    #[test]
    fn no_failure_among_few_shows_little() {
        let [low, high] = wilson(0, 1_000);
        assert!(low.unwrap().abs() < 1e-12);
        assert!((high.unwrap() - 3.841_5 / 1_003.841_5).abs() < 1e-6);
        assert_eq!(wilson(0, 0), [None, None]);
    }
}
