//! The scripted cases in `tests/cases`, each made from public reports of faults in tools of this kind.
//!
//! Every value under `expect` is checked, through one door per kind of input: streams drive the real client
//! against a scripted server under the paused clock, so that the expected times are exact; tables go through the
//! URL code, data sets through the workload's loader, pages through the real poller and the shipped rules, records through the
//! analysis, GPU readings through a scripted source. [`KEYS`] is the closed list of what
//! may stand under `expect`, `settings` and `drive`; a key that it lacks is a failure. Further folders of cases are
//! taken from the directories named in `PLIMSOLL_EXTRA_CASES`, separated by colons.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod doors;
mod scripted;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plimsoll::load::stream::Transcript;
use plimsoll::load::{BaseUrl, LoadOptions, Loader, Target, TargetSpec};
use plimsoll::model::recording::Event;
use plimsoll::model::request::{Outcome, RequestTimeline};
use plimsoll::model::step::Load;
use plimsoll::model::time::{Clock, ClockKind};
use plimsoll::workload::{Calibration, FixedSpec, Workload, WorkloadSpec, dataset};
use scripted::{Answer, Script};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

/// Where a key is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    /// One answer of the client.
    Stream,
    /// Several requests of the client.
    Drive,
    /// The metrics page.
    Metrics,
    /// Statistics of given records.
    Records,
    /// The GPU source.
    Gpu,
    /// The URL code.
    Table,
    /// The data set's loader.
    Dataset,
    /// Says how the case is run.
    Setting,
    /// For readers.
    Prose,
}

/// Every key that may stand under `expect` (digits as `#`), `settings` or `drive`, and where it is checked.
const KEYS: &[(&str, Door)] = &[
    ("outcome", Door::Stream),
    ("error_class", Door::Stream),
    ("error_message_contains", Door::Stream),
    ("finish_reason", Door::Stream),
    ("tokens", Door::Stream),
    ("token_source", Door::Stream),
    ("partial_tokens", Door::Stream),
    ("ttft_ms", Door::Stream),
    ("first_answer_token_ms", Door::Stream),
    ("last_token_ms", Door::Stream),
    ("stream_end_ms", Door::Stream),
    ("request_ends_between_ms", Door::Stream),
    ("chunk_gaps_ms", Door::Stream),
    ("itl_ms", Door::Stream),
    ("itl_ms_if_spread", Door::Stream),
    ("itl_slo_verdict", Door::Stream),
    ("tpot_ms", Door::Stream),
    ("text", Door::Stream),
    ("text_chars", Door::Stream),
    ("reasoning", Door::Stream),
    ("flags", Door::Stream),
    ("ok", Door::Drive),
    ("failed", Door::Drive),
    ("by_class", Door::Drive),
    ("by_finish", Door::Drive),
    ("ttft_ms_each_ok", Door::Drive),
    ("tokens_each", Door::Drive),
    ("tokens_total", Door::Drive),
    ("tokens_mean", Door::Drive),
    ("stopped_early", Door::Drive),
    ("server_posts", Door::Drive),
    ("server_max_inflight", Door::Drive),
    ("distinct_prompt_head_sha", Door::Drive),
    ("stage_duration_ms_about", Door::Drive),
    ("requests", Door::Setting),
    ("concurrency", Door::Setting),
    ("max_tokens", Door::Setting),
    ("distinct_prompts", Door::Setting),
    ("retries", Door::Setting),
    ("idle_timeout_s", Door::Setting),
    ("rows", Door::Table),
    ("v#_v#_requests", Door::Table),
    ("lines", Door::Dataset),
    ("usable_lines", Door::Dataset),
    ("bad_lines", Door::Dataset),
    ("blank_lines", Door::Dataset),
    ("duplicate_of_line_#", Door::Dataset),
    ("longer_than_max_model_len", Door::Dataset),
    ("prompts", Door::Dataset),
    ("metric_used", Door::Metrics),
    ("alerts", Door::Metrics),
    ("waiting_total_at_#s", Door::Metrics),
    ("kv_max_at_#s", Door::Metrics),
    ("preemptions_increase_total", Door::Metrics),
    ("generation_tokens_increase_total", Door::Metrics),
    ("restart_seen_at_s", Door::Metrics),
    ("never", Door::Metrics),
    ("samples", Door::Metrics),
    ("labels_of_waiting", Door::Metrics),
    ("ttft_buckets", Door::Metrics),
    ("sample_lines", Door::Metrics),
    ("parse_errors", Door::Metrics),
    ("scrapes_ok", Door::Metrics),
    ("scrapes_failed", Door::Metrics),
    ("failure_classes", Door::Metrics),
    ("load_delayed_ms_max", Door::Metrics),
    ("prefix_cache_hit_share_in_run", Door::Metrics),
    ("warning", Door::Metrics),
    ("scrape_timeout_s", Door::Setting),
    ("failure_share", Door::Records),
    ("ttft_ms_success", Door::Records),
    ("p#_over_all_requests", Door::Records),
    ("measured_requests", Door::Records),
    ("ttft_ms_if_all_were_kept_p#", Door::Records),
    ("overlapping_warmup_requests_left_out", Door::Records),
    ("warmup_s", Door::Setting),
    ("measure_from_ms", Door::Setting),
    ("measure_to_ms", Door::Setting),
    ("utilization_gpu_pct", Door::Gpu),
    ("power_w", Door::Gpu),
    ("temperature_c", Door::Gpu),
    ("memory_used_bytes", Door::Gpu),
    ("fan_pct", Door::Gpu),
    ("unsupported_fields", Door::Gpu),
    ("exit_code_effect", Door::Gpu),
    ("note_#", Door::Prose),
    ("p#_note", Door::Prose),
];

