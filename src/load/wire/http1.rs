//! HTTP/1.1 answers out of bytes: the head, and where the body begins and ends. Pure.

use std::time::Duration;

/// Largest head that is read, bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Most header lines of a head.
const MAX_HEADERS: usize = 128;

/// Largest line of a chunk's size with its extensions, or of a trailer, bytes.
const MAX_LINE_BYTES: u32 = 16 << 10;

/// What of an answer's head matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Status code.
    pub status: u16,
    /// How the body is delimited.
    pub framing: Framing,
    /// How the body is compressed.
    pub encoding: Encoding,
    /// Whether the connection may be used again once the body is over.
    pub keep_alive: bool,
    /// How long the server asks to be left alone.
    pub retry_after: Option<Duration>,
    /// `Location`.
    pub location: Option<String>,
}

/// How a body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// By its length in bytes.
    Length(u64),
    /// In chunks.
    Chunked,
    /// By the end of the connection.
    UntilClose,
}

/// How a body is compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// It is not.
    Identity,
    /// `gzip`.
    Gzip,
    /// `deflate`, which is zlib's format.
    Deflate,
    /// Something that we did not ask for and do not know.
    Unknown(String),
}

/// An answer that is no HTTP/1.1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The head.
    #[error("the answer's head is no HTTP/1.1: {0}")]
    Head(String),
    /// The framing of the body.
    #[error("the answer's body is badly framed: {0}")]
    Body(&'static str),
}

/// Reads the head at the beginning of `bytes`: it and its length in bytes, or `None` if it is not all there. Interim
/// answers (1xx) are skipped.
///
/// # Errors
/// If it is no head of HTTP/1.0 or 1.1, or longer than `MAX_HEAD_BYTES`.
pub fn head(bytes: &[u8]) -> Result<Option<(Head, usize)>, Malformed> {
    let mut skipped = 0;
    loop {
        let rest = &bytes[skipped..];
        let mut lines = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut answer = httparse::Response::new(&mut lines);
        match answer.parse(rest).map_err(|e| Malformed::Head(e.to_string()))? {
            httparse::Status::Partial if rest.len() > MAX_HEAD_BYTES => {
                return Err(Malformed::Head(format!("it is longer than {} KiB", MAX_HEAD_BYTES >> 10)));
            }
            httparse::Status::Partial => return Ok(None),
            httparse::Status::Complete(length) => {
                let status = answer.code.unwrap_or(0);
                skipped += length;
                // 101 is no interim answer, and we never ask for it.
                if (100..200).contains(&status) && status != 101 {
                    continue;
                }
                return Ok(Some((read(status, answer.version == Some(0), answer.headers)?, skipped)));
            }
        }
    }
}

fn read(status: u16, old: bool, lines: &[httparse::Header<'_>]) -> Result<Head, Malformed> {
    let mut head = Head {
        status,
        framing: Framing::UntilClose,
        encoding: Encoding::Identity,
        keep_alive: !old,
        retry_after: None,
        location: None,
    };
    let mut length: Option<u64> = None;
    let (mut retry_after, mut date) = (None, None);
    let mut chunked = false;
    for line in lines {
        let value = String::from_utf8_lossy(line.value);
        let value = value.trim();
        let is = |name: &str| line.name.eq_ignore_ascii_case(name);
        if is("transfer-encoding") {
            for coding in value.split(',').map(str::trim).filter(|c| !c.is_empty()) {
                if chunked || !coding.eq_ignore_ascii_case("chunked") {
                    return Err(Malformed::Body("a transfer coding that is not chunked"));
                }
                chunked = true;
            }
        } else if is("content-length") {
            // A list of equal values is one value (RFC 9112, 6.3).
            for one in value.split(',') {
                let n = one.trim().parse::<u64>().map_err(|_| Malformed::Body("a content-length that is no number"))?;
                if length.replace(n).is_some_and(|before| before != n) {
                    return Err(Malformed::Body("two content-lengths that differ"));
                }
            }
        } else if is("connection") {
            for option in value.split(',').map(str::trim) {
                if option.eq_ignore_ascii_case("close") {
                    head.keep_alive = false;
                } else if option.eq_ignore_ascii_case("keep-alive") && old {
                    head.keep_alive = true;
                }
            }
        } else if is("content-encoding") {
            head.encoding = match value.to_ascii_lowercase().as_str() {
                "" | "identity" => Encoding::Identity,
                "gzip" | "x-gzip" => Encoding::Gzip,
                "deflate" => Encoding::Deflate,
                other => Encoding::Unknown(other.to_owned()),
            };
        } else if is("retry-after") {
            retry_after = Some(value.to_owned());
        } else if is("date") {
            date = Some(value.to_owned());
        } else if is("location") {
            head.location = Some(value.to_owned());
        }
    }
    head.framing = match (chunked, length) {
        _ if matches!(status, 204 | 304) => Framing::Length(0),
        (true, _) => Framing::Chunked,
        (false, Some(n)) => Framing::Length(n),
        (false, None) => Framing::UntilClose,
    };
    head.keep_alive &= head.framing != Framing::UntilClose;
    head.retry_after = retry_after.and_then(|r| wait(&r, date.as_deref()));
    Ok(head)
}

/// `Retry-After`: seconds, or an instant, which the answer's own `Date` turns into a wait without a look at our clock.
pub fn wait(retry_after: &str, date: Option<&str>) -> Option<Duration> {
    if let Ok(seconds) = retry_after.trim().parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let instant = |text: &str| jiff::fmt::rfc2822::parse(text.trim()).ok().map(|z| z.timestamp().as_second());
    let seconds = instant(retry_after)?.saturating_sub(instant(date?)?);
    u64::try_from(seconds).ok().map(Duration::from_secs)
}

/// Where a body's bytes are among those of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body(State);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// So many bytes are left.
    Length(u64),
    UntilClose,
    /// In the line of a chunk's size: the value so far, its digits, and whether extensions have begun.
    Size {
        value: u64,
        digits: u8,
        extension: bool,
        seen: u32,
    },
    /// In a chunk: so many bytes are left.
    Data(u64),
    /// Between a chunk's data and the next size.
    DataEnd {
        cr: bool,
    },
    /// In the lines behind the last chunk; whether the line is empty so far.
    Trailer {
        empty: bool,
        seen: u32,
    },
    Over,
}

