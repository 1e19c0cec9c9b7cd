//! A real vLLM under load: the right cause for each profile, also where the rule of thumb is wrong.

use plimsoll::model::sample::Sample;
use plimsoll::model::verdict::{AlertState, Confidence};

use crate::build::{Run, pool, vllm, vllm_with};

/// One recorded profile.
struct Profile {
    csv: &'static str,
    blocks: u32,
    block_size: u32,
    prompt: u32,
    output: u32,
}

const SMALL_POOL: Profile =
    Profile { csv: include_str!("real_runs/a-small-pool.csv"), blocks: 64, block_size: 32, prompt: 394, output: 64 };
const SMALL_BATCH: Profile = Profile {
    csv: include_str!("real_runs/b-small-batch.csv"),
    blocks: 8_192,
    block_size: 32,
    prompt: 139,
    output: 64,
};
const PREEMPT: Profile =
    Profile { csv: include_str!("real_runs/c-preempt.csv"), blocks: 64, block_size: 32, prompt: 35, output: 400 };
const SLOW_FIRST: Profile = Profile {
    csv: include_str!("real_runs/d-slow-first.csv"),
    blocks: 4_096,
    block_size: 32,
    prompt: 6_011,
    output: 32,
};
const ROOMY: Profile =
    Profile { csv: include_str!("real_runs/r-roomy.csv"), blocks: 16_384, block_size: 32, prompt: 143, output: 64 };

impl Profile {
    /// The recording of the run at a tenth of production's times, its steps in the order of the streams.
    fn run(&self) -> Run {
        let mut lines = self.csv.lines();
        let names: Vec<&str> = lines.next().unwrap().split(',').collect();
        let rows: Vec<Vec<Option<f64>>> = lines.map(|l| l.split(',').map(|c| c.parse().ok()).collect()).collect();
        let column = |name: &str| names.iter().position(|n| *n == name).unwrap();
        let (t, conc) = (column("t"), column("conc"));
        let spacing = rows[1][t].unwrap() - rows[0][t].unwrap();
        let mut run = Run::new((spacing * 10.0).round() / 10.0, 0.1);
        for row in &rows {
            let page = self.page(&names, row);
            run.scrape(row[t].unwrap(), Some(page));
        }
        let mut steps: Vec<(u32, f64, f64)> = Vec::new();
        for row in &rows {
            let (c, at) = (row[conc].unwrap() as u32, row[t].unwrap());
            match steps.last_mut() {
                Some(s) if s.0 == c => s.2 = at + 0.001,
                _ => steps.push((c, at, at + 0.001)),
            }
        }
        for (i, (c, from, to)) in steps.into_iter().enumerate() {
            run = run.warm_step(c, from, from + 4.0, to).requests(i as u32, 1.0, 0.5, self.prompt, self.output);
        }
        run
    }

    fn page(&self, names: &[&str], row: &[Option<f64>]) -> Vec<Sample> {
        let mut page = vec![pool(self.blocks, self.block_size)];
        for (name, value) in names.iter().zip(row) {
            let Some(value) = *value else { continue };
            let metric = match *name {
                "waiting" => "num_requests_waiting",
                "running" => "num_requests_running",
                "kv" => "kv_cache_usage_perc",
                "preempt" => "num_preemptions_total",
                "prompt_tok" => "prompt_tokens_total",
                "gen_tok" => "generation_tokens_total",
                "pc_queries" => "prefix_cache_queries_total",
                "pc_hits" => "prefix_cache_hits_total",
                "ttft_sum" => "time_to_first_token_seconds_sum",
                "ttft_count" => "time_to_first_token_seconds_count",
                "itl_sum" => "inter_token_latency_seconds_sum",
                "itl_count" => "inter_token_latency_seconds_count",
                "queue_sum" => "request_queue_time_seconds_sum",
                "queue_count" => "request_queue_time_seconds_count",
                "prefill_sum" => "request_prefill_time_seconds_sum",
                "prefill_count" => "request_prefill_time_seconds_count",
                "decode_sum" => "request_decode_time_seconds_sum",
                "decode_count" => "request_decode_time_seconds_count",
                "iter_count" => "iteration_tokens_total_count",
                "wait_deferred" => {
                    page.push(vllm_with("num_requests_waiting_by_reason", &[("reason", "deferred")], value));
                    continue;
                }
                _ => {
                    if let Some(le) = name.strip_prefix("itl_le_") {
                        page.push(vllm_with("inter_token_latency_seconds_bucket", &[("le", le)], value));
                    }
                    continue;
                }
            };
            page.push(vllm(metric, value));
        }
        page
    }
}

