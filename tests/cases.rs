//! The scripted cases in `tests/cases`, each made from public reports of faults in tools of this kind.
//!
//! Every value under `expect` is checked, through one door per kind of input: streams drive the real client
//! against a scripted server under the paused clock, so that the expected times are exact; tables go through the
//! URL code, data sets through the workload's loader, pages through the real poller and the shipped rules, records through the
//! analysis, GPU readings through a scripted source. [`KEYS`] is the closed list of what
//! may stand under `expect`, `settings` and `drive`; a key that it lacks is a failure. Further folders of cases are
//! taken from the directories named in `PLIMSOLL_EXTRA_CASES`, separated by colons.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod doors;
mod scripted;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

/// Where a key is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    /// One answer of the client.
    Stream,
    /// Several requests of the client.
    Drive,
    /// The metrics page.
    Metrics,
    /// Statistics of given records.
    Records,
    /// The GPU source.
    Gpu,
    /// The URL code.
    Table,
    /// The data set's loader.
    Dataset,
    /// Says how the case is run.
    Setting,
    /// For readers.
    Prose,
}

/// Every key that may stand under `expect` (digits as `#`), `settings` or `drive`, and where it is checked.
const KEYS: &[(&str, Door)] = &[
    ("outcome", Door::Stream),
    ("error_class", Door::Stream),
    ("error_message_contains", Door::Stream),
    ("finish_reason", Door::Stream),
    ("tokens", Door::Stream),
    ("token_source", Door::Stream),
    ("partial_tokens", Door::Stream),
    ("ttft_ms", Door::Stream),
    ("first_answer_token_ms", Door::Stream),
    ("last_token_ms", Door::Stream),
    ("stream_end_ms", Door::Stream),
    ("request_ends_between_ms", Door::Stream),
    ("chunk_gaps_ms", Door::Stream),
    ("itl_ms", Door::Stream),
    ("itl_ms_if_spread", Door::Stream),
    ("itl_slo_verdict", Door::Stream),
    ("tpot_ms", Door::Stream),
    ("text", Door::Stream),
    ("text_chars", Door::Stream),
    ("reasoning", Door::Stream),
    ("flags", Door::Stream),
    ("ok", Door::Drive),
    ("failed", Door::Drive),
    ("by_class", Door::Drive),
    ("by_finish", Door::Drive),
    ("ttft_ms_each_ok", Door::Drive),
    ("tokens_each", Door::Drive),
    ("tokens_total", Door::Drive),
    ("tokens_mean", Door::Drive),
    ("stopped_early", Door::Drive),
    ("server_posts", Door::Drive),
    ("server_max_inflight", Door::Drive),
    ("distinct_prompt_head_sha", Door::Drive),
    ("stage_duration_ms_about", Door::Drive),
    ("requests", Door::Setting),
    ("concurrency", Door::Setting),
    ("max_tokens", Door::Setting),
    ("distinct_prompts", Door::Setting),
    ("retries", Door::Setting),
    ("idle_timeout_s", Door::Setting),
    ("rows", Door::Table),
    ("v#_v#_requests", Door::Table),
    ("lines", Door::Dataset),
    ("usable_lines", Door::Dataset),
    ("bad_lines", Door::Dataset),
    ("blank_lines", Door::Dataset),
    ("duplicate_of_line_#", Door::Dataset),
    ("longer_than_max_model_len", Door::Dataset),
    ("prompts", Door::Dataset),
    ("metric_used", Door::Metrics),
    ("alerts", Door::Metrics),
    ("waiting_total_at_#s", Door::Metrics),
    ("kv_max_at_#s", Door::Metrics),
    ("preemptions_increase_total", Door::Metrics),
    ("generation_tokens_increase_total", Door::Metrics),
    ("restart_seen_at_s", Door::Metrics),
    ("never", Door::Metrics),
    ("samples", Door::Metrics),
    ("labels_of_waiting", Door::Metrics),
    ("ttft_buckets", Door::Metrics),
    ("sample_lines", Door::Metrics),
    ("parse_errors", Door::Metrics),
    ("scrapes_ok", Door::Metrics),
    ("scrapes_failed", Door::Metrics),
    ("failure_classes", Door::Metrics),
    ("load_delayed_ms_max", Door::Metrics),
    ("prefix_cache_hit_share_in_run", Door::Metrics),
    ("warning", Door::Metrics),
    ("scrape_timeout_s", Door::Setting),
    ("failure_share", Door::Records),
    ("ttft_ms_success", Door::Records),
    ("p#_over_all_requests", Door::Records),
    ("measured_requests", Door::Records),
    ("ttft_ms_if_all_were_kept_p#", Door::Records),
    ("overlapping_warmup_requests_left_out", Door::Records),
    ("warmup_s", Door::Setting),
    ("measure_from_ms", Door::Setting),
    ("measure_to_ms", Door::Setting),
    ("utilization_gpu_pct", Door::Gpu),
    ("power_w", Door::Gpu),
    ("temperature_c", Door::Gpu),
    ("memory_used_bytes", Door::Gpu),
    ("fan_pct", Door::Gpu),
    ("unsupported_fields", Door::Gpu),
    ("exit_code_effect", Door::Gpu),
    ("note_#", Door::Prose),
    ("p#_note", Door::Prose),
];

