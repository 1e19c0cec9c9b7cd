//! From the driver's library to the verdict: a run of two steps whose second breaks its latency target, with the card
//! in one state or another beside it.

use plimsoll::analyze;
use plimsoll::gpu::{Depth, GpuSource};
use plimsoll::model::recording::{Event, Header, Recording, TargetFacts};
use plimsoll::model::sample::{Labels, NAME, Sample, Scrape, SourceKind};
use plimsoll::model::step::{Load, Phase, StepPlan};
use plimsoll::model::time::{ClockKind, Offset};
use plimsoll::model::verdict::{RunOutcome, StepOutcome, Verdict};
use plimsoll::rules::{Limits, RuleSet, builtin};
use plimsoll::scenario::Scenario;

use super::mock::{Mock, open};

/// When each step begins, when it is measured from, and when it ends, s.
const STEPS: [[u64; 3]; 2] = [[0, 20, 120], [120, 140, 240]];

/// The page of a server that is well until the second step, where every gap takes 150 ms; nothing ever waits.
fn page(t: f64) -> Vec<Sample> {
    let sample = |name: &str, le: Option<&str>, value: f64| {
        let name = format!("vllm:{name}");
        let own = [(NAME, name.as_str()), ("engine", "0"), ("model_name", "tiny")];
        Sample { labels: Labels::new(own.into_iter().chain(le.map(|le| ("le", le)))), value }
    };
    let tokens = 50.0 * t;
    let slow = 50.0 * (t - STEPS[1][0] as f64).max(0.0);
    let mut out = vec![
        sample("num_requests_waiting", None, 0.0),
        sample("num_requests_running", None, 4.0),
        sample("kv_cache_usage_perc", None, 0.3),
        sample("num_preemptions_total", None, 0.0),
        sample("iteration_tokens_total_count", None, 12.0 * t),
        sample("inter_token_latency_seconds_sum", None, (tokens - slow) * 0.02 + slow * 0.15),
        sample("inter_token_latency_seconds_count", None, tokens),
        sample("time_to_first_token_seconds_sum", None, 0.2 * t),
        sample("time_to_first_token_seconds_count", None, 4.0 * t),
    ];
    for (le, n) in [("0.05", tokens - slow), ("0.2", tokens), ("+Inf", tokens)] {
        out.push(sample("inter_token_latency_seconds_bucket", Some(le), n));
    }
    for le in ["0.1", "+Inf"] {
        out.push(sample("time_to_first_token_seconds_bucket", Some(le), 4.0 * t));
    }
    out
}

/// The verdict of a run in which the library is in the state that `state` gives for each second, `None` for no change.
/// `streams` are those of the two steps. `None` where there is no C compiler.
fn judged(name: &str, streams: [u32; 2], state: impl Fn(u64) -> Option<String>) -> Option<Verdict> {
    let mock = Mock::new(&format!("verdict-{name}"), &state(0).unwrap_or_default())?;
    let library = mock.load();
    let mut fleet = open(&library, &[]);
    let mut recording = Recording::new(Header {
        tool_version: "test".into(),
        scenario: "test".into(),
        seed: 1,
        target: TargetFacts { url: "http://127.0.0.1:8000".into(), ..TargetFacts::default() },
        ..Header::blank(ClockKind::Simulated, 1_767_225_600_000)
    });
    let at = |s: u64| Offset::from_millis(s * 1_000);
    for (i, [begin, from, to]) in STEPS.into_iter().enumerate() {
        let step = i as u32;
        let load = Load::Concurrency(streams[i]);
        let plan = StepPlan { step, load, phase: Phase::Climb, repeat: 0, drain_first: false };
        recording.apply(Event::StepStarted { at: at(begin), plan });
        recording.apply(Event::MeasureStarted { at: at(from), step });
        recording.apply(Event::StepEnded { at: at(to), step, cut_short: None });
    }
    for t in 0..=STEPS[1][2] {
        if let Some(state) = state(t) {
            mock.set(&state);
        }
        // As a run does it: when a step begins, when it is measured, and before it ends.
        let border = STEPS.iter().any(|[begin, from, to]| t == *begin || t == *from || t + 1 == *to);
        let samples = fleet.poll(if border { Depth::Border } else { Depth::Round }).samples;
        for (source, samples) in [(SourceKind::Server, page(t as f64)), (SourceKind::Gpu, samples)] {
            recording.apply(Event::Scrape(Scrape {
                source,
                target: 0,
                sent: at(t),
                received: at(t),
                result: Ok(samples),
            }));
        }
    }
    let mut files = builtin::files("vllm", true);
    // There was no client in this run, so none of its alerts could be judged.
    files.retain(|f| f.name != "builtin:client.yml");
    let rules = RuleSet::load(&files, &Limits::default(), 1.0).unwrap();
    let verdict = analyze::verdict(&recording, &Scenario::default(), &rules);
    assert_eq!(verdict.steps[0].outcome, StepOutcome::Clean, "{:?}", verdict.steps[0].alerts);
    Some(verdict)
}

