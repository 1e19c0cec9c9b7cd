//! Whether what a rule reads is there at all, and where it comes from.

use std::collections::BTreeSet;

use crate::model::sample::SourceKind;
use crate::model::step::StepSpan;
use crate::promql::Expr;
use crate::series::{SeriesId, View};

use super::file::Alert;
use super::judge::Judge;
use super::selectors::Read;

impl Judge<'_> {
    /// Whether any series that a rule reads, directly or through recording rules, has a sample.
    pub(crate) fn any_series(&self, alert: &Alert, seen: &View<'_>, end_ms: i64) -> bool {
        let leaves = self.rules.leaves(&alert.expr);
        // `absent(x)` is about x not being there, and a rule without selectors needs no data.
        leaves.is_empty()
            || reads_absence(&alert.expr)
            || leaves
                .iter()
                .any(|read| has_series(read, seen, end_ms) || has_series(read, &View::whole(&self.facts), end_ms))
    }

    pub(super) fn names(&self, alert: &Alert) -> String {
        let mut names: Vec<&str> = self.rules.leaves(&alert.expr).iter().filter_map(|r| r.selector.metric()).collect();
        names.dedup();
        names.join(", ")
    }

    pub(super) fn sources(&self, alert: &Alert) -> BTreeSet<SourceKind> {
        let mut out = BTreeSet::new();
        for read in self.rules.leaves(&alert.expr) {
            // Only an instant selector goes blind at a failed scrape; a range bridges it.
            if read.range_ms.is_some() {
                continue;
            }
            let ids = read.selector.metric().map(|n| self.store.named(n)).unwrap_or_default();
            out.extend(ids.iter().map(|&id| match self.store.series(id).labels.get("job") {
                Some("gpu") => SourceKind::Gpu,
                Some("plimsoll") => SourceKind::Client,
                _ => SourceKind::Server,
            }));
        }
        out
    }

    /// Whether anything that a rule reads was there in a step.
    pub fn reads_any(&self, rule: &Alert, span: &StepSpan) -> bool {
        let view = self.only(span.whole());
        self.any_series(rule, &view, self.recording.unix_ms(span.measured.end))
    }
}

fn has_series(read: &Read<'_>, view: &View<'_>, end_ms: i64) -> bool {
    let mut samples = Vec::new();
    view.stores().any(|mut layer| {
        let store = layer.store;
        let mut seen = |id: &SeriesId| {
            let series = store.series(*id);
            samples.clear();
            super::selectors::matches(read.selector, &series.labels) && {
                layer.range(series, i64::MIN, end_ms, &mut samples);
                !samples.is_empty()
            }
        };
        match read.selector.metric() {
            Some(name) => store.named(name).iter().any(&mut seen),
            None => store.names().into_iter().any(|name| store.named(name).iter().any(&mut seen)),
        }
    })
}

fn reads_absence(expr: &Expr) -> bool {
    use crate::promql::Func::{Absent, AbsentOverTime};
    let mut found = false;
    expr.walk(&mut |e| found |= matches!(e, Expr::Call(Absent | AbsentOverTime, _)));
    found
}
