//! What can be read of a GPU: names, units, and which values cannot be.

/// One reading.
///
/// The unit is DCGM's. The key is what the panel and notes call it; it carries the unit of NVML,
/// which is not always the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// Clock of the streaming multiprocessors now, MHz.
    SmClock,
    /// Clock of the memory now, MHz.
    MemClock,
    /// Highest SM clock of the card, MHz: what it could do, not what this workload may.
    MaxSmClock,
    /// Temperature of the die, °C.
    Temperature,
    /// Temperature of the memory, °C.
    MemoryTemperature,
    /// Temperature at which the hardware slows down, °C.
    SlowdownTemperature,
    /// Temperature at which the card turns off, °C.
    ShutdownTemperature,
    /// Temperature above which software slows the card down, °C.
    MaxOperatingTemperature,
    /// Power drawn, W; an average of about a second on most cards.
    Power,
    /// The power limit in force, W.
    PowerLimit,
    /// Energy since the driver was loaded, mJ.
    Energy,
    /// Share of time in which any kernel ran, percent: no measure of saturation.
    GpuUtilization,
    /// Share of time in which memory was read or written, percent.
    MemoryUtilization,
    /// Memory in use, MiB.
    MemoryUsed,
    /// Memory free, MiB.
    MemoryFree,
    /// Memory of the device, MiB.
    MemoryTotal,
    /// Why clocks are low: a mask of [`Reason`] bits.
    ThrottleReasons,
    /// Uncorrected memory errors since the driver was loaded.
    EccUncorrected,
    /// The last XID error; 0 if there was none.
    Xid,
    /// Time lost to the power limit since the driver was loaded, ns.
    PowerViolation,
    /// Time lost to heat since the driver was loaded, ns.
    ThermalViolation,
    /// Fan speed, percent.
    Fan,
    /// Processes that hold memory of the device.
    Processes,
}

/// Whether 0 is a value, or the way in which a driver says that it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Floor {
    /// 0 is possible.
    Zero,
    /// A card that answers is never at 0.
    AboveZero,
}

struct Row {
    field: Field,
    key: &'static str,
    series: &'static str,
    floor: Floor,
    highest: f64,
}

const fn row(field: Field, key: &'static str, series: &'static str, floor: Floor, highest: f64) -> Row {
    Row { field, key, series, floor, highest }
}

use Floor::{AboveZero, Zero};

/// In the order of the enum, which a test checks.
const TABLE: [Row; 23] = [
    row(Field::SmClock, "sm_clock_mhz", "DCGM_FI_DEV_SM_CLOCK", AboveZero, 10_000.0),
    row(Field::MemClock, "memory_clock_mhz", "DCGM_FI_DEV_MEM_CLOCK", AboveZero, 50_000.0),
    row(Field::MaxSmClock, "max_sm_clock_mhz", "DCGM_FI_DEV_MAX_SM_CLOCK", AboveZero, 10_000.0),
    row(Field::Temperature, "temperature_c", "DCGM_FI_DEV_GPU_TEMP", AboveZero, 150.0),
    row(Field::MemoryTemperature, "memory_temperature_c", "DCGM_FI_DEV_MEMORY_TEMP", AboveZero, 150.0),
    row(Field::SlowdownTemperature, "slowdown_temperature_c", "DCGM_FI_DEV_SLOWDOWN_TEMP", AboveZero, 150.0),
    row(Field::ShutdownTemperature, "shutdown_temperature_c", "DCGM_FI_DEV_SHUTDOWN_TEMP", AboveZero, 150.0),
    row(Field::MaxOperatingTemperature, "max_operating_temperature_c", "DCGM_FI_DEV_GPU_MAX_OP_TEMP", AboveZero, 150.0),
    row(Field::Power, "power_mw", "DCGM_FI_DEV_POWER_USAGE", AboveZero, 10_000.0),
    row(Field::PowerLimit, "power_limit_mw", "DCGM_FI_DEV_POWER_MGMT_LIMIT", AboveZero, 10_000.0),
    row(Field::Energy, "energy_mj", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", Zero, 1e17),
    row(Field::GpuUtilization, "utilization_gpu_pct", "DCGM_FI_DEV_GPU_UTIL", Zero, 100.0),
    row(Field::MemoryUtilization, "utilization_memory_pct", "DCGM_FI_DEV_MEM_COPY_UTIL", Zero, 100.0),
    row(Field::MemoryUsed, "memory_used_bytes", "DCGM_FI_DEV_FB_USED", Zero, 1e8),
    row(Field::MemoryFree, "memory_free_bytes", "DCGM_FI_DEV_FB_FREE", Zero, 1e8),
    row(Field::MemoryTotal, "memory_total_bytes", "DCGM_FI_DEV_FB_TOTAL", AboveZero, 1e8),
    row(Field::ThrottleReasons, "throttle_reasons", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", Zero, 1e18),
    row(Field::EccUncorrected, "ecc_uncorrected", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", Zero, 1e15),
    row(Field::Xid, "xid", "DCGM_FI_DEV_XID_ERRORS", Zero, 1e6),
    row(Field::PowerViolation, "power_violation_ns", "DCGM_FI_DEV_POWER_VIOLATION", Zero, 9e18),
    row(Field::ThermalViolation, "thermal_violation_ns", "DCGM_FI_DEV_THERMAL_VIOLATION", Zero, 9e18),
    row(Field::Fan, "fan_pct", "DCGM_FI_DEV_FAN_SPEED", Zero, 200.0),
    row(Field::Processes, "compute_processes", "plimsoll_gpu_processes", Zero, 1e6),
];

/// Why a value was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// It is one of the values by which DCGM says that it has none.
    Blank,
    /// No device can have it.
    Impossible,
}

impl Field {
    /// Every field, in the order in which series are written.
    pub fn all() -> impl Iterator<Item = Field> {
        TABLE.iter().map(|r| r.field)
    }

    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// The name in panels and notes, with NVML's unit.
    pub fn key(self) -> &'static str {
        self.row().key
    }

    /// The name of its series, DCGM's where DCGM has one.
    pub fn series(self) -> &'static str {
        self.row().series
    }

    /// The field of a key.
    pub fn from_key(key: &str) -> Option<Field> {
        TABLE.iter().find(|r| r.key == key).map(|r| r.field)
    }

    /// The field of a series' name.
    pub fn from_series(name: &str) -> Option<Field> {
        TABLE.iter().find(|r| r.series == name).map(|r| r.field)
    }

    /// Whether it is the same for the whole card and each of its MIG slices.
    pub const fn is_of_the_card(self) -> bool {
        !matches!(
            self,
            Field::GpuUtilization
                | Field::MemoryUtilization
                | Field::MemoryUsed
                | Field::MemoryFree
                | Field::MemoryTotal
                | Field::Processes
        )
    }

    /// The value, in the field's unit, if a device can have it.
    ///
    /// # Errors
    /// Tells blank from impossible.
    pub fn judge(self, value: f64) -> Result<f64, Dropped> {
        if is_blank(value) && !(self == Field::Energy && value < 1e12) {
            return Err(Dropped::Blank);
        }
        let row = self.row();
        let low = match row.floor {
            Zero => value >= 0.0,
            AboveZero => value > 0.0,
        };
        // NaN fails both comparisons.
        if low && value <= row.highest { Ok(value) } else { Err(Dropped::Impossible) }
    }
}

