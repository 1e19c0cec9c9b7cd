//! Words and numbers for people: what the terminal, the summary and the page all print alike.
//!
//! Names, labels and error texts come from servers and files that we do not control. [`plain`]
//! is the first thing that is done to each of them; what a format needs besides, it adds.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::model::step::Load;
use crate::model::units::human_seconds;
use crate::model::verdict::{Spread, Verdict};

/// What stands for a number that is not known.
pub const UNKNOWN: &str = "-";

/// A text as one line without anything that a terminal or a reader's eye could be led astray
/// by: line breaks and tabs become spaces; other control characters, and those that turn or
/// hide text, become their escapes.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => out.push(' '),
            c if c.is_control() || misleads(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// Characters that change the direction of what follows, or take no room at all.
fn misleads(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}')
}

/// Columns that a text takes on a terminal.
pub fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Breaks a text at its spaces into lines of at most `columns`; a longer word is cut.
///
/// No line begins with `::` or `##[`: a CI runner that reads our output would take it for a
/// command to itself. A backslash goes before it.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let guarded = if word.starts_with("::") || word.starts_with("##[") { format!("\\{word}") } else { word.into() };
        let word = guarded.as_str();
        if !line.is_empty() && width(&line) + 1 + width(word) > columns {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        for c in word.chars() {
            if !line.is_empty() && width(&line) + c.width().unwrap_or(0) > columns {
                lines.push(std::mem::take(&mut line));
                if matches!(c, ':' | '#') {
                    line.push('\\');
                }
            }
            line.push(c);
        }
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// A latency without a space, for a table: `210ms`, `12.4ms`, `1.25s`.
pub fn latency(s: Option<f64>) -> String {
    match s {
        None => UNKNOWN.into(),
        Some(0.0) => "0s".into(),
        Some(s) => human_seconds(s).replace(' ', ""),
    }
}

/// A latency for a sentence: `210 ms`, `1.25 s`.
pub fn seconds(s: f64) -> String {
    let text = human_seconds(s);
    match text.split_once(' ') {
        _ if s == 0.0 => "0 s".into(),
        Some((number, unit)) => format!("{} {unit}", trimmed(number)),
        None => text,
    }
}

/// A decimal number without the zeros at its end.
fn trimmed(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

/// An instant of the run, to the second: `272 s`.
pub fn instant(s: f64) -> String {
    format!("{s:.0} s")
}

/// A number to three significant digits, without trailing zeros: `0.12`, `47.1`, `1234`.
pub fn number(x: f64) -> String {
    let x = if x == 0.0 { 0.0 } else { x }; // never `-0`
    let a = x.abs();
    let digits = if a >= 100.0 || a == 0.0 {
        0
    } else if a >= 10.0 {
        1
    } else if a >= 1.0 {
        2
    } else if a >= 0.001 {
        3
    } else {
        return format!("{x:.2e}");
    };
    trimmed(&format!("{x:.digits$}")).to_owned()
}

/// A number, or the mark of the unknown.
pub fn number_or(x: Option<f64>) -> String {
    x.map_or_else(|| UNKNOWN.into(), number)
}

/// A share of one as a percentage: `12 %`, `0.4 %`.
pub fn percent(ratio: f64) -> String {
    let p = ratio * 100.0;
    let text = if p >= 9.95 {
        format!("{p:.0}")
    } else if p >= 0.1 || p <= 0.0 {
        format!("{p:.1}")
    } else {
        number(p)
    };
    format!("{} %", trimmed(&text))
}

/// Median, and the largest in brackets where it differs: `4 (6)`.
pub fn spread(s: &Spread) -> String {
    spread_as(s, number)
}

/// The same with another way to write the numbers.
pub fn spread_as(s: &Spread, write: fn(f64) -> String) -> String {
    match (s.median, s.max) {
        (None, None) => UNKNOWN.into(),
        (Some(m), None) => write(m),
        (None, Some(x)) => format!("({})", write(x)),
        (Some(m), Some(x)) if write(m) == write(x) => write(m),
        (Some(m), Some(x)) => format!("{} ({})", write(m), write(x)),
    }
}

/// What levels are counted in: `streams`, or `requests/s` in an open loop.
pub fn level_unit(verdict: &Verdict) -> &'static str {
    if verdict.steps.iter().any(|s| matches!(s.load, Load::Rate(_))) { "requests/s" } else { "streams" }
}

/// A level in words: `1 stream`, `8 streams`, `2.5 requests/s`.
pub fn level(verdict: &Verdict, level: f64) -> String {
    match level_unit(verdict) {
        "streams" if level == 1.0 => "1 stream".into(),
        unit => format!("{} {unit}", number(level)),
    }
}

/// Numbers as a list with runs drawn together: `0, 2 to 5`.
pub fn runs(numbers: &[u32]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut rest = numbers;
    while let Some(&first) = rest.first() {
        let n = rest.iter().zip(first..).take_while(|(a, b)| **a == *b).count();
        match n {
            1 => parts.push(first.to_string()),
            2 => parts.extend([first.to_string(), rest[1].to_string()]),
            _ => parts.push(format!("{first} to {}", rest[n - 1])),
        }
        rest = &rest[n..];
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_becomes_one_harmless_line() {
        for (text, expected) in [
            ("a\u{1b}[31mred\u{7}", "a\\u{1b}[31mred\\u{7}"),
            ("two\nlines\tand\r\nmore", "two lines and  more"),
            ("safe\u{202e}gnp.exe", "safe\\u{202e}gnp.exe"),
            ("größe 模型 👍", "größe 模型 👍"),
        ] {
            assert_eq!(plain(text), expected);
        }
    }

    #[test]
    fn lines_break_at_spaces_and_long_words_are_cut() {
        assert_eq!(wrap("the pool is full", 8), ["the pool", "is full"]);
        assert_eq!(wrap("x http://host/very/long", 8), ["x", "http://h", "ost/very", "/long"]);
        assert_eq!(wrap("模型模型模型", 4), ["模型", "模型", "模型"]);
        assert_eq!(wrap("", 8), [""]);
        assert_eq!(
            wrap("name ::error::x ##[group] ab::cd", 9),
            ["name", "\\::error:", "\\:x", "\\##[group", "] ab::cd"]
        );
    }

    #[test]
    fn numbers_keep_three_digits() {
        for (x, expected) in [
            (0.0, "0"),
            (8.0, "8"),
            (0.125, "0.125"),
            (47.13, "47.1"),
            (1234.5, "1234"),
            (2.5, "2.5"),
            (1e-5, "1.00e-5"),
        ] {
            assert_eq!(number(x), expected);
        }
        assert_eq!(percent(0.0042), "0.4 %");
        assert_eq!(percent(0.12), "12 %");
        assert_eq!(latency(Some(0.0124)), "12.4ms");
        assert_eq!(runs(&[0, 2, 3, 4, 7, 8]), "0, 2 to 4, 7, 8");
    }
}
