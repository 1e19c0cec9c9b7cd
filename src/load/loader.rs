//! The load itself: workers of a closed loop, or the arrivals of an open one.
//!
//! A step is raised without draining: workers are added, spread over the ramp, and those that are
//! there go on. Every request that ends becomes one event. What is in flight can be looked at, and
//! what is cut at the end of the run becomes an event of its own class.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;

use super::arrivals::{ArrivalSpec, Arrivals, RatePlan};
use super::client::{self, Flight};
use super::live::{Live, Meter};
use super::target::Target;
use crate::model::recording::{Event, Note};
use crate::model::request::{Outcome, RequestTimeline};
use crate::model::step::Load;
use crate::model::time::{Clock, Offset};
use crate::workload::Workload;

/// What else a load is made by.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadOptions {
    /// Seed of the arrivals.
    pub seed: u64,
    /// How an open loop's requests arrive.
    pub arrivals: ArrivalSpec,
    /// Requests after which no more are sent; `None` for as long as the load is on.
    pub max_requests: Option<u64>,
}

/// Applies load to a target. Must be used inside a tokio runtime.
#[derive(Debug)]
pub struct Loader {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
    wanted: watch::Sender<u32>,
    plan: watch::Sender<Option<RatePlan>>,
    /// Whether the arrivals' task runs.
    dispatching: bool,
    options: LoadOptions,
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Requests that had not ended in time and were cut.
    pub cut: usize,
}

#[derive(Debug)]
struct Shared {
    target: Arc<Target>,
    workload: Arc<Workload>,
    clock: Clock,
    events: UnboundedSender<Event>,
    step: AtomicU32,
    next: AtomicU64,
    max_requests: Option<u64>,
    state: Mutex<State>,
    /// Rung whenever a worker leaves or a request ends.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    /// Numbers of the workers that are alive.
    crew: BTreeSet<u32>,
    /// Requests in flight, by index.
    flights: BTreeMap<u64, Arc<Flight>>,
    meter: Meter,
}

impl Loader {
    /// A loader at rest. Every request that ends is sent to `events`.
    pub fn new(
        target: Arc<Target>,
        workload: Arc<Workload>,
        clock: Clock,
        events: UnboundedSender<Event>,
        options: LoadOptions,
    ) -> Loader {
        let state = State { crew: BTreeSet::new(), flights: BTreeMap::new(), meter: Meter::new(clock.now()) };
        Loader {
            shared: Arc::new(Shared {
                target,
                workload,
                clock,
                events,
                step: AtomicU32::new(0),
                next: AtomicU64::new(0),
                max_requests: options.max_requests,
                state: Mutex::new(state),
                changed: Notify::new(),
            }),
            tasks: JoinSet::new(),
            wanted: watch::Sender::new(0),
            plan: watch::Sender::new(None),
            dispatching: false,
            options,
        }
    }

    /// Goes to `load` over `ramp`, as step `step`, and returns at once. In a closed loop workers are added, evenly over the
    /// ramp, or leave after the request that they are at.
    pub fn raise_to(&mut self, step: u32, load: Load, ramp: Duration) {
        self.shared.step.store(step, Ordering::Relaxed);
        while self.tasks.try_join_next().is_some() {}
        match load {
            Load::Concurrency(c) => {
                self.plan.send_replace(None);
                self.hire(c, ramp);
            }
            Load::Rate(rate) => {
                self.wanted.send_replace(0);
                self.open_ahead(rate);
                let start = self.shared.clock.now();
                let from = self.plan.borrow().map_or(0.0, |p| p.rate(start));
                self.plan.send_replace(Some(RatePlan { start, from, to: rate, ramp }));
                if !std::mem::replace(&mut self.dispatching, true) {
                    self.tasks.spawn(dispatch(self.shared.clone(), self.plan.subscribe(), self.options));
                }
            }
        }
    }

    fn hire(&mut self, c: u32, ramp: Duration) {
        self.wanted.send_replace(c);
        let new: Vec<u32> = {
            let mut state = self.shared.state();
            let new: Vec<u32> = (0..c).filter(|id| !state.crew.contains(id)).collect();
            state.crew.extend(&new);
            new
        };
        let now = self.shared.clock.now();
        let share = ramp / u32::try_from(new.len()).unwrap_or(u32::MAX).max(1);
        let missing = self.shared.target.wire.as_ref().map_or(0, |w| w.missing(new.len()));
        for (i, id) in (0_u32..).zip(new) {
            let ahead = (i as usize) < missing;
            self.tasks.spawn(work(self.shared.clone(), id, now + share * i, ahead, self.wanted.subscribe()));
        }
    }

    /// Opens the connections of an open loop's first second.
    fn open_ahead(&mut self, rate: f64) {
        let Some(wire) = self.shared.target.wire.clone() else { return };
        let most = self.options.arrivals.max_in_flight as usize;
        for _ in 0..wire.missing((rate.ceil() as usize).min(most)) {
            let (wire, clock) = (wire.clone(), self.shared.clock);
            self.tasks.spawn(async move { wire.open_ahead(&clock).await });
        }
    }

