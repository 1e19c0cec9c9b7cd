//! Every report of the verdicts in `tests/verdicts`, byte for byte against the files beside them.
//!
//! `PLIMSOLL_BLESS=1 cargo test --test report -- --test-threads 1` writes the files anew; read the diff.

use std::path::{Path, PathBuf};

use plimsoll::compare;
use plimsoll::model::comparison::{Judgement, Metric};
use plimsoll::model::verdict::{Noise, Verdict};
use plimsoll::report::{self, annotations, csv, html, json, junit, markdown, schema, terminal, vllm_bench};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verdicts")
}

fn verdict(name: &str) -> Verdict {
    let text = std::fs::read_to_string(folder().join(format!("{name}.json"))).expect("the verdict is there");
    json::read(&text).expect("it is a verdict")
}

const VERDICTS: [&str; 5] = ["alert", "clean", "inconclusive", "hostile", "empty"];

/// Compares with the golden file, or writes it.
fn check(name: &str, suffix: &str, bytes: &[u8]) {
    let path = folder().join(format!("{name}.{suffix}"));
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::write(&path, bytes).expect("the folder can be written to");
    }
    let expected = std::fs::read(&path).unwrap_or_default();
    assert!(
        expected == bytes,
        "{} differs; this is what is written now:\n{}",
        path.display(),
        String::from_utf8_lossy(bytes)
    );
}

#[test]
fn a_verdict_reads_back_and_writes_the_same_bytes() {
    for name in VERDICTS {
        let mut bytes = Vec::new();
        json::write(&verdict(name), &mut bytes).unwrap();
        check(name, "json", &bytes);
    }
}

#[test]
fn the_terminal_answer_at_80_and_at_132_columns() {
    for name in VERDICTS {
        for width in [80, 132] {
            let mut bytes = Vec::new();
            terminal::write(&verdict(name), &mut bytes, terminal::Style { color: false, width }).unwrap();
            check(name, &format!("{width}.txt"), &bytes);
            let text = String::from_utf8(bytes).unwrap();
            for line in text.lines() {
                assert!(unicode_width::UnicodeWidthStr::width(line) <= usize::from(width), "too wide: {line}");
                assert!(!line.contains(char::is_control), "control character in {line:?}");
            }
        }
    }
}

#[test]
fn colour_adds_codes_and_changes_no_word() {
    for name in VERDICTS {
        let mut plain = Vec::new();
        terminal::write(&verdict(name), &mut plain, terminal::Style { color: false, width: 100 }).unwrap();
        let mut colored = Vec::new();
        terminal::write(&verdict(name), &mut colored, terminal::Style { color: true, width: 100 }).unwrap();
        let mut stripped = String::from_utf8(colored).unwrap();
        while let Some(from) = stripped.find("\u{1b}[") {
            let to = from + stripped[from..].find('m').unwrap();
            stripped.replace_range(from..=to, "");
        }
        assert_eq!(stripped, String::from_utf8(plain).unwrap(), "{name}");
    }
}

#[test]
fn the_reports_for_ci_and_for_other_tools() {
    for name in VERDICTS {
        let v = verdict(name);
        let mut md = Vec::new();
        markdown::write(&v, &mut md, markdown::SUMMARY_LIMIT_BYTES).unwrap();
        check(name, "md", &md);
        let mut xml = Vec::new();
        junit::write(&v, &mut xml).unwrap();
        check(name, "junit.xml", &xml);
        let mut lines = Vec::new();
        annotations::write(&v, &mut lines).unwrap();
        check(name, "annotations.txt", &lines);
        let mut rows = Vec::new();
        csv::write(&v, &mut rows).unwrap();
        check(name, "csv", &rows);
    }
    let v = verdict("alert");
    let mut step = Vec::new();
    vllm_bench::write(&v, &v.steps[3], None, vllm_bench::Detail::Aggregates, &mut step).unwrap();
    check("alert", "step3.vllm-bench.json", &step);
}

#[test]
fn the_schema_takes_its_verdicts() {
    let mut text = Vec::new();
    schema::write(&mut text).unwrap();
    let schema: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(schema["title"], "Verdict");
    let required: Vec<&str> = schema["required"].as_array().unwrap().iter().map(|k| k.as_str().unwrap()).collect();
    let written = serde_json::to_value(verdict("alert")).unwrap();
    for key in required {
        assert!(written.get(key).is_some(), "{key} is required and not written");
    }
}

#[test]
fn a_summary_keeps_its_limit_and_says_that_it_left_something_out() {
    let mut v = verdict("alert");
    let step = v.steps[3].clone();
    v.steps = (0..20_000).map(|n| plimsoll::model::verdict::StepVerdict { step: n, ..step.clone() }).collect();
    let mut md = Vec::new();
    markdown::write(&v, &mut md, markdown::SUMMARY_LIMIT_BYTES).unwrap();
    assert!(md.len() <= markdown::SUMMARY_LIMIT_BYTES && md.len() > markdown::SUMMARY_LIMIT_BYTES / 2);
    assert!(md.ends_with(b"all of it is in `verdict.json`.\n"));
}

