//! A streamed answer: what each read means for the request's timeline, and how it ended.
//!
//! Pure: reads and their stamps go in, the timeline comes out. All events that one read completes
//! take the stamp of that read.

use super::chunk::{Chunk, line, text};
use super::sse::{Cutter, Data};
use super::twin::Twin;
use crate::model::request::{FailureClass, Outcome, RequestTimeline, TokenChunk};
use crate::model::time::Offset;

/// Longest body that is kept when it is no event stream, bytes.
const MAX_PLAIN_BYTES: usize = 1 << 20;

/// The text of an answer, for those who ask for it; measuring needs none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transcript {
    /// Index of the request.
    pub index: u64,
    /// Visible text.
    pub content: String,
    /// Thinking.
    pub reasoning: String,
    /// Whether `[DONE]` came.
    pub done: bool,
}

/// Reads an answer as it arrives.
#[derive(Debug, Default)]
pub struct Answer {
    cutter: Cutter,
    twin: Twin,
    /// The body, while or since it looks like no event stream.
    plain: Option<Vec<u8>>,
    looked: bool,
    done: bool,
    fault: Option<(FailureClass, String)>,
    transcript: Option<Transcript>,
}

/// How the body ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// `[DONE]`, or the end of the body as HTTP frames it.
    Whole,
    /// The transport failed.
    Broken(FailureClass, String),
    /// Nothing came for longer than allowed.
    Silent(std::time::Duration),
}

impl Answer {
    /// A reader; `transcript` asks for the texts to be kept.
    pub fn new(transcript: Option<Transcript>) -> Answer {
        Answer { transcript, ..Answer::default() }
    }

    /// Takes in one read of the body. `false` once the answer is over, be the body at its end or not.
    pub fn read(&mut self, bytes: &[u8], at: Offset, timeline: &mut RequestTimeline) -> bool {
        if bytes.is_empty() || self.done {
            return !self.done;
        }
        timeline.first_byte.get_or_insert(at);
        if !self.looked
            && let Some(first) = bytes.iter().find(|b| !b.is_ascii_whitespace())
        {
            self.looked = true;
            if matches!(first, b'{' | b'[' | b'<') {
                self.plain = Some(Vec::new());
            }
        }
        if let Some(plain) = &mut self.plain {
            let room = MAX_PLAIN_BYTES.saturating_sub(plain.len());
            plain.extend_from_slice(&bytes[..bytes.len().min(room)]);
            return true;
        }
        let Answer { cutter, twin, done, fault, transcript, .. } = self;
        let pushed = cutter.push(bytes, |event| {
            *done = take(&event, at, timeline, fault, twin, transcript.as_mut());
            !*done
        });
        if let Err(e) = pushed {
            fault.get_or_insert((FailureClass::Protocol, e.to_string()));
            return false;
        }
        !self.done
    }

    /// Whether output has begun to come, or the request has failed: then silence is judged more strictly.
    pub fn begun(timeline: &RequestTimeline) -> bool {
        !timeline.chunks.is_empty()
    }

    /// Closes the timeline, and gives the transcript, if one was asked for.
    pub fn end(mut self, how: BodyEnd, at: Offset, timeline: &mut RequestTimeline) -> Option<Transcript> {
        self.close(how, at, timeline);
        self.transcript
    }

    /// The transcript, if one was asked for.
    pub fn into_transcript(self) -> Option<Transcript> {
        self.transcript
    }

    /// Closes the timeline: the body ended that way at `at`.
    pub fn close(&mut self, how: BodyEnd, at: Offset, timeline: &mut RequestTimeline) {
        timeline.finished = at;
        // A last `[DONE]` without its empty line is still one.
        if self.cutter.rest().trim_ascii_end().ends_with(b"[DONE]") {
            self.done = true;
        }
        if let Some(t) = &mut self.transcript {
            t.done = self.done;
        }
        timeline.outcome = match self.verdict(how, timeline) {
            None => Outcome::Completed,
            Some((class, detail)) => Outcome::Failed { class, status: None, detail },
        };
    }

