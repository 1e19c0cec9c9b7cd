//! The functions of Prometheus' templates, and those of Go's own that need nothing but their arguments.

use std::cmp::Ordering;

use regex::Regex;

use super::Problem;
use super::item::Item;
use super::numbers::{BINARY, DECIMAL, go_exponent, go_float, humanize, humanize_duration, significant, timestamp};
use crate::model::units::parse_duration;

/// Functions that Prometheus knows and that need a server, its address, or the clock.
const BEYOND: &[&str] = &[
    "query",
    "first",
    "label",
    "value",
    "strvalue",
    "sortByLabel",
    "args",
    "tmpl",
    "externalURL",
    "pathPrefix",
    "tableLink",
    "graphLink",
    "toDuration",
    "now",
    "html",
    "js",
    "urlquery",
    "urlQueryEscape",
    "call",
    "slice",
];

/// Functions that are evaluated here.
const KNOWN: &[&str] = &[
    "printf",
    "print",
    "println",
    "humanize",
    "humanize1024",
    "humanizeDuration",
    "humanizePercentage",
    "humanizeTimestamp",
    "toTime",
    "toUpper",
    "toLower",
    "title",
    "match",
    "reReplaceAll",
    "stripPort",
    "stripDomain",
    "parseDuration",
    "safeHtml",
    "and",
    "or",
    "not",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "len",
    "index",
];

/// Whether Prometheus has a function of that name.
pub(super) fn exists(name: &str) -> bool {
    KNOWN.contains(&name) || BEYOND.contains(&name)
}

/// Calls a function.
pub(super) fn call(name: &str, args: &[Item]) -> Result<Item, Problem> {
    let text = |made: String| Ok(Item::Text(made));
    match (name, args) {
        ("printf", [Item::Text(format), rest @ ..]) => text(printf(format, rest)),
        ("print", _) => text(spaced(args, false)),
        ("println", _) => text(spaced(args, true) + "\n"),
        ("humanize", [v]) => text(humanize(number(v)?, 1_000.0, &DECIMAL)),
        ("humanize1024", [v]) => text(humanize(number(v)?, 1_024.0, &BINARY)),
        ("humanizeDuration", [v]) => text(humanize_duration(number(v)?)),
        ("humanizePercentage", [v]) => text(format!("{}%", significant(number(v)? * 100.0, 4))),
        ("humanizeTimestamp", [v]) => match number(v)? {
            v if v.is_finite() => text(timestamp(v).ok_or(Problem::Fails)?),
            v => text(significant(v, 4)),
        },
        ("toTime", [v]) => text(timestamp(number(v)?).ok_or(Problem::Fails)?),
        ("toUpper", [Item::Text(t)]) => text(t.to_uppercase()),
        ("toLower", [Item::Text(t)]) => text(t.to_lowercase()),
        ("title", [Item::Text(t)]) => text(title(t)),
        ("match", [Item::Text(pattern), Item::Text(t)]) => Ok(Item::Flag(regex(pattern)?.is_match(t))),
        ("reReplaceAll", [Item::Text(pattern), Item::Text(by), Item::Text(t)]) => {
            text(regex(pattern)?.replace_all(t, by.as_str()).into_owned())
        }
        ("stripPort", [Item::Text(t)]) => text(host_and_port(t).map_or(t.clone(), |(host, _)| host.to_owned())),
        ("stripDomain", [Item::Text(t)]) => text(strip_domain(t)),
        ("parseDuration", [Item::Text(t)]) => {
            parse_duration(t).map(|d| Item::Number(d.as_secs_f64())).map_err(|_| Problem::Fails)
        }
        ("safeHtml", [Item::Text(t)]) => text(t.clone()),
        ("and", [.., last]) => Ok(args.iter().find(|a| !a.is_true()).unwrap_or(last).clone()),
        ("or", [.., last]) => Ok(args.iter().find(|a| a.is_true()).unwrap_or(last).clone()),
        ("not", [a]) => Ok(Item::Flag(!a.is_true())),
        ("eq", [a, others @ ..]) if !others.is_empty() => {
            let mut same = false;
            for b in others {
                same |= compare(a, b)? == Some(Ordering::Equal);
            }
            Ok(Item::Flag(same))
        }
        ("ne", [a, b]) => Ok(Item::Flag(compare(a, b)? != Some(Ordering::Equal))),
        ("lt", [a, b]) => Ok(Item::Flag(ordered(a, b)? == Some(Ordering::Less))),
        ("le", [a, b]) => Ok(Item::Flag(matches!(ordered(a, b)?, Some(Ordering::Less | Ordering::Equal)))),
        ("gt", [a, b]) => Ok(Item::Flag(ordered(a, b)? == Some(Ordering::Greater))),
        ("ge", [a, b]) => Ok(Item::Flag(matches!(ordered(a, b)?, Some(Ordering::Greater | Ordering::Equal)))),
        ("len", [Item::Text(t)]) => Ok(Item::Whole(t.len() as i64)),
        ("len", [Item::Map(m)]) => Ok(Item::Whole(m.len() as i64)),
        ("index", [Item::Map(m), Item::Text(key)]) => text(m.get(key).cloned().unwrap_or_default()),
        _ if BEYOND.contains(&name) => Err(Problem::NeedsServer),
        _ => Err(Problem::Fails),
    }
}

