//! Aggregations over groups of a vector.

use super::eval::{Eval, Names, text};
use super::expr::{Aggregate, AggregateOp, Grouping};
use super::over_time::{Sum, mean, quantile, variance};
use super::vector::{Groups, Key};
use super::{Element, EvalError, Reading};
use crate::model::sample::{Labels, NAME};

/// Evaluates an aggregation.
pub(super) fn evaluate(eval: &Eval<'_>, a: &Aggregate) -> Result<Vec<Element>, EvalError> {
    let key = match &a.grouping {
        Grouping::By(l) => Key::Only(l),
        Grouping::Without(l) => Key::Without(l),
    };
    match a.op {
        AggregateOp::Topk | AggregateOp::Bottomk => {
            let k = count(eval.scalar(a.param.as_ref().expect("the parser checked the parameter"))?, a.op)?;
            Ok(extremes(eval.vector(&a.of, Names::Keep)?, key, k, a.op == AggregateOp::Topk))
        }
        AggregateOp::CountValues => {
            let label = text(a.param.as_ref().expect("the parser checked the parameter"));
            count_values(eval.vector(&a.of, Names::Keep)?, &a.grouping, label)
        }
        _ => {
            let q = a.param.as_ref().map(|p| eval.scalar(p)).transpose()?.unwrap_or(f64::NAN);
            let by_name = matches!(&a.grouping, Grouping::By(l) if l.iter().any(|n| **n == *NAME));
            let names = if by_name { Names::Keep } else { Names::Drop };
            // Names play no part unless grouped by, so elements that differ in nothing else are fine.
            let elements = if names == Names::Keep { eval.vector(&a.of, names)? } else { nameless(eval, a)? };
            Ok(folded(a.op, &elements, key, q, eval.engine.reading))
        }
    }
}

/// One element for each group. The values of all groups lie in one list, group by group.
fn folded(op: AggregateOp, elements: &[Element], key: Key<'_>, q: f64, reading: Reading) -> Vec<Element> {
    let mut groups = Groups::new(key);
    let mut members = Vec::with_capacity(elements.len());
    for e in elements {
        let (group, _) = groups.place(&e.labels, || 0_usize);
        groups.items[group].1 += 1;
        members.push(group);
    }
    let mut next = Vec::with_capacity(groups.items.len());
    let mut end = 0;
    for (_, size) in &groups.items {
        next.push(end);
        end += size;
    }
    let mut values = vec![0.0; elements.len()];
    for (e, &group) in elements.iter().zip(&members) {
        values[next[group]] = e.value;
        next[group] += 1;
    }
    let of = |((labels, size), end): ((Labels, usize), usize)| {
        let value = fold(op, &mut values[end - size..end], q, reading);
        Element { labels: key.labels(&labels), value }
    };
    groups.items.into_iter().zip(next).map(of).collect()
}

/// The operand without names, allowing elements that differ in their names alone.
fn nameless(eval: &Eval<'_>, a: &Aggregate) -> Result<Vec<Element>, EvalError> {
    let one_name = match a.of.bare() {
        super::Expr::Select(s) => s.metric().is_some(),
        _ => false,
    };
    eval.vector(&a.of, if one_name { Names::Drop } else { Names::Keep })
}

fn fold(op: AggregateOp, values: &mut [f64], q: f64, reading: Reading) -> f64 {
    let all = || values.iter().copied();
    match op {
        // 2.x adds up as it comes, and its quantiles show that in their last digits.
        AggregateOp::Sum if reading == Reading::V2 => all().skip(1).fold(values[0], |a, b| a + b),
        AggregateOp::Sum => all().collect::<Sum>().total(),
        AggregateOp::Avg => mean(all()),
        AggregateOp::Count => values.len() as f64,
        AggregateOp::Min => all().fold(f64::NAN, |a, v| if v < a || a.is_nan() { v } else { a }),
        AggregateOp::Max => all().fold(f64::NAN, |a, v| if v > a || a.is_nan() { v } else { a }),
        AggregateOp::Group => 1.0,
        AggregateOp::Stddev => variance(all()).sqrt(),
        AggregateOp::Stdvar => variance(all()),
        AggregateOp::Quantile => quantile(q, values),
        AggregateOp::Topk | AggregateOp::Bottomk | AggregateOp::CountValues => {
            unreachable!("these keep more than one value for a group")
        }
    }
}

