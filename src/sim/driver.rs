//! The one task that owns the server behind the sockets, and sleeps to its timetable.
//!
//! Everything that the HTTP side wants goes through one channel, so there is no lock, and the
//! order of events is the order of their arrival.

use std::collections::HashMap;

use tokio::sync::{mpsc, oneshot, watch};

use super::dcgm;
use super::engine::Engine;
use super::fault::{Fault, Faults};
use super::http_metrics::{HttpMetrics, Served};
use super::metrics;
use super::page::Page;
use super::profile::Profile;
use super::request::Ask;
use super::server::{Message, News, QueueFull, Server};
use crate::model::time::{Clock, Offset};

/// A request to the engines: one ask for each answer.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) asks: Vec<Ask>,
    pub(super) replies: mpsc::UnboundedSender<Message>,
    /// `Ok` with the instant at which the prompt is rendered, or that the queue is full.
    pub(super) admitted: oneshot::Sender<Result<Offset, QueueFull>>,
}

/// What the HTTP side asks of the driver.
#[derive(Debug)]
pub(super) enum Command {
    Submit(Job),
    /// The client of these requests left.
    Abort(Vec<u64>),
    /// The page, and when it is written.
    Page(oneshot::Sender<(String, Offset)>),
    Dcgm(oneshot::Sender<String>),
    ResetPrefixCache(oneshot::Sender<bool>),
    Served(Served),
    Fault(Fault),
    /// How many requests are not finished.
    Load(oneshot::Sender<usize>),
    /// All requests end now.
    Shutdown,
}

/// The driver's state.
pub(super) struct Driver {
    clock: Clock,
    server: Server,
    http: HttpMetrics,
    published: watch::Sender<Faults>,
    /// Who waits for which request. Never iterated.
    replies: HashMap<u64, mpsc::UnboundedSender<Message>>,
    born: Offset,
}

impl Driver {
    /// A server that starts now.
    pub(super) fn new(clock: Clock, profile: Profile, seed: u64) -> Driver {
        let server = Server::new(profile, seed, clock.now());
        Driver {
            clock,
            http: HttpMetrics::default(),
            published: watch::Sender::new(server.faults.clone()),
            replies: HashMap::new(),
            born: server.born,
            server,
        }
    }

    /// The faults as the HTTP side sees them, now and after each change.
    pub(super) fn faults(&self) -> watch::Receiver<Faults> {
        self.published.subscribe()
    }

    /// Runs until all senders of commands are gone.
    pub(super) async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        loop {
            let wake = self.server.next_event();
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
            let news = self.server.advance(self.clock.now());
            self.spread(news);
        }
    }

    fn spread(&mut self, news: Vec<News>) {
        if self.server.born != self.born {
            self.born = self.server.born;
            self.http = HttpMetrics::default();
        }
        for (id, message) in news {
            let Some(message) = message else {
                // Without its sender the response breaks off.
                self.replies.remove(&id);
                continue;
            };
            let ended = message.finish.is_some();
            if let Some(sender) = self.replies.get(&id) {
                // A response that is gone has sent, or will send, its own abort.
                let _ = sender.send(message);
            }
            if ended {
                self.replies.remove(&id);
            }
        }
    }

    fn obey(&mut self, command: Command) {
        let now = self.clock.now();
        match command {
            Command::Submit(job) => {
                let ids: Vec<u64> = job.asks.iter().map(|ask| ask.id).collect();
                let verdict = self.server.submit(job.asks, now);
                if verdict.is_ok() {
                    self.replies.extend(ids.into_iter().map(|id| (id, job.replies.clone())));
                }
                let _ = job.admitted.send(verdict);
            }
            Command::Abort(ids) => {
                for id in ids {
                    self.replies.remove(&id);
                    self.server.abort(id);
                }
            }
            Command::Page(reply) => {
                let _ = reply.send((self.page(now), self.server.page(now)));
            }
            Command::Dcgm(reply) => {
                let engines = || self.server.engines.iter();
                let state = dcgm::State {
                    up_s: now.since(self.server.born).as_secs_f64(),
                    busy: engines().map(|e: &Engine| e.utilisation(now)).fold(0.0, f64::max),
                    worked_s: engines().map(|e: &Engine| e.worked_s(now)).fold(0.0, f64::max),
                    throttled: self.server.faults.throttled(now),
                    memory_errors: self.server.faults.memory_errors(now),
                };
                let _ = reply.send(dcgm::page(&self.server.profile.gpu, &state));
            }
            Command::ResetPrefixCache(reply) => {
                let _ = reply.send(self.server.reset_prefix_cache());
            }
            Command::Served(served) => self.http.observe(&served, unix_seconds(&self.clock, now)),
            Command::Fault(mut fault) => {
                fault.at += now.as_duration();
                self.server.faults.0.push(fault);
                self.published.send_replace(self.server.faults.clone());
            }
            Command::Load(reply) => {
                let _ = reply.send(self.server.front.unfinished());
            }
            Command::Shutdown => {
                let news = self.server.abort_all();
                self.spread(news);
            }
        }
    }

    fn page(&self, now: Offset) -> String {
        let mut page = Page(String::with_capacity(64 << 10));
        let born = unix_seconds(&self.clock, self.server.born);
        super::process_metrics::write(&mut page, born, now.since(self.server.born));
        if self.server.profile.api.log_stats {
            metrics::write(&mut page, &self.server.profile, &self.server.front.metrics, born);
        }
        self.http.write(&mut page, born);
        page.0
    }
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