/// The number that an argument is, or that its text says.
fn number(item: &Item) -> Result<f64, Problem> {
    item.number().ok_or(Problem::Fails)
}

fn regex(pattern: &str) -> Result<Regex, Problem> {
    // Prometheus anchors neither, unlike its matchers.
    Regex::new(pattern).map_err(|_| Problem::Fails)
}

/// How two values of one kind compare; Go compares no others, not even whole numbers with broken ones.
fn compare(a: &Item, b: &Item) -> Result<Option<Ordering>, Problem> {
    match (a, b) {
        (Item::Flag(a), Item::Flag(b)) => Ok((a == b).then_some(Ordering::Equal)),
        _ => ordered(a, b),
    }
}

fn ordered(a: &Item, b: &Item) -> Result<Option<Ordering>, Problem> {
    match (a, b) {
        (Item::Text(a), Item::Text(b)) => Ok(Some(a.cmp(b))),
        (Item::Number(a), Item::Number(b)) => Ok(a.partial_cmp(b)),
        (Item::Whole(a), Item::Whole(b)) => Ok(Some(a.cmp(b))),
        _ => Err(Problem::Fails),
    }
}

/// Values as Go's `Sprint` joins them: with a space between two of which neither is text, or between all.
fn spaced(args: &[Item], always: bool) -> String {
    let mut out = String::new();
    for (i, arg) in args.iter().enumerate() {
        let words = |a: &Item| matches!(a, Item::Text(_));
        if i > 0 && (always || !(words(arg) || words(&args[i - 1]))) {
            out.push(' ');
        }
        out += &arg.print();
    }
    out
}

/// Upper case for each letter that follows none: neither letter, digit nor underscore, nor, in ASCII, anything else of a
/// word.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = ' ';
    for c in text.chars() {
        let parts = if before.is_ascii() {
            !(before.is_ascii_alphanumeric() || before == '_')
        } else {
            !before.is_alphanumeric() && before.is_whitespace()
        };
        if parts {
            out.extend(c.to_uppercase())
        } else {
            out.push(c)
        }
        before = c;
    }
    out
}

/// `host:port` in its parts, brackets around an address taken off.
fn host_and_port(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']').map(|h| (h, port)),
        None => (!host.contains([':', '[', ']'])).then_some((host, port)),
    }
}

/// The host's first name; an address stays whole.
fn strip_domain(text: &str) -> String {
    let (host, port) = match host_and_port(text) {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let short = match host.parse::<std::net::IpAddr>() {
        Ok(_) => host,
        Err(_) => host.split('.').next().unwrap_or(host),
    };
    match port {
        Some(port) if short.contains(':') => format!("[{short}]:{port}"),
        Some(port) => format!("{short}:{port}"),
        None => short.to_owned(),
    }
}

pub(super) fn printf(format: &str, args: &[Item]) -> String {
    let mut out = String::new();
    let mut args = args.iter();
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut spec = String::new();
        while let Some(d) = chars.peek().filter(|d| d.is_ascii_digit() || matches!(d, '.' | '-' | '+' | '0' | ' ')) {
            spec.push(*d);
            chars.next();
        }
        let Some(verb) = chars.next() else { break };
        if verb == '%' {
            out.push('%');
            continue;
        }
        let Some(arg) = args.next() else {
            out += &format!("%!{verb}(MISSING)");
            continue;
        };
        let (width, precision) = spec.split_once('.').map_or((&*spec, None), |(w, p)| (w, p.parse::<usize>().ok()));
        let text = match (verb, arg.number()) {
            ('f' | 'F', Some(v)) if v.is_finite() => format!("{v:.*}", precision.unwrap_or(6)),
            ('e', Some(v)) if v.is_finite() => go_exponent(&format!("{v:.*e}", precision.unwrap_or(6)), false),
            ('g', Some(v)) => precision.map_or_else(|| go_float(v), |p| significant(v, p.max(1))),
            ('d', Some(v)) => format!("{v:.0}"),
            ('q', _) => format!("{:?}", arg.print()),
            _ => arg.print(),
        };
        let left = width.starts_with('-');
        let pad = width.trim_start_matches(['-', '+', ' ']).parse::<usize>().unwrap_or(0);
        out += &if left { format!("{text:<pad$}") } else { format!("{text:>pad$}") };
    }
    out
}
