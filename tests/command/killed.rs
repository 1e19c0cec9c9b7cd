//! A run that is killed with SIGKILL, at any moment: what was recorded is the beginning of what the whole
//! run would have recorded, and it is judged.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use plimsoll::model::verdict::Verdict;
use rand::{RngExt, SeedableRng};

const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");
/// Kills; each at another point of the recording.
const KILLS: usize = 30;
/// Runs at once.
const WIDE: usize = 2;

fn folder() -> PathBuf {
    let path = std::env::temp_dir().join(format!("plimsoll-killed-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn run(out: &Path) -> Command {
    let mut command = Command::new(PLIMSOLL);
    command.args([
        "run",
        "--sim",
        "roomy",
        "--concurrency",
        "1",
        "--nonce",
        "n",
        "--time-scale",
        "0.1",
        "--input-len",
        "64",
        "--output-len",
        "4",
        "--no-tui",
        "--out",
    ]);
    command.arg(out).stdout(Stdio::null()).stderr(Stdio::null()).env_remove("OPENAI_API_KEY");
    command
}

/// Kills a run once its recording has grown to `bytes`. False if it was over before.
fn kill_at(out: &Path, bytes: u64) -> bool {
    let mut child = run(out).spawn().unwrap();
    let recording = out.join("run.jsonl");
    loop {
        if std::fs::metadata(&recording).is_ok_and(|m| m.len() >= bytes) {
            child.kill().unwrap();
        } else if child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(500));
            continue;
        }
        return child.wait().unwrap().code().is_none();
    }
}

/// Seconds of the run that the last whole line of a recording speaks of.
fn last_moment(recording: &[u8], dir: &Path) -> f64 {
    let whole = recording.iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
    let cut = dir.join("cut");
    std::fs::create_dir_all(&cut).unwrap();
    std::fs::write(cut.join("run.jsonl"), &recording[..whole]).unwrap();
    plimsoll::record::read(&cut).unwrap().last.as_secs_f64()
}

#[test]
fn killed_at_thirty_points_the_recording_is_judged_as_far_as_it_went() {
    let dir = folder();
    let whole = dir.join("whole");
    assert!(run(&whole).status().unwrap().code().is_some_and(|c| c == 0 || c == 4));
    let expected = std::fs::read(whole.join("run.jsonl")).unwrap();
    // From the end of the header on: before it there is no recording to judge.
    let header = expected.iter().position(|b| *b == b'\n').unwrap() as u64 + 1;
    let mut chance = rand_pcg::Pcg64Mcg::seed_from_u64(30);
    let points: Vec<u64> = (0..KILLS).map(|_| chance.random_range(header..expected.len() as u64)).collect();
    let killed = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for worker in 0..WIDE {
            let (dir, points, expected, killed) = (&dir, &points, &expected, &killed);
            scope.spawn(move || {
                for (n, bytes) in points.iter().enumerate().skip(worker).step_by(WIDE) {
                    let out = dir.join(n.to_string());
                    let was_killed = kill_at(&out, *bytes);
                    let recorded = std::fs::read(out.join("run.jsonl")).unwrap();
                    assert!(expected.starts_with(&recorded), "point {n}: not the beginning of the whole run");
                    assert!(recorded.len() as u64 >= *bytes, "point {n}: what was on the disk is gone");
                    let judged = Command::new(PLIMSOLL).args(["judge"]).arg(&out).output().unwrap();
                    assert!(judged.status.code().is_some_and(|c| c == 0 || c == 4), "point {n}: {judged:?}");
                    let text = std::fs::read_to_string(out.join("verdict.json")).unwrap();
                    let verdict: Verdict = serde_json::from_str(&text).unwrap();
                    let last = last_moment(&recorded, &out);
                    assert_eq!(verdict.duration_s, last, "point {n}: judged as far as it was recorded");
                    if was_killed && recorded.len() < expected.len() {
                        assert_eq!(verdict.stopped, None, "point {n}");
                        assert!(verdict.caveats.iter().any(|c| c.code == "unfinished"), "point {n}");
                        killed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let killed = killed.into_inner();
    // A point near the end may come too late; nearly all must not.
    assert!(killed * 3 >= KILLS * 2, "only {killed} of {KILLS} runs were killed before their end");
    std::fs::remove_dir_all(&dir).unwrap();
}
