//! The path through `nvml-wrapper`, driven by a library of our own that answers like NVML and is
//! compiled here. No test needs a GPU; one that finds a real one reads it too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use plimsoll::gpu::fleet::Fleet;
use plimsoll::gpu::nvml::{self, NvmlCard};
use plimsoll::gpu::select::Visible;
use plimsoll::gpu::{self, Depth, GpuError, GpuNote, GpuReading, GpuSource, GpuSpec, NoteCode, Source};
use plimsoll::model::recording::Event;
use plimsoll::model::sample::{Scrape, SourceKind};
use plimsoll::model::time::{Clock, ClockKind, Offset, Span};
use tokio::sync::mpsc::unbounded_channel;

/// A library with a state of its own.
struct Mock {
    dir: PathBuf,
    library: PathBuf,
}

/// Which symbols the library has.
#[derive(Clone, Copy)]
enum Age {
    Current,
    /// Without those that came with version 510 of the driver.
    Old,
}

/// Compiles the library once a process; `None`, with a line that says so, where there is no C compiler.
fn compiled(age: Age) -> Option<&'static Path> {
    static CURRENT: OnceLock<Option<PathBuf>> = OnceLock::new();
    static OLD: OnceLock<Option<PathBuf>> = OnceLock::new();
    let (cell, name, extra) = match age {
        Age::Current => (&CURRENT, "current", None),
        Age::Old => (&OLD, "old", Some("-DOLD")),
    };
    cell.get_or_init(|| {
        let dir = fresh_dir(&format!("compiled-{name}"));
        let library = dir.join("libmock-nvml.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nvml-mock/mock.c");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).args(extra).arg(source);
        match cc.status() {
            Ok(status) => {
                assert!(status.success(), "cc failed on tests/nvml-mock/mock.c");
                Some(library)
            }
            Err(e) => {
                eprintln!("skipped: the NVML tests need the C compiler `cc` ({e})");
                None
            }
        }
    })
    .as_deref()
}

fn fresh_dir(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nvml-{}-{name}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    dir
}

impl Mock {
    fn new(name: &str, state: &str) -> Option<Mock> {
        Mock::aged(name, state, Age::Current)
    }

    fn aged(name: &str, state: &str, age: Age) -> Option<Mock> {
        let compiled = compiled(age)?;
        let dir = fresh_dir(name);
        // A copy of its own: the library looks for its state beside itself.
        let library = dir.join("libmock-nvml.so");
        fs::copy(compiled, &library).unwrap();
        let mock = Mock { dir, library };
        mock.set(state);
        let _ = fs::remove_file(mock.dir.join("calls.txt"));
        Some(mock)
    }

    fn set(&self, state: &str) {
        fs::write(self.dir.join("state.txt"), state).unwrap();
    }

    /// How often a function was called on the device in `slot`.
    fn calls(&self, function: &str, slot: u32) -> usize {
        let line = format!("{function} {slot}");
        fs::read_to_string(self.dir.join("calls.txt")).unwrap_or_default().lines().filter(|l| *l == line).count()
    }

    fn calls_on(&self, slot: u32) -> usize {
        let end = format!(" {slot}");
        fs::read_to_string(self.dir.join("calls.txt")).unwrap_or_default().lines().filter(|l| l.ends_with(&end)).count()
    }

    fn load(&self) -> nvml_wrapper::Nvml {
        nvml::load(Some(&self.library)).unwrap()
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn open<'n>(nvml: &'n nvml_wrapper::Nvml, devices: &[&str]) -> Fleet<NvmlCard<'n>> {
    try_open(nvml, devices).unwrap()
}

fn try_open<'n>(nvml: &'n nvml_wrapper::Nvml, devices: &[&str]) -> Result<Fleet<NvmlCard<'n>>, GpuError> {
    let devices: Vec<String> = devices.iter().map(|d| (*d).to_string()).collect();
    nvml::open(nvml, &devices, &Visible::default())
}

fn value(reading: &GpuReading, gpu: &str, series: &str) -> Option<f64> {
    let is = |s: &&plimsoll::model::sample::Sample| {
        s.labels.name() == series && s.labels.get("gpu") == Some(gpu) && s.labels.get("mig").is_none()
    };
    reading.samples.iter().find(is).map(|s| s.value)
}

