//! Lines to events, in two passes: each line by itself, which several threads can share, and
//! then in order what refers to earlier lines.

use std::collections::HashMap;

use super::numbers::{scan_changes, scan_ints};
use super::wire::{self, Growth, Line};
use crate::model::recording::{Event, Header};
use crate::model::request::{RequestTimeline, TokenChunk};
use crate::model::sample::{Labels, Sample, Scrape};
use crate::model::time::Offset;

/// One line understood by itself.
pub(super) enum Parsed {
    Header(Box<Header>),
    Series(wire::Series),
    Layout(wire::Layout),
    /// Values are still changes against an earlier line.
    Scrape(wire::Scrape, Vec<(u32, f64)>),
    Event(Event),
}

/// Reads one line.
pub(super) fn line(text: &[u8]) -> Result<Parsed, String> {
    // What our own encoder wrote goes the fast way; what other tools have rewritten (other
    // blanks, another order of keys) goes the general one.
    let fast = if text.starts_with(b"{\"request\":") {
        fast_request(text).map(|r| Parsed::Event(Event::Request(r)))
    } else if text.starts_with(b"{\"scrape\":") {
        fast_scrape(text)
    } else {
        None
    };
    match fast {
        Some(parsed) => Ok(parsed),
        None => general(text),
    }
}

/// Splits `{"key":{…},rest` into the object, read, and `rest` from the comma or brace on.
fn open_line<'a, T: serde::Deserialize<'a>>(text: &'a [u8], key: &str) -> Option<(T, &'a [u8])> {
    let body = &text[key.len() + 4..];
    let mut values = serde_json::Deserializer::from_slice(body).into_iter::<T>();
    let value = values.next()?.ok()?;
    Some((value, &body[values.byte_offset()..]))
}

fn fast_request(text: &[u8]) -> Option<RequestTimeline> {
    let (request, rest) = open_line::<wire::Request>(text, "request")?;
    let rest = rest.strip_prefix(b",\"chunks_us\":")?;
    // Few chunks hold less than a token, so this is nearly always enough and seldom too much.
    let expected = request.completion_tokens.or(request.asked_output_tokens).unwrap_or(0).min(1 << 16);
    let mut chunks = Vec::with_capacity((expected as usize).min(rest.len() / 2));
    let mut at = 0_i64;
    let mut sane = true;
    let rest = scan_ints(rest, |gap| {
        at = at.wrapping_add(gap);
        sane &= at >= 0;
        chunks.push(TokenChunk { at: Offset(at as u64), running_tokens: None });
    })?;
    let rest = match rest.strip_prefix(b",\"growth\":") {
        None => rest,
        Some(b"1}") => {
            for (chunk, n) in chunks.iter_mut().zip(1..) {
                chunk.running_tokens = Some(n);
            }
            b"}"
        }
        Some(array) => {
            let mut running = 0_i64;
            let mut each = chunks.iter_mut();
            let rest = scan_ints(array, |growth| {
                running = running.wrapping_add(growth);
                match (each.next(), u32::try_from(running)) {
                    (Some(chunk), Ok(n)) => chunk.running_tokens = Some(n),
                    _ => sane = false,
                }
            })?;
            sane &= each.next().is_none();
            rest
        }
    };
    (sane && rest == b"}").then(|| request.with_chunks(chunks))
}

fn fast_scrape(text: &[u8]) -> Option<Parsed> {
    let (scrape, rest) = open_line::<wire::Scrape>(text, "scrape")?;
    if rest == b"}" {
        return Some(Parsed::Scrape(scrape, Vec::new()));
    }
    let mut changed = Vec::new();
    let mut sane = true;
    let rest = scan_changes(rest.strip_prefix(b",\"changed\":")?, |position, value| match u32::try_from(position) {
        Ok(position) => changed.push((position, value)),
        Err(_) => sane = false,
    })?;
    (sane && rest == b"}").then_some(Parsed::Scrape(scrape, changed))
}

fn general(text: &[u8]) -> Result<Parsed, String> {
    let mut line: Line = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    if let Some(header) = line.header.take() {
        return Ok(Parsed::Header(Box::new(header)));
    }
    if let Some(series) = line.series.take() {
        return Ok(Parsed::Series(series));
    }
    if let Some(layout) = line.layout.take() {
        return Ok(Parsed::Layout(layout));
    }
    if let Some(scrape) = line.scrape.take() {
        return changes(&line.changed).map(|changed| Parsed::Scrape(scrape, changed));
    }
    if let Some(request) = line.request.take() {
        let chunks = chunks(&line.chunks_us, line.growth.as_ref())?;
        return Ok(Parsed::Event(Event::Request(request.with_chunks(chunks))));
    }
    line.mark().map(Parsed::Event).ok_or_else(|| {
        "expected one of header, series, layout, scrape, request, step_started, measure_started, step_ended, \
         health, note, ended"
            .into()
    })
}

