//! The whole program, as its user runs it, against the embedded stand-in: over real sockets, in
//! simulated time.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use plimsoll::model::verdict::{RunOutcome, Verdict};

/// A folder that is gone when the test is over.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("plimsoll-e2e-{}-{test}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn plimsoll(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env_remove("OPENAI_API_KEY")
        .output()
        .expect("the program starts")
}

fn path(p: &Path) -> &str {
    p.to_str().expect("a UTF-8 path")
}

fn run(out: &Path, args: &[&str]) -> Output {
    let output = plimsoll(&[&["run", "--out", path(out)], args].concat());
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{output:?}");
    output
}

fn verdict(dir: &Path) -> Verdict {
    let text = std::fs::read_to_string(dir.join("verdict.json")).expect("a verdict");
    serde_json::from_str(&text).expect("a verdict in its own shape")
}

/// Every file of two folders, byte by byte.
fn same(a: &Path, b: &Path) {
    let names = |dir: &Path| {
        let mut names: Vec<String> = std::fs::read_dir(dir)
            .expect("a result folder")
            .flatten()
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(a), names(b));
    for name in names(a) {
        let read = |dir: &Path| std::fs::read(dir.join(&name)).expect("a readable file");
        assert!(read(a) == read(b), "{name} differs between {} and {}", a.display(), b.display());
    }
}

#[test]
fn the_quickstart_finds_the_pool_and_gives_the_same_bytes_twice_and_from_its_recording() {
    let folder = Folder::new("quickstart");
    let (first, second) = (folder.join("first"), folder.join("second"));
    // Side by side, so that neither finds the machine as the other does: what a run says must not hang on that.
    let (one, two) = std::thread::scope(|scope| {
        let beside = scope.spawn(|| run(&second, &["scenarios/quickstart.toml"]));
        (run(&first, &["scenarios/quickstart.toml"]), beside.join().expect("the other run"))
    });
    assert_eq!(one.status.code(), Some(0), "{}", String::from_utf8_lossy(&one.stderr));
    let found = verdict(&first);
    assert_eq!(found.outcome, RunOutcome::Alert);
    let alert = found.first_alert.as_ref().expect("an alert");
    assert_eq!(alert.alert, "RequestsWaiting");
    let why = found.explanation.as_ref().expect("an explanation");
    assert_eq!((why.pair.as_str(), why.resource.as_deref()), ("PoolLimited", Some("kv_cache")), "{why:?}");
    // 127 blocks of 16 tokens hold four requests of 473 tokens: four streams are clean, a fifth waits.
    assert_eq!((found.highest_clean_concurrency, alert.concurrency), (Some(4.0), 5.0));
    assert_eq!(found.confirmed, Some(true));

    told_while_it_went_on(&first, &found);
    same(&first, &second);
    let answer = |output: &Output, dir: &Path| String::from_utf8_lossy(&output.stdout).replace(path(dir), "DIR");
    assert_eq!(answer(&one, &first), answer(&two, &second));

    let again = plimsoll(&["judge", path(&second)]);
    assert_eq!(again.status.code(), Some(0));
    same(&first, &second);
}

/// What was told to fire while the run went on is what the final verdict says, with the same times.
fn told_while_it_went_on(dir: &Path, found: &Verdict) {
    let recording = plimsoll::record::read(dir).expect("a recording");
    let told = recording.notes.iter().filter(|n| n.code == "alert_firing");
    let mut told: Vec<String> = told.map(|n| n.says.clone()).collect();
    let fired = found.steps.iter().flat_map(|s| s.alerts.iter().map(move |a| (s.step, a)));
    let seconds = |s: Option<f64>| (s.expect("a time") * 1e3).round() / 1e3;
    let mut final_ones: Vec<String> = fired
        .filter(|(_, a)| a.state == plimsoll::model::verdict::AlertState::Firing)
        .map(|(step, a)| {
            let (pending, firing) = (seconds(a.pending_at_s), seconds(a.fired_at_s));
            format!("step {step}: {} fires, pending from {pending} s, firing from {firing} s", a.alert)
        })
        .collect();
    told.sort();
    final_ones.sort();
    assert!(final_ones.len() > 2, "{final_ones:?}");
    assert_eq!(told, final_ones);
}

#[test]
fn another_seed_is_another_run() {
    let folder = Folder::new("seed");
    let (first, second) = (folder.join("first"), folder.join("second"));
    let args = ["--sim", "roomy", "--concurrency", "1", "--nonce", "n", "--time-scale", "0.1"];
    run(&first, &[&args[..], &["--seed", "1"]].concat());
    run(&second, &[&args[..], &["--seed", "2"]].concat());
    let recording = |dir: &Path| std::fs::read(dir.join("run.jsonl")).expect("a recording");
    assert!(recording(&first) != recording(&second));
}

#[test]
fn a_gate_that_fails_is_exit_code_99() {
    let folder = Folder::new("gate");
    let args = ["scenarios/quickstart.toml", "--concurrency", "4,8", "--gate"];
    let failed = run(&folder.join("failed"), &[&args[..], &["8"]].concat());
    assert_eq!(failed.status.code(), Some(99), "{}", String::from_utf8_lossy(&failed.stdout));
    let passed = run(&folder.join("passed"), &[&args[..], &["4"]].concat());
    assert_eq!(passed.status.code(), Some(0), "{}", String::from_utf8_lossy(&passed.stdout));
}

