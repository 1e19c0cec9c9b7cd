//! A store that grows with the run: each look adds what came since the last one, at a cost that does not rise.
//!
//! It holds the same samples at the same times as [`Store::from_recording_with`] makes of the finished recording,
//! for the names that are asked for. What is known only later is missing until then: a page that is still being
//! read (its samples carry the instant at which it was asked for), and, before the first request with timings of
//! the server's own, the zeros that those series begin with.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::client::{self, ClientTargets};
use super::recorded::{Pages, every_second, host_port, instance, job};
use super::store::Store;
use super::told;
use crate::model::recording::Recording;
use crate::model::request::RequestTimeline;
use crate::model::sample::SourceKind;
use crate::model::time::Offset;

/// For how long a page that is being read holds up what can be said: production gives up after ten seconds.
const PATIENCE: Duration = Duration::from_secs(12);

/// The series of a run that goes on.
pub struct Growing {
    store: Store,
    /// Names that are read; `None` for all.
    keep: Option<BTreeSet<String>>,
    pages: BTreeMap<(SourceKind, u32), Pages>,
    client: client::Growing,
    told: told::Growing,
    /// Whether a server's page tells when to look.
    scraped: bool,
    /// Instants of our own series that are still to come.
    instants: VecDeque<Offset>,
    /// How much of the recording was taken in.
    scrapes: usize,
    requests: usize,
    /// Requests that ended after the latest instant of our own series, by place in the recording.
    ended: Vec<usize>,
    /// The requests that were in flight at the last look, as they were then.
    flights: Vec<RequestTimeline>,
    looked: Option<Offset>,
    settled: Option<Offset>,
}

impl Growing {
    /// Nothing recorded yet. `keep` are the names that are read, `None` for all; `scraped` says whether there is a
    /// server's page, whose scrapes are then the instants of our own series.
    pub fn new(
        recording: &Recording,
        targets: &ClientTargets,
        keep: Option<BTreeSet<String>>,
        scraped: bool,
    ) -> Growing {
        let mut store = Store::new();
        let times = store.add_times(Vec::new());
        let client = host_port(&recording.header.target.url);
        Growing {
            store,
            keep,
            pages: BTreeMap::new(),
            client: client::Growing::new(targets.clone(), &client, times),
            told: told::Growing::new(&client, times),
            scraped,
            instants: VecDeque::new(),
            scrapes: 0,
            requests: 0,
            ended: Vec::new(),
            flights: Vec::new(),
            looked: None,
            settled: None,
        }
    }

    /// Takes in what was recorded since the last look. `flights` are the requests in flight at `now`.
    ///
    /// A request that ended a moment ago may not be recorded yet. So what our own series say of an instant is
    /// reckoned at the look after the next: with the requests that were in flight at this look, and all that were
    /// recorded by the next one.
    pub fn look(&mut self, recording: &Recording, flights: Vec<RequestTimeline>, now: Offset) {
        self.take_scrapes(recording);
        self.take_requests(recording);
        let patient = Offset(now.0.saturating_sub(PATIENCE.as_micros() as u64));
        let known = |page: &Pages| Offset(page.newest().0.saturating_sub(1)).max(patient);
        self.settled = self.looked.map(|looked| self.pages.values().map(known).fold(looked, Offset::min));
        (self.flights, self.looked) = (flights, Some(now));
    }

    /// Takes in all that has happened by `now`, where it is known that all of it is recorded but for `flights`, which
    /// are in flight. Only a page that is being read can still come later.
    pub fn settle(&mut self, recording: &Recording, flights: Vec<RequestTimeline>, now: Offset) {
        (self.flights, self.looked) = (flights, Some(now));
        self.take_scrapes(recording);
        self.take_requests(recording);
        self.settled = Some(now);
    }

    /// Everything up to this is known; `None` before the second look.
    pub fn settled(&self) -> Option<Offset> {
        self.settled
    }

    /// What there is so far.
    pub fn store(&self) -> &Store {
        &self.store
    }

    fn take_scrapes(&mut self, recording: &Recording) {
        let Growing { store, keep, pages, instants, .. } = self;
        let keep = |name: &str| keep.as_ref().is_none_or(|names| names.contains(name));
        for scrape in &recording.scrapes[self.scrapes..] {
            let key = (scrape.source, scrape.target);
            let first_server = pages.keys().find(|(source, _)| *source == SourceKind::Server).copied();
            let page = pages.entry(key).or_insert_with(|| {
                Pages::new(store, job(scrape.source), instance(recording, scrape.source, scrape.target))
            });
            let new = page.take(store, recording, scrape, keep);
            if new && scrape.source == SourceKind::Server && first_server.is_none_or(|first| first == key) {
                instants.push_back(scrape.sent);
            }
        }
        self.scrapes = recording.scrapes.len();
        if let Some(looked) = self.looked.filter(|_| !self.scraped) {
            let latest = self.client.latest();
            instants.clear();
            instants.extend(every_second(recording, looked).into_iter().filter(|at| latest.is_none_or(|l| *at > l)));
        }
    }

    /// Our own series at every instant up to the last look.
    fn take_requests(&mut self, recording: &Recording) {
        self.ended.extend(self.requests..recording.requests.len());
        self.requests = recording.requests.len();
        let ended: BTreeSet<u64> = self.ended.iter().map(|&i| recording.requests[i].index).collect();
        let keep = |name: &str| self.keep.as_ref().is_none_or(|names| names.contains(name));
        while let Some(at) = self.instants.front().copied().filter(|at| self.looked.is_some_and(|l| *at <= l)) {
            self.instants.pop_front();
            let before = self.client.latest();
            self.store.push_time(self.client.times(), recording.unix_ms(at));
            let going_on = self.flights.iter().filter(|r| !ended.contains(&r.index));
            let over = self.ended.iter().map(|&i| &recording.requests[i]);
            self.client.add(&mut self.store, at, over.clone().chain(going_on), &recording.steps, keep);
            let just = over.filter(|r| r.finished <= at && before.is_none_or(|b| r.finished > b));
            self.told.add(&mut self.store, at, just, &recording.health, keep);
        }
        let latest = self.client.latest();
        self.ended.retain(|&i| latest.is_none_or(|latest| recording.requests[i].finished > latest));
    }
}
