//! Streams: the real client against a scripted server under the paused clock, where the expected times are exact.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll::load::stream::Transcript;
use plimsoll::load::{LoadOptions, Loader, Target, TargetSpec};
use plimsoll::model::recording::Event;
use plimsoll::model::request::{Outcome, RequestTimeline};
use plimsoll::model::step::Load;
use plimsoll::model::time::{Clock, ClockKind};
use plimsoll::workload::{Calibration, FixedSpec, Workload, WorkloadSpec};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::scripted::{self, Answer, Script};
use crate::{Case, Faults};

/// What a drive of the real client gave.
struct Driven {
    requests: Vec<RequestTimeline>,
    transcripts: BTreeMap<u64, Transcript>,
    log: scripted::Log,
    duration_ms: f64,
}

fn script(case: &Case) -> Script {
    let http = case.object("http");
    let answer = |plan: &Map<String, Value>, stream: Option<&str>| Answer {
        status: plan.get("status").and_then(Value::as_u64).unwrap_or(200) as u16,
        headers: plan
            .get("headers")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(n, v)| (n.clone(), v.as_str().unwrap().to_owned()))
            .collect(),
        framing: plan.get("framing").and_then(Value::as_str).unwrap_or("chunked").to_owned(),
        headers_at: Duration::from_millis(plan.get("headers_at_ms").and_then(Value::as_u64).unwrap_or(0)),
        lines: stream.map(|file| scripted::lines(&case.read(file))).unwrap_or_default(),
    };
    let answers = match http.get("requests").and_then(Value::as_array) {
        Some(plans) => plans.iter().map(|p| answer(p.as_object().unwrap(), p["stream"].as_str())).collect(),
        None => vec![answer(&http, case.input("stream").as_ref().and_then(Value::as_str))],
    };
    Script { answers, cycle: http.get("cycle") == Some(&Value::Bool(true)), ..Script::default() }
}

/// Drives the real client against the case's script under the paused clock.
fn drive(case: &Case) -> Driven {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (url, log) = scripted::serve(script(case)).await;
        let settings = case.object("settings");
        let drive = case.object("drive");
        let number = |map: &Map<String, Value>, key: &str| map.get(key).and_then(Value::as_f64);
        let mut spec = TargetSpec { url, model: Some("replay-model".into()), ..TargetSpec::default() };
        if let Some(s) = number(&settings, "idle_timeout_s") {
            spec.idle_timeout = Duration::from_secs_f64(s);
        }
        // Nothing is ever retried; a case that wants retries cannot be played.
        assert_eq!(number(&drive, "retries").unwrap_or(0.0), 0.0, "{}", case.name);
        let clock = Clock::start(ClockKind::Simulated);
        let mut target = Target::unprobed(&spec, |_| None, &[]).unwrap();
        let (transcripts, mut texts) = mpsc::unbounded_channel();
        target.transcripts = Some(transcripts);
        let fixed = FixedSpec { input_tokens: 64, output_tokens: number(&drive, "max_tokens").unwrap_or(16.0) as u32 };
        let workload =
            Workload::new(&WorkloadSpec::Fixed(fixed), 1, &case.name, Calibration::one_token_words(10)).unwrap();
        let (events, mut seen) = mpsc::unbounded_channel();
        let requests = number(&drive, "requests").unwrap_or(1.0) as u64;
        let concurrency = number(&drive, "concurrency").unwrap_or(1.0) as u32;
        let options = LoadOptions { max_requests: Some(requests), ..LoadOptions::default() };
        let mut loader = Loader::new(Arc::new(target), Arc::new(workload), clock, events, options);
        loader.raise_to(0, Load::Concurrency(concurrency), Duration::ZERO);
        loader.finish().await;
        assert_eq!(loader.stop().await, 0, "{}: requests were left", case.name);
        drop(loader);
        let mut requests = Vec::new();
        while let Some(event) = seen.recv().await {
            if let Event::Request(r) = event {
                requests.push(r);
            }
        }
        let mut transcripts = BTreeMap::new();
        while let Ok(t) = texts.try_recv() {
            transcripts.insert(t.index, t);
        }
        let end = requests.iter().map(|r| r.finished).max().unwrap_or_default();
        let log = log.lock().unwrap().clone();
        Driven { requests, transcripts, log, duration_ms: end.as_secs_f64() * 1e3 }
    })
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

