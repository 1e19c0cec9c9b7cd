//! Text to [`Expr`]: the `promql-parser` crate reads it, this file turns its tree into ours and
//! refuses what cannot be evaluated.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use promql_parser::label as theirs_label;
use promql_parser::parser::{self as theirs, token};
use regex::Regex;

use super::expr::{
    Aggregate, AggregateOp, At, Binary, BinaryOp, Cardinality, Expr, Grouping, MatchOp, Matcher, Matching, Selector,
    Shift, Subquery, Type, Window,
};
use super::func::Func;
use super::scan;

/// Why an expression was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{says}{}", self.place_text())]
pub struct ParseError {
    /// What is wrong, without the place.
    pub says: String,
    /// Byte offset in the expression at which it is wrong, where that is known.
    pub at: Option<usize>,
    /// Line and column of `at`, from 1; the column counts characters.
    pub place: Option<(usize, usize)>,
    /// What to do about it, where something can be said.
    pub hint: Option<String>,
}

impl ParseError {
    fn new(says: impl Into<String>) -> ParseError {
        ParseError { says: says.into(), at: None, place: None, hint: None }
    }

    /// The same, pointing at a byte offset of `text`.
    pub(super) fn pointing(says: impl Into<String>, text: &str, at: usize) -> ParseError {
        let before = &text[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        ParseError { says: says.into(), at: Some(at), place: Some((line, column)), hint: None }
    }

    fn place_text(&self) -> String {
        match self.place {
            Some((line, column)) => format!(" at {line}:{column}"),
            None => String::new(),
        }
    }
}

/// Deepest nesting of brackets that is taken.
const DEEPEST: usize = 100;
/// Longest expression that is taken, bytes: it bounds how long a chain of operators can be.
const LONGEST: usize = 4096;

/// Reads a PromQL expression.
///
/// # Errors
/// If it is no PromQL, if its types do not fit, or if it uses something that we cannot evaluate:
/// then the error names it and its place.
pub fn parse(text: &str) -> Result<Expr, ParseError> {
    // Parsing and evaluating recurse as deep as the expression does; no rule that a person wrote comes near.
    let mut depth = 0_usize;
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST {
            return Err(ParseError::new(format!("it is nested more than {DEEPEST} deep")));
        }
    }
    if text.len() > LONGEST {
        return Err(ParseError::new(format!("it is {} bytes long, expected at most {LONGEST}", text.len())));
    }
    scan::check(text)?;
    let tree = theirs::parse(text).map_err(|says| scan::locate(text, says.trim()))?;
    convert(&tree).map_err(|mut e| {
        if let (None, Some(word)) = (e.at, e.says.split('`').nth(1))
            && let Some(at) = scan::find_word(text, word)
        {
            let found = ParseError::pointing(e.says.clone(), text, at);
            (e.at, e.place) = (found.at, found.place);
        }
        e
    })
}

fn convert(tree: &theirs::Expr) -> Result<Expr, ParseError> {
    Ok(match tree {
        theirs::Expr::NumberLiteral(n) => Expr::Number(n.val),
        theirs::Expr::StringLiteral(s) => Expr::Text(s.val.clone()),
        theirs::Expr::Paren(p) => Expr::Paren(Box::new(convert(&p.expr)?)),
        theirs::Expr::Unary(u) => Expr::Negate(Box::new(convert(&u.expr)?)),
        theirs::Expr::VectorSelector(s) => Expr::Select(selector(s)?),
        theirs::Expr::MatrixSelector(m) => Expr::Range(selector(&m.vs)?, window(m.range)?),
        theirs::Expr::Subquery(s) => Expr::Subquery(Box::new(Subquery {
            of: typed(convert(&s.expr)?, Type::Vector, "a subquery")?,
            window: window(s.range)?,
            step_ms: s.step.map(window).transpose()?.map(|w| w.0),
            shift: shift(s.offset.as_ref(), s.at.as_ref())?,
        })),
        theirs::Expr::Call(c) => call(c)?,
        theirs::Expr::Aggregate(a) => aggregate(a)?,
        theirs::Expr::Binary(b) => binary(b)?,
        theirs::Expr::Extension(_) => return Err(ParseError::new("an extension of the language, which is not known")),
    })
}

