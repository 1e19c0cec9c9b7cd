//! Which pair of metrics explains an alert.
//!
//! ```text
//! explain(&judge, &span, &alert)              -> Explanation       why the alert of this step fired
//! predict(&judge, &span, measured, why)       -> Option<Prediction> what the sizes say should fit
//! remarks(&judge)                             -> Remarks           what informing rules say of each step, and of the run
//! ```
//!
//! What a cause looks like, what to say of it and what to do stands in the rule files: a pair
//! rule with its annotations. Here is only how pairs are weighed ([`rank`]), the numbers that their
//! sentences are filled in with ([`numbers`]), and what is said where none holds (`moved`).

mod fill;
mod moved;
pub mod numbers;
mod predict;
pub mod rank;
mod remarks;

use crate::model::sample::Labels;
use crate::model::step::StepSpan;
use crate::model::units::human_seconds;
use crate::model::verdict::{AlertVerdict, Confidence, Evidence, Explanation, RuledOut};
use crate::rules::{Alert, Judge, Lens};

use numbers::Numbers;
use rank::{Candidate, Ranking};

pub use predict::predict;
pub use remarks::{Remarks, remarks, void};

/// What stands for a pair where none holds for long enough.
pub const UNEXPLAINED: &str = "Unexplained";

/// A pair that held less than this share of the time explains nothing.
pub const LEAST_SHARE: f64 = 0.5;

/// A pair that a gate forbids may hold for less than this share of a step: readings flicker.
pub const FORBIDDEN_SHARE: f64 = 0.1;

/// Why `alert`, which fired in `span`, did so.
pub fn explain(judge: &Judge<'_>, span: &StepSpan, alert: &AlertVerdict) -> Explanation {
    // The warm-up runs at the step's own load: with it in sight, means over a minute are known from
    // the first judged instant on.
    let lens = judge.lens(span.whole());
    let waits = judge.rules().find(&alert.alert).is_some_and(|rule| !rule.hold.is_zero());
    let window = window(judge, span, alert, waits, &lens);
    let labels = Labels::new(alert.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())));
    let numbers = Numbers::read(judge, &lens, span, window, &labels);
    let ranking = rank::rank(judge, &lens, span, &numbers, &alert.alert, window, &labels);
    match &ranking.winner {
        Some(winner) => {
            let summary = remarks::summary(&lens, winner.pair, window);
            explained(judge, &numbers, &ranking, winner, alert, summary)
        }
        None => unexplained(judge, span, &numbers, &ranking),
    }
}

/// From the alert's beginning in this step to its firing; an alert that does not wait (no `for`) fires as it
/// begins, so there it is the time up to the step's end. The whole step where that holds too few scrapes to say
/// anything.
fn window(judge: &Judge<'_>, span: &StepSpan, alert: &AlertVerdict, waits: bool, lens: &Lens<'_>) -> (f64, f64) {
    const FEW: usize = 10;
    let (start, end) = judge.window(span.measured);
    let began = alert.onset_s.into_iter().chain(alert.pending_at_s).fold(f64::INFINITY, f64::min);
    let from = if began.is_finite() { began.clamp(start, end) } else { start };
    let to = alert.fired_at_s.filter(|_| waits).unwrap_or(end).clamp(from, end);
    if lens.times(from, to).len() < FEW { (start, end) } else { (from, to) }
}

/// How a finding begins that is about the hardware.
const THE_HARDWARE: &str = "the hardware, not the configuration";

/// Whether an alert that the pair explains is the hardware's, not the configuration's.
pub fn is_hardware(pair: &Alert) -> bool {
    pair.annotations.get("plimsoll_cause").is_some_and(|c| c == "hardware")
}

/// `summary` is the rule's own, filled in, for where the finding has a hole.
fn explained(
    judge: &Judge<'_>,
    numbers: &Numbers,
    ranking: &Ranking<'_>,
    winner: &Candidate<'_>,
    alert: &AlertVerdict,
    summary: Option<String>,
) -> Explanation {
    let note = |key: &str| winner.pair.annotations.get(key);
    let mut summary = note("plimsoll_says")
        .and_then(|text| fill::fill(text, numbers))
        .or(summary)
        .unwrap_or_else(|| winner.pair.name.clone());
    if is_hardware(winner.pair) && !summary.starts_with(THE_HARDWARE) {
        summary = format!("{THE_HARDWARE}: {summary}");
    }
    let advice = note("plimsoll_advice").map_or("", String::as_str);
    Explanation {
        pair: winner.pair.name.clone(),
        resource: note("plimsoll_resource").cloned(),
        summary,
        confidence: ranking.confidence(),
        evidence: evidence(judge, numbers, winner, alert),
        runner_up: ranking.runner_up.as_ref().map(|c| ruled_out(numbers, c, &winner.pair.name)),
        ruled_out: ranking.others.iter().map(|c| ruled_out(numbers, c, &winner.pair.name)).collect(),
        advice: advice.lines().filter_map(|line| fill::fill(line.trim(), numbers)).filter(|l| !l.is_empty()).collect(),
    }
}