/// The parameter of `topk` as a count; below 1 there is nothing to return.
fn count(k: f64, op: AggregateOp) -> Result<usize, EvalError> {
    if k.is_nan() || k >= 9.2e18 || k <= -9.2e18 {
        let expected = "a whole number that fits into 64 bits";
        return Err(EvalError::Parameter { place: op.word(), value: k.to_string(), expected });
    }
    Ok(if k < 1.0 { 0 } else { k as usize })
}

/// The `k` largest or smallest elements of each group, largest or smallest first; a NaN gives
/// way to any number. Which of several equal ones stay follows from Prometheus' binary heap.
fn extremes(elements: Vec<Element>, key: Key<'_>, k: usize, top: bool) -> Vec<Element> {
    if k == 0 {
        return Vec::new();
    }
    let goes_first =
        |a: &Element, b: &Element| a.value.is_nan() || if top { a.value < b.value } else { a.value > b.value };
    let mut groups = Groups::new(key);
    for e in elements {
        let labels = e.labels.clone();
        let heap: &mut Vec<Element> = groups.entry(&labels, Vec::new).0;
        if heap.len() < k {
            heap.push(e);
            sift_up(heap, goes_first);
        } else if goes_first(&heap[0], &e) && !e.value.is_nan() {
            heap[0] = e;
            sift_down(heap, goes_first);
        }
    }
    let mut out = Vec::new();
    for (_, group) in groups.items {
        out.append(&mut super::pointwise::sorted(group, top));
    }
    out
}

/// Moves the last element of a heap to its place.
fn sift_up(heap: &mut [Element], before: impl Fn(&Element, &Element) -> bool) {
    let mut at = heap.len() - 1;
    while at > 0 {
        let parent = (at - 1) / 2;
        if !before(&heap[at], &heap[parent]) {
            break;
        }
        heap.swap(at, parent);
        at = parent;
    }
}

/// Moves the first element of a heap to its place.
fn sift_down(heap: &mut [Element], before: impl Fn(&Element, &Element) -> bool) {
    let mut at = 0;
    loop {
        let mut child = 2 * at + 1;
        if child >= heap.len() {
            break;
        }
        if child + 1 < heap.len() && before(&heap[child + 1], &heap[child]) {
            child += 1;
        }
        if !before(&heap[child], &heap[at]) {
            break;
        }
        heap.swap(at, child);
        at = child;
    }
}

/// How many elements of each group have each value.
fn count_values(elements: Vec<Element>, grouping: &Grouping, label: &str) -> Result<Vec<Element>, EvalError> {
    let valid =
        label.chars().enumerate().all(|(i, c)| c == '_' || c.is_ascii_alphabetic() || i > 0 && c.is_ascii_digit());
    if label.is_empty() || !valid {
        return Err(EvalError::Parameter {
            place: "count_values",
            value: label.into(),
            expected: "the name of a label",
        });
    }
    let labelled: Vec<Element> = elements
        .into_iter()
        .map(|e| Element { labels: e.labels.with(label, &plain(e.value)), value: e.value })
        .collect();
    let mut by: Vec<Box<str>>;
    let key = match grouping {
        Grouping::By(l) => {
            by = l.clone();
            by.push(label.into());
            Key::Only(&by)
        }
        Grouping::Without(l) => Key::Without(l),
    };
    let mut groups = Groups::new(key);
    for e in &labelled {
        *groups.entry(&e.labels, || 0.0).0 += 1.0;
    }
    Ok(groups.items.into_iter().map(|(l, value)| Element { labels: key.labels(&l), value }).collect())
}

/// A number in the shortest form that reads back, without an exponent.
fn plain(v: f64) -> String {
    match v {
        v if v.is_nan() => "NaN".into(),
        v if v.is_infinite() => if v > 0.0 { "+Inf" } else { "-Inf" }.into(),
        v => v.to_string(),
    }
}
