//! The alert state machine against timelines that a real Prometheus showed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll::model::sample::{Labels, NAME};
use plimsoll::promql::{Engine, Reading, parse};
use plimsoll::rules::overlay::elements;
use plimsoll::rules::state::{Became, Machine};
use plimsoll::series::{Store, View, stale_marker};
use serde_json::Value;

#[test]
fn every_transition_is_that_of_the_real_prometheus() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for path in cases() {
        let text = std::fs::read_to_string(&path).unwrap();
        let case: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let store = store(&case);
        for alert in case["alerts"].as_array().into_iter().flatten() {
            for (reading, version) in [(Reading::V2, "2.42"), (Reading::V3, "3.5")] {
                let (got, want) = (timeline(&case, &store, alert, reading), wanted(alert, version));
                checked += 1;
                if got != want {
                    wrong.push(format!("{} {} {version}: {got:?} instead of {want:?}", case["id"], alert["name"]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked >= 60, "only {checked} timelines were found");
}

type Timelines = BTreeMap<String, Vec<(i64, String)>>;

fn timeline(case: &Value, store: &Store, alert: &Value, reading: Reading) -> Timelines {
    let number = |of: &Value, key: &str| of[key].as_i64().unwrap();
    let base = number(case, "base_ms");
    let engine = Engine { reading, lookback_ms: number(case, "lookback_ms"), ..Engine::default() };
    let expr = parse(alert["expr"].as_str().unwrap()).unwrap();
    let time = |key: &str| Duration::from_millis(alert[key].as_u64().unwrap());
    let (mut machine, mut out) = (Machine::default(), Timelines::new());
    let mut at = number(alert, "eval_first_ms");
    while at <= number(alert, "eval_last_ms") {
        let value = engine.instant(&expr, &View::whole(store), base + at).unwrap();
        let present: Vec<(Labels, f64)> =
            elements(Some(value)).into_iter().map(|e| (e.labels.without(|n| n == NAME), e.value)).collect();
        for change in machine.step(base + at, &present, time("for_ms"), time("keep_firing_for_ms")) {
            let events = out.entry(change.labels.to_string()).or_default();
            let state = match change.became {
                Became::Pending => "pending",
                Became::Firing => "firing",
                Became::Inactive | Became::Resolved => "inactive",
            };
            // Prometheus shows the state after an evaluation, so a pending that fires at once is not seen.
            if events.last().is_some_and(|(t, s)| *t == at && s == "pending") {
                events.pop();
            }
            events.push((at, state.to_owned()));
        }
        at += number(alert, "eval_every_ms");
    }
    out
}

fn wanted(alert: &Value, version: &str) -> Timelines {
    let transitions = &alert["transitions"];
    let of = transitions.get("all").unwrap_or(&transitions[version]);
    let mut out = Timelines::new();
    for entry in of.as_array().unwrap() {
        let events = entry["events"].as_array().unwrap().iter();
        let events = events.map(|e| (e[0].as_i64().unwrap(), e[1].as_str().unwrap().to_owned()));
        out.insert(labels(&entry["labels"]).to_string(), events.collect());
    }
    out
}

fn store(case: &Value) -> Store {
    let mut store = Store::new();
    let base = case["base_ms"].as_i64().unwrap();
    for series in case["series"].as_array().unwrap() {
        let labels = labels(&series["labels"]);
        let clock = case["clocks"][series["clock"].as_str().unwrap()].as_array().unwrap();
        for (t, v) in clock.iter().zip(series["values"].as_array().unwrap()) {
            let value = match v {
                Value::String(s) if s == "stale" => stale_marker(),
                Value::String(s) => s.parse().unwrap_or(f64::NAN),
                Value::Null => continue,
                v => v.as_f64().unwrap(),
            };
            store.push(&labels, base + t.as_i64().unwrap(), value);
        }
    }
    store
}

fn labels(of: &Value) -> Labels {
    let map = of.as_object().unwrap();
    Labels::new(map.iter().map(|(k, v)| (k.as_str(), v.as_str().unwrap())))
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/promql");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .collect();
    paths.sort();
    paths
}
