//! A page as NVIDIA's DCGM exporter writes it, about the simulated GPU.

use std::fmt::Write;

use super::profile::GpuSpec;

/// Bit of the clock event reasons: nothing runs.
const IDLE: u64 = 0x1;
/// Bit of the clock event reasons: too hot, decided by software.
const THERMAL: u64 = 0x20;

/// The page of a GPU that was busy for a share of the last second, at a share of its clock.
pub(super) fn page(gpu: &GpuSpec, busy: f64, clock: f64) -> String {
    let throttled = clock < 1.0;
    let sm = if busy > 0.0 { gpu.sm_clock_mhz * clock } else { gpu.sm_clock_mhz * 0.15 };
    let power = gpu.idle_w + (gpu.limit_w * 0.93 - gpu.idle_w) * busy * clock;
    let temperature = 34.0 + 34.0 * busy + if throttled { 19.0 } else { 0.0 };
    let reasons = if throttled {
        THERMAL
    } else if busy == 0.0 {
        IDLE
    } else {
        0
    };
    let used = gpu.memory_mib * 0.92;
    let mut out = String::new();
    for (name, kind, help, value) in [
        ("SM_CLOCK", "gauge", "SM clock frequency (in MHz).", sm.round()),
        ("MAX_SM_CLOCK", "gauge", "Maximum supported SM clock (in MHz).", gpu.sm_clock_mhz),
        ("MEM_CLOCK", "gauge", "Memory clock frequency (in MHz).", gpu.memory_clock_mhz),
        ("GPU_TEMP", "gauge", "GPU temperature (in C).", temperature.round()),
        ("POWER_USAGE", "gauge", "Power draw (in W).", (power * 1e3).round() / 1e3),
        ("POWER_MGMT_LIMIT", "gauge", "Current power limit (in W).", gpu.limit_w),
        ("GPU_UTIL", "gauge", "GPU utilization (in %).", (busy * 100.0).round()),
        ("MEM_COPY_UTIL", "gauge", "Memory utilization (in %).", (busy * 70.0).round()),
        ("FB_USED", "gauge", "Framebuffer memory used (in MiB).", used.round()),
        ("FB_FREE", "gauge", "Framebuffer memory free (in MiB).", (gpu.memory_mib - used).round()),
        ("CLOCKS_EVENT_REASONS", "gauge", "Current clock event reasons (bitmask).", reasons as f64),
        ("XID_ERRORS", "gauge", "Value of the last XID error encountered.", 0.0),
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

    #[test]
    fn a_throttled_gpu_says_so() {
        let value = |page: &str, name: &str| -> f64 {
            let line = page.lines().find(|l| l.starts_with(&format!("DCGM_FI_DEV_{name}{{"))).unwrap();
            line.rsplit(' ').next().unwrap().parse().unwrap()
        };
        let gpu = GpuSpec::h100();
        for (busy, clock, sm, util, reasons) in
            [(0.0, 1.0, 297.0, 0.0, 1.0), (1.0, 1.0, 1_980.0, 100.0, 0.0), (1.0, 0.5, 990.0, 100.0, 32.0)]
        {
            let page = page(&gpu, busy, clock);
            assert_eq!(value(&page, "SM_CLOCK"), sm);
            assert_eq!(value(&page, "GPU_UTIL"), util);
            assert_eq!(value(&page, "CLOCKS_EVENT_REASONS"), reasons);
        }
    }
}
