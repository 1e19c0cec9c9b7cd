//! What happens to a card while it is read: throttling, errors, neighbours.

use plimsoll::gpu::{self, Depth, GpuSource, NoteCode};
use plimsoll::model::sample::{Scrape, SourceKind};
use plimsoll::model::time::{Offset, Span};

use super::mock::{Mock, codes, open, value};

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
    let idle = value(&quiet, "0", "plimsoll_gpu_neighbour_sm_percent").unwrap();
    assert!(idle.is_sign_positive(), "a sum of nothing is no -0 % of the card's time");
    mock.set("fan 1\nprocs 1\n");
    let gone = fleet.poll(Depth::Border);
    assert_eq!(value(&gone, "0", "plimsoll_gpu_neighbours"), Some(0.0));
    assert_eq!(value(&gone, "0", "plimsoll_gpu_neighbour_sm_percent"), Some(0.0));
}
