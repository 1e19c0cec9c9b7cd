//! One step, judged: every alert, on the production grid, at every phase.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use crate::model::recording::Recording;
use crate::model::sample::{Labels, NAME, SourceKind};
use crate::model::step::StepSpan;
use crate::model::time::{Offset, Span};
use crate::model::units::human_seconds;
use crate::model::verdict::{AlertState, AlertVerdict};
use crate::promql::Expr;
use crate::promql::{Engine, Reading};
use crate::series::{Grid, SeriesId, Store, View};

use super::file::{Alert, RuleSet};
use super::length::Timing;
use super::lens::WholeRun;
use super::observations::{self, ENOUGH, Histogram};
use super::overlay::{self, Recorder};
use super::selectors::Read;
use super::state::{Became, Machine};
use super::{sizes, template};

/// Everything that judging a run needs; made once for a recording, cheap to ask.
pub struct Judge<'a> {
    pub(crate) rules: &'a RuleSet,
    pub(crate) recording: &'a Recording,
    pub(crate) store: &'a Store,
    pub(crate) engine: Engine,
    pub(crate) timing: Timing,
    /// Facts out of labels, and the sizes of the requests: seen by every evaluation.
    pub(crate) facts: Store,
    /// When scrapes failed, by source, Unix ms, in order.
    failures: Vec<(SourceKind, i64)>,
    pub(super) run: OnceLock<WholeRun>,
}

