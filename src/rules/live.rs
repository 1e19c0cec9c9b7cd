//! How alerts stand while the scrapes still come: what is pending, since when, and how long until it fires.
//!
//! This is what one Prometheus that scrapes as we do would show; no verdict of a step rests on it, which looks at
//! every phase of production's grid ([`judge`](super::judge)).

use std::collections::BTreeSet;
use std::time::Duration;

use crate::model::recording::{Event, Header, Recording};
use crate::model::sample::{Labels, Sample, Scrape, SourceKind};
use crate::model::step::{Load, Phase, StepSpan};
use crate::model::time::{Offset, Span};
use crate::model::verdict::{AlertState, AlertVerdict};
use crate::promql::{Expr, Reading};
use crate::series::{Store, View};

use super::file::{Alert, Rule, RuleSet};
use super::judge::{Judge, alert_labels};
use super::length::Timing;
use super::selectors::reads;
use super::state::Machine;
use super::template;

/// The alerts of a rule set, fed with scrapes as they come.
pub struct Live {
    rules: RuleSet,
    timing: Timing,
    reading: Reading,
    /// The scrapes that rules still look back at, with the series that they read.
    recording: Recording,
    /// Names of the metrics that are read; `None` if a rule may read any.
    read: Option<BTreeSet<String>>,
    /// How far rules look back.
    horizon: Duration,
    /// One an alert, in the order of the rules.
    machines: Vec<Machine>,
}

/// One alert as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Name of the rule.
    pub alert: String,
    /// Labels of the alert, without its name; none while it is quiet.
    pub labels: Labels,
    /// Quiet, pending, firing, or without data.
    pub state: AlertState,
    /// Since when its condition holds; `None` while it does not.
    pub since: Option<Offset>,
    /// Until it fires, if its condition goes on to hold; `None` unless it is pending.
    pub fires_in: Option<Duration>,
    /// Its value; `None` while its condition does not hold.
    pub value: Option<f64>,
    /// The rule's `summary`, filled in.
    pub summary: Option<String>,
    /// Why there is no data.
    pub because: Option<String>,
}

impl Live {
    /// Nothing scraped yet. `timing` is not yet scaled; `header` tells time and target.
    pub fn new(rules: RuleSet, header: Header, timing: Timing, reading: Reading) -> Live {
        let exprs: Vec<&Expr> = rules
            .groups
            .iter()
            .flat_map(|g| &g.rules)
            .map(|rule| match rule {
                Rule::Record(r) => &r.expr,
                Rule::Alert(a) => &a.expr,
            })
            .collect();
        let selected = exprs.iter().flat_map(|e| reads(e)).map(|r| r.selector.metric().map(str::to_owned));
        let facts = rules.facts.iter().map(|f| Some(f.series.clone()));
        let read = selected.chain(facts).collect();
        let reach = exprs.iter().map(|e| e.reach_ms()).max().unwrap_or(0).unsigned_abs();
        let lookback = Duration::from_secs(300).mul_f64(rules.time_scale);
        let horizon = Duration::from_millis(reach).max(lookback) + timing.scaled(rules.time_scale).scrape * 2;
        let machines = rules.alerts().map(|_| Machine::default()).collect();
        Live { rules, timing, reading, recording: Recording::new(header), read, horizon, machines }
    }

    /// Takes in a scrape. Scrapes of different sources may come in any order.
    pub fn take(&mut self, scrape: &Scrape) {
        let is_read = |s: &&Sample| self.read.as_ref().is_none_or(|names| names.contains(s.labels.name()));
        let result = match &scrape.result {
            // A GPU's page is small, and all of it is told.
            Ok(samples) if scrape.source == SourceKind::Gpu => Ok(samples.clone()),
            Ok(samples) => Ok(samples.iter().filter(is_read).cloned().collect()),
            Err(failure) => Err(failure.clone()),
        };
        let Scrape { source, target, sent, received, .. } = *scrape;
        let oldest = sent - self.horizon;
        self.recording.scrapes.retain(|s| s.sent >= oldest);
        self.recording.apply(Event::Scrape(Scrape { source, target, sent, received, result }));
    }

    /// Forgets everything that was scraped and every alert: a new step begins.
    pub fn forget(&mut self) {
        self.recording.scrapes.clear();
        self.machines.iter_mut().for_each(|m| *m = Machine::default());
    }

    /// Evaluates every alert at `at`, which must not go backwards: all that are pending or firing, each with its labels,
    /// and one entry for every other rule.
    pub fn look(&mut self, at: Offset) -> Vec<Standing> {
        let Live { rules, timing, reading, recording, machines, .. } = self;
        let store = Store::from_recording(recording);
        let judge = Judge::new(rules, recording, &store, *reading, *timing);
        let exprs: Vec<&Expr> = rules.alerts().map(|a| &a.expr).collect();
        let at_ms = recording.unix_ms(at);
        let lens = judge.run_lens(at_ms, &exprs);
        let seen = View::whole(&store);
        // A page that cannot be read says nothing, and least of all that all is well.
        let last = recording.scrapes.iter().rfind(|s| s.source == SourceKind::Server);
        let blind = last.and_then(|s| s.result.as_ref().err()).map(|f| f.detail.clone());
        let mut out = Vec::new();
        for (alert, machine) in rules.alerts().zip(machines) {
            let elements = lens.elements(&alert.expr, at_ms);
            let present: Vec<(Labels, f64)> =
                elements.iter().map(|e| (alert_labels(alert, &e.labels, e.value), e.value)).collect();
            machine.step(at_ms, &present, alert.hold, alert.keep_firing);
            if machine.live().is_empty() {
                let (state, because) = match &blind {
                    Some(detail) => (AlertState::NoData, Some(format!("the page cannot be read: {detail}"))),
                    None if alert.optional() || judge.any_series(alert, &seen, at_ms) => (AlertState::Quiet, None),
                    None => (AlertState::NoData, Some("none of its metrics is there".into())),
                };
                out.push(Standing::quiet(alert, state, because));
            }
            for (labels, live) in machine.live() {
                let held = Duration::from_millis((at_ms - live.active_at_ms).unsigned_abs());
                let firing = live.fired_at_ms.is_some();
                out.push(Standing {
                    alert: alert.name.clone(),
                    labels: labels.clone(),
                    state: if firing { AlertState::Firing } else { AlertState::Pending },
                    since: Some(at - held),
                    fires_in: (!firing).then(|| alert.hold.saturating_sub(held)),
                    value: Some(live.value),
                    summary: alert.annotations.get("summary").map(|t| template::render(t, labels, live.value)),
                    because: None,
                });
            }
        }
        out
    }

