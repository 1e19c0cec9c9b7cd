//! Rule files of the kind that people publish for vLLM, dcgm-exporter and Kubernetes, over recordings.
//! `tests/promtool-rules.sh` shows that a real Prometheus sees the same alerts in the first of these recordings.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use plimsoll::model::recording::RuleFile;
use plimsoll::model::sample::{Labels, NAME, Sample};
use plimsoll::model::verdict::{AlertState, AlertVerdict};
use plimsoll::promql::Reading;
use plimsoll::rules::{Judge, Limits, RuleSet, Timing};
use plimsoll::series::Store;

use crate::build::{Run, rules};

const VLLM: &str = include_str!("public/vllm.yml");
const KUBERNETES: &str = include_str!("public/kubernetes.yml");
const DCGM: &str = include_str!("public/dcgm.yml");

/// The alerts that fire in any step; none may fail to be evaluated.
fn firing<'a>(verdicts: impl IntoIterator<Item = &'a AlertVerdict>) -> BTreeSet<&'a str> {
    let mut out = BTreeSet::new();
    for v in verdicts {
        let because = v.because.as_deref().unwrap_or_default();
        assert!(!because.contains("cannot be evaluated"), "{}: {because}", v.alert);
        if v.state == AlertState::Firing {
            out.insert(v.alert.as_str());
        }
    }
    out
}

#[test]
fn files_for_vllm_judge_a_recording_of_a_real_one() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/small-pool");
    let recording = plimsoll::record::read(&folder).unwrap();
    let store = Store::from_recording(&recording);
    let scale = recording.header.time_scale;
    for (name, text, expected) in [
        (
            "vllm.yml",
            VLLM,
            &[
                "VllmEndToEndP99",
                "VllmFirstTokenP95",
                "VllmKvCacheHigh",
                "VllmQueueGrows",
                "VllmQueueHigh",
                "VllmSlowTokens",
                "VllmThroughputFell",
            ][..],
        ),
        ("kubernetes.yml", KUBERNETES, &["EngineSaturated", "SmallBlocks", "TtftBudgetBurns", "TtftP95High"][..]),
    ] {
        let file = RuleFile { name: name.into(), text: text.into() };
        let set = RuleSet::load(&[file], &Limits::default(), scale).unwrap();
        let timing = Timing { poll: Duration::from_secs(1).mul_f64(scale), ..Timing::default() };
        let judge = Judge::new(&set, &recording, &store, Reading::V3, timing);
        let verdicts: Vec<AlertVerdict> = recording.steps.iter().flat_map(|s| judge.step(s)).collect();
        assert_eq!(firing(&verdicts), expected.iter().copied().collect(), "{name}");
    }
}

#[test]
fn a_file_for_dcgm_judges_two_gpus() {
    let mut run = Run::new(1.0, 1.0).step(4, 60.0, 600.0);
    for second in 0..=600_u32 {
        let late = second >= 200;
        let readings = [
            ("GPU_TEMP", if late { 90.0 } else { 70.0 }, 60.0),
            ("SM_CLOCK", if late { 900.0 } else { 1_980.0 }, 1_980.0),
            ("GPU_UTIL", 95.0, 1.0),
            ("FB_USED", 77_000.0, 10_000.0),
            ("FB_FREE", 3_000.0, 70_000.0),
            ("POWER_USAGE", 300.0, 90.0),
            ("XID_ERRORS", 0.0, if late { 79.0 } else { 0.0 }),
        ];
        let sample = |name: &str, gpu: &str, value: f64| Sample {
            labels: Labels::new([
                (NAME, format!("DCGM_FI_DEV_{name}").as_str()),
                ("gpu", gpu),
                ("UUID", format!("GPU-{gpu}").as_str()),
                ("Hostname", "node-1"),
                ("modelName", "made up"),
            ]),
            value,
        };
        let page = readings.iter().flat_map(|(name, a, b)| [sample(name, "0", *a), sample(name, "1", *b)]).collect();
        run.gpu(f64::from(second), page);
    }
    let set = rules(DCGM);
    let verdicts = run.judged(&set, |judge| judge.step(&run.recording.steps[0]));
    let expected = ["GpuClockLow", "GpuHot", "GpuHotterThanItsPeers", "GpuIdle", "GpuMemoryFull", "GpuNamed", "GpuXid"];
    assert_eq!(firing(&verdicts), expected.into_iter().collect());
    let named = verdicts.iter().find(|v| v.alert == "GpuNamed").unwrap();
    assert!(named.labels.iter().any(|(n, v)| n == "node" && v == "node"), "{:?}", named.labels);
}

/// What is not supported is refused when the file is loaded, by name and place.
#[test]
fn what_cannot_be_evaluated_is_refused_with_its_name_and_place() {
    for (expr, named) in [
        ("histogram_fraction(0, 0.2, rate(x[5m])) < 0.9", "histogram_fraction"),
        ("sum(holt_winters(x[10m], 0.3, 0.3)) > 1", "holt_winters"),
        ("limitk(3, x) > 1", "limitk"),
    ] {
        let text = format!("groups:\n  - name: g\n    rules:\n      - alert: A\n        expr: {expr}\n");
        let file = RuleFile { name: "mine.yml".into(), text };
        let says = RuleSet::load(&[file], &Limits::default(), 1.0).unwrap_err().to_string();
        for part in ["mine.yml:5", "group g", "rule A", named] {
            assert!(says.contains(part), "{expr}: {says}");
        }
    }
}
