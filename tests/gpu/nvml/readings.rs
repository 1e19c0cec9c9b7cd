//! Readings of one card: their units, how often they are asked for, and what is not believed.

use plimsoll::gpu::nvml;
use plimsoll::gpu::select::Visible;
use plimsoll::gpu::{Depth, GpuNote, GpuSource, NoteCode};

use super::mock::{Age, Mock, codes, open, value};

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
