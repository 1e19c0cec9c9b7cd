//! The right half on one screen: a recording, its scenario and its rules become a verdict.
//!
//! A pure function: no clock, no network, no randomness. The live run asks it for one step at a
//! time, `judge` for all of them, and both get the same answer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::diagnose;
use crate::gpu;
use crate::ladder::{Past, highest_clean_below, lowest_firing};
use crate::model::recording::{Recording, StopReason};
use crate::model::step::{CutShort, Phase, StepSpan};
use crate::model::verdict::{
    AlertState, AlertVerdict, Cause, Caveat, Explanation, FirstAlert, Prediction, RunOutcome, SCHEMA, Slo, StepOutcome,
    StepVerdict, Target, Tool, Verdict,
};
use crate::promql::Reading;
use crate::rules::{Judge, RuleSet, Timing};
use crate::scenario::Scenario;
use crate::series::{ClientTargets, Store};
use crate::workload::WorkloadSpec;

mod bottleneck;
mod caveats;
mod client;
mod gate;
mod hardware;
mod noise;
mod plots;
mod quantiles;
mod server;
mod silence;
mod unjudged;

pub use gate::hold_against;
pub use plots::plots;
pub use server::Gauges;
pub use silence::Silence;

/// Share of prompt tokens out of the prefix cache from which on it is remarked.
const CACHED: f64 = 0.05;

/// A recording with all that judging it needs.
pub struct Analysis<'a> {
    recording: &'a Recording,
    scenario: &'a Scenario,
    judge: Judge<'a>,
    slo: Slo,
}

/// All series of a recording, as an [`Analysis`] and the [`plots`] look into them; made once.
pub fn store(recording: &Recording, scenario: &Scenario) -> Store {
    Store::from_recording_with(recording, &targets(scenario))
}

/// The latency targets, as the series of our own know them.
pub fn targets(scenario: &Scenario) -> ClientTargets {
    ClientTargets { ttft: scenario.slo.ttft_p99, gap: scenario.slo.itl_p99 }
}

/// The verdict of a whole recording.
pub fn verdict(recording: &Recording, scenario: &Scenario, rules: &RuleSet) -> Verdict {
    Analysis::new(recording, scenario, rules, &store(recording, scenario)).verdict()
}

