//! Pages of real servers and hand-made oddities: every sample is read, and read right.
//!
//! The cases with a metrics page lie in `tests/cases`; folders named in `PLIMSOLL_EXTRA_CASES`
//! (separated by `:`) are read as well.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plimsoll::model::sample::{NAME, Sample};
use plimsoll::scrape::exposition::{Format, Parser, parse};
use proptest::prelude::*;
use serde_json::Value;

fn tests_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// Every case with a metrics page: its folder and its `case.json`.
fn cases() -> Vec<(PathBuf, Value)> {
    let extra = std::env::var("PLIMSOLL_EXTRA_CASES").unwrap_or_default();
    let roots = std::iter::once(tests_folder().join("cases")).chain(std::env::split_paths(&extra).collect::<Vec<_>>());
    let mut cases = Vec::new();
    for root in roots.filter(|root| !root.as_os_str().is_empty()) {
        let mut folders: Vec<PathBuf> = std::fs::read_dir(&root).unwrap().map(|f| f.unwrap().path()).collect();
        folders.sort();
        for folder in folders {
            let Ok(text) = std::fs::read_to_string(folder.join("case.json")) else { continue };
            let case: Value = serde_json::from_str(&text).unwrap();
            if case["inputs"]["metrics"].is_array() {
                cases.push((folder, case));
            }
        }
    }
    cases
}

fn number(v: &Value) -> f64 {
    match v.as_str() {
        Some(word) => word.parse().unwrap(),
        None => v.as_f64().unwrap(),
    }
}

#[test]
fn every_page_of_every_case_is_read() {
    let cases = cases();
    assert!(cases.len() >= 5);
    for (folder, case) in cases {
        // One parser for all pages of a case, as the poller does.
        let mut parser = Parser::new();
        for page in case["inputs"]["metrics"].as_array().unwrap() {
            if page["status"].as_u64().unwrap_or(200) != 200 {
                continue;
            }
            let file = folder.join(page["file"].as_str().unwrap());
            let bytes = std::fs::read(&file).unwrap();
            let content_type = page["headers"]["content-type"].as_str();
            let read = parser.parse(&bytes, Format::of(content_type));
            let samples = read.unwrap_or_else(|e| panic!("{}: {e}", file.display())).samples;
            assert_eq!(samples.len(), sample_lines(&bytes), "{}", file.display());
            check_expected(&samples, &case["expect"], &file);
        }
    }
}

/// Lines that are neither blank nor a comment.
fn sample_lines(page: &[u8]) -> usize {
    let text = String::from_utf8_lossy(page);
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).count()
}

fn check_expected(samples: &[Sample], expect: &Value, file: &Path) {
    if let Some(wanted) = expect["samples"].as_object() {
        for (name, value) in wanted {
            let sample = samples.iter().find(|s| s.labels.name() == name).unwrap_or_else(|| panic!("no {name}"));
            let value = number(value);
            assert!(
                sample.value == value || (value.is_nan() && sample.value.is_nan()),
                "{name} is {} in {}",
                sample.value,
                file.display()
            );
        }
    }
    if let Some(wanted) = expect["labels_of_waiting"].as_object() {
        let waiting = samples.iter().find(|s| s.labels.name().ends_with("num_requests_waiting")).unwrap();
        let labels: BTreeMap<_, _> = waiting.labels.iter().filter(|(n, _)| *n != NAME).collect();
        let wanted: BTreeMap<_, _> = wanted.iter().map(|(n, v)| (n.as_str(), v.as_str().unwrap())).collect();
        assert_eq!(labels, wanted);
    }
    if let Some(wanted) = expect["ttft_buckets"].as_object() {
        for (le, count) in wanted {
            let bucket = samples.iter().find(|s| {
                s.labels.name().ends_with("time_to_first_token_seconds_bucket") && s.labels.get("le") == Some(le)
            });
            assert_eq!(bucket.unwrap_or_else(|| panic!("no bucket {le}")).value, number(count));
        }
    }
    if let Some(lines) = expect["sample_lines"].as_u64() {
        assert_eq!(samples.len() as u64, lines, "{}", file.display());
    }
}

#[test]
fn real_pages_read_the_same_twice_and_interleaved() {
    let folder = tests_folder().join("captures/vllm-0.31");
    let mut pages: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    pages.retain(|p| p.file_name().unwrap().to_string_lossy().starts_with("metrics-"));
    pages.sort();
    assert!(pages.len() >= 5);
    let mut remembering = Parser::new();
    for file in pages.iter().chain(&pages).chain(pages.iter().rev()) {
        let bytes = std::fs::read(file).unwrap();
        let alone = parse(&bytes, Some("text/plain; version=1.0.0; charset=utf-8"));
        let alone = alone.unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        assert_eq!(alone.len(), sample_lines(&bytes), "{}", file.display());
        let again = remembering.parse(&bytes, Format::Text).unwrap();
        assert_eq!(again.duplicates, 0);
        assert_eq!(again.samples, alone, "{}", file.display());
    }
}

/// Pages out of the pieces that pages are made of, in any order.
fn pages() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "a",
        "b_c",
        "{",
        "}",
        "\"",
        "x=\"1\"",
        ",",
        " ",
        "\t",
        "\n",
        "\n",
        "1",
        "NaN",
        "-Inf",
        "# ",
        "# EOF",
        "# TYPE a gauge",
        "\\",
        "\\n",
        "a 1\n",
        "a{x=\"1\"} 2\n",
        "a{x=\"1\",y=\"2\"} 3 4\n",
        "\u{3c0}",
        "1e9",
        ":",
        "=",
    ]);
    (prop::collection::vec(piece, 0..40), prop::option::of((any::<prop::sample::Index>(), any::<u8>()))).prop_map(
        |(pieces, flip)| {
            let mut page = pieces.concat().into_bytes();
            if let (Some((at, byte)), false) = (flip, page.is_empty()) {
                let at = at.index(page.len());
                page[at] = byte;
            }
            page
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn no_page_panics_and_memory_changes_nothing(first in pages(), second in pages()) {
        for format in [Format::Text, Format::OpenMetrics] {
            let mut remembering = Parser::new();
            let _ = remembering.parse(&first, format);
            for page in [&second, &first, &second] {
                let fresh = Parser::new().parse(page, format);
                prop_assert_eq!(format!("{:?}", remembering.parse(page, format)), format!("{fresh:?}"));
            }
        }
    }
}
