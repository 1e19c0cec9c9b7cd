//! The part of Go's templates that alert annotations use.
//!
//! `{{ $value }}`, `{{ $labels.x }}`, `printf`, the `humanize` family, `title`, `toUpper`, `toLower`,
//! with pipes. Actions that need a server behind them (`query`, `range`, `if`, …) are valid in
//! Prometheus, so they load, and stay as they are written.

use crate::model::sample::Labels;

/// Fills in a template for one alert. What cannot be filled in stays as it is written.
pub fn render(text: &str, labels: &Labels, value: f64) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, action, after)) = next_action(rest) {
        out += before;
        match evaluate(action, labels, value) {
            Ok(done) => out += &done.print(),
            Err(_) => {
                out += "{{";
                out += action;
                out += "}}";
            }
        }
        rest = after;
    }
    out + rest
}

/// Whether Prometheus would take the template: unclosed braces and unknown functions are errors.
///
/// # Errors
/// Says what is wrong, so that it can follow "has a template that".
pub fn check(text: &str) -> Result<(), String> {
    let mut rest = text;
    while let Some((_, action, after)) = next_action(rest) {
        match evaluate(action, &Labels::default(), 1.0) {
            Err(Problem::Unknown(word)) => return Err(format!("calls `{word}`, which is no template function")),
            Err(Problem::Syntax) => return Err(format!("cannot be read: `{{{{{action}}}}}`")),
            Ok(_) | Err(Problem::NeedsServer) => {}
        }
        rest = after;
    }
    if rest.contains("{{") { Err("is never closed with `}}`".into()) } else { Ok(()) }
}

/// Whether every action of a template can be filled in here, and not only by a server.
pub fn is_plain(text: &str) -> bool {
    let mut rest = text;
    while let Some((_, action, after)) = next_action(rest) {
        if evaluate(action, &Labels::default(), 1.0).is_err() {
            return false;
        }
        rest = after;
    }
    true
}

fn next_action(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("{{")?;
    let (action, after) = rest.split_once("}}")?;
    Some((before, action, after))
}

#[derive(Clone, Debug, PartialEq)]
enum Item {
    Text(String),
    Number(f64),
    Nothing,
}

impl Item {
    fn print(&self) -> String {
        match self {
            Item::Text(t) => t.clone(),
            Item::Number(n) => go_float(*n),
            Item::Nothing => String::new(),
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Item::Number(n) => Some(*n),
            Item::Text(t) => t.parse().ok(),
            Item::Nothing => None,
        }
    }
}

enum Problem {
    Unknown(String),
    NeedsServer,
    Syntax,
}

/// Words that Prometheus knows and that need more than one alert's labels and value.
const BEYOND: &[&str] = &[
    "if",
    "else",
    "end",
    "range",
    "with",
    "define",
    "template",
    "block",
    "query",
    "first",
    "label",
    "value",
    "strvalue",
    "args",
    "tmpl",
    "sortByLabel",
    "match",
    "reReplaceAll",
    "externalURL",
    "pathPrefix",
    "tableLink",
    "graphLink",
    "parseDuration",
    "humanizeTimestamp",
    "toTime",
    "toDuration",
    "now",
    "safeHtml",
    "stripPort",
    "stripDomain",
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
    "slice",
    "html",
    "js",
    "urlquery",
    "urlQueryEscape",
    "call",
    "print",
    "println",
    "break",
    "continue",
    "nil",
];

fn evaluate(action: &str, labels: &Labels, value: f64) -> Result<Item, Problem> {
    let action = action.trim_start_matches("- ").trim_end_matches(" -").trim();
    if action.starts_with("/*") {
        return Ok(Item::Nothing);
    }
    let mut piped = None;
    for stage in split_pipes(action) {
        let words = words(&stage)?;
        let Some((head, rest)) = words.split_first() else { return Err(Problem::Syntax) };
        let mut args = Vec::new();
        for word in rest {
            args.push(operand(word, labels, value)?);
        }
        args.extend(piped.take());
        piped = Some(if args.is_empty() && !is_function(head) {
            operand(head, labels, value)?
        } else {
            call(head, &args)?
        });
    }
    piped.ok_or(Problem::Syntax)
}

fn is_function(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic())
}

