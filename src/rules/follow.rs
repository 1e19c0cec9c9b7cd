//! A step's alerts while it goes on: the rounds that judge it, evaluated as their scrapes come.
//!
//! What has fired here has fired in the verdict of the step too, at the same times, since both make the same rounds
//! over the same samples. A round is made once every scrape before it is in, one or two
//! seconds after its time; what holds the scrapes up (a page that takes its time, up to production's ten seconds) holds up
//! the rounds. The verdict knows more in three ways, each of which takes time to be known: it can say that there was no
//! data, or that an alert could not be judged; it reads onsets from the whole run; and rules that read the sizes of the
//! requests, or timings that the server tells of them, see all of the step's requests from its beginning on.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::model::recording::Recording;
use crate::model::request::RequestTimeline;
use crate::model::sample::SourceKind;
use crate::model::step::StepSpan;
use crate::model::time::Offset;
use crate::model::verdict::AlertVerdict;
use crate::promql::{Expr, Reading};
use crate::series::{ClientTargets, Growing, Store};

use super::file::{Alert, RuleSet};
use super::judge::{Judge, failures};
use super::length::Timing;
use super::live::Standing;
use super::rounds::{Rounds, Stands};
use super::selectors::reads;
use super::{overlay, template};

/// The alerts of a run that goes on.
pub struct Follow<'a> {
    rules: &'a RuleSet,
    reading: Reading,
    timing: Timing,
    growing: Growing,
    facts: Store,
    failures: Vec<(SourceKind, i64)>,
    /// Scrapes that were looked through for failures.
    scrapes: usize,
    step: Option<Followed<'a>>,
}

/// The step that is followed.
struct Followed<'a> {
    step: u32,
    rounds: Rounds<'a>,
    /// All rounds up to this are made.
    made: Offset,
    /// Alerts that were handed out as having fired.
    fired: BTreeSet<&'a str>,
}

/// An alert that has just been seen to fire in a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Fired {
    /// Number of the step.
    pub step: u32,
    /// When it fired.
    pub at: Offset,
    /// The alert.
    pub alert: Standing,
}

