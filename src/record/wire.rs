//! The lines of a recording as they stand on disk, beside the model that the program thinks with.
//!
//! Keys end in their unit. What is absent is unknown; nothing is written as 0 for unknown.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::recording::{Ended, Event, Header, Health, Note, StopReason};
use crate::model::request::{Outcome, RequestTimeline, ServerTimings, TokenChunk, Usage};
use crate::model::sample::{Labels, ScrapeFailure, SourceKind};
use crate::model::step::{CutShort, Load, Phase, StepPlan};
use crate::model::time::Offset;

/// One line: exactly one of the named things, and the arrays that belong to it.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Header>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scrape: Option<Scrape>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_started: Option<StepStarted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measure_started: Option<MeasureStarted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_ended: Option<StepEnded>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<NoteLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndedLine>,
    /// Of a scrape: position in the layout and value, in turn.
    #[serde(skip_serializing)]
    pub changed: Vec<Number>,
    /// Of a request: offset of the first output chunk, then the gaps, µs.
    #[serde(skip_serializing)]
    pub chunks_us: Vec<i64>,
    /// Of a request: how the running token count grew with each chunk.
    #[serde(skip_serializing)]
    pub growth: Option<Growth>,
}

/// Only the head of a header: read first, so that another format is named before its fields fail.
#[derive(Deserialize)]
pub(super) struct FormatLine {
    pub header: FormatOnly,
}

#[derive(Deserialize)]
pub(super) struct FormatOnly {
    pub format: String,
}

/// A label set and the number that stands for it from here on.
#[derive(Serialize, Deserialize)]
pub(super) struct Series {
    pub id: u32,
    pub labels: BTreeMap<String, String>,
}

impl Series {
    pub(super) fn new(id: u32, labels: &Labels) -> Series {
        Series { id, labels: labels.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect() }
    }
}

/// Which series a page holds, in the order of the page.
#[derive(Serialize, Deserialize)]
pub(super) struct Layout {
    pub id: u32,
    pub series: Vec<u32>,
}

/// One reading of a page, without its values.
#[derive(Serialize, Deserialize)]
pub(super) struct Scrape {
    pub source: SourceKind,
    pub target: u32,
    pub sent_us: Offset,
    pub received_us: Offset,
    /// Of a good scrape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<u32>,
    /// Of a failed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<ScrapeFailure>,
}

/// A number, or one of `"NaN"`, `"+Inf"`, `"-Inf"`.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Number {
    Plain(f64),
    Word(String),
}

impl Number {
    pub(super) fn value(&self) -> Option<f64> {
        match self {
            Number::Plain(v) => Some(*v),
            Number::Word(w) if w == "NaN" => Some(f64::NAN),
            Number::Word(w) if w == "+Inf" => Some(f64::INFINITY),
            Number::Word(w) if w == "-Inf" => Some(f64::NEG_INFINITY),
            Number::Word(_) => None,
        }
    }
}

/// How the running token count grew.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Growth {
    /// By this much with every chunk.
    Even(i64),
    /// Chunk by chunk; `null` where the chunk carried no count.
    Each(Vec<Option<i64>>),
}

#[derive(Serialize, Deserialize)]
pub(super) struct StepStarted {
    pub at_us: Offset,
    pub step: u32,
    pub load: Load,
    pub phase: Phase,
    pub repeat: u32,
    pub drain_first: bool,
}

#[derive(Serialize, Deserialize)]
pub(super) struct MeasureStarted {
    pub at_us: Offset,
    pub step: u32,
}