fn evidence(judge: &Judge<'_>, numbers: &Numbers, winner: &Candidate<'_>, alert: &AlertVerdict) -> Vec<Evidence> {
    let held = &winner.held;
    let mut says = format!("{} held in {} of {} samples", winner.pair.name, held.held, held.of);
    if let (Some(since), Some(fired)) = (held.since_s, alert.fired_at_s) {
        let before = fired - since;
        if before > 0.0 {
            says += &format!(", from {} before the alert fired", human_seconds(before));
        }
    }
    let first = Evidence { says, expr: Some(winner.pair.expr.to_string()), median: None, max: None };
    let shown = numbers.evidence(is_hardware(winner.pair));
    std::iter::once(first).chain(times(judge, numbers, winner)).chain(shown).collect()
}

/// Where the times came from that a pair reckons with; nothing where it reckons with none.
fn times(judge: &Judge<'_>, numbers: &Numbers, winner: &Candidate<'_>) -> Option<Evidence> {
    const TIMES: [&str; 3] = ["plimsoll:ttft_mean", "plimsoll:queue_mean", "plimsoll:itl_mean"];
    let read = judge.rules().records_behind([&winner.pair.expr]);
    TIMES.iter().any(|name| read.contains(name)).then(|| {
        let says = match numbers.timed() {
            0 => "times out of the server's histograms: it offers none for each request".into(),
            n => format!("first-token, queue and inter-token times out of the server's own metrics of {n} requests"),
        };
        Evidence { says, expr: None, median: None, max: None }
    })
}

fn ruled_out(numbers: &Numbers, loser: &Candidate<'_>, winner: &str) -> RuledOut {
    let notes = &loser.pair.annotations;
    // A sentence without a number denies outright that the pair ever held; where it did at times, it would be false.
    let fits = |text: &&str| loser.held.held == 0 || text.contains('{');
    let said = notes
        .get(&format!("plimsoll_why_not_{winner}"))
        .or_else(|| notes.get("plimsoll_why_not"))
        .map(|text| fill::fitting(text, numbers))
        .filter(fits)
        .and_then(|text| fill::fill(text, numbers));
    // "The engine goes on making steps (0 a second)": of a server without work such sentences are nonsense.
    const OF_WORK: [&str; 3] = ["{running", "{iterations", "{prefilling"];
    let idle = numbers.value("running.max") == Some(0.0) && numbers.value("waiting.max") == Some(0.0);
    let of_work = notes.get("plimsoll_why_not").is_some_and(|text| OF_WORK.iter().any(|name| text.contains(name)));
    if idle && of_work && loser.held.held == 0 {
        return RuledOut { pair: loser.pair.name.clone(), why_not: "the server holds no request".into() };
    }
    let share = format!("it held in {} of {} samples", loser.held.held, loser.held.of);
    let why_not = match said {
        Some(said) if loser.held.held == 0 => said,
        Some(said) => format!("{said}; {share}"),
        None => share,
    };
    RuledOut { pair: loser.pair.name.clone(), why_not }
}

fn unexplained(judge: &Judge<'_>, span: &StepSpan, numbers: &Numbers, ranking: &Ranking<'_>) -> Explanation {
    let moved = moved::moved_most(judge, span);
    let names: Vec<&str> = moved.iter().map(|e| e.says.as_str()).collect();
    let lower = judge.recording().steps.iter().any(|s| s.load.level() < span.load.level());
    let summary = if !lower {
        "no pair of metrics held for long enough, and there is no lower level to compare with".to_owned()
    } else if names.is_empty() {
        "no pair of metrics held for long enough, and no signal moved".to_owned()
    } else {
        format!("no pair of metrics held for long enough; what moved most: {}", names.join("; "))
    };
    Explanation {
        pair: UNEXPLAINED.into(),
        resource: None,
        summary,
        confidence: Confidence::Low,
        evidence: moved,
        runner_up: ranking.runner_up.as_ref().map(|c| ruled_out(numbers, c, UNEXPLAINED)),
        ruled_out: ranking.others.iter().map(|c| ruled_out(numbers, c, UNEXPLAINED)).collect(),
        advice: Vec::new(),
    }
}
