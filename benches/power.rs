//! What the gate catches: how often it passes a build that is as slow as its predecessor, and one that is slower.
//!
//! `cargo bench --bench power` runs the release gate (scenarios/release-gate.toml, default settings and lengths) on the
//! stand-in, whose pace was fitted to recorded runs of a real vLLM 0.31 (`tests/sim/jitter.rs`), at several
//! effect sizes and twenty pairs each, and prints the power curve. Both runs of a pair send the same requests, as two runs of a
//! scenario do; what differs is the server's own chance. It takes some minutes. `-- --pairs 5 --slower 0,10` makes it shorter.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Percent by which the new build is slower than the base.
const SLOWER: &str = "0,2,4,5,6,8,10,15,20";
/// Pairs of runs at each.
const PAIRS: usize = 20;
/// Runs at once.
const WIDE: usize = 2;

/// The stand-in: `roomy` with the jitter of the real one.
const SIM: &str = include_str!("../scenarios/sim-release-gate.toml");

#[expect(clippy::print_stdout, reason = "the answer of a benchmark")]
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let value = |flag: &str| args.iter().position(|a| a == flag).and_then(|i| args.get(i + 1).cloned());
    let pairs = value("--pairs").and_then(|n| n.parse().ok()).unwrap_or(PAIRS);
    let slower: Vec<f64> =
        value("--slower").unwrap_or_else(|| SLOWER.into()).split(',').filter_map(|x| x.parse().ok()).collect();
    let dir = std::env::temp_dir().join(format!("plimsoll-power-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary folder");

    let jobs: Vec<usize> = (0..pairs).collect();
    spread(&jobs, |pair| {
        let base = dir.join(format!("base-{pair}"));
        scenario(&dir, &format!("base-{pair}.toml"), 0.0, None, 1_000 + *pair);
        run(&dir, &format!("base-{pair}.toml"), &base);
    });
    println!("slower by   passed  failed  unresolved   of {pairs}");
    for percent in &slower {
        let found = Mutex::new([0_usize; 3]);
        spread(&jobs, |pair| {
            let name = format!("new-{percent}-{pair}");
            scenario(&dir, &format!("{name}.toml"), *percent, Some(*pair), 2_000 + *pair);
            let code = run(&dir, &format!("{name}.toml"), &dir.join(&name));
            let place = match code {
                0 => 0,
                99 => 1,
                4 => 2,
                other => panic!("a run ended with exit code {other}"),
            };
            found.lock().expect("no thread panicked")[place] += 1;
            let _ = std::fs::remove_dir_all(dir.join(&name));
        });
        let [passed, failed, unresolved] = *found.lock().expect("no thread panicked");
        let bar = "#".repeat(failed * 40 / pairs.max(1));
        println!("{percent:>6} %   {passed:>6}  {failed:>6}  {unresolved:>10}   {bar}");
    }
    let _ = std::fs::remove_dir_all(&dir);
}

/// Does all jobs, a few at a time.
fn spread(jobs: &[usize], job: impl Fn(&usize) + Sync) {
    let next = Mutex::new(jobs.iter());
    std::thread::scope(|scope| {
        for _ in 0..WIDE {
            scope.spawn(|| {
                loop {
                    let Some(mine) = next.lock().expect("no thread panicked").next() else { return };
                    job(mine);
                }
            });
        }
    });
}

/// Writes the release gate on the stand-in; with a baseline if it is to be held against one.
fn scenario(dir: &Path, name: &str, percent: f64, baseline: Option<usize>, chance: usize) {
    let mut text =
        format!("{SIM}\n[[sim.with.faults]]\nkind = {{ slow = {{ factor = {:.4} }} }}\n", 1.0 + percent / 100.0);
    text = text.replace("profile = \"roomy\"", &format!("profile = \"roomy\"\nseed = {chance}"));
    if let Some(pair) = baseline {
        text = text.replace("[gate]", &format!("[gate]\nagainst = \"base-{pair}/verdict.json\""));
    }
    std::fs::write(dir.join(name), text).expect("a writable folder");
}

fn run(dir: &Path, scenario: &str, out: &Path) -> i32 {
    let status = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["run", scenario, "--no-tui", "--out"])
        .arg(out)
        .current_dir(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("the program starts");
    status.code().unwrap_or(-1)
}
