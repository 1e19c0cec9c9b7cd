//! The rounds of evaluation of one step: every alert at every phase of production's grid, in order of time.
//!
//! With polls a second apart and production's scrapes fifteen, fifteen Prometheus servers are followed, of which one has
//! its turn each second. So a step can be judged as it goes on ([`follow`](super::follow)), at one round a second, and
//! the rounds of a step that is judged at its end are the same.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::model::sample::{Labels, SourceKind};
use crate::model::time::Span;
use crate::model::units::human_seconds;
use crate::model::verdict::{AlertState, AlertVerdict};
use crate::series::{Grid, Store, View};

use super::file::{Alert, RuleSet};
use super::judge::{Judge, alert_labels};
use super::length::Timing;
use super::observations::{self, ENOUGH, Histogram};
use super::overlay::{self, Recorder};
use super::state::{Became, Machine};

/// One step's rounds so far.
#[derive(Clone)]
pub(crate) struct Rounds<'a> {
    rules: &'a RuleSet,
    from_ms: i64,
    phases: Vec<Phase<'a>>,
    tallies: Vec<Tally<'a>>,
    /// How many series there were when the tallies looked theirs up.
    series: Option<usize>,
}

/// One of the Prometheus servers that are followed.
#[derive(Clone)]
struct Phase<'a> {
    grid: Grid,
    next_ms: i64,
    recorder: Recorder<'a>,
    /// What its recording rules have made.
    recorded: Store,
}

/// An alert as it stands in a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stands {
    /// Quiet, pending or firing; one that has fired stays firing, since the step does.
    pub(crate) state: AlertState,
    /// Begin of the condition, Unix ms.
    pub(crate) since_ms: Option<i64>,
    /// When it fired, Unix ms.
    pub(crate) fired_at_ms: Option<i64>,
    /// Earliest time at which it fires if the condition goes on, Unix ms.
    pub(crate) fires_at_ms: Option<i64>,
    pub(crate) labels: Labels,
    pub(crate) value: Option<f64>,
}

impl<'a> Rounds<'a> {
    /// None evaluated yet of a step whose measurement begins at `from_ms`; `timing` is scaled.
    pub(crate) fn new(rules: &'a RuleSet, timing: Timing, from_ms: i64) -> Rounds<'a> {
        let alerts: Vec<&Alert> = rules.alerts().collect();
        let needed: BTreeSet<&str> = rules.records_behind(alerts.iter().map(|a| &a.expr));
        let phase = |offset_ms: i64| Phase {
            grid: Grid { interval_ms: timing.scrape_ms(), phase_ms: from_ms + offset_ms },
            // The evaluation comes one poll after the scrape that it is meant to see.
            next_ms: from_ms + offset_ms + timing.poll_ms(),
            recorder: Recorder::new(rules, &needed),
            recorded: Store::new(),
        };
        let phases: Vec<Phase<'a>> = timing.phases().map(phase).collect();
        let tallies = alerts.iter().map(|a| Tally::new(a, phases.len())).collect();
        Rounds { rules, from_ms, phases, tallies, series: None }
    }

    /// Evaluates all that is due before `until_ms`, looking through `judge`: a step's last instant is the next one's first.
    pub(crate) fn advance(&mut self, judge: &Judge<'_>, until_ms: i64) {
        if self.series != Some(judge.store.len()) {
            self.series = Some(judge.store.len());
            for tally in &mut self.tallies {
                tally.histograms = observations::histograms(self.rules, &tally.alert.expr, judge.store);
                tally.sources = judge.sources(tally.alert);
            }
        }
        for (p, phase) in self.phases.iter_mut().enumerate() {
            if phase.next_ms >= until_ms {
                continue;
            }
            let view = View::on_grid(judge.store, self.from_ms, phase.grid).with_overlay(&judge.facts);
            while phase.next_ms < until_ms {
                let at_ms = phase.next_ms;
                if !phase.recorder.is_empty() {
                    phase.recorder.record(&judge.engine, &view, &mut phase.recorded, at_ms);
                }
                let here = view.clone().with_overlay(&phase.recorded);
                for tally in &mut self.tallies {
                    tally.evaluate(p, judge, &here, at_ms);
                }
                phase.next_ms += judge.timing.evaluation_ms();
            }
        }
    }

    /// The verdict of every alert over the step, measured as `measured` says.
    pub(crate) fn verdicts(&self, judge: &Judge<'_>, measured: Span) -> Vec<AlertVerdict> {
        self.tallies.iter().map(|t| judge.verdict(t, &t.sum(), measured)).collect()
    }

    /// Whether an alert has fired at any phase.
    pub(crate) fn fires(&self, name: &str) -> bool {
        self.tallies.iter().any(|t| t.alert.name == name && t.phases.iter().any(|p| p.first_firing.is_some()))
    }

    /// How each alert stands after the rounds so far.
    pub(crate) fn standing(&self, timing: Timing) -> Vec<(&'a Alert, Stands)> {
        self.tallies.iter().map(|t| (t.alert, t.stands(timing))).collect()
    }
}

/// What one alert did, at each phase.
#[derive(Clone)]
struct Tally<'a> {
    alert: &'a Alert,
    histograms: Vec<Histogram<'a>>,
    sources: BTreeSet<SourceKind>,
    phases: Vec<AtPhase>,
}

