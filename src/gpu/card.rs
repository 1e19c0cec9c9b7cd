//! One device as its driver answers: the questions, the answers, and the refusals.

use std::collections::BTreeMap;

use crate::model::sample::{Labels, NAME, Sample};

use super::field::Field;

/// One device, as its driver answers.
pub trait Card {
    /// Asks one question; every field that it answers, each with its answer.
    fn ask(&mut self, query: Query) -> Vec<(Field, Answer)>;

    /// Each MIG slice that is read.
    fn slices(&mut self) -> Vec<SliceMemory> {
        Vec::new()
    }

    /// Processes that hold memory of the device.
    fn processes(&mut self) -> Result<Vec<Process>, Refusal>;

    /// Percent of the multiprocessors' time that each process took since this was last asked; idle ones may be left out.
    fn shares(&mut self) -> Result<BTreeMap<u32, f64>, Refusal> {
        Err(Refusal::NotSupported)
    }
}

/// A value in the field's unit, or why there is none.
pub type Answer = Result<f64, Refusal>;

/// A process on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id; in a container that of the host, or one that means nothing.
    pub pid: u32,
    /// What it holds; `None` where the driver does not tell.
    pub bytes: Option<u64>,
}

/// What a MIG slice says of its memory.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceMemory {
    /// UUID of the slice.
    pub uuid: String,
    /// Memory in use, MiB.
    pub used: Answer,
    /// Memory of the slice, MiB.
    pub total: Answer,
}

/// Why a device did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This device never gives this field.
    NotSupported,
    /// We may not have it.
    NoPermission,
    /// The driver's library is too old, or too new, for the question.
    MissingSymbol,
    /// The device fell off the bus or needs a reset.
    Lost,
    /// Not this time.
    NotNow(String),
}

impl Refusal {
    /// In words, for the panel.
    pub fn says(&self) -> &str {
        match self {
            Refusal::NotSupported => "not supported",
            Refusal::NoPermission => "no permission",
            Refusal::MissingSymbol => "the library does not know the call",
            Refusal::Lost => "the GPU is lost",
            Refusal::NotNow(why) => why,
        }
    }

    pub(super) const fn is_for_good(&self) -> bool {
        matches!(self, Refusal::NotSupported | Refusal::NoPermission | Refusal::MissingSymbol)
    }
}

/// One question to a driver; it may answer several fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// SM clock.
    SmClock,
    /// Memory clock.
    MemClock,
    /// Temperature of the die.
    Temperature,
    /// Temperature of the memory.
    MemoryTemperature,
    /// Power drawn.
    Power,
    /// Energy counter.
    Energy,
    /// Both utilisations.
    Utilization,
    /// Memory used, free and total.
    Memory,
    /// Throttle reasons.
    ThrottleReasons,
    /// The last XID error since the last round; no answer if there was none, except at the start, where 0
    /// tells that they can be had.
    Xid,
    /// Power limit in force.
    PowerLimit,
    /// Uncorrected errors.
    EccUncorrected,
    /// Time lost to the power limit.
    PowerViolation,
    /// Time lost to heat.
    ThermalViolation,
    /// Fan speed.
    Fan,
    /// Highest SM clock.
    MaxSmClock,
    /// The three temperatures that matter.
    Thresholds,
}

/// How often a question is worth its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Each round.
    Round,
    /// At step borders.
    Border,
    /// At the start.
    Once,
}

impl Query {
    /// Every question, in the order in which they are asked.
    pub(super) const ALL: [(Query, Pace); 17] = [
        (Query::SmClock, Pace::Round),
        (Query::MemClock, Pace::Round),
        (Query::Temperature, Pace::Round),
        (Query::MemoryTemperature, Pace::Round),
        (Query::Power, Pace::Round),
        (Query::Energy, Pace::Round),
        (Query::Utilization, Pace::Round),
        (Query::Memory, Pace::Round),
        (Query::ThrottleReasons, Pace::Round),
        (Query::Xid, Pace::Round),
        (Query::PowerLimit, Pace::Border),
        (Query::EccUncorrected, Pace::Border),
        (Query::PowerViolation, Pace::Border),
        (Query::ThermalViolation, Pace::Border),
        (Query::Fan, Pace::Border),
        (Query::MaxSmClock, Pace::Once),
        (Query::Thresholds, Pace::Once),
    ];

    /// The fields that it answers.
    pub const fn fields(self) -> &'static [Field] {
        match self {
            Query::SmClock => &[Field::SmClock],
            Query::MemClock => &[Field::MemClock],
            Query::Temperature => &[Field::Temperature],
            Query::MemoryTemperature => &[Field::MemoryTemperature],
            Query::Power => &[Field::Power],
            Query::Energy => &[Field::Energy],
            Query::Utilization => &[Field::GpuUtilization, Field::MemoryUtilization],
            Query::Memory => &[Field::MemoryUsed, Field::MemoryFree, Field::MemoryTotal],
            Query::ThrottleReasons => &[Field::ThrottleReasons],
            Query::Xid => &[Field::Xid],
            Query::PowerLimit => &[Field::PowerLimit],
            Query::EccUncorrected => &[Field::EccUncorrected],
            Query::PowerViolation => &[Field::PowerViolation],
            Query::ThermalViolation => &[Field::ThermalViolation],
            Query::Fan => &[Field::Fan],
            Query::MaxSmClock => &[Field::MaxSmClock],
            Query::Thresholds => {
                &[Field::SlowdownTemperature, Field::ShutdownTemperature, Field::MaxOperatingTemperature]
            }
        }
    }
}

/// What names a device in every series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    /// The index that it had at the start: a label must not change when a device vanishes.
    pub index: String,
    /// Its UUID.
    pub uuid: String,
    /// Its model; empty if unknown.
    pub name: String,
}

impl Tags {
    /// The labels of one of its series.
    pub fn labels(&self, series: &str) -> Labels {
        Labels::new([(NAME, series), ("gpu", &self.index), ("UUID", &self.uuid), ("modelName", &self.name)])
    }

    pub(super) fn sample(&self, series: &str, value: f64) -> Sample {
        Sample { labels: self.labels(series), value }
    }

    /// As notes call it: `gpu 0 (GPU-4f0c…)`.
    pub fn says(&self) -> String {
        format!("gpu {} ({})", self.index, self.uuid)
    }
}