#[test]
fn the_prefix_cache_is_reset_before_the_first_step_and_its_answer_checked() {
    let folder = Folder::new("reset");
    for (dev_mode, code) in [(true, "\"prefix_reset\""), (false, "\"prefix_reset_refused\"")] {
        let scenario = folder.join("s.toml");
        let text = format!(
            "nonce = \"n\"\ntime_scale = 0.1\n[sim]\nprofile = \"roomy\"\n[sim.with.api]\ndev_mode = {dev_mode}\n\
             [workload]\nkind = \"fixed\"\ninput_tokens = 64\noutput_tokens = 16\n\
             [ladder]\nconcurrency = [1]\nprefix_reset = true\n"
        );
        std::fs::write(&scenario, text).expect("a writable folder");
        let out = folder.join(if dev_mode { "taken" } else { "refused" });
        let output = run(&out, &[path(&scenario)]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let recording = std::fs::read_to_string(out.join("run.jsonl")).expect("a recording");
        assert!(recording.contains(code), "no note {code}");
    }
}

/// Words without the line breaks that the terminal's width put between them.
fn in_one_line(text: &[u8]) -> String {
    String::from_utf8_lossy(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A scenario on the stand-in, written where the test works.
fn scenario(folder: &Folder, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a writable folder");
    path
}

#[test]
fn a_level_with_too_few_requests_does_not_void_a_clean_one_above_it() {
    let folder = Folder::new("few");
    // One stream of 1.3 s requests has 25 first tokens in 34 s, and 8 have 200.
    let file = scenario(
        &folder,
        "s.toml",
        "nonce = \"n\"\ntime_scale = 0.1\n[sim]\nprofile = \"h100-8b\"\n[workload]\nkind = \"fixed\"\n\
         input_tokens = 64\noutput_tokens = 190\n[ladder]\nconcurrency = [1, 8]\nhold = \"20s\"\nmax_hold = \"34s\"\n",
    );
    let out = folder.join("out");
    let output = run(&out, &[path(&file)]);
    let text = in_one_line(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let found = verdict(&out);
    assert_eq!((found.outcome, found.highest_clean_concurrency), (RunOutcome::Clean, Some(8.0)), "{text}");
    assert!(text.contains("the limit is higher (1 not judged)"), "{text}");
    // To prolong the step would have been in vain: it took its hold and no more.
    let measured_ms = (1e3 * (found.steps[0].measured_s[1] - found.steps[0].measured_s[0])).round();
    assert_eq!(measured_ms, 20_000.0);
    assert!(text.contains("a P99 needs 100") && text.contains("--max-hold"), "{text}");
    // The plan says so before.
    let plan = plimsoll(&["check", path(&file)]);
    let plan = in_one_line(&plan.stdout);
    assert!(plan.contains("these will not be judged; --max-hold") && plan.contains("or begin at 8"), "{plan}");
    assert!(plan.contains("ramp, warm-up and drain are not scaled"), "{plan}");
}

#[test]
fn a_server_that_hangs_is_lost_and_its_requests_are_counted() {
    let folder = Folder::new("hangs");
    for (streams, hang) in [("1", "1 request hangs"), ("8", "8 requests hang")] {
        let file = scenario(
            &folder,
            "s.toml",
            &format!(
                "nonce = \"n\"\ntime_scale = 0.1\n[sim]\nprofile = \"roomy\"\n[[sim.with.faults]]\nat = \"2s\"\n\
                 kind = \"freeze\"\n[workload]\nkind = \"fixed\"\ninput_tokens = 64\noutput_tokens = 500\n\
                 [ladder]\nconcurrency = \"{streams}..64x2\"\n"
            ),
        );
        let out = folder.join(streams);
        let output = run(&out, &[path(&file)]);
        let (text, progress) = (in_one_line(&output.stdout), in_one_line(&output.stderr));
        assert_eq!(output.status.code(), Some(3), "{text}");
        let found = verdict(&out);
        assert_eq!(found.steps.len(), 1, "{text}");
        assert!(progress.contains(&format!("the target is lost: the server hangs: {hang}")), "{progress}");
        assert!(text.contains("nothing has come from the server for"), "{text}");
    }
}

#[test]
fn other_rules_leave_the_reports_of_the_run_alone() {
    let folder = Folder::new("other-rules");
    let out = folder.join("out");
    let args = ["--sim", "roomy", "--concurrency", "1", "--nonce", "n", "--time-scale", "0.1"];
    run(&out, &args);
    let rules = scenario(
        &folder,
        "r.yml",
        "groups:\n  - name: g\n    rules:\n      - {alert: Busy, expr: vllm:num_requests_running > 0}\n",
    );
    let before = std::fs::read(out.join("verdict.json")).expect("a verdict");
    let other = folder.join("other");
    let printed = plimsoll(&["judge", path(&out), "--rules", path(&rules)]);
    assert!(String::from_utf8_lossy(&printed.stdout).contains("Busy at 1 stream"), "{printed:?}");
    plimsoll(&["judge", path(&out), "--rules", path(&rules), "--out", path(&other)]);
    assert_eq!(std::fs::read(out.join("verdict.json")).expect("a verdict"), before);
    assert_eq!(verdict(&other).first_alert.map(|a| a.alert).as_deref(), Some("Busy"));
}

#[test]
fn rules_that_are_off_judge_nothing_and_say_so() {
    let folder = Folder::new("rules-off");
    let args = ["--sim", "roomy", "--concurrency", "2", "--nonce", "n", "--time-scale", "0.1", "--rules", "off"];
    let output = run(&folder.join("out"), &args);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with("not judged   the rules are off"), "{text}");
}
