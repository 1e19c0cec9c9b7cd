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
    let one = run(&first, &["scenarios/quickstart.toml"]);
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

    let two = run(&second, &["scenarios/quickstart.toml"]);
    same(&first, &second);
    let answer = |output: &Output, dir: &Path| String::from_utf8_lossy(&output.stdout).replace(path(dir), "DIR");
    assert_eq!(answer(&one, &first), answer(&two, &second));

    let again = plimsoll(&["judge", path(&second)]);
    assert_eq!(again.status.code(), Some(0));
    same(&first, &second);
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
