//! Fills a store from a recording, with the labels and markers that Prometheus would have given.

use std::collections::{BTreeMap, HashMap};

use super::client::{self, ClientTargets};
use super::store::{SeriesId, Store, TimesId, stale_marker};
use super::told;
use crate::model::recording::Recording;
use crate::model::sample::{Labels, NAME, Sample, Scrape, SourceKind};
use crate::model::time::Offset;

impl Store {
    /// Every series of a recording: the server's pages (`job="server"`), the GPU's readings
    /// (`job="gpu"`) and what the client saw (`job="plimsoll"`, see [`client`]), the last with the
    /// targets of [`ClientTargets::default`].
    ///
    /// A sample carries the instant at which its scrape was sent. A series that a good page
    /// lacks, and every series of a target whose scrape failed, gets a staleness marker. `up`
    /// and `scrape_duration_seconds` are there too.
    pub fn from_recording(recording: &Recording) -> Store {
        Store::from_recording_with(recording, &ClientTargets::default())
    }

    /// The same with the scenario's own latency targets, which become bounds of the client's histograms.
    pub fn from_recording_with(recording: &Recording, targets: &ClientTargets) -> Store {
        let mut store = Store::new();
        let mut pages: BTreeMap<(SourceKind, u32), Vec<&Scrape>> = BTreeMap::new();
        for scrape in &recording.scrapes {
            pages.entry((scrape.source, scrape.target)).or_default().push(scrape);
        }
        let mut instants = None;
        for ((source, target), mut scrapes) in pages {
            scrapes.sort_by_key(|s| s.sent);
            // Two scrapes in one millisecond cannot both be kept.
            scrapes.dedup_by_key(|s| recording.unix_ms(s.sent));
            if source == SourceKind::Server && instants.is_none() {
                instants = Some(scrapes.iter().map(|s| s.sent).collect());
            }
            let mut pages = Pages::new(&mut store, job(source), instance(recording, source, target));
            for scrape in scrapes {
                pages.take(&mut store, recording, scrape, |_| true);
            }
        }
        let instants = instants.unwrap_or_else(|| every_second(recording, recording.last));
        let client = host_port(&recording.header.target.url);
        client::add(&mut store, recording, targets, &instants, &client);
        told::add(&mut store, recording, &instants, &client);
        store
    }
}

/// The `job` label of a source.
pub(super) const fn job(source: SourceKind) -> &'static str {
    match source {
        SourceKind::Server => "server",
        SourceKind::Gpu => "gpu",
        SourceKind::Client => client::JOB,
    }
}

/// The `instance` label of a target. The header names the first server only; further ones and
/// GPUs are told apart by their number.
pub(super) fn instance(recording: &Recording, source: SourceKind, target: u32) -> String {
    let facts = &recording.header.target;
    match (source, target) {
        (SourceKind::Server, 0) => host_port(facts.metrics_url.as_deref().unwrap_or(&facts.url)),
        (SourceKind::Server, n) => format!("target-{n}"),
        (SourceKind::Gpu, n) => format!("gpu-{n}"),
        (SourceKind::Client, n) => format!("client-{n}"),
    }
}

/// `host:port` of a URL, with the port that its scheme stands for where it names none.
pub(super) fn host_port(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let named =
        host.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
    match (named, scheme) {
        _ if host.is_empty() => "unknown".into(),
        (true, _) => host.into(),
        (false, "https") => format!("{host}:443"),
        (false, _) => format!("{host}:80"),
    }
}

/// Where no page tells when to look: each second of the run up to `until`, scaled as its intervals are.
pub(super) fn every_second(recording: &Recording, until: Offset) -> Vec<Offset> {
    let step = ((1e6 * recording.header.time_scale) as u64).max(1_000);
    (0..=until.0 / step).map(|k| Offset(k * step)).collect()
}

/// The series of one target, page by page in order of time.
pub(super) struct Pages {
    job: &'static str,
    instance: String,
    times: TimesId,
    columns: Vec<Column>,
    by_labels: HashMap<Labels, usize>,
    /// Pages list their series in one order, so each series is looked for where it stood last.
    order: Vec<usize>,
    own: Option<[Option<SeriesId>; 2]>,
    newest: Offset,
}

