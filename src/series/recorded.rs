//! Fills a store from a recording, with the labels and markers that Prometheus would have given.

use std::collections::{BTreeMap, HashMap};

use super::client::{self, ClientTargets};
use super::store::{Store, missing, stale_marker};
use super::told;
use crate::model::recording::Recording;
use crate::model::sample::{Labels, NAME, Scrape, SourceKind};
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
            add_pages(&mut store, recording, &scrapes, job(source), &instance(recording, source, target));
        }
        let instants = instants.unwrap_or_else(|| every_second(recording));
        let client = host_port(&recording.header.target.url);
        client::add(&mut store, recording, targets, &instants, &client);
        told::add(&mut store, recording, &instants, &client);
        store
    }
}

/// The `job` label of a source.
const fn job(source: SourceKind) -> &'static str {
    match source {
        SourceKind::Server => "server",
        SourceKind::Gpu => "gpu",
        SourceKind::Client => client::JOB,
    }
}

/// The `instance` label of a target. The header names the first server only; further ones and
/// GPUs are told apart by their number.
fn instance(recording: &Recording, source: SourceKind, target: u32) -> String {
    let facts = &recording.header.target;
    match (source, target) {
        (SourceKind::Server, 0) => host_port(facts.metrics_url.as_deref().unwrap_or(&facts.url)),
        (SourceKind::Server, n) => format!("target-{n}"),
        (SourceKind::Gpu, n) => format!("gpu-{n}"),
        (SourceKind::Client, n) => format!("client-{n}"),
    }
}

/// `host:port` of a URL, with the port that its scheme stands for where it names none.
fn host_port(url: &str) -> String {
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

/// Where no page tells when to look: each second of the run, scaled as its intervals are.
fn every_second(recording: &Recording) -> Vec<Offset> {
    let step = ((1e6 * recording.header.time_scale) as u64).max(1_000);
    (0..=recording.last.0 / step).map(|k| Offset(k * step)).collect()
}

/// A column that grows page by page.
struct Column {
    labels: Labels,
    first: usize,
    cells: Vec<f64>,
}

/// Adds the pages of one target, in order of time.
fn add_pages(store: &mut Store, recording: &Recording, scrapes: &[&Scrape], job: &str, instance: &str) {
    let times = store.add_times(scrapes.iter().map(|s| recording.unix_ms(s.sent)).collect());
    let mut columns: Vec<Column> = Vec::new();
    let mut by_labels: HashMap<&Labels, usize> = HashMap::new();
    // Pages list their series in one order, so each series is looked for where it stood last.
    let mut order: Vec<(&Labels, usize)> = Vec::new();
    for (i, scrape) in scrapes.iter().enumerate() {
        for (place, sample) in scrape.result.iter().flatten().enumerate() {
            let c = match order.get(place) {
                Some(&(labels, c)) if *labels == sample.labels => c,
                _ => {
                    let c = *by_labels.entry(&sample.labels).or_insert_with(|| {
                        columns.push(Column { labels: sample.labels.clone(), first: i, cells: Vec::new() });
                        columns.len() - 1
                    });
                    order.truncate(place.max(order.len().min(place + 1)));
                    match order.get_mut(place) {
                        Some(slot) => *slot = (&sample.labels, c),
                        None => order.push((&sample.labels, c)),
                    }
                    c
                }
            };
            let column = &mut columns[c];
            // Of a series that stands twice on a page the first counts.
            if column.first + column.cells.len() == i {
                column.cells.push(sample.value);
            }
        }
        for column in &mut columns {
            if column.first + column.cells.len() == i {
                column.cells.push(stale_marker());
            }
        }
    }
    for column in columns {
        store.add_series(scraped_labels(&column.labels, job, instance), times, column.first, column.cells);
    }
    let own = |name| Labels::new([(NAME, name), ("job", job), ("instance", instance)]);
    let up = scrapes.iter().map(|s| f64::from(u8::from(s.result.is_ok()))).collect();
    store.add_series(own("up"), times, 0, up);
    let took = scrapes.iter().map(|s| s.received.since(s.sent).as_secs_f64()).collect();
    store.add_series(own("scrape_duration_seconds"), times, 0, took);
    debug_assert!(missing().is_nan());
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