impl<'a> Judge<'a> {
    /// For a recording, the store made from it, and the rules; `timing` is not yet scaled.
    pub fn new(
        rules: &'a RuleSet,
        recording: &'a Recording,
        store: &'a Store,
        reading: Reading,
        timing: Timing,
    ) -> Judge<'a> {
        let mut facts = Store::new();
        overlay::push_facts(&rules.facts, store, &mut facts);
        sizes::push_sizes(recording, &mut facts);
        let failures =
            recording.scrapes.iter().filter(|s| s.result.is_err()).map(|s| (s.source, recording.unix_ms(s.sent)));
        // Prometheus looks back five minutes; scaled like every other length of time.
        let lookback_ms = (300_000.0 * rules.time_scale).round() as i64;
        let subquery_step_ms = timing.scaled(rules.time_scale).evaluation_ms();
        Judge {
            rules,
            recording,
            store,
            engine: Engine { reading, lookback_ms, subquery_step_ms },
            timing: timing.scaled(rules.time_scale),
            facts,
            failures: failures.collect(),
            run: OnceLock::new(),
        }
    }

    /// The same with further series of our own in sight: samples as (offset, value), in order of time.
    #[must_use]
    pub fn with_series(&self, series: &[(Labels, Vec<(Offset, f64)>)]) -> Judge<'a> {
        let mut with = Judge {
            rules: self.rules,
            recording: self.recording,
            store: self.store,
            engine: self.engine,
            timing: self.timing,
            facts: self.facts.clone(),
            failures: self.failures.clone(),
            // What was found out without these series says nothing with them.
            run: OnceLock::new(),
        };
        for (labels, samples) in series {
            for (at, value) in samples {
                with.facts.push(labels, self.recording.unix_ms(*at), *value);
            }
        }
        with
    }

    /// The verdict of every alert over one step, in the order of the files.
    pub fn step(&self, span: &StepSpan) -> Vec<AlertVerdict> {
        let alerts: Vec<&Alert> = self.rules.alerts().collect();
        let mut tallies: Vec<Tally<'_>> = alerts.iter().map(|a| Tally::new(self, a)).collect();
        let from_ms = self.recording.unix_ms(span.measured.start);
        let end_ms = self.recording.unix_ms(span.measured.end);
        let needed = self.rules.records_behind(alerts.iter().map(|a| &a.expr));
        for phase in self.timing.phases() {
            self.phase(from_ms, end_ms, phase, &needed, &mut tallies);
        }
        let seen = View::since(self.store, from_ms);
        tallies.iter().map(|t| self.verdict(t, span.measured, &seen, end_ms)).collect()
    }

    /// Observations that quantile rules still wait for in this step, at least one of which is not
    /// decided yet: 0 if the step need not be prolonged.
    pub fn observations_missing(&self, span: &StepSpan, verdicts: &[AlertVerdict]) -> u64 {
        let end_ms = self.recording.unix_ms(span.measured.end);
        let view = View::since(self.store, self.recording.unix_ms(span.measured.start));
        let mut missing: f64 = 0.0;
        for alert in self.rules.alerts() {
            let fires = verdicts.iter().any(|v| v.alert == alert.name && v.state == AlertState::Firing);
            let histograms = observations::histograms(self.rules, &alert.expr, self.store);
            if fires || histograms.is_empty() {
                continue;
            }
            if let Some(n) = observations::count(&histograms, &view, end_ms) {
                missing = missing.max(ENOUGH - n);
            }
        }
        missing.ceil() as u64
    }

    /// How many of the alerts that could not be judged lack nothing but observations.
    pub fn lack_observations(&self, span: &StepSpan, verdicts: &[AlertVerdict]) -> usize {
        let end_ms = self.recording.unix_ms(span.measured.end);
        let view = View::since(self.store, self.recording.unix_ms(span.measured.start));
        let lacks = |verdict: &&AlertVerdict| {
            let Some(alert) = self.rules.find(&verdict.alert) else { return false };
            let histograms = observations::histograms(self.rules, &alert.expr, self.store);
            let open = matches!(verdict.state, AlertState::NotEvaluable | AlertState::NoData);
            let long_enough = span.measured.len() >= self.timing.length_of(alert);
            open && long_enough && observations::count(&histograms, &view, end_ms).is_some_and(|n| n < ENOUGH)
        };
        verdicts.iter().filter(lacks).count()
    }

    /// The rule's `summary`, filled in for an alert that fired.
    pub fn summary(&self, of: &AlertVerdict) -> Option<String> {
        let text = self.rules.find(&of.alert)?.annotations.get("summary")?;
        let labels = Labels::new(of.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())));
        Some(template::render(text, &labels, of.value.unwrap_or(f64::NAN)))
    }

    fn phase(&self, from_ms: i64, end_ms: i64, phase_ms: i64, needed: &BTreeSet<&str>, tallies: &mut [Tally<'_>]) {
        let scrape_ms = self.timing.scrape_ms();
        let grid = Grid { interval_ms: scrape_ms, phase_ms: from_ms + phase_ms };
        let view = View::on_grid(self.store, from_ms, grid);
        let mut recorder = Recorder::new(self.rules, needed);
        let mut recorded = (!recorder.is_empty()).then(|| self.facts.clone());
        for tally in tallies.iter_mut() {
            tally.begin_phase();
        }
        // The evaluation comes one poll after the scrape that it is meant to see.
        let mut at_ms = from_ms + phase_ms + self.timing.poll_ms();
        while at_ms <= end_ms {
            if let Some(overlay) = &mut recorded {
                recorder.record(&self.engine, &view, overlay, at_ms);
            }
            let here = view.clone().with_overlay(recorded.as_ref().unwrap_or(&self.facts));
            for tally in tallies.iter_mut() {
                tally.evaluate(self, &here, at_ms);
            }
            at_ms += self.timing.evaluation_ms();
        }
        for tally in tallies.iter_mut() {
            tally.end_phase();
        }
    }

    /// Whether a scrape of any of `sources` failed in the interval that `at_ms` looks at.
    fn failed_just_before(&self, sources: &BTreeSet<SourceKind>, at_ms: i64) -> bool {
        let from = at_ms - self.timing.scrape_ms() - self.timing.poll_ms();
        self.failures.iter().any(|(source, t)| sources.contains(source) && *t > from && *t <= at_ms)
    }

    fn verdict(&self, tally: &Tally<'_>, measured: Span, seen: &View<'_>, end_ms: i64) -> AlertVerdict {
        let alert = tally.alert;
        let mut out = AlertVerdict {
            alert: alert.name.clone(),
            state: AlertState::Quiet,
            pending_at_s: tally.pending_at_ms.map(|ms| self.seconds(ms)),
            fired_at_s: None,
            onset_s: None,
            value: tally.value,
            limit: alert.limit(),
            labels: tally.labels.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
            phase_share: Some(f64::from(tally.fired_phases) / f64::from(tally.phases.max(1))),
            because: None,
        };
        if let Some(fired) = tally.fired_at_ms {
            out.state = AlertState::Firing;
            out.fired_at_s = Some(self.seconds(fired));
            out.onset_s = self
                .onset(alert, &tally.labels, tally.pending_at_ms.unwrap_or(fired), fired)
                .map(|ms| self.seconds(ms));
            return out;
        }
        let because =
            |state, says: String| AlertVerdict { state, because: Some(says), phase_share: None, ..out.clone() };
        if !self.any_series(alert, seen, end_ms) {
            if alert.optional() {
                return out;
            }
            return because(AlertState::NoData, format!("none of its metrics was there: {}", self.names(alert)));
        }
        let needs = self.timing.length_of(alert);
        if measured.len() < needs {
            return because(
                AlertState::NotEvaluable,
                format!(
                    "the step was measured for {}, and this rule needs {}",
                    human_seconds(measured.len().as_secs_f64()),
                    human_seconds(needs.as_secs_f64()),
                ),
            );
        }
        if !tally.histograms.is_empty() {
            match observations::count(&tally.histograms, seen, end_ms) {
                None | Some(0.0) => {
                    return because(AlertState::NoData, "its histogram held no observation in the step".into());
                }
                Some(n) if n < ENOUGH => {
                    return because(
                        AlertState::NotEvaluable,
                        format!("its quantile rests on {n:.0} observations, and {ENOUGH:.0} are needed"),
                    );
                }
                Some(_) => {}
            }
        }
        if let Some(at) = tally.hidden_at_ms {
            return because(
                AlertState::NotEvaluable,
                format!("failed scrapes around {} could hide a firing alert", human_seconds(self.seconds(at)),),
            );
        }
        if let Some(says) = &tally.error {
            return because(AlertState::NotEvaluable, format!("it cannot be evaluated: {says}"));
        }
        if tally.evaluations == 0 {
            return because(AlertState::NotEvaluable, "no evaluation fell into the step".into());
        }
        out.state = if tally.pending_at_ms.is_some() { AlertState::Pending } else { AlertState::Quiet };
        out
    }

    /// Whether any series that a rule reads, directly or through recording rules, has a sample.
    pub(crate) fn any_series(&self, alert: &Alert, seen: &View<'_>, end_ms: i64) -> bool {
        let leaves = self.rules.leaves(&alert.expr);
        // `absent(x)` is about x not being there, and a rule without selectors needs no data.
        leaves.is_empty()
            || reads_absence(&alert.expr)
            || leaves
                .iter()
                .any(|read| has_series(read, seen, end_ms) || has_series(read, &View::whole(&self.facts), end_ms))
    }

    fn names(&self, alert: &Alert) -> String {
        let mut names: Vec<&str> = self.rules.leaves(&alert.expr).iter().filter_map(|r| r.selector.metric()).collect();
        names.dedup();
        names.join(", ")
    }

    fn sources(&self, alert: &Alert) -> BTreeSet<SourceKind> {
        let mut out = BTreeSet::new();
        for read in self.rules.leaves(&alert.expr) {
            // Only an instant selector goes blind at a failed scrape; a range bridges it.
            if read.range_ms.is_some() {
                continue;
            }
            let ids = read.selector.metric().map(|n| self.store.named(n)).unwrap_or_default();
            out.extend(ids.iter().map(|&id| match self.store.series(id).labels.get("job") {
                Some("gpu") => SourceKind::Gpu,
                Some("plimsoll") => SourceKind::Client,
                _ => SourceKind::Server,
            }));
        }
        out
    }

    /// Whether anything that a rule reads was there in a step.
    pub fn reads_any(&self, rule: &Alert, span: &StepSpan) -> bool {
        let view = View::since(self.store, self.recording.unix_ms(span.warmup.start));
        self.any_series(rule, &view, self.recording.unix_ms(span.measured.end))
    }

    /// Whether a series of this name was ever read.
    pub fn has_series(&self, name: &str) -> bool {
        !self.store.named(name).is_empty()
    }

    /// The rules that it judges by.
    pub fn rules(&self) -> &'a RuleSet {
        self.rules
    }

    /// The recording that it judges.
    pub fn recording(&self) -> &'a Recording {
        self.recording
    }

    /// The series that no page shows (facts out of labels, sizes of the requests) at their latest
    /// values, by name: the largest where several series share a name.
    pub fn constants(&self) -> BTreeMap<String, f64> {
        let mut out = BTreeMap::new();
        for series in self.facts.all() {
            let latest = self.facts.samples(series).filter(|(_, v)| !v.is_nan()).last();
            if let Some((_, v)) = latest {
                let most = out.entry(series.labels.name().to_owned()).or_insert(v);
                *most = f64::max(*most, v);
            }
        }
        out
    }

    /// Seconds since the start of the run.
    pub(crate) fn seconds(&self, unix_ms: i64) -> f64 {
        (unix_ms - self.recording.header.epoch_unix_ms) as f64 / 1e3
    }

    /// Unix ms of a number of seconds since the start of the run.
    pub(crate) fn unix_ms(&self, seconds: f64) -> i64 {
        self.recording.header.epoch_unix_ms + (seconds * 1e3).round() as i64
    }
}

