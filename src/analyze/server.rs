//! What the server's pages said over time, under the neutral names that the rule files record.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::recording::Recording;
use crate::model::sample::{Labels, Scrape, SourceKind};
use crate::promql::{Engine, Value};
use crate::rules::RuleSet;
use crate::rules::overlay::Recorder;
use crate::series::{Store, View, is_stale};

/// The neutral names that a timeline is drawn from.
const NAMES: &[&str] = &["plimsoll:waiting", "plimsoll:running", "plimsoll:kv_usage", "plimsoll:preemptions"];

/// The server's signals under neutral names, at every scrape of the run.
pub struct Signals {
    store: Store,
}

/// The three gauges that are shown while a run goes on, out of one page.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Requests that wait, over all engines.
    pub waiting: Option<f64>,
    /// Requests that run, over all engines.
    pub running: Option<f64>,
    /// Share of the KV pool in use, of the fullest engine.
    pub kv_usage: Option<f64>,
}

impl Gauges {
    /// Reads them by their neutral names; `None` where the page has no such metric, or failed.
    pub fn of(rules: &RuleSet, scrape: &Scrape) -> Gauges {
        let mut store = Store::new();
        for sample in scrape.result.iter().flatten() {
            store.push(&sample.labels, 0, sample.value);
        }
        let read = |name: &str| -> Vec<f64> {
            let value = rules
                .records()
                .find(|r| r.name == name)
                .and_then(|r| Engine::default().instant(&r.expr, &View::whole(&store), 0).ok());
            value.into_iter().flat_map(Value::into_vector).map(|e| e.value).collect()
        };
        let sum = |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum());
        Gauges {
            waiting: sum(read("plimsoll:waiting")),
            running: sum(read("plimsoll:running")),
            kv_usage: read("plimsoll:kv_usage").into_iter().max_by(f64::total_cmp),
        }
    }
}

impl Signals {
    /// Evaluates the naming rules at each scrape.
    pub fn new(recording: &Recording, rules: &RuleSet, store: &Store, engine: &Engine) -> Signals {
        let needed: BTreeSet<&str> = NAMES.iter().copied().collect();
        let mut recorder = Recorder::new(rules, &needed);
        let mut named = Store::new();
        let view = View::whole(store);
        for scrape in recording.scrapes.iter().filter(|s| s.source == SourceKind::Server) {
            recorder.record(engine, &view, &mut named, recording.unix_ms(scrape.sent));
        }
        Signals { store: named }
    }

    /// The sum over engines (the largest, for a share) at each scrape, Unix ms; `None` where it was gone.
    pub fn trace(&self, name: &str) -> Vec<(i64, Option<f64>)> {
        let share = name == "plimsoll:kv_usage";
        let mut at: BTreeMap<i64, Option<f64>> = BTreeMap::new();
        for (t, v) in self.samples(name).flat_map(|(_, samples)| samples) {
            let now = at.entry(t).or_default();
            if !is_stale(v) {
                *now = Some(now.map_or(v, |n| if share { n.max(v) } else { n + v }));
            }
        }
        at.into_iter().collect()
    }

    fn samples<'a>(&'a self, name: &str) -> impl Iterator<Item = (&'a Labels, Vec<(i64, f64)>)> + 'a {
        self.store.named(name).iter().map(|&id| {
            let series = self.store.series(id);
            (&series.labels, self.store.samples(series).collect())
        })
    }
}
