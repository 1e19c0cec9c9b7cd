//! A parsed expression: the tree that is evaluated, printed, scaled and searched.

use regex::Regex;

use super::func::Func;

/// A PromQL expression, checked: every function in it can be evaluated and every type fits.
/// Prints as PromQL.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A number.
    Number(f64),
    /// A string, as an argument of a function.
    Text(String),
    /// An instant selector.
    Select(Selector),
    /// A range selector, `x[5m]`.
    Range(Selector, Window),
    /// A subquery, `expr[5m:15s]`.
    Subquery(Box<Subquery>),
    /// A function call.
    Call(Func, Vec<Expr>),
    /// An aggregation.
    Aggregate(Box<Aggregate>),
    /// Two operands and their operator.
    Binary(Box<Binary>),
    /// `-expr`
    Negate(Box<Expr>),
    /// `(expr)`
    Paren(Box<Expr>),
}

/// What an expression evaluates to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// One number.
    Scalar,
    /// One value for each of a set of label sets.
    Vector,
    /// Samples over a stretch of time for each of a set of label sets.
    Matrix,
    /// A string.
    Text,
}

/// Length of a range, ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(pub i64);

/// Which series, and as of when.
#[derive(Clone, Debug, PartialEq)]
pub struct Selector {
    /// The metric's name, where it is spelt before the braces.
    pub name: Option<Box<str>>,
    /// What the labels must be; may speak of `__name__`.
    pub matchers: Vec<Matcher>,
    /// `offset` and `@`.
    pub shift: Shift,
}

/// The instant that a selector or a subquery is asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shift {
    /// `offset`, ms into the past; negative looks ahead.
    pub offset_ms: i64,
    /// `@`: a fixed instant in place of the evaluation's.
    pub at: Option<At>,
}

/// The instant that `@` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Unix ms.
    Ms(i64),
    /// `start()`: the instant of the whole evaluation.
    Start,
    /// `end()`: the same, since we evaluate instants.
    End,
}

/// A condition on one label. An absent label counts as an empty one.
#[derive(Clone, Debug)]
pub struct Matcher {
    /// Name of the label.
    pub label: Box<str>,
    /// How it is compared.
    pub op: MatchOp,
    /// What it is compared with; a regular expression as written, without anchors.
    pub value: Box<str>,
}