impl<'a> Analysis<'a> {
    /// Looks at a recording with the rules' limits and scale already filled in.
    pub fn new(recording: &'a Recording, scenario: &'a Scenario, rules: &'a RuleSet, store: &'a Store) -> Analysis<'a> {
        let judge = Judge::new(rules, recording, store, reading(scenario), timing(scenario));
        Analysis { recording, scenario, judge, slo: scenario.targets() }
    }

    /// What judges.
    pub fn judge(&self) -> &Judge<'a> {
        &self.judge
    }

    /// One step, judged by what had happened when it ended.
    pub fn step(&self, span: &StepSpan) -> StepVerdict {
        let client = client::measure(&self.recording.requests, span, &self.slo);
        let mut alerts = self.judge.step(span);
        if span.phase != Phase::Climb {
            // The step began drained, so nothing in it began earlier; what a rule's window still holds
            // of higher steps is no onset.
            for alert in &mut alerts {
                alert.onset_s = alert.onset_s.and(alert.pending_at_s.or(alert.fired_at_s));
            }
        }
        let mut caveats = client.caveats;
        let bottlenecks = bottleneck::bottlenecks(&self.recording.health, span.measured, &self.slo);
        if let Some(first) = bottlenecks.first() {
            for alert in alerts.iter_mut().filter(|a| self.rests_on_our_latencies(a)) {
                alert.state = AlertState::NotEvaluable;
                alert.because = Some(first.says.clone());
            }
        }
        let kept_up = bottlenecks.is_empty();
        caveats.extend(bottlenecks);
        caveats.extend(bottleneck::own_stamps(&self.recording.health, span.measured));
        let server = self.judge.server_stats(span);
        if let Some(failed) = server.as_ref().map(|s| s.failed_scrapes).filter(|&n| n > 0) {
            caveats.push(Caveat::new(
                "failed_scrapes",
                match failed {
                    1 => "1 scrape of the metrics page failed".to_owned(),
                    n => format!("{n} scrapes of the metrics page failed"),
                },
                "look at the notes in run.jsonl; production would have lost its alerts for as long",
            ));
        }
        let silence = Silence::at(self.recording.requests.iter(), span.measured.end);
        if let Some(silence) = silence.filter(|s| s.is_a_hang(self.scenario.time_scale)) {
            caveats.push(Caveat::new(
                "server_silent",
                silence.says(),
                "the server hangs: read its log, and what its engine was last at; restart it before the next run",
            ));
        }
        let seconds = |at: crate::model::time::Offset| at.as_secs_f64();
        if let Some(rate) = server.as_ref().and_then(|s| s.prefix_cache_hit_rate).filter(|&r| r > CACHED) {
            caveats.push(Caveat::new(
                "prefix_cache_hits",
                format!(
                    "the prefix cache served {:.0} % of the prompt tokens: times to first token are partly a cache's",
                    rate * 100.0
                ),
                "fine if your traffic shares prefixes; else let prompts differ from their first token on",
            ));
        }
        let tokens = client.stats.output_tokens_per_s.map(|r| (r * span.measured.len().as_secs_f64()).round() as u64);
        StepVerdict {
            step: span.step,
            concurrency: span.load.level(),
            load: span.load,
            phase: span.phase,
            repeat: span.repeat,
            warmup_s: [seconds(span.warmup.start), seconds(span.warmup.end)],
            measured_s: [seconds(span.measured.start), seconds(span.measured.end)],
            cut_short: span.cut_short,
            outcome: outcome(span, &alerts, kept_up),
            requests: client.requests,
            offered: client.offered,
            achieved: client.achieved,
            client: client.stats,
            server,
            gpu: gpu::stats(&self.recording.scrapes, span.measured, tokens),
            client_health: bottleneck::health(&self.recording.health, span.measured, client.littles_law_residual),
            alerts,
            caveats,
        }
    }

    /// Every step. Each is judged by itself, so they are shared among the processors.
    fn steps(&self) -> Vec<StepVerdict> {
        let spans = &self.recording.steps;
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8).min(spans.len());
        let next = AtomicUsize::new(0);
        let take = || {
            let mine = std::iter::from_fn(|| {
                let i = next.fetch_add(1, Ordering::Relaxed);
                Some((i, spans.get(i)?))
            });
            mine.map(|(i, span)| (i, self.step(span))).collect::<Vec<_>>()
        };
        let mut steps = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(take)).collect();
            let mut steps = take();
            for thread in others {
                // A panic there is ours as well: go on panicking.
                steps.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            steps
        });
        steps.sort_by_key(|(i, _)| *i);
        steps.into_iter().map(|(_, verdict)| verdict).collect()
    }

    /// Whether a rule reads latencies that our own client measured.
    fn rests_on_our_latencies(&self, alert: &AlertVerdict) -> bool {
        let rule = self.judge.rules().find(&alert.alert);
        rule.is_some_and(|r| r.expr.metric_names().iter().any(|n| n.starts_with("plimsoll_client_")))
    }

    /// Observations that quantile rules still lack in a step; 0 if it need not be prolonged.
    fn observations_missing(&self, span: &StepSpan, verdict: &StepVerdict) -> u64 {
        let fires = |name: &str| verdict.alerts.iter().any(|a| a.alert == name && a.state == AlertState::Firing);
        self.judge.observations_missing(span, fires)
    }

    /// Why the run so far is void; `None` if it is not.
    pub fn void(&self) -> Option<Caveat> {
        diagnose::void(&self.judge)
    }

    /// Everything.
    pub fn verdict(&self) -> Verdict {
        let recording = self.recording;
        let header = &recording.header;
        let mut steps = self.steps();
        // What informing rules say, some of them against the run's own first clean step.
        let judge = self.judge.with_series(&hardware::reference_clocks(recording, &steps));
        let remarks = diagnose::remarks(&judge);
        for (step, caveats) in steps.iter_mut().zip(remarks.steps) {
            step.caveats.extend(caveats);
        }
        // Failures of a server that went away say nothing of what it carries.
        let lost = |s: &&StepVerdict| s.cut_short == Some(CutShort::TargetLost);
        let history: Vec<Past> = steps.iter().filter(|s| !lost(s)).map(past).collect();
        let firing = lowest_firing(&history);
        let clean = highest_clean_below(&history, firing.unwrap_or(f64::INFINITY));
        let first = firing.and_then(|level| self.first_alert(&steps, level));
        let explanation = first.as_ref().and_then(|(step, alert)| self.explain(&judge, *step, alert));
        let first_alert = first.as_ref().map(|(step, alert)| self.named(&steps[*step], alert));
        let outcome = match (&first_alert, recording.ended.map(|e| e.reason)) {
            (Some(_), _) => RunOutcome::Alert,
            (None, Some(StopReason::EndOfLadder)) if clean_to_the_top(&history) => RunOutcome::Clean,
            _ => RunOutcome::Inconclusive,
        };
        let constants = self.judge.constants();
        let whole = |name: &str| constants.get(name).filter(|v| **v >= 0.0).map(|v| *v as u64);
        let mut verdict = Verdict {
            schema: SCHEMA.into(),
            tool: Tool {
                name: "plimsoll".into(),
                version: header.tool_version.clone(),
                promql: self.scenario.rules.promql.clone(),
            },
            scenario: header.scenario.clone(),
            target: Target {
                url: header.target.url.clone(),
                model: header.target.model.clone(),
                engine: header.target.engine.clone(),
                version: header.target.version.clone(),
                max_model_len: header.target.max_model_len,
                kv_cache_tokens: whole("plimsoll:kv_cache_tokens"),
                kv_cache_blocks: whole("plimsoll:kv_blocks"),
                block_size: whole("plimsoll:kv_block_size"),
                server_command: header.server_command.clone(),
            },
            clock: header.clock,
            time_scale: header.time_scale,
            nonce: header.nonce.clone(),
            seed: header.seed,
            repeats: self.scenario.ladder.repeats,
            workload: client::workload(&kind(&self.scenario.workload), &recording.requests),
            slo: self.slo.clone(),
            duration_s: recording.last.as_secs_f64(),
            stopped: recording.ended.map(|e| e.reason),
            outcome,
            other_alerts: self.others(&judge, &steps, first_alert.as_ref()),
            first_alert,
            highest_clean_concurrency: clean,
            lowest_firing_concurrency: firing,
            confirmed: confirmed(&history),
            prediction: self.predict(first.as_ref().map(|(step, _)| *step), clean, explanation.as_ref()),
            hardware: explanation.as_ref().and_then(|e| hardware::limit(&judge, e)),
            void: None,
            explanation,
            as_deployed: self.judge.as_deployed(),
            gate: None,
            comparison: None,
            caveats: Vec::new(),
            steps,
        };
        verdict.caveats = self.caveats(&verdict);
        if let Some(void) = remarks.void {
            hardware::make_void(&mut verdict, void);
        }
        verdict.gate = self.gate(&verdict);
        verdict
    }

    /// The step at the lowest firing level, and in it the alert that began first.
    fn first_alert(&self, steps: &[StepVerdict], level: f64) -> Option<(usize, AlertVerdict)> {
        let whole = |s: &StepVerdict| s.cut_short != Some(CutShort::TargetLost);
        let fired = |s: &&StepVerdict| s.concurrency == level && s.outcome == StepOutcome::Firing && whole(s);
        let step = steps.iter().find(fired)?;
        let alert = step
            .alerts
            .iter()
            .filter(|a| a.state == AlertState::Firing)
            // min_by keeps the first of equals: the order of the rules.
            .min_by(|a, b| began(a).total_cmp(&began(b)))?;
        Some((steps.iter().position(|s| s.step == step.step)?, alert.clone()))
    }

    /// What the sizes say should fit, told by the firing step or else by the last one.
    fn predict(
        &self,
        step: Option<usize>,
        clean: Option<f64>,
        explanation: Option<&Explanation>,
    ) -> Option<Prediction> {
        let spans = &self.recording.steps;
        // Where no alert ended the climb, its last level is no limit.
        let measured = clean.filter(|_| step.is_some());
        let span = spans.get(step.unwrap_or(spans.len().checked_sub(1)?))?;
        diagnose::predict(&self.judge, span, measured, explanation)
    }

    fn explain(&self, judge: &Judge<'_>, step: usize, alert: &AlertVerdict) -> Option<Explanation> {
        let span = self.recording.steps.get(step)?;
        Some(diagnose::explain(judge, span, alert))
    }

    fn named(&self, step: &StepVerdict, alert: &AlertVerdict) -> FirstAlert {
        FirstAlert {
            alert: alert.alert.clone(),
            concurrency: step.concurrency,
            step: step.step,
            labels: alert.labels.clone(),
            onset_s: alert.onset_s,
            pending_at_s: alert.pending_at_s,
            fired_at_s: alert.fired_at_s.unwrap_or(step.measured_s[1]),
            summary: self.judge.summary(alert),
            because: None,
        }
    }

    /// Every other alert, at the lowest level at which it fired, by onset, with the pair that explains it.
    fn others(&self, judge: &Judge<'_>, steps: &[StepVerdict], first: Option<&FirstAlert>) -> Vec<FirstAlert> {
        let mut seen: BTreeMap<&str, FirstAlert> = BTreeMap::new();
        let mut by_level: Vec<(usize, &StepVerdict)> = steps.iter().enumerate().collect();
        by_level.sort_by(|(_, a), (_, b)| a.concurrency.total_cmp(&b.concurrency));
        for (at, step) in by_level {
            for alert in step.alerts.iter().filter(|a| a.state == AlertState::Firing) {
                if first.is_some_and(|f| f.alert == alert.alert) {
                    continue;
                }
                seen.entry(&alert.alert).or_insert_with(|| {
                    let why = self.explain(judge, at, alert).filter(|e| e.pair != diagnose::UNEXPLAINED);
                    let because = why.map(|e| Cause { pair: e.pair, summary: e.summary });
                    FirstAlert { because, ..self.named(step, alert) }
                });
            }
        }
        let mut out: Vec<FirstAlert> = seen.into_values().collect();
        let began = |f: &FirstAlert| f.onset_s.or(f.pending_at_s).unwrap_or(f.fired_at_s);
        out.sort_by(|a, b| began(a).total_cmp(&began(b)));
        out
    }
}

