//! Ground truth: servers that are built to break for one reason, and whether that reason is named.
//!
//! Each scenario `scenarios/sim-*.toml` makes its state by mechanism (too few blocks, a low ceiling, a slow
//! tokenizer), never by writing what the metrics should show. Each is run in three sizes and with five seeds, as its user
//! runs it. The confusion matrix is printed by
//!
//! ```text
//! cargo test --release --test ground_truth -- --nocapture
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking; what it prints is for --nocapture"
)]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use plimsoll::model::verdict::{RunOutcome, Verdict};

/// Seeds that every size of every scenario is run with.
const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];
/// What the matrix says where no alert fired.
const NOTHING: &str = "(no alert)";

/// A scenario, the pair that is right, and its further sizes as changes to the file: the file itself is the first.
struct Truth {
    scenario: &'static str,
    pair: &'static str,
    sizes: [&'static str; 2],
}

const TRUTHS: &[Truth] = &[
    Truth {
        scenario: "healthy",
        pair: NOTHING,
        sizes: [
            "workload.input_tokens = 60\nworkload.output_tokens = 12\nladder.hold = '9s'",
            "workload.input_tokens = 700\nworkload.output_tokens = 4\nladder.concurrency = [6, 12]",
        ],
    },
    Truth {
        scenario: "small-pool",
        pair: "PoolLimited",
        sizes: [
            // Prompts so small that the pool is used to its last block.
            "workload.input_tokens = 100\nworkload.output_tokens = 8\nsim.with.engine.num_gpu_blocks = 64\nsim.with.engine.max_model_len = 512\nladder.concurrency = [6, 16]",
            "workload.input_tokens = 800\nsim.with.engine.num_gpu_blocks = 220\nsim.with.engine.max_model_len = 2048\nsim.with.engine.max_num_batched_tokens = 8192\nworkload.output_tokens = 16\nladder.concurrency = [3, 9]\nladder.hold = '10s'",
        ],
    },
    Truth {
        scenario: "sequence-limit",
        pair: "SequenceLimited",
        sizes: [
            "sim.with.engine.max_num_seqs = 2\nladder.concurrency = [2, 5]\nworkload.input_tokens = 60\nladder.hold = '12s'",
            "sim.with.engine.max_num_seqs = 10\nladder.concurrency = [8, 14]\nworkload.input_tokens = 400",
        ],
    },
    Truth {
        scenario: "token-budget",
        pair: "TokenBudget",
        sizes: [
            "sim.with.engine.max_num_batched_tokens = 32\nsim.with.engine.max_num_seqs = 32\nworkload.input_tokens = 160\nladder.concurrency = [1, 5]",
            "sim.with.engine.max_num_batched_tokens = 128\nworkload.input_tokens = 640\nladder.concurrency = [1, 10]\nladder.hold = '20s'",
        ],
    },
    Truth {
        scenario: "deferred",
        pair: "RequestsDeferred",
        sizes: [
            "sim.with.engine.grammar_workers = 1\nladder.concurrency = [1, 6]",
            "sim.with.engine.grammar_us = 150_000\nsim.with.engine.grammar_workers = 4\nladder.concurrency = [1, 24]\nladder.hold = '20s'\nworkload.input_tokens = 150",
        ],
    },
    Truth {
        scenario: "never-fits",
        pair: "RequestNeverFits",
        sizes: [
            "sim.with.engine.num_gpu_blocks = 40\nladder.concurrency = [2, 4, 6]",
            "sim.with.engine.num_gpu_blocks = 24\nladder.concurrency = [1, 3, 8]\nworkload.output_tokens = 12",
        ],
    },
    Truth {
        scenario: "queue-cap",
        pair: "QueueCap",
        sizes: [
            "sim.with.api.max_num_queued_reqs = 3\nladder.concurrency = [3, 5]\nladder.hold = '9s'",
            // The other cap: prompt tokens that have not started.
            "sim.with.api.max_num_queued_reqs = 1000\nsim.with.api.max_num_queued_tokens = 800\nladder.concurrency = [4, 24]",
        ],
    },
    Truth {
        scenario: "preemptions",
        pair: "PreemptionsLongAnswers",
        sizes: [
            "sim.with.engine.num_gpu_blocks = 24\nworkload.output_tokens = 40\nsim.with.engine.max_model_len = 128\nladder.max_hold = '20s'",
            "sim.with.engine.num_gpu_blocks = 30\nladder.concurrency = [4, 12]\nladder.hold = '12s'",
        ],
    },
    Truth {
        scenario: "long-prompts",
        pair: "LongPrompts",
        sizes: [
            "workload.input_tokens = 100\nslo.ttft_p99 = '150ms'",
            "workload.input_tokens = 400\nslo.ttft_p99 = '600ms'\nladder.hold = '32s'",
        ],
    },
    Truth {
        scenario: "slow-tokenizer",
        pair: "SlowApiServer",
        sizes: [
            // The server times each request itself.
            "sim.with.api.per_request_metrics = true\nworkload.input_tokens = 200",
            "workload.input_tokens = 600\nladder.concurrency = [1, 6]\nslo.ttft_p99 = '750ms'\nladder.hold = '36s'",
        ],
    },
    Truth {
        scenario: "event-loop",
        pair: "SlowApiServer",
        sizes: [
            "sim.with.api.output_us = 6000\nladder.concurrency = [2, 16]\nslo.ttft_p99 = '250ms'",
            "sim.with.api.output_us = 2500\nladder.concurrency = [4, 32]\nslo.ttft_p99 = '250ms'",
        ],
    },
    Truth {
        scenario: "slow-delivery",
        pair: "SlowDelivery",
        sizes: [
            "sim.with.api.output_us = 10000\nladder.concurrency = [2, 8]\nladder.hold = '10s'",
            "sim.with.api.output_us = 4000\nladder.concurrency = [4, 24]",
        ],
    },
    Truth {
        scenario: "proxy",
        pair: "SlowNetwork",
        sizes: [
            "sim.with.proxy.connections = 2\nladder.concurrency = [2, 6]\nladder.hold = '10s'",
            "sim.with.proxy.connections = 8\nladder.concurrency = [6, 32]\nslo.ttft_p99 = '400ms'",
        ],
    },
    Truth {
        scenario: "full-batch",
        pair: "FullBatchGaps",
        sizes: [
            "sim.with.cost.decode_us = 8_000\nladder.concurrency = [1, 6]\nladder.hold = '24s'",
            "sim.with.cost.decode_us = 2_000\nladder.concurrency = [3, 18]\nworkload.output_tokens = 24",
        ],
    },
    Truth {
        scenario: "prefill-stalls",
        pair: "PrefillStalls",
        sizes: [
            "workload.input_tokens = 250\nladder.concurrency = [1, 3]",
            "workload.input_tokens = 500\nladder.concurrency = [1, 6]\nladder.hold = '24s'",
        ],
    },
    Truth {
        scenario: "prefix-cache",
        pair: "PrefixCacheFell",
        sizes: [
            "ladder.concurrency = [6, 30]\nsim.with.engine.num_gpu_blocks = 140\nladder.hold = '34s'",
            "workload.turns = 8\nsim.with.engine.num_gpu_blocks = 260\nladder.concurrency = [8, 44]\nslo.ttft_p99 = '150ms'",
        ],
    },
    Truth {
        scenario: "draft-acceptance",
        pair: "DraftAcceptanceFell",
        sizes: [
            "ladder.request_rate = [5, 7]\nsim.with.engine.max_num_seqs = 4\nladder.hold = '21s'\nladder.max_hold = '21s'\nsim.with.faults = [{ at = '25s', kind = { drift = { acceptance = 0.1 } } }]",
            "workload.output_tokens = 24\nladder.request_rate = [4, 7]\nworkload.input_tokens = 120",
        ],
    },
    Truth {
        scenario: "frozen",
        pair: "FrozenEngine",
        sizes: [
            "ladder.concurrency = [3, 5]\nladder.hold = '8s'\nworkload.input_tokens = 60",
            // Frozen while requests wait for a seat.
            "sim.with.engine.max_num_seqs = 6\nladder.concurrency = [5, 10]\nworkload.output_tokens = 8\nsim.with.faults = [{ at = '12s', kind = 'freeze' }]",
        ],
    },
    Truth {
        scenario: "throttled",
        pair: "GpuThermalSlowdown",
        sizes: [
            "sim.with.faults = [{ at = '13s', kind = { throttle = { clock = 0.3 } } }]\nworkload.input_tokens = 60\nworkload.output_tokens = 12\nladder.concurrency = [6, 8]",
            "sim.with.faults = [{ at = '13s', kind = { throttle = { clock = 0.5 } } }]\nworkload.output_tokens = 8\nladder.concurrency = [14, 20]\nslo.itl_p99 = '145ms'",
        ],
    },
    Truth {
        scenario: "slow-steps",
        pair: "Unexplained",
        sizes: [
            "workload.input_tokens = 120\nladder.concurrency = [5, 6]",
            "sim.with.faults = [{ at = '14s', kind = { slow = { factor = 8.0 } } }]\nladder.concurrency = [4, 6]",
        ],
    },
    Truth {
        scenario: "dropped",
        pair: "Unexplained",
        sizes: [
            "sim.with.faults = [{ at = '12s', kind = { drop = { share = 0.05 } } }]\nladder.concurrency = [6, 8]",
            // Streams that are cut in the middle.
            "sim.with.faults = [{ at = '12s', kind = { cut = { share = 0.2, after = 3 } } }]",
        ],
    },
];

/// One run: which truth, which size, which seed.
#[derive(Clone, Copy)]
struct Case {
    truth: &'static Truth,
    size: usize,
    seed: u64,
}

impl Case {
    fn name(&self) -> String {
        format!("{}-{}-{}", self.truth.scenario, self.size, self.seed)
    }