fn operand(word: &str, labels: &Labels, value: f64) -> Result<Item, Problem> {
    if let Some(text) = word.strip_prefix(['"', '`']) {
        return Ok(Item::Text(text.to_owned()));
    }
    if word == "$value" || word == ".Value" {
        return Ok(Item::Number(value));
    }
    for prefix in ["$labels.", ".Labels."] {
        if let Some(name) = word.strip_prefix(prefix) {
            return Ok(Item::Text(labels.get(name).unwrap_or_default().to_owned()));
        }
    }
    if word == "$labels" || word == ".Labels" {
        // As Go prints a map.
        let pairs: Vec<String> = labels.iter().map(|(n, v)| format!("{n}:{v}")).collect();
        return Ok(Item::Text(format!("map[{}]", pairs.join(" "))));
    }
    if word.starts_with("$externalLabels") || word.starts_with("$externalURL") || word.starts_with(".External") {
        return Ok(Item::Text(String::new()));
    }
    if let Ok(n) = word.parse::<f64>() {
        return Ok(Item::Number(n));
    }
    if word.starts_with(['$', '.', '(']) || BEYOND.contains(&word) {
        return Err(Problem::NeedsServer);
    }
    Err(Problem::Unknown(word.to_owned()))
}

fn call(name: &str, args: &[Item]) -> Result<Item, Problem> {
    let number = || args.last().and_then(Item::number);
    let text = || args.last().map(Item::print).unwrap_or_default();
    let made = match name {
        "printf" => match args.split_first() {
            Some((Item::Text(format), rest)) => go_printf(format, rest),
            _ => return Err(Problem::Syntax),
        },
        "humanize" => number().map_or_else(text, |v| humanize(v, 1_000.0, &DECIMAL)),
        "humanize1024" => number().map_or_else(text, |v| humanize(v, 1_024.0, &BINARY)),
        "humanizeDuration" => number().map_or_else(text, humanize_duration),
        "humanizePercentage" => number().map_or_else(text, |v| format!("{}%", significant(v * 100.0, 4))),
        "toUpper" => text().to_uppercase(),
        "toLower" => text().to_lowercase(),
        "title" => title(&text()),
        _ if BEYOND.contains(&name) || name.starts_with(['$', '.', '(']) => return Err(Problem::NeedsServer),
        _ => return Err(Problem::Unknown(name.to_owned())),
    };
    Ok(Item::Text(made))
}

const DECIMAL: [&str; 8] = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
const BINARY: [&str; 8] = ["ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"];
const SMALL: [&str; 8] = ["m", "u", "n", "p", "f", "a", "z", "y"];

fn humanize(v: f64, base: f64, prefixes: &[&str]) -> String {
    if v == 0.0 || !v.is_finite() {
        return significant(v, 4);
    }
    // Binary prefixes have no small ones.
    if v.abs() < 1.0 && base < 1_001.0 {
        let (v, prefix) = small(v);
        return format!("{}{prefix}", significant(v, 4));
    }
    let (mut v, mut prefix) = (v, "");
    for p in prefixes {
        if v.abs() < base {
            break;
        }
        prefix = p;
        v /= base;
    }
    format!("{}{prefix}", significant(v, 4))
}

fn small(mut v: f64) -> (f64, &'static str) {
    let mut prefix = "";
    for p in SMALL {
        if v.abs() >= 1.0 {
            break;
        }
        prefix = p;
        v *= 1_000.0;
    }
    (v, prefix)
}

fn humanize_duration(v: f64) -> String {
    if v == 0.0 || !v.is_finite() {
        return if v == 0.0 { "0s".into() } else { significant(v, 4) };
    }
    if v.abs() < 1.0 {
        let (v, prefix) = small(v);
        return format!("{}{prefix}s", significant(v, 4));
    }
    let sign = if v < 0.0 { "-" } else { "" };
    let v = v.abs();
    let whole = v as u64;
    let (s, m, h, d) = (whole % 60, whole / 60 % 60, whole / 3_600 % 24, whole / 86_400);
    match (d, h, m) {
        (0, 0, 0) => format!("{sign}{}s", significant(v, 4)),
        (0, 0, _) => format!("{sign}{m}m {s}s"),
        (0, _, _) => format!("{sign}{h}h {m}m {s}s"),
        _ => format!("{sign}{d}d {h}h {m}m {s}s"),
    }
}

/// C's `%.{digits}g`.
fn significant(v: f64, digits: usize) -> String {
    if let Some(word) = not_finite(v) {
        return word.into();
    }
    if v == 0.0 {
        return "0".into();
    }
    let exp = exponent(v, digits);
    if exp < -4 || exp >= digits as i32 {
        return go_exponent(&format!("{:.*e}", digits - 1, v), true);
    }
    let decimals = usize::try_from(digits as i32 - 1 - exp).unwrap_or(0);
    let text = format!("{v:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Decimal exponent of `v` after rounding to `digits` significant digits.
fn exponent(v: f64, digits: usize) -> i32 {
    let text = format!("{:.*e}", digits - 1, v);
    text.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0)
}

/// Rust's `1.5e7` as Go's `1.5e+07`; `trim` drops trailing zeros of the mantissa.
fn go_exponent(text: &str, trim: bool) -> String {
    let Some((mantissa, exp)) = text.split_once('e') else { return text.to_owned() };
    let exp: i32 = exp.parse().unwrap_or(0);
    let mantissa =
        if trim && mantissa.contains('.') { mantissa.trim_end_matches('0').trim_end_matches('.') } else { mantissa };
    format!("{mantissa}e{}{:02}", if exp < 0 { '-' } else { '+' }, exp.abs())
}

fn not_finite(v: f64) -> Option<&'static str> {
    if v.is_nan() {
        Some("NaN")
    } else if v == f64::INFINITY {
        Some("+Inf")
    } else if v == f64::NEG_INFINITY {
        Some("-Inf")
    } else {
        None
    }
}