fn class(r: &RequestTimeline) -> Option<&'static str> {
    match &r.outcome {
        Outcome::Failed { class, .. } => Some(class.as_str()),
        _ => None,
    }
}

/// What is marked about an answer.
fn flags(r: &RequestTimeline, transcript: Option<&Transcript>) -> BTreeSet<&'static str> {
    let mut flags = BTreeSet::new();
    if r.completed() {
        for (name, set) in [
            (
                "tokens_per_chunk_not_1",
                r.tokens_differ_from_chunks() && r.chunks.iter().any(|c| c.running_tokens.is_none()),
            ),
            ("coalesced_reads", r.coalesced()),
            ("buffered_stream", r.buffered()),
            ("no_usage", r.usage.completion_tokens.is_none()),
            ("no_done", transcript.is_some_and(|t| !t.done)),
        ] {
            if set {
                flags.insert(name);
            }
        }
    }
    flags
}

/// Plays one case and checks everything that it expects.
pub fn check(case: &Case, faults: &mut Faults) {
    let got = drive(case);
    let expect = case.expect();
    let name = &case.name;
    if case.spec.contains_key("drive") {
        check_drive(faults, case, &got);
        return;
    }
    let r = &got.requests[0];
    let text = got.transcripts.get(&r.index);
    let since = |at: Option<plimsoll::model::time::Offset>| at.map(|at| ms(at.since(r.sent)));
    let list = |durations: Vec<Duration>| durations.into_iter().map(ms).collect::<Vec<f64>>();
    let numbers = |v: &Value| v.as_array().map(|a| a.iter().map(|n| n.as_f64().unwrap()).collect::<Vec<f64>>());
    for (key, want) in &expect {
        match key.as_str() {
            "outcome" => faults.check(name, key, if r.completed() { "ok" } else { "failed" }, want.as_str().unwrap()),
            "error_class" => faults.check(name, key, class(r), want.as_str()),
            "error_message_contains" => match &r.outcome {
                Outcome::Failed { detail, .. } if detail.contains(want.as_str().unwrap()) => {}
                other => faults.check(name, key, format!("{other:?}"), want.to_string()),
            },
            "finish_reason" => faults.check(name, key, r.finish_reason.as_deref(), want.as_str()),
            "tokens" => faults.check(name, key, u64::from(r.output_tokens()), want.as_u64().unwrap()),
            "token_source" => {
                let source = if r.usage.completion_tokens.is_some() { "usage" } else { "chunks" };
                faults.check(name, key, source, want.as_str().unwrap());
            }
            "partial_tokens" => faults.check(name, key, r.chunks.len() as u64, want.as_u64().unwrap()),
            "ttft_ms" => faults.close(name, key, r.ttft().map(ms), want.as_f64(), 1e-9),
            "first_answer_token_ms" => faults.close(name, key, since(r.first_answer), want.as_f64(), 1e-9),
            "last_token_ms" => faults.close(name, key, since(r.last_token()), want.as_f64(), 1e-9),
            "stream_end_ms" => faults.close(name, key, since(Some(r.finished)), want.as_f64(), 1e-9),
            "request_ends_between_ms" => {
                let (range, end) = (numbers(want).unwrap(), since(Some(r.finished)).unwrap());
                faults.check(name, &format!("{key}: {end}"), range[0] <= end && end <= range[1], true);
            }
            "chunk_gaps_ms" => faults.check(name, key, Some(list(r.gaps().collect())), numbers(want)),
            "itl_ms" => faults.check(name, key, r.itl().map(list), numbers(want)),
            // Ours marks coalesced reads and gives no time per token for them.
            "itl_ms_if_spread" => faults.check(name, key, (r.itl(), r.coalesced()), (None, true)),
            "itl_slo_verdict" => {
                faults.check(
                    name,
                    key,
                    if r.itl().is_none() { "not measurable" } else { "measurable" },
                    want.as_str().unwrap(),
                );
            }
            "tpot_ms" => faults.close(name, key, r.tpot().map(ms), want.as_f64(), 5e-5),
            "text" => faults.check(name, key, text.map(|t| t.content.as_str()), want.as_str()),
            "text_chars" => {
                faults.check(name, key, text.map(|t| t.content.chars().count() as u64), want.as_u64());
            }
            "reasoning" => faults.check(name, key, text.map(|t| t.reasoning.as_str()), want.as_str()),
            "flags" => {
                let want: BTreeSet<&str> = want.as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
                let got = flags(r, text);
                // Where counts do not match chunks that are coalesced, both are true, and either is said.
                faults.check(name, key, want.difference(&got).count(), 0);
            }
            other => faults.0.push(format!("{name}: {other} is not checked for a stream")),
        }
    }
    faults.check(name, "posts", got.log.posts, 1);
    if !expect.contains_key("flags") && r.completed() {
        faults.check(name, "flags", flags(r, text), BTreeSet::new());
    }
}