    /// Looks into the last `window` before `at` as into a step of no known load: for explanations and for the numbers.
    pub fn judged<T>(&self, window: Duration, at: Offset, look: impl FnOnce(&Judge<'_>, &StepSpan) -> T) -> T {
        let store = Store::from_recording(&self.recording);
        let judge = Judge::new(&self.rules, &self.recording, &store, self.reading, self.timing);
        let oldest = self.recording.scrapes.first().map_or(at, |s| s.sent);
        let from = (at - window).max(oldest);
        let span = StepSpan {
            step: 0,
            load: Load::Rate(0.0),
            phase: Phase::Climb,
            repeat: 0,
            warmup: Span::new(oldest.min(from), from),
            measured: Span::new(from, at),
            cut_short: None,
        };
        look(&judge, &span)
    }

    /// The scrapes that are still remembered.
    pub fn scrapes(&self) -> &[Scrape] {
        &self.recording.scrapes
    }
}

impl Standing {
    fn quiet(alert: &Alert, state: AlertState, because: Option<String>) -> Standing {
        Standing {
            alert: alert.name.clone(),
            labels: Labels::default(),
            state,
            since: None,
            fires_in: None,
            value: None,
            summary: None,
            because,
        }
    }

    /// The same in the form in which a step's verdict has it, as of `at`.
    pub fn verdict(&self, at: Offset) -> AlertVerdict {
        AlertVerdict {
            alert: self.alert.clone(),
            state: self.state,
            pending_at_s: self.since.map(Offset::as_secs_f64),
            fired_at_s: (self.state == AlertState::Firing).then(|| at.as_secs_f64()),
            onset_s: self.since.map(Offset::as_secs_f64),
            value: self.value,
            limit: None,
            labels: self.labels.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
            phase_share: None,
            because: self.because.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::recording::RuleFile;
    use crate::model::sample::{NAME, ScrapeFailure};
    use crate::model::time::ClockKind;
    use crate::rules::Limits;

    fn rules() -> RuleSet {
        let text = "
groups:
  - name: g
    rules:
      - {alert: Waiting, expr: 'waiting > 0', for: 1m, annotations: {summary: '{{ $value }} wait at {{ $labels.engine }}'}}
      - {alert: Gone, expr: 'never_there > 0'}
";
        RuleSet::load(&[RuleFile { name: "x.yml".into(), text: text.into() }], &Limits::default(), 1.0).unwrap()
    }

    fn scrape(at_s: u64, waiting: Option<f64>) -> Scrape {
        let sent = Offset::from_millis(at_s * 1_000);
        let sample = |name: &str, value| Sample { labels: Labels::new([(NAME, name), ("engine", "0")]), value };
        let failure = || ScrapeFailure { class: "status".into(), detail: "503".into() };
        let result = waiting.map(|w| vec![sample("waiting", w), sample("unread", 1.0)]).ok_or_else(failure);
        Scrape { source: SourceKind::Server, target: 0, sent, received: sent, result }
    }

    #[test]
    fn an_alert_counts_down_fires_and_goes() {
        let header = Header { ..Header::blank(ClockKind::Simulated, 1_767_225_600_000) };
        let mut live = Live::new(rules(), header, Timing::default(), Reading::V3);
        let mut seen = Vec::new();
        for t in (0..=180).step_by(15) {
            let waiting = match t {
                30..=120 => Some(3.0),
                165 => None,
                _ => Some(0.0),
            };
            live.take(&scrape(t, waiting));
            let standing = live.look(Offset::from_millis(t * 1_000));
            assert_eq!(standing.len(), 2);
            assert_eq!(standing[1].state, AlertState::NoData);
            let s = &standing[0];
            if s.state == AlertState::Firing {
                assert_eq!(s.summary.as_deref(), Some("3 wait at 0"));
            }
            seen.push((t, s.state, s.fires_in.map(|d| d.as_secs())));
        }
        use AlertState::{Firing, NoData, Pending, Quiet};
        assert_eq!(
            seen,
            [
                (0, Quiet, None),
                (15, Quiet, None),
                (30, Pending, Some(60)),
                (45, Pending, Some(45)),
                (60, Pending, Some(30)),
                (75, Pending, Some(15)),
                (90, Firing, None),
                (105, Firing, None),
                (120, Firing, None),
                (135, Quiet, None),
                (150, Quiet, None),
                (165, NoData, None),
                (180, Quiet, None),
            ]
        );
        assert!(live.scrapes().iter().flat_map(|s| s.result.iter().flatten()).all(|s| s.labels.name() == "waiting"));
        live.forget();
        assert!(live.scrapes().is_empty());
    }
}