    fn verdict(&mut self, how: BodyEnd, timeline: &mut RequestTimeline) -> Option<(FailureClass, String)> {
        if let Some(fault) = self.fault.take() {
            return Some(fault);
        }
        let ended = self.done || timeline.finish_reason.is_some();
        match how {
            BodyEnd::Silent(limit) if !ended => {
                let detail = format!("nothing arrived for {} s", limit.as_secs_f64());
                return Some((FailureClass::StallTimeout, detail));
            }
            BodyEnd::Broken(class, detail) if !ended => return Some((class, detail)),
            _ => {}
        }
        if let Some(plain) = self.plain.take() {
            return Some(whole_body(&plain, timeline));
        }
        if let Some(reason @ ("abort" | "error")) = timeline.finish_reason.as_deref() {
            return Some((FailureClass::Aborted, format!("finish_reason was {reason}")));
        }
        if !ended {
            let tokens = timeline.chunks.len();
            let detail = format!("the stream ended after {tokens} chunks with neither a finish reason nor [DONE]");
            return Some((FailureClass::Truncated, detail));
        }
        if timeline.chunks.is_empty() {
            return Some((FailureClass::EmptyOutput, "the answer ended without any output".into()));
        }
        None
    }
}

/// Takes in one event; `true` at `[DONE]`.
fn take(
    event: &Data<'_>,
    at: Offset,
    timeline: &mut RequestTimeline,
    fault: &mut Option<(FailureClass, String)>,
    twin: &mut Twin,
    transcript: Option<&mut Transcript>,
) -> bool {
    let data = event.data.trim_ascii();
    if let Some(text) = twin.text(data).filter(|_| event.event.is_empty()) {
        timeline.chunks.push(TokenChunk { at, running_tokens: None });
        timeline.first_answer.get_or_insert(at);
        if let Some(t) = transcript {
            t.content.push_str(text);
        }
        return false;
    }
    if data == b"[DONE]" {
        return true;
    }
    if data.is_empty() {
        return false;
    }
    let chunk = match Chunk::parse(data) {
        Ok(chunk) => chunk,
        Err(e) => {
            let words = line(&String::from_utf8_lossy(data));
            fault.get_or_insert(
                if event.event == "error"
                    || words.to_ascii_lowercase().starts_with(['[', 'e'])
                        && words.to_ascii_lowercase().contains("error")
                {
                    (FailureClass::ErrorInStream, words)
                } else {
                    (FailureClass::Protocol, format!("an event that is no JSON object ({e}): {words}"))
                },
            );
            return false;
        }
    };
    if let Some(words) = chunk.error() {
        fault.get_or_insert((FailureClass::ErrorInStream, words));
        return false;
    }
    if event.event == "error" {
        fault.get_or_insert((FailureClass::ErrorInStream, line(&String::from_utf8_lossy(data))));
        return false;
    }
    timeline.first_chunk.get_or_insert(at);
    let usage = chunk.usage();
    if let Some(u) = usage {
        let seen = &mut timeline.usage;
        seen.prompt_tokens = u.prompt_tokens.or(seen.prompt_tokens);
        seen.completion_tokens = u.completion_tokens.or(seen.completion_tokens);
        seen.cached_tokens = u.cached_tokens.or(seen.cached_tokens);
    }
    twin.learn(data, &chunk);
    if chunk.choices.output {
        let running_tokens = usage.and_then(|u| u.completion_tokens);
        timeline.chunks.push(TokenChunk { at, running_tokens });
        if chunk.choices.answer {
            timeline.first_answer.get_or_insert(at);
        }
        if let Some(t) = transcript {
            let parts = &chunk.choices.first.parts;
            t.content.extend(parts.content.and_then(text));
            t.reasoning.extend(parts.reasoning_content.or(parts.reasoning).and_then(text));
        }
    }
    if let Some(reason) = &chunk.choices.finish_reason {
        timeline.finish_reason = Some(reason.clone().into_owned());
    }
    if let Some(timings) = chunk.timings() {
        timeline.server = Some(timings);
    }
    false
}

