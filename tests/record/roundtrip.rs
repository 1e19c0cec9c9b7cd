//! Whatever a run appends is read back exactly, and what a kill leaves behind is still readable.

use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll::model::recording::{
    Ended, Event, FORMAT, Header, Health, Note, Recording, RuleFile, StopReason, TargetFacts,
};
use plimsoll::model::request::{FailureClass, Outcome, RequestTimeline, ServerTimings, TokenChunk, Usage};
use plimsoll::model::sample::{Labels, NAME, Sample, Scrape, ScrapeFailure, SourceKind};
use plimsoll::model::step::{CutShort, Load, Phase, StepPlan};
use plimsoll::model::time::{ClockKind, Offset};
use plimsoll::record::reader::{ReadError, read_bytes};
use plimsoll::record::{Redactor, Writer, read};
use proptest::prelude::*;

fn header() -> Header {
    Header {
        format: FORMAT.into(),
        tool_version: "0.1.0".into(),
        scenario: "round-trip".into(),
        scenario_toml: "name = \"round-trip\"\n".into(),
        rule_files: vec![RuleFile { name: "builtin:x.yml".into(), text: "groups: []\n".into() }],
        clock: ClockKind::Simulated,
        epoch_unix_ms: 1_767_225_600_000,
        nonce: "n".into(),
        seed: 7,
        time_scale: 0.1,
        target: TargetFacts { url: "http://127.0.0.1:8000".into(), model: "m".into(), ..TargetFacts::default() },
        server_command: None,
    }
}

fn offset() -> impl Strategy<Value = Offset> {
    prop_oneof![(0..4_000_000_000_u64).prop_map(Offset), (0..1_u64 << 52).prop_map(Offset)]
}

fn float() -> impl Strategy<Value = f64> {
    prop_oneof![
        (0..50_i32).prop_map(f64::from),
        any::<u64>().prop_map(f64::from_bits),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(-0.0),
    ]
}

fn finite() -> impl Strategy<Value = f64> {
    float().prop_filter("JSON holds it", |v| v.is_finite())
}

fn words() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[ -~äπ\n\"\\\\]{0,20}".prop_map(|s: String| s.replace(['=', ':'], "."))]
}

fn chunks() -> impl Strategy<Value = Vec<TokenChunk>> {
    let ats = prop::collection::vec(offset(), 0..12);
    (ats, any::<u8>(), prop::collection::vec(prop::option::of(any::<u32>()), 12)).prop_map(|(ats, kind, counts)| {
        ats.into_iter()
            .enumerate()
            .map(|(i, at)| TokenChunk {
                at,
                running_tokens: match kind % 3 {
                    0 => None,
                    1 => Some(u32::try_from(i).unwrap() + 1),
                    _ => counts[i],
                },
            })
            .collect()
    })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Completed),
        Just(Outcome::Cut),
        (prop::option::of(100..600_u16), words()).prop_map(|(status, detail)| Outcome::Failed {
            class: FailureClass::Truncated,
            status,
            detail
        }),
    ]
}

fn request() -> impl Strategy<Value = Event> {
    let stamps = prop::collection::vec(prop::option::of(offset()), 5);
    let counts = prop::collection::vec(prop::option::of(any::<u32>()), 5);
    let server = prop::option::of((prop::option::of(finite()), prop::option::of(finite())));
    let rest = (prop::option::of(0..u64::from(u32::MAX)), prop::option::of(words()), server, outcome());
    (any::<u32>(), any::<u64>(), offset(), offset(), stamps, chunks(), counts, rest).prop_map(
        |(step, index, sent, finished, stamps, chunks, counts, (connect, finish_reason, server, outcome))| {
            Event::Request(RequestTimeline {
                step,
                index,
                due: stamps[0],
                sent,
                connect: connect.map(Duration::from_nanos),
                headers: stamps[1],
                first_byte: stamps[2],
                first_chunk: stamps[3],
                first_answer: stamps[4],
                chunks,
                finished,
                finish_reason,
                usage: Usage { prompt_tokens: counts[0], completion_tokens: counts[1], cached_tokens: counts[2] },
                server: server.map(|(queue_s, ttft_s)| ServerTimings { queue_s, ttft_s, mean_itl_s: None }),
                asked_prompt_tokens: counts[3],
                asked_output_tokens: counts[4],
                outcome,
            })
        },
    )
}