/// The recording of each profile.
pub(crate) fn runs() -> [Run; 5] {
    [SMALL_POOL, SMALL_BATCH, PREEMPT, SLOW_FIRST, ROOMY].map(|profile| profile.run())
}

/// Every profile and level, with the alert asked about and the pairs that are right.
#[test]
fn the_cause_of_each_profile_is_named() {
    const WAIT: &str = "RequestsWaiting";
    const TTFT: &str = "TimeToFirstTokenP99";
    let cases: &[(&str, &Profile, usize, &str, &[&str])] = &[
        ("small pool, 8", &SMALL_POOL, 1, WAIT, &["PoolLimited"]),
        ("small pool, 16", &SMALL_POOL, 2, WAIT, &["PoolLimited"]),
        ("small pool, 8", &SMALL_POOL, 1, TTFT, &["PoolLimited"]),
        ("small batch, 8", &SMALL_BATCH, 1, WAIT, &["SequenceLimited"]),
        ("small batch, 16", &SMALL_BATCH, 2, WAIT, &["SequenceLimited"]),
        ("small batch, 16", &SMALL_BATCH, 2, TTFT, &["SequenceLimited"]),
        ("preempt, 8", &PREEMPT, 1, "Preemptions", &["PreemptionsLongAnswers"]),
        ("preempt, 16", &PREEMPT, 2, WAIT, &["PreemptionsLongAnswers"]),
        ("slow first, 1", &SLOW_FIRST, 0, TTFT, &["LongPrompts"]),
        ("slow first, 2", &SLOW_FIRST, 1, TTFT, &["LongPrompts", "TokenBudget"]),
        ("slow first, 4", &SLOW_FIRST, 2, TTFT, &["TokenBudget"]),
        ("slow first, 4", &SLOW_FIRST, 2, WAIT, &["TokenBudget"]),
    ];
    let mut wrong = Vec::new();
    for (what, profile, step, alert, right) in cases {
        let e = profile.run().explained(*step, alert);
        println!("{what} {alert}: {} ({:?}): {}", e.pair, e.confidence, e.summary);
        println!("    evidence {:?}", e.evidence.iter().map(|e| &e.says).collect::<Vec<_>>());
        println!("    runner-up {:?}\n    ruled out {:?}", e.runner_up, e.ruled_out);
        println!("    do {:?}", e.advice);
        if !right.contains(&e.pair.as_str()) {
            wrong.push(format!("{what} {alert}: {} instead of {right:?}", e.pair));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_small_pool_is_explained_in_numbers() {
    let e = SMALL_POOL.run().explained(2, "RequestsWaiting");
    assert!(e.summary.starts_with("the KV cache pool is full: waiting 12 (max "), "{}", e.summary);
    assert!(e.summary.ends_with("of 63 blocks are free and the next prompt needs 13"), "{}", e.summary);
    let rival = e.runner_up.unwrap();
    assert_eq!(rival.pair, "SequenceLimited");
    assert!(rival.why_not.contains("would not have fit anyway"), "{}", rival.why_not);
    assert!(e.advice[0].starts_with("add KV memory: "), "{}", e.advice[0]);
    assert_eq!(e.confidence, Confidence::High);
}

#[test]
fn waiting_fires_where_it_should_and_nowhere_else() {
    for (profile, firing) in [(&SMALL_POOL, vec![8, 16]), (&SMALL_BATCH, vec![8, 16]), (&ROOMY, vec![])] {
        let run = profile.run();
        let rules = run.shipped();
        let fires: Vec<u32> = run.judged(&rules, |j| {
            let steps = run.recording.steps.iter();
            let firing = steps
                .filter(|s| j.step(s).iter().any(|v| v.state == AlertState::Firing && !v.alert.starts_with("Client")));
            firing.map(|s| s.load.level() as u32).collect()
        });
        assert_eq!(fires, firing);
    }
}

#[test]
fn the_prediction_stands_beside_the_measurement() {
    let run = SMALL_POOL.run();
    let rules = run.shipped();
    let p = run.judged(&rules, |j| plimsoll::diagnose::predict(j, &run.recording.steps[0], Some(4.0), None)).unwrap();
    assert_eq!((p.concurrency, p.measured_over_predicted_ratio), (4.0, Some(1.0)));
    assert_eq!(p.says, "63 blocks hold 4.2 requests of 458 tokens (15 blocks each) at their full length");
}

/// Ladders of plimsoll itself against a real server, at lengths and with flags that nobody tuned the rules to: the step that
/// fired, and the highest clean one below it where there was one.
#[test]
fn the_cause_of_each_ladder_is_named() {
    // Run, rows, blocks of 32 tokens with the null block, prompt and answer in tokens, first alert, right pair.
    type Ladder = (&'static str, &'static str, [u32; 3], &'static str, &'static str);
    let ladders: [Ladder; 17] = [
        (
            "sequence-limit-1",
            include_str!("real_runs/sequence-limit-1.csv"),
            [8192, 64, 64],
            "RequestsWaiting",
            "SequenceLimited",
        ),
        (
            "sequence-limit-4",
            include_str!("real_runs/sequence-limit-4.csv"),
            [8192, 100, 48],
            "RequestsWaiting",
            "SequenceLimited",
        ),
        ("pool-full-1", include_str!("real_runs/pool-full-1.csv"), [64, 409, 64], "RequestsWaiting", "PoolLimited"),
        ("pool-full-3", include_str!("real_runs/pool-full-3.csv"), [64, 700, 32], "RequestsWaiting", "PoolLimited"),
        ("pool-full-4", include_str!("real_runs/pool-full-4.csv"), [40, 500, 24], "RequestsWaiting", "PoolLimited"),
        ("pool-full-5", include_str!("real_runs/pool-full-5.csv"), [40, 200, 24], "RequestsWaiting", "PoolLimited"),
        (
            "preemptions-1",
            include_str!("real_runs/preemptions-1.csv"),
            [64, 24, 400],
            "Preemptions",
            "PreemptionsLongAnswers",
        ),
        (
            "preemptions-3",
            include_str!("real_runs/preemptions-3.csv"),
            [64, 100, 500],
            "Preemptions",
            "PreemptionsLongAnswers",
        ),
        (
            "token-budget-1",
            include_str!("real_runs/token-budget-1.csv"),
            [4096, 3000, 16],
            "RequestsWaiting",
            "TokenBudget",
        ),
        (
            "token-budget-3",
            include_str!("real_runs/token-budget-3.csv"),
            [4096, 2000, 8],
            "RequestsWaiting",
            "TokenBudget",
        ),
        (
            "long-prompts-1",
            include_str!("real_runs/long-prompts-1.csv"),
            [4096, 6000, 16],
            "TimeToFirstTokenP99",
            "LongPrompts",
        ),
        (
            "long-prompts-2",
            include_str!("real_runs/long-prompts-2.csv"),
            [4096, 4000, 32],
            "TimeToFirstTokenP99",
            "LongPrompts",
        ),
        (
            "prefill-stalls-1",
            include_str!("real_runs/prefill-stalls-1.csv"),
            [8192, 1500, 48],
            "InterTokenLatencyP99",
            "PrefillStalls",
        ),
        (
            "prefill-stalls-2",
            include_str!("real_runs/prefill-stalls-2.csv"),
            [8192, 2500, 32],
            "InterTokenLatencyP99",
            "PrefillStalls",
        ),
        (
            "prefill-stalls-3",
            include_str!("real_runs/prefill-stalls-3.csv"),
            [8192, 1500, 48],
            "InterTokenLatencyP99",
            "PrefillStalls",
        ),
        (
            "token-budget-4",
            include_str!("real_runs/token-budget-4.csv"),
            [4096, 2000, 8],
            "RequestsWaiting",
            "TokenBudget",
        ),
        (
            "sequence-limit-5",
            include_str!("real_runs/sequence-limit-5.csv"),
            [8192, 64, 64],
            "RequestsWaiting",
            "SequenceLimited",
        ),
    ];
    let mut wrong = Vec::new();
    for (what, csv, [blocks, prompt, output], alert, right) in ladders {
        let run = Profile { csv, blocks, block_size: 32, prompt, output }.run();
        let e = run.explained(run.recording.steps.len() - 1, alert);
        println!("{what} {alert}: {} ({:?}): {}", e.pair, e.confidence, e.summary);
        if e.pair != right {
            wrong.push(format!("{what} {alert}: {} instead of {right}: {}", e.pair, e.summary));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