    /// The scenario file with the size's changes, and nothing else.
    fn scenario(&self) -> String {
        let file = format!("{}/scenarios/sim-{}.toml", env!("CARGO_MANIFEST_DIR"), self.truth.scenario);
        let mut table: toml::Table = std::fs::read_to_string(&file).unwrap().parse().unwrap();
        if let Some(changes) = self.size.checked_sub(1) {
            lay_over(&mut table, self.truth.sizes[changes].parse().unwrap());
        }
        toml::to_string(&table).unwrap()
    }

    /// Runs it as its user does.
    fn run(&self, folder: &Path) -> Verdict {
        let scenario = folder.join(format!("{}.toml", self.name()));
        std::fs::write(&scenario, self.scenario()).unwrap();
        let out = folder.join(self.name());
        let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["run", "--json", "--no-tui", "--seed", &self.seed.to_string()])
            .args([Path::new("--out"), &out, &scenario])
            .env_remove("OPENAI_API_KEY")
            .output()
            .unwrap();
        let _ = std::fs::remove_dir_all(&out);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{}: {e}: {}", self.name(), String::from_utf8_lossy(&output.stderr)))
    }
}

fn lay_over(below: &mut toml::Table, above: toml::Table) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(toml::Value::Table(b)), toml::Value::Table(a)) => lay_over(b, a),
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}