fn scrape() -> impl Strategy<Value = Event> {
    let labels = (0..6_u8, 0..3_u8).prop_map(|(name, engine)| {
        Labels::new([(NAME.to_owned(), format!("m:{name}")), ("engine".to_owned(), format!("{engine}\"\\\nπ"))])
    });
    let samples = prop::collection::vec((labels, float()), 0..8);
    let samples = samples.prop_map(|s| s.into_iter().map(|(labels, value)| Sample { labels, value }).collect());
    let result = prop_oneof![
        4 => samples.prop_map(Ok),
        1 => words().prop_map(|detail| Err(ScrapeFailure { class: "timeout".into(), detail })),
    ];
    let source = prop_oneof![Just(SourceKind::Server), Just(SourceKind::Gpu)];
    (source, 0..2_u32, offset(), offset(), result).prop_map(|(source, target, sent, received, result)| {
        Event::Scrape(Scrape { source, target, sent, received, result })
    })
}

fn mark() -> impl Strategy<Value = Event> {
    let load = prop_oneof![any::<u32>().prop_map(Load::Concurrency), finite().prop_map(Load::Rate)];
    prop_oneof![
        (offset(), 0..5_u32, load, any::<bool>()).prop_map(|(at, step, load, drain_first)| Event::StepStarted {
            at,
            plan: StepPlan { step, load, phase: Phase::Narrow, repeat: step % 2, drain_first },
        }),
        (offset(), 0..5_u32).prop_map(|(at, step)| Event::MeasureStarted { at, step }),
        (offset(), 0..5_u32, any::<bool>()).prop_map(|(at, step, cut)| Event::StepEnded {
            at,
            step,
            cut_short: cut.then_some(CutShort::TargetLost),
        }),
        (offset(), prop::option::of(any::<u64>()), prop::option::of(finite())).prop_map(
            |(at, lag_max_us, cpu_cores)| {
                Event::Health(Health {
                    at,
                    lag_max_us,
                    cpu_cores,
                    open_files: lag_max_us,
                    blur_p99_us: lag_max_us,
                    cores: cpu_cores,
                    ..Health::default()
                })
            }
        ),
        (offset(), words()).prop_map(|(at, says)| Event::Note(Note { at, code: "drain".into(), says })),
        offset().prop_map(|at| Event::Ended(Ended { at, reason: StopReason::BoundaryFound })),
    ]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec(prop_oneof![request(), scrape(), scrape(), mark()], 0..30)
}

/// A folder of this test's own, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("plimsoll-record-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn write(folder: &Path, events: &[Event]) -> Recording {
    let _ = std::fs::remove_file(folder.join("run.jsonl"));
    let mut writer = Writer::create(folder, header(), Redactor::default()).unwrap();
    let mut live = Recording::new(writer.header().clone());
    for event in events {
        let mut event = event.clone();
        writer.append(&mut event);
        live.apply(event);
    }
    writer.finish().unwrap();
    live.close();
    live
}

/// As text, where NaN equals NaN and −0 differs from 0.
fn shown(recording: &Recording) -> String {
    format!("{recording:?}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn what_is_written_is_read_back(events in events()) {
        let folder = Folder::new("exact");
        let live = write(&folder.0, &events);
        prop_assert_eq!(shown(&read(&folder.0).unwrap()), shown(&live));
    }

    #[test]
    fn a_line_that_another_tool_rewrote_reads_the_same(events in events()) {
        let folder = Folder::new("rewritten");
        let live = write(&folder.0, &events);
        let text = std::fs::read_to_string(folder.0.join("run.jsonl")).unwrap();
        let mut spaced = String::new();
        for line in text.lines() {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            spaced += &serde_json::to_string_pretty(&value).unwrap().replace('\n', " ");
            spaced += "\n\n";
        }
        let path = folder.0.join("run.jsonl");
        prop_assert_eq!(shown(&read_bytes(spaced.as_bytes(), &path).unwrap()), shown(&live));
    }

    #[test]
    fn a_torn_tail_costs_only_the_last_line(events in events(), cut in any::<prop::sample::Index>()) {
        let folder = Folder::new("torn");
        let live = write(&folder.0, &events);
        let mut text = std::fs::read(folder.0.join("run.jsonl")).unwrap();
        let head = text.iter().position(|b| *b == b'\n').unwrap();
        text.truncate(head + cut.index(text.len() - head));
        let zeros = cut.index(9);
        text.extend(std::iter::repeat_n(0, zeros));
        let read = read_bytes(&text, Path::new("run.jsonl")).unwrap();
        prop_assert!(live.requests.starts_with(&read.requests));
        prop_assert!(read.scrapes.len() <= live.scrapes.len());
    }
}

