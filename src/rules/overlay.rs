//! What recording rules and facts files make: a second store, laid over the recorded one.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::sample::{Labels, NAME};
use crate::promql::{Element, Engine, Value};
use crate::series::{Store, View};

use super::facts::LabelFact;
use super::file::{Record, Rule, RuleSet};

/// Turns the numbers that hide in labels into series, at the times of their samples: those that came since the last
/// time that this was done with the same two stores.
pub fn push_facts(facts: &[LabelFact], store: &Store, into: &mut Store) {
    let mut new = Vec::new();
    for fact in facts {
        for &id in store.named(&fact.series) {
            let series = store.series(id);
            let Some(number) = series.labels.get(&fact.label).and_then(|t| t.parse::<f64>().ok()) else { continue };
            let kept = series
                .labels
                .iter()
                .filter(|(n, _)| matches!(*n, "job" | "instance") || fact.keep.iter().any(|k| k == n));
            let labels = Labels::new(kept.chain([(NAME, fact.becomes.as_str())]));
            let after_ms = into.newest(&labels).unwrap_or(i64::MIN);
            new.push((series, number + fact.add, labels, after_ms));
        }
    }
    for (series, number, labels, after_ms) in new {
        for (t, v) in store.samples_after(series, after_ms) {
            if crate::series::is_stale(v) {
                into.mark_stale(&labels, t);
            } else {
                into.push(&labels, t, number);
            }
        }
    }
}

/// Evaluates recording rules in order, each evaluation visible to the later rules.
#[derive(Clone)]
pub struct Recorder<'a> {
    rules: Vec<(usize, &'a Record)>,
    /// What each rule had at its previous evaluation, for staleness markers.
    before: BTreeMap<usize, Vec<Labels>>,
}

impl<'a> Recorder<'a> {
    /// For the recording rules of `set` that are called for by name.
    pub fn new(set: &'a RuleSet, needed: &BTreeSet<&str>) -> Recorder<'a> {
        let rules = set.groups.iter().flat_map(|g| &g.rules).enumerate().filter_map(|(i, r)| match r {
            Rule::Record(r) if needed.contains(r.name.as_str()) => Some((i, r)),
            _ => None,
        });
        Recorder { rules: rules.collect(), before: BTreeMap::new() }
    }

    /// Whether there is nothing to record.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Evaluates all rules at `at_ms` and writes their results into `overlay`.
    ///
    /// A rule that cannot be evaluated records nothing, as in Prometheus.
    pub fn record(&mut self, engine: &Engine, view: &View<'_>, overlay: &mut Store, at_ms: i64) {
        for (i, rule) in &self.rules {
            let value = engine.instant(&rule.expr, &view.clone().with_overlay(overlay), at_ms);
            let now: Vec<(Labels, f64)> =
                elements(value.ok()).into_iter().map(|e| (recorded_labels(rule, &e.labels), e.value)).collect();
            for old in self.before.remove(i).unwrap_or_default() {
                if !now.iter().any(|(l, _)| *l == old) {
                    overlay.mark_stale(&old, at_ms);
                }
            }
            for (labels, value) in &now {
                overlay.push(labels, at_ms, *value);
            }
            self.before.insert(*i, now.into_iter().map(|(l, _)| l).collect());
        }
    }
}

/// The elements of a result; a scalar is one element without labels.
pub fn elements(value: Option<Value>) -> Vec<Element> {
    match value {
        Some(Value::Vector(v)) => v,
        Some(Value::Scalar(value)) => vec![Element { labels: Labels::default(), value }],
        _ => Vec::new(),
    }
}

fn recorded_labels(rule: &Record, of: &Labels) -> Labels {
    let own = rule.labels.iter().map(|(n, v)| (n.as_str(), v.as_str()));
    Labels::new(of.iter().filter(|(n, _)| *n != NAME).chain(own).chain([(NAME, rule.name.as_str())]))
}
