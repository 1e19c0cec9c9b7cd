//! Bytes to server-sent events, in time linear in the bytes.
//!
//! `eventsource-stream` parses an unfinished line again at every read, which is quadratic in the
//! length of the line. So the bytes are first cut into whole events here, remembering how far was
//! scanned. Nearly every event of an LLM server is a single `data:` line, whose value is handed on
//! as it lies in the buffer; only what looks otherwise goes through the crate, one whole event at a time.

use eventsource_stream::Eventsource;
use futures_util::{FutureExt, StreamExt};

/// Largest event that is waited for, bytes: a bound on memory, far above any real line.
pub const MAX_EVENT_BYTES: usize = 64 << 20;

/// Cuts a body into events. Feed it what each read returned.
#[derive(Debug, Default)]
pub struct Cutter {
    /// Bytes of the event that is not complete yet.
    rest: Vec<u8>,
    scan: Scan,
    begun: bool,
}

/// Where the search for the end of the event stands.
#[derive(Clone, Copy, Debug, Default)]
struct Scan {
    /// Bytes of `rest` that were looked at.
    at: usize,
    /// Where the line that `at` lies in began.
    line: usize,
    /// Whether the byte before was a CR, so that an LF belongs to the same line end.
    after_cr: bool,
}

/// One event, borrowed from the buffer where that is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// Value of the `event` field; `""` where there is none.
    pub event: &'a str,
    /// Value of the `data` lines, joined by LF.
    pub data: &'a [u8],
}

/// An event of more than [`MAX_EVENT_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a server-sent event of more than {} MiB, expected less", MAX_EVENT_BYTES >> 20)]
pub struct TooLong;

impl Cutter {
    /// Takes in one read and hands every event that it completes to `each`, until that returns `false`.
    ///
    /// # Errors
    /// If an event grows beyond [`MAX_EVENT_BYTES`].
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(Data<'_>) -> bool) -> Result<(), TooLong> {
        if self.rest.is_empty() {
            // The usual case: a read holds whole events, and nothing is copied.
            let used = self.scan(bytes, &mut each);
            self.rest.extend_from_slice(&bytes[used..]);
        } else {
            let mut rest = std::mem::take(&mut self.rest);
            rest.extend_from_slice(bytes);
            let used = self.scan(&rest, &mut each);
            rest.drain(..used);
            self.rest = rest;
        }
        if self.rest.len() > MAX_EVENT_BYTES { Err(TooLong) } else { Ok(()) }
    }

    /// What came after the last complete event.
    pub fn rest(&self) -> &[u8] {
        &self.rest
    }

