//! What a streamed token costs in real time under the paused clock: the stand-in's engine and its
//! API, the socket, our client, the recording on disk and the scraping of the page; no judging.
//!
//! `cargo bench --bench sim` prints microseconds for a token of each load, the best of three.
//! `-- NAME` runs one load alone, for a profiler.
//!
//! The aim is 40 us. On two cores of an EPYC server that other work shared: `even-64` 22.6, `quickstart-4` 38.6,
//! `quickstart-8` 36.3 and `h100-256` 28.3 us, half of it in the kernel's loopback.

use std::sync::Arc;
use std::time::Duration;

use plimsoll::load::{LoadOptions, Loader, TargetSpec, probe_with};
use plimsoll::model::recording::{Event, Header};
use plimsoll::model::step::Load;
use plimsoll::model::time::{Clock, ClockKind};
use plimsoll::record::{self, Redactor, Writer};
use plimsoll::scenario::Scenario;
use plimsoll::scrape::{Page, Poller};
use plimsoll::sim::{self, Profile};
use plimsoll::workload::{Workload, WorkloadSpec};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

/// A load and the server that carries it.
struct Case {
    name: &'static str,
    says: &'static str,
    profile: fn() -> Profile,
    streams: u32,
    input: u32,
    output: u32,
    simulated: Duration,
}

const CASES: &[Case] = &[
    Case {
        name: "even-64",
        says: "64 streams with a gap of 20 ms",
        profile: even,
        streams: 64,
        input: 100,
        output: 200,
        simulated: Duration::from_secs(60),
    },
    Case {
        name: "quickstart-4",
        says: "4 streams of the quickstart, a gap of 64 ms",
        profile: || named("quickstart"),
        streams: 4,
        input: 409,
        output: 64,
        simulated: Duration::from_secs(600),
    },
    Case {
        name: "quickstart-8",
        says: "8 streams of the quickstart, half of them waiting",
        profile: || named("quickstart"),
        streams: 8,
        input: 409,
        output: 64,
        simulated: Duration::from_secs(600),
    },
    Case {
        name: "h100-256",
        says: "256 streams on the H100 preset",
        profile: || named("h100-8b"),
        streams: 256,
        input: 300,
        output: 150,
        simulated: Duration::from_secs(15),
    },
];

fn named(name: &str) -> Profile {
    Profile::named(name).expect("a preset")
}

/// A server whose steps take 20 ms whatever is in them.
fn even() -> Profile {
    let mut profile = named("h100-8b");
    let cost = &mut profile.cost;
    cost.base_us = 20_000.0;
    for us in [&mut cost.prefill_us, &mut cost.decode_us, &mut cost.context_us, &mut cost.attention_us] {
        *us = 0.0;
    }
    cost.jitter = 0.0;
    profile
}

#[expect(clippy::print_stdout, reason = "the answer of a benchmark")]
fn main() {
    let outer = Builder::new_current_thread().enable_time().build().expect("a runtime can be made");
    let _outside = outer.enter();
    let clock = Clock::start(ClockKind::Real);
    let wanted = std::env::args().nth(1).filter(|a| !a.starts_with('-'));
    for case in CASES.iter().filter(|c| wanted.as_deref().is_none_or(|w| w == c.name)) {
        let (best, tokens) = (0..3)
            .map(|_| {
                let inner = Builder::new_current_thread().enable_all().start_paused(true).build();
                let inner = inner.expect("a runtime can be made");
                let began = clock.now();
                let tokens = run(&inner, case);
                (clock.now().since(began).as_secs_f64() * 1e6 / tokens as f64, tokens)
            })
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .expect("three runs");
        println!("{:14} {best:6.1} us a token  ({}; {tokens} tokens)", case.name, case.says);
    }
}

/// Carries the load for its time and returns how many tokens were streamed.
fn run(runtime: &Runtime, case: &Case) -> u64 {
    let folder = std::env::temp_dir().join(format!("plimsoll-bench-sim-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let tokens = runtime.block_on(carry(case, &folder));
    let _ = std::fs::remove_dir_all(&folder);
    tokens
}

async fn carry(case: &Case, folder: &std::path::Path) -> u64 {
    let clock = Clock::start(ClockKind::Simulated);
    let listener = sim::bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("a bound address"));
    tokio::spawn(sim::serve_on(clock, listener, (case.profile)(), 1, std::future::pending()));
    let spec = TargetSpec { url: url.clone(), ..TargetSpec::default() };
    let target = probe_with(&spec, &clock, |_| None).await.expect("the stand-in answers");
    let spec = format!("kind = \"fixed\"\ninput_tokens = {}\noutput_tokens = {}", case.input, case.output);
    let spec: WorkloadSpec = toml::from_str(&spec).expect("a workload");
    let workload = Workload::new(&spec, 1, "n", target.calibration.clone()).expect("a workload");

    let scenario = Scenario::default();
    let header = Header {
        scenario: case.name.into(),
        nonce: "n".into(),
        seed: 1,
        ..Header::blank(ClockKind::Simulated, clock.epoch_unix_ms())
    };
    let writer = Writer::create(folder, header, Redactor::new(Vec::new())).expect("a recording");
    let (events, arriving) = mpsc::unbounded_channel();
    let (onward, mut written) = mpsc::unbounded_channel();
    let writing = record::start(writer, arriving, onward);
    let page = format!("{url}/metrics");
    let poller = Poller::start(Page::server(page), &scenario.metrics, clock, events.clone()).expect("a poller");
    poller.first().await;

    let mut loader = Loader::new(Arc::new(target), Arc::new(workload), clock, events, LoadOptions::default());
    loader.raise_to(0, Load::Concurrency(case.streams), Duration::from_secs(1));
    clock.sleep_until(clock.now() + case.simulated).await;
    loader.drain(Duration::from_secs(120)).await;
    drop((loader, poller));
    let mut tokens = 0;
    while let Some(event) = written.recv().await {
        if let Event::Request(request) = event {
            tokens += request.chunks.len() as u64;
        }
    }
    writing.await.expect("the writer ends").expect("the recording is written");
    tokens
}