#[derive(Serialize, Deserialize)]
pub(super) struct StepEnded {
    pub at_us: Offset,
    pub step: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_short: Option<CutShort>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct HealthLine {
    pub at_us: Offset,
    #[serde(flatten)]
    pub readings: Health,
}

#[derive(Serialize, Deserialize)]
pub(super) struct NoteLine {
    pub at_us: Offset,
    pub code: String,
    pub says: String,
}

#[derive(Serialize, Deserialize)]
pub(super) struct EndedLine {
    pub at_us: Offset,
    pub reason: StopReason,
}

/// One request without its chunks.
#[derive(Serialize, Deserialize)]
pub(super) struct Request {
    pub step: u32,
    pub index: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_us: Option<Offset>,
    pub sent_us: Offset,
    /// Nanoseconds, since it is the one duration that is measured and not derived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers_us: Option<Offset>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_us: Option<Offset>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_chunk_us: Option<Offset>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_answer_us: Option<Offset>,
    pub finished_us: Offset,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerTimings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_prompt_tokens: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_output_tokens: Option<u32>,
    pub outcome: Outcome,
}

impl Request {
    pub(super) fn new(r: &RequestTimeline) -> Request {
        Request {
            step: r.step,
            index: r.index,
            due_us: r.due,
            sent_us: r.sent,
            connect_ns: r.connect.map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
            headers_us: r.headers,
            first_byte_us: r.first_byte,
            first_chunk_us: r.first_chunk,
            first_answer_us: r.first_answer,
            finished_us: r.finished,
            finish_reason: r.finish_reason.clone(),
            prompt_tokens: r.usage.prompt_tokens,
            completion_tokens: r.usage.completion_tokens,
            cached_tokens: r.usage.cached_tokens,
            server: r.server,
            asked_prompt_tokens: r.asked_prompt_tokens,
            asked_output_tokens: r.asked_output_tokens,
            outcome: r.outcome.clone(),
        }
    }

    pub(super) fn with_chunks(self, chunks: Vec<TokenChunk>) -> RequestTimeline {
        RequestTimeline {
            step: self.step,
            index: self.index,
            due: self.due_us,
            sent: self.sent_us,
            connect: self.connect_ns.map(Duration::from_nanos),
            headers: self.headers_us,
            first_byte: self.first_byte_us,
            first_chunk: self.first_chunk_us,
            first_answer: self.first_answer_us,
            chunks,
            finished: self.finished_us,
            finish_reason: self.finish_reason,
            usage: Usage {
                prompt_tokens: self.prompt_tokens,
                completion_tokens: self.completion_tokens,
                cached_tokens: self.cached_tokens,
            },
            server: self.server,
            asked_prompt_tokens: self.asked_prompt_tokens,
            asked_output_tokens: self.asked_output_tokens,
            outcome: self.outcome,
        }
    }
}

impl Line {
    /// The line of an event that is no scrape and no request.
    pub(super) fn of_mark(event: &Event) -> Line {
        let mut line = Line::default();
        match event {
            Event::StepStarted { at, plan } => {
                line.step_started = Some(StepStarted {
                    at_us: *at,
                    step: plan.step,
                    load: plan.load,
                    phase: plan.phase,
                    repeat: plan.repeat,
                    drain_first: plan.drain_first,
                });
            }
            Event::MeasureStarted { at, step } => {
                line.measure_started = Some(MeasureStarted { at_us: *at, step: *step });
            }
            Event::StepEnded { at, step, cut_short } => {
                line.step_ended = Some(StepEnded { at_us: *at, step: *step, cut_short: *cut_short });
            }
            Event::Health(h) => {
                line.health = Some(HealthLine { at_us: h.at, readings: h.clone() });
            }
            Event::Note(n) => {
                line.note = Some(NoteLine { at_us: n.at, code: n.code.clone(), says: n.says.clone() });
            }
            Event::Ended(e) => line.ended = Some(EndedLine { at_us: e.at, reason: e.reason }),
            Event::Request(_) | Event::Scrape(_) => unreachable!("the encoder writes these itself"),
        }
        line
    }

    /// The event of such a line; `None` if it is none of those.
    pub(super) fn mark(self) -> Option<Event> {
        if let Some(s) = self.step_started {
            let plan =
                StepPlan { step: s.step, load: s.load, phase: s.phase, repeat: s.repeat, drain_first: s.drain_first };
            return Some(Event::StepStarted { at: s.at_us, plan });
        }
        if let Some(s) = self.measure_started {
            return Some(Event::MeasureStarted { at: s.at_us, step: s.step });
        }
        if let Some(s) = self.step_ended {
            return Some(Event::StepEnded { at: s.at_us, step: s.step, cut_short: s.cut_short });
        }
        if let Some(h) = self.health {
            return Some(Event::Health(Health { at: h.at_us, ..h.readings }));
        }
        if let Some(n) = self.note {
            return Some(Event::Note(Note { at: n.at_us, code: n.code, says: n.says }));
        }
        self.ended.map(|e| Event::Ended(Ended { at: e.at_us, reason: e.reason }))
    }
}
