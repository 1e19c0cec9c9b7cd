//! What the sizes say should fit, beside what was measured.

use crate::model::sample::Labels;
use crate::model::step::StepSpan;
use crate::model::verdict::{Explanation, Prediction};
use crate::rules::Judge;
use crate::rules::sizes::Sizes;

use super::numbers::Numbers;

/// Streams that should fit: those whose whole sequences the KV pool holds at once or, where it is lower, the ceiling of
/// running sequences that `explanation` inferred; and how far `measured` (the highest clean level, where an alert
/// ended the climb) is from that. `None` where the pool's or the requests' size is not known.
pub fn predict(
    judge: &Judge<'_>,
    span: &StepSpan,
    measured: Option<f64>,
    explanation: Option<&Explanation>,
) -> Option<Prediction> {
    let lens = judge.lens(span.measured);
    let window = judge.window(span.measured);
    let numbers = Numbers::read(judge, &lens, span, window, &Labels::default());
    let fits = numbers.value("fits_floor")?;
    let mut says = format!(
        "{} blocks hold {} requests of {} tokens{} ({} blocks each) at their full length",
        numbers.text("kv_blocks")?,
        numbers.text("fits")?,
        numbers.text("request_tokens")?,
        if Sizes::of(judge.recording(), span.step).vary() { " in the mean" } else { "" },
        numbers.text("request_blocks")?,
    );
    let at_ceiling = explanation.is_some_and(|e| e.resource.as_deref() == Some("sequences"));
    let ceiling = numbers.value("running.max").filter(|c| at_ceiling && *c < fits);
    if let Some(ceiling) = ceiling {
        says += &format!("; the ceiling of {ceiling:.0} sequences is lower (inferred from the running requests)");
    }
    let concurrency = ceiling.unwrap_or(fits);
    let ratio = measured.filter(|_| concurrency > 0.0).map(|m| m / concurrency);
    Some(Prediction { concurrency, says, measured_over_predicted_ratio: ratio })
}
