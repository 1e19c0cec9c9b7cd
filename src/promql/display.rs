//! Prints an expression as PromQL that parses back to the same tree.

use std::fmt;
use std::time::Duration;

use super::expr::{
    Aggregate, AggregateOp, At, Binary, BinaryOp, Cardinality, Expr, Grouping, MatchOp, Matching, Selector, Shift,
    Window,
};
use crate::model::units::prometheus_duration;

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expr::Number(n) => number(f, *n),
            Expr::Text(s) => write!(f, "\"{}\"", escaped(s)),
            Expr::Select(s) => write!(f, "{}{}", Bare(s), s.shift),
            Expr::Range(s, w) => write!(f, "{}[{w}]{}", Bare(s), s.shift),
            Expr::Subquery(s) => {
                write!(f, "{}[{}:", s.of, s.window)?;
                if let Some(ms) = s.step_ms {
                    write!(f, "{}", Window(ms))?;
                }
                write!(f, "]{}", s.shift)
            }
            Expr::Call(func, args) => {
                write!(f, "{}(", func.name())?;
                for (i, a) in args.iter().enumerate() {
                    write!(f, "{}{a}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str(")")
            }
            Expr::Aggregate(a) => aggregate(f, a),
            Expr::Binary(b) => binary(f, b),
            Expr::Negate(e) => write!(f, "-{e}"),
            Expr::Paren(e) => write!(f, "({e})"),
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&prometheus_duration(Duration::from_millis(self.0.unsigned_abs())))
    }
}

impl fmt::Display for Shift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some(At::Ms(ms)) => write!(f, " @ {}", ms as f64 / 1e3)?,
            Some(At::Start) => f.write_str(" @ start()")?,
            Some(At::End) => f.write_str(" @ end()")?,
            None => {}
        }
        match self.offset_ms {
            0 => Ok(()),
            ms => write!(f, " offset {}{}", if ms < 0 { "-" } else { "" }, Window(ms)),
        }
    }
}

/// A selector without its shift.
struct Bare<'a>(&'a Selector);

impl fmt::Display for Bare<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Selector { name, matchers, .. } = self.0;
        f.write_str(name.as_deref().unwrap_or(""))?;
        if matchers.is_empty() {
            return if name.is_none() { f.write_str("{}") } else { Ok(()) };
        }
        f.write_str("{")?;
        for (i, m) in matchers.iter().enumerate() {
            let op = match m.op {
                MatchOp::Equal => "=",
                MatchOp::NotEqual => "!=",
                MatchOp::Like(_) => "=~",
                MatchOp::Unlike(_) => "!~",
            };
            write!(f, "{}{}{op}\"{}\"", if i > 0 { "," } else { "" }, m.label, escaped(&m.value))?;
        }
        f.write_str("}")
    }
}

fn number(f: &mut fmt::Formatter<'_>, n: f64) -> fmt::Result {
    match n {
        n if n.is_nan() => f.write_str("NaN"),
        n if n.is_infinite() => f.write_str(if n > 0.0 { "Inf" } else { "-Inf" }),
        n if n != 0.0 && !(1e-6..1e15).contains(&n.abs()) => write!(f, "{n:e}"),
        n => write!(f, "{n}"),
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c => out.push(c),
        }
    }
    out
}

fn aggregate(f: &mut fmt::Formatter<'_>, a: &Aggregate) -> fmt::Result {
    f.write_str(a.op.word())?;
    match &a.grouping {
        Grouping::By(labels) if labels.is_empty() => {}
        Grouping::By(labels) => write!(f, " by ({}) ", labels.join(", "))?,
        Grouping::Without(labels) => write!(f, " without ({}) ", labels.join(", "))?,
    }
    match &a.param {
        Some(p) => write!(f, "({p}, {})", a.of),
        None => write!(f, "({})", a.of),
    }
}

fn binary(f: &mut fmt::Formatter<'_>, b: &Binary) -> fmt::Result {
    write!(f, "{} {}", b.lhs, b.op.symbol())?;
    if b.return_bool {
        f.write_str(" bool")?;
    }
    let Matching { on, labels, cardinality } = &b.matching;
    let grouped = *cardinality != Cardinality::OneToOne;
    if *on || !labels.is_empty() || grouped {
        write!(f, " {} ({})", if *on { "on" } else { "ignoring" }, labels.join(", "))?;
    }
    match cardinality {
        Cardinality::OneToOne => {}
        Cardinality::ManyToOne(l) => write!(f, " group_left ({})", l.join(", "))?,
        Cardinality::OneToMany(l) => write!(f, " group_right ({})", l.join(", "))?,
    }
    write!(f, " {}", b.rhs)
}

impl BinaryOp {
    /// How it is written.
    pub const fn symbol(self) -> &'static str {
        match self {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::Mod => "%",
            BinaryOp::Pow => "^",
            BinaryOp::Atan2 => "atan2",
            BinaryOp::Equal => "==",
            BinaryOp::NotEqual => "!=",
            BinaryOp::Greater => ">",
            BinaryOp::Less => "<",
            BinaryOp::GreaterEqual => ">=",
            BinaryOp::LessEqual => "<=",
            BinaryOp::And => "and",
            BinaryOp::Or => "or",
            BinaryOp::Unless => "unless",
        }
    }
}

impl AggregateOp {
    /// How it is written.
    pub const fn word(self) -> &'static str {
        match self {
            AggregateOp::Sum => "sum",
            AggregateOp::Avg => "avg",
            AggregateOp::Count => "count",
            AggregateOp::Min => "min",
            AggregateOp::Max => "max",
            AggregateOp::Group => "group",
            AggregateOp::Stddev => "stddev",
            AggregateOp::Stdvar => "stdvar",
            AggregateOp::Topk => "topk",
            AggregateOp::Bottomk => "bottomk",
            AggregateOp::CountValues => "count_values",
            AggregateOp::Quantile => "quantile",
        }
    }
}
