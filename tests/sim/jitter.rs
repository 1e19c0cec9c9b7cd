//! The pace of the release gate's stand-in against that of a real vLLM 0.31.0.
//!
//! `captures/sim/real-jitter.csv` has a row for each step of recorded runs: the mean of the gaps between chunks in blocks
//! of two seconds, and the standard deviation of the blocks' logarithms. Recordings during which other work took
//! the machine (seven times slower from one repeat to the next) are left out.

use plimsoll::model::time::Offset;
use plimsoll::sim::Profile;

const REAL: &str = include_str!("../captures/sim/real-jitter.csv");
const GATE: &str = include_str!("../../scenarios/sim-release-gate.toml");
/// Length of a block, ms.
const BLOCK_MS: u64 = 2_000;

fn deviation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64).sqrt()
}

#[test]
fn blocks_of_the_stand_in_wander_as_those_of_the_real_one() {
    let mut real: Vec<f64> = REAL.lines().skip(1).map(|l| l.rsplit(',').next().unwrap().parse().unwrap()).collect();
    real.sort_by(f64::total_cmp);
    let median = real[real.len() / 2];

    let scenario: toml::Table = GATE.parse().unwrap();
    let mut profile = toml::Table::try_from(Profile::named("roomy").unwrap()).unwrap();
    let changed = scenario["sim"]["with"]["cost"].as_table().unwrap().clone();
    profile["cost"].as_table_mut().unwrap().extend(changed);
    let cost = profile.try_into::<Profile>().unwrap().cost;

    let block = |seed: u64, n: u64| {
        let paces = (0..20).map(|i| cost.pace(Offset::from_millis(n * BLOCK_MS + i * BLOCK_MS / 20), seed));
        (paces.sum::<f64>() / 20.0).ln()
    };
    let within: Vec<f64> =
        (0..40).map(|seed| deviation(&(0..30).map(|n| block(seed, n)).collect::<Vec<_>>())).collect();
    let ours = within.iter().sum::<f64>() / within.len() as f64;
    println!("blocks of 2 s differ by {:.1} %, recorded {:.1} %", ours * 100.0, median * 100.0);
    assert!((ours / median - 1.0).abs() < 0.2, "{ours} {median}");
}
