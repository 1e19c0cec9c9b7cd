//! Prometheus' text format and OpenMetrics: bytes of a page to samples.
//!
//! As strict as the text parser of Prometheus, so that a page fails here when it would fail
//! in production, and as tolerant where that one is. Three deliberate differences: an exemplar
//! is skipped in the plain text format too; a sample's own timestamp is ignored, so that all
//! of a page carries the time of its scrape; and `le` keeps the text that the server gave.
//!
//! ```text
//! # HELP name text                        checked, not kept
//! # TYPE name counter
//! name{label="value",other="x"} 3.5 1796083200000 # {trace_id="t1"} 0.31
//! {"a name in UTF-8", label="value"} NaN
//! ```

mod comment;
mod number;
mod refusal;
mod series;

use std::collections::HashMap;
use std::sync::Arc;

use self::comment::comment;
use self::refusal::{Refusal, explain};
use crate::model::sample::{Labels, Sample};

/// Reads one page. For a page that is read again and again, keep a [`Parser`].
///
/// # Errors
/// Names the first line that Prometheus would refuse.
pub fn parse(page: &[u8], content_type: Option<&str>) -> Result<Vec<Sample>, ParseError> {
    Parser::new().parse(page, Format::of(content_type)).map(|p| p.samples)
}

/// Which grammar a page follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format 0.0.4 and 1.0.0.
    Text,
    /// OpenMetrics 1.0: one space between tokens, no blank line, `# EOF` at the end.
    OpenMetrics,
}

impl Format {
    /// The grammar that a `Content-Type` names; text where it names nothing known.
    pub fn of(content_type: Option<&str>) -> Format {
        match content_type {
            Some(t) if t.trim_start().to_ascii_lowercase().starts_with("application/openmetrics-text") => {
                Format::OpenMetrics
            }
            _ => Format::Text,
        }
    }
}

/// Why a page is no exposition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The page is something else altogether.
    #[error("the page is {what}, expected Prometheus text that begins with `# HELP`, `# TYPE` or a sample")]
    NotMetrics {
        /// What it looks like: `an HTML document`, …
        what: &'static str,
    },
    /// One line that Prometheus would refuse, and the whole page with it.
    #[error("line {line} of the page: {what}, in `{text}`")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// What was met and what was expected.
        what: String,
        /// The line, cut to 120 characters.
        text: String,
    },
}

/// What one page held.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exposition {
    /// The samples in the order of the page.
    pub samples: Vec<Sample>,
    /// Lines that gave a series a second time; the first one counts, as in Prometheus.
    pub duplicates: usize,
}

/// A parser that remembers the label sets of earlier pages, so that a page of the same
/// series costs neither an allocation nor a look at their text's grammar.
#[derive(Debug)]
pub struct Parser {
    /// Every series text met, in any spelling. Entry 0 stands for the head of a page.
    texts: Vec<Text>,
    by_text: HashMap<Arc<[u8]>, u32>,
    series: Vec<Series>,
    by_labels: HashMap<Labels, u32>,
    /// Number of the page that is being read.
    page: u64,
}

/// The text of a series as a page spells it.
#[derive(Debug)]
struct Text {
    bytes: Arc<[u8]>,
    series: u32,
    /// Which text followed it on the last page: pages keep their order, so it will again.
    next: u32,
}

#[derive(Debug)]
struct Series {
    labels: Labels,
    /// Last page that held it; tells a duplicate.
    seen: u64,
}

/// The entry of `texts` that stands for the head of a page.
const HEAD: u32 = 0;

/// Above this many remembered texts for each sample of a page the memory starts afresh:
/// a server whose labels never repeat must not fill ours.
const MOST_TEXTS_PER_SAMPLE: usize = 8;

impl Default for Parser {
    fn default() -> Parser {
        Parser::new()
    }
}

impl Parser {
    /// A parser that remembers nothing yet.
    pub fn new() -> Parser {
        Parser {
            texts: vec![Text { bytes: Arc::from([]), series: u32::MAX, next: HEAD }],
            by_text: HashMap::new(),
            series: Vec::new(),
            by_labels: HashMap::new(),
            page: 0,
        }
    }

    /// Reads one page.
    ///
    /// # Errors
    /// Names the first line that Prometheus would refuse.
    pub fn parse(&mut self, page: &[u8], format: Format) -> Result<Exposition, ParseError> {
        self.page += 1;
        let result = self.read(page, format).map_err(|Refusal { at, what }| explain(page, at, what));
        let most = 1_000 + result.as_ref().map_or(0, |p| p.samples.len() * MOST_TEXTS_PER_SAMPLE);
        if self.texts.len() > most {
            *self = Parser { page: self.page, ..Parser::new() };
        }
        result
    }

