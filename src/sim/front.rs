//! The front end between engine and client: it picks up what a step said, and observes.
//!
//! Two clocks meet here, as in vLLM: intervals between steps are on the engine's stamps, while
//! the first token and the whole request are timed by when the front end picks an output up.

use std::collections::HashMap;

use super::metrics::EngineMetrics;
use super::profile::Profile;
use super::request::{Finish, Happening, Item, StepOutput};
use crate::model::time::Offset;

/// What the front end remembers of a request that runs.
#[derive(Clone, Debug)]
struct Live {
    arrival: Offset,
    prompt: usize,
    max_tokens: usize,
    /// The asks of one HTTP request (`n`), told apart from others.
    family: u64,
    queued: Offset,
    scheduled: Option<Offset>,
    first: Option<Offset>,
    last: Offset,
    first_latency: f64,
    generated: usize,
    cached: usize,
    preemptions: u32,
}

/// The answers of one HTTP request that are still running.
#[derive(Clone, Debug)]
struct Family {
    left: usize,
    n: usize,
    most: usize,
}

/// Times of one request, for those who ask for them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Times {
    pub(super) first_ms: f64,
    pub(super) generation_ms: f64,
    pub(super) queue_ms: f64,
    /// `None` for an answer of one token.
    pub(super) mean_itl_ms: Option<f64>,
}

/// The front end's state.
#[derive(Debug)]
pub(super) struct Front {
    pub(super) metrics: Vec<EngineMetrics>,
    /// Never iterated.
    live: HashMap<u64, Live>,
    families: HashMap<u64, Family>,
    log_stats: bool,
    /// Prompt tokens of requests without a first token.
    queued_tokens: usize,
}

impl Front {
    /// A front end that has seen nothing.
    pub(super) fn new(profile: &Profile) -> Front {
        Front {
            metrics: (0..profile.engine.engines).map(|_| EngineMetrics::new(profile)).collect(),
            live: HashMap::new(),
            families: HashMap::new(),
            log_stats: profile.api.log_stats,
            queued_tokens: 0,
        }
    }

    /// Begins to watch request `id`, one of `n` of its family, that arrived at `arrival`.
    pub(super) fn watch(&mut self, id: u64, family: u64, n: usize, arrival: Offset, prompt: usize, max_tokens: usize) {
        self.families.entry(family).or_insert(Family { left: n, n, most: 0 });
        self.queued_tokens += prompt;
        self.live.insert(
            id,
            Live {
                arrival,
                prompt,
                max_tokens,
                family,
                queued: arrival,
                scheduled: None,
                first: None,
                last: arrival,
                first_latency: 0.0,
                generated: 0,
                cached: 0,
                preemptions: 0,
            },
        );
    }

    /// Drops a request whose client left; it is never counted as finished.
    pub(super) fn drop_request(&mut self, id: u64) {
        if let Some(live) = self.live.remove(&id) {
            if live.first.is_none() {
                self.queued_tokens -= live.prompt;
            }
            if let Some(family) = self.families.get_mut(&live.family) {
                family.left -= 1;
                if family.left == 0 {
                    self.families.remove(&live.family);
                }
            }
        }
    }

    /// Requests that are not finished.
    pub(super) fn unfinished(&self) -> usize {
        self.live.len()
    }

    /// Prompt tokens of requests that have no token yet.
    pub(super) fn queued_tokens(&self) -> usize {
        self.queued_tokens
    }

    /// Picks up at `at` what engine `index` said; returns the times of requests that ended, in the
    /// order of the items.
    pub(super) fn pick_up(&mut self, index: usize, output: &StepOutput, at: Offset) -> Vec<Option<Times>> {
        let mut computed = 0;
        let mut generated = 0;
        let mut ended = Vec::with_capacity(output.items.len());
        for item in &output.items {
            let Some(mut live) = self.live.remove(&item.id) else {
                ended.push(None);
                continue;
            };
            generated += item.tokens.len();
            if live.first.is_none() {
                computed += live.prompt - item.cached.unwrap_or(0);
            }
            let times = self.observe(index, &mut live, item, output.at, at);
            ended.push(times);
            if item.finish.is_none() {
                self.live.insert(item.id, live);
            }
        }
        let metrics = &mut self.metrics[index];
        if self.log_stats {
            metrics.report(&output.stats);
            if !output.items.is_empty() {
                metrics.iteration.observe((computed + generated) as f64);
            }
        }
        ended
    }

    /// Observes one output.
    fn observe(&mut self, index: usize, live: &mut Live, item: &Item, stamp: Offset, at: Offset) -> Option<Times> {
        let m = &mut self.metrics[index];
        m.generated += item.tokens.len() as u64;
        live.generated += item.tokens.len();
        for happening in &item.happenings {
            match happening {
                Happening::Queued(when) => live.queued = *when,
                Happening::Scheduled(when) => {
                    live.scheduled.get_or_insert(*when);
                }
                Happening::Preempted => {
                    live.preemptions += 1;
                    m.preemptions += 1;
                }
            }
        }
        if live.first.is_none() {
            live.cached = item.cached.unwrap_or(0);
            m.prompt_tokens += live.prompt as u64;
            m.prompt_cached += live.cached as u64;
            live.first_latency = seconds(live.arrival, at);
            m.ttft.observe(live.first_latency);
            live.first = Some(stamp);
            self.queued_tokens -= live.prompt;
        } else if !item.tokens.is_empty() {
            m.itl.observe(seconds(live.last, stamp));
        }
        live.last = stamp;
        item.finish.map(|finish| self.finish(index, live, finish, at))
    }

    /// Observes the end of a request.
    fn finish(&mut self, index: usize, live: &Live, finish: Finish, at: Offset) -> Times {
        let m = &mut self.metrics[index];
        let scheduled = live.scheduled.unwrap_or(live.queued);
        let first = live.first.unwrap_or(live.last);
        let decode = seconds(first, live.last);
        let per_token = if live.generated > 1 { decode / (live.generated - 1) as f64 } else { 0.0 };
        m.succeeded(finish);
        m.request_prompt.observe(live.prompt as f64);
        m.request_generated.observe(live.generated as f64);
        m.params_max.observe(live.max_tokens as f64);
        m.tpot.observe(per_token);
        m.e2e.observe(seconds(live.arrival, at));
        m.queue.observe(seconds(live.queued, scheduled));
        m.inference.observe(seconds(scheduled, live.last));
        m.prefill.observe(seconds(scheduled, first));
        m.decode.observe(decode);
        m.request_preemptions.observe(f64::from(live.preemptions));
        m.prefill_computed.observe((live.prompt - live.cached) as f64);
        if let Some(family) = self.families.get_mut(&live.family) {
            family.left -= 1;
            family.most = family.most.max(live.generated);
            if family.left == 0 {
                m.request_most.observe(family.most as f64);
                m.params_n.observe(family.n as f64);
                self.families.remove(&live.family);
            }
        }
        Times {
            first_ms: live.first_latency * 1e3,
            generation_ms: decode * 1e3,
            queue_ms: seconds(live.queued, scheduled) * 1e3,
            mean_itl_ms: (live.generated > 1).then_some(per_token * 1e3),
        }
    }
}

fn seconds(from: Offset, to: Offset) -> f64 {
    (to.0 as f64 - from.0 as f64) / 1e6
}