/// The pair that a verdict names.
fn named(verdict: &Verdict) -> String {
    match &verdict.explanation {
        Some(e) => e.pair.clone(),
        None if verdict.outcome == RunOutcome::Clean => NOTHING.into(),
        None => "(inconclusive)".into(),
    }
}

/// What a verdict must say beside the right pair; what is wrong with it otherwise.
fn text(case: &Case, verdict: &Verdict) -> Result<(), String> {
    let Some(e) = &verdict.explanation else { return Ok(()) };
    let all = [&e.summary].into_iter().chain(&e.advice);
    let said = all.chain(e.runner_up.iter().chain(&e.ruled_out).map(|r| &r.why_not));
    for line in said {
        if line.contains('{') || line.contains("NaN") || line.contains(" 0 run)") || line.contains("(0 a second)") {
            return Err(format!("says `{line}`"));
        }
    }
    if e.pair == "Unexplained" {
        return if (1..=3).contains(&e.evidence.len()) { Ok(()) } else { Err(format!("{:?}", e.evidence)) };
    }
    if e.advice.is_empty() {
        return Err("gives no advice".into());
    }
    let timed = e.evidence.iter().any(|e| e.says.contains("the server's own metrics of"));
    let offered = case.scenario().contains("per_request_metrics = true");
    if timed != offered && e.pair == "SlowApiServer" {
        return Err(format!("per-request metrics offered: {offered}, used: {timed}: {:?}", e.evidence));
    }
    Ok(())
}

