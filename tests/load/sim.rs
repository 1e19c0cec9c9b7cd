//! The loader against the embedded stand-in, sockets and all, under the paused clock.

use std::sync::Arc;
use std::time::Duration;

use plimsoll::load::{ArrivalPattern, ArrivalSpec, LoadOptions, Loader, TargetSpec, probe_with};
use plimsoll::model::recording::Event;
use plimsoll::model::request::{Outcome, RequestTimeline};
use plimsoll::model::step::Load;
use plimsoll::model::time::{Clock, ClockKind};
use plimsoll::sim::{Profile, serve_on};
use plimsoll::workload::{Workload, WorkloadSpec};
use tokio::net::TcpSocket;
use tokio::sync::mpsc;

const WORKLOAD: &str = r#"
    kind = "synthetic"
    input_tokens = { distribution = "uniform", min = 40, max = 200 }
    output_tokens = { distribution = "uniform", min = 4, max = 40 }"#;

/// What a load left behind.
struct Run {
    requests: Vec<RequestTimeline>,
    cut: usize,
    drained_ms: u64,
}

/// Runs `steps` of (load, length in ms) with a ramp of 500 ms each, then drains.
fn run(profile: &str, workload: &str, options: LoadOptions, steps: &[(Load, u64)], drain: Duration) -> Run {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let clock = Clock::start(ClockKind::Simulated);
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(4_096).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let profile = Profile::named(profile).unwrap();
        tokio::spawn(async move { serve_on(clock, listener, profile, 1, std::future::pending()).await });
        let spec = TargetSpec { url, ..TargetSpec::default() };
        let target = probe_with(&spec, &clock, |_| None).await.unwrap();
        assert!(target.facts.tokenize && target.calibration.exact, "{:?}", target.calibration);
        assert!(target.facts.continuous_usage && target.facts.exact_output, "{:?}", target.facts);
        let spec: WorkloadSpec = toml::from_str(workload).unwrap();
        let workload = Workload::new(&spec, 1, "n", target.calibration.clone()).unwrap();
        target.fits(&workload).unwrap();
        let (events, mut seen) = mpsc::unbounded_channel();
        let mut loader = Loader::new(Arc::new(target), Arc::new(workload), clock, events, options);
        for (step, (load, ms)) in (0..).zip(steps) {
            loader.raise_to(step, *load, Duration::from_millis(500));
            clock.sleep_until(clock.now() + Duration::from_millis(*ms)).await;
            if let Load::Concurrency(c) = load {
                assert_eq!(loader.in_flight().len(), *c as usize);
                assert_eq!(loader.live().in_flight, u64::from(*c));
            }
        }
        let before = clock.now();
        let cut = loader.drain(drain).await.cut;
        let drained_ms = clock.now().since(before).as_millis() as u64;
        assert_eq!(loader.in_flight(), []);
        drop(loader);
        let mut requests = Vec::new();
        while let Some(event) = seen.recv().await {
            if let Event::Request(r) = event {
                requests.push(r);
            }
        }
        Run { requests, cut, drained_ms }
    })
}

#[test]
fn a_closed_loop_rises_without_draining_and_every_prompt_is_exact() {
    let steps = [(Load::Concurrency(4), 3_000), (Load::Concurrency(12), 3_000)];
    let once = run("quickstart", WORKLOAD, LoadOptions::default(), &steps, Duration::from_secs(60));
    assert_eq!(once.cut, 0);
    assert!(once.requests.len() > 30, "{}", once.requests.len());
    for r in &once.requests {
        assert_eq!(r.outcome, Outcome::Completed, "{r:?}");
        assert_eq!(r.usage.prompt_tokens, r.asked_prompt_tokens, "request {}", r.index);
        assert_eq!(r.usage.completion_tokens, r.asked_output_tokens, "request {}", r.index);
        assert_eq!(r.finish_reason.as_deref(), Some("length"));
    }
    let crossing = once.requests.iter().any(|r| r.step == 0 && r.finished.as_millis() > 3_500);
    assert!(crossing, "a request of the first step goes on in the second");
    let again = run("quickstart", WORKLOAD, LoadOptions::default(), &steps, Duration::from_secs(60));
    assert_eq!(once.requests, again.requests, "the same seed gives the same run");
}

#[test]
fn an_open_loop_keeps_its_rate_and_counts_from_due() {
    let arrivals = ArrivalSpec { pattern: ArrivalPattern::Constant, ..ArrivalSpec::default() };
    let options = LoadOptions { arrivals, ..LoadOptions::default() };
    let run = run("roomy", WORKLOAD, options, &[(Load::Rate(4.0), 10_100)], Duration::from_secs(60));
    assert_eq!(run.cut, 0);
    // Half of the rate on average over the ramp of 0.5 s, then all of it.
    assert_eq!(run.requests.len(), 39);
    for r in &run.requests {
        let lag = r.sent.since(r.due.unwrap());
        assert!(lag < Duration::from_millis(2), "request {} was sent {lag:?} late", r.index);
        assert_eq!(r.began(), r.due.unwrap());
    }
}

#[test]
fn what_has_not_ended_in_time_is_cut_and_counted() {
    let workload = "kind = \"fixed\"\ninput_tokens = 64\noutput_tokens = 400";
    let run = run(
        "quickstart",
        workload,
        LoadOptions::default(),
        &[(Load::Concurrency(6), 1_000)],
        Duration::from_millis(200),
    );
    let cut: Vec<&RequestTimeline> = run.requests.iter().filter(|r| r.outcome == Outcome::Cut).collect();
    assert_eq!((cut.len(), run.cut, run.drained_ms), (6, 6, 200));
    assert!(cut.iter().all(|r| !r.chunks.is_empty()), "what came of them is kept");
    assert!(cut.windows(2).all(|w| w[0].index < w[1].index), "in the order of their index");
}
