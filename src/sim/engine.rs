//! The engine: a pure state machine on a timetable of its own.
//!
//! It is told of requests with the instant at which they reach it, and asked to advance to an
//! instant; it says what each step that ended by then brought. Its steps begin and end at exact
//! microseconds, however late it is asked, so that a coarse timer does not slow it down.
//!
//! With asynchronous scheduling two steps overlap: the next is scheduled when the last begins,
//! before the tokens of the last are known. What the scheduler says after a step is therefore
//! its state after the admissions of the step behind it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use super::cost::{CostSpec, StepLoad};
use super::fault::Faults;
use super::kv::Pool;
use super::profile::{EngineSpec, Profile};
use super::request::{Ask, Request, Stats, StepOutput};
use crate::model::time::Offset;

/// One request's share of a step.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) id: u64,
    /// Tokens computed.
    pub(super) tokens: usize,
    /// Of those, draft tokens.
    pub(super) drafts: usize,
    /// Whether the step brings it a token.
    pub(super) samples: bool,
}

/// When a step ends that the engine froze in for good.
const NEVER: Offset = Offset(u64::MAX);

/// A step that was scheduled.
#[derive(Debug)]
struct Batch {
    starts: Offset,
    ends: Offset,
    parts: Vec<Part>,
}

/// One engine with its scheduler, its pool and its requests.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) spec: EngineSpec,
    cost: CostSpec,
    pub(super) seed: u64,
    pub(super) pool: Pool,
    /// Never iterated: order comes from the lists below.
    pub(super) requests: HashMap<u64, Request>,
    /// Admitted requests, in the order of their admission.
    pub(super) running: Vec<u64>,
    /// Requests without a seat, the next one first.
    pub(super) waiting: VecDeque<u64>,
    /// Statistics gathered since the last report.
    pub(super) stats: Stats,
    /// Asks on their way, by the instant at which they arrive.
    inbox: BTreeMap<(Offset, u64), Ask>,
    aborts: Vec<u64>,
    in_flight: VecDeque<Batch>,
    /// Instant up to which everything has happened.
    now: Offset,
    steps: u64,
    /// A request left without a step; one more is made so that the gauges return to 0.
    gone: bool,
    /// The last attempt found nothing to schedule, and nothing has changed since.
    stuck: bool,
    /// Recent steps, for the GPU's utilisation.
    busy: VecDeque<(Offset, Offset)>,
    /// What all older steps took, each times its share of the clock, s: what the GPU's energy goes by.
    worked_s: f64,
    /// Share of the clock at which the latest step runs.
    clock: f64,
    /// When each of the threads that compile grammars is free again.
    compilers: Vec<Offset>,
}

impl Engine {
    /// An idle engine; `index` tells the engines of one server apart.
    pub(super) fn new(profile: &Profile, seed: u64, index: u64) -> Engine {
        Engine {
            spec: profile.engine.clone(),
            cost: profile.cost.clone(),
            seed: super::chance::mix(seed, 0xe9, index),
            pool: Pool::new(profile.engine.num_gpu_blocks, profile.engine.enable_prefix_caching),
            requests: HashMap::new(),
            running: Vec::new(),
            waiting: VecDeque::new(),
            stats: Stats::default(),
            inbox: BTreeMap::new(),
            aborts: Vec::new(),
            in_flight: VecDeque::new(),
            now: Offset::ZERO,
            steps: 0,
            gone: false,
            stuck: false,
            busy: VecDeque::new(),
            worked_s: 0.0,
            clock: 1.0,
            compilers: vec![Offset::ZERO; profile.engine.grammar_workers],
        }
    }

    /// Sends a request that reaches the engine at `at`.
    pub(super) fn submit(&mut self, ask: Ask, at: Offset) {
        self.inbox.insert((at, ask.id), ask);
    }

    /// Ends a request whose client is gone; nothing more will be said about it.
    pub(super) fn abort(&mut self, id: u64) {
        self.aborts.push(id);
    }

    /// Instant up to which everything has happened.
    pub(super) fn now(&self) -> Offset {
        self.now
    }

    /// Requests that the engine holds or that are on their way to it.
    pub(super) fn load(&self) -> usize {
        self.requests.len() + self.inbox.len()
    }

    /// Forgets the prefix cache; `false` while any block is in use.
    pub(super) fn reset_prefix_cache(&mut self) -> bool {
        self.pool.reset()
    }

    /// The next instant at which [`Engine::advance`] will have something to do; `None` while idle.
    pub(super) fn next_event(&self) -> Option<Offset> {
        if let Some(batch) = self.in_flight.front() {
            return Some(batch.ends);
        }
        if !self.aborts.is_empty() || self.gone {
            return Some(self.now);
        }
        let arrival = self.inbox.keys().next().map(|(at, _)| (*at).max(self.now));
        if self.stuck {
            let unblocked =
                self.waiting.iter().map(|id| self.requests[id].blocked_until).filter(|at| *at > self.now).min();
            return [arrival, unblocked].into_iter().flatten().min();
        }
        if self.running.is_empty() && self.waiting.is_empty() { arrival } else { Some(self.now) }
    }

    /// Does what happens next, if it happens by `now`, and returns what the step that ended said;
    /// `None` when nothing more happens by then.
    pub(super) fn advance(&mut self, now: Offset, faults: &Faults) -> Option<StepOutput> {
        loop {
            let at = self.next_event()?;
            if at > now {
                return None;
            }
            self.now = at;
            if let Some(batch) = self.in_flight.pop_front() {
                self.apply_aborts();
                let items = self.update(&batch.parts, faults.acceptance(batch.starts));
                let output = StepOutput { at, items, stats: self.report() };
                self.take_in();
                self.fill(faults);
                return Some(output);
            }
            self.take_in();
            self.apply_aborts();
            if !self.fill(faults) && self.in_flight.is_empty() {
                return Some(StepOutput { at, items: Vec::new(), stats: self.report() });
            }
        }
    }

