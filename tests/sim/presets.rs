//! Each preset is built to end in one state by mechanism, and does under the load it is made for.

use std::time::Duration;

use plimsoll::sim::{Load, Profile, Rehearsed, rehearse};

fn load(streams: &[usize], seconds: u64, prompt: usize, answer: usize) -> Load {
    Load {
        streams: streams.to_vec(),
        length: Duration::from_secs(seconds),
        ramp: Duration::ZERO,
        warmup: Duration::ZERO,
        scrape: Duration::from_millis(500),
        prompt,
        shared: 0,
        answer,
        greedy: true,
        turnaround: Duration::from_millis(5),
    }
}

/// What a preset shows under a load, and whether that is what it is for.
struct Case {
    preset: &'static str,
    load: Load,
    shows: &'static str,
    holds: fn(&[Rehearsed]) -> bool,
}

#[test]
fn presets_show_what_they_are_for() {
    for Case { preset, load, shows, holds } in [
        Case {
            preset: "quickstart",
            load: load(&[4, 8], 60, 394, 64),
            shows: "requests wait for blocks from 8 streams on, with seats free and the pool below 0.95",
            holds: |r| {
                r[0].waiting.1 == 0.0
                    && r[1].waiting.0 >= 3.0
                    && r[1].running.1 < 8.0
                    && r[1].kv_usage.0 > 0.7
                    && r[1].kv_usage.0 < 0.95
            },
        },
        Case {
            preset: "dp2",
            load: load(&[8], 60, 394, 64),
            shows: "a second engine takes what made the first one wait",
            holds: |r| r[0].waiting.1 == 0.0,
        },
        Case {
            preset: "roomy",
            load: load(&[4], 10, 138, 64),
            shows: "nothing",
            holds: |r| r[0].waiting.1 == 0.0 && r[0].preemptions == 0 && r[0].kv_usage.1 < 0.1,
        },
        Case {
            preset: "small-pool",
            load: load(&[4, 8], 10, 394, 64),
            shows: "requests wait for blocks from 8 streams on",
            holds: |r| r[0].waiting.1 == 0.0 && r[1].waiting.0 == 4.0 && r[1].preemptions == 0,
        },
        Case {
            preset: "preempt",
            load: load(&[4, 8], 15, 35, 400),
            shows: "running requests are thrown out from 8 streams on",
            holds: |r| r[0].preemptions == 0 && r[1].preemptions > 10 && r[1].kv_usage.1 > 0.98,
        },
        Case {
            preset: "small-batch",
            load: load(&[4, 8], 10, 138, 64),
            shows: "requests wait for seats while the pool is empty",
            holds: |r| {
                r[0].waiting.1 == 0.0 && r[1].waiting.0 == 4.0 && r[1].running.0 == 4.0 && r[1].kv_usage.1 < 0.01
            },
        },
        Case {
            preset: "slow-first",
            load: load(&[1, 2], 20, 6_010, 32),
            shows: "a first token that takes seconds; from 2 streams on one waits for budget, not for blocks or seats",
            holds: |r| {
                r[0].ttft_s > Some(1.0) && r[0].waiting.1 == 0.0 && r[1].waiting.1 == 1.0 && r[1].kv_usage.1 < 0.1
            },
        },
        Case {
            preset: "spec",
            load: load(&[1], 5, 138, 128),
            shows: "all drafts hold",
            holds: |r| r[0].drafts.0 > 100 && r[0].drafts.0 == r[0].drafts.1,
        },
        Case {
            preset: "slow-tokenizer",
            load: load(&[4], 30, 2_000, 64),
            shows: "a slow first token while nothing waits in the engine",
            holds: |r| r[0].ttft_s > Some(1.0) && r[0].waiting.1 == 0.0 && r[0].queue_s < Some(0.05),
        },
        Case {
            preset: "l4-8b",
            load: load(&[8], 60, 500, 100),
            shows: "eight streams within the limits",
            holds: |r| r[0].waiting.0 == 0.0 && r[0].ttft_s < Some(1.0) && r[0].itl_s < Some(0.1),
        },
        Case {
            preset: "h100-8b",
            load: load(&[32], 10, 500, 100),
            shows: "thirty-two streams within the limits",
            holds: |r| r[0].waiting.0 == 0.0 && r[0].ttft_s < Some(0.5) && r[0].itl_s < Some(0.02),
        },
        Case {
            preset: "throttle",
            load: load(&[1, 1], 299, 100, 200),
            shows: "the same load takes twice as long after five minutes",
            holds: |r| r[1].itl_s.unwrap() > 1.9 * r[0].itl_s.unwrap(),
        },
    ] {
        let seen = rehearse(&Profile::named(preset).unwrap(), 1, &load);
        assert!(holds(&seen), "{preset} should show: {shows}\n{seen:#?}");
    }
}

#[test]
fn a_rehearsal_depends_on_the_seed_alone() {
    let profile = Profile::named("preempt").unwrap();
    let load = load(&[8], 5, 35, 200);
    let first = rehearse(&profile, 1, &load);
    assert_eq!(first, rehearse(&profile, 1, &load));
    assert_ne!(first, rehearse(&profile, 2, &load));
}
