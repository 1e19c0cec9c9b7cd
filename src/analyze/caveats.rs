//! What is doubtful about a run as a whole.

use super::Analysis;
use crate::compare;
use crate::model::recording::StopReason;
use crate::model::sample::SourceKind;
use crate::model::time::ClockKind;
use crate::model::verdict::{Caveat, Verdict};

impl Analysis<'_> {
    /// The caveats of a verdict that is complete but for them.
    pub(super) fn caveats(&self, verdict: &Verdict) -> Vec<Caveat> {
        let mut out = Vec::new();
        if !self.scenario.rules.enabled {
            out.push(Caveat::new("rules_off", "nothing was judged: the rules are off", "leave out --rules off"));
        }
        if verdict.time_scale != 1.0 {
            out.push(Caveat::new(
                "time_scale",
                format!("every `for`, range and interval of the rules was multiplied by {}", verdict.time_scale),
                "production fires later; compare only with runs of the same scale",
            ));
        }
        if self.scenario.rules.enabled {
            out.extend(self.unjudged(verdict));
        }
        if verdict.confirmed == Some(false) {
            out.push(Caveat::new(
                "not_confirmed",
                "a bound that was run once more came out differently: the limit is an interval",
                "repeat the run, or hold the steps longer",
            ));
        }
        let bounds = compare::bounds(verdict);
        if bounds != [verdict.highest_clean_concurrency, verdict.lowest_firing_concurrency] {
            let word = |level: Option<f64>| level.map_or_else(|| "no level".into(), |l| l.to_string());
            out.push(Caveat::new(
                "repeats_disagree",
                format!(
                    "the {} repeats put the limit in different places: above {} and not above {}",
                    verdict.repeats,
                    word(bounds[0]),
                    word(bounds[1])
                ),
                "the answer names the lowest level that fired in any of them; hold the steps longer for a sharper one",
            ));
        }
        match verdict.stopped {
            None => out.push(Caveat::new(
                "unfinished",
                "the run was killed: the verdict covers what was recorded",
                "run it again",
            )),
            Some(StopReason::Interrupted) => {
                out.push(Caveat::new("interrupted", "the run was interrupted before the ladder's end", ""));
            }
            Some(StopReason::TargetLost) => {
                let told = self.recording.notes.iter().rev().find(|n| n.code == "target_lost");
                out.push(Caveat::new(
                    "target_lost",
                    told.map_or("the server was lost during the run", |n| n.says.as_str()),
                    "look at its log; plimsoll keeps it when it launches the server",
                ));
            }
            Some(StopReason::MaxDuration) => out.push(Caveat::new(
                "max_duration",
                "the next step might not have fitted into max_duration",
                "raise max_duration, or give fewer levels",
            )),
            // The void itself is the first caveat.
            Some(StopReason::BoundaryFound | StopReason::EndOfLadder | StopReason::Void) => {}
        }
        if verdict.steps.iter().any(|s| s.offered.concurrency.is_some()) && verdict.clock == ClockKind::Real {
            out.push(Caveat::new(
                "closed_loop",
                "a closed loop sends no new request while its streams wait: it hides the wait of users that it did not send",
                "--request-rate shows what an open loop of the same rate would see",
            ));
        }
        let scraped = self.recording.scrapes.iter().any(|s| s.source == SourceKind::Server && s.result.is_ok());
        if !scraped {
            out.push(Caveat::new(
                "no_server_metrics",
                "no metrics page was read: only the client's own alerts could be judged",
                "give --metrics-url",
            ));
        }
        out
    }
}
