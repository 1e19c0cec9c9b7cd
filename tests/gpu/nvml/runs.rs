//! NVML in a run: on a thread of its own, or not at all.

use std::path::Path;
use std::time::Duration;

use plimsoll::gpu::nvml;
use plimsoll::gpu::{self, GpuError, GpuSource, GpuSpec, Source};
use plimsoll::model::recording::Event;
use plimsoll::model::sample::SourceKind;
use plimsoll::model::time::{Clock, ClockKind};
use tokio::sync::mpsc::unbounded_channel;

use super::mock::{Mock, open, try_open};

#[test]
fn a_driver_that_does_not_start_is_one_line() {
    let Some(mock) = Mock::new("init", "") else { return };
    for (state, says) in [
        ("init err 9\n", "the NVIDIA driver is not loaded"),
        ("init err 18\n", "driver and library are of different versions"),
        ("init err 4\n", "we may not talk to the NVIDIA driver"),
        ("init err 999\n", "the NVIDIA driver does not start"),
    ] {
        mock.set(state);
        let e = nvml::load(Some(&mock.library)).unwrap_err();
        assert!(e.to_string().contains(says), "{e}");
        assert!(!e.to_string().contains('\n') && matches!(e, GpuError::Unavailable { .. }));
    }
    let absent = nvml::load(Some(Path::new("no-such-library.so"))).unwrap_err().to_string();
    assert!(absent.contains("there is no NVIDIA driver here (no-such-library.so cannot be opened)"), "{absent}");

    mock.set("");
    let library = mock.load();
    for (state, says) in [("count 0\n", "shows no GPU"), ("count err 4\n", "the number of GPUs cannot be had")] {
        mock.set(state);
        let e = try_open(&library, &[]).unwrap_err().to_string();
        assert!(e.contains(says), "{e}");
    }
    mock.set("driver err 999\n");
    assert_eq!(open(&library, &[]).describe().driver, None);
}

fn spec(library: &Path) -> GpuSpec {
    GpuSpec {
        devices: vec!["0".into()],
        // Only the first and the last round: the test waits for no clock.
        interval: Duration::from_secs(60),
        nvml_library: Some(library.into()),
        ..GpuSpec::of(Source::Nvml)
    }
}

#[tokio::test]
async fn a_run_reads_on_a_thread_and_records_its_cost() {
    let Some(mock) = Mock::new("run", "fan 1\n") else { return };
    let clock = Clock::start(ClockKind::Real);
    let (sender, mut events) = unbounded_channel();
    let poller = gpu::start(&spec(&mock.library), clock, sender).await.unwrap().unwrap();
    assert!(poller.panel().poll_us.is_some());
    mock.set("fan 1\nprocs 2\n");
    poller.step_border();
    poller.stop().await;
    let mut scrapes = Vec::new();
    let mut notes = Vec::new();
    while let Some(event) = events.recv().await {
        match event {
            Event::Scrape(s) => scrapes.push(s),
            Event::Note(n) => notes.push(n),
            other => panic!("unexpected {other:?}"),
        }
    }
    assert_eq!(scrapes.len(), 2);
    for scrape in &scrapes {
        assert_eq!(scrape.source, SourceKind::Gpu);
        assert!(scrape.sent <= scrape.received);
        let samples = scrape.result.as_ref().unwrap();
        assert!(samples.iter().any(|s| s.labels.name() == "plimsoll_gpu_poll_seconds" && s.value >= 0.0));
        assert!(samples.iter().any(|s| s.labels.name() == "DCGM_FI_DEV_SM_CLOCK"));
    }
    assert_eq!(notes.iter().map(|n| n.code.as_str()).collect::<Vec<_>>(), ["gpu_source", "gpu_neighbour"]);
    assert_eq!(notes[0].says, "nvml, driver 570.00.mock, 1 GPU: 0 Mock H200 (GPU-mock-0)");
}

#[tokio::test]
async fn without_a_driver_a_run_goes_on_unless_a_gpu_is_required() {
    let clock = Clock::start(ClockKind::Real);
    let mut none = spec(Path::new("no-such-library.so"));
    let (sender, mut events) = unbounded_channel();
    assert!(gpu::start(&none, clock, sender.clone()).await.unwrap().is_none());
    let Some(Event::Note(note)) = events.recv().await else { panic!("a note was due") };
    assert_eq!(note.code, "gpu_none");
    assert!(note.says.ends_with("; the verdict has no GPU"), "{}", note.says);
    assert!(gpu::check(&none, clock).await.is_err(), "check says so in either case");
    none.required = true;
    assert!(matches!(gpu::start(&none, clock, sender.clone()).await, Err(GpuError::Unavailable { .. })));
    assert!(gpu::start(&GpuSpec::of(Source::Off), clock, sender).await.unwrap().is_none());
    assert!(events.recv().await.is_none(), "off says nothing");
}

#[tokio::test]
async fn a_device_that_is_asked_for_and_not_there_ends_the_run_before_it_begins() {
    let Some(mock) = Mock::new("wrong-device", "") else { return };
    let clock = Clock::start(ClockKind::Real);
    let (sender, _events) = unbounded_channel();
    let wrong = GpuSpec { devices: vec!["GPU-other".into()], ..spec(&mock.library) };
    let e = gpu::start(&wrong, clock, sender).await.unwrap_err();
    assert_eq!(e.to_string(), "gpu.devices asks for `GPU-other`, expected one of: 0 (GPU-mock-0)");
}

#[tokio::test(start_paused = true)]
async fn simulated_time_never_asks_a_real_driver() {
    let Some(mock) = Mock::new("simulated", "") else { return };
    let clock = Clock::start(ClockKind::Simulated);
    let (sender, mut events) = unbounded_channel();
    let auto = GpuSpec { source: Source::Auto, ..spec(&mock.library) };
    assert!(gpu::start(&auto, clock, sender.clone()).await.unwrap().is_none());
    assert!(gpu::start(&spec(&mock.library), clock, sender).await.unwrap().is_none());
    let Some(Event::Note(note)) = events.recv().await else { panic!("a note was due") };
    assert!(note.says.contains("simulated"), "{}", note.says);
    assert_eq!(mock.calls_on(0), 0);
}