    /// Sends nothing more and waits for what is in flight; what has not ended after `timeout` is cut.
    pub async fn drain(&mut self, timeout: Duration) -> Drained {
        self.wanted.send_replace(0);
        self.plan.send_replace(None);
        let deadline = self.shared.clock.instant(self.shared.clock.now() + timeout);
        // An error is the deadline; what is left is then cut below.
        let _ = tokio::time::timeout_at(deadline, self.shared.at_rest()).await;
        Drained { cut: self.stop().await }
    }

    /// Waits until every worker has left by itself, which happens when `max_requests` are sent.
    pub async fn finish(&self) {
        self.shared.at_rest().await;
    }

    /// Ends everything at once: what is in flight becomes [`Outcome::Cut`]. Gives how many that were.
    pub async fn stop(&mut self) -> usize {
        self.wanted.send_replace(0);
        self.plan.send_replace(None);
        self.tasks.shutdown().await;
        self.dispatching = false;
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        state.crew.clear();
        let flights = std::mem::take(&mut state.flights);
        for flight in flights.values() {
            let mut timeline = flight.timeline().clone();
            (timeline.outcome, timeline.finished) = (Outcome::Cut, now);
            self.shared.tell(Event::Request(timeline));
        }
        flights.len()
    }

    /// The requests in flight, in the order of their index, as far as they have come. Whatever has ended by then has had its
    /// event sent before; what ends later has its event besides.
    pub fn in_flight(&self) -> Vec<RequestTimeline> {
        let now = self.shared.clock.now();
        let flights: Vec<Arc<Flight>> = self.shared.state().flights.values().cloned().collect();
        let partial =
            |f: &Arc<Flight>| RequestTimeline { finished: now, outcome: Outcome::InFlight, ..f.timeline().clone() };
        flights.iter().map(partial).collect()
    }

    /// How the load fares, over the last ten looks. To be asked once a second.
    pub fn live(&self) -> Live {
        let partial = self.in_flight();
        self.shared.state().meter.look(self.shared.clock.now(), partial.iter())
    }

    /// Requests sent so far.
    pub fn sent(&self) -> u64 {
        let next = self.shared.next.load(Ordering::Relaxed);
        self.shared.max_requests.map_or(next, |max| next.min(max))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, event: Event) {
        // Nobody listens any more only when the run is being torn down.
        let _ = self.events.send(event);
    }

    /// Returns when no worker is alive and no request in flight.
    async fn at_rest(&self) {
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state();
                if state.crew.is_empty() && state.flights.is_empty() {
                    return;
                }
            }
            changed.await;
        }
    }

    /// Takes the next run of indices that belong together; `None` if enough were sent.
    fn claim(&self) -> Option<std::ops::Range<u64>> {
        let turns = u64::from(self.workload.turns());
        let first = self.next.fetch_add(turns, Ordering::Relaxed);
        let end = self.max_requests.map_or(first + turns, |max| (first + turns).min(max));
        (first < end).then_some(first..end)
    }

    /// Sends the request of that index, which could go since `ready`, and sees it to its end.
    async fn request(&self, index: u64, due: Option<Offset>, ready: Offset) -> Sent {
        let prompt = self.workload.request(index);
        let mut timeline = RequestTimeline::blank(index);
        timeline.step = self.step.load(Ordering::Relaxed);
        timeline.due = due;
        timeline.sent = self.clock.now();
        timeline.asked_prompt_tokens = prompt.asked_prompt_tokens;
        timeline.asked_output_tokens = prompt.asked_output_tokens;
        timeline.chunks.reserve(prompt.asked_output_tokens.map_or(64, |n| n.min(4_096) as usize));
        let flight = Arc::new(Flight::new(timeline));
        self.state().flights.insert(index, flight.clone());
        let stay_away = client::send(&self.target, &prompt, &self.clock, &flight).await;
        let ended = {
            // One lock: a request is either among the flights, or its event has been sent.
            let mut state = self.state();
            state.flights.remove(&index);
            let timeline = Arc::try_unwrap(flight).map_or_else(|f| f.timeline().clone(), Flight::into_timeline);
            state.meter.end(&timeline);
            let (failed, finished) = (!timeline.completed(), timeline.finished);
            // What opening a connection took is the server's time and the network's.
            let late = timeline.sent.since(ready).saturating_sub(timeline.connect.unwrap_or_default());
            self.target.lateness.sent(late);
            self.tell(Event::Request(timeline));
            (failed, finished)
        };
        self.changed.notify_waiters();
        Sent { failed: ended.0, finished: ended.1, stay_away }
    }
}

