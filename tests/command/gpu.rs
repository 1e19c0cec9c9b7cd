//! The stand-in's GPU in whole runs: throttled from a step on, it is blamed; healthy, never.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll::model::recording::StopReason;
use plimsoll::model::verdict::{CheckState, RunOutcome, Verdict};

fn plimsoll(args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(args)
        .env_remove("OPENAI_API_KEY")
        .output()
        .expect("the program starts");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{output:?}");
    output
}

/// A ladder of five steps that an L4 passes, and a sixth whose 40 streams find only 22 seats: there requests wait.
fn scenario(folder: &Path, name: &str, fault: &str) -> String {
    let path = folder.join(format!("{name}.toml"));
    let text = format!(
        "name = \"{name}\"\ntime_scale = 0.1\nnonce = \"{name}\"\n\
         [workload]\nkind = \"fixed\"\ninput_tokens = 32\noutput_tokens = 6\n\
         [ladder]\nconcurrency = \"8,12,16,18,20,40\"\nwarmup = \"2s\"\nramp = \"1s\"\nnarrow = false\nconfirm = false\n\
         [metrics]\ninterval = \"3s\"\n[gpu]\ninterval = \"5s\"\n\
         [slo]\nitl_p99 = \"160ms\"\nttft_p99 = \"2s\"\n\
         [sim]\nprofile = \"l4-8b\"\n[sim.with.engine]\nmax_num_seqs = 22\n{fault}"
    );
    std::fs::write(&path, text).expect("a scenario");
    path.to_str().expect("a UTF-8 path").to_owned()
}

fn run(folder: &Path, name: &str, fault: &str, seed: u64) -> Verdict {
    let (file, out) = (scenario(folder, name, fault), folder.join(format!("{name}-results")));
    let seed = seed.to_string();
    let output = plimsoll(&["run", &file, "--seed", &seed, "--json", "--out", out.to_str().expect("a UTF-8 path")]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{name}: {e}: {output:?}"))
}

/// What a seed must show: healthy, the seats run out and the GPU is never named; throttled in step 4, the GPU is.
fn check(folder: &Path, seed: u64) {
    let healthy = run(folder, &format!("healthy-{seed}"), "", seed);
    let cause = healthy.explanation.as_ref().expect("the seats run out");
    assert!(!cause.pair.starts_with("Gpu") && healthy.hardware.is_none(), "seed {seed}: {cause:?}");
    assert_eq!((healthy.outcome, healthy.highest_clean_concurrency), (RunOutcome::Alert, Some(20.0)), "seed {seed}");
    let gpu_caveats = healthy.steps.iter().flat_map(|s| &s.caveats).filter(|c| c.code.starts_with("gpu_")).count();
    assert_eq!(gpu_caveats, 0, "seed {seed}");
    assert!(healthy.steps.iter().all(|s| s.gpu.len() == 1 && s.gpu[0].energy_j_per_1k_tokens.is_some()));

    // Up to here both runs are the same to the byte, so the fault falls into step 4.
    let begins = healthy.steps[4].warmup_s[0];
    let fault =
        format!("[[sim.with.faults]]\nat = \"{}ms\"\nkind = {{ throttle = {{ clock = 0.45 }} }}\n", begins * 1e3);
    let hot = run(folder, &format!("hot-{seed}"), &fault, seed);
    let first = hot.first_alert.as_ref().expect("a latency alert");
    assert_eq!((first.step, hot.highest_clean_concurrency), (4, Some(18.0)), "seed {seed}: {first:?}");
    assert!(first.alert.contains("InterToken") || first.alert.contains("Gap"), "seed {seed}: {first:?}");
    let cause = hot.explanation.as_ref().expect("a cause");
    assert_eq!(cause.pair, "GpuThermalSlowdown", "seed {seed}: {cause:?}");
    assert!(cause.summary.starts_with("the hardware, not the configuration: the GPU is too hot (87 °C)"), "{cause:?}");
    assert_eq!(hot.hardware.as_ref().map(|h| h.pair.as_str()), Some("GpuThermalSlowdown"));
    assert_eq!(hot.steps[4].gpu[0].throttle_reasons[0].reason, "sw_thermal_slowdown");
    for report in ["report.md", "report.html", "junit.xml"] {
        let text = std::fs::read_to_string(folder.join(format!("hot-{seed}-results/{report}"))).expect("a report");
        assert!(text.to_lowercase().contains("hardware"), "{report} does not tell");
    }
}

#[test]
fn a_throttled_gpu_is_blamed_in_every_seed_and_a_healthy_one_in_none() {
    // A debug build takes its time; what CI runs is a release build.
    let seeds = if cfg!(debug_assertions) { 1 } else { 20 };
    let folder = std::env::temp_dir().join(format!("plimsoll-gpu-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let next = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > seeds {
                        break;
                    }
                    check(&folder, seed);
                }
            });
        }
    });
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn errors_of_the_memory_make_the_run_void() {
    let folder = std::env::temp_dir().join(format!("plimsoll-gpu-void-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let fault = "[[sim.with.faults]]\nat = \"15s\"\nkind = { memory_errors = { errors = 2 } }\n";
    let file = scenario(&folder, "void", fault);
    let out = folder.join("results");
    let args =
        ["run", &file, "--concurrency", "8,12,16,18", "--json", "--gate", "8", "--out", out.to_str().unwrap_or("")];
    let output = plimsoll(&args);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let verdict: Verdict = serde_json::from_slice(&output.stdout).expect("a verdict");
    assert!(verdict.void.is_some() && verdict.highest_clean_concurrency.is_none(), "{:?}", verdict.void);
    // Nothing that follows could count: the run ends with the step in which it happened, and the gate says why.
    assert_eq!((verdict.stopped, verdict.steps.len()), (Some(StopReason::Void), 2));
    let [from, to] = verdict.steps[1].measured_s;
    assert!(from < 15.0 && 15.0 < to, "{from} to {to}");
    let checks = verdict.gate.expect("a gate").checks;
    assert!(checks.iter().all(|c| c.state == CheckState::Unresolved && c.says.contains("memory errors")), "{checks:?}");
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn the_stand_in_has_a_gpu_of_its_own_and_no_other() {
    let output = plimsoll(&["check", "--sim", "l4-8b"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("NVIDIA L4") && text.contains("MHz SM") && text.contains("hardware at 89 °C"), "{text}");
    let output = plimsoll(&["check", "--sim", "l4-8b", "--gpu", "off"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("gpu       not read: it is switched off"), "{output:?}");
    let output = plimsoll(&["run", "--sim", "quickstart", "--gpu", "nvml"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("gpu.source (--gpu) is `nvml`") && text.contains("expected auto or off"), "{text}");
}