/// Every case on all cores, in the order of the cases.
fn run_all(cases: &[Case], folder: &Path) -> Vec<Verdict> {
    let next = AtomicUsize::new(0);
    let done: Mutex<BTreeMap<usize, Verdict>> = Mutex::default();
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let at = cases.iter().position(|c| c.name() == case.name()).unwrap();
                    let verdict = case.run(folder);
                    done.lock().unwrap_or_else(PoisonError::into_inner).insert(at, verdict);
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

/// Rows: what was built; columns: what was named; runs.
fn matrix(rows: &BTreeMap<(usize, String), BTreeMap<String, usize>>) -> String {
    let mut out = String::from("| built to break by | right | runs | named |\n|---|---|---|---|\n");
    for ((at, _), named) in rows {
        let truth = &TRUTHS[*at];
        let runs: usize = named.values().sum();
        let named: Vec<String> = named.iter().map(|(pair, n)| format!("{pair} {n}")).collect();
        writeln!(out, "| `sim-{}` | {} | {runs} | {} |", truth.scenario, truth.pair, named.join(", ")).unwrap();
    }
    out
}

#[test]
fn every_cause_is_named() {
    let folder = std::env::temp_dir().join(format!("plimsoll-truth-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let only = std::env::var("PLIMSOLL_TRUTH").unwrap_or_default();
    let truths = TRUTHS.iter().filter(|t| only.is_empty() || only.split(',').any(|o| o == t.scenario));
    let cases: Vec<Case> =
        truths.flat_map(|truth| (0..3).flat_map(move |size| SEEDS.map(|seed| Case { truth, size, seed }))).collect();
    let verdicts = run_all(&cases, &folder);
    let _ = std::fs::remove_dir_all(&folder);
    let mut rows: BTreeMap<(usize, String), BTreeMap<String, usize>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (case, verdict) in cases.iter().zip(&verdicts) {
        let pair = named(verdict);
        let at = TRUTHS.iter().position(|t| t.scenario == case.truth.scenario).unwrap();
        *rows.entry((at, case.truth.scenario.into())).or_default().entry(pair.clone()).or_default() += 1;
        let why = verdict.explanation.as_ref().map_or("", |e| e.summary.as_str());
        let alert = verdict.first_alert.as_ref().map_or("none", |a| a.alert.as_str());
        if pair != case.truth.pair {
            let outcomes: Vec<_> = verdict.steps.iter().map(|s| s.outcome).collect();
            let says = format!("{}: {pair} instead of {} ({alert}: {why}) {outcomes:?}", case.name(), case.truth.pair);
            wrong.push(says);
        } else if let Err(says) = text(case, verdict) {
            wrong.push(format!("{}: {pair}, but {says}", case.name()));
        }
        let tokens: f64 = verdict
            .steps
            .iter()
            .map(|s| {
                let per_s = s.client.output_tokens_per_s.unwrap_or(0.0) + s.client.prompt_tokens_per_s.unwrap_or(0.0);
                per_s * (s.measured_s[1] - s.measured_s[0])
            })
            .sum();
        if tokens > 200_000.0 {
            wrong.push(format!("{}: {tokens} tokens", case.name()));
        }
    }
    println!("{}", matrix(&rows));
    assert!(wrong.is_empty(), "{} of {} runs:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// Every scenario that is built to break has its truth here.
#[test]
fn no_scenario_is_forgotten() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut there: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .filter_map(|e| Some(e.unwrap().file_name().to_str()?.strip_prefix("sim-")?.strip_suffix(".toml")?.to_owned()))
        .collect();
    let mut known: Vec<String> = TRUTHS.iter().map(|t| t.scenario.to_owned()).collect();
    // Not built to break: the gate's own example.
    known.push("release-gate".into());
    there.sort();
    known.sort();
    assert_eq!(there, known);
}
