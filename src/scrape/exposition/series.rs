//! The text of a series: a metric name and labels in braces.

use std::borrow::Cow;

use super::{Refusal, blanks};
use crate::model::sample::{Labels, NAME};

/// Where the series that begins at `at` ends: after its closing brace, or after its name.
pub(super) fn end(page: &[u8], at: usize) -> Result<usize, Refusal> {
    let name_end = at + name_length(&page[at..]);
    let brace = name_end + blanks(&page[name_end..]);
    if page.get(brace) != Some(&b'{') {
        return if name_end > at { Ok(name_end) } else { Err(Refusal::new(at, "expected a metric name")) };
    }
    let mut i = brace + 1;
    loop {
        match page.get(i) {
            None => return Err(Refusal::new(at, "a series that never ends")),
            Some(b'}') => return Ok(i + 1),
            Some(b'"') => i = quoted_end(page, i)?,
            Some(b'\n') => return Err(Refusal::new(at, "labels without a closing `}`")),
            Some(_) => i += 1,
        }
    }
}

/// The labels of the series that reaches from `at` to `end`.
pub(super) fn labels(page: &[u8], at: usize, end: usize) -> Result<Labels, Refusal> {
    if let Err(e) = std::str::from_utf8(&page[at..end]) {
        return Err(Refusal::new(at + e.valid_up_to(), "a series that is not UTF-8"));
    }
    let mut pairs: Vec<(Cow<'_, str>, Cow<'_, str>)> = Vec::new();
    let mut i = at + name_length(&page[at..end]);
    if i > at {
        pairs.push((NAME.into(), utf8(&page[at..i]).into()));
    }
    i += blanks(&page[i..end]);
    if i < end {
        // `end` saw the opening brace, and the closing one is the last byte.
        i += 1;
        read_pairs(&page[..end], &mut i, &mut pairs)?;
    }
    pairs.sort();
    if let Some(w) = pairs.windows(2).find(|w| w[0].0 == w[1].0) {
        let what = if w[0].0 == NAME { "a second metric name".into() } else { format!("label `{}` twice", w[0].0) };
        return Err(Refusal { at, what });
    }
    let labels = Labels::new(pairs);
    if labels.name().is_empty() {
        return Err(Refusal::new(at, "no metric name"));
    }
    Ok(labels)
}

/// Reads `a="b",c="d",}` from `i` on. A string without `=` is the metric's name.
fn read_pairs<'a>(page: &'a [u8], i: &mut usize, pairs: &mut Vec<(Cow<'a, str>, Cow<'a, str>)>) -> Result<(), Refusal> {
    loop {
        *i += blanks(&page[*i..]);
        let name = match page.get(*i) {
            Some(b'}') => return Ok(()),
            Some(b'"') => {
                let name = quoted(page, i)?;
                *i += blanks(&page[*i..]);
                if page.get(*i) != Some(&b'=') {
                    pairs.push((NAME.into(), name));
                    comma(page, i)?;
                    continue;
                }
                name
            }
            _ => {
                let n = label_length(&page[*i..]);
                if n == 0 {
                    return Err(Refusal::new(*i, "expected a label name"));
                }
                let name = utf8(&page[*i..*i + n]);
                *i += n;
                *i += blanks(&page[*i..]);
                name.into()
            }
        };
        if page.get(*i) != Some(&b'=') {
            return Err(Refusal::new(*i, "expected `=` after a label name"));
        }
        *i += 1;
        *i += blanks(&page[*i..]);
        if page.get(*i) != Some(&b'"') {
            return Err(Refusal::new(*i, "expected `\"` before a label value"));
        }
        let value = quoted(page, i)?;
        pairs.push((name, value));
        comma(page, i)?;
    }
}

/// Skips the comma after a pair; a closing brace may stand there too.
fn comma(page: &[u8], i: &mut usize) -> Result<(), Refusal> {
    *i += blanks(&page[*i..]);
    match page.get(*i) {
        Some(b',') => *i += 1,
        Some(b'}') => {}
        _ => return Err(Refusal::new(*i, "expected `,` or `}` after a label")),
    }
    Ok(())
}

/// Reads the string whose opening quote is at `i`, and undoes its escapes: `\\`, `\"` and
/// `\n`. Any other backslash stays as it is, as in Prometheus.
fn quoted<'a>(page: &'a [u8], i: &mut usize) -> Result<Cow<'a, str>, Refusal> {
    let end = quoted_end(page, *i)?;
    let raw = utf8(&page[*i + 1..end - 1]);
    *i = end;
    if !raw.contains('\\') {
        return Ok(raw.into());
    }
    let mut out = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some(c @ ('\\' | '"')) => out.push(c),
            other => {
                out.push('\\');
                out.extend(other);
            }
        }
    }
    Ok(out.into())
}

/// Where the string whose opening quote is at `at` ends: after its closing quote.
fn quoted_end(page: &[u8], at: usize) -> Result<usize, Refusal> {
    let mut i = at + 1;
    loop {
        match page.get(i) {
            None => return Err(Refusal::new(at, "a string that never ends")),
            Some(b'"') => return Ok(i + 1),
            Some(b'\\') => i += 2,
            Some(_) => i += 1,
        }
    }
}

/// Where the name in a `# HELP` or `# TYPE` line ends; `None` if there is none.
pub(super) fn metadata_name_end(text: &[u8]) -> Option<usize> {
    if text.first() == Some(&b'"') {
        return quoted_end(text, 0).ok();
    }
    let n = name_length(text);
    (n > 0).then_some(n)
}

fn name_length(text: &[u8]) -> usize {
    word_length(text, |b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':'))
}

fn label_length(text: &[u8]) -> usize {
    word_length(text, |b| b.is_ascii_alphanumeric() || b == b'_')
}

fn word_length(text: &[u8], part: impl Fn(u8) -> bool) -> usize {
    if text.first().is_none_or(u8::is_ascii_digit) {
        return 0;
    }
    text.iter().position(|b| !part(*b)).unwrap_or(text.len())
}

fn utf8(text: &[u8]) -> &str {
    std::str::from_utf8(text).expect("the whole series was checked to be UTF-8, and it is cut at ASCII bytes")
}
