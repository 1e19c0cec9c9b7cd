//! A page as NVIDIA's DCGM exporter writes it, about the simulated GPU.

use std::fmt::Write;

use super::fault::ThrottledBy;
use super::profile::GpuSpec;

/// Bit of the clock event reasons: nothing runs.
const IDLE: u64 = 0x1;
/// Bits of the clock event reasons that a throttled GPU shows.
const fn bits(by: ThrottledBy) -> u64 {
    match by {
        ThrottledBy::Heat => 0x20,
        // The umbrella of hardware slowdowns, and the brake under it.
        ThrottledBy::PowerBrake => 0x8 | 0x80,
        ThrottledBy::PowerCap => 0x4,
        ThrottledBy::Silence => 0,
    }
}
/// Code of the error that a driver reports when memory could not be corrected.
const XID_DOUBLE_BIT: f64 = 48.0;

/// What the page tells of, at one instant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    /// Since the server started, s.
    pub(super) up_s: f64,
    /// Share of the last second in which a step ran.
    pub(super) busy: f64,
    /// Time in which steps ran, each times its share of the clock, s.
    pub(super) worked_s: f64,
    /// Share of the clock that is left, and why; `None` if it is whole.
    pub(super) throttled: Option<(f64, ThrottledBy)>,
    /// Memory errors that could not be corrected.
    pub(super) memory_errors: u64,
}

/// The page of a GPU.
pub(super) fn page(gpu: &GpuSpec, state: &State) -> String {
    let busy = state.busy;
    let (clock, by) = state.throttled.unwrap_or((1.0, ThrottledBy::Silence));
    let sm = if busy > 0.0 { gpu.sm_clock_mhz * clock } else { gpu.sm_clock_mhz * 0.15 };
    // What work draws above rest; the rest is drawn all the time.
    let at_work = gpu.limit_w * 0.93 - gpu.idle_w;
    let power = gpu.idle_w + at_work * busy * clock;
    let energy_mj = (gpu.idle_w * state.up_s + at_work * state.worked_s) * 1e3;
    let hot = state.throttled.is_some() && by == ThrottledBy::Heat;
    let temperature = if hot { gpu.slowdown_c - 2.0 } else { 34.0 + 34.0 * busy };
    let reasons = bits(by) | if busy == 0.0 { IDLE } else { 0 };
    let used = gpu.memory_mib * 0.92;
    let xid = if state.memory_errors > 0 { XID_DOUBLE_BIT } else { 0.0 };
    let mut out = String::new();
    for (name, kind, help, value) in [
        ("SM_CLOCK", "gauge", "SM clock frequency (in MHz).", sm.round()),
        ("MAX_SM_CLOCK", "gauge", "Maximum supported SM clock (in MHz).", gpu.sm_clock_mhz),
        ("MEM_CLOCK", "gauge", "Memory clock frequency (in MHz).", gpu.memory_clock_mhz),
        ("GPU_TEMP", "gauge", "GPU temperature (in C).", temperature.round()),
        ("SLOWDOWN_TEMP", "gauge", "Slowdown temperature for the device (in C).", gpu.slowdown_c),
        ("POWER_USAGE", "gauge", "Power draw (in W).", (power * 1e3).round() / 1e3),
        ("POWER_MGMT_LIMIT", "gauge", "Current power limit (in W).", gpu.limit_w),
        ("TOTAL_ENERGY_CONSUMPTION", "counter", "Total energy consumption since boot (in mJ).", energy_mj.round()),
        ("GPU_UTIL", "gauge", "GPU utilization (in %).", (busy * 100.0).round()),
        ("MEM_COPY_UTIL", "gauge", "Memory utilization (in %).", (busy * 70.0).round()),
        ("FB_USED", "gauge", "Framebuffer memory used (in MiB).", used.round()),
        ("FB_FREE", "gauge", "Framebuffer memory free (in MiB).", (gpu.memory_mib - used).round()),
        ("CLOCKS_EVENT_REASONS", "gauge", "Current clock event reasons (bitmask).", reasons as f64),
        ("XID_ERRORS", "gauge", "Value of the last XID error encountered.", xid),
        ("ECC_DBE_VOL_TOTAL", "counter", "Total number of double-bit volatile ECC errors.", state.memory_errors as f64),
    ] {
        let _ = writeln!(
            out,
            "# HELP DCGM_FI_DEV_{name} {help}\n# TYPE DCGM_FI_DEV_{name} {kind}\n\
             DCGM_FI_DEV_{name}{{gpu=\"0\",UUID=\"GPU-00000000-5151-4000-8000-000000000000\",\
             pci_bus_id=\"00000000:01:00.0\",device=\"nvidia0\",modelName=\"{}\",Hostname=\"sim\"}} {value}",
            gpu.name
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(page: &str, name: &str) -> f64 {
        let line = page.lines().find(|l| l.starts_with(&format!("DCGM_FI_DEV_{name}{{"))).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    #[test]
    fn a_throttled_gpu_says_so() {
        let gpu = GpuSpec::h100();
        let heat = Some((0.5, ThrottledBy::Heat));
        for (busy, throttled, sm, util, reasons, temperature) in [
            (0.0, None, 297.0, 0.0, 1.0, 34.0),
            (1.0, None, 1_980.0, 100.0, 0.0, 68.0),
            (1.0, heat, 990.0, 100.0, 32.0, 87.0),
            (1.0, Some((0.8, ThrottledBy::PowerCap)), 1_584.0, 100.0, 4.0, 68.0),
            (1.0, Some((0.5, ThrottledBy::PowerBrake)), 990.0, 100.0, 136.0, 68.0),
        ] {
            let page = page(&gpu, &State { busy, throttled, ..State::default() });
            assert_eq!(value(&page, "SM_CLOCK"), sm);
            assert_eq!(value(&page, "GPU_UTIL"), util);
            assert_eq!(value(&page, "CLOCKS_EVENT_REASONS"), reasons);
            assert_eq!(value(&page, "GPU_TEMP"), temperature);
        }
    }

    #[test]
    fn energy_is_the_rest_and_the_work() {
        let gpu = GpuSpec::h100();
        let state = State { up_s: 10.0, worked_s: 4.0, memory_errors: 3, ..State::default() };
        let page = page(&gpu, &state);
        // 72 W for 10 s, and 579 W more for 4 s.
        assert_eq!(value(&page, "TOTAL_ENERGY_CONSUMPTION"), 720_000.0 + 4.0 * 579_000.0);
        assert_eq!((value(&page, "ECC_DBE_VOL_TOTAL"), value(&page, "XID_ERRORS")), (3.0, 48.0));
    }
}
