//! Evaluation at the recorded resolution: for onsets, for pairs, and for the numbers of a step.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Mutex;

use crate::model::sample::{Labels, SourceKind};
use crate::model::time::Span;
use crate::promql::Expr;
use crate::promql::{Element, parse};
use crate::series::{Store, View};

use super::file::{Alert, Record};
use super::judge::{Judge, alert_labels};
use super::overlay::{self, Recorder};

/// A stretch of the recording with the recording rules evaluated at every scrape in it.
pub struct Lens<'a> {
    judge: &'a Judge<'a>,
    view: View<'a>,
    overlay: Store,
    /// Instants of the recorded scrapes, Unix ms, in order.
    instants: Vec<i64>,
}

/// How much of a stretch a condition held.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// Instants at which it held.
    pub held: usize,
    /// Instants looked at.
    pub of: usize,
    /// When it first held, seconds since the start of the run; `None` if it never did.
    pub since_s: Option<f64>,
}

impl Held {
    /// Held over looked at; 0 if nothing was looked at.
    pub fn share(&self) -> f64 {
        if self.of == 0 { 0.0 } else { self.held as f64 / self.of as f64 }
    }
}

impl<'a> Judge<'a> {
    /// Looks at `span` alone: what came before is invisible. Every neutral name can be read.
    pub fn lens(&'a self, span: Span) -> Lens<'a> {
        let every = self.rules.records().map(|r| r.name.as_str()).collect();
        self.lens_in(span, &every)
    }

    /// The same for the questions `exprs` alone, so that nothing else is evaluated at every scrape.
    pub(crate) fn lens_for(&'a self, span: Span, exprs: &[Expr]) -> Lens<'a> {
        let asked: BTreeSet<&str> = exprs.iter().flat_map(Expr::metric_names).collect();
        let named: Vec<&'a Record> = self.rules.records().filter(|r| asked.contains(r.name.as_str())).collect();
        let mut needed = self.rules.records_behind(named.iter().map(|r| &r.expr));
        needed.extend(named.iter().map(|r| r.name.as_str()));
        self.lens_in(span, &needed)
    }

    fn lens_in(&'a self, span: Span, needed: &BTreeSet<&str>) -> Lens<'a> {
        let (from, end) = (self.recording.unix_ms(span.start), self.recording.unix_ms(span.end));
        self.lens_over(from, end - 1, self.only(span), needed)
    }

    /// Looks at the whole run up to `until_ms`, with the recording rules that `exprs` need.
    pub(crate) fn run_lens(&'a self, until_ms: i64, exprs: &[&'a Expr]) -> Lens<'a> {
        let from = self.recording.header.epoch_unix_ms;
        let needed = self.rules.records_behind(exprs.iter().copied());
        self.lens_over(from, until_ms, View::whole(self.store), &needed)
    }

    /// How much of `window` (seconds) a condition held, with everything that came before it in sight; looked at
    /// where `when` holds, as in [`Lens::held_while`].
    pub fn held_over_run(
        &'a self,
        expr: &'a Expr,
        when: Option<&'a Expr>,
        window: (f64, f64),
        wanted: &Labels,
    ) -> Held {
        let exprs: Vec<&Expr> = std::iter::once(expr).chain(when).collect();
        let lens = self.run_lens(self.unix_ms(window.1), &exprs);
        lens.held_while(expr, when, window, wanted)
    }

    fn lens_over(&'a self, from_ms: i64, to_ms: i64, view: View<'a>, needed: &BTreeSet<&str>) -> Lens<'a> {
        let instants = self.instants(from_ms, to_ms);
        let mut overlay = Store::clone(&self.facts);
        let mut recorder = Recorder::new(self.rules, needed);
        if !recorder.is_empty() {
            for &at in &instants {
                recorder.record(&self.engine, &view, &mut overlay, at);
            }
        }
        Lens { judge: self, view, overlay, instants }
    }

    /// When the server was scraped from `from_ms` to `to_ms`, both included; without a server, every second (scaled).
    fn instants(&self, from_ms: i64, to_ms: i64) -> Vec<i64> {
        let of = |kind: SourceKind| -> Vec<i64> {
            let scrapes = self.recording.scrapes.iter().filter(|s| s.source == kind);
            let mut times: Vec<i64> = scrapes.map(|s| self.recording.unix_ms(s.sent)).collect();
            times.retain(|t| *t >= from_ms && *t <= to_ms);
            times.sort_unstable();
            times.dedup();
            times
        };
        let times = of(SourceKind::Server);
        if times.is_empty() {
            let step = usize::try_from(self.timing.poll_ms()).unwrap_or(1_000);
            return (from_ms..=to_ms).step_by(step.max(1)).collect();
        }
        times
    }

    /// The beginning of the continuous stretch of the condition that leads to the firing, at the
    /// recorded resolution, Unix ms. Read from the whole run, so it can lie before the step.
    pub(crate) fn onset(&self, alert: &Alert, labels: &Labels, pending_ms: i64, fired_ms: i64) -> Option<i64> {
        let run = self.run.get_or_init(|| self.whole_run());
        let view = View::whole(self.store).with_overlay(&run.overlay);
        let holds = |at: i64| {
            let elements = overlay::elements(self.engine.instant(&alert.expr, &view, at).ok());
            elements.iter().any(|e| alert_labels(alert, &e.labels, e.value) == *labels)
        };
        let (before, after) = run.instants.split_at(run.instants.partition_point(|t| *t <= pending_ms));
        let Some(&last) = before.last().filter(|&&t| holds(t)) else {
            // A window that still holds the steps before can dilute what the step itself shows.
            let upto_firing = after.iter().copied().take_while(|&t| t <= fired_ms);
            return upto_firing.into_iter().find(|&t| holds(t)).or(Some(pending_ms));
        };
        // What an earlier step has found out about this alert need not be looked at again: in a run whose
        // every step fires, the walk back would take longer with each.
        let key = (alert.name.clone(), labels.clone());
        let mut known = run.stretches.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let stretches = known.entry(key).or_default();
        let mut since = last;
        for &at in before.iter().rev() {
            if let Some(stretch) = stretches.iter().find(|s| s.contains(&at)) {
                since = *stretch.start();
                break;
            }
            if at != last && !holds(at) {
                break;
            }
            since = at;
        }
        stretches.push(since..=last);
        Some(since)
    }

