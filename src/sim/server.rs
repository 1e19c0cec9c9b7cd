//! Engines and front end together, on one timetable: all of the stand-in but its sockets.
//!
//! Pure: it is told what arrives when, asked to advance to an instant, and says which messages
//! the front end has handed out by then.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::engine::Engine;
use super::fault::Faults;
use super::front::{Front, Times};
use super::profile::Profile;
use super::request::{Ask, Finish, StepOutput};
use crate::model::time::Offset;

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

/// The server takes no more requests for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueFull;

/// The state behind the sockets.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) profile: Profile,
    seed: u64,
    pub(super) faults: Faults,
    pub(super) engines: Vec<Engine>,
    pub(super) front: Front,
    /// Choice and engine of each request. Never iterated.
    live: HashMap<u64, (usize, usize)>,
    /// Outputs on their way to the front end, in the order of their pick-up.
    pending: VecDeque<(Offset, usize, StepOutput)>,
    /// When the event loop is free again.
    loop_free: Offset,
    /// When the tokenizer's thread is free again.
    tokenizer_free: Offset,
    /// When the server started, or came back.
    pub(super) born: Offset,
    /// Up to when restarts have been acted on.
    restarts_seen: Offset,
}

/// What happened to a request: a message, or (`None`) the server died under it.
pub(super) type News = (u64, Option<Message>);

impl Server {
    /// A server that starts at `born`; the windows of its faults count from then.
    pub(super) fn new(profile: Profile, seed: u64, born: Offset) -> Server {
        let mut faults = Faults(profile.faults.clone());
        for fault in &mut faults.0 {
            fault.at += born.as_duration();
        }
        Server {
            engines: engines(&profile, seed),
            front: Front::new(&profile),
            profile,
            seed,
            faults,
            live: HashMap::new(),
            pending: VecDeque::new(),
            loop_free: born,
            tokenizer_free: born,
            born,
            restarts_seen: born,
        }
    }

    /// The next instant at which [`Server::advance`] has something to do; `None` while idle.
    pub(super) fn next_event(&self) -> Option<Offset> {
        let steps = self.engines.iter().filter_map(Engine::next_event);
        let pick_up = self.pending.front().map(|(at, _, _)| *at);
        let restart = self.faults.next_restart(self.restarts_seen);
        steps.chain(pick_up).chain(restart).min()
    }

    /// Does all that happens by `now`, in the order in which it happens.
    pub(super) fn advance(&mut self, now: Offset) -> Vec<News> {
        let mut news = Vec::new();
        if let Some(at) = self.faults.next_restart(self.restarts_seen)
            && at <= now
        {
            self.restart(at, &mut news);
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
                (step, Some(picked)) if step.is_none_or(|(at, _)| picked <= at) => self.pick_up(&mut news),
                (Some((at, index)), _) => {
                    if let Some(output) = self.engines[index].advance(at, &self.faults) {
                        self.send_to_front(index, output);
                    }
                }
                (None, _) => return news,
            }
        }
    }

    /// Admits the asks of one HTTP request at `now` and sends them on their way, each to the
    /// engine that has least to do. `Ok` is when their prompt will be rendered.
    pub(super) fn submit(&mut self, asks: Vec<Ask>, now: Offset) -> Result<Offset, QueueFull> {
        let api = &self.profile.api;
        let full = api.max_num_queued_reqs.is_some_and(|most| self.front.unfinished() + asks.len() > most)
            || api.max_num_queued_tokens.is_some_and(|most| self.front.queued_tokens() >= most);
        if full {
            return Err(QueueFull);
        }
        let handled = now.max(self.loop_free) + micros(api.request_us) + self.faults.lag(now);
        self.loop_free = handled;
        let prompt = asks.first().map_or(0, |ask| ask.prompt.len());
        let rendered = handled.max(self.tokenizer_free) + micros(api.tokenize_us * prompt as f64);
        self.tokenizer_free = rendered;
        let at = rendered + micros(api.ipc_us);
        let (n, family) = (asks.len(), asks.first().map_or(0, |ask| ask.id));
        for (choice, ask) in asks.into_iter().enumerate() {
            let engine = (0..self.engines.len())
                .min_by_key(|i| self.engines[*i].load())
                .expect("a profile has at least one engine");
            self.front.watch(ask.id, family, n, now, ask.prompt.len(), ask.max_tokens);
            self.live.insert(ask.id, (choice, engine));
            self.engines[engine].submit(ask, at);
        }
        Ok(rendered)
    }

    /// Takes the event loop for the writing of a page that is asked for at `now`; returns when it is done.
    pub(super) fn page(&mut self, now: Offset) -> Offset {
        if self.profile.api.page_us == 0.0 {
            return now;
        }
        self.loop_free = now.max(self.loop_free) + micros(self.profile.api.page_us);
        self.loop_free
    }

    /// The client of request `id` left.
    pub(super) fn abort(&mut self, id: u64) {
        if let Some((_, engine)) = self.live.remove(&id) {
            self.front.drop_request(id);
            self.engines[engine].abort(id);
        }
    }

    /// Forgets the prefix caches; `false` if one of them is in use.
    pub(super) fn reset_prefix_cache(&mut self) -> bool {
        // Each engine is asked, even after one has refused.
        let refused = self.engines.iter_mut().filter_map(|e| (!e.reset_prefix_cache()).then_some(())).count();
        refused == 0
    }

    /// Ends all requests as a server does that is told to end: with a last message each.
    pub(super) fn abort_all(&mut self) -> Vec<News> {
        let mut ids: Vec<(u64, usize)> = self.live.drain().map(|(id, (choice, _))| (id, choice)).collect();
        ids.sort_unstable();
        self.pending.clear();
        self.engines = engines(&self.profile, self.seed);
        ids.into_iter()
            .map(|(id, choice)| {
                let finish = Some(Finish::Abort);
                (id, Some(Message { choice, tokens: Vec::new(), finish, times: None, cached: None }))
            })
            .collect()
    }

    /// Decides when the front end picks an output up.
    fn send_to_front(&mut self, index: usize, output: StepOutput) {
        let arrives = output.at + micros(self.profile.api.ipc_us) + self.faults.lag(output.at);
        let behind = self.pending.back().map_or(Offset::ZERO, |(at, _, _)| *at);
        let at = arrives.max(self.loop_free).max(behind);
        self.loop_free = at + micros(self.profile.api.output_us * output.items.len() as f64);
        self.pending.push_back((at, index, output));
    }

    fn pick_up(&mut self, news: &mut Vec<News>) {
        let Some((at, index, output)) = self.pending.pop_front() else { return };
        let ended = self.front.pick_up(index, &output, at);
        for (item, times) in output.items.into_iter().zip(ended) {
            let Some(&(choice, _)) = self.live.get(&item.id) else { continue };
            if item.finish.is_some() {
                self.live.remove(&item.id);
            }
            let message = Message { choice, tokens: item.tokens, finish: item.finish, times, cached: item.cached };
            news.push((item.id, Some(message)));
        }
    }

    /// The server dies at `at`: streams are cut, and what comes back knows nothing.
    fn restart(&mut self, at: Offset, news: &mut Vec<News>) {
        self.restarts_seen = at;
        self.born = self.faults.down(at).flatten().unwrap_or(at);
        let mut ids: Vec<u64> = self.live.drain().map(|(id, _)| id).collect();
        ids.sort_unstable();
        news.extend(ids.into_iter().map(|id| (id, None)));
        self.pending.clear();
        self.engines = engines(&self.profile, self.seed);
        self.front = Front::new(&self.profile);
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
