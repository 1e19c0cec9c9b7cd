//! Events to lines. Remembers what the file already says: label sets, layouts, last values.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::numbers::{push_float, push_int};
use super::wire::{Layout, Line, Request, Scrape, Series};
use crate::model::recording::{Event, Header};
use crate::model::request::{RequestTimeline, TokenChunk};
use crate::model::sample::{self, Labels, Sample, SourceKind};

/// Turns events into lines, one after the other.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    series: HashMap<Labels, u32>,
    /// The page of each source and target as last written.
    pages: BTreeMap<(SourceKind, u32), LastPage>,
    layouts: u32,
}

#[derive(Debug)]
struct LastPage {
    layout: u32,
    /// Compared with those of the next page: pages repeat, and comparing needs no look-up.
    labels: Vec<Labels>,
    values: Vec<f64>,
}

impl Encoder {
    /// Appends the header's line.
    pub(super) fn header(out: &mut Vec<u8>, header: &Header) {
        push_line(out, &Line { header: Some(header.clone()), ..Line::default() });
    }

    /// Appends the line of an event, after the lines that introduce what it refers to.
    pub(super) fn event(&mut self, out: &mut Vec<u8>, event: &Event) {
        match event {
            Event::Request(r) => request(out, r),
            Event::Scrape(s) => self.scrape(out, s),
            other => push_line(out, &Line::of_mark(other)),
        }
    }

    fn scrape(&mut self, out: &mut Vec<u8>, s: &sample::Scrape) {
        let mut line = Scrape {
            source: s.source,
            target: s.target,
            sent_us: s.sent,
            received_us: s.received,
            layout: None,
            failed: None,
        };
        let samples = match &s.result {
            Ok(samples) => samples,
            Err(failure) => {
                line.failed = Some(failure.clone());
                push_line(out, &Line { scrape: Some(line), ..Line::default() });
                return;
            }
        };
        let key = (s.source, s.target);
        let same = self.pages.get(&key).is_some_and(|p| p.labels.iter().eq(samples.iter().map(|s| &s.labels)));
        if !same {
            let page = self.new_layout(out, samples);
            self.pages.insert(key, page);
        }
        let page = self.pages.get_mut(&key).expect("a page was found or made above");
        line.layout = Some(page.layout);
        open_line(out, "scrape", &line);
        out.extend_from_slice(b",\"changed\":[");
        let mut first = true;
        for (i, (last, sample)) in page.values.iter_mut().zip(samples).enumerate() {
            // By bits: a zero that turns negative is a change, a NaN that stays NaN is none.
            if canonical(*last) != canonical(sample.value) {
                if !std::mem::take(&mut first) {
                    out.push(b',');
                }
                push_int(out, i as i64);
                out.push(b',');
                push_float(out, sample.value);
                *last = sample.value;
            }
        }
        out.extend_from_slice(b"]}\n");
    }

    fn new_layout(&mut self, out: &mut Vec<u8>, samples: &[Sample]) -> LastPage {
        let mut series = Vec::with_capacity(samples.len());
        for sample in samples {
            let next = u32::try_from(self.series.len()).expect("a run holds fewer than 2^32 series");
            let id = *self.series.entry(sample.labels.clone()).or_insert_with_key(|labels| {
                push_line(out, &Line { series: Some(Series::new(next, labels)), ..Line::default() });
                next
            });
            series.push(id);
        }
        let layout = self.layouts;
        self.layouts += 1;
        push_line(out, &Line { layout: Some(Layout { id: layout, series }), ..Line::default() });
        let labels = samples.iter().map(|s| s.labels.clone()).collect();
        LastPage { layout, labels, values: vec![0.0; samples.len()] }
    }
}

/// Bits that are equal for equal values, with one NaN for all.
fn canonical(v: f64) -> u64 {
    if v.is_nan() { f64::NAN.to_bits() } else { v.to_bits() }
}

fn request(out: &mut Vec<u8>, r: &RequestTimeline) {
    open_line(out, "request", &Request::new(r));
    out.extend_from_slice(b",\"chunks_us\":[");
    let mut last = 0_i64;
    for (i, chunk) in r.chunks.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        let at = i64::try_from(chunk.at.0).unwrap_or(i64::MAX);
        push_int(out, at - last);
        last = at;
    }
    out.push(b']');
    growth(out, &r.chunks);
    out.extend_from_slice(b"}\n");
}

fn growth(out: &mut Vec<u8>, chunks: &[TokenChunk]) {
    if chunks.iter().all(|c| c.running_tokens.is_none()) {
        return;
    }
    out.extend_from_slice(b",\"growth\":");
    let one_each = chunks.iter().zip(1_u32..).all(|(c, n)| c.running_tokens == Some(n));
    if one_each {
        out.push(b'1');
        return;
    }
    out.push(b'[');
    let mut last = 0_i64;
    for (i, chunk) in chunks.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        match chunk.running_tokens {
            Some(n) => {
                push_int(out, i64::from(n) - last);
                last = i64::from(n);
            }
            None => out.extend_from_slice(b"null"),
        }
    }
    out.push(b']');
}

/// Appends `{"key":value`: the arrays follow, written by hand.
fn open_line(out: &mut Vec<u8>, key: &str, value: &impl Serialize) {
    out.extend_from_slice(b"{\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
    serde_json::to_writer(&mut *out, value).expect("plain structs serialize, and memory takes all");
}

fn push_line(out: &mut Vec<u8>, line: &Line) {
    serde_json::to_writer(&mut *out, line).expect("plain structs serialize, and memory takes all");
    out.push(b'\n');
}