fn codes(reading: &GpuReading) -> Vec<NoteCode> {
    reading.notes.iter().map(|n| n.code).collect()
}

#[test]
fn a_healthy_card_gives_every_series_in_dcgms_unit() {
    let Some(mock) = Mock::new("healthy", "power_mw 350250\nreasons 0x4\nenergy_mj 123456789\nfan 35\n") else {
        return;
    };
    let library = mock.load();
    let mut fleet = open(&library, &[]);
    let reading = fleet.poll(Depth::Round);
    for (series, expected) in [
        ("DCGM_FI_DEV_SM_CLOCK", 1_980.0),
        ("DCGM_FI_DEV_MEM_CLOCK", 3_201.0),
        ("DCGM_FI_DEV_MAX_SM_CLOCK", 1_980.0),
        ("DCGM_FI_DEV_GPU_TEMP", 41.0),
        ("DCGM_FI_DEV_MEMORY_TEMP", 62.0),
        ("DCGM_FI_DEV_SLOWDOWN_TEMP", 89.0),
        ("DCGM_FI_DEV_SHUTDOWN_TEMP", 92.0),
        ("DCGM_FI_DEV_GPU_MAX_OP_TEMP", 87.0),
        ("DCGM_FI_DEV_POWER_USAGE", 350.25),
        ("DCGM_FI_DEV_POWER_MGMT_LIMIT", 700.0),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 123_456_789.0),
        ("DCGM_FI_DEV_GPU_UTIL", 97.0),
        ("DCGM_FI_DEV_MEM_COPY_UTIL", 40.0),
        ("DCGM_FI_DEV_FB_USED", 140_000_000_000.0 / 1_048_576.0),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 4.0),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 0.0),
        ("DCGM_FI_DEV_XID_ERRORS", 0.0),
        ("DCGM_FI_DEV_FAN_SPEED", 35.0),
        ("plimsoll_gpu_processes", 1.0),
        ("plimsoll_gpu_neighbours", 0.0),
        ("plimsoll_gpu_up", 1.0),
        ("plimsoll_gpu_dropped_readings_total", 0.0),
    ] {
        assert_eq!(value(&reading, "0", series), Some(expected), "{series}");
    }
    assert!(reading.notes.is_empty(), "{:?}", reading.notes);
    let labels = &reading.samples[0].labels;
    assert_eq!((labels.get("UUID"), labels.get("modelName")), (Some("GPU-mock-0"), Some("Mock H200")));

    let panel = fleet.describe();
    assert_eq!(panel.driver.as_deref(), Some("570.00.mock"));
    let shown = panel.to_string();
    for part in [
        "nvml, driver 570.00.mock",
        "00000000:5D:00.0",
        "350 of 700 W drawn",
        "hardware at 89 °C",
        "pid 1000 (1024 MiB)",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
}

#[test]
fn slow_questions_wait_for_a_border_and_constant_ones_are_asked_once() {
    let Some(mock) = Mock::new("pace", "") else { return };
    let library = mock.load();
    let mut fleet = open(&library, &[]);
    let first = fleet.poll(Depth::Round);
    for _ in 0..3 {
        let later = fleet.poll(Depth::Round);
        assert_eq!(value(&later, "0", "plimsoll_gpu_processes"), Some(1.0), "the last value is repeated");
        assert_eq!(later.samples.len(), first.samples.len());
    }
    fleet.poll(Depth::Border);
    for (function, times) in [
        ("nvmlDeviceGetPowerUsage", 5),
        ("nvmlDeviceGetUtilizationRates", 5),
        ("nvmlDeviceGetMemoryInfo_v2", 5),
        ("nvmlDeviceGetEnforcedPowerLimit", 2),
        ("nvmlDeviceGetComputeRunningProcesses_v3", 2),
        ("nvmlDeviceGetTotalEccErrors", 2),
        ("nvmlDeviceGetMaxClockInfo", 1),
        ("nvmlDeviceGetTemperatureThreshold", 3),
    ] {
        assert_eq!(mock.calls(function, 0), times, "{function}");
    }
}

