//! What rules say that explain no alert: of a step, whether or not one fired in it, and of the run.

use crate::model::units::human_seconds;
use crate::model::verdict::Caveat;
use crate::promql::Expr;
use crate::rules::judge::alert_labels;
use crate::rules::{Alert, Judge, Lens, template};

/// The annotation of a rule that voids the run wherever it holds.
const VOID: &str = "plimsoll_void";

/// What there is to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remarks {
    /// Caveats of each step, in the order of the recording's steps.
    pub steps: Vec<Vec<Caveat>>,
    /// Why the run is void; `None` if it is not.
    pub void: Option<Caveat>,
}

/// Reads the rules that inform: those with the annotation `plimsoll_caveat: CODE` over each step, those with
/// `plimsoll_void: "true"` over the whole run.
pub fn remarks(judge: &Judge<'_>) -> Remarks {
    let recording = judge.recording();
    let mut out = Remarks { steps: vec![Vec::new(); recording.steps.len()], void: None };
    // Where nothing that they read was ever there, they need not be asked at every instant.
    let (Some(first), Some(last)) = (recording.steps.first(), recording.steps.last()) else { return out };
    let mut whole = *first;
    whole.measured.end = last.measured.end;
    let asked = |key: &str, pair: &Alert| pair.annotations.contains_key(key) && judge.reads_any(pair, &whole);
    let caveats: Vec<&Alert> = judge.rules().pairs().filter(|p| asked("plimsoll_caveat", p)).collect();
    let voids: Vec<&Alert> = judge.rules().pairs().filter(|p| asked(VOID, p)).collect();
    if caveats.is_empty() && voids.is_empty() {
        return out;
    }
    let exprs: Vec<&Expr> = caveats.iter().chain(&voids).map(|p| &p.expr).collect();
    // What came up after the last step is part of the run too.
    let end = recording.unix_ms(recording.last);
    let lens = judge.run_lens(end, &exprs);
    for (step, said) in recording.steps.iter().zip(&mut out.steps) {
        let (from, to) = judge.window(step.measured);
        said.extend(caveats.iter().filter_map(|pair| caveat(&lens, pair, from, to)));
    }
    out.void = voids.iter().find_map(|pair| void_by(&lens, pair, recording.last.as_secs_f64()));
    out
}

/// Why the run so far is void, so that going on would be in vain; `None` if it is not.
pub fn void(judge: &Judge<'_>) -> Option<Caveat> {
    let recording = judge.recording();
    let mut whole = *recording.steps.first()?;
    whole.measured.end = recording.last;
    let asked = |p: &&Alert| p.annotations.contains_key(VOID) && judge.reads_any(p, &whole);
    let voids: Vec<&Alert> = judge.rules().pairs().filter(asked).collect();
    if voids.is_empty() {
        return None;
    }
    let exprs: Vec<&Expr> = voids.iter().map(|p| &p.expr).collect();
    let lens = judge.run_lens(recording.unix_ms(recording.last), &exprs);
    voids.iter().find_map(|pair| void_by(&lens, pair, recording.last.as_secs_f64()))
}

/// A pair's own summary, filled in as of the first instant of `window` (seconds) at which it held.
pub(super) fn summary(lens: &Lens<'_>, pair: &Alert, window: (f64, f64)) -> Option<String> {
    first_words(lens, pair, window.0, window.1).map(|(_, says)| says)
}

/// What a pair says of a step, if it held there for as long as its `for` asks.
fn caveat(lens: &Lens<'_>, pair: &Alert, from_s: f64, to_s: f64) -> Option<Caveat> {
    let (mut held, mut of, mut longest) = (0, 0, None::<f64>);
    let mut since = None;
    for (at, elements) in lens.elements_between(&pair.expr, from_s, to_s) {
        of += 1;
        if elements.is_empty() {
            since = None;
            continue;
        }
        held += 1;
        let stretch = at - *since.get_or_insert(at);
        longest = Some(longest.map_or(stretch, |l: f64| l.max(stretch)));
    }
    if longest? < pair.hold.as_secs_f64() {
        return None;
    }
    let (_, says) = first_words(lens, pair, from_s, to_s)?;
    let says = if held < of { format!("{says}, in {held} of {of} samples") } else { says };
    Some(Caveat::new(pair.annotations.get("plimsoll_caveat")?, says, hint(pair)))
}

/// Why the run is void, if the pair ever held.
fn void_by(lens: &Lens<'_>, pair: &Alert, to_s: f64) -> Option<Caveat> {
    let (at, says) = first_words(lens, pair, 0.0, to_s)?;
    Some(Caveat::new("void", format!("{says}, first seen at {}", human_seconds(at)), hint(pair)))
}

fn hint(pair: &Alert) -> String {
    pair.annotations.get("plimsoll_advice").cloned().unwrap_or_default()
}

fn first_words(lens: &Lens<'_>, pair: &Alert, from_s: f64, to_s: f64) -> Option<(f64, String)> {
    // The GPU is read once more when everything else has ended.
    let at_the_end = || (to_s, lens.elements_at(&pair.expr, to_s));
    let (at, element) = lens
        .elements_between(&pair.expr, from_s, to_s)
        .chain(std::iter::once_with(at_the_end))
        .find_map(|(at, elements)| elements.into_iter().next().map(|e| (at, e)))?;
    let text = pair.annotations.get("summary").unwrap_or(&pair.name);
    Some((at, template::render(text, &alert_labels(pair, &element.labels, element.value), element.value)))
}
