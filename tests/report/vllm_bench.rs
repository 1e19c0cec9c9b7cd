//! The object of a step against what the real `vllm bench serve` writes, key by key.

use std::path::Path;

use plimsoll::report::json;
use plimsoll::report::vllm_bench::{self, Detail, Requests};
use serde_json::Value;

/// The keys that a real run wrote, in their order, each with its type.
const REAL: &str = include_str!("../captures/vllm-bench-keys.json");

fn kind(v: &Value) -> String {
    match v {
        Value::Null => "null".into(),
        Value::Bool(_) => "bool".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "string".into(),
        Value::Array(a) => format!("array of {}", a.first().map_or_else(|| "nothing".into(), kind)),
        Value::Object(_) => "object".into(),
    }
}

#[test]
fn every_key_of_the_real_one_is_there_with_its_type_and_in_its_order() {
    let real: Value = serde_json::from_str(REAL).unwrap();
    let real = real["keys"].as_object().unwrap();
    // A run against a real vLLM, with its recording.
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/small-pool");
    let recording = plimsoll::record::read(&dir).unwrap();
    let verdict = json::read(&std::fs::read_to_string(dir.join("verdict.json")).unwrap()).unwrap();
    let step = &verdict.steps[1];
    let mut bytes = Vec::new();
    vllm_bench::write(&verdict, step, Some(&Requests::of(&recording, step.step)), Detail::Arrays, &mut bytes).unwrap();
    let ours: Value = serde_json::from_slice(&bytes).unwrap();
    let ours = ours.as_object().unwrap();
    for (key, expected) in real {
        let found = ours.get(key).unwrap_or_else(|| panic!("{key} is missing"));
        // A label is what its user gives it; ours is the scenario's name.
        if key != "label" {
            assert_eq!(&kind(found), expected.as_str().unwrap(), "{key}");
        }
    }
    let order: Vec<&String> = ours.keys().filter(|k| real.contains_key(*k)).collect();
    assert_eq!(order, real.keys().collect::<Vec<_>>());
    // What we add stands under our own prefix.
    for key in ours.keys().filter(|k| !real.contains_key(*k)) {
        assert!(key.starts_with("plimsoll_"), "{key}");
    }
    // Aggregates are in ms, arrays in s.
    let number = |key: &str| ours[key].as_f64().unwrap();
    let mean = |key: &str| {
        let all: Vec<f64> = ours[key].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        all.iter().sum::<f64>() / all.len() as f64
    };
    // The verdict also has the first tokens of requests that outlasted the window.
    assert!((number("mean_ttft_ms") / 1e3 / mean("ttfts") - 1.0).abs() < 0.02);
    let lens: u64 = ours["output_lens"].as_array().unwrap().iter().map(|x| x.as_u64().unwrap()).sum();
    assert_eq!(ours["total_output_tokens"], lens);
}
