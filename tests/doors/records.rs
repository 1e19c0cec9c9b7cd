//! Given request records: become timelines, and go through the analysis.

use plimsoll::analyze;
use plimsoll::model::recording::Event;
use plimsoll::model::request::{FailureClass, Outcome, RequestTimeline, TokenChunk};
use plimsoll::model::time::Offset;
use plimsoll::model::verdict::{AlertState, Quantiles};
use plimsoll::scenario::Scenario;
use serde_json::Value;

use super::{recording, rules};
use crate::{Case, Faults, shape};

/// One record as the timeline that it stands for: the first token at its time, the rest evenly up to the last.
fn timeline(record: &Value) -> RequestTimeline {
    let number = |key: &str| record[key].as_f64();
    let at = |ms: f64| Offset((ms * 1e3).round() as u64);
    let start = number("start_ms").unwrap();
    let mut t = RequestTimeline::blank(record["id"].as_u64().unwrap());
    t.sent = at(start);
    t.finished = at(number("end_ms").unwrap());
    if let (Some(first), Some(last), Some(n)) = (number("ttft_ms"), number("last_token_ms"), number("tokens")) {
        let gap = if n > 1.0 { (last - first) / (n - 1.0) } else { 0.0 };
        let chunk = |i: u32| TokenChunk { at: at(start + first + gap * f64::from(i)), running_tokens: Some(i + 1) };
        t.chunks = (0..n as u32).map(chunk).collect();
        t.usage.completion_tokens = Some(n as u32);
    }
    t.outcome = match record["outcome"].as_str() {
        Some("ok") => Outcome::Completed,
        _ => Outcome::Failed { class: FailureClass::HttpStatus, status: Some(500), detail: "recorded".into() },
    };
    t
}

pub fn check(case: &Case, file: &str, faults: &mut Faults) {
    let name = &case.name;
    let records: Vec<Value> = case.read(file).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let timelines: Vec<RequestTimeline> = records.iter().map(timeline).collect();
    let last = timelines.iter().map(|t| t.finished.as_millis()).max().unwrap() + 1;
    let setting = |key: &str| case.object("settings").get(key).and_then(Value::as_u64);
    let window = (setting("measure_from_ms").unwrap_or(0), setting("measure_to_ms").unwrap_or(last));
    let judge = |window: (u64, u64)| {
        let events = timelines.iter().cloned().map(Event::Request);
        analyze::verdict(&recording(0, window, events), &Scenario::default(), &rules())
    };
    let verdict = judge(window);
    let step = &verdict.steps[0];
    let all = judge((0, last));
    let ttft = |q: &Quantiles, faults: &mut Faults, key: &str, want: &Value| {
        faults.check(name, &format!("{key}.n"), q.n, want["n"].as_u64().unwrap());
        for (p, got) in [("p50", q.p50), ("p90", q.p90), ("p99", q.p99)] {
            faults.close(name, &format!("{key}.{p}"), got.map(|s| s * 1e3), want[p]["linear"].as_f64(), 1e-6);
        }
    };
    let quantiles = &step.client.ttft_s;
    for (key, want) in &case.expect() {
        match shape(key).as_str() {
            "ok" => faults.check(name, key, step.requests.completed, want.as_u64().unwrap()),
            "failed" => faults.check(name, key, step.requests.failed.total, want.as_u64().unwrap()),
            "failure_share" => faults.close(name, key, step.client.error_rate_ratio, want.as_f64(), 1e-9),
            "ttft_ms_success" | "ttft_ms" => ttft(quantiles, faults, key, want),
            "measured_requests" => faults.check(name, key, step.requests.sent, want.as_u64().unwrap()),
            "ttft_ms_if_all_were_kept_p#" => {
                faults.close(name, key, all.steps[0].client.ttft_s.p99.map(|s| s * 1e3), want["linear"].as_f64(), 1e-6);
            }
            "overlapping_warmup_requests_left_out" => {
                let from = Offset::from_millis(window.0);
                let left_out = timelines.iter().filter(|t| t.sent < from && t.finished > from).count() as u64;
                faults.check(name, key, left_out, want.as_u64().unwrap());
                faults.check(name, "sent in the warm-up", step.requests.sent < timelines.len() as u64, true);
            }
            // Failing fast must not pass: our alert counts a failed request as a miss of the target.
            "p#_over_all_requests" => {
                faults.check(name, key, want.as_str(), Some("unbounded"));
                let alert = step.alerts.iter().find(|a| a.alert == "ClientErrors").unwrap();
                // The records span ten seconds, too short for the rule's window: that is no pass either.
                let passes = matches!(alert.state, AlertState::Quiet | AlertState::Pending);
                faults.check(name, &format!("ClientErrors passes ({:?})", alert.because), passes, false);
            }
            "p#_note" => {}
            other => faults.0.push(format!("{name}: {other} is not checked for records")),
        }
    }
}