#[test]
fn what_is_refused_is_asked_once_told_once_and_never_zero() {
    let state = "mem_used err 3\ntemp_mem err 3\nprocs err 4\nthr_gpu_max err 2\nxid_seq err 3\n";
    let Some(mock) = Mock::new("refused", state) else { return };
    let library = mock.load();
    let mut fleet = open(&library, &[]);
    let first = fleet.poll(Depth::Border);
    assert_eq!(codes(&first), [NoteCode::Unsupported]);
    let says = &first.notes[0].says;
    for part in [
        "memory_used_bytes (not supported)",
        "memory_total_bytes (not supported)",
        "memory_temperature_c (not supported)",
        "max_operating_temperature_c (not supported)",
        "fan_pct (not supported)",
        "xid (not supported)",
        "compute_processes (no permission)",
    ] {
        assert!(says.contains(part), "{part} in {says}");
    }
    for _ in 0..3 {
        let later = fleet.poll(Depth::Border);
        assert!(later.notes.is_empty());
        for series in
            ["DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_MEMORY_TEMP", "plimsoll_gpu_processes", "plimsoll_gpu_neighbours"]
        {
            assert_eq!(value(&later, "0", series), None, "{series}");
        }
        assert_eq!(value(&later, "0", "DCGM_FI_DEV_GPU_TEMP"), Some(41.0), "the others go on");
    }
    for function in ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetFieldValues", "nvmlDeviceGetFanSpeed_v2"] {
        assert_eq!(mock.calls(function, 0), 1, "{function}");
    }
}

#[test]
fn a_passing_error_leaves_a_gap() {
    let Some(mock) = Mock::new("passing", "") else { return };
    let library = mock.load();
    let mut fleet = open(&library, &[]);
    fleet.poll(Depth::Round);
    mock.set("temp err 999\nlimit_mw err 10\n");
    let gap = fleet.poll(Depth::Border);
    assert_eq!(value(&gap, "0", "DCGM_FI_DEV_GPU_TEMP"), None);
    assert_eq!(value(&gap, "0", "DCGM_FI_DEV_POWER_MGMT_LIMIT"), Some(700.0), "a limit holds until it is read anew");
    mock.set("temp 55\n");
    assert_eq!(value(&fleet.poll(Depth::Round), "0", "DCGM_FI_DEV_GPU_TEMP"), Some(55.0));
    assert!(gap.notes.is_empty());
}

#[test]
fn impossible_values_are_dropped_and_counted() {
    let Some(mock) = Mock::new("impossible", "temp 0\nutil_gpu 250\nclock_sm 2147483632\n") else { return };
    let library = mock.load();
    let mut fleet = open(&library, &[]);
    let first = fleet.poll(Depth::Round);
    assert_eq!(
        codes(&first),
        [NoteCode::Dropped; 3].iter().copied().chain([NoteCode::Unsupported]).collect::<Vec<_>>()
    );
    let second = fleet.poll(Depth::Round);
    for series in ["DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_SM_CLOCK"] {
        assert_eq!(value(&second, "0", series), None, "{series}");
    }
    assert_eq!(value(&second, "0", "DCGM_FI_DEV_MEM_COPY_UTIL"), Some(40.0), "the other half of the answer is good");
    assert_eq!(value(&second, "0", "plimsoll_gpu_dropped_readings_total"), Some(6.0));
    assert!(second.notes.is_empty(), "each is told once");
}

#[test]
fn a_lost_gpu_stays_lost_and_the_other_goes_on() {
    let Some(mock) = Mock::new("lost", "count 2\n") else { return };
    let library = mock.load();
    let mut fleet = open(&library, &[]);
    fleet.poll(Depth::Round);
    mock.set("count 1\n1.all err 15\n0.temp 70\n");
    let at_loss = fleet.poll(Depth::Round);
    assert_eq!(codes(&at_loss), [NoteCode::Lost]);
    assert!(at_loss.notes[0].says.contains("gpu 1 (GPU-mock-1)"), "{}", at_loss.notes[0].says);
    let calls = mock.calls_on(1);
    // It comes back to the bus; what it says then is not the same device any more.
    mock.set("count 2\n0.temp 71\n");
    let later = fleet.poll(Depth::Border);
    assert_eq!(mock.calls_on(1), calls, "a lost device is not asked again");
    assert!(later.notes.is_empty());
    for (reading, temperature) in [(&at_loss, 70.0), (&later, 71.0)] {
        assert_eq!(value(reading, "0", "DCGM_FI_DEV_GPU_TEMP"), Some(temperature));
        assert_eq!(value(reading, "0", "plimsoll_gpu_up"), Some(1.0));
        assert_eq!(value(reading, "1", "plimsoll_gpu_up"), Some(0.0));
        assert_eq!(value(reading, "1", "DCGM_FI_DEV_GPU_TEMP"), None);
    }
    assert!(fleet.describe().devices[1].lost);
}

