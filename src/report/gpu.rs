//! Each GPU over each step, as rows of text: reports differ in how they set them, not in what they say.

use super::text::{UNKNOWN, number, percent, plain};
use crate::model::verdict::{EnergyFrom, GpuStats, Spread, Verdict};

/// Headings of [`Row::cells`].
pub const COLUMNS: [&str; 6] = ["step", "GPU", "SM MHz", "°C", "W", "J/1k tok"];

/// What a reader of the rows may ask.
pub const LEGEND: &str = "MHz, °C and W: median (smallest to largest); J/1k tok: the GPU's energy per 1,000 output \
                          tokens, ~ where it is reckoned from the power drawn";

/// One GPU over one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Number of the step.
    pub step: u32,
    /// Index of the device as its source gives it.
    pub device: String,
    /// One cell a column.
    pub cells: [String; 6],
    /// What slowed or disturbed it, and errors; empty if nothing did.
    pub remarks: Vec<String>,
}

/// All GPUs over all steps; empty if none was read.
pub fn rows(v: &Verdict) -> Vec<Row> {
    let steps = v.steps.iter().flat_map(|s| s.gpu.iter().map(move |g| (s.step, g)));
    steps
        .map(|(step, g)| Row {
            step,
            device: plain(&g.device),
            cells: [
                step.to_string(),
                plain(&g.device),
                range(&g.sm_clock_mhz),
                range(&g.temperature_c),
                range(&g.power_w),
                energy(g),
            ],
            remarks: remarks(g),
        })
        .collect()
}

/// A row in words: `1980 MHz, 68 (60 to 68) °C, 340 W, 412 J per 1,000 output tokens; 1 XID error: 79`.
pub fn sentence(row: &Row) -> String {
    let [_, _, clock, temperature, power, energy] = &row.cells;
    let mut out = format!("{clock} MHz, {temperature} °C, {power} W, {energy} J per 1,000 output tokens");
    for remark in &row.remarks {
        out += &format!("; {remark}");
    }
    out
}

/// Median, and the ends in brackets where they differ: `990 (990 to 1980)`.
fn range(s: &Spread) -> String {
    let whole = |x: f64| format!("{x:.0}");
    let Some(median) = s.median.map(whole) else { return UNKNOWN.into() };
    match (s.min.map(whole), s.max.map(whole)) {
        (Some(min), Some(max)) if min != median || max != median => format!("{median} ({min} to {max})"),
        _ => median,
    }
}

fn energy(g: &GpuStats) -> String {
    let mark = if g.energy_from == Some(EnergyFrom::Power) { "~" } else { "" };
    g.energy_j_per_1k_tokens.map_or_else(|| UNKNOWN.into(), |j| format!("{mark}{}", number(j)))
}

fn remarks(g: &GpuStats) -> Vec<String> {
    let mut out = Vec::new();
    if g.lost {
        out.push("lost".into());
    }
    let reasons = g.throttle_reasons.iter();
    out.extend(reasons.map(|r| format!("{} {}", plain(&r.reason).replace('_', " "), percent(r.share_ratio))));
    if let Some(n) = g.neighbours.filter(|n| *n > 0) {
        let mut says = format!("{n} other {}", if n == 1 { "process" } else { "processes" });
        if let Some(bytes) = g.neighbour_memory_bytes.filter(|b| *b > 0) {
            says += &format!(" with {} MiB", bytes >> 20);
        }
        if let Some(pct) = g.neighbour_sm_pct {
            says += &format!(" and {} % of its time", number(pct));
        }
        out.push(says);
    }
    if let Some(n) = g.ecc_uncorrected.filter(|n| *n > 0) {
        out.push(format!("{n} uncorrected memory {}", if n == 1 { "error" } else { "errors" }));
    }
    if !g.xids.is_empty() {
        let codes: Vec<String> = g.xids.iter().map(u32::to_string).collect();
        out.push(format!("XID {}", codes.join(", ")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::verdict::ThrottleReason;

    #[test]
    fn a_gpu_in_words() {
        let spread = |min, median, max| Spread { min: Some(min), median: Some(median), max: Some(max) };
        let g = GpuStats {
            device: "0".into(),
            sm_clock_mhz: spread(990.0, 990.0, 1_980.0),
            temperature_c: spread(87.0, 87.0, 87.0),
            energy_j_per_1k_tokens: Some(412.4),
            energy_from: Some(EnergyFrom::Power),
            throttle_reasons: vec![ThrottleReason { reason: "sw_thermal_slowdown".into(), share_ratio: 0.5 }],
            neighbours: Some(1),
            neighbour_memory_bytes: Some(4 << 30),
            neighbour_sm_pct: Some(25.0),
            ecc_uncorrected: Some(2),
            xids: vec![48],
            ..GpuStats::default()
        };
        assert_eq!(range(&g.sm_clock_mhz), "990 (990 to 1980)");
        assert_eq!((range(&g.temperature_c).as_str(), range(&g.power_w).as_str()), ("87", "-"));
        assert_eq!(energy(&g), "~412");
        assert_eq!(
            remarks(&g),
            [
                "sw thermal slowdown 50 %",
                "1 other process with 4096 MiB and 25 % of its time",
                "2 uncorrected memory errors",
                "XID 48"
            ]
        );
        assert!(remarks(&GpuStats { neighbours: Some(0), ecc_uncorrected: Some(0), ..GpuStats::default() }).is_empty());
    }
}