fn typed(expr: Expr, wanted: Type, place: &str) -> Result<Expr, ParseError> {
    let is = expr.value_type();
    if is == wanted {
        return Ok(expr);
    }
    Err(ParseError::new(format!("{place} takes {}, but `{expr}` is {}", wanted.article(), is.article())))
}

impl Type {
    fn article(self) -> &'static str {
        match self {
            Type::Scalar => "a scalar",
            Type::Vector => "an instant vector",
            Type::Matrix => "a range vector",
            Type::Text => "a string",
        }
    }
}

fn window(range: Duration) -> Result<Window, ParseError> {
    match i64::try_from(range.as_millis()) {
        Ok(ms) if ms > 0 => Ok(Window(ms)),
        _ => Err(ParseError::new(format!("a range of {range:?}, expected at least 1ms"))),
    }
}

fn shift(offset: Option<&theirs::Offset>, at: Option<&theirs::AtModifier>) -> Result<Shift, ParseError> {
    let ms = |d: &Duration| i64::try_from(d.as_millis()).map_err(|_| ParseError::new("an offset beyond all time"));
    let offset_ms = match offset {
        None => 0,
        Some(theirs::Offset::Pos(d)) => ms(d)?,
        Some(theirs::Offset::Neg(d)) => -ms(d)?,
    };
    let at = match at {
        None => None,
        Some(theirs::AtModifier::Start) => Some(At::Start),
        Some(theirs::AtModifier::End) => Some(At::End),
        Some(theirs::AtModifier::At(t)) => Some(At::Ms(unix_ms(*t)?)),
    };
    Ok(Shift { offset_ms, at })
}

fn unix_ms(t: SystemTime) -> Result<i64, ParseError> {
    let (sign, d) = match t.duration_since(UNIX_EPOCH) {
        Ok(d) => (1, d),
        Err(e) => (-1, e.duration()),
    };
    i64::try_from(d.as_millis()).map(|ms| sign * ms).map_err(|_| ParseError::new("an instant beyond all time"))
}

fn selector(s: &theirs::VectorSelector) -> Result<Selector, ParseError> {
    if !s.matchers.or_matchers.is_empty() {
        return Err(ParseError::new("`or` between the matchers of a selector, which Prometheus does not know"));
    }
    let matchers = s.matchers.matchers.iter().map(matcher).collect::<Result<_, _>>()?;
    Ok(Selector { name: s.name.as_deref().map(Into::into), matchers, shift: shift(s.offset.as_ref(), s.at.as_ref())? })
}

fn matcher(m: &theirs_label::Matcher) -> Result<Matcher, ParseError> {
    let op = match &m.op {
        theirs_label::MatchOp::Equal => MatchOp::Equal,
        theirs_label::MatchOp::NotEqual => MatchOp::NotEqual,
        theirs_label::MatchOp::Re(r) => MatchOp::Like(dotted(r)?),
        theirs_label::MatchOp::NotRe(r) => MatchOp::Unlike(dotted(r)?),
    };
    Ok(Matcher { label: m.name.as_str().into(), op, value: m.value.as_str().into() })
}

/// The anchored expression with `.` matching a line end too, as Prometheus compiles it.
fn dotted(r: &Regex) -> Result<Regex, ParseError> {
    Regex::new(&format!("(?s){}", r.as_str())).map_err(|e| ParseError::new(e.to_string()))
}

fn call(c: &theirs::Call) -> Result<Expr, ParseError> {
    let name = c.func.name;
    let func = Func::named(name).ok_or_else(|| ParseError::new(format!("function `{name}` is not supported")))?;
    let wanted = func.takes();
    let args = c
        .args
        .args
        .iter()
        .enumerate()
        .map(|(i, a)| typed(convert(a)?, wanted[i.min(wanted.len().saturating_sub(1))], name))
        .collect::<Result<Vec<_>, _>>()?;
    if func == Func::LabelReplace
        && let [_, _, _, _, Expr::Text(pattern)] = args.as_slice()
        && let Err(e) = anchored(pattern)
    {
        return Err(ParseError::new(format!("`label_replace` with an illegal regular expression: {e}")));
    }
    Ok(Expr::Call(func, args))
}