fn check_drive(faults: &mut Faults, case: &Case, got: &Driven) {
    let name = &case.name;
    let expect = case.expect();
    let ok: Vec<&RequestTimeline> = got.requests.iter().filter(|r| r.completed()).collect();
    let counts = |each: &mut dyn Iterator<Item = String>| {
        let mut map: BTreeMap<String, u64> = BTreeMap::new();
        for key in each {
            *map.entry(key).or_default() += 1;
        }
        map
    };
    let object = |v: &Value| {
        v.as_object().unwrap().iter().map(|(k, v)| (k.clone(), v.as_u64().unwrap())).collect::<BTreeMap<String, u64>>()
    };
    let tolerance = case.object("tolerance_ms").get("gap").and_then(Value::as_f64).unwrap_or(0.0);
    for (key, want) in &expect {
        match key.as_str() {
            "ok" => faults.check(name, key, ok.len() as u64, want.as_u64().unwrap()),
            "failed" => faults.check(name, key, (got.requests.len() - ok.len()) as u64, want.as_u64().unwrap()),
            "by_class" => {
                let classes = counts(&mut got.requests.iter().filter_map(class).map(str::to_owned));
                faults.check(name, key, classes, object(want));
            }
            "by_finish" => {
                let finishes = counts(&mut ok.iter().filter_map(|r| r.finish_reason.clone()));
                faults.check(name, key, finishes, object(want));
            }
            "ttft_ms_each_ok" => {
                let each: Vec<Option<f64>> = ok.iter().map(|r| r.ttft().map(ms)).collect();
                let want: Vec<Option<f64>> = want.as_array().unwrap().iter().map(Value::as_f64).collect();
                faults.check(name, key, each, want);
            }
            "ttft_ms" => {
                for r in &ok {
                    faults.close(name, key, r.ttft().map(ms), want.as_f64(), 1e-9);
                }
            }
            "tokens_each" => {
                faults.check(name, key, ok.iter().all(|r| Some(u64::from(r.output_tokens())) == want.as_u64()), true);
            }
            "tokens_total" => {
                faults.check(name, key, ok.iter().map(|r| u64::from(r.output_tokens())).sum(), want.as_u64().unwrap());
            }
            "tokens_mean" => {
                let total: u32 = ok.iter().map(|r| r.output_tokens()).sum();
                faults.close(name, key, Some(f64::from(total) / ok.len() as f64), want.as_f64(), 1e-9);
            }
            "stopped_early" => {
                let early = ok.iter().filter(|r| Some(r.output_tokens()) < r.asked_output_tokens).count() as u64;
                faults.check(name, key, early, want.as_u64().unwrap());
                let asked =
                    got.log.bodies.iter().all(|b| b["ignore_eos"] == true && b["min_tokens"] == b["max_tokens"]);
                faults.check(name, "the exact length was asked for", asked, true);
            }
            "server_posts" => faults.check(name, key, got.log.posts as u64, want.as_u64().unwrap()),
            "server_max_inflight" => faults.check(name, key, got.log.max_in_flight as u64, want.as_u64().unwrap()),
            "distinct_prompt_head_sha" => {
                let heads: BTreeSet<String> = got
                    .log
                    .bodies
                    .iter()
                    .map(|b| b["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap())
                    .map(|text| text.chars().take(64).collect())
                    .collect();
                faults.check(name, key, heads.len() as u64, want.as_u64().unwrap());
            }
            "stage_duration_ms_about" => faults.close(name, key, Some(got.duration_ms), want.as_f64(), tolerance),
            other => faults.0.push(format!("{name}: {other} is not checked for a drive")),
        }
    }
}