/// In the second step the library says `there`, before it `here`; `TIME` in it is the time.
fn in_the_second_step(name: &str, here: &str, there: &str) -> Option<Verdict> {
    judged(name, [4, 8], |t| match t {
        0 => Some(here.into()),
        t if STEPS[1].contains(&t) => Some(there.replace("TIME", &t.to_string())),
        _ => None,
    })
}

fn codes(v: &Verdict, step: usize) -> Vec<&str> {
    v.steps[step].caveats.iter().map(|c| c.code.as_str()).filter(|c| c.starts_with("gpu_")).collect()
}

#[test]
fn a_slowed_gpu_is_blamed_and_the_capacity_is_marked() {
    for (name, state, pair, says, caveats) in [
        (
            "heat",
            "reasons 0x20\nclock_sm 990\ntemp 84\n",
            "GpuThermalSlowdown",
            "the hardware, not the configuration: the GPU is too hot (84 °C) and runs at 990 MHz",
            vec!["gpu_thermal_slowdown", "gpu_clock_fell"],
        ),
        (
            "brake",
            "reasons 0x88\nclock_sm 800\n",
            "GpuPowerBrake",
            "the hardware, not the configuration: the power supply slows the GPU down to 800 MHz",
            vec!["gpu_power_brake", "gpu_clock_fell"],
        ),
        (
            "over-draw",
            "reasons 0x8\nclock_sm 1900\n",
            "GpuHardwareSlowdown",
            "the hardware, not the configuration: the GPU brakes itself to 1900 MHz (heat, power brake or over-draw)",
            vec!["gpu_hardware_slowdown"],
        ),
        (
            "silent",
            "reasons 0x0\nclock_sm 1200\n",
            "GpuClockFell",
            "the hardware, not the configuration: the GPU's clock fell to 1200 MHz, more than 15 % under what it was at no higher load",
            vec!["gpu_clock_fell"],
        ),
        (
            "neighbour",
            "procs 2\npid1001_bytes 4294967296\nsm1000 70\nsm1001 25\nsm_time TIME\n",
            "GpuNeighbour",
            "the hardware, not the configuration: processes that are not the server's (1) use the GPU and hold 4096 MiB of it",
            vec!["gpu_neighbours"],
        ),
    ] {
        let Some(v) = in_the_second_step(name, "", state) else { return };
        let e = v.explanation.as_ref().expect("an alert fired");
        assert_eq!((v.first_alert.as_ref().unwrap().alert.as_str(), e.pair.as_str()), ("InterTokenLatencyP99", pair));
        assert_eq!(e.summary, says);
        assert_eq!(v.hardware.as_ref().map(|h| (h.pair.as_str(), h.says.as_str())), Some((pair, says)));
        assert_eq!(codes(&v, 1), caveats, "{name}");
        assert!(codes(&v, 0).is_empty(), "{name}: {:?}", v.steps[0].caveats);
        assert_eq!(v.highest_clean_concurrency, Some(4.0));
    }
}