    fn read(&mut self, page: &[u8], format: Format) -> Result<Exposition, Refusal> {
        let mut out = Exposition { samples: Vec::with_capacity(self.series.len()), duplicates: 0 };
        let mut previous = HEAD;
        let mut ended = false;
        let mut at = 0;
        while at < page.len() {
            if ended {
                return Err(Refusal::new(at, "text after `# EOF`"));
            }
            if format == Format::Text {
                at += blanks(&page[at..]);
            }
            match page.get(at) {
                None => break,
                Some(b'\n') if format == Format::Text => at += 1,
                Some(b'\n') => return Err(Refusal::new(at, "a blank line, which OpenMetrics forbids")),
                Some(b'#') => {
                    let end = line_end(page, at);
                    ended = comment(&page[at..end], format).map_err(|what| Refusal { at, what })?;
                    at = end + 1;
                }
                Some(_) => {
                    let (text, rest) = self.series_at(page, at, previous)?;
                    self.texts[previous as usize].next = text;
                    previous = text;
                    let (value, next) = number::sample_tail(page, rest, format)?;
                    at = next;
                    let series = &mut self.series[self.texts[text as usize].series as usize];
                    if series.seen == self.page {
                        out.duplicates += 1;
                    } else {
                        series.seen = self.page;
                        out.samples.push(Sample { labels: series.labels.clone(), value });
                    }
                }
            }
        }
        if format == Format::OpenMetrics && !ended {
            return Err(Refusal::new(page.len(), "the page does not end with `# EOF`: it was cut"));
        }
        Ok(out)
    }

    /// The series whose text begins at `at`, and where that text ends.
    fn series_at(&mut self, page: &[u8], at: usize, previous: u32) -> Result<(u32, usize), Refusal> {
        let guess = self.texts[previous as usize].next;
        if guess != HEAD {
            let bytes = &self.texts[guess as usize].bytes;
            if page[at..].starts_with(bytes) && ends_here(bytes, &page[at + bytes.len()..]) {
                return Ok((guess, at + bytes.len()));
            }
        }
        let end = series::end(page, at)?;
        let bytes = &page[at..end];
        if let Some(&known) = self.by_text.get(bytes) {
            return Ok((known, end));
        }
        let labels = series::labels(page, at, end)?;
        let next_series = u32::try_from(self.series.len()).expect("a page holds fewer than 2^32 series");
        let series = *self.by_labels.entry(labels).or_insert_with_key(|labels| {
            self.series.push(Series { labels: labels.clone(), seen: 0 });
            next_series
        });
        let text = u32::try_from(self.texts.len()).expect("a page holds fewer than 2^32 series");
        let bytes: Arc<[u8]> = Arc::from(bytes);
        self.texts.push(Text { bytes: bytes.clone(), series, next: HEAD });
        self.by_text.insert(bytes, text);
        Ok((text, end))
    }
}

/// Whether a series text that matched so far also ends where the remembered one did: `up` is
/// neither the head of `upper` nor of `up {a="b"}`.
fn ends_here(text: &[u8], rest: &[u8]) -> bool {
    text.last() == Some(&b'}')
        || (matches!(rest.first(), Some(b' ' | b'\t')) && rest.get(blanks(rest)).is_some_and(|b| *b != b'{'))
}

/// How many blanks `text` begins with.
fn blanks(text: &[u8]) -> usize {
    text.iter().position(|b| !matches!(b, b' ' | b'\t')).unwrap_or(text.len())
}