/// What a body that is no event stream means.
fn whole_body(body: &[u8], timeline: &mut RequestTimeline) -> (FailureClass, String) {
    match Chunk::parse(body.trim_ascii()) {
        Ok(chunk) => {
            if let Some(words) = chunk.error() {
                return (FailureClass::ErrorInStream, words);
            }
            timeline.usage = chunk.usage().unwrap_or_default();
            timeline.finish_reason = chunk.choices.finish_reason.as_ref().map(|r| r.clone().into_owned());
            let what = if chunk.is_whole() { "one whole answer" } else { "one JSON object" };
            (FailureClass::NotStreamed, format!("{what} came where a stream was asked for"))
        }
        Err(_) => {
            let head = line(&String::from_utf8_lossy(&body[..body.len().min(400)]));
            (FailureClass::Protocol, format!("the body is no event stream: {head}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs reads of (ms, text) through the reader.
    fn answer(reads: &[(u64, &str)], how: BodyEnd) -> RequestTimeline {
        let mut timeline = RequestTimeline::blank(0);
        let mut answer = Answer::new(None);
        let mut last = Offset::ZERO;
        for (ms, text) in reads {
            last = Offset::from_millis(*ms);
            if !answer.read(text.as_bytes(), last, &mut timeline) {
                break;
            }
        }
        answer.end(how, last, &mut timeline);
        timeline
    }

    fn class(t: &RequestTimeline) -> Option<FailureClass> {
        match &t.outcome {
            Outcome::Failed { class, .. } => Some(*class),
            _ => None,
        }
    }

    const A: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    const DONE: &str = "data: [DONE]\n\n";

    #[test]
    fn how_an_answer_ended() {
        let reset = || BodyEnd::Broken(FailureClass::ConnectionReset, "reset by peer".into());
        let silent = || BodyEnd::Silent(std::time::Duration::from_secs(2));
        let error = "data: {\"error\":\"dead\"}\n\n";
        let abort = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"abort\"}]}\n\n";
        for (reads, how, want) in [
            (vec![A, STOP, DONE], BodyEnd::Whole, None),
            (vec![A, STOP], BodyEnd::Whole, None),
            (vec![A, DONE], BodyEnd::Whole, None),
            (vec![A, "data: [DONE]"], BodyEnd::Whole, None),
            (vec![A, STOP], reset(), None),
            (vec![A, STOP], silent(), None),
            (vec![A], BodyEnd::Whole, Some(FailureClass::Truncated)),
            (vec![], BodyEnd::Whole, Some(FailureClass::Truncated)),
            (vec![A], reset(), Some(FailureClass::ConnectionReset)),
            (vec![A], silent(), Some(FailureClass::StallTimeout)),
            (vec![A, error, DONE], BodyEnd::Whole, Some(FailureClass::ErrorInStream)),
            (vec![A, error, STOP, DONE], BodyEnd::Whole, Some(FailureClass::ErrorInStream)),
            (vec![A, "event: error\ndata: dead\n\n"], BodyEnd::Whole, Some(FailureClass::ErrorInStream)),
            (vec![A, "data: [ERROR] out of memory\n\n"], BodyEnd::Whole, Some(FailureClass::ErrorInStream)),
            (vec![A, "data: : ping\n\n", STOP], BodyEnd::Whole, Some(FailureClass::Protocol)),
            (vec![abort, DONE], BodyEnd::Whole, Some(FailureClass::Aborted)),
            (vec![STOP, DONE], BodyEnd::Whole, Some(FailureClass::EmptyOutput)),
            (
                vec!["{\"choices\":[{\"message\":{\"content\":\"a\"}}]}"],
                BodyEnd::Whole,
                Some(FailureClass::NotStreamed),
            ),
            (vec!["{\"error\":{\"message\":\"no\"}}"], BodyEnd::Whole, Some(FailureClass::ErrorInStream)),
            (vec!["<html>gateway</html>"], BodyEnd::Whole, Some(FailureClass::Protocol)),
            (vec!["{\"cho"], reset(), Some(FailureClass::ConnectionReset)),
        ] {
            let timed: Vec<(u64, &str)> = reads.iter().enumerate().map(|(i, r)| (i as u64, *r)).collect();
            assert_eq!(class(&answer(&timed, how)), want, "{reads:?}");
        }
    }

    #[test]
    fn events_take_the_stamp_of_the_read_that_completed_them() {
        let (head, tail) = A.split_at(20);
        let t = answer(&[(5, head), (9, tail), (12, &[A, STOP, DONE].concat())], BodyEnd::Whole);
        let at: Vec<u64> = t.chunks.iter().map(|c| c.at.as_millis()).collect();
        assert_eq!(at, [9, 12]);
        assert_eq!(t.first_byte, Some(Offset::from_millis(5)));
        assert_eq!(t.finished, Offset::from_millis(12));
    }
}