/// What the ladder needs to know of a step.
pub fn past(step: &StepVerdict) -> Past {
    Past { level: step.concurrency, phase: step.phase, repeat: step.repeat, outcome: step.outcome }
}

/// The workload's kind as the scenario names it.
fn kind(workload: &WorkloadSpec) -> String {
    let value = serde_json::to_value(workload).unwrap_or_default();
    value.get("kind").and_then(|k| k.as_str()).unwrap_or_default().to_owned()
}

/// Which Prometheus the rules are read as.
pub fn reading(scenario: &Scenario) -> Reading {
    if scenario.rules.promql == "2.x" { Reading::V2 } else { Reading::V3 }
}

/// When production scrapes and evaluates, and how finely we did.
pub fn timing(scenario: &Scenario) -> Timing {
    Timing {
        scrape: scenario.rules.scrape_interval,
        evaluation: scenario.rules.scrape_interval,
        poll: scenario.metrics.scaled(scenario.time_scale).interval,
    }
}

/// What a step came to. Where our own client was the bottleneck, the load was not what it was meant to be: then it can
/// show that a limit was passed, not that it was kept.
fn outcome(span: &StepSpan, alerts: &[AlertVerdict], client_kept_up: bool) -> StepOutcome {
    let any = |state: AlertState| alerts.iter().any(|a| a.state == state);
    if any(AlertState::Firing) {
        StepOutcome::Firing
    } else if !client_kept_up
        || span.cut_short.is_some()
        || alerts.is_empty()
        || any(AlertState::NotEvaluable)
        || any(AlertState::NoData)
    {
        StepOutcome::Inconclusive
    } else {
        StepOutcome::Clean
    }
}

