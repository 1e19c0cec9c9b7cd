//! A streamed answer: never a panic, and however its bytes are cut into reads, the same comes out.

#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll::load::stream::{Answer, BodyEnd, Transcript};
use plimsoll::load::wire::http1::{self, Body, Framing};
use plimsoll::model::request::RequestTimeline;
use plimsoll::model::time::Offset;

/// What a body comes to, read in pieces of so many bytes.
fn read(body: &[u8], piece: usize) -> (RequestTimeline, Option<Transcript>) {
    let mut timeline = RequestTimeline::blank(0);
    let mut answer = Answer::new(Some(Transcript::default()));
    // One stamp for all, so that only what was read can differ.
    let at = Offset::from_millis(1);
    for bytes in body.chunks(piece.max(1)) {
        if !answer.read(bytes, at, &mut timeline) {
            break;
        }
    }
    let transcript = answer.end(BodyEnd::Whole, at, &mut timeline);
    (timeline, transcript)
}

/// What the framing makes of bytes, read in pieces of so many.
fn frame(bytes: &[u8], piece: usize) -> Result<(Vec<u8>, bool), String> {
    let mut body = Body::new(Framing::Chunked);
    let mut out = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        body.feed(piece, |b| out.extend_from_slice(b)).map_err(|e| e.to_string())?;
    }
    Ok((out, body.is_over()))
}

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = (usize::from(input.0 % 17) + 1, input.1);
    let whole = read(bytes, bytes.len());
    let pieces = read(bytes, piece);
    assert_eq!(whole, pieces);
    let _ = http1::head(bytes);
    assert_eq!(frame(bytes, bytes.len()), frame(bytes, piece));
});