#[test]
fn a_healthy_gpu_is_never_blamed() {
    for (name, state) in [
        ("healthy", ""),
        // Normal under full load, however low the clock goes.
        ("power-cap", "reasons 0x4\nclock_sm 1100\npower_mw 699000\n"),
        ("idle", "reasons 0x1\nclock_sm 345\n"),
        // A neighbour that does nothing.
        ("quiet-neighbour", "procs 2\npid1001_bytes 1048576\nsm1000 70\nsm1001 0\nsm_time TIME\n"),
    ] {
        let Some(v) = in_the_second_step(name, "", state) else { return };
        let e = v.explanation.as_ref().expect("an alert fired");
        assert!(!e.pair.starts_with("Gpu"), "{name}: {e:?}");
        assert_eq!(v.hardware, None, "{name}");
        let expected: &[&str] = if name == "quiet-neighbour" { &["gpu_neighbours"] } else { &[] };
        assert_eq!(codes(&v, 1), expected, "{name}");
    }
}

/// The clock in the power cap's step is in the verdict all the same, with the share of the cap.
#[test]
fn a_power_cap_is_noted() {
    let Some(v) = in_the_second_step("noted", "", "reasons 0x4\nclock_sm 1100\n") else { return };
    let gpu = &v.steps[1].gpu[0];
    assert_eq!(gpu.sm_clock_mhz.median, Some(1_100.0));
    assert_eq!(gpu.throttle_reasons.iter().map(|r| r.reason.as_str()).collect::<Vec<_>>(), ["sw_power_cap"]);
}

#[test]
fn a_lower_clock_at_lower_load_is_no_fault() {
    let clock = |t: u64| match t {
        0 => Some("reasons 0x0\n".to_string()),
        t if t == STEPS[1][0] => Some("reasons 0x0\nclock_sm 1200\n".into()),
        _ => None,
    };
    let Some(lower) = judged("less-load", [8, 4], clock) else { return };
    assert!(codes(&lower, 1).is_empty() && lower.hardware.is_none());
    let Some(equal) = judged("same-load", [8, 8], clock) else { return };
    assert_eq!(codes(&equal, 1), ["gpu_clock_fell"]);
}

#[test]
fn near_the_slowdown_is_told_when_it_lasts() {
    // The mock's card slows down at 89 °C.
    for (name, temperature, seconds, told) in
        [("near", 86, 100, true), ("cool", 85, 100, false), ("near-for-a-moment", 86, 40, false)]
    {
        let Some(v) = judged(name, [4, 8], |t| match t {
            0 => Some(String::new()),
            150 => Some(format!("temp {temperature}\n")),
            t if t == 150 + seconds => Some(String::new()),
            _ => None,
        }) else {
            return;
        };
        assert_eq!(codes(&v, 1) == ["gpu_near_slowdown"], told, "{name}: {:?}", v.steps[1].caveats);
        assert_eq!(v.hardware, None, "warm is not slow");
    }
}

#[test]
fn a_lost_gpu_is_told() {
    let Some(v) = in_the_second_step("lost", "count 2\n", "count 2\n1.all err 15\n") else { return };
    assert_eq!(codes(&v, 1), ["gpu_lost"]);
    assert!(v.steps[1].gpu[1].lost && !v.steps[1].gpu[0].lost);
}

#[test]
fn errors_that_could_not_be_corrected_make_the_run_void() {
    for (name, state) in
        [("ecc", "fan 1\necc_dbe 2\n"), ("contained", "xid_seq 1\nxid 94\n"), ("double-bit", "xid_seq 1\nxid 48\n")]
    {
        let Some(v) = in_the_second_step(name, "", state) else { return };
        assert_eq!(v.outcome, RunOutcome::Inconclusive, "{name}");
        assert_eq!((v.highest_clean_concurrency, v.lowest_firing_concurrency), (None, None), "{name}");
        assert!(v.first_alert.is_none() && v.explanation.is_none() && v.confirmed.is_none());
        let why = v.void.as_deref().unwrap_or_default();
        assert!(why.contains("GPU 0 had memory errors that could not be corrected"), "{name}: {why}");
        assert_eq!(v.caveats[0].code, "void");
    }
    let Some(v) = judged("program", [4, 8], |t| match t {
        0 => Some(String::new()),
        150 => Some("xid_seq 1\nxid 13\n".into()),
        _ => None,
    }) else {
        return;
    };
    assert_eq!((v.void, v.outcome), (None, RunOutcome::Alert), "an error of a program is told, and voids nothing");
    assert_eq!(v.steps[1].gpu[0].xids, [13]);
}