fn changes(numbers: &[wire::Number]) -> Result<Vec<(u32, f64)>, String> {
    let (pairs, odd) = numbers.as_chunks::<2>();
    if !odd.is_empty() {
        return Err("`changed` has a position without a value".into());
    }
    pairs
        .iter()
        .map(|[position, value]| {
            let position = position.value().filter(|p| p.fract() == 0.0 && (0.0..4e9).contains(p));
            let position = position.ok_or("`changed` has a position that is no whole number")?;
            let value = value.value().ok_or("`changed` has a value that is no number, NaN, +Inf or -Inf")?;
            Ok((position as u32, value))
        })
        .collect()
}

fn chunks(gaps_us: &[i64], growth: Option<&Growth>) -> Result<Vec<TokenChunk>, String> {
    let mut at = 0_i64;
    let mut chunks = Vec::with_capacity(gaps_us.len());
    for gap in gaps_us {
        at = at.checked_add(*gap).filter(|at| *at >= 0).ok_or("`chunks_us` goes below the start of the run")?;
        chunks.push(TokenChunk { at: Offset(at as u64), running_tokens: None });
    }
    let mut running = 0_i64;
    let mut grow = |chunk: &mut TokenChunk, by: i64| {
        running = running.wrapping_add(by);
        let tokens = u32::try_from(running).map_err(|_| "`growth` leaves the range of token counts")?;
        chunk.running_tokens = Some(tokens);
        Ok::<(), String>(())
    };
    match growth {
        None => {}
        Some(Growth::Even(by)) => {
            for chunk in &mut chunks {
                grow(chunk, *by)?;
            }
        }
        Some(Growth::Each(each)) => {
            if each.len() != chunks.len() {
                return Err(format!("`growth` has {} entries for {} chunks", each.len(), chunks.len()));
            }
            for (chunk, by) in chunks.iter_mut().zip(each) {
                if let Some(by) = by {
                    grow(chunk, *by)?;
                }
            }
        }
    }
    Ok(chunks)
}

/// What earlier lines said that later ones refer to.
#[derive(Default)]
pub(super) struct Context {
    series: Vec<Labels>,
    layouts: HashMap<u32, Vec<Sample>>,
}

impl Context {
    /// Takes in one line; gives its event if it is one.
    pub(super) fn resolve(&mut self, parsed: Parsed) -> Result<Option<Event>, String> {
        match parsed {
            Parsed::Header(_) => Err("a second header".into()),
            Parsed::Series(series) => {
                if series.id as usize != self.series.len() {
                    return Err(format!("series {} where {} was due", series.id, self.series.len()));
                }
                self.series.push(Labels::new(series.labels));
                Ok(None)
            }
            Parsed::Layout(layout) => {
                let page = layout.series.iter().map(|id| {
                    let labels = self.series.get(*id as usize).ok_or_else(|| format!("unknown series {id}"))?;
                    Ok(Sample { labels: labels.clone(), value: 0.0 })
                });
                let page = page.collect::<Result<Vec<_>, String>>()?;
                self.layouts.insert(layout.id, page);
                Ok(None)
            }
            Parsed::Scrape(scrape, changed) => self.scrape(scrape, &changed).map(|s| Some(Event::Scrape(s))),
            Parsed::Event(event) => Ok(Some(event)),
        }
    }

    fn scrape(&mut self, scrape: wire::Scrape, changed: &[(u32, f64)]) -> Result<Scrape, String> {
        let result = match (scrape.layout, scrape.failed) {
            (Some(id), None) => {
                let page = self.layouts.get_mut(&id).ok_or_else(|| format!("unknown layout {id}"))?;
                for (position, value) in changed {
                    let of = page.len();
                    let sample = page.get_mut(*position as usize);
                    sample.ok_or_else(|| format!("position {position} in a layout of {of} series"))?.value = *value;
                }
                Ok(page.clone())
            }
            (None, Some(failure)) => Err(failure),
            _ => return Err("a scrape needs either a layout or a failure".into()),
        };
        Ok(Scrape {
            source: scrape.source,
            target: scrape.target,
            sent: scrape.sent_us,
            received: scrape.received_us,
            result,
        })
    }
}