/// One case's folder.
struct Case {
    name: String,
    folder: PathBuf,
    spec: Map<String, Value>,
}

impl Case {
    fn object(&self, key: &str) -> Map<String, Value> {
        self.spec.get(key).and_then(Value::as_object).cloned().unwrap_or_default()
    }

    fn input(&self, key: &str) -> Option<Value> {
        self.object("inputs").get(key).cloned()
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.join(file)).unwrap_or_else(|e| panic!("{}: {file}: {e}", self.name))
    }

    /// The expected values that belong to one door; for a stream also those that share a name with another's.
    fn expect(&self) -> Map<String, Value> {
        self.object("expect")
    }
}

fn cases() -> Vec<Case> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let extra = std::env::var("PLIMSOLL_EXTRA_CASES").unwrap_or_default();
    let roots = std::iter::once(own).chain(extra.split(':').filter(|r| !r.is_empty()).map(PathBuf::from));
    let mut all = Vec::new();
    for root in roots {
        let folders = std::fs::read_dir(&root).unwrap_or_else(|e| panic!("{}: {e}", root.display()));
        let mut folders: Vec<PathBuf> = folders.map(|f| f.unwrap().path()).collect();
        folders.push(root);
        folders.sort();
        for folder in folders.into_iter().filter(|f| f.join("case.json").exists()) {
            let text = std::fs::read_to_string(folder.join("case.json")).unwrap();
            let spec = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
            all.push(Case { name: folder.file_name().unwrap().to_string_lossy().into_owned(), folder, spec });
        }
    }
    assert!(all.len() >= 32, "{} cases", all.len());
    all
}

/// A key with its digits replaced, as [`KEYS`] has it.
fn shape(key: &str) -> String {
    let mut out = String::new();
    for c in key.chars() {
        match (c.is_ascii_digit(), out.ends_with('#')) {
            (true, true) => {}
            (true, false) => out.push('#'),
            (false, _) => out.push(c),
        }
    }
    out
}

/// Collects what does not hold, so that one run shows all of it.
#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn check<T: PartialEq + std::fmt::Debug>(&mut self, case: &str, what: &str, got: T, want: T) {
        if got != want {
            self.0.push(format!("{case}: {what}: got {got:?}, expected {want:?}"));
        }
    }

    fn close(&mut self, case: &str, what: &str, got: Option<f64>, want: Option<f64>, by: f64) {
        let same = match (got, want) {
            (Some(g), Some(w)) => (g - w).abs() <= by,
            (g, w) => g == w,
        };
        if !same {
            self.0.push(format!("{case}: {what}: got {got:?}, expected {want:?}"));
        }
    }

    fn settle(self) {
        assert!(self.0.is_empty(), "{} faults:\n{}", self.0.len(), self.0.join("\n"));
    }
}

