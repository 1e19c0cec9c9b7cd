//! A closed loop of streams against the stand-in in no time at all: no sockets, no sleeping.
//!
//! What it says about each step is what a scraper of the page would have seen, so it can be held
//! against a recording of a real server.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::chance;
use super::page::Histogram;
use super::profile::Profile;
use super::request::Ask;
use super::server::Server;
use super::tokens;
use crate::model::time::Offset;

/// The load: steps of so many streams each, all of the same kind of request.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Streams of each step; each step begins with an idle server.
    pub streams: Vec<usize>,
    /// How long a step sends new requests, from the end of its warm-up on.
    pub length: Duration,
    /// Over what time its streams begin to send, one after the other.
    pub ramp: Duration,
    /// How long it has been sending before it is looked at, its ramp included.
    pub warmup: Duration,
    /// Time between two looks at the page.
    pub scrape: Duration,
    /// Tokens of a prompt that no other request has.
    pub prompt: usize,
    /// Tokens that all prompts begin with.
    pub shared: usize,
    /// Tokens of an answer.
    pub answer: usize,
    /// Temperature 0.
    pub greedy: bool,
    /// Time a client takes on average from the end of an answer to the arrival of its next request; each
    /// time it is drawn anew between nothing and twice that, or streams would keep their distance for ever.
    pub turnaround: Duration,
}

/// What was seen in one step, from its start until it sent no more.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rehearsed {
    /// Streams of the step.
    pub streams: usize,
    /// Requests that ended, those after the step's end too.
    pub done: usize,
    /// Requests running: median and maximum over the looks at the page.
    pub running: (f64, f64),
    /// Requests waiting: median and maximum.
    pub waiting: (f64, f64),
    /// Share of the pool in use: median and maximum.
    pub kv_usage: (f64, f64),
    /// Preemptions that the page counted.
    pub preemptions: u64,
    /// Tokens looked up in the prefix cache.
    pub cache_queries: u64,
    /// Tokens found there.
    pub cache_hits: u64,
    /// Tokens generated a second.
    pub tokens_per_s: f64,
    /// Mean time to first token as the server tells it, in seconds; `None` without any.
    pub ttft_s: Option<f64>,
    /// Mean gap between messages as the server tells it, in seconds; `None` without any.
    pub itl_s: Option<f64>,
    /// Mean time in the queue as the server tells it, in seconds; `None` without any.
    pub queue_s: Option<f64>,
    /// Median time from sending a request to its first message, in seconds; `None` without any.
    pub ttft_p50_s: Option<f64>,
    /// Median gap between two messages of an answer, in seconds; `None` without any.
    pub gap_p50_s: Option<f64>,
    /// Draft tokens and accepted ones.
    pub drafts: (u64, u64),
}

/// Runs `load` against `profile` and says what each step showed.
pub fn rehearse(profile: &Profile, seed: u64, load: &Load) -> Vec<Rehearsed> {
    let mut stage = Stage {
        server: Server::new(profile.clone(), seed, Offset::ZERO),
        seed,
        load,
        now: Offset::ZERO,
        sent: 0,
        clients: BTreeMap::new(),
        flights: HashMap::new(),
    };
    load.streams.iter().map(|streams| stage.step(*streams)).collect()
}

struct Stage<'a> {
    server: Server,
    seed: u64,
    load: &'a Load,
    now: Offset,
    /// Requests so far.
    sent: u64,
    /// Clients about to send, by when.
    clients: BTreeMap<(Offset, usize), ()>,
    /// Requests that have not ended. Never iterated.
    flights: HashMap<u64, Flight>,
}

struct Flight {
    owner: usize,
    /// Whether its first message came.
    begun: bool,
    /// When it was sent, or when its last message came.
    last: Offset,
}