#[test]
fn a_long_recording_is_read_by_several_threads_in_its_order() {
    let folder = Folder::new("long");
    let note = |n: u64| Event::Note(Note { at: Offset(n), code: "n".into(), says: "x".repeat(100 + n as usize % 50) });
    let events: Vec<Event> = (0..20_000).map(note).collect();
    let live = write(&folder.0, &events);
    let file = folder.0.join("run.jsonl");
    assert!(std::fs::metadata(&file).unwrap().len() > 3 << 20);
    assert_eq!(read(&folder.0).unwrap(), live);
    let mut text = std::fs::read_to_string(&file).unwrap();
    text.insert_str(text.rfind("{\"note\"").unwrap(), "nonsense\n");
    let error = read_bytes(text.as_bytes(), &file).unwrap_err().to_string();
    assert!(error.contains("line 20001:"), "{error}");
}

#[test]
fn errors_name_file_and_line() {
    let folder = Folder::new("errors");
    write(&folder.0, &[Event::Note(Note { at: Offset(1), code: "a".into(), says: "b".into() })]);
    let good = std::fs::read_to_string(folder.0.join("run.jsonl")).unwrap();
    let path = Path::new("run.jsonl");
    let error = |text: String| read_bytes(text.as_bytes(), path).unwrap_err().to_string();
    assert!(error(format!("{good}nonsense\n{good}")).starts_with("run.jsonl line 3: "));
    assert!(error(format!("{good}{good}")).contains("a second header"));
    assert!(error(format!("{good}{{\"surprise\":1}}\n")).contains("expected one of header"));
    assert!(error(format!("{good}{{\"layout\":{{\"id\":0,\"series\":[4]}}}}\n")).contains("unknown series 4"));
    assert!(error(good.replace("plimsoll.run/1", "plimsoll.run/9")).contains("`plimsoll.run/9`, expected"));
    assert!(error("{\"note\":{}}\n".into()).contains("line 1: expected the header"));
    assert!(matches!(read_bytes(b"", path), Err(ReadError::Empty { .. })));
    assert!(matches!(read(&folder.0.join("nowhere")), Err(ReadError::Open { .. })));
}

#[test]
fn secrets_never_reach_the_file() {
    let folder = Folder::new("secrets");
    let header = Header {
        scenario_toml: "url = \"http://me:hush-0@h\"\n[target]\napi_key = \"hush-2\"\n".into(),
        server_command: Some(vec!["vllm".into(), "--api-key".into(), "hush-3".into()]),
        target: TargetFacts { metrics_url: Some("http://h/m?token=hush-4".into()), ..TargetFacts::default() },
        ..header()
    };
    let mut writer = Writer::create(&folder.0, header, Redactor::new(["hush-1".to_owned()])).unwrap();
    let mut note = Event::Note(Note { at: Offset(1), code: "x".into(), says: "key hush-1 was refused".into() });
    writer.append(&mut note);
    writer.finish().unwrap();
    let text = std::fs::read_to_string(folder.0.join("run.jsonl")).unwrap();
    assert!(!text.contains("hush"), "{text}");
    assert_eq!(read(&folder.0).unwrap().notes[0].says, "key [redacted] was refused");
}

#[tokio::test(start_paused = true)]
async fn the_task_flushes_each_second_and_passes_on_what_it_wrote() {
    let folder = Folder::new("task");
    let writer = Writer::create(&folder.0, header(), Redactor::default()).unwrap();
    let (events, received) = tokio::sync::mpsc::unbounded_channel();
    let (onward, mut judged) = tokio::sync::mpsc::unbounded_channel();
    let task = plimsoll::record::start(writer, received, onward);
    let note = |n: u64| Event::Note(Note { at: Offset(n), code: "n".into(), says: n.to_string() });
    events.send(note(1)).unwrap();
    assert_eq!(judged.recv().await, Some(note(1)));
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(read(&folder.0).unwrap().notes.len(), 1, "flushed while the run goes on");
    events.send(note(2)).unwrap();
    drop(events);
    task.await.unwrap().unwrap();
    assert_eq!(judged.recv().await, Some(note(2)));
    assert_eq!(judged.recv().await, None);
    assert_eq!(read(&folder.0).unwrap().notes.len(), 2);
}

#[test]
fn a_recording_is_never_overwritten() {
    let folder = Folder::new("again");
    Writer::create(&folder.0, header(), Redactor::default()).unwrap();
    let error = Writer::create(&folder.0, header(), Redactor::default()).unwrap_err();
    assert!(error.to_string().contains("could not be created"), "{error}");
}