/// How a label is compared.
#[derive(Clone, Debug)]
pub enum MatchOp {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`, anchored at both ends.
    Like(Regex),
    /// `!~`, anchored at both ends.
    Unlike(Regex),
}

impl Matcher {
    /// Whether a label of value `value` (empty if absent) fits.
    pub fn fits(&self, value: &str) -> bool {
        match &self.op {
            MatchOp::Equal => value == &*self.value,
            MatchOp::NotEqual => value != &*self.value,
            MatchOp::Like(r) => r.is_match(value),
            MatchOp::Unlike(r) => !r.is_match(value),
        }
    }
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Matcher) -> bool {
        self.label == other.label
            && self.value == other.value
            && std::mem::discriminant(&self.op) == std::mem::discriminant(&other.op)
    }
}

/// An instant expression evaluated at many instants.
#[derive(Clone, Debug, PartialEq)]
pub struct Subquery {
    /// What is evaluated.
    pub of: Expr,
    /// Over how long a time.
    pub window: Window,
    /// Every how many ms; `None` is the engine's default.
    pub step_ms: Option<i64>,
    /// `offset` and `@`.
    pub shift: Shift,
}

/// An aggregation over groups of a vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    /// What is done with each group.
    pub op: AggregateOp,
    /// The groups.
    pub grouping: Grouping,
    /// The parameter of `topk`, `bottomk`, `quantile` and `count_values`.
    pub param: Option<Expr>,
    /// What is aggregated.
    pub of: Expr,
}

/// What is done with each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the PromQL word of that name")]
pub enum AggregateOp {
    Sum,
    Avg,
    Count,
    Min,
    Max,
    Group,
    Stddev,
    Stdvar,
    Topk,
    Bottomk,
    CountValues,
    Quantile,
}

/// Which labels make a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// `by (…)`; nothing at all is `by ()`.
    By(Vec<Box<str>>),
    /// `without (…)`: all but these and the name.
    Without(Vec<Box<str>>),
}

/// Two operands and their operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Binary {
    /// The operator.
    pub op: BinaryOp,
    /// Left operand.
    pub lhs: Expr,
    /// Right operand.
    pub rhs: Expr,
    /// `bool`: 0 or 1 in place of a filter.
    pub return_bool: bool,
    /// How two vectors are joined.
    pub matching: Matching,
}

/// A binary operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the PromQL operator of that name")]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    Atan2,
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterEqual,
    LessEqual,
    And,
    Or,
    Unless,
}

impl BinaryOp {
    /// Whether it compares.
    pub const fn is_comparison(self) -> bool {
        use BinaryOp::*;
        matches!(self, Equal | NotEqual | Greater | Less | GreaterEqual | LessEqual)
    }

    /// Whether it is `and`, `or` or `unless`.
    pub const fn is_set(self) -> bool {
        matches!(self, BinaryOp::And | BinaryOp::Or | BinaryOp::Unless)
    }
}

/// How two vectors are joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matching {
    /// Whether the labels are those to match `on`, or those to ignore.
    pub on: bool,
    /// The labels.
    pub labels: Vec<Box<str>>,
    /// Which side may hold several elements for one of the other.
    pub cardinality: Cardinality,
}

impl Default for Matching {
    fn default() -> Matching {
        Matching { on: false, labels: Vec::new(), cardinality: Cardinality::OneToOne }
    }
}

/// Which side of a join may hold several elements for one of the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cardinality {
    /// Neither.
    OneToOne,
    /// `group_left`: the left; the labels are taken over from the right.
    ManyToOne(Vec<Box<str>>),
    /// `group_right`: the right; the labels are taken over from the left.
    OneToMany(Vec<Box<str>>),
}

impl Expr {
    /// What it evaluates to.
    pub fn value_type(&self) -> Type {
        match self {
            Expr::Number(_) => Type::Scalar,
            Expr::Text(_) => Type::Text,
            Expr::Select(_) | Expr::Aggregate(_) => Type::Vector,
            Expr::Range(..) | Expr::Subquery(_) => Type::Matrix,
            Expr::Call(func, _) => func.returns(),
            Expr::Binary(b) if b.lhs.value_type() == Type::Scalar && b.rhs.value_type() == Type::Scalar => Type::Scalar,
            Expr::Binary(_) => Type::Vector,
            Expr::Negate(e) | Expr::Paren(e) => e.value_type(),
        }
    }

    /// The expression inside of any parentheses.
    pub fn bare(&self) -> &Expr {
        match self {
            Expr::Paren(e) => e.bare(),
            e => e,
        }
    }

    /// Calls `f` on this expression and all below it, the outer ones first.
    pub fn walk<'a>(&'a self, f: &mut impl FnMut(&'a Expr)) {
        f(self);
        match self {
            Expr::Number(_) | Expr::Text(_) | Expr::Select(_) | Expr::Range(..) => {}
            Expr::Subquery(s) => s.of.walk(f),
            Expr::Call(_, args) => args.iter().for_each(|a| a.walk(f)),
            Expr::Aggregate(a) => {
                if let Some(p) = &a.param {
                    p.walk(f);
                }
                a.of.walk(f);
            }
            Expr::Binary(b) => {
                b.lhs.walk(f);
                b.rhs.walk(f);
            }
            Expr::Negate(e) | Expr::Paren(e) => e.walk(f),
        }
    }

    /// The same for changing it.
    pub fn walk_mut(&mut self, f: &mut impl FnMut(&mut Expr)) {
        f(self);
        match self {
            Expr::Number(_) | Expr::Text(_) | Expr::Select(_) | Expr::Range(..) => {}
            Expr::Subquery(s) => s.of.walk_mut(f),
            Expr::Call(_, args) => args.iter_mut().for_each(|a| a.walk_mut(f)),
            Expr::Aggregate(a) => {
                if let Some(p) = &mut a.param {
                    p.walk_mut(f);
                }
                a.of.walk_mut(f);
            }
            Expr::Binary(b) => {
                b.lhs.walk_mut(f);
                b.rhs.walk_mut(f);
            }
            Expr::Negate(e) | Expr::Paren(e) => e.walk_mut(f),
        }
    }

    /// Every selector in it, in order.
    pub fn selectors(&self) -> Vec<&Selector> {
        let mut found = Vec::new();
        self.walk(&mut |e| {
            if let Expr::Select(s) | Expr::Range(s, _) = e {
                found.push(s);
            }
        });
        found
    }

    /// The metric names that it reads, sorted, each once; a selector that names none tells nothing.
    pub fn metric_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.selectors().into_iter().filter_map(Selector::metric).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// How far back its ranges reach, ms; 0 if it has none. Ranges of subqueries add to those inside,
    /// and offsets to both.
    pub fn reach_ms(&self) -> i64 {
        match self {
            Expr::Number(_) | Expr::Text(_) => 0,
            Expr::Select(s) => s.shift.offset_ms.max(0),
            Expr::Range(s, w) => w.0 + s.shift.offset_ms.max(0),
            Expr::Subquery(s) => s.window.0 + s.shift.offset_ms.max(0) + s.of.reach_ms(),
            Expr::Call(_, args) => args.iter().map(Expr::reach_ms).max().unwrap_or(0),
            Expr::Aggregate(a) => a.of.reach_ms().max(a.param.as_ref().map_or(0, Expr::reach_ms)),
            Expr::Binary(b) => b.lhs.reach_ms().max(b.rhs.reach_ms()),
            Expr::Negate(e) | Expr::Paren(e) => e.reach_ms(),
        }
    }

    /// Multiplies every range, offset and subquery step by `factor`, to whole milliseconds, at least 1.
    pub fn scale_time(&mut self, factor: f64) {
        let scaled = |ms: i64| (ms as f64 * factor).round() as i64;
        let shrink = |s: &mut Shift| s.offset_ms = scaled(s.offset_ms);
        self.walk_mut(&mut |e| match e {
            Expr::Select(s) => shrink(&mut s.shift),
            Expr::Range(s, w) => {
                w.0 = scaled(w.0).max(1);
                shrink(&mut s.shift);
            }
            Expr::Subquery(s) => {
                s.window.0 = scaled(s.window.0).max(1);
                s.step_ms = s.step_ms.map(|ms| scaled(ms).max(1));
                shrink(&mut s.shift);
            }
            _ => {}
        });
    }

    /// Puts `limit` in place of the number on the right of the outermost comparison; of a join
    /// by `and`, `or` or `unless` the left operand is meant. False, and nothing changed, if
    /// there is no such number.
    pub fn set_limit(&mut self, limit: f64) -> bool {
        match self {
            Expr::Paren(e) => e.set_limit(limit),
            Expr::Binary(b) if b.op.is_comparison() => {
                let mut right = &mut b.rhs;
                while let Expr::Paren(e) = right {
                    right = e;
                }
                let Expr::Number(n) = right else { return false };
                *n = limit;
                true
            }
            Expr::Binary(b) if b.op.is_set() => b.lhs.set_limit(limit),
            _ => false,
        }
    }
}

impl Selector {
    /// The one metric name that it selects; `None` if it does not name exactly one.
    pub fn metric(&self) -> Option<&str> {
        self.name.as_deref().or_else(|| {
            self.matchers
                .iter()
                .find(|m| &*m.label == crate::model::sample::NAME && matches!(m.op, MatchOp::Equal))
                .map(|m| &*m.value)
        })
    }
}