/// The same at one phase.
#[derive(Clone, Default)]
struct AtPhase {
    machine: Machine,
    /// Since when the condition could have held, if failed scrapes hid it.
    maybe_since_ms: Option<i64>,
    /// Whether anything in that stretch was in fact unknown.
    maybe_unknown: bool,
    evaluations: u64,
    first_pending: Option<Turn>,
    first_firing: Option<Turn>,
    hidden_at_ms: Option<i64>,
    error: Option<String>,
}

/// An alert that became pending, or fired.
#[derive(Clone)]
struct Turn {
    at_ms: i64,
    active_at_ms: i64,
    labels: Labels,
    value: f64,
}

/// What an alert did over all phases: what came first, whichever phase saw it.
#[derive(Default)]
struct Sum<'t> {
    phases: u32,
    fired_phases: u32,
    evaluations: u64,
    fired_at_ms: Option<i64>,
    pending_at_ms: Option<i64>,
    hidden_at_ms: Option<i64>,
    value: Option<f64>,
    labels: Labels,
    error: Option<&'t String>,
}

impl<'a> Tally<'a> {
    fn new(alert: &'a Alert, phases: usize) -> Tally<'a> {
        let phases = vec![AtPhase::default(); phases];
        Tally { alert, histograms: Vec::new(), sources: BTreeSet::new(), phases }
    }

    fn evaluate(&mut self, phase: usize, judge: &Judge<'_>, view: &View<'_>, at_ms: i64) {
        let present = self.present(judge, view, at_ms);
        let Tally { alert, sources, phases, .. } = self;
        let here = &mut phases[phase];
        here.evaluations += 1;
        let present = match present {
            Ok(present) => present,
            Err(says) => {
                here.error.get_or_insert(says);
                return;
            }
        };
        let blind = present.is_empty() && judge.failed_just_before(sources, at_ms);
        here.look_for_hidden(!present.is_empty(), blind, alert.hold, at_ms);
        for change in here.machine.step(at_ms, &present, alert.hold, alert.keep_firing) {
            let turn = Turn { at_ms, active_at_ms: change.active_at_ms, labels: change.labels, value: change.value };
            match change.became {
                Became::Pending if here.first_firing.is_none() => here.first_pending.get_or_insert(turn),
                Became::Firing => here.first_firing.get_or_insert(turn),
                _ => continue,
            };
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

    fn sum(&self) -> Sum<'_> {
        let mut sum = Sum::default();
        for phase in &self.phases {
            sum.phases += 1;
            sum.fired_phases += u32::from(phase.first_firing.is_some());
            sum.evaluations += phase.evaluations;
            sum.hidden_at_ms = sum.hidden_at_ms.or(phase.hidden_at_ms);
            sum.error = sum.error.or(phase.error.as_ref());
            if let Some(turn) = &phase.first_pending
                && sum.fired_at_ms.is_none()
                && sum.pending_at_ms.is_none_or(|t| turn.at_ms < t)
            {
                sum.pending_at_ms = Some(turn.at_ms);
                (sum.labels, sum.value) = (turn.labels.clone(), Some(turn.value));
            }
            if let Some(turn) = &phase.first_firing
                && sum.fired_at_ms.is_none_or(|t| turn.at_ms < t)
            {
                (sum.fired_at_ms, sum.pending_at_ms) = (Some(turn.at_ms), Some(turn.active_at_ms));
                (sum.labels, sum.value) = (turn.labels.clone(), Some(turn.value));
            }
        }
        sum
    }

    fn stands(&self, timing: Timing) -> Stands {
        let sum = self.sum();
        if let Some(fired) = sum.fired_at_ms {
            return Stands {
                state: AlertState::Firing,
                since_ms: sum.pending_at_ms,
                fired_at_ms: Some(fired),
                fires_at_ms: None,
                labels: sum.labels,
                value: sum.value,
            };
        }
        let (hold, every) = (i64::try_from(self.alert.hold.as_millis()).unwrap_or(i64::MAX), timing.evaluation_ms());
        let fires_at = |since_ms: i64| {
            // At the first evaluation at which it has held for long enough.
            since_ms.saturating_add(hold.saturating_add(every - 1) / every * every)
        };
        let live = self.phases.iter().flat_map(|p| p.machine.live());
        match live.min_by_key(|(_, live)| live.active_at_ms) {
            Some((labels, live)) => Stands {
                state: AlertState::Pending,
                since_ms: Some(live.active_at_ms),
                fired_at_ms: None,
                fires_at_ms: Some(fires_at(live.active_at_ms)),
                labels: labels.clone(),
                value: Some(live.value),
            },
            None => Stands {
                state: AlertState::Quiet,
                since_ms: None,
                fired_at_ms: None,
                fires_at_ms: None,
                labels: Labels::default(),
                value: None,
            },
        }
    }
}

impl AtPhase {
    /// Follows what could have been: an evaluation that is blind because of a failed scrape may
    /// have been true.
    fn look_for_hidden(&mut self, present: bool, blind: bool, hold: Duration, at_ms: i64) {
        if !present && !blind {
            (self.maybe_since_ms, self.maybe_unknown) = (None, false);
            return;
        }
        let since = *self.maybe_since_ms.get_or_insert(at_ms);
        self.maybe_unknown |= blind;
        let hold = i64::try_from(hold.as_millis()).unwrap_or(i64::MAX);
        if self.maybe_unknown && at_ms - since >= hold {
            self.hidden_at_ms.get_or_insert(at_ms);
        }
    }
}

impl Judge<'_> {
    /// The verdict of one alert; `sum` is what it did over all phases.
    fn verdict(&self, tally: &Tally<'_>, sum: &Sum<'_>, measured: Span) -> AlertVerdict {
        let alert = tally.alert;
        let end_ms = self.recording.unix_ms(measured.end);
        let seen = &self.only(measured);
        let mut out = AlertVerdict {
            alert: alert.name.clone(),
            state: AlertState::Quiet,
            pending_at_s: sum.pending_at_ms.map(|ms| self.seconds(ms)),
            fired_at_s: None,
            onset_s: None,
            value: sum.value,
            limit: alert.limit(),
            labels: sum.labels.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
            phase_share: Some(f64::from(sum.fired_phases) / f64::from(sum.phases.max(1))),
            because: None,
        };
        if let Some(fired) = sum.fired_at_ms {
            out.state = AlertState::Firing;
            out.fired_at_s = Some(self.seconds(fired));
            out.onset_s =
                self.onset(alert, &sum.labels, sum.pending_at_ms.unwrap_or(fired), fired).map(|ms| self.seconds(ms));
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
                    return because(
                        AlertState::NoData,
                        "its histogram held no observation in the step, or lacks its +Inf bucket".into(),
                    );
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
        if let Some(at) = sum.hidden_at_ms {
            return because(
                AlertState::NotEvaluable,
                format!("failed scrapes around {} could hide a firing alert", human_seconds(self.seconds(at)),),
            );
        }
        if let Some(says) = sum.error {
            return because(AlertState::NotEvaluable, format!("it cannot be evaluated: {says}"));
        }
        if sum.evaluations == 0 {
            return because(AlertState::NotEvaluable, "no evaluation fell into the step".into());
        }
        out.state = if sum.pending_at_ms.is_some() { AlertState::Pending } else { AlertState::Quiet };
        out
    }
}
