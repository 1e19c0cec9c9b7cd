//! The doors of `tests/cases.rs`: one for each kind of input.

#![allow(unreachable_pub, reason = "a module of one test binary")]

pub mod datasets;
pub mod gpu;
pub mod metrics;
pub mod records;
pub mod streams;
pub mod tables;

use plimsoll::model::recording::{Event, Header, Recording};
use plimsoll::model::step::{Load, Phase, StepPlan};
use plimsoll::model::time::{ClockKind, Offset, SIMULATED_EPOCH_UNIX_MS};
use plimsoll::rules::{Limits, RuleSet, builtin};

/// A recording with one step of 1 stream, warm-up and measurement in ms; `events` fill it.
pub fn recording(warmup_ms: u64, measured_ms: (u64, u64), events: impl IntoIterator<Item = Event>) -> Recording {
    let mut recording = Recording::new(Header {
        tool_version: "0".into(),
        scenario: "case".into(),
        nonce: "n".into(),
        seed: 1,
        ..Header::blank(ClockKind::Simulated, SIMULATED_EPOCH_UNIX_MS)
    });
    let plan = StepPlan { step: 0, load: Load::Concurrency(1), phase: Phase::Climb, repeat: 0, drain_first: true };
    recording.apply(Event::StepStarted { at: Offset::from_millis(warmup_ms), plan });
    recording.apply(Event::MeasureStarted { at: Offset::from_millis(measured_ms.0), step: 0 });
    for event in events {
        recording.apply(event);
    }
    recording.apply(Event::StepEnded { at: Offset::from_millis(measured_ms.1), step: 0, cut_short: None });
    recording
}

/// The shipped rules at their default limits.
pub fn rules() -> RuleSet {
    RuleSet::load(&builtin::files("vllm", false), &Limits::default(), 1.0).unwrap()
}