/// Whether a number is one of DCGM's blanks: blank, not found, not supported, not permitted, each
/// for 32-bit and 64-bit integers and for floating point. Above 2^53 an `f64` cannot tell the four apart.
pub fn is_blank(value: f64) -> bool {
    const INT32: f64 = 2_147_483_632.0;
    const INT64: f64 = 9_223_372_036_854_775_792.0;
    const FP64: f64 = 140_737_488_355_328.0;
    (INT32..INT32 + 4.0).contains(&value) || (FP64..FP64 + 4.0).contains(&value) || value >= INT64
}

/// Why clocks are lower than they could be: one bit of the mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The bit.
    pub bit: u64,
    /// NVML's name in snake_case.
    pub name: &'static str,
    /// What it means for a load test.
    pub weight: Weight,
}

/// What a reason means for a load test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Says nothing: the card has no work.
    Ignored,
    /// Normal under full load, or somebody's choice; worth knowing.
    Noted,
    /// What was measured is not what the card can do.
    Suspect,
}

/// The reasons that NVML knows, by bit.
pub const REASONS: [Reason; 9] = [
    Reason { bit: 0x1, name: "gpu_idle", weight: Weight::Ignored },
    Reason { bit: 0x2, name: "applications_clocks_setting", weight: Weight::Noted },
    Reason { bit: 0x4, name: "sw_power_cap", weight: Weight::Noted },
    Reason { bit: 0x8, name: "hw_slowdown", weight: Weight::Suspect },
    Reason { bit: 0x10, name: "sync_boost", weight: Weight::Suspect },
    Reason { bit: 0x20, name: "sw_thermal_slowdown", weight: Weight::Suspect },
    Reason { bit: 0x40, name: "hw_thermal_slowdown", weight: Weight::Suspect },
    Reason { bit: 0x80, name: "hw_power_brake_slowdown", weight: Weight::Suspect },
    Reason { bit: 0x100, name: "display_clock_setting", weight: Weight::Noted },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        for (i, row) in TABLE.iter().enumerate() {
            assert_eq!(row.field as usize, i);
            assert_eq!(Field::from_key(row.key), Some(row.field));
            assert_eq!(Field::from_series(row.series), Some(row.field));
        }
    }

    #[test]
    fn blanks_and_impossible_values_are_told_apart() {
        for (field, value, expected) in [
            (Field::SmClock, 1_980.0, Ok(1_980.0)),
            (Field::SmClock, 0.0, Err(Dropped::Impossible)),
            (Field::SmClock, 2_147_483_632.0, Err(Dropped::Blank)),
            (Field::MemoryTemperature, 9_223_372_036_854_775_794.0, Err(Dropped::Blank)),
            (Field::Power, 140_737_488_355_330.0, Err(Dropped::Blank)),
            (Field::Power, f64::NAN, Err(Dropped::Impossible)),
            (Field::Power, f64::INFINITY, Err(Dropped::Blank)),
            (Field::Power, -3.0, Err(Dropped::Impossible)),
            (Field::Temperature, 255.0, Err(Dropped::Impossible)),
            (Field::Temperature, 0.0, Err(Dropped::Impossible)),
            (Field::GpuUtilization, 0.0, Ok(0.0)),
            (Field::GpuUtilization, 100.5, Err(Dropped::Impossible)),
            // An energy counter may pass through the blank of a 32-bit integer.
            (Field::Energy, 2_147_483_633.0, Ok(2_147_483_633.0)),
            (Field::Energy, 9.3e18, Err(Dropped::Blank)),
            (Field::ThrottleReasons, 0.0, Ok(0.0)),
        ] {
            assert_eq!(field.judge(value), expected, "{field:?} {value}");
        }
    }
}