#[test]
fn every_key_is_known() {
    let known: BTreeSet<&str> = KEYS.iter().map(|(k, _)| *k).collect();
    let mut faults = Faults::default();
    for case in cases() {
        for part in ["expect", "settings", "drive"] {
            for key in case.object(part).keys() {
                faults.check(&case.name, &format!("{part}.{key} is in KEYS"), known.contains(&*shape(key)), true);
            }
        }
        for key in case.object("inputs").keys() {
            let kinds = ["stream", "streams", "metrics", "records", "nvml", "table", "dataset"];
            faults.check(&case.name, &format!("inputs.{key} has a door"), kinds.contains(&key.as_str()), true);
        }
    }
    faults.settle();
}

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

#[test]
fn streams_give_their_exact_times_counts_and_classes() {
    let mut faults = Faults::default();
    let mut played = 0;
    for case in cases().iter().filter(|c| c.input("stream").is_some() || c.input("streams").is_some()) {
        played += 1;
        let got = drive(case);
        let expect = case.expect();
        let name = &case.name;
        if case.spec.contains_key("drive") {
            check_drive(&mut faults, case, &got);
            continue;
        }
        let r = &got.requests[0];
        let text = got.transcripts.get(&r.index);
        let since = |at: Option<plimsoll::model::time::Offset>| at.map(|at| ms(at.since(r.sent)));
        let list = |durations: Vec<Duration>| durations.into_iter().map(ms).collect::<Vec<f64>>();
        let numbers = |v: &Value| v.as_array().map(|a| a.iter().map(|n| n.as_f64().unwrap()).collect::<Vec<f64>>());
        for (key, want) in &expect {
            match key.as_str() {
                "outcome" => {
                    faults.check(name, key, if r.completed() { "ok" } else { "failed" }, want.as_str().unwrap())
                }
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
    assert!(played >= 19, "{played} streams");
    faults.settle();
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

#[test]
fn base_urls_are_joined_once_or_refused() {
    let mut faults = Faults::default();
    for case in cases() {
        let Some(file) = case.input("table") else { continue };
        let rows: Vec<Value> = serde_json::from_str(&case.read(file.as_str().unwrap())).unwrap();
        let mut doubled = 0;
        for row in &rows {
            let base = row["base_url"].as_str().unwrap();
            let parsed = BaseUrl::parse(base);
            for (column, path) in [("chat_path", "chat"), ("metrics_path", "metrics")] {
                let want = row[column].as_str().unwrap();
                let got = parsed.as_ref().map(|b| match path {
                    "chat" => b.api("chat/completions").path().to_owned(),
                    _ => b.beside("metrics").path().to_owned(),
                });
                doubled += u64::from(got.as_ref().is_ok_and(|p| p.contains("/v1/v1") || p.contains("//")));
                match (want, got) {
                    ("error", Err(e)) => {
                        let named = e.to_string().contains(base.split('?').next().unwrap());
                        faults.check(&case.name, &format!("`{base}` is named in: {e}"), named, true);
                    }
                    ("error_or_http", Ok(path)) => {
                        let read = BaseUrl::parse(&format!("http://{base}")).unwrap();
                        faults.check(
                            &case.name,
                            base,
                            path.ends_with(read.beside("metrics").path()) || path.contains("/v1/"),
                            true,
                        );
                    }
                    ("error_or_http", Err(_)) => {}
                    (want, got) => {
                        faults.check(&case.name, base, got.ok(), Some(want.to_owned()).filter(|w| w != "error"))
                    }
                }
            }
        }
        for (key, want) in &case.expect() {
            match shape(key).as_str() {
                "rows" => faults.check(&case.name, key, rows.len() as u64, want.as_u64().unwrap()),
                "v#_v#_requests" => faults.check(&case.name, key, doubled, want.as_u64().unwrap()),
                other => faults.0.push(format!("{}: {other} is not checked for a table", case.name)),
            }
        }
    }
    faults.settle();
}

#[test]
fn data_sets_are_read_row_by_row_with_every_fault_named() {
    let mut faults = Faults::default();
    for case in cases() {
        let Some(file) = case.input("dataset") else { continue };
        let name = &case.name;
        let file = file.as_str().unwrap().to_owned();
        let rows = dataset::read(&file, &case.read(&file)).unwrap();
        let numbers = |v: &Value| v.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect::<Vec<u64>>();
        for (key, want) in &case.expect() {
            match shape(key).as_str() {
                "lines" => faults.check(name, key, rows.lines, want.as_u64().unwrap()),
                "prompts" => faults.check(name, key, rows.usable.len() as u64, want.as_u64().unwrap()),
                "distinct_prompts" => faults.check(name, key, rows.distinct() as u64, want.as_u64().unwrap()),
                "usable_lines" => {
                    faults.check(name, key, rows.usable.iter().map(|r| r.line).collect(), numbers(want));
                }
                "bad_lines" => {
                    let got: BTreeMap<String, String> =
                        rows.bad.iter().map(|(line, fault)| (line.to_string(), fault.to_string())).collect();
                    let want: BTreeMap<String, String> = want
                        .as_object()
                        .unwrap()
                        .iter()
                        .map(|(line, fault)| (line.clone(), fault.as_str().unwrap().to_owned()))
                        .collect();
                    faults.check(name, key, got, want);
                }
                "blank_lines" => faults.check(name, key, rows.blank.clone(), numbers(want)),
                "duplicate_of_line_#" => {
                    let of: u64 = key.rsplit('_').next().unwrap().parse().unwrap();
                    let got: Vec<u64> =
                        rows.duplicates.iter().filter(|(_, o)| **o == of).map(|(line, _)| *line).collect();
                    faults.check(name, key, got, numbers(want));
                }
                "longer_than_max_model_len" => {
                    let most = case.spec["max_model_len"].as_u64().unwrap() as u32;
                    faults.check(name, key, rows.longer_than(most), numbers(want));
                }
                other => {
                    let elsewhere =
                        KEYS.iter().any(|(k, door)| *k == other && matches!(door, Door::Metrics | Door::Prose));
                    faults.check(name, &format!("{other} is checked for a data set"), elsewhere, true);
                }
            }
        }
        // Refused as it is, and usable once broken rows are left out: no row is lost in silence.
        let spec = |more: &str| {
            let path = case.folder.join(&file);
            let text = format!("kind = \"dataset\"\npath = {:?}\n{more}", path.display().to_string());
            Workload::new(&toml::from_str(&text).unwrap(), 1, "n", Calibration::one_token_words(10))
        };
        faults.check(name, "refused with broken rows", spec("").is_err(), !rows.bad.is_empty());
        let kept = spec("broken_rows = \"skip\"").unwrap();
        let sent: Vec<_> = (0..rows.usable.len() as u64).map(|i| kept.request(i).messages).collect();
        faults.check(name, "what is sent", sent, rows.usable.iter().map(|r| r.messages.clone()).collect());
    }
    faults.settle();
}

#[test]
fn pages_are_scraped_and_judged() {
    let mut faults = Faults::default();
    for case in cases() {
        if let Some(Value::Array(pages)) = case.input("metrics") {
            doors::metrics::check(&case, &pages, &mut faults);
        }
    }
    faults.settle();
}

#[test]
fn records_are_counted_by_window_and_class() {
    let mut faults = Faults::default();
    for case in cases() {
        if let Some(file) = case.input("records") {
            doors::records::check(&case, file.as_str().unwrap(), &mut faults);
        }
    }
    faults.settle();
}

#[test]
fn gpu_fields_are_read_one_by_one() {
    let mut faults = Faults::default();
    for case in cases() {
        if let Some(file) = case.input("nvml") {
            doors::gpu::check(&case, file.as_str().unwrap(), &mut faults);
        }
    }
    faults.settle();
}