/// One case's folder.
struct Case {
    name: String,
    folder: PathBuf,
    spec: Map<String, Value>,
}

impl Case {
    fn object(&self, key: &str) -> Map<String, Value> {
        self.spec.get(key).and_then(Value::as_object).cloned().unwrap_or_default()
    }

    fn input(&self, key: &str) -> Option<Value> {
        self.object("inputs").get(key).cloned()
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.join(file)).unwrap_or_else(|e| panic!("{}: {file}: {e}", self.name))
    }

    /// The expected values that belong to one door; for a stream also those that share a name with another's.
    fn expect(&self) -> Map<String, Value> {
        self.object("expect")
    }
}

fn cases() -> Vec<Case> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let extra = std::env::var("PLIMSOLL_EXTRA_CASES").unwrap_or_default();
    let roots = std::iter::once(own).chain(extra.split(':').filter(|r| !r.is_empty()).map(PathBuf::from));
    let mut all = Vec::new();
    for root in roots {
        let folders = std::fs::read_dir(&root).unwrap_or_else(|e| panic!("{}: {e}", root.display()));
        let mut folders: Vec<PathBuf> = folders.map(|f| f.unwrap().path()).collect();
        folders.push(root);
        folders.sort();
        for folder in folders.into_iter().filter(|f| f.join("case.json").exists()) {
            let text = std::fs::read_to_string(folder.join("case.json")).unwrap();
            let spec = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
            all.push(Case { name: folder.file_name().unwrap().to_string_lossy().into_owned(), folder, spec });
        }
    }
    assert!(all.len() >= 32, "{} cases", all.len());
    all
}

/// A key with its digits replaced, as [`KEYS`] has it.
fn shape(key: &str) -> String {
    let mut out = String::new();
    for c in key.chars() {
        match (c.is_ascii_digit(), out.ends_with('#')) {
            (true, true) => {}
            (true, false) => out.push('#'),
            (false, _) => out.push(c),
        }
    }
    out
}

/// Collects what does not hold, so that one run shows all of it.
#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn check<T: PartialEq + std::fmt::Debug>(&mut self, case: &str, what: &str, got: T, want: T) {
        if got != want {
            self.0.push(format!("{case}: {what}: got {got:?}, expected {want:?}"));
        }
    }

    fn close(&mut self, case: &str, what: &str, got: Option<f64>, want: Option<f64>, by: f64) {
        let same = match (got, want) {
            (Some(g), Some(w)) => (g - w).abs() <= by,
            (g, w) => g == w,
        };
        if !same {
            self.0.push(format!("{case}: {what}: got {got:?}, expected {want:?}"));
        }
    }

    fn settle(self) {
        assert!(self.0.is_empty(), "{} faults:\n{}", self.0.len(), self.0.join("\n"));
    }
}

#[test]
fn every_key_is_known() {
    let known: BTreeSet<&str> = KEYS.iter().map(|(k, _)| *k).collect();
    let mut faults = Faults::default();
    for case in cases() {
        for part in ["expect", "settings", "drive"] {
            for key in case.object(part).keys() {
                faults.check(&case.name, &format!("{part}.{key} is in KEYS"), known.contains(&*shape(key)), true);
            }
        }
        for key in case.object("inputs").keys() {
            let kinds = ["stream", "streams", "metrics", "records", "nvml", "table", "dataset"];
            faults.check(&case.name, &format!("inputs.{key} has a door"), kinds.contains(&key.as_str()), true);
        }
    }
    faults.settle();
}

#[test]
fn streams_give_their_exact_times_counts_and_classes() {
    let mut faults = Faults::default();
    let mut played = 0;
    for case in cases().iter().filter(|c| c.input("stream").is_some() || c.input("streams").is_some()) {
        played += 1;
        doors::streams::check(case, &mut faults);
    }
    assert!(played >= 19, "{played} streams");
    faults.settle();
}

#[test]
fn base_urls_are_joined_once_or_refused() {
    each("table", doors::tables::check);
}

#[test]
fn data_sets_are_read_row_by_row_with_every_fault_named() {
    each("dataset", doors::datasets::check);
}

#[test]
fn pages_are_scraped_and_judged() {
    let mut faults = Faults::default();
    for case in cases() {
        if let Some(Value::Array(pages)) = case.input("metrics") {
            doors::metrics::check(&case, &pages, &mut faults);
        }
    }
    faults.settle();
}

#[test]
fn records_are_counted_by_window_and_class() {
    each("records", doors::records::check);
}

#[test]
fn gpu_fields_are_read_one_by_one() {
    each("nvml", doors::gpu::check);
}

/// Takes every case with an input of that kind, which names a file, through its door.
fn each(input: &str, door: fn(&Case, &str, &mut Faults)) {
    let mut faults = Faults::default();
    for case in cases() {
        if let Some(file) = case.input(input) {
            door(&case, file.as_str().unwrap(), &mut faults);
        }
    }
    faults.settle();
}
