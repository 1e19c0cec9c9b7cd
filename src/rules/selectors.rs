//! What a rule reads: its selectors, the recording rules behind them, and whether its value
//! depends on how full its window is.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::model::sample::Labels;
use crate::promql::Func;
use crate::promql::{BinaryOp, Expr, Selector, Window};

use super::file::{Record, RuleSet};

/// One selector of an expression.
#[derive(Clone, Debug)]
pub struct Read<'a> {
    /// Name and matchers.
    pub selector: &'a Selector,
    /// Its range, ms; `None` for an instant selector.
    pub range_ms: Option<i64>,
}

/// Whether a selector takes a series with these labels.
pub fn matches(selector: &Selector, labels: &Labels) -> bool {
    selector.name.as_deref().is_none_or(|n| n == labels.name())
        && selector.matchers.iter().all(|m| m.fits(labels.get(&m.label).unwrap_or_default()))
}

/// Every selector of an expression, in order.
pub fn reads(expr: &Expr) -> Vec<Read<'_>> {
    let mut out = Vec::new();
    expr.walk(&mut |e| match e {
        Expr::Select(selector) => out.push(Read { selector, range_ms: None }),
        Expr::Range(selector, Window(ms)) => out.push(Read { selector, range_ms: Some(*ms) }),
        _ => {}
    });
    out
}

impl RuleSet {
    /// The recording rules that `exprs` rest on, directly or through others.
    /// A selector that fixes no name may read any of them.
    pub(crate) fn records_behind<'a>(&'a self, exprs: impl IntoIterator<Item = &'a Expr>) -> BTreeSet<&'a str> {
        let mut needed = BTreeSet::new();
        let mut todo: Vec<&Expr> = exprs.into_iter().collect();
        while let Some(expr) = todo.pop() {
            for read in reads(expr) {
                let name = read.selector.metric();
                for record in self.records().filter(|r| name.is_none_or(|n| n == r.name)) {
                    // Several rules may record one name, so each is followed at its first sight.
                    if needed.insert(record.name.as_str()) {
                        todo.extend(self.records().filter(|r| r.name == record.name).map(|r| &r.expr));
                    }
                }
            }
        }
        needed
    }

    /// The selectors of `expr`, with those that read a recording rule replaced by what that one reads.
    pub(crate) fn leaves<'a>(&'a self, expr: &'a Expr) -> Vec<Read<'a>> {
        let mut out = Vec::new();
        let mut open: Vec<(Read<'a>, u8)> = reads(expr).into_iter().map(|r| (r, 0)).collect();
        open.reverse();
        while let Some((read, depth)) = open.pop() {
            let behind: Vec<&Record> =
                self.records().filter(|r| read.selector.metric() == Some(r.name.as_str()) && depth < 8).collect();
            if behind.is_empty() {
                out.push(read);
                continue;
            }
            for record in behind {
                open.extend(reads(&record.expr).into_iter().map(|r| {
                    let range_ms = r.range_ms.or(read.range_ms);
                    (Read { range_ms, ..r }, depth + 1)
                }));
            }
        }
        out
    }
}

/// The longest range of an expression whose size scales its value: a rate that is held against
/// a number other than zero reads too low while its window is longer than what has been seen.
///
/// A quantile of rates and a ratio of rates do not mind, since numerator and denominator are cut
/// alike; nor does a comparison with zero.
pub fn absolute_window(expr: &Expr) -> Option<Duration> {
    let ms = match expr.bare() {
        Expr::Binary(b) if b.op.is_set() => return absolute_window(&b.lhs).max(absolute_window(&b.rhs)),
        Expr::Binary(b) if b.op.is_comparison() => match (&b.lhs, b.rhs.bare()) {
            (_, Expr::Number(0.0)) => None,
            (left, Expr::Number(_)) => summed_window(left),
            // Two windows of one length are cut alike.
            (left, right) => unless_equal(summed_window(left), summed_window(right)),
        },
        _ => None,
    };
    ms.map(|ms| Duration::from_millis(ms.unsigned_abs()))
}

fn summed_window(expr: &Expr) -> Option<i64> {
    use Func::{Changes, CountOverTime, Delta, Increase, Rate, Resets, SumOverTime};
    match expr.bare() {
        Expr::Negate(e) => summed_window(e),
        Expr::Aggregate(a) => summed_window(&a.of),
        Expr::Binary(b) if b.op == BinaryOp::Div => unless_equal(summed_window(&b.lhs), summed_window(&b.rhs)),
        Expr::Binary(b) => summed_window(&b.lhs).max(summed_window(&b.rhs)),
        Expr::Call(Func::HistogramQuantile, _) => None,
        Expr::Call(Rate | Increase | Delta | SumOverTime | CountOverTime | Changes | Resets, args) => {
            args.iter().find_map(|a| match a.bare() {
                Expr::Range(_, w) => Some(w.0),
                Expr::Subquery(s) => Some(s.window.0),
                _ => None,
            })
        }
        Expr::Call(_, args) => args.iter().filter_map(summed_window).max(),
        _ => None,
    }
}

fn unless_equal(left: Option<i64>, right: Option<i64>) -> Option<i64> {
    if left == right { None } else { left.max(right) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::NAME;
    use crate::promql::parse;

    #[test]
    fn only_sums_over_a_window_need_it_full() {
        for (text, seconds) in [
            ("rate(x[1m]) > 0", None),
            ("rate(x[1m]) > 2", Some(60)),
            ("sum(rate(a[5m])) / sum(rate(b[5m])) > 0.01", None),
            ("sum(rate(a[5m])) / sum(rate(b[1m])) > 0.01", Some(300)),
            ("histogram_quantile(0.99, sum by (le) (rate(x_bucket[5m]))) > 1", None),
            ("avg_over_time(x[5m]) > 3", None),
            ("x > 1 and increase(y[2m]) > 3", Some(120)),
        ] {
            assert_eq!(absolute_window(&parse(text).unwrap()).map(|d| d.as_secs()), seconds, "{text}");
        }
    }

    #[test]
    fn selectors_match_as_prometheus_does() {
        let labels = Labels::new([(NAME, "x"), ("le", "+Inf")]);
        for (text, yes) in [
            ("x", true),
            ("y", false),
            ("{__name__=~\"x|y\"}", true),
            ("x{le=\"+Inf\"}", true),
            ("x{engine=\"\"}", true),
            ("x{engine!=\"\"}", false),
        ] {
            let expr = parse(text).unwrap();
            assert_eq!(matches(reads(&expr)[0].selector, &labels), yes, "{text}");
        }
    }
}