    /// Finds events in `bytes`, which begin where the current event began; returns how many bytes they took.
    fn scan(&mut self, bytes: &[u8], each: &mut impl FnMut(Data<'_>) -> bool) -> usize {
        const BOM: &[u8] = b"\xef\xbb\xbf";
        let mut scan = self.scan;
        let mut block = 0;
        if !self.begun {
            if bytes.len() < BOM.len() && BOM.starts_with(bytes) {
                return 0;
            }
            self.begun = true;
            if bytes.starts_with(BOM) {
                block = BOM.len();
                scan = Scan { at: block, line: block, after_cr: false };
            }
        }
        loop {
            let Some(found) = memchr::memchr2(b'\n', b'\r', &bytes[scan.at..]) else {
                scan.after_cr &= scan.at == bytes.len();
                scan.at = bytes.len();
                break;
            };
            let end = scan.at + found;
            let lf_of_crlf = scan.after_cr && found == 0 && bytes[end] == b'\n';
            scan.at = end + 1;
            if lf_of_crlf {
                scan.after_cr = false;
                scan.line = scan.at;
                if block == end {
                    block = scan.at;
                }
                continue;
            }
            scan.after_cr = bytes[end] == b'\r';
            let empty = end == scan.line;
            scan.line = scan.at;
            if empty {
                let whole = &bytes[block..end];
                block = scan.at;
                if !whole.is_empty() && !dispatch(whole, each) {
                    break;
                }
            }
        }
        self.scan = Scan { at: scan.at - block, line: scan.line - block, after_cr: scan.after_cr };
        block
    }
}

/// Reads one event's lines; `false` if the caller wants no more.
fn dispatch(block: &[u8], each: &mut impl FnMut(Data<'_>) -> bool) -> bool {
    if let Some(value) = block.strip_prefix(b"data:") {
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let value = value.strip_suffix(b"\n").unwrap_or(value);
        let value = value.strip_suffix(b"\r").unwrap_or(value);
        if memchr::memchr2(b'\n', b'\r', value).is_none() {
            return value.is_empty() || each(Data { event: "", data: value });
        }
    }
    if block.starts_with(b":") && memchr::memchr2(b'\n', b'\r', block).is_none_or(|end| end + 2 >= block.len()) {
        return true;
    }
    // Rare: several lines. The crate wants a stream that ends an event with an empty line.
    let whole = [block, b"\n\n"].concat();
    let mut events = futures_util::stream::iter([Ok::<_, std::convert::Infallible>(whole)]).eventsource();
    while let Some(Some(event)) = events.next().now_or_never() {
        let more = match event {
            Ok(e) => {
                let name = if e.event == "message" { "" } else { e.event.as_str() };
                e.data.is_empty() || each(Data { event: name, data: e.data.as_bytes() })
            }
            // Not UTF-8: the bytes as they are, for the chunk's parser to refuse.
            Err(_) => return each(Data { event: "", data: block }),
        };
        if !more {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(reads: &[&[u8]]) -> Vec<(String, String)> {
        let mut cutter = Cutter::default();
        let mut out = Vec::new();
        for read in reads {
            cutter
                .push(read, |d| {
                    out.push((d.event.to_owned(), String::from_utf8_lossy(d.data).into_owned()));
                    true
                })
                .unwrap();
        }
        out
    }

    fn data(reads: &[&str]) -> Vec<String> {
        events(&reads.iter().map(|r| r.as_bytes()).collect::<Vec<_>>()).into_iter().map(|(_, d)| d).collect()
    }

    #[test]
    fn every_shape_of_line_end_comment_and_field() {
        for (reads, want) in [
            (vec!["data: a\n\n"], vec!["a"]),
            (vec!["data:a\r\n\r\ndata: b\r\n\r\n"], vec!["a", "b"]),
            (vec!["data: a\r\r", "\ndata: b\r\r"], vec!["a", "b"]),
            (vec!["data: a\r\n\r", "\ndata: b\r\n\r\n"], vec!["a", "b"]),
            (vec!["data: a\r", "\n\r\n", "data: b\n", "\n"], vec!["a", "b"]),
            (vec![": ping\n\n:\n\ndata:\n\ndata: a\n\n"], vec!["a"]),
            (vec!["\u{feff}data: a\n\n"], vec!["a"]),
            (vec!["id: 3\nretry: 9\nevent: message\ndata: a\n: c\n\n"], vec!["a"]),
            (vec!["data: a\ndata: b\n\n"], vec!["a\nb"]),
            (vec!["da", "ta: ", "a\n", "\n", "data: b"], vec!["a"]),
            (vec!["\n\n\ndata:  two spaces\n\n"], vec![" two spaces"]),
            (vec!["data\n\nfoo: bar\n\ndata: a\n\n"], vec!["a"]),
        ] {
            assert_eq!(data(&reads), want, "{reads:?}");
        }
        assert_eq!(events(&[b"event: error\ndata: x\n\n"]), [("error".to_owned(), "x".to_owned())]);
    }

    #[test]
    fn a_long_line_in_many_reads_is_scanned_once() {
        // 16 MB in 4,000 reads: seconds if the line were scanned anew at each.
        let mut cutter = Cutter::default();
        let mut lengths = Vec::new();
        cutter.push(b"data: ", |_| true).unwrap();
        let part = vec![b'y'; 4_096];
        for _ in 0..4_000 {
            cutter.push(&part, |_| true).unwrap();
            assert_eq!(cutter.scan.at, cutter.rest.len());
        }
        cutter
            .push(b"\n\n", |d| {
                lengths.push(d.data.len());
                true
            })
            .unwrap();
        assert_eq!(lengths, [4_096 * 4_000]);
    }

    proptest! {
        /// However the bytes are cut into reads, the events are those that the crate sees in one piece.
        #[test]
        fn agrees_with_the_crate(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "data: a", "data:b", "data", ": c", ":", "id: 1", "event: e", "x", "é世", " ", "\n", "\n\n", "\r\n", "\r\n\r\n",
                    "\r", "{\"a\":1}", "data: {\"b\": \"\\n\"}",
                ]),
                0..40,
            ),
            cuts in prop::collection::vec(1_usize..9, 1..20),
        ) {
            let mut text: String = pieces.concat();
            text.push_str("\n\n");
            let whole: Vec<(String, String)> =
                futures_util::stream::iter([Ok::<_, std::convert::Infallible>(text.clone().into_bytes())])
                    .eventsource()
                    .map(|e| e.unwrap())
                    .filter(|e| std::future::ready(!e.data.is_empty()))
                    .map(|e| (if e.event == "message" { String::new() } else { e.event }, e.data))
                    .collect::<Vec<_>>()
                    .now_or_never()
                    .unwrap();
            let bytes = text.as_bytes();
            let mut reads = Vec::new();
            let (mut at, mut k) = (0, 0);
            while at < bytes.len() {
                let end = (at + cuts[k % cuts.len()]).min(bytes.len());
                reads.push(&bytes[at..end]);
                (at, k) = (end, k + 1);
            }
            prop_assert_eq!(events(&reads), whole);
        }
    }
}
