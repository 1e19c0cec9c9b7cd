//! `query` and `export openmetrics` on a small recording made by hand.

use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll::app::{export, query};
use plimsoll::cli::{ExportArgs, ExportFormat, QueryArgs};
use plimsoll::error::{Exit, Refusal};
use plimsoll::model::recording::{Ended, Event, Header, RuleFile, StopReason, TargetFacts};
use plimsoll::model::sample::{Labels, NAME, Sample, Scrape, ScrapeFailure, SourceKind};
use plimsoll::model::time::{ClockKind, Offset};
use plimsoll::record::{Redactor, Writer};
use plimsoll::scrape::exposition::{Format, Parser};

/// A page each second from 0 to 20 s with a gauge and a counter; the page of 5 s fails.
fn record(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("plimsoll-query-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let header = Header {
        tool_version: "0.1.0".into(),
        scenario: "query".into(),
        rule_files: vec![RuleFile {
            name: "builtin:names.yml".into(),
            text: "groups:\n- name: n\n  rules:\n  - record: plimsoll:queue\n    expr: waiting * 2\n  \
                   - record: plimsoll:twice\n    expr: plimsoll:queue * 2\n"
                .into(),
        }],
        nonce: "n".into(),
        seed: 1,
        target: TargetFacts { url: "http://127.0.0.1:8000".into(), ..TargetFacts::default() },
        ..Header::blank(ClockKind::Simulated, 1_767_225_600_000)
    };
    let mut writer = Writer::create(&folder, header, Redactor::default()).unwrap();
    for s in 0..=20_u64 {
        let sample =
            |name: &str, value: f64| Sample { labels: Labels::new([(NAME, name), ("engine", "0\"π")]), value };
        let result = if s == 5 {
            Err(ScrapeFailure { class: "timeout".into(), detail: "x".into() })
        } else {
            Ok(vec![sample("waiting", (s / 3) as f64), sample("done_total", 10.0 * s as f64 + 0.125)])
        };
        let sent = Offset(s * 1_000_000 + 123_000);
        let scrape = Scrape { source: SourceKind::Server, target: 0, sent, received: sent, result };
        writer.append(&mut Event::Scrape(scrape));
    }
    let at = Offset(20_500_000);
    writer.append(&mut Event::Ended(Ended { at, reason: StopReason::EndOfLadder }));
    writer.finish().unwrap();
    folder
}

fn args(dir: &Path, expr: &str) -> QueryArgs {
    QueryArgs {
        dir: dir.into(),
        expr: expr.into(),
        at: None,
        range: None,
        step: Duration::from_secs(5),
        prometheus: None,
        json: false,
    }
}

fn ask(args: &QueryArgs) -> String {
    let mut out = Vec::new();
    query::query(args, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn instants_and_ranges_are_answered() {
    let dir = record("answers");
    let waiting = "waiting{engine=\"0\\\"π\",instance=\"127.0.0.1:8000\",job=\"server\"}";
    assert_eq!(ask(&args(&dir, "waiting")), format!("{waiting}  6\n"));
    assert_eq!(ask(&args(&dir, "1 + 1")), "2\n");
    assert!(ask(&args(&dir, "plimsoll:twice")).ends_with("  24\n"), "recorded names are answered too");
    let at = QueryArgs { at: Some(Duration::from_millis(5_500)), ..args(&dir, "waiting") };
    assert_eq!(ask(&at), "nothing at 5.5 s\n", "a failed scrape ends its series");
    let range = QueryArgs { range: Some("4s..16s".into()), ..args(&dir, "waiting > 1") };
    assert_eq!(ask(&range), format!("{waiting}\n     9.000  2\n    14.000  4\n"));
    let json = QueryArgs { json: true, at: Some(Duration::from_secs(20)), ..args(&dir, "sum(rate(done_total[10s]))") };
    let answer: serde_json::Value = serde_json::from_str(&ask(&json)).unwrap();
    assert_eq!(answer["data"]["result"][0]["value"], serde_json::json!([1_767_225_620, "10"]));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn bad_questions_are_refused_with_their_place() {
    let dir = record("refused");
    for expr in ["sum(", "no_such_function(up)"] {
        let error = query::query(&args(&dir, expr), &mut Vec::new()).unwrap_err();
        assert_eq!(error.downcast_ref::<Refusal>().unwrap().exit, Exit::Usage, "{error}");
        assert!(error.to_string().contains(expr), "{error}");
    }
    let error = query::query(&args(&dir.join("nowhere"), "up"), &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("nowhere"), "{error}");
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn the_export_holds_every_sample_at_its_time() {
    let dir = record("export");
    let file = dir.join("all.om");
    let args = ExportArgs { format: ExportFormat::Openmetrics, dir: dir.clone(), output: Some(file.clone()) };
    export::export(&args, &mut Vec::new()).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let waiting: Vec<&str> = text.lines().filter(|l| l.starts_with("waiting{")).collect();
    assert_eq!(waiting.len(), 20, "21 pages, one of which failed");
    assert_eq!(waiting[19], "waiting{engine=\"0\\\"π\",instance=\"127.0.0.1:8000\",job=\"server\"} 6 1767225620.1232");
    assert!(text.ends_with("\n# EOF\n"));
    assert!(!text.contains("NaN"));
    // Each series stands many times in it, so it is no page; but each line must be OpenMetrics.
    let read = Parser::new().parse(text.as_bytes(), Format::OpenMetrics).unwrap();
    assert!(read.samples.len() > 2 && read.duplicates > 20);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn steps_need_a_verdict_and_say_how_to_make_one() {
    let dir = record("steps");
    let args = ExportArgs { format: ExportFormat::Csv, dir: dir.clone(), output: None };
    let error = export::export(&args, &mut Vec::new()).unwrap_err();
    let refusal = error.downcast_ref::<Refusal>().unwrap();
    assert!(refusal.hint.contains("plimsoll judge"), "{}", refusal.hint);
    std::fs::remove_dir_all(dir).unwrap();
}
