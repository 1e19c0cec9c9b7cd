//! What a step's rules say while it goes on and when it ends.

use anyhow::Context;

use super::Live;
use crate::analyze::{self, Analysis};
use crate::model::step::StepSpan;
use crate::model::time::Offset;
use crate::model::verdict::{Caveat, StepVerdict};
use crate::rules::{Fired, Follow};

impl Live<'_> {
    /// The verdict of a step that has ended.
    pub(super) fn judge(&mut self, step: u32) -> anyhow::Result<StepVerdict> {
        let (verdict, void) = self.analyzed(step, |analysis, _, span| (analysis.step(span), analysis.void()))?;
        self.note_void(void);
        Ok(verdict)
    }

    /// How many observations the rules of a step still lack, as things stand. What its alerts have done so far is known
    /// already.
    pub(super) fn missing(&mut self, step: u32) -> anyhow::Result<u64> {
        let (missing, void) = self.analyzed(step, |analysis, follow, span| {
            let fires = follow.fires(analysis.judge(), span.step, span.measured.end);
            // A threshold that cannot be decided yet waits as a quantile rule does.
            let undecided = u64::from(analysis.gate_undecided(span));
            (analysis.judge().observations_missing(span, fires).max(undecided), analysis.void())
        })?;
        self.note_void(void);
        Ok(missing)
    }

    /// Notes, once, why nothing that is measured counts any more.
    fn note_void(&mut self, void: Option<Caveat>) {
        if let Some(why) = void.filter(|_| !self.void) {
            self.void = true;
            self.progress.say(&format!("the run is void, and ends here: {}", why.says));
            self.tape.note("void", why.says);
        }
    }

    /// Looks at a step as things stand, what is in flight included.
    fn analyzed<T>(
        &mut self,
        step: u32,
        look: impl FnOnce(&Analysis<'_>, &Follow<'_>, &StepSpan) -> T,
    ) -> anyhow::Result<T> {
        let recording = &mut self.tape.recording;
        // What is in flight belongs to the step too; it is taken out again, since it is recorded when it ends.
        let ended = recording.requests.len();
        recording.requests.extend(self.loader.in_flight());
        let mut span = *recording.steps.iter().rfind(|s| s.step == step).context("a step that was never begun")?;
        span.measured.end = span.measured.end.min(self.clock.now());
        let store = analyze::store(recording, &self.prepared.scenario);
        let analysis = Analysis::new(recording, &self.prepared.scenario, &self.prepared.rules, &store);
        let found = look(&analysis, &self.follow, &span);
        recording.requests.truncate(ended);
        Ok(found)
    }

    /// Makes the rounds of evaluation that are due, and notes what has fired since the last look.
    pub(super) fn follow(&mut self) {
        let fired = self.follow.look(&self.tape.recording, self.loader.in_flight(), self.clock.now());
        self.tell(fired);
    }

    pub(super) fn tell(&mut self, fired: Vec<Fired>) {
        for Fired { step, at, alert } in fired {
            let seconds = |at: Offset| format!("{} s", (at.as_secs_f64() * 1e3).round() / 1e3);
            let since = alert.since.map(|s| format!(", pending from {}", seconds(s))).unwrap_or_default();
            let says = format!("step {step}: {} fires{since}, firing from {}", alert.alert, seconds(at));
            if self.progress.wants() {
                let words = alert.summary.map(|s| format!(": {s}")).unwrap_or_default();
                self.progress.say(&format!("        {} fires at {}{words}", alert.alert, seconds(at)));
            }
            self.tape.note("alert_firing", says);
        }
    }
}