#[test]
fn a_gpu_that_is_lost_halfway_through_a_round_gives_nothing_of_it() {
    let Some(mock) = Mock::new("halfway", "") else { return };
    let library = mock.load();
    let mut fleet = open(&library, &[]);
    fleet.poll(Depth::Round);
    mock.set("power_mw err 16\n");
    let reading = fleet.poll(Depth::Round);
    assert_eq!(reading.samples.len(), 1, "only plimsoll_gpu_up");
    assert_eq!(codes(&reading), [NoteCode::Lost], "a GPU that needs a reset is lost too");
}

#[test]
fn two_gpus_are_told_apart_by_uuid_when_their_indices_change() {
    let state = "count 2\n0.uuid GPU-aaaa0000\n1.uuid GPU-bbbb1111\n0.temp 50\n1.temp 60\n";
    let Some(mock) = Mock::new("renumbered", state) else { return };
    let library = mock.load();
    let mut fleet = open(&library, &["GPU-bbbb"]);
    assert_eq!(fleet.len(), 1);
    assert_eq!(value(&fleet.poll(Depth::Round), "1", "DCGM_FI_DEV_GPU_TEMP"), Some(60.0));

    // Index 0 is now the other card.
    mock.set(&format!("{state}index0 1\nindex1 0\n"));
    let same = fleet.poll(Depth::Round);
    assert_eq!(value(&same, "1", "DCGM_FI_DEV_GPU_TEMP"), Some(60.0), "labels and device stay within a run");
    let mut fresh = open(&library, &["GPU-bbbb"]);
    let reading = fresh.poll(Depth::Round);
    assert_eq!(value(&reading, "0", "DCGM_FI_DEV_GPU_TEMP"), Some(60.0), "and a new run finds the same card");
    assert_eq!(reading.samples[0].labels.get("UUID"), Some("GPU-bbbb1111"));
    assert_eq!(value(&open(&library, &["5D:00.0"]).poll(Depth::Round), "1", "DCGM_FI_DEV_GPU_TEMP"), Some(50.0));

    let visible = Visible { devices: Some("GPU-aaaa".into()), order: None };
    let fleet = nvml::open(&library, &[], &visible).unwrap();
    assert_eq!(fleet.describe().devices[0].uuid, "GPU-aaaa0000");
    assert_eq!(fleet.describe().remarks, ["CUDA_VISIBLE_DEVICES=GPU-aaaa shows 1 of 2 GPUs"]);
    let hidden = Visible { devices: Some(String::new()), order: None };
    assert!(nvml::open(&library, &[], &hidden).unwrap_err().to_string().contains("no GPU is chosen"));
    assert!(matches!(try_open(&library, &["7"]).unwrap_err(), GpuError::NoSuchDevice { .. }));
}

#[test]
fn a_device_that_does_not_answer_at_the_start_is_left_out() {
    let Some(mock) = Mock::new("silent", "count 2\n1.all err 15\n") else { return };
    let library = mock.load();
    let fleet = open(&library, &[]);
    assert_eq!(fleet.len(), 1);
    assert!(fleet.describe().remarks[0].starts_with("gpu 1 is left out: "), "{:?}", fleet.describe().remarks);
    mock.set("count 2\nall err 4\n0.all err 4\n1.all err 4\n");
    assert!(matches!(try_open(&library, &[]).unwrap_err(), GpuError::Unavailable { .. }));
}

