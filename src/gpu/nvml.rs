//! The driver's library. Nothing is linked: `libnvidia-ml.so.1` is opened when it is asked for, and a
//! machine without it is told apart from one whose driver is broken.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PerformancePolicy, TemperatureSensor, TemperatureThreshold,
};
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{MemoryInfo, ProcessInfo};
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_MEMORY_TEMP;
use nvml_wrapper::{Device, EventSet, Nvml};

use super::GpuError;
use super::card::{Answer, Card, Process, Query, Refusal, SliceMemory, Tags};
use super::field::Field;
use super::fleet::Fleet;
use super::select::{Present, Slice, Visible, choose};

/// Opens the library: `library`, or the loader's `libnvidia-ml.so.1`.
///
/// # Errors
/// [`GpuError::Unavailable`], with the reason in a line.
pub fn load(library: Option<&Path>) -> Result<Nvml, GpuError> {
    let opened = match library {
        Some(path) => Nvml::builder().lib_path(OsStr::new(path)).init(),
        None => Nvml::init(),
    };
    opened.map_err(|e| unavailable(why_not(&e, library)))
}

fn unavailable(why: String) -> GpuError {
    GpuError::Unavailable { via: "nvml", why }
}

fn why_not(error: &NvmlError, library: Option<&Path>) -> String {
    let name = library.map_or("libnvidia-ml.so.1".into(), |p| p.display().to_string());
    match error {
        NvmlError::LibloadingError(_) => format!("there is no NVIDIA driver here ({name} cannot be opened)"),
        NvmlError::DriverNotLoaded => "the NVIDIA driver is not loaded".into(),
        NvmlError::LibRmVersionMismatch => {
            "driver and library are of different versions (a driver update without a reboot?)".into()
        }
        NvmlError::NoPermission => "we may not talk to the NVIDIA driver".into(),
        NvmlError::FailedToLoadSymbol(_) => format!("{name} is no NVML library, or too old a one"),
        other => format!("the NVIDIA driver does not start: {other}"),
    }
}

/// Finds the devices that are `asked` for, or `visible`.
///
/// # Errors
/// If a device that was asked for is not there, or none is there at all. Devices that do not answer are
/// remarked on and left out.
pub fn open<'n>(nvml: &'n Nvml, asked: &[String], visible: &Visible) -> Result<Fleet<NvmlCard<'n>>, GpuError> {
    let count = nvml.device_count().map_err(|e| unavailable(format!("the number of GPUs cannot be had: {e}")))?;
    if count == 0 {
        return Err(unavailable("the NVIDIA driver is loaded and shows no GPU".into()));
    }
    let mut remarks = Vec::new();
    let mut found = Vec::new();
    for index in 0..count {
        match find(nvml, index) {
            Ok(device) => found.push(device),
            Err(e) => remarks.push(format!("gpu {index} is left out: {e}")),
        }
    }
    if found.is_empty() {
        return Err(unavailable(format!("none of {count} GPUs answers: {}", remarks.join("; "))));
    }
    let present: Vec<Present> = found.iter().map(|f| f.present.clone()).collect();
    let (chosen, choice) = choose(asked, visible, &present)?;
    remarks.extend(choice);
    if chosen.is_empty() {
        return Err(unavailable(format!("no GPU is chosen: {}", remarks.join("; "))));
    }
    let mut fleet = Fleet::new("nvml", nvml.sys_driver_version().ok(), remarks);
    for found in found {
        let Some(choice) = chosen.iter().find(|c| c.uuid == found.present.uuid) else { continue };
        let tags = Tags {
            index: found.present.index.to_string(),
            uuid: found.present.uuid.clone(),
            name: found.present.name.clone(),
        };
        let slices = found.slices.into_iter().filter(|(uuid, _)| choice.mig.contains(uuid)).collect();
        let card = NvmlCard { device: found.device, slices, events: Events::Unasked, shares_until_us: 0, nvml };
        fleet = fleet.with(tags, found.present.pci_bus_id, card);
    }
    Ok(fleet)
}

struct Found<'n> {
    present: Present,
    device: Device<'n>,
    slices: Vec<(String, Device<'n>)>,
}