    /// Share of the second before `at` in which a step ran, 0 to 1.
    pub(super) fn utilisation(&self, at: Offset) -> f64 {
        let from = at.0.saturating_sub(1_000_000);
        let running = self.in_flight.front().map(|b| (b.starts, b.ends));
        let busy: u64 =
            self.busy.iter().copied().chain(running).map(|(s, e)| e.0.min(at.0).saturating_sub(s.0.max(from))).sum();
        (busy as f64 / 1e6).min(1.0)
    }

    /// Time in which steps ran until `at`, each times its share of the clock, s.
    pub(super) fn worked_s(&self, at: Offset) -> f64 {
        // Steps that were scheduled ahead have not run yet.
        let ending = self.in_flight.iter().filter(|b| b.ends < NEVER);
        let ahead: Duration = ending.map(|b| b.ends.since(b.starts.max(at))).sum();
        (self.worked_s - ahead.as_secs_f64() * self.clock).max(0.0)
    }

    /// Takes in what has arrived.
    fn take_in(&mut self) {
        while let Some(entry) = self.inbox.first_entry()
            && entry.key().0 <= self.now
        {
            let ((at, _), ask) = entry.remove_entry();
            let at = at.max(self.now);
            let compiled = ask.grammar_us.map(|us| self.compile(at, us));
            let request = Request::new(ask, at, compiled);
            let id = request.id;
            self.requests.insert(id, request);
            self.enqueue(id);
            self.stuck = false;
        }
    }

    /// When a grammar that comes at `at` is compiled: by the thread that is free first.
    fn compile(&mut self, at: Offset, us: u64) -> Offset {
        let free = self.compilers.iter_mut().min().expect("a profile has at least one compiler");
        *free = Offset((*free).max(at).0 + us);
        *free
    }

    fn apply_aborts(&mut self) {
        for id in std::mem::take(&mut self.aborts) {
            if self.requests.contains_key(&id) {
                self.running.retain(|other| *other != id);
                self.waiting.retain(|other| *other != id);
                self.forget(id);
                self.stuck = false;
            } else {
                self.inbox.retain(|(_, other), _| *other != id);
            }
        }
    }

    /// Frees what a request holds and forgets it.
    pub(super) fn forget(&mut self, id: u64) {
        if let Some(request) = self.requests.remove(&id) {
            self.pool.release(&request.blocks);
            self.gone = true;
        }
    }

    /// Schedules steps until as many are in flight as may be; `false` if there was something to
    /// do and no step could be made of it.
    fn fill(&mut self, faults: &Faults) -> bool {
        let depth = if self.spec.async_scheduling { 2 } else { 1 };
        // Behind a step that never ends nothing is scheduled: it would begin at no time there is.
        while self.in_flight.len() < depth && self.in_flight.back().is_none_or(|b| b.ends < NEVER) {
            if self.running.is_empty() && self.waiting.is_empty() && !self.gone {
                return true;
            }
            let (parts, load) = self.schedule();
            self.gone = false;
            if parts.is_empty() {
                self.stuck = true;
                return false;
            }
            self.stuck = false;
            self.steps += 1;
            let starts = self.in_flight.back().map_or(self.now, |b| b.ends.max(self.now));
            let us = self.cost.step_us(&load, faults.clock(starts), self.seed, self.steps) as f64;
            let slower = faults.slow_factor(starts) * self.cost.pace(starts, self.seed);
            let ends = Offset(starts.0 + (us * slower).round() as u64);
            let ends = faults.thawed(starts, ends).unwrap_or(NEVER);
            self.note_busy(starts, ends);
            self.clock = faults.clock(starts);
            // A frozen step never ends, and draws no power for ever.
            if ends < NEVER {
                self.worked_s += ends.since(starts).as_secs_f64() * self.clock;
            }
            self.in_flight.push_back(Batch { starts, ends, parts });
        }
        true
    }

    fn note_busy(&mut self, starts: Offset, ends: Offset) {
        while self.busy.front().is_some_and(|(_, e)| e.0 + 2_000_000 < starts.0) {
            self.busy.pop_front();
        }
        self.busy.push_back((starts, ends));
    }

    /// The scheduler's state now, with what was gathered since the last report.
    fn report(&mut self) -> Stats {
        let deferred = self.waiting.iter().filter(|id| self.requests[*id].deferred).count();
        Stats {
            running: self.running.len(),
            capacity: self.waiting.len() - deferred,
            deferred,
            kv_usage: self.pool.usage(),
            ..std::mem::take(&mut self.stats)
        }
    }
}

/// What a part of a step adds to the step's time.
pub(super) fn add_load(load: &mut StepLoad, request: &Request, tokens: usize, drafts: usize) {
    let context = request.computed as f64;
    if request.computed + tokens - drafts >= request.tokens.len() + request.placeholders
        && tokens - drafts == 1
        && request.computed >= request.prompt
    {
        load.decodes += 1;
        load.drafts += drafts as u64;
        load.draft_passes = load.draft_passes.max(drafts as u64);
        load.context_tokens += request.computed as u64;
    } else {
        load.prefill_tokens += tokens as u64;
        load.attention_pairs += tokens as f64 * (context + tokens as f64 / 2.0);
    }
}