#[test]
fn mig_slices_have_their_memory_and_the_card_its_clocks() {
    let state = "mig 1\nmig_count 3\nmig1 err 6\n0.mig2.uuid MIG-second\n0.mig2.mem_used 1073741824\nutil_gpu err 3\n";
    let Some(mock) = Mock::new("mig", state) else { return };
    let library = mock.load();
    let slices = |devices: &[&str]| {
        let mut fleet = open(&library, devices);
        let reading = fleet.poll(Depth::Round);
        let of = |s: &plimsoll::model::sample::Sample| {
            let used = s.labels.name() == "DCGM_FI_DEV_FB_USED";
            s.labels.get("mig").filter(|_| used).map(|mig| (mig.to_string(), s.value))
        };
        assert_eq!(value(&reading, "0", "DCGM_FI_DEV_SM_CLOCK"), Some(1_980.0));
        assert_eq!(value(&reading, "0", "DCGM_FI_DEV_GPU_UTIL"), None);
        (reading.samples.iter().filter_map(of).collect::<Vec<_>>(), fleet.describe().devices[0].mig.len())
    };
    let both = [("MIG-mock-0-0".to_string(), 16_384.0), ("MIG-second".to_string(), 1_024.0)];
    assert_eq!(slices(&[]), (both.to_vec(), 2), "the gap in the indices is passed over");
    assert_eq!(slices(&["MIG-second"]), (both[1..].to_vec(), 1));
    assert_eq!(slices(&["0:0"]), (both[..1].to_vec(), 1));
    let shown = {
        let mut fleet = open(&library, &[]);
        fleet.poll(Depth::Round);
        fleet.describe().to_string()
    };
    assert!(shown.contains("mig      MIG-mock-0-0, MIG-second"), "{shown}");
}

#[test]
fn throttling_that_comes_and_goes_is_in_the_share_of_the_step() {
    let Some(mock) = Mock::new("throttling", "") else { return };
    let library = mock.load();
    let mut fleet = open(&library, &[]);
    let mut scrapes = Vec::new();
    for (second, state) in [
        (0, "reasons 0x4\ntemp 80\nenergy_mj 1000000\n"),
        (1, "reasons 0x4\ntemp 84\nenergy_mj 1700000\n"),
        (2, "reasons 0x48\ntemp 90\nclock_sm 990\nenergy_mj 2000000\n"),
        (3, "reasons 0x0\ntemp 82\nenergy_mj 2700000\n"),
        (4, "reasons 0x1\ntemp 60\nclock_sm 345\nenergy_mj 2800000\n"),
    ] {
        mock.set(state);
        let at = Offset::from_millis(second * 1_000);
        let samples = fleet.poll(Depth::Round).samples;
        scrapes.push(Scrape { source: SourceKind::Gpu, target: 0, sent: at, received: at, result: Ok(samples) });
    }
    let span = Span::new(Offset::ZERO, Offset::from_millis(4_000));
    let stats = gpu::stats(&scrapes, span, Some(500));
    assert_eq!(stats.len(), 1);
    let s = &stats[0];
    let reasons: Vec<(&str, f64)> = s.throttle_reasons.iter().map(|r| (r.reason.as_str(), r.share_ratio)).collect();
    assert_eq!(reasons, [("sw_power_cap", 0.5), ("hw_slowdown", 0.25), ("hw_thermal_slowdown", 0.25)]);
    assert_eq!(
        (s.sm_clock_mhz.min, s.sm_clock_mhz.median, s.sm_clock_mhz.max),
        (Some(990.0), Some(1_980.0), Some(1_980.0))
    );
    assert_eq!((s.temperature_c.max, s.power_w.max), (Some(90.0), Some(120.0)));
    // 1,700 J in 3 s, stretched to the 4 s of the step, over 500 tokens.
    let energy = s.energy_j_per_1k_tokens.unwrap();
    assert!((energy - 1_700.0 * 4.0 / 3.0 * 2.0).abs() < 1e-6, "{energy}");
    assert_eq!((s.samples, s.ecc_uncorrected, s.neighbours, s.lost), (4, Some(0), Some(0), false));
}

