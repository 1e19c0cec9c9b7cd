//! A page that was refused: the line, and what the page seems to be.

use super::{ParseError, line_end};

/// Where and why a page was refused, before it is told with line and text.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) at: usize,
    pub(super) what: String,
}

impl Refusal {
    pub(super) fn new(at: usize, what: &str) -> Refusal {
        Refusal { at, what: what.into() }
    }
}

/// Turns a refusal into an error that shows the line, or says what else the page is.
pub(super) fn explain(page: &[u8], at: usize, what: String) -> ParseError {
    if let Some(what) = looks_like(page) {
        return ParseError::NotMetrics { what };
    }
    let at = at.min(page.len());
    let line = 1 + page[..at].iter().filter(|b| **b == b'\n').count();
    let start = page[..at].iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
    let shown = String::from_utf8_lossy(&page[start..line_end(page, start)]);
    let what = if shown.ends_with('\r') { format!("{what}; the line ends in a carriage return") } else { what };
    ParseError::Line { line, what, text: shown.trim_end().chars().take(120).collect() }
}

/// What a page that is no exposition seems to be. Only asked of pages that were refused.
fn looks_like(page: &[u8]) -> Option<&'static str> {
    let page = page.strip_prefix(b"\xef\xbb\xbf").unwrap_or(page);
    match page.trim_ascii_start() {
        [b'<', ..] => Some("an HTML or XML document"),
        [b'[', ..] => Some("a JSON document"),
        [b'{', rest @ ..] => {
            // A series may begin with a brace as well, but its first string is not a JSON key.
            let rest = rest.trim_ascii_start();
            let key_end = rest.iter().skip(1).position(|b| *b == b'"')? + 2;
            (rest.first() == Some(&b'"') && rest[key_end..].trim_ascii_start().first() == Some(&b':'))
                .then_some("a JSON document")
        }
        [0x1f, 0x8b, ..] => Some("compressed, without a Content-Encoding that says so"),
        text if std::str::from_utf8(text).is_err() && text.iter().take(512).any(|b| *b < 9) => {
            Some("binary, perhaps Prometheus' protobuf format")
        }
        _ => None,
    }
}
