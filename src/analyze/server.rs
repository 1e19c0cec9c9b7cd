//! What the server's page said in one step, under the neutral names that the rule files record.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::recording::Recording;
use crate::model::sample::{Labels, Scrape, SourceKind};
use crate::model::time::Span;
use crate::model::verdict::{ServerStats, Spread};
use crate::promql::{Engine, Value};
use crate::rules::RuleSet;
use crate::rules::overlay::Recorder;
use crate::series::{Store, View, is_stale};

use super::quantiles::spread;

/// The neutral names that a summary or a plot is made of.
const NAMES: &[&str] = &[
    "plimsoll:waiting",
    "plimsoll:running",
    "plimsoll:kv_usage",
    "plimsoll:preemptions",
    "plimsoll:generation_tokens",
    "plimsoll:prefix_queries",
    "plimsoll:prefix_hits",
    "plimsoll:draft_tokens",
    "plimsoll:accepted_tokens",
    "plimsoll:ttft_seconds_bucket",
    "plimsoll:ttft_seconds_sum",
    "plimsoll:ttft_seconds_count",
    "plimsoll:itl_seconds_bucket",
    "plimsoll:itl_seconds_sum",
    "plimsoll:itl_seconds_count",
    "plimsoll:queue_seconds_sum",
    "plimsoll:queue_seconds_count",
    "plimsoll:prefill_seconds_sum",
    "plimsoll:prefill_seconds_count",
];

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

    /// Summary of one step; `window` in Unix ms, both ends included.
    pub fn step(&self, recording: &Recording, window: Span) -> Option<ServerStats> {
        let mut stats = ServerStats::default();
        for scrape in recording.scrapes.iter().filter(|s| s.source == SourceKind::Server && window.contains(s.sent)) {
            *if scrape.result.is_ok() { &mut stats.scrapes } else { &mut stats.failed_scrapes } += 1;
        }
        if stats.scrapes + stats.failed_scrapes == 0 {
            return None;
        }
        let ms = (recording.unix_ms(window.start), recording.unix_ms(window.end));
        let rose = |name: &str| self.rose(&format!("plimsoll:{name}"), ms);
        let ratio = |a: &str, b: &str| Some(rose(a)? / rose(b).filter(|&n| n > 0.0)?);
        let seconds = window.len().as_secs_f64();
        stats.waiting = self.spread("plimsoll:waiting", ms);
        stats.running = self.spread("plimsoll:running", ms);
        stats.kv_cache_usage = self.spread("plimsoll:kv_usage", ms);
        stats.preemptions = rose("preemptions");
        stats.ttft_p99_s = self.quantile("plimsoll:ttft_seconds_bucket", 0.99, ms);
        stats.ttft_mean_s = ratio("ttft_seconds_sum", "ttft_seconds_count");
        stats.itl_p99_s = self.quantile("plimsoll:itl_seconds_bucket", 0.99, ms);
        stats.itl_mean_s = ratio("itl_seconds_sum", "itl_seconds_count");
        stats.queue_mean_s = ratio("queue_seconds_sum", "queue_seconds_count");
        stats.prefill_mean_s = ratio("prefill_seconds_sum", "prefill_seconds_count");
        stats.prefix_cache_hit_rate = ratio("prefix_hits", "prefix_queries");
        stats.draft_acceptance_rate = ratio("accepted_tokens", "draft_tokens");
        stats.generation_tokens_per_s = rose("generation_tokens").filter(|_| seconds > 0.0).map(|n| n / seconds);
        Some(stats)
    }

    fn samples<'a>(&'a self, name: &str) -> impl Iterator<Item = (&'a Labels, Vec<(i64, f64)>)> + 'a {
        self.store.named(name).iter().map(|&id| {
            let series = self.store.series(id);
            (&series.labels, self.store.samples(series).collect())
        })
    }

    fn spread(&self, name: &str, (from, to): (i64, i64)) -> Spread {
        spread(self.trace(name).into_iter().filter(|(t, _)| (from..=to).contains(t)).filter_map(|(_, v)| v))
    }

    /// How much a counter rose in the window, resets mended; `None` without two samples.
    fn rose(&self, name: &str, window: (i64, i64)) -> Option<f64> {
        let each: Vec<f64> = self.samples(name).filter_map(|(_, s)| rose(&s, window)).collect();
        (!each.is_empty()).then(|| each.iter().sum())
    }

    /// Quantile of what a histogram observed in the window, interpolated within its bucket as
    /// Prometheus does; the highest finite bound where it lies beyond. `None` without observations.
    fn quantile(&self, name: &str, q: f64, window: (i64, i64)) -> Option<f64> {
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for (labels, samples) in self.samples(name) {
            let Some(bound) = labels.get("le").and_then(|le| le.parse::<f64>().ok()) else { continue };
            let Some(count) = rose(&samples, window) else { continue };
            match buckets.iter_mut().find(|(b, _)| *b == bound) {
                Some((_, sum)) => *sum += count,
                None => buckets.push((bound, count)),
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let &(last, total) = buckets.last()?;
        if last.is_finite() || total <= 0.0 || buckets.len() < 2 {
            return None;
        }
        let rank = q * total;
        let at = buckets.iter().position(|&(_, count)| count >= rank)?;
        if buckets[at].0.is_infinite() {
            return Some(buckets[at - 1].0);
        }
        let (low, below) = if at == 0 { (0.0, 0.0) } else { buckets[at - 1] };
        let (high, count) = buckets[at];
        Some(if count > below { low + (high - low) * (rank - below) / (count - below) } else { high })
    }
}

/// Rise of one series over the window: from its last sample at or before the start, since what
/// happened between that and the first inside belongs to the window too.
fn rose(samples: &[(i64, f64)], (from, to): (i64, i64)) -> Option<f64> {
    let good: Vec<(i64, f64)> = samples.iter().copied().filter(|(_, v)| !v.is_nan()).collect();
    let first = good.partition_point(|(t, _)| *t <= from).saturating_sub(1);
    let end = good.partition_point(|(t, _)| *t <= to);
    let within = good.get(first..end).filter(|w| w.len() > 1)?;
    Some(within.windows(2).map(|w| if w[1].1 < w[0].1 { w[1].1 } else { w[1].1 - w[0].1 }).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rise_starts_at_the_scrape_before_and_survives_a_reset() {
        let samples = [(0, 5.0), (10, 7.0), (20, 9.0), (30, 1.0), (40, 4.0)];
        assert_eq!(rose(&samples, (10, 20)), Some(2.0));
        assert_eq!(rose(&samples, (12, 20)), Some(2.0));
        assert_eq!(rose(&samples, (12, 40)), Some(2.0 + 1.0 + 3.0));
        assert_eq!(rose(&samples, (50, 60)), None);
        assert_eq!(rose(&[], (0, 60)), None);
    }
}
