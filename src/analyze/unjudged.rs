//! Steps of which nothing can be said: which, why, and what would mend it.
//!
//! A quantile asks for observations. That a P99 is *above* its limit shows early: whatever else came,
//! enough misses of a hundred are too many. That it is *below* cannot be shown by few: of n requests that
//! all keep the limit, the share of those that miss it may still be 1 − 0.05^(1/n), with 95 % confidence; that falls
//! below 1 % only at 299. No interval of fewer observations helps, since none is free of an assumption
//! about the tail, which is what is asked. So a quantile rule waits for 100, and a step in which they do not come
//! is not judged. It takes nothing from a step above it that is clean by the same rules: that more
//! load does not put out an alert is what the whole ladder rests on, and where a run shows otherwise, the
//! lowest firing level is the answer.

use crate::model::step::StepSpan;
use crate::model::units::prometheus_duration;
use crate::model::verdict::{AlertState, Caveat, StepOutcome, StepVerdict, Verdict};
use crate::rules::ENOUGH;

use super::Analysis;

/// How much longer than reckoned a step should be given, so that chance does not fail it again.
const SPARE: f64 = 1.25;

impl Analysis<'_> {
    /// What stands in the way of judging the steps that could not be, drawn together.
    pub(super) fn unjudged(&self, verdict: &Verdict) -> Vec<Caveat> {
        let open = |s: &&StepVerdict| s.outcome == StepOutcome::Inconclusive;
        let (few, other): (Vec<&StepVerdict>, Vec<&StepVerdict>) =
            verdict.steps.iter().filter(open).partition(|s| self.observations(s).is_some());
        let mut out = Vec::new();
        if let Some(worst) = few.iter().filter_map(|s| self.observations(s)).reduce(f64::min) {
            let longest = few.iter().filter_map(|s| self.time_needed(s)).reduce(f64::max);
            let hint = match (longest, verdict.highest_clean_concurrency) {
                (Some(s), clean) => format!(
                    "--max-hold {} would bring enough of them at the pace seen{}",
                    prometheus_duration(std::time::Duration::from_secs(s.ceil() as u64)),
                    clean.map_or_else(String::new, |c| format!("; or begin the ladder at {c}"))
                ),
                (None, _) => "shorten the requests, or look why they take so long".into(),
            };
            let says = format!(
                "{} not judged for lack of observations: a P99 needs {ENOUGH:.0}, and the fewest were {worst:.0}",
                levels(&few)
            );
            out.push(Caveat::new("few_observations", says, hint));
        }
        if !other.is_empty() {
            let says = format!("{} not judged: {}", levels(&other), reasons(&other));
            out.push(Caveat::new(
                "inconclusive_steps",
                says,
                "no data, or a rule that cannot be evaluated, is never a pass",
            ));
        }
        out
    }

    /// Observations of the quantile rule that has the fewest, where it is their lack that a step
    /// could not be judged for.
    fn observations(&self, step: &StepVerdict) -> Option<f64> {
        let span = self.span(step).filter(|s| s.cut_short.is_none())?;
        let missing = self.observations_missing(span, step) as f64;
        let blocked = step.alerts.iter().filter(|a| blocks(a.state)).count();
        (missing > 0.0 && blocked > 0 && blocked == self.judge.lack_observations(span, &step.alerts))
            .then_some(ENOUGH - missing)
    }

    /// Seconds in which a step would have had enough of them; `None` if it had none at all.
    fn time_needed(&self, step: &StepVerdict) -> Option<f64> {
        let seen = self.observations(step).filter(|n| *n > 0.0)?;
        Some((step.measured_s[1] - step.measured_s[0]) * ENOUGH / seen * SPARE)
    }

    fn span(&self, step: &StepVerdict) -> Option<&StepSpan> {
        self.recording.steps.iter().find(|s| s.step == step.step)
    }
}

fn blocks(state: AlertState) -> bool {
    matches!(state, AlertState::NotEvaluable | AlertState::NoData)
}

/// `1, 2 and 4 were`; a level that was run more than once is named once.
fn levels(steps: &[&StepVerdict]) -> String {
    let mut levels: Vec<f64> = steps.iter().map(|s| s.concurrency).collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    let names: Vec<String> = levels.iter().map(f64::to_string).collect();
    match names.split_last() {
        Some((last, [])) => format!("the step at {last} was"),
        Some((last, rest)) => format!("the steps at {} and {last} were", rest.join(", ")),
        None => "no step was".into(),
    }
}

/// Why, each reason once, with the rules that it stands in the way of.
fn reasons(steps: &[&StepVerdict]) -> String {
    let mut out: Vec<(String, Vec<&str>)> = Vec::new();
    for step in steps {
        if step.cut_short.is_some() {
            let says = "the step was cut short".to_owned();
            if !out.iter().any(|(s, _)| *s == says) {
                out.push((says, Vec::new()));
            }
            continue;
        }
        for alert in step.alerts.iter().filter(|a| blocks(a.state)) {
            let because = alert.because.clone().unwrap_or_default();
            match out.iter_mut().find(|(says, _)| *says == because) {
                Some((_, names)) if names.contains(&alert.alert.as_str()) => {}
                Some((_, names)) => names.push(&alert.alert),
                None => out.push((because, vec![&alert.alert])),
            }
        }
    }
    const MOST: usize = 3;
    let said: Vec<String> = out
        .iter()
        .take(MOST)
        .map(|(says, names)| match names.as_slice() {
            [] => says.clone(),
            [one] => format!("{one}: {says}"),
            [one, rest @ ..] => format!("{one} and {} more: {says}", rest.len()),
        })
        .collect();
    let more = if out.len() > MOST { format!("; and {} more reasons", out.len() - MOST) } else { String::new() };
    if said.is_empty() { "see their own caveats".into() } else { said.join("; ") + &more }
}
