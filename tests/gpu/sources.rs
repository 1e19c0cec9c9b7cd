//! Exporter pages, `nvidia-smi` logs and scripts, and the task that reads them: under simulated time, so
//! that every round is where it belongs.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use axum::routing::get;
use plimsoll::gpu::follow::{LogReader, Placed};
use plimsoll::gpu::page::translate;
use plimsoll::gpu::scripted::Scripted;
use plimsoll::gpu::smi::Log;
use plimsoll::gpu::spec::ClockOffset;
use plimsoll::gpu::{self, GpuError, GpuSpec, NoteCode, Source};
use plimsoll::model::recording::{Event, Note};
use plimsoll::model::sample::{Labels, Sample, Scrape};
use plimsoll::model::time::{Clock, ClockKind, Offset, SIMULATED_EPOCH_UNIX_MS, Span};
use plimsoll::scrape::exposition::parse;
use plimsoll::sim::fault::{Fault, FaultKind, ThrottledBy};
use plimsoll::sim::{self, Profile};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const DCGM: &str = include_str!("../gpu_data/dcgm.prom");
const EXPORTER: &str = include_str!("../gpu_data/nvidia_gpu_exporter.prom");
const SMI: &str = include_str!("../gpu_data/nvidia-smi.csv");

fn values(samples: &[Sample]) -> BTreeMap<Labels, f64> {
    samples.iter().map(|s| (s.labels.clone(), s.value)).collect()
}

#[test]
fn pages_and_logs_of_the_same_cards_give_the_same_series() {
    let dcgm = values(&translate(&parse(DCGM.as_bytes(), None).unwrap()));
    let exporter = values(&translate(&parse(EXPORTER.as_bytes(), None).unwrap()));
    let smi = values(&Log::default().feed(SMI)[0].samples);
    // What all three can tell: SM and memory clock, temperature, power, both utilisations, memory used and
    // free, reasons; of two devices.
    assert_eq!(smi.len(), 18);
    assert_eq!(exporter, smi);
    for (labels, value) in &smi {
        assert_eq!(dcgm.get(labels), Some(value), "{labels}");
    }
    let only_dcgm: Vec<&str> = dcgm.keys().filter(|l| !smi.contains_key(*l)).map(Labels::name).collect();
    let energy = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION";
    let memory = "DCGM_FI_DEV_MEMORY_TEMP";
    assert_eq!(only_dcgm.iter().filter(|n| **n == energy).count(), 2);
    assert_eq!(only_dcgm.iter().filter(|n| **n == memory).count(), 2, "blanks fall later, where they are counted");
}

