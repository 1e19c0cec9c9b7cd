//! Instant evaluation of PromQL over the store, to the digit as the real Prometheus does it.
//!
//! [`parse`] turns text into an [`Expr`], which the [`Engine`] evaluates at an instant over a
//! [`View`]. What it cannot evaluate, `parse` refuses. Versions before 3.0 read ranges and
//! rates a little differently: [`Reading`] says which way is meant.
//!
//! Folder: `expr` (the tree), `func` (the functions), `parse` and `scan` (text to tree, places of
//! errors), `display` (tree to text), `eval` (the recursion), `select` (selectors and
//! subqueries), `over_time` (functions of ranges), `pointwise` (functions of vectors),
//! `relabel`, `aggregate`, `binary`, `histogram`, and `vector` (sets of labels as keys).

mod aggregate;
mod binary;
mod calendar;
mod display;
mod eval;
mod expr;
mod func;
mod histogram;
mod over_time;
mod parse;
mod pointwise;
mod relabel;
mod scan;
mod select;
mod vector;

pub use expr::{
    Aggregate, AggregateOp, At, Binary, BinaryOp, Cardinality, Expr, Grouping, MatchOp, Matcher, Matching, Selector,
    Shift, Subquery, Type, Window,
};
pub use func::Func;
pub use parse::{ParseError, parse};

use crate::model::sample::Labels;
use crate::series::View;

/// Which Prometheus is followed where versions differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// 2.x as of 2.42: windows hold the sample on their left edge.
    V2,
    /// 3.x as of 3.5: they do not.
    #[default]
    V3,
}

/// Evaluates expressions. Holds settings only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Which Prometheus is followed.
    pub reading: Reading,
    /// How old a sample an instant selector takes, ms.
    pub lookback_ms: i64,
    /// Step of subqueries that give none, ms: the global evaluation interval.
    pub subquery_step_ms: i64,
}

impl Default for Engine {
    /// Prometheus 3.x as it comes: a look-back of five minutes, subqueries each minute.
    fn default() -> Engine {
        Engine { reading: Reading::V3, lookback_ms: 300_000, subquery_step_ms: 60_000 }
    }
}

/// One element of a vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Element {
    /// Its labels, perhaps with a name.
    pub labels: Labels,
    /// Its value.
    pub value: f64,
}

/// Samples of one label set over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// Its labels, perhaps with a name.
    pub labels: Labels,
    /// Unix ms and value, in order of time.
    pub points: Vec<(i64, f64)>,
}

/// The answer to an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// One number.
    Scalar(f64),
    /// One value for each label set; no label set twice.
    Vector(Vec<Element>),
    /// Samples for each label set: what a range selector or a subquery answers.
    Matrix(Vec<Samples>),
    /// A string.
    Text(String),
}

impl Value {
    /// The elements of a vector; a scalar is one without labels, as in a recording rule; the rest has none.
    pub fn into_vector(self) -> Vec<Element> {
        match self {
            Value::Vector(v) => v,
            Value::Scalar(value) => vec![Element { labels: Labels::default(), value }],
            Value::Matrix(_) | Value::Text(_) => Vec::new(),
        }
    }
}

/// Why an expression has no value at an instant: what a Prometheus would call a failed rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// Two elements with the same labels, where each must be unique.
    #[error("{place} gives two elements with the labels {labels}, expected each once")]
    SameLabels {
        /// The operation.
        place: &'static str,
        /// The labels.
        labels: String,
    },
    /// Several elements of a side that must hold one for each group.
    #[error("`{op}` finds several elements for the group {group} on its {side} side, expected one")]
    ManyMatches {
        /// The operator.
        op: &'static str,
        /// `left` or `right`.
        side: &'static str,
        /// Labels of the group.
        group: String,
    },
    /// A parameter that cannot be used.
    #[error("{place} is given `{value}`, expected {expected}")]
    Parameter {
        /// The function.
        place: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        expected: &'static str,
    },
}

impl Engine {
    /// The value of `expr` at `at_ms`, Unix ms.
    ///
    /// # Errors
    /// Where Prometheus would fail the query: an ambiguous join, two results with the same
    /// labels, or a bad parameter.
    pub fn instant(&self, expr: &Expr, view: &View<'_>, at_ms: i64) -> Result<Value, EvalError> {
        eval::Eval { engine: *self, view, now_ms: at_ms, query_ms: at_ms }.value(expr)
    }
}