impl Stage<'_> {
    fn step(&mut self, streams: usize) -> Rehearsed {
        let start = self.now + self.load.warmup;
        let end = start + self.load.length;
        // A scraper does not know when a step begins; on average it comes half an interval later.
        let mut look = start + self.load.scrape / 2;
        let mut seen = Seen::default();
        let mut done = 0;
        let share = self.load.ramp / u32::try_from(streams).unwrap_or(u32::MAX).max(1);
        self.clients.extend((0_u32..).zip(0..streams).map(|(i, c)| ((self.now + share * i, c), ())));
        while !self.clients.is_empty() || !self.flights.is_empty() {
            let client = self.clients.keys().next().map(|(at, _)| *at);
            let looks = (look <= end).then_some(look);
            let Some(at) = [self.server.next_event(), client, looks].into_iter().flatten().min() else { break };
            self.now = at.max(self.now);
            while let Some((&(when, who), ())) = self.clients.first_key_value()
                && when <= self.now
            {
                self.clients.pop_first();
                self.send(who);
            }
            for (id, message) in self.server.advance(self.now) {
                if let Some(flight) = self.flights.get_mut(&id)
                    && message.is_some()
                {
                    let since = self.now.since(flight.last).as_secs_f64();
                    let began = std::mem::replace(&mut flight.begun, true);
                    if start <= self.now && self.now < end {
                        if began { seen.gaps.push(since) } else { seen.first.push(since) }
                    }
                    flight.last = self.now;
                }
                if message.is_none_or(|m| m.finish.is_some())
                    && let Some(Flight { owner, .. }) = self.flights.remove(&id)
                {
                    done += 1;
                    let drawn = 2.0 * chance::unit(self.seed, 0x7a47, id);
                    let next = self.now + self.load.turnaround.mul_f64(drawn);
                    if next < end {
                        self.clients.insert((next, owner), ());
                    }
                }
            }
            if looks == Some(self.now) {
                seen.look(self.now, &self.server);
                self.server.page(self.now);
                look = look + self.load.scrape;
            }
        }
        self.now = self.now.max(end) + Duration::from_secs(2);
        self.server.advance(self.now);
        Rehearsed { streams, done, ..seen.sum_up() }
    }

    fn send(&mut self, owner: usize) {
        let id = self.sent;
        self.sent += 1;
        let word = |of: u64, i: usize| tokens::answer_token(chance::mix(self.seed, 0x90, of), i as u64);
        let shared = (0..self.load.shared).map(|i| word(u64::MAX, i));
        let own = (0..self.load.prompt).map(|i| word(id, i));
        let ask = Ask {
            id,
            prompt: shared.chain(own).collect(),
            max_tokens: self.load.answer,
            stops_at: None,
            key: chance::mix(self.seed, 0xa4, id),
            priority: 0,
            greedy: self.load.greedy,
            grammar_us: None,
        };
        match self.server.submit(vec![ask], self.now) {
            Ok(_) => {
                self.flights.insert(id, Flight { owner, begun: false, last: self.now });
            }
            // As the recorded client did: a pause, then the next attempt.
            Err(_) => {
                self.clients.insert((self.now + Duration::from_millis(200), owner), ());
            }
        }
    }
}

/// The numbers of the page that only grow, at one look.
#[derive(Clone, Debug, Default)]
struct Counts {
    at: Offset,
    preemptions: u64,
    queries: u64,
    hits: u64,
    generated: u64,
    drafts: (u64, u64),
    ttft: (f64, u64),
    itl: (f64, u64),
    queue: (f64, u64),
}

#[derive(Default)]
struct Seen {
    gauges: Vec<[f64; 3]>,
    /// Counts at the first look and at the last.
    oldest: Option<Counts>,
    newest: Counts,
    /// Times to first messages, and gaps between messages, in seconds.
    first: Vec<f64>,
    gaps: Vec<f64>,
}

impl Seen {
    fn look(&mut self, at: Offset, server: &Server) {
        let metrics = &server.front.metrics;
        let sum = |of: fn(&super::metrics::EngineMetrics) -> f64| metrics.iter().map(of).sum::<f64>();
        self.gauges.push([
            sum(|m| m.gauges.running as f64),
            sum(|m| (m.gauges.capacity + m.gauges.deferred) as f64),
            sum(|m| m.gauges.kv_usage) / metrics.len() as f64,
        ]);
        let count = |of: fn(&super::metrics::EngineMetrics) -> u64| metrics.iter().map(of).sum::<u64>();
        let both = |of: fn(&super::metrics::EngineMetrics) -> &Histogram| {
            metrics.iter().map(of).fold((0.0, 0), |(s, c), h| (s + h.sum(), c + h.count()))
        };
        self.newest = Counts {
            at,
            preemptions: count(|m| m.preemptions),
            queries: count(|m| m.cache_queries),
            hits: count(|m| m.cache_hits),
            generated: count(|m| m.generated),
            drafts: (count(|m| m.draft_tokens), count(|m| m.accepted.iter().sum())),
            ttft: both(|m| &m.ttft),
            itl: both(|m| &m.itl),
            queue: both(|m| &m.queue),
        };
        self.oldest.get_or_insert_with(|| self.newest.clone());
    }

    fn sum_up(&self) -> Rehearsed {
        let first = self.oldest.clone().unwrap_or_default();
        let last = &self.newest;
        let spread = |which: usize| {
            let mut values: Vec<f64> = self.gauges.iter().map(|g| g[which]).collect();
            values.sort_by(f64::total_cmp);
            let median = values.get(values.len() / 2).copied().unwrap_or(0.0);
            (median, values.last().copied().unwrap_or(0.0))
        };
        let mean = |a: (f64, u64), b: (f64, u64)| (b.1 > a.1).then(|| (b.0 - a.0) / (b.1 - a.1) as f64);
        let seconds = last.at.since(first.at).as_secs_f64();
        Rehearsed {
            streams: 0,
            done: 0,
            running: spread(0),
            waiting: spread(1),
            kv_usage: spread(2),
            preemptions: last.preemptions - first.preemptions,
            cache_queries: last.queries - first.queries,
            cache_hits: last.hits - first.hits,
            tokens_per_s: (last.generated - first.generated) as f64 / seconds.max(1e-9),
            ttft_s: mean(first.ttft, last.ttft),
            itl_s: mean(first.itl, last.itl),
            queue_s: mean(first.queue, last.queue),
            ttft_p50_s: median(&self.first),
            gap_p50_s: median(&self.gaps),
            drafts: (last.drafts.0 - first.drafts.0, last.drafts.1 - first.drafts.1),
        }
    }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
