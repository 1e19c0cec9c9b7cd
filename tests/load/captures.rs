//! Bodies as a real vLLM 0.31 sent them (of those that were killed, the first and the last twelve events), read in one piece and in reads of every awkward size.

use plimsoll::load::stream::{Answer, BodyEnd};
use plimsoll::model::request::{FailureClass, Outcome, RequestTimeline};
use plimsoll::model::time::Offset;

fn read(name: &str, size: usize) -> RequestTimeline {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures/vllm-0.31");
    let bytes = std::fs::read(folder.join(name)).unwrap();
    let mut timeline = RequestTimeline::blank(0);
    let mut answer = Answer::new(None);
    for (i, part) in bytes.chunks(size.min(bytes.len()).max(1)).enumerate() {
        if !answer.read(part, Offset::from_millis(i as u64), &mut timeline) {
            break;
        }
    }
    answer.end(BodyEnd::Whole, Offset::from_millis(1_000_000), &mut timeline);
    timeline
}

#[test]
fn real_streams_end_as_they_did() {
    for size in [1, 7, 64, 4_096, usize::MAX] {
        for (name, class, running, usage) in [
            ("sse-continuous.body", None, true, true),
            ("sse-usage.body", None, false, true),
            ("sse-no-usage.body", None, false, false),
            ("sse-per-request-metrics.body", None, true, true),
            ("kill-TERM.body", Some(FailureClass::Aborted), true, true),
            ("kill-KILL.body", Some(FailureClass::Truncated), true, true),
            ("chat-nonstream.body", Some(FailureClass::NotStreamed), false, true),
        ] {
            let t = read(name, size);
            let got = match &t.outcome {
                Outcome::Failed { class, .. } => Some(*class),
                _ => None,
            };
            assert_eq!(got, class, "{name} in reads of {size}");
            assert_eq!(t.usage.completion_tokens.is_some(), usage, "{name}");
            if class.is_none() {
                assert!(t.chunks.iter().all(|c| c.running_tokens.is_some() == running), "{name}");
                assert_eq!(t.finish_reason.as_deref(), Some("length"), "{name}");
            }
            if running && class.is_none() {
                assert_eq!(t.chunks.last().unwrap().running_tokens, t.usage.completion_tokens, "{name}");
            }
            assert_eq!(t.server.is_some(), name == "sse-per-request-metrics.body", "{name}");
        }
    }
}