/// Compiles a regular expression as `label_replace` uses it.
pub(super) fn anchored(pattern: &str) -> Result<Regex, regex::Error> {
    Regex::new(&format!("^(?s:{pattern})$"))
}

fn names(labels: &theirs_label::Labels) -> Vec<Box<str>> {
    labels.labels.iter().map(|l| l.as_str().into()).collect()
}

fn aggregate(a: &theirs::AggregateExpr) -> Result<Expr, ParseError> {
    let op = match a.op.id() {
        token::T_SUM => AggregateOp::Sum,
        token::T_AVG => AggregateOp::Avg,
        token::T_COUNT => AggregateOp::Count,
        token::T_MIN => AggregateOp::Min,
        token::T_MAX => AggregateOp::Max,
        token::T_GROUP => AggregateOp::Group,
        token::T_STDDEV => AggregateOp::Stddev,
        token::T_STDVAR => AggregateOp::Stdvar,
        token::T_TOPK => AggregateOp::Topk,
        token::T_BOTTOMK => AggregateOp::Bottomk,
        token::T_COUNT_VALUES => AggregateOp::CountValues,
        token::T_QUANTILE => AggregateOp::Quantile,
        _ => return Err(ParseError::new(format!("aggregation `{}` is not supported", a.op))),
    };
    let wanted = if op == AggregateOp::CountValues { Type::Text } else { Type::Scalar };
    let param = a.param.as_ref().map(|p| typed(convert(p)?, wanted, op.word())).transpose()?;
    let grouping = match &a.modifier {
        None => Grouping::By(Vec::new()),
        Some(theirs::LabelModifier::Include(l)) => Grouping::By(names(l)),
        Some(theirs::LabelModifier::Exclude(l)) => Grouping::Without(names(l)),
    };
    Ok(Expr::Aggregate(Box::new(Aggregate {
        op,
        grouping,
        param,
        of: typed(convert(&a.expr)?, Type::Vector, op.word())?,
    })))
}

