//! The one task that owns engines, front end and page, and sleeps to their timetable.
//!
//! Everything that the HTTP side wants goes through one channel, so there is no lock, and the
//! order of events is the order of their arrival.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use super::dcgm;
use super::engine::Engine;
use super::fault::{Fault, Faults};
use super::front::{Front, Times};
use super::http_metrics::{HttpMetrics, Served};
use super::metrics;
use super::page::Page;
use super::profile::Profile;
use super::request::{Ask, Finish, StepOutput};
use crate::model::time::{Clock, Offset};

/// One message of an answer, as the front end hands it to the response.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Message {
    /// Which of the answers of the request.
    pub(super) choice: usize,
    pub(super) tokens: Vec<u32>,
    pub(super) finish: Option<Finish>,
    /// With the end.
    pub(super) times: Option<Times>,
    /// Prompt tokens that were cached; with the first message.
    pub(super) cached: Option<usize>,
}

/// A request to the engines: one ask for each answer.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) asks: Vec<Ask>,
    pub(super) replies: mpsc::UnboundedSender<Message>,
    /// `Ok` with the instant at which the prompt is rendered, or that the queue is full.
    pub(super) admitted: oneshot::Sender<Result<Offset, QueueFull>>,
}

/// The server takes no more requests for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueFull;

/// What the HTTP side asks of the driver.
#[derive(Debug)]
pub(super) enum Command {
    Submit(Job),
    /// The client of these requests left.
    Abort(Vec<u64>),
    Page(oneshot::Sender<String>),
    Dcgm(oneshot::Sender<String>),
    ResetPrefixCache(oneshot::Sender<bool>),
    Served(Served),
    Fault(Fault),
    /// All requests end now.
    Shutdown,
}

/// The driver's state.
pub(super) struct Driver {
    clock: Clock,
    profile: Profile,
    seed: u64,
    faults: Faults,
    published: watch::Sender<Faults>,
    engines: Vec<Engine>,
    front: Front,
    http: HttpMetrics,
    /// Who waits for which request. Never iterated.
    replies: HashMap<u64, (usize, usize, mpsc::UnboundedSender<Message>)>,
    /// Outputs on their way to the front end, in the order of their pick-up.
    pending: VecDeque<(Offset, usize, StepOutput)>,
    /// When the event loop is free again.
    loop_free: Offset,
    /// When the tokenizer's thread is free again.
    tokenizer_free: Offset,
    /// When the server started, or came back.
    born: Offset,
    /// Up to when restarts have been acted on.
    restarts_seen: Offset,
}

impl Driver {
    /// A server that starts now.
    pub(super) fn new(clock: Clock, profile: Profile, seed: u64) -> Driver {
        let born = clock.now();
        let mut faults = Faults(profile.faults.clone());
        // Windows count from the start of the server, the clock from the start of the run.
        for fault in &mut faults.0 {
            fault.at += born.as_duration();
        }
        Driver {
            engines: engines(&profile, seed),
            front: Front::new(&profile),
            http: HttpMetrics::default(),
            replies: HashMap::new(),
            pending: VecDeque::new(),
            loop_free: born,
            tokenizer_free: born,
            restarts_seen: born,
            clock,
            profile,
            seed,
            published: watch::Sender::new(faults.clone()),
            faults,
            born,
        }
    }

    /// The faults as the HTTP side sees them, now and after each change.
    pub(super) fn faults(&self) -> watch::Receiver<Faults> {
        self.published.subscribe()
    }