fn has_series(read: &Read<'_>, view: &View<'_>, end_ms: i64) -> bool {
    let mut samples = Vec::new();
    view.stores().any(|mut layer| {
        let store = layer.store;
        let mut seen = |id: &SeriesId| {
            let series = store.series(*id);
            samples.clear();
            super::selectors::matches(read.selector, &series.labels) && {
                layer.range(series, i64::MIN, end_ms, &mut samples);
                !samples.is_empty()
            }
        };
        match read.selector.metric() {
            Some(name) => store.named(name).iter().any(&mut seen),
            None => store.names().into_iter().any(|name| store.named(name).iter().any(&mut seen)),
        }
    })
}

fn reads_absence(expr: &Expr) -> bool {
    use crate::promql::Func::{Absent, AbsentOverTime};
    let mut found = false;
    expr.walk(&mut |e| found |= matches!(e, Expr::Call(Absent | AbsentOverTime, _)));
    found
}

/// What one alert did, over the phases so far.
struct Tally<'a> {
    alert: &'a Alert,
    histograms: Vec<Histogram<'a>>,
    sources: BTreeSet<SourceKind>,
    machine: Machine,
    /// Since when the condition could have held, if failed scrapes hid it, in this phase.
    maybe_since_ms: Option<i64>,
    /// Whether anything in that stretch was in fact unknown.
    maybe_unknown: bool,
    fired: bool,
    phases: u32,
    fired_phases: u32,
    evaluations: u64,
    fired_at_ms: Option<i64>,
    pending_at_ms: Option<i64>,
    hidden_at_ms: Option<i64>,
    value: Option<f64>,
    labels: Labels,
    error: Option<String>,
}

