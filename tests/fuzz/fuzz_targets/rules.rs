//! A rule file and a bare expression: never a panic, and a printed expression parses again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll::model::recording::RuleFile;
use plimsoll::promql;
use plimsoll::rules::{Limits, RuleSet};

fuzz_target!(|text: &str| {
    let file = RuleFile { name: "fuzz.yml".into(), text: text.into() };
    let _ = RuleSet::load(&[file], &Limits::default(), 0.5).map_err(|e| e.to_string());
    if let Ok(expr) = promql::parse(text) {
        let printed = expr.to_string();
        assert!(promql::parse(&printed).is_ok(), "`{printed}` does not parse again");
    }
});
