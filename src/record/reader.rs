//! A recording read back: exactly what was held live.

use std::fs;
use std::io::{self, BufRead as _};
use std::path::{Path, PathBuf};

use super::RUN_FILE;
use super::decode::{self, Context, Parsed};
use super::wire::FormatLine;
use crate::model::recording::{FORMAT, Header, Recording};

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened.
    #[error("the recording {} could not be read", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It was written in a format that this version does not know.
    #[error("the recording {} has format `{format}`, expected `{FORMAT}`", .path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// What its header says.
        format: String,
    },
    /// A line cannot be understood.
    #[error("{} line {line}: {what}", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// What was met and what was expected.
        what: String,
    },
    /// It holds no header: it is empty, or its first line was torn.
    #[error("the recording {} is empty: the run ended before its first line was written", .path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Reads the recording in a result folder (or the file itself). A torn last line, as a killed
/// run leaves it, is dropped; a step still open then reaches to the last known instant.
///
/// # Errors
/// If there is no recording, or a line other than the last cannot be understood.
pub fn read(path: &Path) -> Result<Recording, ReadError> {
    let file = if path.is_dir() { path.join(RUN_FILE) } else { path.to_owned() };
    let text = fs::read(&file).map_err(|source| ReadError::Open { path: file.clone(), source })?;
    read_bytes(&text, &file)
}

/// Reads the bytes of a recording; `path` is only for errors.
///
/// # Errors
/// As [`read`].
pub fn read_bytes(text: &[u8], path: &Path) -> Result<Recording, ReadError> {
    // A crash of the machine can leave zero bytes where the file had grown before its data came.
    let text = without_trailing_zeros(text);
    let Some(first) = text.split(|b| *b == b'\n').next().filter(|line| !line.trim_ascii().is_empty()) else {
        return Err(ReadError::Empty { path: path.to_owned() });
    };
    let mut recording = Recording::new(header(first, path)?);
    let body = &text[(first.len() + 1).min(text.len())..];
    let mut context = Context::default();
    let mut line = 1;
    for part in parse_all(body) {
        for parsed in part.lines {
            line += 1;
            let Some(parsed) = parsed else { continue };
            let event = parsed.and_then(|parsed| context.resolve(parsed));
            match event {
                Ok(Some(event)) => recording.apply(event),
                Ok(None) => {}
                Err(what) => return Err(ReadError::Line { path: path.to_owned(), line, what }),
            }
        }
    }
    recording.close();
    Ok(recording)
}

fn without_trailing_zeros(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|b| *b != 0).map_or(0, |n| n + 1);
    &text[..end]
}

fn header(text: &[u8], path: &Path) -> Result<Header, ReadError> {
    let bad = |what: String| ReadError::Line { path: path.to_owned(), line: 1, what };
    let head: FormatLine =
        serde_json::from_slice(text).map_err(|e| bad(format!("expected the header of a recording ({e})")))?;
    if head.header.format != FORMAT {
        return Err(ReadError::Version { path: path.to_owned(), format: head.header.format });
    }
    match decode::line(text) {
        Ok(Parsed::Header(header)) => Ok(*header),
        Ok(_) => Err(bad("expected the header of a recording".into())),
        Err(e) => Err(bad(e)),
    }
}

/// The lines of one part of the file, each read by itself; `None` for a blank or torn one.
struct Part {
    lines: Vec<Option<Result<Parsed, String>>>,
}

/// Below this size one thread is as fast as several; bytes.
const WORTH_A_THREAD: usize = 1 << 20;

/// Reads all lines by themselves, in as many threads as help.
fn parse_all(body: &[u8]) -> Vec<Part> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    let threads = threads.min(body.len() / WORTH_A_THREAD).max(1);
    let mut parts = Vec::with_capacity(threads);
    let mut rest = body;
    for left in (1..=threads).rev() {
        // Cut behind the first newline after an even share.
        let share = rest.len() / left;
        let cut = match rest.get(share..).and_then(|tail| tail.iter().position(|b| *b == b'\n')) {
            Some(n) if left > 1 => share + n + 1,
            _ => rest.len(),
        };
        let (part, tail) = rest.split_at(cut);
        parts.push((part, tail.is_empty()));
        rest = tail;
    }
    std::thread::scope(|scope| {
        let (own, others) = parts.split_first().expect("there is at least one part");
        let others: Vec<_> = others.iter().map(|&(part, last)| scope.spawn(move || parse_part(part, last))).collect();
        let mut read = vec![parse_part(own.0, own.1)];
        for thread in others {
            // A panic there is ours as well: go on panicking.
            read.push(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        read
    })
}

fn parse_part(part: &[u8], last: bool) -> Part {
    let mut lines = Vec::new();
    let mut rest = part;
    while !rest.is_empty() {
        let from = rest;
        let length = rest.skip_until(b'\n').expect("memory can always be read");
        let (text, whole) = match from[..length].split_last() {
            Some((b'\n', text)) => (text, true),
            _ => (from, false),
        };
        lines.push(if text.trim_ascii().is_empty() {
            None
        } else {
            let parsed = decode::line(text);
            // Only a line without its newline can be torn.
            if parsed.is_err() && last && !whole { None } else { Some(parsed) }
        });
    }
    Part { lines }
}
