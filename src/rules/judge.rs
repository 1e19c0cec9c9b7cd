//! One step, judged: every alert, on the production grid, at every phase.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use crate::model::recording::Recording;
use crate::model::sample::{Labels, NAME, Scrape, SourceKind};
use crate::model::step::StepSpan;
use crate::model::time::{Offset, Span};
use crate::model::verdict::{AlertState, AlertVerdict};
use crate::promql::{Engine, Reading};
use crate::series::{Store, View};

use super::file::{Alert, RuleSet};
use super::length::Timing;
use super::lens::WholeRun;
use super::observations::{self, ENOUGH};
use super::rounds::Rounds;
use super::{overlay, sizes, template};

/// Everything that judging a run needs; made once for a recording, cheap to ask.
pub struct Judge<'a> {
    pub(crate) rules: &'a RuleSet,
    pub(crate) recording: &'a Recording,
    pub(crate) store: &'a Store,
    pub(crate) engine: Engine,
    pub(crate) timing: Timing,
    /// Facts out of labels, and the sizes of the requests: seen by every evaluation.
    pub(crate) facts: Cow<'a, Store>,
    /// When scrapes failed, by source, Unix ms, in order.
    failures: Cow<'a, [(SourceKind, i64)]>,
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
        let failures: Vec<_> = failures(recording, &recording.scrapes).collect();
        Judge::with_facts(rules, recording, store, (reading, timing), Cow::Owned(facts), Cow::Owned(failures))
    }

    /// The same with facts and failed scrapes that are known already.
    pub(super) fn with_facts(
        rules: &'a RuleSet,
        recording: &'a Recording,
        store: &'a Store,
        (reading, timing): (Reading, Timing),
        facts: Cow<'a, Store>,
        failures: Cow<'a, [(SourceKind, i64)]>,
    ) -> Judge<'a> {
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
            failures,
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
                with.facts.to_mut().push(labels, self.recording.unix_ms(*at), *value);
            }
        }
        with
    }

    /// The verdict of every alert over one step, in the order of the files.
    pub fn step(&self, span: &StepSpan) -> Vec<AlertVerdict> {
        let mut rounds = Rounds::new(self.rules, self.timing, self.recording.unix_ms(span.measured.start));
        rounds.advance(self, self.recording.unix_ms(span.measured.end));
        rounds.verdicts(self, span.measured)
    }

    /// Observations that quantile rules which do not fire still wait for in this step: 0 if it need not be prolonged.
    pub fn observations_missing(&self, span: &StepSpan, fires: impl Fn(&str) -> bool) -> u64 {
        let end_ms = self.recording.unix_ms(span.measured.end);
        let view = self.only(span.measured);
        let mut missing: f64 = 0.0;
        for alert in self.rules.alerts() {
            let histograms = observations::histograms(self.rules, &alert.expr, self.store);
            if fires(&alert.name) || histograms.is_empty() {
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
        let view = self.only(span.measured);
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

    /// Whether a scrape of any of `sources` failed in the interval that `at_ms` looks at.
    pub(super) fn failed_just_before(&self, sources: &BTreeSet<SourceKind>, at_ms: i64) -> bool {
        let from = at_ms - self.timing.scrape_ms() - self.timing.poll_ms();
        self.failures.iter().any(|(source, t)| sources.contains(source) && *t > from && *t <= at_ms)
    }

    /// What was read in a span; a reading at its end is the next span's.
    pub(super) fn only(&self, span: Span) -> View<'a> {
        View::since(self.store, self.recording.unix_ms(span.start)).until(self.recording.unix_ms(span.end))
    }

    /// First and last instant of a span, seconds since the start of the run, to the millisecond; both are its own.
    pub fn window(&self, span: Span) -> (f64, f64) {
        let (from_ms, end_ms) = (self.recording.unix_ms(span.start), self.recording.unix_ms(span.end));
        (self.seconds(from_ms), self.seconds((end_ms - 1).max(from_ms)))
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

/// When scrapes failed, by source, Unix ms.
pub(super) fn failures<'r>(
    recording: &Recording,
    scrapes: &'r [Scrape],
) -> impl Iterator<Item = (SourceKind, i64)> + 'r {
    let epoch = recording.unix_ms(Offset::ZERO);
    let at = move |s: &Scrape| epoch + i64::try_from(s.sent.as_millis()).unwrap_or(i64::MAX);
    scrapes.iter().filter(|s| s.result.is_err()).map(move |s| (s.source, at(s)))
}

/// Labels of an alert: those of the element without its name, and the rule's own.
pub(crate) fn alert_labels(alert: &Alert, of: &Labels, value: f64) -> Labels {
    let own: Vec<(&str, String)> =
        alert.labels.iter().map(|(n, v)| (n.as_str(), template::render(v, of, value))).collect();
    let inherited = of.iter().filter(|(n, _)| *n != NAME).map(|(n, v)| (n, v.to_owned()));
    Labels::new(inherited.chain(own))
}
