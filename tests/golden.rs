//! What two real Prometheus servers answered, asked of our evaluator.
//!
//! The cases lie in `tests/golden/`; further folders are read from `PLIMSOLL_EXTRA_GOLDEN`
//! (separated as in `PATH`). A file that cannot be read is a failure.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use plimsoll::model::sample::{Labels, NAME};
use plimsoll::promql::{Engine, Reading, Value, parse};
use plimsoll::series::{Store, View, stale_marker};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    format: String,
    id: String,
    base_ms: i64,
    lookback_ms: i64,
    clocks: BTreeMap<String, Vec<i64>>,
    series: Vec<Series>,
    instants: Vec<i64>,
    queries: Vec<Query>,
    alerts: Vec<Alert>,
}

#[derive(Deserialize)]
struct Series {
    labels: BTreeMap<String, String>,
    clock: String,
    values: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Query {
    expr: String,
    results: ByVersion<QueryAnswer>,
}

/// What a query answers over all instants: its elements, and perhaps errors at some of them.
#[derive(Deserialize)]
#[serde(untagged)]
enum QueryAnswer {
    Elements(Vec<Row>),
    Partly { rows: Vec<Row>, errors: BTreeMap<String, String> },
}

impl QueryAnswer {
    fn rows(&self) -> &[Row] {
        match self {
            QueryAnswer::Elements(rows) | QueryAnswer::Partly { rows, .. } => rows,
        }
    }

