//! The recursion over the tree.

use super::expr::{Expr, Type};
use super::func::Func;
use super::{Element, Engine, EvalError, Samples, Value};
use super::{aggregate, binary, calendar, histogram, over_time, pointwise, relabel};
use crate::model::sample::{Labels, NAME};
use crate::series::View;

/// An evaluation at one instant.
#[derive(Clone, Copy)]
pub(super) struct Eval<'a> {
    pub(super) engine: Engine,
    pub(super) view: &'a View<'a>,
    /// The instant: inside of a subquery one of its steps.
    pub(super) now_ms: i64,
    /// The instant of the whole query.
    pub(super) query_ms: i64,
}

/// Whether the caller wants to see metric names: selectors keep their nameless labels at hand,
/// so telling them early saves building these anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    Keep,
    Drop,
}

impl Eval<'_> {
    pub(super) fn value(&self, expr: &Expr) -> Result<Value, EvalError> {
        Ok(match expr.value_type() {
            Type::Scalar => Value::Scalar(self.scalar(expr)?),
            Type::Vector => Value::Vector(self.vector(expr, Names::Keep)?),
            Type::Matrix => Value::Matrix(self.matrix(expr)?),
            Type::Text => Value::Text(text(expr).to_owned()),
        })
    }

    /// The value of an expression whose type is scalar.
    pub(super) fn scalar(&self, expr: &Expr) -> Result<f64, EvalError> {
        Ok(match expr {
            Expr::Number(n) => *n,
            Expr::Paren(e) => self.scalar(e)?,
            Expr::Negate(e) => -self.scalar(e)?,
            Expr::Binary(b) => binary::scalars(b.op, self.scalar(&b.lhs)?, self.scalar(&b.rhs)?),
            Expr::Call(Func::Time, _) => self.now_ms as f64 / 1e3,
            Expr::Call(Func::Pi, _) => std::f64::consts::PI,
            Expr::Call(Func::Scalar, args) => match self.vector(&args[0], Names::Drop)?.as_slice() {
                [one] => one.value,
                _ => f64::NAN,
            },
            _ => unreachable!("the parser checked that this is a scalar"),
        })
    }

    /// The value of an expression whose type is instant vector. `Names::Drop` takes the names off.
    pub(super) fn vector(&self, expr: &Expr, names: Names) -> Result<Vec<Element>, EvalError> {
        match expr {
            Expr::Paren(e) => self.vector(e, names),
            Expr::Select(s) => self.select(s, names),
            Expr::Negate(e) => {
                let mut v = self.vector(e, Names::Drop)?;
                v.iter_mut().for_each(|e| e.value = -e.value);
                Ok(v)
            }
            Expr::Aggregate(a) => dropped(aggregate::evaluate(self, a)?, names, "an aggregation"),
            Expr::Binary(b) => binary::evaluate(self, b, names),
            Expr::Call(func, args) => self.call(*func, args, names),
            _ => unreachable!("the parser checked that this is an instant vector"),
        }
    }

    fn call(&self, func: Func, args: &[Expr], names: Names) -> Result<Vec<Element>, EvalError> {
        match func {
            Func::Vector => Ok(vec![Element { labels: Labels::default(), value: self.scalar(&args[0])? }]),
            Func::HistogramQuantile => {
                let q = self.scalar(&args[0])?;
                Ok(histogram::quantiles(q, self.vector(&args[1], Names::Drop)?, self.engine.reading))
            }
            Func::Absent => {
                let found = !self.vector(&args[0], Names::Keep)?.is_empty();
                Ok(if found { Vec::new() } else { vec![absent(&args[0])] })
            }
            Func::Timestamp => self.timestamps(&args[0]),
            Func::LabelReplace => {
                dropped(relabel::replace(self.vector(&args[0], Names::Keep)?, args)?, names, "label_replace")
            }
            Func::LabelJoin => dropped(relabel::join(self.vector(&args[0], Names::Keep)?, args)?, names, "label_join"),
            Func::Sort | Func::SortDesc => Ok(pointwise::sorted(self.vector(&args[0], names)?, func == Func::SortDesc)),
            _ if calendar::is_about_dates(func) => match args.first() {
                Some(of) => Ok(calendar::evaluate(func, self.vector(of, Names::Drop)?)),
                None => {
                    let now = Element { labels: Labels::default(), value: self.now_ms as f64 / 1e3 };
                    Ok(calendar::evaluate(func, vec![now]))
                }
            },
            _ if func.takes().contains(&Type::Matrix) => over_time::evaluate(self, func, args, names),
            _ => pointwise::evaluate(self, func, args),
        }
    }
}

/// A string argument; the parser checked that it is one.
pub(super) fn text(expr: &Expr) -> &str {
    match expr.bare() {
        Expr::Text(s) => s,
        _ => "",
    }
}

/// Takes the names off a finished vector, if asked to.
pub(super) fn dropped(mut v: Vec<Element>, names: Names, place: &'static str) -> Result<Vec<Element>, EvalError> {
    if names == Names::Drop {
        let mut any = false;
        for e in &mut v {
            if e.labels.get(NAME).is_some() {
                e.labels = e.labels.without(|n| n == NAME);
                any = true;
            }
        }
        if any {
            super::vector::unique(&v, place)?;
        }
    }
    Ok(v)
}

/// The element that stands for the absence of what `of` selects: its labels are those that the
/// selector asks for with `=`.
pub(super) fn absent(of: &Expr) -> Element {
    let mut labels = Labels::default();
    if let Expr::Select(s) | Expr::Range(s, _) = of.bare() {
        // In order, and a label that is asked for twice is left out, as Prometheus does it.
        let mut seen: Vec<&str> = Vec::new();
        for m in s.matchers.iter().filter(|m| &*m.label != NAME) {
            if matches!(m.op, super::expr::MatchOp::Equal) && !seen.contains(&&*m.label) {
                labels = labels.with(&m.label, &m.value);
                seen.push(&m.label);
            } else {
                labels = labels.without(|n| *n == *m.label);
            }
        }
    }
    Element { labels, value: 1.0 }
}

/// Samples as a matrix of its own, for callers outside.
pub(super) type Matrix = Vec<Samples>;