impl<'a> Follow<'a> {
    /// Nothing recorded yet. `timing` is not yet scaled; `scraped` says whether there is a server's page.
    pub fn new(
        rules: &'a RuleSet,
        recording: &Recording,
        targets: &ClientTargets,
        (reading, timing): (Reading, Timing),
        scraped: bool,
    ) -> Follow<'a> {
        Follow {
            rules,
            reading,
            timing,
            growing: Growing::new(recording, targets, read(rules), scraped),
            facts: Store::new(),
            failures: Vec::new(),
            scrapes: 0,
            step: None,
        }
    }

    /// Takes in what was recorded since the last look and makes the rounds that are due. `flights` are the requests in
    /// flight at `now`. Tells which alerts have fired since.
    pub fn look(&mut self, recording: &Recording, flights: Vec<RequestTimeline>, now: Offset) -> Vec<Fired> {
        self.growing.look(recording, flights, now);
        self.rounds(recording)
    }

    /// Makes every round up to `now`, where it is known that all is recorded that has happened by then, but for `flights`:
    /// at the end of a step, whose last rounds need not wait for the scrapes after it.
    pub fn settle(&mut self, recording: &Recording, flights: Vec<RequestTimeline>, now: Offset) -> Vec<Fired> {
        self.growing.settle(recording, flights, now);
        self.rounds(recording)
    }

    /// How each alert stands in the step that is being measured, as far as that is known; nothing between two steps.
    pub fn standing(&self, recording: &Recording, now: Offset) -> Vec<Standing> {
        let Some(of) = &self.step else { return Vec::new() };
        if !recording.steps.iter().any(|s| s.step == of.step && s.measured.end > now) {
            return Vec::new();
        }
        let told = |(alert, stands): (&Alert, Stands)| standing(recording, alert, &stands, now);
        of.rounds.standing(self.scaled()).into_iter().map(told).collect()
    }

    /// Whether an alert has fired in step `step` at any phase, by what `judge` sees up to `until`: the rounds that
    /// could not be made yet are made for once with what there is.
    pub fn fires<'s>(&'s self, judge: &Judge<'_>, step: u32, until: Offset) -> impl Fn(&str) -> bool + 's {
        let mut rounds = self.step.as_ref().filter(|of| of.step == step).map(|of| of.rounds.clone());
        if let Some(rounds) = &mut rounds {
            rounds.advance(judge, judge.recording.unix_ms(until));
        }
        move |name| rounds.as_ref().is_some_and(|r| r.fires(name))
    }

    /// The verdict of every alert over the step that was measured last, by the rounds so far. Onsets are read from
    /// the series that the alerts read.
    pub fn verdicts(&self, recording: &Recording) -> Option<(u32, Vec<AlertVerdict>)> {
        let of = self.step.as_ref()?;
        let measured = recording.steps.iter().rfind(|s| s.step == of.step)?.measured;
        Some((of.step, of.rounds.verdicts(&self.judge(recording), measured)))
    }

    fn rounds(&mut self, recording: &Recording) -> Vec<Fired> {
        let Some(settled) = self.growing.settled() else { return Vec::new() };
        overlay::push_facts(&self.rules.facts, self.growing.store(), &mut self.facts);
        self.failures.extend(failures(recording, &recording.scrapes[self.scrapes..]));
        self.scrapes = recording.scrapes.len();
        let mut out = Vec::new();
        while let Some(span) = self.due(recording, settled) {
            let mut of = self.step.take().filter(|of| of.step == span.step).unwrap_or_else(|| Followed {
                step: span.step,
                rounds: Rounds::new(self.rules, self.scaled(), recording.unix_ms(span.measured.start)),
                made: span.measured.start,
                fired: BTreeSet::new(),
            });
            of.rounds.advance(&self.judge(recording), recording.unix_ms(settled.min(span.measured.end)));
            of.made = settled;
            for (alert, stands) in of.rounds.standing(self.scaled()) {
                if let Some(ms) = stands.fired_at_ms.filter(|_| of.fired.insert(&alert.name)) {
                    let at = offset(recording, ms);
                    out.push(Fired { step: span.step, at, alert: standing(recording, alert, &stands, at) });
                }
            }
            self.step = Some(of);
            if settled < span.measured.end {
                break;
            }
        }
        out
    }

    /// The step to be followed now: the one that is followed until its last round is made, then the next one whose
    /// measurement has begun.
    fn due(&self, recording: &Recording, settled: Offset) -> Option<StepSpan> {
        let mut steps = recording.steps.iter();
        if let Some(of) = &self.step {
            let now = steps.find(|s| s.step == of.step)?;
            if of.made < now.measured.end {
                return Some(*now);
            }
        }
        steps.next().filter(|s| s.measured.start <= settled).copied()
    }

    fn judge<'j>(&'j self, recording: &'j Recording) -> Judge<'j> {
        Judge::with_facts(
            self.rules,
            recording,
            self.growing.store(),
            (self.reading, self.timing),
            Cow::Borrowed(&self.facts),
            Cow::Borrowed(&self.failures),
        )
    }

    fn scaled(&self) -> Timing {
        self.timing.scaled(self.rules.time_scale)
    }
}

/// Names of the metrics that the alerts read, directly or behind recording rules; `None` if a rule may read any.
fn read(rules: &RuleSet) -> Option<BTreeSet<String>> {
    let behind = rules.records_behind(rules.alerts().map(|a| &a.expr));
    let records = rules.records().filter(|r| behind.contains(r.name.as_str())).map(|r| &r.expr);
    let exprs: Vec<&Expr> = rules.alerts().map(|a| &a.expr).chain(records).collect();
    let selected = exprs.iter().flat_map(|e| reads(e)).map(|r| r.selector.metric().map(str::to_owned));
    selected.chain(rules.facts.iter().map(|f| Some(f.series.clone()))).collect()
}

fn standing(recording: &Recording, alert: &Alert, stands: &Stands, now: Offset) -> Standing {
    let summary = || {
        let text = alert.annotations.get("summary")?;
        Some(template::render(text, &stands.labels, stands.value?))
    };
    Standing {
        alert: alert.name.clone(),
        labels: stands.labels.clone(),
        state: stands.state,
        since: stands.since_ms.map(|ms| offset(recording, ms)),
        fires_in: stands.fires_at_ms.map(|ms| offset(recording, ms).since(now)),
        value: stands.value,
        summary: summary(),
        because: None,
    }
}

fn offset(recording: &Recording, unix_ms: i64) -> Offset {
    let ms = unix_ms.saturating_sub(recording.header.epoch_unix_ms);
    Offset::from_duration(Duration::from_millis(ms.unsigned_abs()))
}