fn find(nvml: &Nvml, index: u32) -> Result<Found<'_>, NvmlError> {
    let device = nvml.device_by_index(index)?;
    let mut present = Present {
        index,
        uuid: device.uuid()?,
        pci_bus_id: device.pci_info().ok().map(|p| p.bus_id),
        name: device.name().unwrap_or_default(),
        mig: Vec::new(),
    };
    let mut slices = Vec::new();
    if device.mig_mode().is_ok_and(|m| m.current == 1) {
        for i in 0..device.mig_device_count().unwrap_or(0) {
            // Indices of slices may have gaps.
            let Ok(slice) = device.mig_device_by_index(i) else { continue };
            let Ok(uuid) = slice.uuid() else { continue };
            present.mig.push(Slice { index: i, uuid: uuid.clone() });
            slices.push((uuid, slice));
        }
    }
    Ok(Found { present, device, slices })
}

/// One device of the driver.
pub struct NvmlCard<'n> {
    device: Device<'n>,
    slices: Vec<(String, Device<'n>)>,
    events: Events<'n>,
    /// Time of the newest sample of [`Card::shares`], µs of the driver's clock: without it old samples come again.
    shares_until_us: u64,
    nvml: &'n Nvml,
}

impl std::fmt::Debug for NvmlCard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NvmlCard").field("slices", &self.slices.len()).finish_non_exhaustive()
    }
}

/// XIDs come as events only; waiting for zero milliseconds takes what is there.
enum Events<'n> {
    Unasked,
    Registered(EventSet<'n>),
}

const MIB: f64 = 1_048_576.0;

impl Card for NvmlCard<'_> {
    fn ask(&mut self, query: Query) -> Vec<(Field, Answer)> {
        let d = &self.device;
        let one = |field: Field, answer: Result<f64, NvmlError>| vec![(field, answer.map_err(refusal))];
        let mhz = |kind| d.clock_info(kind).map(f64::from);
        let watts = |milliwatts: u32| f64::from(milliwatts) / 1_000.0;
        let lost_ns = |policy| d.violation_status(policy).map(|v| v.violation_time as f64);
        match query {
            Query::SmClock => one(Field::SmClock, mhz(Clock::SM)),
            Query::MemClock => one(Field::MemClock, mhz(Clock::Memory)),
            Query::Temperature => one(Field::Temperature, d.temperature(TemperatureSensor::Gpu).map(f64::from)),
            Query::MemoryTemperature => one(Field::MemoryTemperature, field_value(d, NVML_FI_DEV_MEMORY_TEMP)),
            Query::Power => one(Field::Power, d.power_usage().map(watts)),
            Query::Energy => one(Field::Energy, d.total_energy_consumption().map(|mj| mj as f64)),
            Query::Utilization => several(query, d.utilization_rates(), |u| vec![u.gpu.into(), u.memory.into()]),
            Query::Memory => {
                several(query, d.memory_info(), |m| [m.used, m.free, m.total].map(|b| b as f64 / MIB).to_vec())
            }
            Query::ThrottleReasons => {
                one(Field::ThrottleReasons, d.current_throttle_reasons().map(|r| r.bits() as f64))
            }
            Query::Xid => self.xid(),
            Query::PowerLimit => one(Field::PowerLimit, d.enforced_power_limit().map(watts)),
            Query::EccUncorrected => one(
                Field::EccUncorrected,
                d.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).map(|n| n as f64),
            ),
            Query::PowerViolation => one(Field::PowerViolation, lost_ns(PerformancePolicy::Power)),
            Query::ThermalViolation => one(Field::ThermalViolation, lost_ns(PerformancePolicy::Thermal)),
            Query::Fan => one(Field::Fan, d.fan_speed(0).map(f64::from)),
            Query::MaxSmClock => one(Field::MaxSmClock, d.max_clock_info(Clock::SM).map(f64::from)),
            Query::Thresholds => [
                (Field::SlowdownTemperature, TemperatureThreshold::Slowdown),
                (Field::ShutdownTemperature, TemperatureThreshold::Shutdown),
                (Field::MaxOperatingTemperature, TemperatureThreshold::GpuMax),
            ]
            .into_iter()
            .map(|(field, kind)| (field, d.temperature_threshold(kind).map(f64::from).map_err(refusal)))
            .collect(),
        }
    }

    fn slices(&mut self) -> Vec<SliceMemory> {
        let memory = |(uuid, slice): &(String, Device<'_>)| {
            let memory = slice.memory_info().map_err(refusal);
            let mib =
                |bytes: fn(&MemoryInfo) -> u64| memory.as_ref().map(|m| bytes(m) as f64 / MIB).map_err(Clone::clone);
            SliceMemory { uuid: uuid.clone(), used: mib(|m| m.used), total: mib(|m| m.total) }
        };
        self.slices.iter().map(memory).collect()
    }

    fn processes(&mut self) -> Result<Vec<Process>, Refusal> {
        let process = |p: ProcessInfo| Process {
            pid: p.pid,
            bytes: match p.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            },
        };
        let list = self.device.running_compute_processes().map_err(refusal)?;
        Ok(list.into_iter().map(process).collect())
    }

    fn shares(&mut self) -> Result<BTreeMap<u32, f64>, Refusal> {
        let samples = match self.device.process_utilization_stats(self.shares_until_us) {
            Ok(samples) => samples,
            // What an idle device answers.
            Err(NvmlError::NotFound) => Vec::new(),
            Err(e) => return Err(refusal(e)),
        };
        let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        for sample in samples {
            self.shares_until_us = self.shares_until_us.max(sample.timestamp);
            // The driver fills its buffer with entries that have no process.
            if let Some(percent) = Some(f64::from(sample.sm_util)).filter(|p| *p <= 100.0 && sample.pid != 0) {
                let (sum, n) = sums.entry(sample.pid).or_default();
                (*sum, *n) = (*sum + percent, *n + 1.0);
            }
        }
        Ok(sums.into_iter().map(|(pid, (sum, n))| (pid, sum / n)).collect())
    }
}

