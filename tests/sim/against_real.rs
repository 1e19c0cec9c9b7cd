//! The fitted stand-in beside a real vLLM 0.31.0: the same load, the same numbers, step by step.
//!
//! `cargo test --test sim against_real -- --nocapture` prints the table of both.
//!
//! The recordings were made with `captures/sim/real-runs.csv`'s columns on two cores that server and
//! client shared with other work, so the same server was up to 1.9 times slower in one run than in
//! another. How much slower a run's machine was is read from the tokens a second of its lowest step, and
//! from nothing else; they and the gap between tokens, which follows from them, are not judged in that step.
//! Step times were fitted on `a2`, `r`, `e2` and `h`, the drafter's on `f`; `held_out` has later runs.

use std::time::Duration;

use plimsoll::sim::{Load, Profile, Rehearsed, rehearse};

use super::bands::{Cell, Row, Tally, rows, slow_down, slowness};

/// Steps whose recording is no measure, and why.
const DISTURBED: &[(&str, u32, &str)] = &[
    ("c2-preempt", 2, "the client was disturbed by other work: no scrape for most of the step"),
    ("c2-preempt", 4, "as above"),
    ("c2-preempt", 8, "as above"),
    ("c2-preempt", 16, "as above"),
    ("d-slow-first", 4, "other work took the machine: the same prompts took 1.8 times as long as with two streams"),
    ("d-queue-cap", 32, "refused clients retried in a burst that the load of the rehearsal does not have"),
    ("g-burst", 4, "answers of eight tokens: the client, on the same cores, was the bottleneck"),
    ("g-burst", 16, "as above"),
    ("g-burst", 32, "as above"),
];

/// Single numbers that differ, and why.
const DIFFERENT: &[(&str, u32, &str, &str)] = &[
    ("a2-small-pool", 4, "running", "scrapes fell into the gaps between four requests that end together"),
    ("a2-small-pool", 4, "kv", "as above"),
];

/// The server of a run.
fn profile(name: &str) -> Profile {
    let named = |name: &str| Profile::named(name).unwrap();
    match name {
        "roomy-8192" => {
            let mut p = named("roomy");
            p.engine.max_num_batched_tokens = 8_192;
            p
        }
        "queue-cap" => {
            let mut p = named("slow-first");
            p.api.max_num_queued_reqs = Some(24);
            p
        }
        _ => named(name),
    }
}

/// The same step on the stand-in, on a machine that is so many times slower.
fn rehearsed(real: &Row, slowness: f64) -> Rehearsed {
    let mut profile = profile(real.server);
    slow_down(&mut profile, slowness);
    let shared = real.get("shared") as usize;
    let load = Load {
        streams: vec![real.streams() as usize],
        length: Duration::from_secs_f64(real.get("seconds")),
        ramp: Duration::ZERO,
        warmup: Duration::ZERO,
        scrape: Duration::from_secs_f64(real.get("every")),
        prompt: real.get("prompt") as usize - shared,
        shared,
        answer: real.get("answer") as usize,
        greedy: real.get("greedy") == 1.0,
        turnaround: Duration::from_secs_f64(0.006 * slowness),
    };
    rehearse(&profile, 1, &load).remove(0)
}

/// What is compared: name, real, stand-in, allowed share of difference, allowed difference.
fn compared(real: &Row, sim: &Rehearsed) -> Vec<(&'static str, f64, f64, f64, f64)> {
    let ms = |s: Option<f64>| s.map_or(f64::NAN, |s| s * 1e3);
    vec![
        ("running", real.get("running_p50"), sim.running.0, 0.1, 1.0),
        ("waiting", real.get("waiting_p50"), sim.waiting.0, 0.1, 1.0),
        ("kv", real.get("kv_p50"), sim.kv_usage.0, 0.1, 0.04),
        ("kv max", real.get("kv_max"), sim.kv_usage.1, 0.1, 0.02),
        ("preemptions", real.get("preemptions"), sim.preemptions as f64, 0.25, 3.0),
        (
            "hit rate",
            rate(real.get("hits"), real.get("queries")),
            rate(sim.cache_hits as f64, sim.cache_queries as f64),
            0.02,
            0.0,
        ),
        ("tokens/s", real.get("tokens_per_s"), sim.tokens_per_s, 0.2, 2.0),
        ("ttft ms", real.get("ttft_ms"), ms(sim.ttft_s), 0.2, 10.0),
        ("itl ms", real.get("itl_ms"), ms(sim.itl_s), 0.2, 1.0),
    ]
}

fn rate(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[test]
fn recorded_runs_are_met_within_their_bands() {
    let rows = rows(include_str!("../captures/sim/real-runs.csv"));
    let mut tally = Tally::default();
    println!(
        "| run | streams | slower | running | waiting | kv | kv max | preemptions | hit rate | tokens/s | ttft ms | itl ms |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    for real in &rows {
        let slow = slowness(&rows, real.run, rehearsed);
        let lowest = rows.iter().filter(|r| r.run == real.run).map(Row::streams).min() == Some(real.streams());
        let sim = rehearsed(real, slow);
        let disturbed = DISTURBED.iter().any(|(run, n, _)| (*run, *n) == (real.run, real.streams()));
        let star = if disturbed { "*" } else { "" };
        let mut line = format!("| {}{star} | {} | {slow:.2} |", real.run, real.streams());
        for (name, theirs, ours, share, difference) in compared(real, &sim) {
            let given = lowest && matches!(name, "itl ms" | "tokens/s");
            let excused = disturbed
                || DIFFERENT.iter().any(|(run, n, what, _)| (*run, *n, *what) == (real.run, real.streams(), name));
            let cell = Cell { name, theirs, ours, share, difference, given, excused };
            line += &tally.cell(&format!("{} at {}", real.run, real.streams()), &cell);
        }
        println!("{line}");
    }
    tally.judge();
}
