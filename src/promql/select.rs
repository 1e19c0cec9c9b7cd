//! Selectors and subqueries.

use std::collections::BTreeMap;

use super::eval::{Eval, Matrix, Names};
use super::expr::{At, Expr, Matcher, Selector, Shift, Subquery, Window};
use super::vector::unique;
use super::{Element, EvalError, Reading, Samples};
use crate::model::sample::{Labels, NAME};
use crate::series::{Series, SeriesId, Store, is_stale};

impl Eval<'_> {
    /// The instant that a selector with this shift is asked about.
    fn shifted(&self, shift: Shift) -> i64 {
        let base = match shift.at {
            None => self.now_ms,
            Some(At::Ms(ms)) => ms,
            Some(At::Start | At::End) => self.query_ms,
        };
        base.saturating_sub(shift.offset_ms)
    }

    /// First millisecond of a window of `ms` that ends at `end`: its left edge belongs to it in
    /// 2.x and not in 3.x.
    fn left(&self, end: i64, ms: i64) -> i64 {
        let edge = end.saturating_sub(ms);
        match self.engine.reading {
            Reading::V2 => edge,
            Reading::V3 => edge.saturating_add(1),
        }
    }

    /// An instant selector.
    pub(super) fn select(&self, s: &Selector, names: Names) -> Result<Vec<Element>, EvalError> {
        let mut out = Vec::new();
        self.newest(s, |series, _, value| {
            let labels = if names == Names::Drop { &series.bare } else { &series.labels };
            out.push(Element { labels: labels.clone(), value });
        });
        if names == Names::Drop && s.metric().is_none() {
            unique(&out, "a selector without its names")?;
        }
        Ok(out)
    }

    /// The newest sample of each series that an instant selector finds, with its time.
    fn newest(&self, s: &Selector, mut each: impl FnMut(&Series, i64, f64)) {
        let end = self.shifted(s.shift);
        let begin = self.left(end, self.engine.lookback_ms);
        for mut layer in self.view.stores() {
            for_each_series(layer.store, s, |series| {
                if let Some((t, v)) = layer.newest(series, begin, end)
                    && !is_stale(v)
                {
                    each(series, t, v);
                }
            });
        }
    }

    /// `timestamp(of)`: of a selector the times of its samples, else the instant.
    pub(super) fn timestamps(&self, of: &Expr) -> Result<Vec<Element>, EvalError> {
        if let Expr::Select(s) = of.bare() {
            let mut out = Vec::new();
            self.newest(s, |series, t, _| out.push(Element { labels: series.bare.clone(), value: t as f64 / 1e3 }));
            if s.metric().is_none() {
                unique(&out, "timestamp")?;
            }
            return Ok(out);
        }
        let mut v = self.vector(of, Names::Drop)?;
        v.iter_mut().for_each(|e| e.value = self.now_ms as f64 / 1e3);
        Ok(v)
    }

    /// Calls `each` with the samples of every series of a range vector that has any, and with
    /// the instant at which its window ends. `labels` are without a name on `Names::Drop`.
    pub(super) fn windows(
        &self,
        expr: &Expr,
        names: Names,
        mut each: impl FnMut(&Labels, &[(i64, f64)], Bounds),
    ) -> Result<(), EvalError> {
        match expr {
            Expr::Paren(e) => self.windows(e, names, each),
            Expr::Range(s, Window(ms)) => {
                let end = self.shifted(s.shift);
                let begin = self.left(end, *ms);
                let mut points = Vec::new();
                for mut layer in self.view.stores() {
                    for_each_series(layer.store, s, |series| {
                        points.clear();
                        layer.range(series, begin, end, &mut points);
                        if !points.is_empty() {
                            let labels = if names == Names::Drop { &series.bare } else { &series.labels };
                            each(labels, &points, Bounds { end_ms: end, range_ms: *ms });
                        }
                    });
                }
                Ok(())
            }
            Expr::Subquery(s) => {
                let end = self.shifted(s.shift);
                for samples in self.subquery(s, end)? {
                    let labels = match names {
                        Names::Keep => samples.labels,
                        Names::Drop => samples.labels.without(|n| n == NAME),
                    };
                    each(&labels, &samples.points, Bounds { end_ms: end, range_ms: s.window.0 });
                }
                Ok(())
            }
            _ => unreachable!("the parser checked that this is a range vector"),
        }
    }

    /// Evaluates a subquery at each multiple of its step inside of its window.
    fn subquery(&self, s: &Subquery, end: i64) -> Result<Matrix, EvalError> {
        let step = s.step_ms.unwrap_or(self.engine.subquery_step_ms).max(1);
        let begin = self.left(end, s.window.0);
        let mut t = begin.div_euclid(step) * step;
        if t < begin {
            t += step;
        }
        let mut rows: BTreeMap<Labels, Vec<(i64, f64)>> = BTreeMap::new();
        while t <= end {
            let inner = Eval { now_ms: t, ..*self };
            for e in inner.vector(&s.of, Names::Keep)? {
                rows.entry(e.labels).or_default().push((t, e.value));
            }
            t += step;
        }
        Ok(rows.into_iter().map(|(labels, points)| Samples { labels, points }).collect())
    }

    /// A range vector as a value.
    pub(super) fn matrix(&self, expr: &Expr) -> Result<Matrix, EvalError> {
        let mut out = Vec::new();
        self.windows(expr, Names::Keep, |labels, points, _| {
            out.push(Samples { labels: labels.clone(), points: points.to_vec() });
        })?;
        Ok(out)
    }
}

/// The window that samples were taken from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Its right edge, Unix ms.
    pub(super) end_ms: i64,
    /// Its length, ms.
    pub(super) range_ms: i64,
}

/// Calls `f` with every series that fits a selector, in order of labels within a name.
fn for_each_series(store: &Store, s: &Selector, mut f: impl FnMut(&Series)) {
    let fits = |series: &Series, m: &[Matcher]| m.iter().all(|m| m.fits(series.labels.get(&m.label).unwrap_or("")));
    let mut visit = |ids: &[SeriesId]| {
        for &id in ids {
            let series = store.series(id);
            if s.matchers.is_empty() || fits(series, &s.matchers) {
                f(series);
            }
        }
    };
    match s.metric() {
        Some(name) => visit(store.named(name)),
        None => {
            for name in store.names() {
                visit(store.named(name));
            }
        }
    }
}