/// A float as Go's `%v` prints it.
fn go_float(v: f64) -> String {
    if let Some(word) = not_finite(v) {
        return word.into();
    }
    let a = v.abs();
    if a != 0.0 && !(1e-4..1e21).contains(&a) { go_exponent(&format!("{v:e}"), false) } else { format!("{v}") }
}

fn go_printf(format: &str, args: &[Item]) -> String {
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

fn title(text: &str) -> String {
    text.split(' ')
        .map(|w| {
            let mut c = w.chars();
            c.next().map_or_else(String::new, |f| f.to_uppercase().collect::<String>() + c.as_str())
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// Splits at `|` outside quotes.
fn split_pipes(text: &str) -> Vec<String> {
    let (mut out, mut quote) = (vec![String::new()], None);
    for c in text.chars() {
        match quote {
            Some(q) if c == q => quote = None,
            None if c == '"' || c == '`' => quote = Some(c),
            None if c == '|' => {
                out.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = out.last_mut() {
            last.push(c);
        }
    }
    out
}

/// Words of one stage; a quoted one keeps its opening quote and loses the closing one.
fn words(stage: &str) -> Result<Vec<String>, Problem> {
    let mut out = Vec::new();
    let mut chars = stage.trim().chars().peekable();
    while let Some(c) = chars.next() {
        if c.is_whitespace() {
            continue;
        }
        let mut word = String::from(c);
        if c == '"' || c == '`' {
            loop {
                match chars.next() {
                    Some(d) if d == c => break,
                    Some('\\') if c == '"' => word.extend(chars.next()),
                    Some(d) => word.push(d),
                    None => return Err(Problem::Syntax),
                }
            }
        } else {
            while let Some(d) = chars.next_if(|d| !d.is_whitespace()) {
                word.push(d);
            }
        }
        out.push(word);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_fill_in_as_go_does() {
        let labels = Labels::new([("engine", "0"), ("model_name", "tiny")]);
        let cases = [
            ("{{ $value }} waiting", 4.0, "4 waiting"),
            ("{{$value}}", 0.083_333_333_333_333_33, "0.08333333333333333"),
            ("{{ $value }}", 1e-7, "1e-07"),
            ("{{ $labels.engine }}/{{ .Labels.model_name }}/{{ $labels.none }}", 0.0, "0/tiny/"),
            ("{{ $value | humanize }}", 12_345.0, "12.35k"),
            ("{{ humanize $value }}", 0.001_5, "1.5m"),
            ("{{ $value | humanize1024 }}", 2_048.0, "2ki"),
            ("{{ $value | humanizePercentage }}", 0.956_7, "95.67%"),
            ("{{ $value | humanizeDuration }}", 3_725.4, "1h 2m 5s"),
            ("{{ $value | humanizeDuration }}", 1.234_56, "1.235s"),
            ("{{ $value | humanizeDuration }}", 0.25, "250ms"),
            (r#"{{ printf "%.2f s of %s" $value $labels.model_name }}"#, 1.0 / 3.0, "0.33 s of tiny"),
            (r#"{{ $value | printf "%.1f%%" }}"#, 99.0, "99.0%"),
            ("{{ $labels.model_name | toUpper }}", 0.0, "TINY"),
            ("{{ $value }}", f64::INFINITY, "+Inf"),
            ("{{ with query \"up\" }}x", 0.0, "{{ with query \"up\" }}x"),
            ("no template", 0.0, "no template"),
        ];
        for (text, value, want) in cases {
            assert_eq!(render(text, &labels, value), want, "{text}");
        }
    }

    #[test]
    fn what_prometheus_refuses_is_refused() {
        assert!(check("{{ $value").is_err());
        assert!(check("{{ humanise $value }}").unwrap_err().contains("humanise"));
        assert!(check("{{ range query \"up\" }}{{ . }}{{ end }}").is_ok());
        assert!(check("{{ $value | humanize }} {{ $labels.x }}").is_ok());
    }
}
