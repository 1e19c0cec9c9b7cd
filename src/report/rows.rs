//! The table of the steps as columns of text: terminal, summary and page differ in how they
//! set it, not in what it says.

use super::text::{UNKNOWN, latency, level_unit, number, number_or, percent, plain, spread, spread_as};
use crate::model::step::{CutShort, Phase};
use crate::model::verdict::{AlertState, Quantiles, StepOutcome, StepVerdict, Verdict};

/// Fewer samples than this leave a 99th percentile without an upper end worth the name.
const P99_SAMPLES: u64 = 100;

/// One column: its heading, and a cell for each step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// What it is.
    pub kind: ColumnKind,
    /// Upper heading, shared with neighbours: `TTFT`.
    pub group: &'static str,
    /// Lower heading: `p99`.
    pub name: &'static str,
    /// One cell a step.
    pub cells: Vec<String>,
}

/// The columns, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Number of the step.
    Step,
    /// Streams, or requests per second.
    Level,
    /// Climb, narrow, confirm.
    Phase,
    /// Time to first token.
    Ttft,
    /// Gap between chunks.
    Gap,
    /// Time per token.
    Itl,
    /// Output tokens per second.
    Tokens,
    /// Waiting requests.
    Waiting,
    /// Running requests.
    Running,
    /// Use of the KV pool.
    Kv,
    /// Preemptions.
    Preemptions,
    /// Failed requests.
    Errors,
}

impl Column {
    /// Whether the column tells nothing: every cell is zero or unknown.
    pub fn is_idle(&self) -> bool {
        self.cells.iter().all(|c| c == "0" || c == UNKNOWN)
    }
}

/// All columns of a verdict. The time per token is left out where it is the gap, to the digit.
pub fn columns(v: &Verdict) -> Vec<Column> {
    let column = |kind, group, name, cell: &dyn Fn(&StepVerdict) -> String| Column {
        kind,
        group,
        name,
        cells: v.steps.iter().map(cell).collect(),
    };
    let mut out = vec![
        column(ColumnKind::Step, "", "step", &|s| s.step.to_string()),
        column(ColumnKind::Level, "", level_unit(v), &|s| number(s.concurrency)),
        column(ColumnKind::Phase, "", "phase", &|s| phase(s.phase).into()),
        column(ColumnKind::Ttft, "TTFT", "p50", &|s| latency(s.client.ttft_s.p50)),
        column(ColumnKind::Ttft, "TTFT", "p99", &|s| p99(&s.client.ttft_s)),
        column(ColumnKind::Gap, "gap", "p50", &|s| latency(s.client.gap_s.p50)),
        column(ColumnKind::Gap, "gap", "p99", &|s| p99(&s.client.gap_s)),
        column(ColumnKind::Itl, "ITL", "p50", &|s| latency(s.client.itl_s.p50)),
        column(ColumnKind::Itl, "ITL", "p99", &|s| p99(&s.client.itl_s)),
        column(ColumnKind::Tokens, "", "tok/s", &|s| number_or(s.client.output_tokens_per_s)),
        column(ColumnKind::Waiting, "", "wait", &|s| server(s, |x| spread(&x.waiting))),
        column(ColumnKind::Running, "", "run", &|s| server(s, |x| spread(&x.running))),
        column(ColumnKind::Kv, "", "KV %", &|s| server(s, |x| spread_as(&x.kv_cache_usage, percent_points))),
        column(ColumnKind::Preemptions, "", "preempt", &|s| server(s, |x| number_or(x.preemptions.map(f64::round)))),
        column(ColumnKind::Errors, "", "errors", &|s| s.requests.failed.total.to_string()),
    ];
    if v.steps.iter().all(|s| s.client.itl_s.n == 0 || s.client.itl_s == s.client.gap_s) {
        out.retain(|c| c.kind != ColumnKind::Itl);
    }
    out
}

fn server(s: &StepVerdict, cell: impl Fn(&crate::model::verdict::ServerStats) -> String) -> String {
    s.server.as_ref().map_or_else(|| UNKNOWN.into(), cell)
}

/// A share of one in percent, without the sign.
fn percent_points(x: f64) -> String {
    format!("{:.0}", x * 100.0)
}

/// A 99th percentile, marked with `~` where it rests on too few samples to show that a target is kept.
pub fn p99(q: &Quantiles) -> String {
    match q.p99 {
        Some(x) if q.n < P99_SAMPLES => format!("~{}", latency(Some(x))),
        x => latency(x),
    }
}

/// Whether any cell carries the mark of [`p99`].
pub fn has_few_samples(v: &Verdict) -> bool {
    v.steps.iter().any(|s| [&s.client.ttft_s, &s.client.gap_s].iter().any(|q| q.p99.is_some() && q.n < P99_SAMPLES))
}

/// The phase in a word.
pub fn phase(p: Phase) -> &'static str {
    match p {
        Phase::Climb => "climb",
        Phase::Narrow => "narrow",
        Phase::Confirm => "confirm",
    }
}

/// The outcome of a step in a word.
pub fn outcome_word(o: StepOutcome) -> &'static str {
    match o {
        StepOutcome::Clean => "clean",
        StepOutcome::Firing => "firing",
        StepOutcome::Inconclusive => "inconclusive",
    }
}

/// What the rules say of a step: `firing: A (80 % of phases); pending: B`, or `clean`.
pub fn outcome(s: &StepVerdict) -> String {
    let mut parts = Vec::new();
    if s.alerts.is_empty() && s.cut_short.is_none() {
        return "not judged".into();
    }
    for (state, word) in [
        (AlertState::Firing, "firing"),
        (AlertState::Pending, "pending"),
        (AlertState::NotEvaluable, "not evaluable"),
        (AlertState::NoData, "no data"),
    ] {
        let mut names: Vec<String> = Vec::new();
        for a in s.alerts.iter().filter(|a| a.state == state) {
            let share = a.phase_share.filter(|p| state == AlertState::Firing && *p < 1.0);
            let name = match share {
                Some(p) => format!("{} ({} of phases)", plain(&a.alert), percent(p)),
                None => plain(&a.alert),
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if !names.is_empty() {
            parts.push(format!("{word}: {}", names.join(", ")));
        }
    }
    match s.cut_short {
        Some(CutShort::Interrupted) => parts.push("interrupted".into()),
        Some(CutShort::TargetLost) => parts.push("target lost".into()),
        None => {}
    }
    match s.outcome {
        StepOutcome::Firing if parts.iter().any(|p| p.starts_with("firing")) => parts.join("; "),
        o if parts.is_empty() => outcome_word(o).into(),
        o => format!("{}; {}", outcome_word(o), parts.join("; ")),
    }
}
