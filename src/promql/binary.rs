//! Binary operators: arithmetic, comparisons, set operators, and the joins of vectors.

use super::eval::{Eval, Names, dropped};
use super::expr::{Binary, BinaryOp, Cardinality, Expr, Matching, Type};
use super::vector::{Groups, Key, unique};
use super::{Element, EvalError, Reading};
use crate::model::sample::{Labels, NAME};

/// An operator on two scalars; a comparison gives 0 or 1.
pub(super) fn scalars(op: BinaryOp, a: f64, b: f64) -> f64 {
    match apply(op, a, b) {
        (_, holds) if op.is_comparison() => f64::from(u8::from(holds)),
        (v, _) => v,
    }
}

/// The value of an operator on two numbers, and whether a comparison holds; its value is `a`.
fn apply(op: BinaryOp, a: f64, b: f64) -> (f64, bool) {
    match op {
        BinaryOp::Add => (a + b, true),
        BinaryOp::Sub => (a - b, true),
        BinaryOp::Mul => (a * b, true),
        BinaryOp::Div => (a / b, true),
        BinaryOp::Mod => (a % b, true),
        BinaryOp::Pow => (a.powf(b), true),
        BinaryOp::Atan2 => (a.atan2(b), true),
        BinaryOp::Equal => (a, a == b),
        BinaryOp::NotEqual => (a, a != b),
        BinaryOp::Greater => (a, a > b),
        BinaryOp::Less => (a, a < b),
        BinaryOp::GreaterEqual => (a, a >= b),
        BinaryOp::LessEqual => (a, a <= b),
        BinaryOp::And | BinaryOp::Or | BinaryOp::Unless => unreachable!("set operators do not compute"),
    }
}

/// Evaluates an operator of which one side at least is a vector.
pub(super) fn evaluate(eval: &Eval<'_>, b: &Binary, names: Names) -> Result<Vec<Element>, EvalError> {
    // Arithmetic and `bool` take the names off, so they need not be there to begin with. But 2.x
    // forgot `atan2`.
    let forgotten = b.op == BinaryOp::Atan2 && eval.engine.reading == Reading::V2;
    let drops = !b.op.is_set() && (!b.op.is_comparison() || b.return_bool) && !forgotten;
    let by_name = b.matching.labels.iter().any(|l| **l == *NAME);
    let inner = if drops { Names::Drop } else { names };
    match (b.lhs.value_type(), b.rhs.value_type()) {
        (Type::Vector, Type::Scalar) => {
            let number = eval.scalar(&b.rhs)?;
            Ok(with_number(eval.vector(&b.lhs, inner)?, |v| (apply(b.op, v, number), v), b))
        }
        (Type::Scalar, Type::Vector) => {
            let number = eval.scalar(&b.lhs)?;
            Ok(with_number(eval.vector(&b.rhs, inner)?, |v| (apply(b.op, number, v), v), b))
        }
        _ => {
            // Sides that are matched by their names must keep them until then.
            let side =
                |e: &Expr| eval.vector(e, if by_name || b.op.is_set() || !drops { Names::Keep } else { Names::Drop });
            let (lhs, rhs) = (side(&b.lhs)?, side(&b.rhs)?);
            let joined = if b.op.is_set() { set(b, lhs, rhs)? } else { join(b, lhs, rhs, drops)? };
            dropped(joined, names, b.op.symbol())
        }
    }
}

/// A vector and a number. `compute` gives the value and whether it holds, and the vector's own value.
fn with_number(v: Vec<Element>, compute: impl Fn(f64) -> ((f64, bool), f64), b: &Binary) -> Vec<Element> {
    v.into_iter()
        .filter_map(|mut e| {
            let ((value, holds), own) = compute(e.value);
            e.value = match b.op.is_comparison() {
                true if b.return_bool => f64::from(u8::from(holds)),
                true if !holds => return None,
                true => own,
                false => value,
            };
            Some(e)
        })
        .collect()
}

fn key(m: &Matching) -> Key<'_> {
    if m.on { Key::Only(&m.labels) } else { Key::Without(&m.labels) }
}

/// `and`, `or`, `unless`.
fn set(b: &Binary, lhs: Vec<Element>, rhs: Vec<Element>) -> Result<Vec<Element>, EvalError> {
    let (keep, against) = match b.op {
        BinaryOp::Or => (&rhs, &lhs),
        _ => (&lhs, &rhs),
    };
    let mut there = Groups::new(key(&b.matching));
    against.iter().for_each(|e| *there.entry(&e.labels, || ()).0 = ());
    let kept = keep.iter().filter(|e| there.find(&e.labels).is_some() == (b.op == BinaryOp::And)).cloned();
    Ok(match b.op {
        BinaryOp::Or => {
            let all: Vec<Element> = lhs.iter().cloned().chain(kept).collect();
            if b.matching.on {
                unique(&all, "or")?;
            }
            all
        }
        _ => kept.collect(),
    })
}

/// Arithmetic and comparisons of two vectors.
fn join(b: &Binary, lhs: Vec<Element>, rhs: Vec<Element>, drops: bool) -> Result<Vec<Element>, EvalError> {
    let (many, one, swapped, include): (_, _, _, &[Box<str>]) = match &b.matching.cardinality {
        Cardinality::OneToOne => (lhs, rhs, false, &[]),
        Cardinality::ManyToOne(l) => (lhs, rhs, false, l),
        Cardinality::OneToMany(l) => (rhs, lhs, true, l),
    };
    let key = key(&b.matching);
    let ambiguous = |side, labels: &Labels| EvalError::ManyMatches {
        op: b.op.symbol(),
        side,
        group: key.labels(labels).to_string(),
    };
    let mut partners = Groups::new(key);
    for (i, e) in one.iter().enumerate() {
        if !partners.entry(&e.labels, || (i, false)).1 {
            return Err(ambiguous(if swapped { "left" } else { "right" }, &e.labels));
        }
    }
    let one_to_one = b.matching.cardinality == Cardinality::OneToOne;
    let mut out = Vec::new();
    for e in many {
        let Some(&(i, _)) = partners.find(&e.labels) else { continue };
        let (left, right) = if swapped { (one[i].value, e.value) } else { (e.value, one[i].value) };
        let (mut value, holds) = apply(b.op, left, right);
        if b.return_bool {
            value = f64::from(u8::from(holds));
        } else if !holds {
            continue;
        }
        if one_to_one {
            let used = &mut partners.entry(&e.labels, || (i, false)).0.1;
            if std::mem::replace(used, true) {
                return Err(ambiguous("left", &e.labels));
            }
        }
        out.push(Element { labels: joined_labels(&b.matching, &e.labels, &one[i].labels, include, drops), value });
    }
    if !one_to_one {
        unique(&out, b.op.symbol())?;
    }
    Ok(out)
}

/// The labels of a joined element.
fn joined_labels(m: &Matching, many: &Labels, one: &Labels, include: &[Box<str>], drops: bool) -> Labels {
    let mut labels = many.clone();
    if drops && labels.get(NAME).is_some() {
        labels = labels.without(|n| n == NAME);
    }
    if m.cardinality == Cardinality::OneToOne && (m.on || !m.labels.is_empty()) {
        let listed = |n: &str| m.labels.iter().any(|l| **l == *n);
        labels = labels.without(|n| listed(n) != m.on);
    }
    for name in include {
        labels = labels.with(name, one.get(name).unwrap_or(""));
    }
    labels
}
