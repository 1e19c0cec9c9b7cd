//! The gate as CI meets it: exit codes, the baseline, and what is refused before any load.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use plimsoll::model::verdict::{CheckState, Verdict};

const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");

fn folder(test: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("plimsoll-gate-{}-{test}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// A scenario on the stand-in whose build is `slower` times as slow; levels and gate as given.
fn scenario(dir: &Path, name: &str, slower: f64, levels: &str, gate: &str) {
    let text = format!(
        "name = \"gated\"\nnonce = \"n\"\ntime_scale = 0.1\n[sim]\nprofile = \"quickstart\"\n\
         [[sim.with.faults]]\nkind = {{ slow = {{ factor = {slower:.3} }} }}\n\
         [workload]\nkind = \"synthetic\"\ninput_tokens = 64\n\
         output_tokens = {{ distribution = \"uniform\", min = 8, max = 24 }}\n\
         [ladder]\nconcurrency = [{levels}]\nnarrow = false\nconfirm = false\nhold = \"120s\"\n\
         [slo]\nttft_p99 = \"10s\"\nitl_p99 = \"1s\"\n[gate]\n{gate}\n"
    );
    std::fs::write(dir.join(name), text).unwrap();
}

fn plimsoll(dir: &Path, args: &[&str]) -> Output {
    let output = Command::new(PLIMSOLL)
        .args(args)
        .current_dir(dir)
        .env_remove("OPENAI_API_KEY")
        .env_remove("GITHUB_STEP_SUMMARY")
        .env_remove("GITHUB_ACTIONS")
        .output()
        .unwrap();
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{output:?}");
    output
}

fn verdict(dir: &Path) -> Verdict {
    serde_json::from_str(&std::fs::read_to_string(dir.join("verdict.json")).unwrap()).unwrap()
}

fn states(dir: &Path) -> Vec<(String, CheckState)> {
    verdict(dir).gate.unwrap().checks.into_iter().map(|c| (c.check, c.state)).collect()
}

#[test]
fn thresholds_pass_fail_and_stay_unresolved_with_their_exit_codes() {
    let dir = folder("thresholds");
    use CheckState::{Failed, Passed, Unresolved};
    for (name, gate, code, expected) in [
        (
            "pass",
            "thresholds = [\"ttft p50 < 2s at 2\", \"output_tokens_per_s > 5 at 2\", \"gap p99 < 900ms\", \"not RequestsWaiting\"]",
            0,
            vec![Passed, Passed, Passed, Passed],
        ),
        ("fail", "thresholds = [\"gap p50 < 1ms\", \"error_rate < 100%\"]", 99, vec![Failed, Passed]),
        // Too few requests to show a share that small, and a pair whose metrics were never there.
        ("few", "thresholds = [\"error_rate < 0.01%\", \"ttft p50 < 2s at 2\"]", 4, vec![Unresolved, Passed]),
    ] {
        scenario(&dir, &format!("{name}.toml"), 1.0, "1, 2", gate);
        let output = plimsoll(&dir, &["run", &format!("{name}.toml"), "--out", name]);
        assert_eq!(output.status.code(), Some(code), "{name}: {}", String::from_utf8_lossy(&output.stdout));
        let found: Vec<CheckState> = states(&dir.join(name)).into_iter().map(|(_, s)| s).collect();
        assert_eq!(found, expected, "{name}: {:?}", verdict(&dir.join(name)).gate);
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn what_cannot_be_gated_on_is_refused_before_any_load_with_line_and_choice() {
    let dir = folder("refused");
    for (gate, parts) in [
        ("thresholds = [\"ttft p98 < 1s\"]", vec!["s.toml:21", "`p98`", "p50, p90, p99"]),
        ("thresholds = [\"ttft p99 < 1s at 3\"]", vec!["at 3", "a level of the ladder: 1, 2"]),
        ("thresholds = [\"not GpuMelted\"]", vec!["GpuMelted", "expected one of", "RequestsWaiting"]),
        ("against = \"nowhere/verdict.json\"", vec!["nowhere/verdict.json", "gate.against"]),
        ("against = \"s.toml\"", vec!["s.toml is no verdict"]),
        ("max_regression = \"0%\"", vec!["gate.max_regression"]),
        ("treshold = []", vec!["s.toml:21", "`treshold`"]),
    ] {
        scenario(&dir, "s.toml", 1.0, "1, 2", gate);
        let output = plimsoll(&dir, &["run", "s.toml", "--out", "out"]);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{gate}: {err}");
        for part in parts {
            assert!(err.contains(part), "{gate}: `{part}` is not in {err}");
        }
        assert!(!dir.join("out").exists(), "{gate}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_slower_build_fails_against_its_predecessor_and_an_unchanged_one_passes() {
    let dir = folder("baseline");
    scenario(&dir, "base.toml", 1.0, "1, 2, 4", "");
    assert_eq!(plimsoll(&dir, &["run", "base.toml", "--out", "baseline"]).status.code(), Some(0));
    let gate = "against = \"baseline/verdict.json\"";
    scenario(&dir, "same.toml", 1.0, "1, 2, 4", gate);
    scenario(&dir, "slow.toml", 1.1, "1, 2, 4", gate);
    let same = plimsoll(&dir, &["run", "same.toml", "--out", "same", "--seed", "2"]);
    assert_eq!(same.status.code(), Some(0), "{}", String::from_utf8_lossy(&same.stdout));
    let slow = plimsoll(&dir, &["run", "slow.toml", "--out", "slow", "--seed", "3"]);
    assert_eq!(slow.status.code(), Some(99), "{}", String::from_utf8_lossy(&slow.stdout));
    let checks = states(&dir.join("slow"));
    assert!(checks.contains(&("gap p50 no worse".into(), CheckState::Failed)), "{checks:?}");
    assert!(checks.contains(&("limit no lower".into(), CheckState::Passed)), "{checks:?}");

    // The recording judges alone: the baseline went into its folder.
    let before = std::fs::read(dir.join("slow/verdict.json")).unwrap();
    std::fs::remove_file(dir.join("baseline/verdict.json")).unwrap();
    assert_eq!(plimsoll(&dir, &["judge", "slow"]).status.code(), Some(99));
    assert!(before == std::fs::read(dir.join("slow/verdict.json")).unwrap());

    // The same by hand, from folders and from a verdict alone, alike to the byte.
    let folders = plimsoll(&dir, &["compare", "baseline", "slow"]);
    let verdicts = plimsoll(&dir, &["compare", "slow/baseline.json", "slow/verdict.json"]);
    assert_eq!(folders.status.code(), Some(99), "{}", String::from_utf8_lossy(&folders.stderr));
    assert_eq!(folders.stdout, verdicts.stdout);
    assert_eq!(plimsoll(&dir, &["compare", "baseline", "same"]).status.code(), Some(0));

    // Another scale is another experiment.
    scenario(&dir, "other.toml", 1.0, "1, 2, 4", gate);
    let text = std::fs::read_to_string(dir.join("other.toml")).unwrap();
    std::fs::write(dir.join("other.toml"), text.replace("input_tokens = 64", "input_tokens = 128").replace(gate, ""))
        .unwrap();
    assert_eq!(plimsoll(&dir, &["run", "other.toml", "--out", "other"]).status.code(), Some(0));
    let refused = plimsoll(&dir, &["compare", "baseline", "other"]);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    let err = String::from_utf8_lossy(&refused.stderr);
    assert!(err.contains("they differ in lengths") && err.contains("--force"), "{err}");
    let forced = plimsoll(&dir, &["compare", "baseline", "other", "--force"]);
    assert!(String::from_utf8_lossy(&forced.stdout).contains("caveat: not comparable: lengths"), "{forced:?}");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn github_is_told_where_it_listens() {
    let dir = folder("github");
    scenario(&dir, "s.toml", 1.0, "1, 2", "thresholds = [\"gap p50 < 1ms\"]");
    std::fs::write(dir.join("summary.md"), "an earlier step\n").unwrap();
    let output = Command::new(PLIMSOLL)
        .args(["run", "s.toml", "--out", "out"])
        .current_dir(&dir)
        .env("GITHUB_STEP_SUMMARY", dir.join("summary.md"))
        .env("GITHUB_ACTIONS", "true")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(99));
    let summary = std::fs::read_to_string(dir.join("summary.md")).unwrap();
    assert!(summary.starts_with("an earlier step\n\n## "), "{summary}");
    assert_eq!(summary[17..], std::fs::read_to_string(dir.join("out/report.md")).unwrap());
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("::error title=gate%3A check failed::gap p50 < 1ms"), "{err}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("::error"));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn repeats_are_runs_of_their_own_and_make_the_comparison_sure() {
    let dir = folder("repeats");
    scenario(&dir, "base.toml", 1.0, "1, 2", "");
    for (out, seed) in [("base", "1"), ("new", "2")] {
        let output = plimsoll(&dir, &["run", "base.toml", "--out", out, "--seed", seed, "--repeats", "3"]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let v = verdict(&dir.join("base"));
    let ran: Vec<(u32, f64)> = v.steps.iter().map(|s| (s.repeat, s.concurrency)).collect();
    assert_eq!(ran, [(0, 1.0), (0, 2.0), (1, 1.0), (1, 2.0), (2, 1.0), (2, 2.0)]);
    let output = plimsoll(&dir, &["compare", "base", "new", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let found: plimsoll::model::comparison::Comparison = serde_json::from_slice(&output.stdout).unwrap();
    // One value a level: the repeats are merged.
    let gaps: Vec<Option<f64>> = found
        .changes
        .iter()
        .filter(|c| c.metric == plimsoll::model::comparison::Metric::GapP50)
        .map(|c| c.level)
        .collect();
    assert_eq!(gaps, [Some(1.0), Some(2.0), None]);
    std::fs::remove_dir_all(&dir).unwrap();
}
