//! A scenario: never a panic, and an error that can be put into words.

#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll::scenario::Scenario;

fuzz_target!(|text: &str| {
    let _ = Scenario::parse(text, "fuzz.toml").map(|s| format!("{s:?}")).map_err(|e| e.to_string());
});
