//! How many observations a quantile rests on, and what can be said with fewer than 100.

use std::collections::BTreeMap;

use crate::model::sample::Labels;
use crate::promql::Expr;
use crate::promql::Func;
use crate::series::{SeriesId, Store, View};

use super::file::RuleSet;
use super::selectors::{Read, matches};

/// Observations that a quantile rule waits for.
pub const ENOUGH: f64 = 100.0;

/// A histogram that a quantile is read from.
#[derive(Clone, Debug)]
pub(crate) struct Histogram<'a> {
    /// What reads its buckets.
    read: Read<'a>,
    /// The last bucket of each histogram in the store: it counts all observations.
    last: Vec<SeriesId>,
}

/// The histograms that an alert's quantiles are read from; empty if it reads no quantile.
pub(crate) fn histograms<'a>(set: &'a RuleSet, expr: &'a Expr, store: &Store) -> Vec<Histogram<'a>> {
    let mut inner: Vec<&Expr> = Vec::new();
    quantile_arguments(expr, &mut inner);
    // A quantile may hide in a recording rule that the alert reads.
    let behind = set.records_behind([expr]);
    for record in set.records().filter(|r| behind.contains(r.name.as_str())) {
        quantile_arguments(&record.expr, &mut inner);
    }
    let reads = inner.into_iter().flat_map(|e| set.leaves(e)).filter(|r| r.range_ms.is_some());
    reads.map(|read| Histogram { last: last_buckets(&read, store), read }).collect()
}

/// Of each histogram that a selector finds the bucket with the highest bound, which must be `+Inf`: without it no
/// quantile can be read.
fn last_buckets(read: &Read<'_>, store: &Store) -> Vec<SeriesId> {
    let mut last: BTreeMap<Labels, (f64, SeriesId)> = BTreeMap::new();
    for &id in read.selector.metric().map(|n| store.named(n)).unwrap_or_default() {
        let labels = &store.series(id).labels;
        let bound = labels.get("le").and_then(parse_bound).filter(|_| matches(read.selector, labels));
        let Some(bound) = bound else { continue };
        let entry = last.entry(labels.without(|n| n == "le")).or_insert((bound, id));
        if bound >= entry.0 {
            *entry = (bound, id);
        }
    }
    last.into_values().filter(|(bound, _)| *bound == f64::INFINITY).map(|(_, id)| id).collect()
}

impl RuleSet {
    /// Whether any alert reads a quantile, and so waits for observations.
    pub fn reads_quantiles(&self) -> bool {
        self.alerts().any(|a| !histograms(self, &a.expr, &Store::new()).is_empty())
    }
}

fn quantile_arguments<'a>(expr: &'a Expr, out: &mut Vec<&'a Expr>) {
    expr.walk(&mut |e| {
        if let Expr::Call(Func::HistogramQuantile, args) = e {
            out.extend(args.get(1));
        }
    });
}

/// Observations that entered any of `histograms` up to `at_ms`, since the begin of the view (without
/// one, within the rule's window): the largest over them, since a renamed metric is read under both names. `None` if no such series was seen twice.
pub(crate) fn count(histograms: &[Histogram<'_>], view: &View<'_>, at_ms: i64) -> Option<f64> {
    let mut most = None;
    let mut samples = Vec::new();
    for Histogram { read, last } in histograms {
        // A view of one step is one load: all of it says how much is known. At a request every few
        // seconds the window of the rule alone would never hold enough.
        let from = if view.from_ms() == i64::MIN { at_ms - read.range_ms.unwrap_or(0) + 1 } else { view.from_ms() };
        let mut total = None;
        for mut layer in view.stores() {
            // What recording rules have made grows from evaluation to evaluation.
            let made_here;
            let last = if std::ptr::eq(layer.store, view.store()) {
                last
            } else {
                made_here = last_buckets(read, layer.store);
                &made_here
            };
            for &id in last {
                samples.clear();
                layer.range(layer.store.series(id), from, at_ms, &mut samples);
                if samples.len() >= 2 {
                    *total.get_or_insert(0.0) += increase(&samples);
                }
            }
        }
        most = match (most, total) {
            (Some(a), Some(b)) => Some(f64::max(a, b)),
            (a, b) => a.or(b),
        };
    }
    most
}

fn parse_bound(text: &str) -> Option<f64> {
    if text == "+Inf" { Some(f64::INFINITY) } else { text.parse().ok() }
}

/// Growth of a counter, resets included; not extrapolated.
fn increase(samples: &[(i64, f64)]) -> f64 {
    samples.windows(2).map(|w| if w[1].1 < w[0].1 { w[1].1 } else { w[1].1 - w[0].1 }).sum()
}

/// The rule as it would read if `n` observations were filled up to 100 with the best there can be.
///
/// A quantile q of 100 of which 100 − n are below everything is the quantile
/// 1 − (1 − q)·100/n of the n. If the rule fires even so, it fires whatever else comes, and
/// need not wait. `None` if n is too small for that.
pub(crate) fn filled_up(expr: &Expr, n: f64) -> Option<Expr> {
    let mut expr = expr.clone();
    let mut possible = true;
    expr.walk_mut(&mut |e| {
        if let Expr::Call(Func::HistogramQuantile, args) = e
            && let Some(Expr::Number(q)) = args.first_mut()
        {
            // (100q − (100 − n))/n; the sliver keeps a quantile that falls on a bucket's very edge inside.
            *q = (*q * ENOUGH - (ENOUGH - n)) / n - 1e-9;
            possible &= *q > 0.0;
        }
    });
    possible.then_some(expr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::NAME;
    use crate::promql::parse;

    #[test]
    fn observations_are_counted_once_and_over_resets() {
        let set = RuleSet { groups: Vec::new(), facts: Vec::new(), time_scale: 1.0 };
        let mut store = Store::new();
        for (engine, values) in [("0", [5.0, 25.0, 4.0]), ("1", [0.0, 10.0, 10.0])] {
            for (le, factor) in [("1.0", 0.5), ("+Inf", 1.0)] {
                let l = Labels::new([(NAME, "t_bucket"), ("engine", engine), ("le", le)]);
                for (i, v) in values.iter().enumerate() {
                    store.push(&l, i as i64 * 1_000, v * factor);
                }
            }
        }
        let expr =
            parse("histogram_quantile(0.99, sum by (le) (rate(t_bucket[5m]) or rate(old_bucket[5m]))) > 1").unwrap();
        let reads = histograms(&set, &expr, &store);
        assert_eq!(reads.len(), 2);
        assert_eq!(count(&reads, &View::whole(&store), 2_000), Some(20.0 + 4.0 + 10.0));
        assert_eq!(count(&reads, &View::whole(&store), 0), None);
    }

    #[test]
    fn a_quantile_of_few_is_filled_up_with_the_best() {
        let expr = parse("histogram_quantile(0.99, x) > 1").unwrap();
        let q = |n: f64| {
            let Some(Expr::Binary(b)) = filled_up(&expr, n) else { return None };
            let Expr::Call(_, args) = b.lhs else { return None };
            let Expr::Number(q) = args[0] else { return None };
            Some((q * 1e6).round() / 1e6)
        };
        assert_eq!(q(50.0), Some(0.98));
        assert_eq!(q(1.0), None);
        // Two of four: half of them must be slow.
        assert_eq!(q(4.0), Some(0.75));
    }
}