fn binary(b: &theirs::BinaryExpr) -> Result<Expr, ParseError> {
    let op = match b.op.id() {
        token::T_ADD => BinaryOp::Add,
        token::T_SUB => BinaryOp::Sub,
        token::T_MUL => BinaryOp::Mul,
        token::T_DIV => BinaryOp::Div,
        token::T_MOD => BinaryOp::Mod,
        token::T_POW => BinaryOp::Pow,
        token::T_ATAN2 => BinaryOp::Atan2,
        token::T_EQLC => BinaryOp::Equal,
        token::T_NEQ => BinaryOp::NotEqual,
        token::T_GTR => BinaryOp::Greater,
        token::T_LSS => BinaryOp::Less,
        token::T_GTE => BinaryOp::GreaterEqual,
        token::T_LTE => BinaryOp::LessEqual,
        token::T_LAND => BinaryOp::And,
        token::T_LOR => BinaryOp::Or,
        token::T_LUNLESS => BinaryOp::Unless,
        _ => return Err(ParseError::new(format!("operator `{}` is not supported", b.op))),
    };
    let mut matching = Matching::default();
    let mut return_bool = false;
    if let Some(m) = &b.modifier {
        if m.fill_values.lhs.is_some() || m.fill_values.rhs.is_some() {
            return Err(ParseError::new("`fill` in a vector match is experimental in Prometheus and not supported"));
        }
        return_bool = m.return_bool;
        if let Some(l) = &m.matching {
            (matching.on, matching.labels) = (l.is_include(), names(l.labels()));
        }
        matching.cardinality = match &m.card {
            theirs::VectorMatchCardinality::ManyToOne(l) => Cardinality::ManyToOne(names(l)),
            theirs::VectorMatchCardinality::OneToMany(l) => Cardinality::OneToMany(names(l)),
            _ => Cardinality::OneToOne,
        };
    }
    let (lhs, rhs) = (convert(&b.lhs)?, convert(&b.rhs)?);
    for side in [&lhs, &rhs] {
        if !matches!(side.value_type(), Type::Scalar | Type::Vector) {
            let is = side.value_type().article();
            return Err(ParseError::new(format!("`{}` joins scalars and instant vectors, not {is}", op.symbol())));
        }
        if op.is_set() && side.value_type() != Type::Vector {
            return Err(ParseError::new(format!("`{}` joins instant vectors, not a scalar", op.symbol())));
        }
    }
    let both_scalar = lhs.value_type() == Type::Scalar && rhs.value_type() == Type::Scalar;
    if both_scalar && op.is_comparison() && !return_bool {
        return Err(ParseError::new(format!("`{}` between two scalars needs `bool`", op.symbol())));
    }
    Ok(Expr::Binary(Box::new(Binary { op, lhs, rhs, return_bool, matching })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_prints_as_it_was_read() {
        for text in [
            "server:waiting > 0",
            "histogram_quantile(0.99, sum by (le) (rate(server:ttft_seconds_bucket[5m]))) > 1",
            r#"sum without (a, b) (x{a="b",c!="d",e=~"f.*",g!~"h|i"} offset 1m)"#,
            "a / on (x, y) group_left (z) b",
            "a + ignoring (x) b and on () c unless d or e",
            "a == bool 1",
            "max_over_time((a - b)[1h:30s] offset -5m)",
            "avg_over_time(a[5m:])",
            "topk(3, x) + -y",
            "x @ 1609746000 offset 5m",
            "x[5m] @ start()",
            r#"label_replace(up, "a", "$1", "b", "(.*)\\.x")"#,
            "a + 1e-9 * 2.5",
            "a > NaN or b < Inf",
            r#"{__name__=~"a|b"}"#,
            "(a + b) * c ^ 2 ^ d",
        ] {
            let parsed = parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(parsed.to_string(), text);
        }
    }

    #[test]
    fn what_cannot_be_evaluated_is_refused_with_its_name_and_place() {
        for (text, says) in [
            (
                "1 + holt_winters(x[5m], 1, 1)",
                "function `holt_winters` is not supported: a stock Prometheus does not load it, or not under that name at 1:5",
            ),
            ("sum(\n  rat(x[5m]))", "function `rat` is not known at 2:3"),
            ("histogram_sum(x)", "function `histogram_sum` is not supported: native histograms are not scraped at 1:1"),
            (
                "limitk(2, x)",
                "function `limitk` is not supported: a stock Prometheus does not load it, or not under that name at 1:1",
            ),
            (r#"x{a="b" or c="d"}"#, "`or` between the matchers of a selector, which Prometheus does not know at 1:9"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), says);
        }
        assert_eq!(parse("rat(x[5m])").unwrap_err().hint.as_deref(), Some("did you mean `rate`?"));
        for bad in ["", "rate(x)", "x[5m] + 1", "1 > 2", "x and 1", "sum(1)", "(x", "x)", "a b", "x[0s]", r#"x{a="b}"#]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn limits_and_time_are_replaced_in_the_tree() {
        let mut e = parse("histogram_quantile(0.99, sum by (le) (rate(x_bucket[5m]))) > 1").unwrap();
        assert!(e.set_limit(0.25));
        e.scale_time(0.1);
        assert_eq!(e.to_string(), "histogram_quantile(0.99, sum by (le) (rate(x_bucket[30s]))) > 0.25");
        assert_eq!(e.reach_ms(), 30_000);
        assert_eq!(e.metric_names(), ["x_bucket"]);
        assert!(!parse("x > y").unwrap().set_limit(1.0));
        assert_eq!(parse("max_over_time(rate(x[1m])[5m:15s] offset 1m)").unwrap().reach_ms(), 420_000);
    }
}