/// A series as its page shows it.
struct Column {
    labels: Labels,
    /// `None` for one that is not kept.
    id: Option<SeriesId>,
}

impl Pages {
    pub(super) fn new(store: &mut Store, job: &'static str, instance: String) -> Pages {
        Pages {
            job,
            instance,
            times: store.add_times(Vec::new()),
            columns: Vec::new(),
            by_labels: HashMap::new(),
            order: Vec::new(),
            own: None,
            newest: Offset::ZERO,
        }
    }

    /// When the newest page was asked for.
    pub(super) fn newest(&self) -> Offset {
        self.newest
    }

    /// Takes in one more page, keeping the names that `keep` wants; false if it shares its millisecond with the one
    /// before, of which both cannot be kept.
    pub(super) fn take(
        &mut self,
        store: &mut Store,
        recording: &Recording,
        scrape: &Scrape,
        keep: impl Fn(&str) -> bool,
    ) -> bool {
        let t_ms = recording.unix_ms(scrape.sent);
        if store.newest_ms(self.times).is_some_and(|newest| newest >= t_ms) {
            return false;
        }
        let i = store.times_len(self.times);
        store.push_time(self.times, t_ms);
        self.newest = scrape.sent;
        for (place, sample) in scrape.result.iter().flatten().enumerate() {
            let c = match self.order.get(place) {
                Some(&c) if self.columns[c].labels == sample.labels => c,
                _ => self.find(store, sample, place, i, &keep),
            };
            // Of a series that stands twice on a page the first counts.
            if let Some(id) = self.columns[c].id.filter(|id| store.next_cell(*id) == i) {
                store.push_cell(id, sample.value);
            }
        }
        for id in self.columns.iter().filter_map(|c| c.id) {
            if store.next_cell(id) == i {
                store.push_cell(id, stale_marker());
            }
        }
        let own = [f64::from(u8::from(scrape.result.is_ok())), scrape.received.since(scrape.sent).as_secs_f64()];
        match self.own {
            Some(ids) => {
                for (id, value) in ids.into_iter().zip(own) {
                    if let Some(id) = id {
                        store.push_cell(id, value);
                    }
                }
            }
            None => {
                let labels = |n| Labels::new([(NAME, n), ("job", self.job), ("instance", self.instance.as_str())]);
                let names = ["up", "scrape_duration_seconds"].into_iter().zip(own);
                let ids = names.map(|(n, v)| keep(n).then(|| new_series(store, labels(n), self.times, i, v)).flatten());
                self.own = Some(ids.collect::<Vec<_>>().try_into().unwrap_or([None; 2]));
            }
        }
        true
    }

    /// The column of a sample that does not stand where it stood before; page `i` is its first if it is new.
    fn find(
        &mut self,
        store: &mut Store,
        sample: &Sample,
        place: usize,
        i: usize,
        keep: impl Fn(&str) -> bool,
    ) -> usize {
        let c = match self.by_labels.get(&sample.labels) {
            Some(&c) => c,
            None => {
                let id = keep(sample.labels.name())
                    .then(|| scraped_labels(&sample.labels, self.job, &self.instance))
                    .and_then(|labels| new_series(store, labels, self.times, i, sample.value));
                self.columns.push(Column { labels: sample.labels.clone(), id });
                self.by_labels.insert(sample.labels.clone(), self.columns.len() - 1);
                self.columns.len() - 1
            }
        };
        match self.order.get_mut(place) {
            Some(slot) => *slot = c,
            None => self.order.push(c),
        }
        c
    }
}

/// A series whose first cell is that of time `first`; `None` if another target's series has its labels already.
fn new_series(store: &mut Store, labels: Labels, times: TimesId, first: usize, value: f64) -> Option<SeriesId> {
    let before = store.len();
    let id = store.add_series(labels, times, first, vec![value]);
    (store.len() > before).then_some(id)
}

/// The labels of a page's series with those of its target; what the page itself calls `job` or
/// `instance` becomes `exported_…`, as in Prometheus.
fn scraped_labels(page: &Labels, job: &str, instance: &str) -> Labels {
    let mine = [("job", job), ("instance", instance)];
    let renamed = page.iter().map(|(n, v)| match n {
        "job" => ("exported_job", v),
        "instance" => ("exported_instance", v),
        n => (n, v),
    });
    Labels::new(renamed.chain(mine))
}