/// Serves what `page` says for each request, and counts them.
async fn serve(page: impl Fn(usize) -> (StatusCode, String) + Send + Sync + 'static) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/metrics", listener.local_addr().unwrap());
    let (page, count) = (Arc::new(page), Arc::new(AtomicUsize::new(0)));
    let answer = move || {
        let (page, count) = (Arc::clone(&page), Arc::clone(&count));
        async move { page(count.fetch_add(1, Ordering::Relaxed)) }
    };
    let app = axum::Router::new().route("/metrics", get(answer));
    use axum::serve::ListenerExt as _;
    let listener = listener.tap_io(|io| io.set_nodelay(true).unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

fn split(mut events: UnboundedReceiver<Event>) -> (Vec<Scrape>, Vec<Note>) {
    let (mut scrapes, mut notes) = (Vec::new(), Vec::new());
    while let Ok(event) = events.try_recv() {
        match event {
            Event::Scrape(s) => scrapes.push(s),
            Event::Note(n) => notes.push(n),
            other => panic!("unexpected {other:?}"),
        }
    }
    (scrapes, notes)
}

fn find(samples: &[Sample], gpu: &str, series: &str) -> Option<f64> {
    samples.iter().find(|s| s.labels.name() == series && s.labels.get("gpu") == Some(gpu)).map(|s| s.value)
}

fn second(s: u64) -> Offset {
    Offset::from_millis(s * 1_000)
}

#[tokio::test(start_paused = true)]
async fn a_page_is_read_each_second_and_its_failures_are_events() {
    let url = serve(|n| match n {
        2 | 3 => (StatusCode::INTERNAL_SERVER_ERROR, "restarting".into()),
        _ => (StatusCode::OK, DCGM.into()),
    })
    .await;
    let clock = Clock::start(ClockKind::Simulated);
    let (sender, events) = unbounded_channel();
    let spec = GpuSpec { devices: vec!["GPU-2222".into()], ..GpuSpec::of(Source::Dcgm(url)) };
    let poller = gpu::start(&spec, clock, sender).await.unwrap().unwrap();
    assert_eq!(poller.panel().headline(), "dcgm, 1 GPU: 1 NVIDIA L40S (GPU-22222222-bbbb-4000-8000-000000000002)");
    clock.sleep_until(second(5) + Duration::from_millis(500)).await;
    drop(poller);
    let (scrapes, notes) = split(events);
    assert_eq!(scrapes.iter().map(|s| s.sent).collect::<Vec<_>>(), (0..6).map(second).collect::<Vec<_>>());
    assert_eq!(scrapes.iter().map(|s| s.result.is_ok()).collect::<Vec<_>>(), [true, true, false, false, true, true]);
    assert_eq!(scrapes[2].result.as_ref().unwrap_err().class, "status");
    let samples = scrapes[0].result.as_ref().unwrap();
    assert!(samples.iter().all(|s| s.labels.get("gpu") == Some("1")), "only what was asked for, and no cost of ours");
    assert_eq!(find(samples, "1", "DCGM_FI_DEV_GPU_TEMP"), Some(88.0));
    assert_eq!(find(samples, "1", "DCGM_FI_DEV_MEMORY_TEMP"), None, "a blank is no temperature");
    assert_eq!(find(samples, "1", "plimsoll_gpu_dropped_readings_total"), Some(1.0));
    assert_eq!(find(samples, "1", "plimsoll_gpu_up"), Some(1.0));
    let told: Vec<&str> = notes.iter().map(|n| n.code.as_str()).collect();
    assert_eq!(told, ["gpu_source", "gpu_unreadable"], "a series of failures is told once");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_none_is_told_before_the_run() {
    let url = serve(|_| (StatusCode::OK, "vllm:num_requests_running 3\n".into())).await;
    let clock = Clock::start(ClockKind::Simulated);
    let (sender, events) = unbounded_channel();
    let mut spec = GpuSpec::of(Source::Dcgm(url));
    assert!(gpu::start(&spec, clock, sender.clone()).await.unwrap().is_none());
    spec.required = true;
    let e = gpu::start(&spec, clock, sender.clone()).await.unwrap_err();
    assert!(e.to_string().contains("neither DCGM_FI_… nor nvidia_smi_…"), "{e}");
    assert!(!e.hint().is_empty());
    let wrong = GpuSpec {
        devices: vec!["3".into()],
        ..GpuSpec::of(Source::Dcgm(serve(|_| (StatusCode::OK, EXPORTER.into())).await))
    };
    assert!(matches!(gpu::start(&wrong, clock, sender).await, Err(GpuError::NoSuchDevice { .. })));
    assert_eq!(split(events).1.iter().map(|n| n.code.as_str()).collect::<Vec<_>>(), ["gpu_none"]);
}

#[tokio::test(start_paused = true)]
async fn a_script_is_read_on_the_grid_and_once_more_at_the_end() {
    // What unified-memory cards answer: some fields, each refusal on its own.
    let round = r#"{"t_s": 0, "devices": [{"index": 0, "uuid": "GPU-b1", "name": "Unified GPU", "fields": {"utilization_gpu_pct": {"ok": 96}, "memory_used_bytes": {"err": "NotSupported"}, "memory_total_bytes": {"err": "NotSupported"}, "power_mw": {"ok": 61000}, "power_limit_mw": {"err": "NotSupported"}, "temperature_c": {"ok": 58}, "fan_pct": {"err": "NotSupported"}, "memory_temperature_c": {"err": "NotSupported"}, "sm_clock_mhz": {"ok": 2400}, "compute_processes": {"err": "FailedToLoadSymbol"}}}]}"#;
    let script = Scripted::from_jsonl(&format!("{round}\n{round}\n{round}\n")).unwrap();
    let clock = Clock::start(ClockKind::Simulated);
    let (sender, events) = unbounded_channel();
    let poller = gpu::start_with(Box::new(script), Duration::from_secs(5), clock, sender).await;
    let mut refused: Vec<&str> = poller.panel().devices[0].refused.iter().map(|(key, _)| *key).collect();
    refused.sort_unstable();
    assert_eq!(
        refused,
        [
            "compute_processes",
            "fan_pct",
            "memory_temperature_c",
            "memory_total_bytes",
            "memory_used_bytes",
            "power_limit_mw"
        ]
    );
    clock.sleep_until(second(12)).await;
    poller.stop().await;
    let (scrapes, notes) = split(events);
    assert_eq!(scrapes.iter().map(|s| s.sent).collect::<Vec<_>>(), [second(0), second(5), second(10), second(12)]);
    for scrape in &scrapes {
        let samples = scrape.result.as_ref().unwrap();
        for (series, expected) in [
            ("DCGM_FI_DEV_GPU_UTIL", Some(96.0)),
            ("DCGM_FI_DEV_POWER_USAGE", Some(61.0)),
            ("DCGM_FI_DEV_GPU_TEMP", Some(58.0)),
            ("DCGM_FI_DEV_FB_USED", None),
            ("DCGM_FI_DEV_FAN_SPEED", None),
        ] {
            assert_eq!(find(samples, "0", series), expected, "{series}");
        }
    }
    assert_eq!(notes.iter().map(|n| n.code.as_str()).collect::<Vec<_>>(), ["gpu_source", "gpu_unsupported"]);
}

/// A log file that grows as the test says.
struct Growing {
    path: PathBuf,
    text: String,
}

impl Growing {
    fn new(name: &str) -> Growing {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("smi-{}-{name}.csv", std::process::id()));
        let header = SMI.lines().next().unwrap();
        let log = Growing { path, text: format!("{header}\n") };
        fs::write(&log.path, &log.text).unwrap();
        log
    }

    fn add(&mut self, text: &str) {
        self.text += text;
        fs::write(&self.path, &self.text).unwrap();
    }

    /// One reading of the first card, so many seconds after two o'clock.
    fn row(second: u64) -> String {
        let row = SMI.lines().nth(1).unwrap();
        format!("{}\n", row.replace("02:00:00.110", &format!("02:{:02}:{:02}.110", second / 60, second % 60)))
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The wall clock that a simulated run begins at is midnight UTC, so the log's two o'clock is a zone of +2 h.
const MIDNIGHT: i64 = SIMULATED_EPOCH_UNIX_MS;

fn times(placed: &[Placed]) -> Vec<i64> {
    placed.iter().map(|p| p.unix_ms - MIDNIGHT).collect()
}

#[tokio::test]
async fn a_log_finds_its_zone_by_the_first_line_that_comes() {
    let mut file = Growing::new("zone");
    file.add(&(Growing::row(0) + &Growing::row(1)));
    let mut log = LogReader::new(file.path.clone(), None);
    let panel = log.open(&["5d:00.0".into()]).await.unwrap();
    assert_eq!(panel.devices.len(), 1);
    assert!(log.poll(MIDNIGHT + 1_000).await.unwrap().is_empty(), "old lines tell no zone");
    assert!(log.left_over().is_some());
    // Half a line is none yet.
    let row = Growing::row(2);
    file.add(&row[..40]);
    assert!(log.poll(MIDNIGHT + 2_000).await.unwrap().is_empty());
    file.add(&row[40..]);
    assert_eq!(times(&log.poll(MIDNIGHT + 3_000).await.unwrap()), [110, 1_110, 2_110]);
    file.add(&Growing::row(3));
    assert_eq!(times(&log.poll(MIDNIGHT + 4_000).await.unwrap()), [3_110]);
    assert_eq!(log.left_over(), None);
}

#[tokio::test]
async fn a_log_with_a_known_clock_is_placed_and_waits_for_its_time() {
    let mut file = Growing::new("known");
    file.add(&(0..4).map(Growing::row).collect::<String>());
    let mut log = LogReader::new(file.path.clone(), Some(ClockOffset(-2 * 3_600_000)));
    log.open(&[]).await.unwrap();
    assert_eq!(times(&log.poll(MIDNIGHT + 1_500).await.unwrap()), [110, 1_110]);
    assert!(log.poll(MIDNIGHT + 1_600).await.unwrap().is_empty(), "each is given once");
    let left = log.left_over().unwrap();
    assert_eq!(left.code, NoteCode::Unreadable);
    assert!(left.says.contains("ahead of our clock"), "{}", left.says);
    assert_eq!(times(&log.poll(MIDNIGHT + 9_000).await.unwrap()), [2_110, 3_110]);

    // Begun anew, with a shorter file.
    file.text = format!("{}\n", SMI.lines().next().unwrap());
    file.add(&Growing::row(10));
    let placed = log.poll(MIDNIGHT + 11_000).await.unwrap();
    assert_eq!(times(&placed), [10_110]);
    assert_eq!(find(&placed[0].reading.samples, "0", "DCGM_FI_DEV_POWER_USAGE"), Some(318.75));
    assert_eq!(find(&placed[0].reading.samples, "0", "plimsoll_gpu_up"), Some(1.0));
}

#[tokio::test(start_paused = true)]
async fn a_log_is_merged_into_a_run_by_its_stamps() {
    let mut file = Growing::new("run");
    file.add(&SMI[SMI.find('\n').unwrap() + 1..]);
    let clock = Clock::start(ClockKind::Simulated);
    let (sender, events) = unbounded_channel();
    let spec = GpuSpec {
        smi_clock_offset: Some("-2h".parse().unwrap()),
        devices: vec!["1".into()],
        ..GpuSpec::of(Source::Smi(file.path.clone()))
    };
    let poller = gpu::start(&spec, clock, sender).await.unwrap().unwrap();
    clock.sleep_until(second(4)).await;
    poller.stop().await;
    let (scrapes, notes) = split(events);
    // A group carries the stamp of its first line, that of the other card.
    assert_eq!(scrapes.iter().map(|s| s.sent.as_millis()).collect::<Vec<_>>(), [110, 1_110, 2_110]);
    assert!(scrapes.iter().all(|s| s.sent < s.received));
    for scrape in &scrapes {
        let samples = scrape.result.as_ref().unwrap();
        assert_eq!(find(samples, "1", "DCGM_FI_DEV_SM_CLOCK"), Some(1_215.0));
        assert_eq!(find(samples, "0", "DCGM_FI_DEV_SM_CLOCK"), None);
    }
    assert!(notes.iter().all(|n| n.code != "gpu_lost"), "{notes:?}");
}

#[tokio::test]
async fn a_log_that_is_none_is_told() {
    let clock = Clock::start(ClockKind::Real);
    let absent = GpuSpec::of(Source::Smi("no-such-log.csv".into()));
    let e = gpu::check(&absent, clock).await.unwrap_err().to_string();
    assert!(e.contains("no-such-log.csv cannot be read"), "{e}");
    let file = Growing::new("headless");
    fs::write(&file.path, Growing::row(0)).unwrap();
    let e = gpu::check(&GpuSpec::of(Source::Smi(file.path.clone())), clock).await.unwrap_err().to_string();
    assert!(e.contains("`timestamp` column"), "{e}");
    let empty = Growing::new("empty");
    let panel = gpu::check(&GpuSpec::of(Source::Smi(empty.path.clone())), clock).await.unwrap().unwrap();
    assert_eq!(panel.remarks, ["the log has no readings yet"]);
}

#[tokio::test(start_paused = true)]
async fn the_stand_ins_throttled_gpu_is_seen_through_its_page() {
    let mut profile = Profile::default();
    profile.faults.push(Fault {
        at: Duration::from_secs(3),
        lasts: Some(Duration::from_secs(4)),
        kind: FaultKind::Throttle { clock: 0.5, by: ThrottledBy::Heat },
    });
    let listener = sim::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/dcgm/metrics", listener.local_addr().unwrap());
    let clock = Clock::start(ClockKind::Simulated);
    tokio::spawn(sim::serve_on(clock, listener, profile, 1, std::future::pending()));
    let (sender, events) = unbounded_channel();
    let poller = gpu::start(&GpuSpec::of(Source::Dcgm(url)), clock, sender).await.unwrap().unwrap();
    clock.sleep_until(second(10)).await;
    poller.stop().await;
    let (scrapes, _) = split(events);
    let stats = |from: u64, to: u64| {
        let stats = gpu::stats(&scrapes, Span::new(second(from), second(to)), None);
        assert_eq!((stats.len(), stats[0].samples), (1, to - from));
        stats[0].throttle_reasons.iter().map(|r| (r.reason.clone(), r.share_ratio)).collect::<Vec<_>>()
    };
    let hot = "sw_thermal_slowdown".to_string();
    assert_eq!(stats(0, 3), []);
    assert_eq!(stats(3, 7), [(hot.clone(), 1.0)]);
    assert_eq!(stats(5, 9), [(hot, 0.5)]);
    assert_eq!(stats(7, 10), []);
}