/// The line of a size, before its first digit.
const SIZE: State = State::Size { value: 0, digits: 0, extension: false, seen: 0 };

impl Body {
    /// A body that is about to begin.
    pub fn new(framing: Framing) -> Body {
        Body(match framing {
            Framing::Length(0) => State::Over,
            Framing::Length(n) => State::Length(n),
            Framing::Chunked => SIZE,
            Framing::UntilClose => State::UntilClose,
        })
    }

    /// Whether all of it has come.
    pub fn is_over(&self) -> bool {
        self.0 == State::Over
    }

    /// Whether the end of the connection ends it as it should.
    pub fn may_end_here(&self) -> bool {
        matches!(self.0, State::UntilClose | State::Over)
    }

    /// Hands the body's bytes among `bytes` to `each`; gives how many of `bytes` belonged to this answer.
    ///
    /// # Errors
    /// If chunks are not framed as they should be.
    pub fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) -> Result<usize, Malformed> {
        let mut at = 0;
        while at < bytes.len() {
            match &mut self.0 {
                State::Over => break,
                State::UntilClose => {
                    each(&bytes[at..]);
                    at = bytes.len();
                }
                State::Length(left) | State::Data(left) => {
                    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len() - at);
                    each(&bytes[at..at + here]);
                    at += here;
                    *left -= here as u64;
                    if *left == 0 {
                        self.0 = match self.0 {
                            State::Data(_) => State::DataEnd { cr: false },
                            _ => State::Over,
                        };
                    }
                }
                _ => {
                    self.0 = self.step(bytes[at])?;
                    at += 1;
                }
            }
        }
        Ok(at)
    }

    /// One byte of the framing itself.
    fn step(&self, byte: u8) -> Result<State, Malformed> {
        let long = |seen: u32| seen >= MAX_LINE_BYTES;
        Ok(match (self.0, byte) {
            (State::Size { digits: 0, .. }, b'\n') => return Err(Malformed::Body("a chunk without a size")),
            (State::Size { value: 0, .. }, b'\n') => State::Trailer { empty: true, seen: 0 },
            (State::Size { value, .. }, b'\n') => State::Data(value),
            (State::Size { seen, .. }, _) if long(seen) => return Err(Malformed::Body("a very long chunk extension")),
            (State::Size { value, digits, extension: false, seen }, b) if b.is_ascii_hexdigit() => {
                if digits == 16 {
                    return Err(Malformed::Body("a chunk of 2^64 bytes or more"));
                }
                let digit = char::from(b).to_digit(16).unwrap_or(0);
                State::Size {
                    value: value << 4 | u64::from(digit),
                    digits: digits + 1,
                    extension: false,
                    seen: seen + 1,
                }
            }
            (State::Size { value, digits: digits @ 1.., extension: false, seen }, b';' | b' ' | b'\t' | b'\r') => {
                State::Size { value, digits, extension: true, seen: seen + 1 }
            }
            (State::Size { value, digits, extension: true, seen }, _) => {
                State::Size { value, digits, extension: true, seen: seen + 1 }
            }
            (State::Size { .. }, _) => return Err(Malformed::Body("a chunk size that is no number")),
            (State::DataEnd { cr: false }, b'\r') => State::DataEnd { cr: true },
            (State::DataEnd { .. }, b'\n') => SIZE,
            (State::DataEnd { .. }, _) => return Err(Malformed::Body("a chunk that is longer than its size")),
            (State::Trailer { empty: true, .. }, b'\n') => State::Over,
            (State::Trailer { seen, .. }, _) if long(seen) => return Err(Malformed::Body("a very long trailer")),
            (State::Trailer { seen, .. }, b'\n') => State::Trailer { empty: true, seen: seen + 1 },
            (State::Trailer { empty, seen }, b'\r') => State::Trailer { empty, seen: seen + 1 },
            (State::Trailer { seen, .. }, _) => State::Trailer { empty: false, seen: seen + 1 },
            (state, _) => state,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head_of(text: &str) -> Head {
        head(text.as_bytes()).unwrap().unwrap().0
    }

    #[test]
    fn heads_say_how_the_body_ends_and_whether_the_connection_stays() {
        for (lines, framing, keep_alive) in [
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n", Framing::Chunked, true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n", Framing::Length(12), true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 12, 12\r\nConnection: Close\r\n\r\n", Framing::Length(12), false),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", Framing::Chunked, true),
            ("HTTP/1.1 200 OK\r\n\r\n", Framing::UntilClose, false),
            ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", Framing::Length(1), false),
            ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\n", Framing::Length(1), true),
            ("HTTP/1.1 204 No Content\r\n\r\n", Framing::Length(0), true),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", Framing::Length(0), true),
        ] {
            let got = head_of(lines);
            assert_eq!((got.framing, got.keep_alive), (framing, keep_alive), "{lines}");
        }
        assert_eq!(head(b"HTTP/1.1 200 OK\r\nContent-Le"), Ok(None));
        for bad in [
            "HTTP/2 200\r\n\r\n",
            "data: x\n\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        ] {
            assert!(head(bad.as_bytes()).is_err(), "{bad}");
        }
        let long = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(MAX_HEAD_BYTES));
        assert!(head(long.as_bytes()).is_err());
    }

    #[test]
    fn retry_after_is_seconds_or_an_instant() {
        let date = Some("Tue, 01 Dec 2026 04:00:00 GMT");
        for (text, date, want) in [
            ("7", None, Some(Duration::from_secs(7))),
            ("0.5", None, Some(Duration::from_millis(500))),
            ("Tue, 01 Dec 2026 04:00:30 GMT", date, Some(Duration::from_secs(30))),
            ("Tue, 01 Dec 2026 03:59:00 GMT", date, None),
            ("Tue, 01 Dec 2026 04:00:30 GMT", None, None),
            ("-3", None, None),
            ("soon", date, None),
        ] {
            assert_eq!(wait(text, date), want, "{text}");
        }
    }

    /// The body's bytes, how many of all were its, and whether it is over.
    fn feed(reads: &[&[u8]]) -> Result<(Vec<u8>, usize, bool), Malformed> {
        let mut body = Body::new(Framing::Chunked);
        let (mut out, mut used) = (Vec::new(), 0);
        for read in reads {
            used += body.feed(read, |b| out.extend_from_slice(b))?;
        }
        Ok((out, used, body.is_over()))
    }

    #[test]
    fn chunks_are_joined_and_their_frames_checked() {
        for (text, body, rest, over) in [
            ("3\r\nabc\r\n0\r\n\r\n", "abc", 0, true),
            ("3;a=\"b\"\r\nabc\r\n00\r\nx: y\r\n\r\nHTTP", "abc", 4, true),
            ("3\nabc\nA \r\n0123456789\r\n0\n\n", "abc0123456789", 0, true),
            ("5\r\nab", "ab", 0, false),
            ("0\r\n", "", 0, false),
        ] {
            let want = (body.as_bytes().to_vec(), text.len() - rest, over);
            assert_eq!(feed(&[text.as_bytes()]).unwrap(), want, "{text:?}");
        }
        for bad in ["\r\n", "g\r\n", "3\r\nabcd", ";x\r\n", "11111111111111111\r\n", "-1\r\n"] {
            assert!(feed(&[bad.as_bytes()]).is_err(), "{bad:?}");
        }
    }

    proptest! {
        /// However chunks are cut into reads, the same body comes out, and what follows it is left alone.
        #[test]
        fn chunks_survive_any_cut(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8),
            cuts in prop::collection::vec(1_usize..9, 1..20),
        ) {
            let mut text = Vec::new();
            for chunk in &chunks {
                text.extend(format!("{:x}\r\n", chunk.len()).bytes());
                text.extend(chunk);
                text.extend(b"\r\n");
            }
            text.extend(b"0\r\n\r\n");
            let whole = text.len();
            text.extend(b"HTTP/1.1 200");
            let mut reads = Vec::new();
            let (mut at, mut k) = (0, 0);
            while at < text.len() {
                let end = (at + cuts[k % cuts.len()]).min(text.len());
                reads.push(&text[at..end]);
                (at, k) = (end, k + 1);
            }
            prop_assert_eq!(feed(&reads).unwrap(), (chunks.concat(), whole, true));
        }
    }
}
