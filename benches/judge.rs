//! How long the pure half takes: an hour of 64 streams at 50 tokens/s each, scraped each second
//! with 400 series, from reading the file to the verdict; and one round of all shipped rules.
//!
//! `cargo bench --bench judge`; with `-- --minutes 10 --parts` a shorter run, part by part. Times
//! are the best of a few, since everything here is deterministic and only noise adds to it.

use std::time::Duration;

use plimsoll::analyze;
use plimsoll::model::recording::{Event, Header, Recording, TargetFacts};
use plimsoll::model::request::{Outcome, RequestTimeline, TokenChunk, Usage};
use plimsoll::model::sample::{Labels, NAME, Sample, Scrape, SourceKind};
use plimsoll::model::step::{Load, Phase, StepPlan};
use plimsoll::model::time::{Clock, ClockKind, Offset};
use plimsoll::promql::Engine;
use plimsoll::record;
use plimsoll::rules::{Limits, RuleSet, builtin};
use plimsoll::scenario::Scenario;
use plimsoll::series::{Store, View};

const STREAMS: u64 = 64;
const TOKENS_PER_S: u64 = 50;
const SERIES: usize = 400;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime can be made");
    let _inside = runtime.enter();
    let clock = Clock::start(ClockKind::Real);
    let args: Vec<String> = std::env::args().collect();
    let minutes = args.iter().position(|a| a == "--minutes").and_then(|i| args.get(i + 1)?.parse().ok()).unwrap_or(60);

    let scenario = Scenario::default();
    let limits = Limits { ttft_p99_s: 1.0, itl_p99_s: 0.1, error_rate_ratio: 0.01 };
    let rules = RuleSet::load(&builtin::files("vllm", true), &limits, 1.0).expect("the shipped rules load");
    let recording = recording(minutes, &scenario, &rules);

    time(clock, 3, "series of the recording", || Store::from_recording(&recording).len());
    let store = Store::from_recording(&recording);
    time(clock, 3, "one round of all rules", || round(&rules, &store, &recording));
    time(clock, 2, "store and verdict", || analyze::verdict(&recording, &scenario, &rules).steps.len());
    if args.iter().any(|a| a == "--file") {
        let folder = std::env::temp_dir().join(format!("plimsoll-bench-{}", std::process::id()));
        write(&folder, &recording);
        time(clock, 2, "reading the recording", || record::read(&folder).expect("it reads back").requests.len());
        let _ = std::fs::remove_dir_all(&folder);
    }
}

/// Prints the best of `n` times of `f`.
#[expect(clippy::print_stdout, reason = "the answer of a benchmark")]
fn time(clock: Clock, n: u32, what: &str, mut f: impl FnMut() -> usize) {
    let mut best = Duration::MAX;
    let mut size = 0;
    for _ in 0..n {
        let began = clock.now();
        size = std::hint::black_box(f());
        best = best.min(clock.now().since(began));
    }
    println!("{what:<28} {:>9.1} ms   ({size})", best.as_secs_f64() * 1e3);
}

/// Every rule once, at the end of the recording.
fn round(rules: &RuleSet, store: &Store, recording: &Recording) -> usize {
    let (engine, view) = (Engine::default(), View::whole(store));
    let at = recording.unix_ms(recording.last);
    let records = rules.records().map(|r| &r.expr);
    let alerts = rules.alerts().chain(rules.pairs()).map(|a| &a.expr);
    let value = |e| engine.instant(e, &view, at).map_or(0, |v| v.into_vector().len());
    records.chain(alerts).map(value).sum()
}