/// Where the line that holds `at` ends: at its newline or at the end of the page.
fn line_end(page: &[u8], at: usize) -> usize {
    page[at..].iter().position(|b| *b == b'\n').map_or(page.len(), |n| at + n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(page: &str) -> Result<Vec<(String, f64)>, String> {
        let samples = parse(page.as_bytes(), None).map_err(|e| e.to_string())?;
        Ok(samples.into_iter().map(|s| (s.labels.to_string(), s.value)).collect())
    }

    fn open_metrics(page: &str) -> Result<usize, String> {
        parse(page.as_bytes(), Some("application/openmetrics-text; version=1.0.0; charset=utf-8"))
            .map(|s| s.len())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn what_prometheus_takes() {
        for (page, name, value) in [
            ("up 1\n", "up", 1.0),
            ("up 1", "up", 1.0),
            ("  up \t 1  \n", "up", 1.0),
            ("a:b_c{x=\"1\"} 2 1796083200000\n", "a:b_c{x=\"1\"}", 2.0),
            ("a{x=\"1\"} 2 -5\n", "a{x=\"1\"}", 2.0),
            ("a{ x = \"1\" , y=\"2\" , } 2\n", "a{x=\"1\",y=\"2\"}", 2.0),
            ("a {x=\"1\"} 2\n", "a{x=\"1\"}", 2.0),
            ("a{}3\n", "a", 3.0),
            ("a{x=\"\"} 3\n", "a", 3.0),
            ("a{x=\"q\\\"b\\\\n\\nr\\x\"} 3\n", "a{x=\"q\\\"b\\\\n\\nr\\\\x\"}", 3.0),
            ("{\"a.b\",\"c d\"=\"e\"} 4\n", "a.b{c d=\"e\"}", 4.0),
            ("{__name__=\"a\"} 4\n", "a", 4.0),
            ("a 1e3\n", "a", 1000.0),
            ("a Infinity\n", "a", f64::INFINITY),
            ("a -inf\n", "a", f64::NEG_INFINITY),
            ("a 3 # {trace_id=\"1\"} 0.2 1.5\n", "a", 3.0),
            ("#\n# a word\n#TYPE x y z\n# TYPE\n# HELP a\n# TYPE a counter\na 1\n\n\n", "a", 1.0),
            ("# HELP a text with \\n and \\\\ \na 1\n", "a", 1.0),
        ] {
            assert_eq!(text(page).unwrap(), [(name.to_string(), value)], "{page:?}");
        }
        assert_eq!(text("").unwrap(), []);
        assert!(text("a nan\n").unwrap()[0].1.is_nan());
    }

    #[test]
    fn what_prometheus_refuses() {
        for (page, part) in [
            ("up\n", "expected a value"),
            ("up \n", "expected a value"),
            ("up one\n", "`one` is no number"),
            ("up 1_000\n", "is no number"),
            ("up 0x1p3\n", "is no number"),
            ("up +nan\n", "is no number"),
            ("up 1e999\n", "is no number"),
            ("up 1 2 3\n", "after the timestamp"),
            ("up 1 soon\n", "timestamp"),
            ("up 1\r\n", "carriage return"),
            ("a{x=\"1\",x=\"2\"} 1\n", "label `x` twice"),
            ("a{x=1} 1\n", "expected `\"`"),
            ("a{x} 1\n", "expected `=`"),
            ("a{x=\"1\" y=\"2\"} 1\n", "expected `,` or `}`"),
            ("a{,} 1\n", "expected a label name"),
            ("a{x=\"1} 1\n", "never ends"),
            ("a{\"b\"} 1\n", "a second metric name"),
            ("{x=\"1\"} 1\n", "no metric name"),
            ("1a 1\n", "expected a metric name"),
            ("# TYPE a number\n", "metric type `number`"),
            ("# TYPE 1a counter\n", "metric name after TYPE"),
            ("ok 1\nok 2\n-bad 3\n", "line 3 of the page"),
        ] {
            let error = text(page).unwrap_err();
            assert!(error.contains(part), "{page:?}: {error}");
        }
        assert!(parse(b"a{x=\"\xff\"} 1\n", None).unwrap_err().to_string().contains("UTF-8"));
    }

    #[test]
    fn other_documents_are_named() {
        for (page, what) in [
            ("<!doctype html><html></html>", "HTML"),
            ("{\"detail\":\"Not Found\"}", "JSON"),
            ("[1,2]", "JSON"),
            ("Internal Server Error", "line 1"),
            ("404 page not found\n", "line 1"),
        ] {
            let error = text(page).unwrap_err();
            assert!(error.contains(what), "{page:?}: {error}");
        }
    }

    #[test]
    fn open_metrics_is_stricter() {
        assert_eq!(
            open_metrics("# TYPE a counter\n# UNIT a bytes\na_total{x=\"1\"} 2 1.5 # {t=\"1\"} 0.1\n# EOF\n"),
            Ok(1)
        );
        assert_eq!(open_metrics("a 1\n# EOF"), Ok(1));
        for (page, part) in [
            ("a 1\n", "cut"),
            ("a 1\n# EOF\nb 2\n", "after `# EOF`"),
            ("a 1\n\n# EOF\n", "blank line"),
            ("a  1\n# EOF\n", "one space"),
            ("# a comment\na 1\n# EOF\n", "comment"),
        ] {
            let error = open_metrics(page).unwrap_err();
            assert!(error.contains(part), "{page:?}: {error}");
        }
    }

    #[test]
    fn the_first_of_two_equal_series_counts() {
        let mut parser = Parser::new();
        for _ in 0..2 {
            let page = parser.parse(b"a{x=\"1\",y=\"2\"} 1\na{y=\"2\",x=\"1\",} 5\nb 2\n", Format::Text).unwrap();
            assert_eq!(page.samples.iter().map(|s| s.value).collect::<Vec<_>>(), [1.0, 2.0]);
            assert_eq!(page.duplicates, 1);
        }
    }

    #[test]
    fn a_remembered_page_reads_like_a_new_one() {
        let pages = [
            "up 1\nupper 2\na{x=\"1\"} 3\n",
            "up 1\nup {x=\"1\"} 2\nupper 4\na{x=\"1\"} 3\n",
            "a{x=\"1\"} 3\nup 1\n",
            "up{x=\"1\"} 9\nup 1\nupper 2\nnew 7\na{x=\"1\"} 3\n",
        ];
        let mut parser = Parser::new();
        for page in pages.iter().chain(&pages) {
            let remembered = parser.parse(page.as_bytes(), Format::Text).unwrap().samples;
            assert_eq!(remembered, parse(page.as_bytes(), None).unwrap(), "{page}");
        }
    }

    #[test]
    fn memory_is_bounded_when_labels_never_repeat() {
        let mut parser = Parser::new();
        for i in 0..5_000 {
            parser.parse(format!("a{{id=\"{i}\"}} 1\n").as_bytes(), Format::Text).unwrap();
        }
        assert!(parser.texts.len() <= 1_010);
    }
}
