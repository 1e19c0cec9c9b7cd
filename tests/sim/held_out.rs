//! The stand-in beside later runs of a real vLLM 0.31.0, on which no step time was fitted: other prompt lengths,
//! pool sizes, seats and budgets than those of `against_real`.
//!
//! `cargo test --test sim held_out -- --nocapture` prints the table of both. The rows of
//! `captures/sim/held-out.csv` come from result folders of `plimsoll run`, by `captures/sim/rows.py`.
//!
//! The machine that recorded is not the one that step times were fitted on. How much slower it was
//! in a run is read from the tokens a second of its lowest step, and from nothing else; they and the gap
//! between tokens, which follows from them, are not judged in that step.

use std::time::Duration;

use plimsoll::sim::{Load, Profile, Rehearsed, rehearse};

use super::bands::{Cell, Row, Tally, rows, slow_down, slowness};

/// The server that the given words started: a profile, and flags of vLLM's own.
fn profile(server: &str) -> Profile {
    let mut words = server.split_whitespace();
    let mut p = Profile::named(words.next().unwrap()).unwrap();
    while let Some(flag) = words.next() {
        let mut value = || words.next().unwrap().parse::<usize>().unwrap();
        match flag {
            "--max-num-seqs" => p.engine.max_num_seqs = value(),
            "--num-gpu-blocks-override" => p.engine.num_gpu_blocks = value(),
            "--max-num-batched-tokens" => p.engine.max_num_batched_tokens = value(),
            "--max-num-queued-reqs" => p.api.max_num_queued_reqs = Some(value()),
            "--no-enable-prefix-caching" => p.engine.enable_prefix_caching = false,
            "--enable-per-request-metrics" => p.api.per_request_metrics = true,
            "--enable-prompt-tokens-details" => p.api.prompt_tokens_details = true,
            other => panic!("{other} is not a flag that the stand-in has"),
        }
    }
    // A pool below one request of the longest kind is refused; the real server cuts max_model_len.
    p.engine.max_model_len = p.engine.max_model_len.min((p.engine.num_gpu_blocks - 1) * p.engine.block_size);
    p.validate().unwrap();
    p
}

/// The same step on the stand-in, on a machine that is so many times slower.
fn rehearsed(row: &Row, slowness: f64) -> Rehearsed {
    let mut profile = profile(row.server);
    slow_down(&mut profile, slowness);
    let load = Load {
        streams: vec![row.streams() as usize],
        ramp: Duration::from_secs_f64(row.get("ramp")),
        warmup: Duration::from_secs_f64(row.get("warmup")),
        length: Duration::from_secs_f64(row.get("seconds")),
        scrape: Duration::from_secs_f64(row.get("every")),
        prompt: row.get("prompt") as usize,
        shared: 0,
        answer: row.get("answer") as usize,
        greedy: row.get("greedy") == 1.0,
        turnaround: Duration::from_secs_f64(0.003 * slowness),
    };
    rehearse(&profile, 1, &load).remove(0)
}

/// What is compared: name, real, stand-in, allowed share of difference, allowed difference.
fn compared(row: &Row, sim: &Rehearsed) -> Vec<(&'static str, f64, f64, f64, f64)> {
    let ms = |s: Option<f64>| s.map_or(f64::NAN, |s| s * 1e3);
    let hits = if sim.cache_queries > 0 { sim.cache_hits as f64 / sim.cache_queries as f64 } else { 0.0 };
    vec![
        ("running", row.get("running_p50"), sim.running.0, 0.1, 1.0),
        ("waiting", row.get("waiting_p50"), sim.waiting.0, 0.1, 1.0),
        ("kv", row.get("kv_p50"), sim.kv_usage.0, 0.1, 0.02),
        ("kv max", row.get("kv_max"), sim.kv_usage.1, 0.1, 0.02),
        ("preemptions", row.get("preemptions"), sim.preemptions as f64, 0.25, 3.0),
        ("hit rate", row.get("hit_rate"), hits, 0.02, 0.01),
        ("tokens/s", row.get("tokens_per_s"), sim.tokens_per_s, 0.2, 2.0),
        ("ttft p50 ms", row.get("ttft_p50_ms"), ms(sim.ttft_p50_s), 0.2, 5.0),
        ("gap p50 ms", row.get("gap_p50_ms"), ms(sim.gap_p50_s), 0.2, 0.5),
        ("queue ms", row.get("queue_ms"), ms(sim.queue_s), 0.2, 10.0),
    ]
}

#[test]
fn later_runs_are_met_within_their_bands() {
    let rows = rows(include_str!("../captures/sim/held-out.csv"));
    let mut tally = Tally::default();
    println!(
        "| run | server | streams | slower | running | waiting | kv | kv max | preemptions | hit rate | tokens/s | ttft p50 ms \
         | gap p50 ms | queue ms |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    for row in &rows {
        let slow = slowness(&rows, row.run, rehearsed);
        let lowest = rows.iter().filter(|r| r.run == row.run).map(Row::streams).min() == Some(row.streams());
        let sim = rehearsed(row, slow);
        let mut line = format!("| {} | {} | {} | {slow:.2} |", row.run, row.server, row.streams());
        for (name, theirs, ours, share, difference) in compared(row, &sim) {
            let given = lowest && matches!(name, "gap p50 ms" | "tokens/s");
            let cell = Cell { name, theirs, ours, share, difference, given, excused: false };
            line += &tally.cell(&format!("{} at {}", row.run, row.streams()), &cell);
        }
        println!("{line}");
    }
    tally.judge();
}