impl NvmlCard<'_> {
    fn xid(&mut self) -> Vec<(Field, Answer)> {
        match &self.events {
            Events::Unasked => {
                let set = self.nvml.create_event_set();
                let registered = set.and_then(|set| {
                    self.device.register_events(EventTypes::CRITICAL_XID_ERROR, set).map_err(|e| e.error)
                });
                match registered {
                    Ok(set) => {
                        self.events = Events::Registered(set);
                        vec![(Field::Xid, Ok(0.0))]
                    }
                    Err(e) => vec![(Field::Xid, Err(refusal(e)))],
                }
            }
            Events::Registered(set) => match set.wait(0) {
                Ok(event) => match event.event_data {
                    Some(XidError::Value(code)) => vec![(Field::Xid, Ok(code as f64))],
                    Some(XidError::Unknown) => vec![(Field::Xid, Ok(999.0))],
                    None => Vec::new(),
                },
                Err(NvmlError::Timeout) => Vec::new(),
                Err(e) => vec![(Field::Xid, Err(refusal(e)))],
            },
        }
    }
}

/// One answer that holds a value for each field of the query, in its order.
fn several<T>(query: Query, answer: Result<T, NvmlError>, split: impl Fn(T) -> Vec<f64>) -> Vec<(Field, Answer)> {
    match answer {
        Ok(whole) => query.fields().iter().copied().zip(split(whole).into_iter().map(Ok)).collect(),
        Err(e) => {
            let why = refusal(e);
            query.fields().iter().map(|&f| (f, Err(why.clone()))).collect()
        }
    }
}

fn field_value(device: &Device<'_>, id: u32) -> Result<f64, NvmlError> {
    let sample = device.field_values_for(&[FieldId(id)])?.pop().unwrap_or(Err(NvmlError::NoData))?;
    Ok(match sample.value? {
        SampleValue::F64(v) => v,
        SampleValue::U32(v) => v.into(),
        SampleValue::U64(v) => v as f64,
        SampleValue::I64(v) => v as f64,
    })
}

fn refusal(error: NvmlError) -> Refusal {
    match error {
        // An argument that is not valid today is none tomorrow: a threshold that a card does not have.
        NvmlError::NotSupported | NvmlError::InvalidArg => Refusal::NotSupported,
        NvmlError::NoPermission => Refusal::NoPermission,
        NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => Refusal::MissingSymbol,
        NvmlError::GpuLost | NvmlError::ResetRequired => Refusal::Lost,
        other => Refusal::NotNow(other.to_string()),
    }
}