/// Every step's numbers are known to within `ratio`.
fn known_to(v: &mut Verdict, ratio: f64) {
    for step in &mut v.steps {
        let all = Some(ratio);
        step.client.noise = Noise {
            blocks: 24,
            block_s: Some(4.0),
            ttft_p50_ratio: all,
            ttft_p99_ratio: Some(ratio * 20.0),
            gap_p50_ratio: all,
            gap_p99_ratio: Some(ratio * 20.0),
            e2e_p50_ratio: all,
            output_tokens_ratio: all,
        };
    }
}

#[test]
fn a_release_against_its_predecessor() {
    let mut base = verdict("alert");
    known_to(&mut base, 0.005);
    for step in &mut base.steps {
        if let Some(server) = &mut step.server {
            server.prefix_cache_hit_rate = Some(0.62);
        }
    }
    let mut new = base.clone();
    new.lowest_firing_concurrency = Some(3.0);
    new.highest_clean_concurrency = Some(2.0);
    for step in &mut new.steps {
        let gap = &mut step.client.gap_s;
        for x in [&mut gap.p50, &mut gap.p90, &mut gap.p99].into_iter().flatten() {
            *x *= 1.2;
        }
        if let Some(server) = &mut step.server {
            server.prefix_cache_hit_rate = Some(0.0);
        }
    }
    let settings = compare::Settings::default();
    let found = compare::compare(&base, &new, settings);
    assert_eq!(found.limit.judgement, Judgement::Worse);
    assert!(found.called_out[0].contains("the prefix-cache hit rate fell from 62 % to 0 %"), "{:?}", found.called_out);
    for change in &found.changes {
        let expected = match change.metric {
            Metric::GapP50 => Judgement::Worse,
            // Known to within 10 %: neither a change of 20 % nor none can be told.
            Metric::GapP99 | Metric::TtftP99 | Metric::ErrorRate => Judgement::CannotTell,
            _ => Judgement::Same,
        };
        assert_eq!(change.judgement, expected, "{change:?}");
    }
    let mut bytes = Vec::new();
    report::compare::write(&found, &mut bytes, terminal::Style { color: false, width: 100 }).unwrap();
    check("alert", "compare.100.txt", &bytes);
    let mut bytes = Vec::new();
    report::compare::markdown(&found, &mut bytes).unwrap();
    check("alert", "compare.md", &bytes);
    assert_eq!(compare::compare(&base, &verdict("clean"), settings).incomparable[0].what, "scenario");
    // A verdict against itself: what has an interval is never called changed.
    let same = compare::compare(&base, &base, settings);
    assert!(same.changes.iter().all(|c| matches!(c.judgement, Judgement::Same | Judgement::CannotTell)));
    assert_eq!(same.limit.judgement, Judgement::Same);
}

/// With a baseline, the comparison is in every report.
#[test]
fn the_baseline_stands_in_every_report() {
    let mut base = verdict("alert");
    known_to(&mut base, 0.005);
    let mut new = base.clone();
    for step in &mut new.steps {
        step.client.output_tokens_per_s = step.client.output_tokens_per_s.map(|x| x * 0.8);
    }
    new.comparison = Some(compare::compare(&base, &new, compare::Settings::default()));
    let mut bytes = Vec::new();
    markdown::write(&new, &mut bytes, markdown::SUMMARY_LIMIT_BYTES).unwrap();
    html::write(&new, None, &mut bytes).unwrap();
    terminal::write(&new, &mut bytes, terminal::Style { color: false, width: 100 }).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text.matches("7 worse, 0 better").count(), 3, "{text}");
    let mut bytes = Vec::new();
    json::write(&new, &mut bytes).unwrap();
    assert_eq!(json::read(&String::from_utf8(bytes).unwrap()).unwrap(), new);
}

#[test]
fn all_files_of_a_folder_are_written_twice_alike() {
    let dir = std::env::temp_dir().join(format!("plimsoll-report-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let read = |paths: &[PathBuf]| paths.iter().map(|p| std::fs::read(p).unwrap()).collect::<Vec<_>>();
    let paths = plimsoll::report::write_all(&dir, &verdict("alert"), None).unwrap();
    let first = read(&paths);
    let again = plimsoll::report::write_all(&dir, &verdict("alert"), None).unwrap();
    assert_eq!((first, &paths), (read(&again), &again));
    let mut names: Vec<String> =
        std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(names, ["junit.xml", "report.html", "report.md", "steps.csv", "verdict.json"]);
}