    fn error(&self, t: i64) -> Option<&str> {
        match self {
            QueryAnswer::Elements(_) => None,
            QueryAnswer::Partly { errors, .. } => errors.get(&t.to_string()).map(String::as_str),
        }
    }
}

#[derive(Deserialize)]
struct Row {
    labels: BTreeMap<String, String>,
    values: Vec<Option<String>>,
}

#[derive(Deserialize)]
struct Alert {
    name: String,
    expr: String,
    for_ms: i64,
    keep_firing_for_ms: i64,
    eval_first_ms: i64,
    eval_every_ms: i64,
    eval_last_ms: i64,
    transitions: ByVersion<Vec<Transitions>>,
}

#[derive(Deserialize)]
struct Transitions {
    labels: BTreeMap<String, String>,
    events: Vec<(i64, String)>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ByVersion<T> {
    Same { all: T },
    Each(BTreeMap<String, T>),
}

impl<T> ByVersion<T> {
    fn of(&self, version: &str) -> &T {
        match self {
            ByVersion::Same { all } => all,
            ByVersion::Each(by) => by.get(version).unwrap_or_else(|| panic!("no answer of version {version}")),
        }
    }
}

/// The readings with the version whose answers they must give.
const READINGS: [(Reading, &str); 2] = [(Reading::V2, "2.42"), (Reading::V3, "3.5")];

#[test]
fn every_answer_is_that_of_the_real_prometheus() {
    let mut wrong = String::new();
    let (mut files, mut right) = (0, 0);
    for path in cases() {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let case: Case = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(case.format, "vllm-promql-golden/1", "{}", path.display());
        files += 1;
        let store = store(&case);
        for (reading, version) in READINGS {
            let engine = Engine { reading, lookback_ms: case.lookback_ms, ..Engine::default() };
            for q in &case.queries {
                right += check_query(&case, &store, &engine, q, version, &mut wrong);
            }
            for a in &case.alerts {
                right += check_alert(&case, &store, &engine, a, version, &mut wrong);
            }
        }
    }
    assert!(files >= 28, "only {files} cases were found");
    assert!(wrong.is_empty(), "{right} answers are right, these are not:\n{wrong}");
}

/// All case files of all folders, in order.
fn cases() -> Vec<PathBuf> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut folders: Vec<PathBuf> = list(&golden).into_iter().filter(|p| p.is_dir()).collect();
    if let Some(extra) = std::env::var_os("PLIMSOLL_EXTRA_GOLDEN") {
        folders.extend(std::env::split_paths(&extra).filter(|p| !p.as_os_str().is_empty()));
    }
    let is_case = |p: &PathBuf| p.extension().is_some_and(|e| e == "json");
    folders.iter().flat_map(|f| list(f)).filter(is_case).collect()
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths
}

fn labels(map: &BTreeMap<String, String>) -> Labels {
    Labels::new(map.iter().map(|(n, v)| (n.as_str(), v.as_str())))
}

fn store(case: &Case) -> Store {
    let mut store = Store::new();
    for s in &case.series {
        let (labels, clock) = (labels(&s.labels), &case.clocks[&s.clock]);
        assert_eq!(clock.len(), s.values.len(), "{}: {labels}", case.id);
        for (&t, v) in clock.iter().zip(&s.values) {
            let v = match v {
                serde_json::Value::String(s) if s == "stale" => stale_marker(),
                serde_json::Value::String(s) => s.parse().unwrap(),
                v => v.as_f64().unwrap_or_else(|| panic!("{}: {v} is no value", case.id)),
            };
            store.push(&labels, case.base_ms + t, v);
        }
    }
    store
}

fn same(a: f64, b: f64) -> bool {
    a == b || a.is_nan() && b.is_nan() || a.is_finite() && b.is_finite() && (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

fn check_query(case: &Case, store: &Store, engine: &Engine, q: &Query, version: &str, wrong: &mut String) -> u32 {
    let expr = parse(&q.expr).unwrap_or_else(|e| panic!("{}: `{}`: {e}", case.id, q.expr));
    let view = View::whole(store);
    let mut right = 0;
    for (i, &t) in case.instants.iter().enumerate() {
        let answer = engine.instant(&expr, &view, case.base_ms + t);
        let wanted = q.results.of(version);
        if let Some(error) = wanted.error(t) {
            match answer {
                Err(_) => right += 1,
                Ok(v) => {
                    let _ = writeln!(wrong, "{} {version} `{}` at {t}: {v:?}, expected {error}", case.id, q.expr);
                }
            }
            continue;
        }
        let rows = wanted.rows().iter();
        let want: BTreeMap<Labels, f64> =
            rows.filter_map(|r| Some((labels(&r.labels), r.values[i].as_ref()?.parse().unwrap()))).collect();
        let got: BTreeMap<Labels, f64> = match answer {
            Ok(v @ (Value::Scalar(_) | Value::Vector(_))) => {
                v.into_vector().into_iter().map(|e| (e.labels, e.value)).collect()
            }
            other => {
                let _ = writeln!(wrong, "{} {version} `{}` at {t}: {other:?}", case.id, q.expr);
                continue;
            }
        };
        if want.len() == got.len() && want.iter().zip(&got).all(|((l, v), (m, w))| l == m && same(*v, *w)) {
            right += 1;
        } else {
            let _ = writeln!(wrong, "{} {version} `{}` at {t}: {got:?}, expected {want:?}", case.id, q.expr);
        }
    }
    right
}

/// One live alert.
struct Live {
    since: i64,
    firing: bool,
    told: Option<&'static str>,
    /// First evaluation at which its element was gone while it fired.
    gone: Option<i64>,
}

fn check_alert(case: &Case, store: &Store, engine: &Engine, a: &Alert, version: &str, wrong: &mut String) -> u32 {
    let expr = parse(&a.expr).unwrap_or_else(|e| panic!("{}: `{}`: {e}", case.id, a.expr));
    let view = View::whole(store);
    let mut live: BTreeMap<Labels, Live> = BTreeMap::new();
    let mut events: BTreeMap<Labels, Vec<(i64, String)>> = BTreeMap::new();
    for t in (a.eval_first_ms..=a.eval_last_ms).step_by(usize::try_from(a.eval_every_ms).unwrap()) {
        let value = engine.instant(&expr, &view, case.base_ms + t).unwrap();
        let there: Vec<Labels> = value.into_vector().iter().map(|e| e.labels.without(|n| n == NAME)).collect();
        for l in &there {
            live.entry(l.clone()).or_insert(Live { since: t, firing: false, told: None, gone: None });
        }
        live.retain(|l, alert| {
            let events = events.entry(l.clone()).or_default();
            if there.contains(l) {
                alert.gone = None;
            } else {
                let gone = *alert.gone.get_or_insert(t);
                if !alert.firing || t - gone >= a.keep_firing_for_ms {
                    events.push((t, "inactive".into()));
                    return false;
                }
            }
            alert.firing |= t - alert.since >= a.for_ms;
            let state = if alert.firing { "firing" } else { "pending" };
            if alert.told.replace(state) != Some(state) {
                events.push((t, state.into()));
            }
            true
        });
    }
    let rows = a.transitions.of(version);
    let want: BTreeMap<Labels, Vec<(i64, String)>> =
        rows.iter().map(|r| (labels(&r.labels), r.events.clone())).collect();
    if events == want {
        return 1;
    }
    let _ = writeln!(wrong, "{} {version} alert {}: {events:?}, expected {want:?}", case.id, a.name);
    0
}