fn recording(minutes: u64, scenario: &Scenario, rules: &RuleSet) -> Recording {
    let header = Header {
        tool_version: "0".into(),
        scenario: "bench".into(),
        scenario_toml: scenario.to_toml(),
        nonce: "n".into(),
        seed: 1,
        target: TargetFacts { url: "http://127.0.0.1:8000".into(), model: "m".into(), ..TargetFacts::default() },
        ..Header::blank(ClockKind::Simulated, 1_767_225_600_000)
    };
    let mut recording = Recording::new(header);
    let seconds = minutes * 60;
    for (step, start) in (0..seconds).step_by(120).enumerate() {
        let plan = StepPlan {
            step: step as u32,
            load: Load::Concurrency(STREAMS as u32),
            phase: Phase::Climb,
            repeat: 0,
            drain_first: false,
        };
        recording.apply(Event::StepStarted { at: Offset::from_millis(start * 1_000), plan });
        recording.apply(Event::MeasureStarted { at: Offset::from_millis((start + 15) * 1_000), step: plan.step });
        let at = Offset::from_millis((start + 120).min(seconds) * 1_000);
        recording.apply(Event::StepEnded { at, step: plan.step, cut_short: None });
    }
    let labels = page(rules);
    for second in 0..seconds {
        let samples =
            labels.iter().enumerate().map(|(i, l)| Sample { labels: l.clone(), value: (second * i as u64) as f64 });
        let sent = Offset::from_millis(second * 1_000);
        let received = sent + Duration::from_millis(4);
        let result = Ok(samples.collect());
        recording.apply(Event::Scrape(Scrape { source: SourceKind::Server, target: 0, sent, received, result }));
    }
    // Each stream sends answers of ten seconds, one after the other.
    for k in 0..seconds / 10 {
        for stream in 0..STREAMS {
            recording.apply(Event::Request(answer(k * STREAMS + stream, k * 10_000_000 + stream * 997)));
        }
    }
    recording
}

/// Series of the names that the rules read, with others to fill the page.
fn page(rules: &RuleSet) -> Vec<Labels> {
    let with = |name: &str, extra: Option<(&str, &str)>| {
        Labels::new([(NAME, name), ("engine", "0"), ("model_name", "m")].into_iter().chain(extra))
    };
    let records = rules.records().map(|r| &r.expr);
    let exprs = records.chain(rules.alerts().chain(rules.pairs()).map(|a| &a.expr));
    let mut names: Vec<&str> = exprs.flat_map(|e| e.metric_names()).filter(|n| !n.starts_with("plimsoll")).collect();
    names.sort_unstable();
    names.dedup();
    let mut out = Vec::new();
    for name in names {
        if name.ends_with("_bucket") {
            let bounds = (0..22).map(|b| format!("{:?}", 0.001 * 2_f64.powi(b))).chain(["+Inf".to_owned()]);
            out.extend(bounds.map(|le| with(name, Some(("le", &le)))));
        } else {
            out.push(with(name, None));
        }
    }
    (out.len()..SERIES).for_each(|i| out.push(with(&format!("filler_{i}"), None)));
    out
}

fn answer(index: u64, sent_us: u64) -> RequestTimeline {
    let gap = 1_000_000 / TOKENS_PER_S;
    let tokens = 10 * TOKENS_PER_S - 1;
    let at = |i: u64| Offset(sent_us + (i + 1) * gap + (i * 7_919 + index * 104_729) % 900);
    let chunks: Vec<TokenChunk> =
        (0..tokens).map(|i| TokenChunk { at: at(i), running_tokens: Some(i as u32 + 1) }).collect();
    let finished = chunks[chunks.len() - 1].at;
    RequestTimeline {
        step: (sent_us / 120_000_000) as u32,
        index,
        due: None,
        sent: Offset(sent_us),
        connect: None,
        headers: Some(Offset(sent_us + 2_000)),
        first_byte: Some(Offset(sent_us + 2_100)),
        first_chunk: chunks.first().map(|c| c.at),
        first_answer: None,
        chunks,
        finished,
        finish_reason: Some("length".into()),
        usage: Usage { prompt_tokens: Some(100), completion_tokens: Some(tokens as u32), cached_tokens: None },
        server: None,
        asked_prompt_tokens: Some(100),
        asked_output_tokens: Some(tokens as u32),
        outcome: Outcome::Completed,
    }
}

fn write(folder: &std::path::Path, recording: &Recording) {
    std::fs::create_dir_all(folder).expect("the temporary folder can be made");
    let redactor = record::Redactor::new(std::iter::empty());
    let mut writer = record::Writer::create(folder, recording.header.clone(), redactor).expect("it can be written");
    let scrapes = recording.scrapes.iter().cloned().map(Event::Scrape);
    let requests = recording.requests.iter().cloned().map(Event::Request);
    for mut event in scrapes.chain(requests) {
        writer.append(&mut event);
    }
    writer.finish().expect("it can be written");
}
