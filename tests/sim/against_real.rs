//! The fitted stand-in beside a real vLLM 0.31.0: the same load, the same numbers, step by step.
//!
//! `cargo test --test sim against_real -- --nocapture` prints the table of both.
//!
//! The recordings were made with `captures/sim/real-runs.csv`'s columns on two cores that server and
//! client shared with other work, so the same server was up to 1.9 times slower in one run than in
//! another. Each run therefore has one factor for the speed of its machine; everything else is fixed.
//! Step times were fitted on `a2`, `r`, `e2` and `h` (factor 1); `a`, `b`, `c`, `d` and `f` were not used.

use std::time::Duration;

use plimsoll::sim::{Load, Profile, Rehearsed, rehearse};

/// How much slower the machine was in a run than in those that step times were fitted on.
const SLOWNESS: &[(&str, f64)] = &[
    ("a-small-pool", 1.8),
    ("a2-small-pool", 0.93),
    ("b-small-batch", 1.35),
    ("c-preempt", 1.25),
    ("c2-preempt", 1.0),
    ("d-slow-first", 1.15),
    ("d-queue-cap", 1.6),
    ("f-spec-greedy", 1.2),
    ("f-spec-random", 1.2),
    ("g-burst", 1.4),
];

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

struct Real {
    run: &'static str,
    profile: &'static str,
    fields: Vec<(&'static str, f64)>,
}

impl Real {
    fn get(&self, name: &str) -> f64 {
        self.fields.iter().find(|(n, _)| *n == name).map_or(f64::NAN, |(_, v)| *v)
    }

    fn streams(&self) -> u32 {
        self.get("streams") as u32
    }
}

fn recorded() -> Vec<Real> {
    let mut lines = include_str!("../captures/sim/real-runs.csv").lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            let fields = names.iter().zip(&cells).skip(2).map(|(n, c)| (*n, c.parse().unwrap_or(f64::NAN))).collect();
            Real { run: cells[0], profile: cells[1], fields }
        })
        .collect()
}

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

/// The same step on the stand-in.
fn rehearsed(real: &Real) -> Rehearsed {
    let slowness = SLOWNESS.iter().find(|(run, _)| *run == real.run).map_or(1.0, |(_, s)| *s);
    let mut profile = profile(real.profile);
    let (cost, api) = (&mut profile.cost, &mut profile.api);
    for us in [
        &mut cost.base_us,
        &mut cost.prefill_us,
        &mut cost.decode_us,
        &mut cost.draft_us,
        &mut cost.context_us,
        &mut cost.attention_us,
        &mut api.request_us,
        &mut api.tokenize_us,
        &mut api.output_us,
        &mut api.ipc_us,
    ] {
        *us *= slowness;
    }
    let shared = real.get("shared") as usize;
    let load = Load {
        streams: vec![real.streams() as usize],
        length: Duration::from_secs_f64(real.get("seconds")),
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
fn compared(real: &Real, sim: &Rehearsed) -> Vec<(&'static str, f64, f64, f64, f64)> {
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
    let mut cells = 0;
    let mut out = Vec::new();
    for real in recorded() {
        let sim = rehearsed(&real);
        let disturbed = DISTURBED.iter().any(|(run, n, _)| (*run, *n) == (real.run, real.streams()));
        let mut line = format!("{:16}{:3} ", real.run, real.streams());
        for (name, theirs, ours, share, difference) in compared(&real, &sim) {
            let close = theirs.is_nan() || (ours - theirs).abs() <= (share * theirs.abs()).max(difference);
            let excused = disturbed
                || DIFFERENT.iter().any(|(run, n, what, _)| (*run, *n, *what) == (real.run, real.streams(), name));
            line += &format!(" {name} {}/{}{}", short(theirs), short(ours), if close { "" } else { "!" });
            cells += usize::from(!excused);
            if !close && !excused {
                out.push(format!(
                    "{} at {} streams: {name} is {ours:.4}, recorded {theirs:.4}",
                    real.run,
                    real.streams()
                ));
            }
        }
        println!("{line}{}", if disturbed { " (disturbed)" } else { "" });
    }
    println!("{} of {cells} numbers outside their bands:\n{}", out.len(), out.join("\n"));
    // A closed loop on a shared machine wanders; a model that is wrong misses by the dozen.
    assert!(out.len() * 20 <= cells, "{} of {cells} numbers outside their bands:\n{}", out.len(), out.join("\n"));
}

fn short(value: f64) -> String {
    if value.abs() < 10.0 { format!("{value:.3}") } else { format!("{value:.0}") }
}
