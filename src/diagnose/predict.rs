//! What the sizes say should fit, beside what was measured.

use crate::model::sample::Labels;
use crate::model::step::StepSpan;
use crate::model::verdict::Prediction;
use crate::rules::Judge;

use super::numbers::Numbers;

/// Streams whose whole sequences fit into the KV pool at once, and how far `measured` (the highest
/// clean level) is from that. `None` where the pool's or the requests' size is not known.
pub fn predict(judge: &Judge<'_>, span: &StepSpan, measured: Option<f64>) -> Option<Prediction> {
    let lens = judge.lens(span.measured);
    let window = (span.measured.start.as_secs_f64(), span.measured.end.as_secs_f64());
    let numbers = Numbers::read(judge, &lens, span, window, &Labels::default());
    let fits = numbers.value("fits_floor")?;
    let says = format!(
        "{} blocks hold {} requests of {} tokens ({} blocks each) at their full length",
        numbers.text("kv_blocks")?,
        numbers.text("fits")?,
        numbers.text("request_tokens")?,
        numbers.text("request_blocks")?,
    );
    let ratio = measured.filter(|_| fits > 0.0).map(|m| m / fits);
    Some(Prediction { concurrency: fits, says, measured_over_predicted_ratio: ratio })
}