#[test]
fn xid_and_ecc_errors_are_told_and_kept() {
    let Some(mock) = Mock::new("errors", "fan 1\n") else { return };
    let library = mock.load();
    let mut fleet = open(&library, &[]);
    assert!(fleet.poll(Depth::Border).notes.is_empty());
    mock.set("fan 1\nxid_seq 1\nxid 79\necc_dbe 2\n");
    let quick = fleet.poll(Depth::Round);
    assert_eq!(codes(&quick), [NoteCode::Xid]);
    assert_eq!(value(&quick, "0", "DCGM_FI_DEV_XID_ERRORS"), Some(79.0));
    let border = fleet.poll(Depth::Border);
    assert_eq!(codes(&border), [NoteCode::Ecc]);
    assert!(border.notes[0].says.contains("2 new uncorrected"), "{}", border.notes[0].says);
    assert_eq!(value(&border, "0", "DCGM_FI_DEV_XID_ERRORS"), Some(79.0), "the last one stays, as DCGM's");
    assert_eq!(value(&border, "0", "plimsoll_gpu_neighbour_sm_percent"), None, "without a neighbour nobody asks");
    assert!(fleet.poll(Depth::Border).notes.is_empty());
}

#[test]
fn a_process_that_comes_later_is_a_neighbour() {
    let Some(mock) = Mock::new("neighbour", "fan 1\nprocs 1\n") else { return };
    let library = mock.load();
    let mut fleet = open(&library, &[]);
    fleet.poll(Depth::Border);
    mock.set("fan 1\nprocs 2\npid1001_bytes 4294967296\nsm1000 70\nsm1001 25\n");
    assert_eq!(value(&fleet.poll(Depth::Round), "0", "plimsoll_gpu_neighbours"), Some(0.0), "not seen between borders");
    let border = fleet.poll(Depth::Border);
    assert_eq!(codes(&border), [NoteCode::Neighbour]);
    assert!(border.notes[0].says.contains("process 1001 came and holds 4096 MiB"), "{}", border.notes[0].says);
    assert_eq!(value(&border, "0", "plimsoll_gpu_neighbours"), Some(1.0));
    assert_eq!(value(&border, "0", "plimsoll_gpu_neighbour_memory_bytes"), Some(4_294_967_296.0));
    assert_eq!(
        value(&border, "0", "plimsoll_gpu_neighbour_sm_percent"),
        Some(25.0),
        "what the server takes is its own"
    );

    let quiet = fleet.poll(Depth::Border);
    assert!(quiet.notes.is_empty());
    assert_eq!(value(&quiet, "0", "plimsoll_gpu_neighbour_sm_percent"), Some(0.0), "no newer sample: it idled");
    mock.set("fan 1\nprocs 1\n");
    let gone = fleet.poll(Depth::Border);
    assert_eq!(value(&gone, "0", "plimsoll_gpu_neighbours"), Some(0.0));
    assert_eq!(value(&gone, "0", "plimsoll_gpu_neighbour_sm_percent"), Some(0.0));
}

#[test]
fn a_library_without_newer_symbols_gives_the_rest() {
    let Some(mock) = Mock::aged("old", "fan 1\n", Age::Old) else { return };
    let library = mock.load();
    let mut fleet = open(&library, &[]);
    let reading = fleet.poll(Depth::Border);
    assert_eq!(codes(&reading), [NoteCode::Unsupported]);
    let says = &reading.notes[0].says;
    assert!(says.contains("memory_used_bytes (the library does not know the call)"), "{says}");
    assert!(says.contains("compute_processes (the library does not know the call)"), "{says}");
    assert_eq!(value(&reading, "0", "DCGM_FI_DEV_GPU_TEMP"), Some(41.0));
    assert_eq!(value(&reading, "0", "DCGM_FI_DEV_FB_USED"), None);
}

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

#[test]
fn a_real_gpu_is_read_where_there_is_one() {
    let library = match nvml::load(None) {
        Ok(library) => library,
        Err(e) => return eprintln!("skipped: {e}"),
    };
    let mut fleet = match nvml::open(&library, &[], &Visible::default()) {
        Ok(fleet) => fleet,
        Err(e) => return eprintln!("skipped: {e}"),
    };
    let reading = fleet.poll(Depth::Border);
    eprintln!("{}", fleet.describe());
    let up = |s: &&plimsoll::model::sample::Sample| s.labels.name() == "plimsoll_gpu_up" && s.value == 1.0;
    assert!(reading.samples.iter().filter(up).count() >= 1);
    let dropped: Vec<&GpuNote> = reading.notes.iter().filter(|n| n.code == NoteCode::Dropped).collect();
    assert!(dropped.is_empty(), "a real driver says nothing impossible: {dropped:?}");
}
