//! What the hardware has to do with the answer.

use std::collections::BTreeMap;

use crate::diagnose;
use crate::model::recording::Recording;
use crate::model::sample::{Labels, NAME, SourceKind};
use crate::model::time::Offset;
use crate::model::verdict::{Caveat, Explanation, HardwareLimit, RunOutcome, StepOutcome, StepVerdict, Verdict};
use crate::rules::Judge;

/// Each GPU's clock in the run's first clean step, MHz: what a later clock is held against.
const REFERENCE: &str = "plimsoll_gpu_reference_clock_mhz";

/// The reference clocks as series. In a step of less load than the first clean one a lower clock is no fault:
/// there the reference is NaN, with which nothing compares. No series without a clean step.
pub(super) fn reference_clocks(recording: &Recording, steps: &[StepVerdict]) -> Vec<(Labels, Vec<(Offset, f64)>)> {
    let Some(clean) = steps.iter().find(|s| s.outcome == StepOutcome::Clean) else { return Vec::new() };
    let clocks: BTreeMap<(&str, &str), f64> =
        clean.gpu.iter().filter_map(|g| Some(((g.uuid.as_str(), g.device.as_str()), g.sm_clock_mhz.median?))).collect();
    let scraped: Vec<Offset> =
        recording.scrapes.iter().filter(|s| s.source == SourceKind::Server).map(|s| s.sent).collect();
    let mut out = Vec::new();
    for ((uuid, device), clock) in clocks {
        let labels = Labels::new([(NAME, REFERENCE), ("job", "plimsoll"), ("gpu", device), ("UUID", uuid)]);
        let mut samples = Vec::new();
        for (span, step) in recording.steps.iter().zip(steps) {
            let value = if step.concurrency >= clean.concurrency { clock } else { f64::NAN };
            samples.extend(scraped.iter().filter(|at| span.contains(**at)).map(|at| (*at, value)));
        }
        out.push((labels, samples));
    }
    out
}

/// Whether the first alert is the hardware's.
pub(super) fn limit(judge: &Judge<'_>, explanation: &Explanation) -> Option<HardwareLimit> {
    let pair = judge.rules().find(&explanation.pair)?;
    let says = || HardwareLimit { pair: explanation.pair.clone(), says: explanation.summary.clone() };
    diagnose::is_hardware(pair).then(says)
}

/// Takes every answer out of a verdict: what was measured on broken hardware is no number. The steps stay, to be
/// looked at.
pub(super) fn make_void(verdict: &mut Verdict, why: Caveat) {
    verdict.outcome = RunOutcome::Inconclusive;
    verdict.first_alert = None;
    verdict.highest_clean_concurrency = None;
    verdict.lowest_firing_concurrency = None;
    verdict.confirmed = None;
    verdict.explanation = None;
    verdict.hardware = None;
    verdict.prediction = None;
    verdict.void = Some(why.says.clone());
    verdict.caveats.insert(0, Caveat { says: format!("the run is void: {}", why.says), ..why });
}