/// How a request went.
struct Sent {
    failed: bool,
    /// When its answer ended.
    finished: Offset,
    /// How long the server asked to be left alone.
    stay_away: Option<Duration>,
}

/// First pause of a worker after a failure; doubled with each further one in a row. A server that refuses
/// at once would otherwise be asked as fast as the client can.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Longest pause of a worker after a failure, also where the server asks for a longer one.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// One stream of a closed loop: sends, follows the answer to its end, sends the next.
async fn work(shared: Arc<Shared>, id: u32, begin: Offset, open_ahead: bool, mut wanted: watch::Receiver<u32>) {
    if let Some(wire) = shared.target.wire.as_ref().filter(|_| open_ahead) {
        wire.open_ahead(&shared.clock).await;
    }
    let mut pause_until = begin;
    let mut first = true;
    let mut failures = 0_u32;
    let mut indices = 0..0_u64;
    loop {
        let stays = pause(&shared.clock, pause_until, id, &mut wanted).await;
        {
            // One lock over the question and its answer, so that `hire` never counts on a worker that leaves.
            let mut state = shared.state();
            if !stays || id >= *wanted.borrow() {
                state.crew.remove(&id);
                break;
            }
        }
        if indices.is_empty() {
            let Some(next) = shared.claim() else {
                shared.state().crew.remove(&id);
                break;
            };
            indices = next;
        }
        let index = indices.start;
        indices.start += 1;
        // The first request could not go before its connection was open and its worker awake.
        let ready = if std::mem::take(&mut first) { shared.clock.now() } else { pause_until };
        let sent = shared.request(index, None, ready).await;
        failures = if sent.failed { failures + 1 } else { 0 };
        pause_until = match failures {
            0 => sent.finished + shared.workload.think_time(indices.start),
            n => {
                shared.clock.now()
                    + sent.stay_away.unwrap_or(FIRST_PAUSE * 2_u32.saturating_pow(n - 1)).min(LONGEST_PAUSE)
            }
        };
    }
    shared.changed.notify_waiters();
}

/// Sleeps until `until`; `false` if the worker is to leave before that.
async fn pause(clock: &Clock, until: Offset, id: u32, wanted: &mut watch::Receiver<u32>) -> bool {
    if clock.now() >= until {
        return true;
    }
    tokio::select! {
        biased;
        gone = wanted.wait_for(|w| id >= *w) => gone.is_err(),
        () = clock.sleep_until(until) => true,
    }
}

/// The arrivals of an open loop: each request is a task of its own, sent when it is due, or as soon as the cap allows.
async fn dispatch(shared: Arc<Shared>, mut plan: watch::Receiver<Option<RatePlan>>, options: LoadOptions) {
    let cap = Arc::new(Semaphore::new(options.arrivals.max_in_flight as usize));
    let mut requests = JoinSet::new();
    let mut arrivals: Option<Arrivals> = None;
    let mut noted = None;
    loop {
        let Some(current) = *plan.borrow_and_update() else {
            if plan.changed().await.is_err() {
                return;
            }
            continue;
        };
        match &mut arrivals {
            Some(a) => a.follow(current),
            None => {
                let recorded = shared.workload.recorded_gaps();
                arrivals = Some(Arrivals::new(options.arrivals, options.seed, current, recorded));
            }
        }
        let mut moved = false;
        while let Some(due) = arrivals.as_mut().and_then(Arrivals::draw) {
            tokio::select! {
                biased;
                changed = plan.changed() => match changed {
                    Ok(()) => {
                        moved = true;
                        break;
                    }
                    Err(_) => return,
                },
                () = shared.clock.sleep_until(due) => {}
            }
            while requests.try_join_next().is_some() {}
            let mut ready = due;
            let capped = cap.available_permits() == 0;
            if capped {
                let step = shared.step.load(Ordering::Relaxed);
                if noted.replace(step) != Some(step) {
                    let most = options.arrivals.max_in_flight;
                    let says = format!(
                        "step {step}: {most} requests are in flight, the most that are allowed; more wait in the client"
                    );
                    shared.tell(Event::Note(Note { at: shared.clock.now(), code: "in_flight_cap".into(), says }));
                }
            }
            let Ok(permit) = cap.clone().acquire_owned().await else { return };
            if plan.borrow().is_none() {
                break;
            }
            if capped {
                // The wait for the cap is in the latency, but it is no lateness of ours.
                ready = shared.clock.now();
            }
            let Some(indices) = shared.claim() else { return };
            let shared = shared.clone();
            requests.spawn(async move {
                let mut due = Some(due);
                for index in indices {
                    if due.is_none() {
                        ready = ready + shared.workload.think_time(index);
                        shared.clock.sleep_until(ready).await;
                    }
                    ready = shared.request(index, due.take(), ready).await.finished;
                }
                drop(permit);
            });
        }
        // Otherwise no arrival is left in the plan.
        if !moved && plan.changed().await.is_err() {
            return;
        }
    }
}