    /// The whole run with the recording rules that any alert rests on.
    fn whole_run(&self) -> WholeRun {
        let needed = self.rules.records_behind(self.rules.alerts().map(|a| &a.expr));
        let from = self.recording.header.epoch_unix_ms;
        let Lens { overlay, instants, .. } =
            self.lens_over(from, self.recording.unix_ms(self.recording.last), View::whole(self.store), &needed);
        WholeRun { overlay, instants, stretches: Mutex::default() }
    }
}

/// Of each alert the stretches, Unix ms, in which its condition is known to have held throughout; it did
/// not hold just before any of them.
type Stretches = BTreeMap<(String, Labels), Vec<RangeInclusive<i64>>>;

/// What onsets are read from; made once for a judge.
#[derive(Debug)]
pub(super) struct WholeRun {
    overlay: Store,
    /// Instants of the recorded scrapes, Unix ms, in order.
    instants: Vec<i64>,
    /// Where conditions are known to have held, so that no walk back is made twice.
    stretches: Mutex<Stretches>,
}

impl Lens<'_> {
    /// The elements of an expression at an instant; none if it cannot be evaluated.
    pub fn elements(&self, expr: &Expr, at_ms: i64) -> Vec<Element> {
        let view = self.view.clone().with_overlay(&self.overlay);
        overlay::elements(self.judge.engine.instant(expr, &view, at_ms).ok())
    }

    /// At how many of the instants in `window` (seconds) a condition held, for elements that `wanted` does not
    /// contradict. Only instants at which `when` holds are looked at: a queue that comes and goes can fire an alert
    /// between production's scrapes, and says nothing of its cause while it is gone. All instants where those are
    /// too few.
    pub fn held_while(&self, expr: &Expr, when: Option<&Expr>, window: (f64, f64), wanted: &Labels) -> Held {
        const FEW: usize = 5;
        let holds = |e: &Expr, at: i64| self.elements(e, at).iter().any(|e| agrees(&e.labels, wanted));
        let all: Vec<i64> = self.between(window.0, window.1).collect();
        let during: Vec<i64> = all.iter().copied().filter(|at| when.is_some_and(|w| holds(w, *at))).collect();
        let looked = if during.len() < FEW { all } else { during };
        let held: Vec<i64> = looked.iter().copied().filter(|at| holds(expr, *at)).collect();
        Held { held: held.len(), of: looked.len(), since_s: held.first().map(|at| self.judge.seconds(*at)) }
    }

    /// The elements of an expression at a number of seconds since the start of the run.
    pub fn elements_at(&self, expr: &Expr, at_s: f64) -> Vec<Element> {
        self.elements(expr, self.judge.unix_ms(at_s))
    }

    /// The instants in `[from_s, to_s]` with the elements of an expression at each.
    pub fn elements_between<'s>(
        &'s self,
        expr: &'s Expr,
        from_s: f64,
        to_s: f64,
    ) -> impl Iterator<Item = (f64, Vec<Element>)> + 's {
        self.between(from_s, to_s).map(move |at| (self.judge.seconds(at), self.elements(expr, at)))
    }

    /// Values of an expression in `[from_s, to_s]` in order of time, as (seconds, value): the
    /// largest element at each instant among those that `wanted` does not contradict. Instants
    /// without an element, and NaN, are left out.
    pub fn values(&self, expr: &str, from_s: f64, to_s: f64, wanted: &Labels) -> Vec<(f64, f64)> {
        let Ok(expr) = parse(expr) else { return Vec::new() };
        let mut out = Vec::new();
        for at in self.between(from_s, to_s) {
            let elements = self.elements(&expr, at);
            let fitting = elements.iter().filter(|e| agrees(&e.labels, wanted) && !e.value.is_nan());
            if let Some(v) = fitting.map(|e| e.value).reduce(f64::max) {
                out.push((self.judge.seconds(at), v));
            }
        }
        out
    }

    /// The instants in `[from_s, to_s]`, seconds since the start of the run.
    pub fn times(&self, from_s: f64, to_s: f64) -> Vec<f64> {
        self.between(from_s, to_s).map(|t| self.judge.seconds(t)).collect()
    }

    fn between(&self, from_s: f64, to_s: f64) -> impl Iterator<Item = i64> + '_ {
        let (from, to) = (self.judge.unix_ms(from_s), self.judge.unix_ms(to_s));
        self.instants.iter().copied().filter(move |t| *t >= from && *t <= to)
    }
}

/// Whether two label sets give no label different values.
fn agrees(labels: &Labels, wanted: &Labels) -> bool {
    const OF_THE_SERVER: [&str; 3] = ["engine", "instance", "model_name"];
    OF_THE_SERVER.iter().all(|n| match (labels.get(n), wanted.get(n)) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    })
}