fn began(alert: &AlertVerdict) -> f64 {
    alert.onset_s.or(alert.pending_at_s).or(alert.fired_at_s).unwrap_or(f64::INFINITY)
}

/// Whether the highest level that was run is clean, with all its repeats. Steps below it that could not
/// be judged do not matter then: nothing fired in them, and more load does not put out an alert.
fn clean_to_the_top(history: &[Past]) -> bool {
    let top = history.iter().map(|p| p.level).fold(0.0, f64::max);
    let mut at_the_top = history.iter().filter(|p| p.level == top).peekable();
    at_the_top.peek().is_some() && at_the_top.all(|p| p.outcome == StepOutcome::Clean)
}

/// Whether both bounds, run once more, came out as before. `None` if they were not both run again, or
/// one of them could not be judged.
fn confirmed(history: &[Past]) -> Option<bool> {
    let again: Vec<&Past> = history.iter().filter(|p| p.phase == Phase::Confirm).collect();
    let lowest = history.iter().filter(|p| p.phase != Phase::Confirm && p.outcome == StepOutcome::Firing);
    let firing = lowest.map(|p| p.level).min_by(f64::total_cmp)?;
    if again.iter().any(|p| p.outcome == StepOutcome::Inconclusive) {
        return None;
    }
    let held = again.iter().all(|p| {
        let expected = if p.level >= firing { StepOutcome::Firing } else { StepOutcome::Clean };
        p.outcome == expected
    });
    again.iter().any(|p| p.level >= firing).then_some(held)
}
