//! Several devices: losses, renumbering, and MIG slices.

use plimsoll::gpu::nvml;
use plimsoll::gpu::select::Visible;
use plimsoll::gpu::{Depth, GpuError, GpuSource, NoteCode};

use super::mock::{Mock, codes, open, try_open, value};

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