impl<'a> Tally<'a> {
    fn new(judge: &Judge<'a>, alert: &'a Alert) -> Tally<'a> {
        Tally {
            alert,
            histograms: observations::histograms(judge.rules, &alert.expr, judge.store),
            sources: judge.sources(alert),
            machine: Machine::default(),
            maybe_since_ms: None,
            maybe_unknown: false,
            fired: false,
            phases: 0,
            fired_phases: 0,
            evaluations: 0,
            fired_at_ms: None,
            pending_at_ms: None,
            hidden_at_ms: None,
            value: None,
            labels: Labels::default(),
            error: None,
        }
    }

    fn begin_phase(&mut self) {
        self.machine = Machine::default();
        (self.maybe_since_ms, self.maybe_unknown, self.fired) = (None, false, false);
    }

    fn end_phase(&mut self) {
        self.phases += 1;
        self.fired_phases += u32::from(self.fired);
    }

    fn evaluate(&mut self, judge: &Judge<'_>, view: &View<'_>, at_ms: i64) {
        self.evaluations += 1;
        let present = match self.present(judge, view, at_ms) {
            Ok(present) => present,
            Err(says) => {
                self.error.get_or_insert(says);
                return;
            }
        };
        self.look_for_hidden(judge, !present.is_empty(), at_ms);
        for change in self.machine.step(at_ms, &present, self.alert.hold, self.alert.keep_firing) {
            match change.became {
                Became::Pending if self.fired_at_ms.is_none() && self.pending_at_ms.is_none_or(|t| at_ms < t) => {
                    self.pending_at_ms = Some(at_ms);
                    self.labels = change.labels;
                    self.value = Some(change.value);
                }
                Became::Firing => {
                    self.fired = true;
                    if self.fired_at_ms.is_none_or(|t| at_ms < t) {
                        self.fired_at_ms = Some(at_ms);
                        self.pending_at_ms = Some(change.active_at_ms);
                        self.labels = change.labels;
                        self.value = Some(change.value);
                    }
                }
                _ => {}
            }
        }
    }

    /// The elements for which the condition holds, with the labels of their alerts.
    fn present(&self, judge: &Judge<'_>, view: &View<'_>, at_ms: i64) -> Result<Vec<(Labels, f64)>, String> {
        let mut filled = None;
        if !self.histograms.is_empty() {
            match observations::count(&self.histograms, view, at_ms) {
                Some(n) if n >= ENOUGH => {}
                Some(n) if n > 0.0 => match observations::filled_up(&self.alert.expr, n) {
                    Some(expr) => filled = Some(expr),
                    None => return Ok(Vec::new()),
                },
                _ => return Ok(Vec::new()),
            }
        }
        let expr = filled.as_ref().unwrap_or(&self.alert.expr);
        let value = judge.engine.instant(expr, view, at_ms).map_err(|e| e.to_string())?;
        Ok(overlay::elements(Some(value))
            .into_iter()
            .map(|e| (alert_labels(self.alert, &e.labels, e.value), e.value))
            .collect())
    }

    /// Follows what could have been: an evaluation that is blind because of a failed scrape may
    /// have been true.
    fn look_for_hidden(&mut self, judge: &Judge<'_>, present: bool, at_ms: i64) {
        let blind = !present && judge.failed_just_before(&self.sources, at_ms);
        if !present && !blind {
            (self.maybe_since_ms, self.maybe_unknown) = (None, false);
            return;
        }
        let since = *self.maybe_since_ms.get_or_insert(at_ms);
        self.maybe_unknown |= blind;
        let hold = i64::try_from(self.alert.hold.as_millis()).unwrap_or(i64::MAX);
        if self.maybe_unknown && at_ms - since >= hold {
            self.hidden_at_ms.get_or_insert(at_ms);
        }
    }
}

/// Labels of an alert: those of the element without its name, and the rule's own.
pub(crate) fn alert_labels(alert: &Alert, of: &Labels, value: f64) -> Labels {
    let own: Vec<(&str, String)> =
        alert.labels.iter().map(|(n, v)| (n.as_str(), template::render(v, of, value))).collect();
    let inherited = of.iter().filter(|(n, _)| *n != NAME).map(|(n, v)| (n, v.to_owned()));
    Labels::new(inherited.chain(own))
}