    /// Runs until all senders of commands are gone.
    pub(super) async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        loop {
            let wake = self.next_wake();
            let command = tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(command) => Some(command),
                    None => return,
                },
                () = sleep_until(self.clock, wake) => None,
            };
            if let Some(command) = command {
                self.obey(command);
                while let Ok(command) = commands.try_recv() {
                    self.obey(command);
                }
            }
            self.advance();
        }
    }

    fn next_wake(&self) -> Option<Offset> {
        let steps = self.engines.iter().filter_map(Engine::next_event);
        let pick_up = self.pending.front().map(|(at, _, _)| *at);
        let restart = self.faults.next_restart(self.restarts_seen);
        steps.chain(pick_up).chain(restart).min()
    }

    /// Does all that happens by now, in the order in which it happens.
    fn advance(&mut self) {
        let now = self.clock.now();
        if let Some(at) = self.faults.next_restart(self.restarts_seen)
            && at <= now
        {
            self.restart(at);
        }
        loop {
            let step = self
                .engines
                .iter()
                .enumerate()
                .filter_map(|(i, e)| e.next_event().map(|at| (at, i)))
                .min()
                .filter(|(at, _)| *at <= now);
            let picked = self.pending.front().map(|(at, _, _)| *at).filter(|at| *at <= now);
            match (step, picked) {
                (step, Some(picked)) if step.is_none_or(|(at, _)| picked <= at) => self.pick_up(),
                (Some((at, index)), _) => {
                    if let Some(output) = self.engines[index].advance(at, &self.faults) {
                        self.send_to_front(index, output);
                    }
                }
                (None, _) => return,
            }
        }
    }

    /// Decides when the front end picks an output up.
    fn send_to_front(&mut self, index: usize, output: StepOutput) {
        let arrives = output.at + micros(self.profile.api.ipc_us) + self.faults.lag(output.at);
        let at = arrives.max(self.loop_free).max(self.pending.back().map_or(Offset::ZERO, |(at, _, _)| *at));
        self.loop_free = at + micros(self.profile.api.output_us * output.items.len() as f64);
        self.pending.push_back((at, index, output));
    }

    fn pick_up(&mut self) {
        let Some((at, index, output)) = self.pending.pop_front() else { return };
        let ended = self.front.pick_up(index, &output, at);
        for (item, times) in output.items.into_iter().zip(ended) {
            let Some((choice, _, sender)) = self.replies.get(&item.id) else { continue };
            let message =
                Message { choice: *choice, tokens: item.tokens, finish: item.finish, times, cached: item.cached };
            // A response that is gone has sent, or will send, its own abort.
            let _ = sender.send(message);
            if item.finish.is_some() {
                self.replies.remove(&item.id);
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit(job) => self.submit(job),
            Command::Abort(ids) => {
                for id in ids {
                    if let Some((_, engine, _)) = self.replies.remove(&id) {
                        self.front.drop_request(id);
                        self.engines[engine].abort(id);
                    }
                }
            }
            Command::Page(reply) => {
                let _ = reply.send(self.page());
            }
            Command::Dcgm(reply) => {
                let now = self.clock.now();
                let busy = self.engines.iter().map(|e| e.utilisation(now)).fold(0.0, f64::max);
                let _ = reply.send(dcgm::page(&self.profile.gpu, busy, self.faults.clock(now)));
            }
            Command::ResetPrefixCache(reply) => {
                let done = self.engines.iter_mut().all(Engine::reset_prefix_cache);
                let _ = reply.send(done);
            }
            Command::Served(served) => {
                let at = unix_seconds(&self.clock, self.clock.now());
                self.http.observe(&served, at);
            }
            Command::Fault(mut fault) => {
                fault.at += self.clock.now().as_duration();
                self.faults.0.push(fault);
                self.published.send_replace(self.faults.clone());
            }
            Command::Shutdown => self.abort_all(),
        }
    }

    /// Admits a request to the server and sends it on its way to the engine that has least to do.
    fn submit(&mut self, job: Job) {
        let now = self.clock.now();
        let api = &self.profile.api;
        let full = api.max_num_queued_reqs.is_some_and(|most| self.front.unfinished() + job.asks.len() > most)
            || api.max_num_queued_tokens.is_some_and(|most| self.front.queued_tokens() >= most);
        if full {
            let _ = job.admitted.send(Err(QueueFull));
            return;
        }
        let handled = now.max(self.loop_free) + micros(api.request_us) + self.faults.lag(now);
        self.loop_free = handled;
        let prompt = job.asks.first().map_or(0, |ask| ask.prompt.len());
        let rendered = handled.max(self.tokenizer_free) + micros(api.tokenize_us * prompt as f64);
        self.tokenizer_free = rendered;
        let at = rendered + micros(api.ipc_us);
        let (n, family) = (job.asks.len(), job.asks.first().map_or(0, |ask| ask.id));
        for (choice, ask) in job.asks.into_iter().enumerate() {
            let engine = (0..self.engines.len())
                .min_by_key(|i| self.engines[*i].load())
                .expect("a profile has at least one engine");
            self.front.watch(ask.id, family, n, now, ask.prompt.len(), ask.max_tokens);
            self.replies.insert(ask.id, (choice, engine, job.replies.clone()));
            self.engines[engine].submit(ask, at);
        }
        let _ = job.admitted.send(Ok(rendered));
    }

    fn page(&self) -> String {
        let mut page = Page(String::with_capacity(64 << 10));
        let born = unix_seconds(&self.clock, self.born);
        super::process_metrics::write(&mut page, born, self.clock.now().since(self.born));
        if self.profile.api.log_stats {
            metrics::write(&mut page, &self.profile, &self.front.metrics, born);
        }
        self.http.write(&mut page, born);
        page.0
    }

    /// Ends all requests as a server does that is told to end: with a last message each.
    fn abort_all(&mut self) {
        for engine in &mut self.engines {
            for item in engine.abort_all() {
                if let Some((choice, _, sender)) = self.replies.remove(&item.id) {
                    let message =
                        Message { choice, tokens: Vec::new(), finish: item.finish, times: None, cached: None };
                    let _ = sender.send(message);
                }
            }
        }
        self.replies.clear();
        self.pending.clear();
        self.engines = engines(&self.profile, self.seed);
    }

    /// The server dies at `at`: streams are cut, and what comes back knows nothing.
    fn restart(&mut self, at: Offset) {
        self.restarts_seen = at;
        self.born = self.faults.down(at).flatten().unwrap_or(at);
        self.replies.clear();
        self.pending.clear();
        self.engines = engines(&self.profile, self.seed);
        self.front = Front::new(&self.profile);
        self.http = HttpMetrics::default();
        self.loop_free = self.born;
        self.tokenizer_free = self.born;
    }
}

fn engines(profile: &Profile, seed: u64) -> Vec<Engine> {
    (0..u64::from(profile.engine.engines)).map(|i| Engine::new(profile, seed, i)).collect()
}

fn micros(us: f64) -> Duration {
    Duration::from_micros(us.round() as u64)
}

/// Unix seconds of an offset.
pub(super) fn unix_seconds(clock: &Clock, at: Offset) -> f64 {
    clock.epoch_unix_ms() as f64 / 1e3 + at.as_secs_f64()
}

/// Sleeps until `at`, for ever if there is nothing to wake for.
async fn sleep_until(clock: Clock, at: Option<Offset>) {
    match at {
        // Beyond a century the timer overflows; the engine is frozen for good.
        Some(at) if at.0 < 3_000_000_000_000_000 => clock.sleep_until(at).await,
        _ => std::future::pending().await,
    }
}
