//! Every report of the verdicts in `tests/verdicts`, byte for byte against the files beside them.
//!
//! `PLIMSOLL_BLESS=1 cargo test --test report_golden -- --test-threads 1` writes the files anew; read the diff.

use std::path::{Path, PathBuf};

use plimsoll::model::verdict::Verdict;
use plimsoll::report::{json, terminal};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verdicts")
}

fn verdict(name: &str) -> Verdict {
    let text = std::fs::read_to_string(folder().join(format!("{name}.json"))).unwrap();
    json::read(&text).unwrap()
}

const VERDICTS: [&str; 5] = ["alert", "clean", "inconclusive", "hostile", "empty"];

/// Compares with the golden file, or writes it.
fn check(name: &str, suffix: &str, bytes: &[u8]) {
    let path = folder().join(format!("{name}.{suffix}"));
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::write(&path, bytes).unwrap();
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
