//! The checks of a gate against the run that is its baseline.

use super::{AGAINST, gate};
use crate::compare::{self, Settings};
use crate::model::comparison::{Change, Comparison, Judgement, Metric};
use crate::model::verdict::{Caveat, Check, CheckState, StepVerdict, Verdict};
use crate::scenario::{GateSpec, Scenario};

/// Holds a run against the baseline of its gate: fills in [`Verdict::comparison`], and puts its checks into the gate.
pub fn hold_against(verdict: &mut Verdict, scenario: &Scenario, baseline: &Verdict) {
    let Some(spec) = scenario.gate.as_ref().filter(|g| g.against.is_some()) else { return };
    let comparison = compare::compare(baseline, verdict, Settings { run_noise: spec.run_noise.0 });
    let mut checks = verdict.gate.take().map(|g| g.checks).unwrap_or_default();
    checks.retain(|c| c.check != AGAINST);
    checks.extend(regressions(&comparison, spec, verdict.slo.error_rate_ratio));
    verdict.gate = Some(gate(checks));
    let tails = comparison.changes.iter().filter(|c| c.level.is_some() && is_tail(c.metric));
    let untold = tails.filter(|c| c.judgement == Judgement::CannotTell).count();
    if untold > 0 && comparison.incomparable.is_empty() {
        verdict.caveats.push(Caveat::new(
            "tails_not_compared",
            format!(
                "of {untold} 99th percentiles nobody can tell whether they changed; the gate does not vouch for them"
            ),
            "hold the steps longer, or set a threshold on the percentile that matters",
        ));
    }
    // Of a level that was run with too few requests nothing can be told either; here there were enough.
    let blind = |s: &StepVerdict| s.client.noise.e2e_p50_ratio.is_some() && s.client.noise.ttft_p50_ratio.is_none();
    if comparison.incomparable.is_empty() && verdict.steps.iter().any(blind) {
        verdict.caveats.push(Caveat::new(
            "streams_in_step",
            "answers are all of one length, so streams keep step with each other: how many send together is chance, and \
             differs from run to run; no change of the time to first token can be told from it",
            "let lengths vary, e.g. output_tokens = { distribution = \"uniform\", min = 64, max = 192 }",
        ));
    }
    verdict.comparison = Some(comparison);
}

/// Whether a metric is a tail: too noisy in a run of minutes for the gate to demand that it be shown to be no worse.
fn is_tail(metric: Metric) -> bool {
    matches!(metric, Metric::TtftP99 | Metric::GapP99)
}

/// One check for the limit and one for each metric; of tails only those that got worse.
fn regressions(c: &Comparison, spec: &GateSpec, error_target: f64) -> Vec<Check> {
    if let Some(first) = c.incomparable.first() {
        let says = format!("not comparable: {} was {}, and is {}", first.what, first.base, first.new);
        return vec![Check { check: AGAINST.into(), state: CheckState::Unresolved, measured: None, says }];
    }
    if c.changes.is_empty() {
        let says = "the two runs have no level in common".into();
        return vec![Check { check: AGAINST.into(), state: CheckState::Unresolved, measured: None, says }];
    }
    let mut checks = vec![limit(c)];
    for metric in Metric::ALL {
        let of = || c.changes.iter().filter(move |x| x.metric == metric);
        // All levels together; where only one was run, that one.
        let Some(overall) = of().find(|x| x.level.is_none()).or_else(|| of().next()) else { continue };
        let worse: Vec<&Change> = of().filter(|x| x.judgement == Judgement::Worse).collect();
        let allowed = if metric == Metric::ErrorRate { error_target } else { spec.max_regression.0 };
        let check = format!("{} no worse", metric.name());
        let percent = |x: f64| format!("{:+.1} %", x * 100.0);
        let effect = overall.effect_ratio;
        let change = effect.map_or_else(|| "unknown".into(), percent);
        let (state, says) = match (worse.first(), overall.worst_ratio) {
            (Some(first), _) => {
                let at = |c: &Change| c.level.map_or_else(|| "over all levels".into(), |l| format!("at {l}"));
                let by = first.effect_ratio.map_or_else(String::new, percent);
                let more = if worse.len() > 1 { format!(", and {} more", worse.len() - 1) } else { String::new() };
                (CheckState::Failed, format!("{by} {}{more}", at(first)))
            }
            // No claim is made of a tail that did not surely get worse.
            _ if is_tail(metric) => continue,
            (None, Some(worst)) if worst <= allowed => {
                (CheckState::Passed, format!("{change}; worse by at most {:.1} %", worst.max(0.0) * 100.0))
            }
            (None, Some(worst)) => (
                CheckState::Unresolved,
                format!(
                    "{change}, but worse by up to {:.1} % cannot be ruled out; {:.0} % is allowed",
                    worst * 100.0,
                    allowed * 100.0
                ),
            ),
            (None, None) => (CheckState::Unresolved, format!("{change}, and no interval can be given")),
        };
        checks.push(Check { check, state, measured: effect, says });
    }
    checks
}

/// The first-alert concurrency may not have fallen.
fn limit(c: &Comparison) -> Check {
    let word = |[clean, firing]: [Option<f64>; 2]| {
        let level = |l: Option<f64>| l.map_or_else(|| "none".into(), |x| x.to_string());
        format!("{} clean, {} firing", level(clean), level(firing))
    };
    let says = format!("{}; the baseline: {}", word(c.limit.new), word(c.limit.base));
    let state = match (c.limit.judgement, c.limit.base[0], c.limit.new[0]) {
        (Judgement::Worse, ..) => CheckState::Failed,
        (Judgement::Same | Judgement::Better, ..) => CheckState::Passed,
        // As many were clean as before; that more were is not asked.
        (Judgement::CannotTell, Some(base), Some(new)) if new >= base => CheckState::Passed,
        // Nothing was clean before, so nothing can have been lost.
        (Judgement::CannotTell, None, _) if c.limit.base[1].is_some() => CheckState::Passed,
        _ => CheckState::Unresolved,
    };
    Check { check: "limit no lower".into(), state, measured: c.limit.new[0], says }
}
