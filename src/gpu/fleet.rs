//! The honest reading of devices that answer field by field: what is refused is asked once, what cannot
//! be is dropped and counted, and what is lost stays lost.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::sample::{Labels, NAME, Sample};

use super::field::{Dropped, Field};
use super::panel::{Panel, PanelDevice};
use super::{Depth, GpuNote, GpuReading, GpuSource, NoteCode};

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

    const fn is_for_good(&self) -> bool {
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
enum Pace {
    /// Each round.
    Round,
    /// At step borders.
    Border,
    /// At the start.
    Once,
}

impl Query {
    const ALL: [(Query, Pace); 17] = [
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

    fn sample(&self, series: &str, value: f64) -> Sample {
        Sample { labels: self.labels(series), value }
    }

    /// As notes call it: `gpu 0 (GPU-4f0c…)`.
    pub fn says(&self) -> String {
        format!("gpu {} ({})", self.index, self.uuid)
    }
}

/// Devices of one source.
#[derive(Debug)]
pub struct Fleet<C> {
    source: String,
    driver: Option<String>,
    remarks: Vec<String>,
    cards: Vec<Tracked<C>>,
}

#[derive(Debug)]
struct Tracked<C> {
    card: C,
    tags: Tags,
    pci_bus_id: Option<String>,
    begun: bool,
    lost: bool,
    retired: BTreeMap<Field, Refusal>,
    /// Last good value of each field that is not asked for every round, and is repeated until it is.
    slow: BTreeMap<Field, f64>,
    last: BTreeMap<Field, f64>,
    mig: Vec<String>,
    mig_retired: BTreeSet<String>,
    dropped: u64,
    drop_told: BTreeSet<Field>,
    residents: Residents,
    /// What the strangers took of the device, percent.
    taken: Option<f64>,
    shares_refused: bool,
}

impl<C: Card> Fleet<C> {
    /// A fleet without devices. `source` is its name in panels, `remarks` what there is to say beforehand.
    pub fn new(source: &str, driver: Option<String>, remarks: Vec<String>) -> Fleet<C> {
        Fleet { source: source.into(), driver, remarks, cards: Vec::new() }
    }

    /// Adds a device.
    #[must_use]
    pub fn with(mut self, tags: Tags, pci_bus_id: Option<String>, card: C) -> Fleet<C> {
        self.cards.push(Tracked {
            card,
            tags,
            pci_bus_id,
            begun: false,
            lost: false,
            retired: BTreeMap::new(),
            slow: BTreeMap::new(),
            last: BTreeMap::new(),
            mig: Vec::new(),
            mig_retired: BTreeSet::new(),
            dropped: 0,
            drop_told: BTreeSet::new(),
            residents: Residents::default(),
            taken: None,
            shares_refused: false,
        });
        self
    }

    /// How many devices it has, lost ones too.
    pub fn len(&self) -> usize {
        self.cards.len()
    }

    /// Whether it has no device.
    pub fn is_empty(&self) -> bool {
        self.cards.is_empty()
    }

    /// What each device refuses, by UUID: keys with reasons.
    pub fn refused(&self) -> BTreeMap<String, Vec<(&'static str, String)>> {
        self.cards.iter().map(|c| (c.tags.uuid.clone(), c.refused())).collect()
    }
}

impl<C: Card> GpuSource for Fleet<C> {
    fn describe(&self) -> Panel {
        Panel {
            source: self.source.clone(),
            driver: self.driver.clone(),
            devices: self.cards.iter().map(Tracked::panel).collect(),
            remarks: self.remarks.clone(),
            poll_us: None,
        }
    }

    fn poll(&mut self, depth: Depth) -> GpuReading {
        let mut reading = GpuReading::default();
        for card in &mut self.cards {
            card.poll(depth, &mut reading);
        }
        reading
    }
}

impl<C: Card> Tracked<C> {
    fn poll(&mut self, depth: Depth, reading: &mut GpuReading) {
        if !self.lost {
            // The first round is where the slow and the constant readings are taken too.
            let first = !std::mem::replace(&mut self.begun, true);
            let depth = if first { Depth::Border } else { depth };
            let retired_before = self.retired.len();
            self.ask_all(depth, first, reading);
            if !self.lost && depth == Depth::Border {
                self.ask_processes(first, reading);
            }
            if !self.lost && self.retired.len() > retired_before {
                let says: Vec<String> = self.refused().into_iter().map(|(k, why)| format!("{k} ({why})")).collect();
                let says = format!("{} does not give: {}", self.tags.says(), says.join(", "));
                reading.notes.push(GpuNote { code: NoteCode::Unsupported, says });
            }
        }
        if self.lost {
            // What was read of it in this round is not to be trusted.
            reading.samples.push(self.tags.sample("plimsoll_gpu_up", 0.0));
            return;
        }
        for (field, value) in &self.last {
            reading.samples.push(self.tags.sample(field.series(), *value));
        }
        reading.samples.push(self.tags.sample("plimsoll_gpu_up", 1.0));
        reading.samples.push(self.tags.sample("plimsoll_gpu_dropped_readings_total", self.dropped as f64));
        if let Some((count, bytes)) = self.residents.neighbours() {
            reading.samples.push(self.tags.sample("plimsoll_gpu_neighbours", count as f64));
            reading.samples.push(self.tags.sample("plimsoll_gpu_neighbour_memory_bytes", bytes as f64));
        }
        if let Some(percent) = self.taken {
            reading.samples.push(self.tags.sample("plimsoll_gpu_neighbour_sm_percent", percent));
        }
        self.slices(reading);
    }

    fn ask_all(&mut self, depth: Depth, first: bool, reading: &mut GpuReading) {
        self.last = self.slow.clone();
        for (query, pace) in Query::ALL {
            let due = match pace {
                Pace::Round => true,
                Pace::Border => depth == Depth::Border,
                Pace::Once => first,
            };
            if !due || query.fields().iter().all(|f| self.retired.contains_key(f)) {
                continue;
            }
            for (field, answer) in self.card.ask(query) {
                match answer {
                    Ok(value) => self.take(field, value, pace, reading),
                    Err(Refusal::Lost) => return self.lose(reading),
                    Err(refusal) if refusal.is_for_good() => {
                        self.retired.insert(field, refusal);
                    }
                    // A slow reading keeps its last value; a quick one has a gap.
                    Err(_) => {}
                }
            }
        }
    }

    fn lose(&mut self, reading: &mut GpuReading) {
        self.lost = true;
        let says = format!("{} does not answer any more: it fell off the bus or needs a reset", self.tags.says());
        reading.notes.push(GpuNote { code: NoteCode::Lost, says });
    }

    fn take(&mut self, field: Field, value: f64, pace: Pace, reading: &mut GpuReading) {
        match field.judge(value) {
            Ok(value) => {
                self.last.insert(field, value);
                // The driver tells an XID once; the series keeps the last one, as DCGM's does.
                let keeps = pace != Pace::Round || field == Field::Xid;
                let before = if keeps { self.slow.insert(field, value) } else { None };
                if field == Field::Xid && value != 0.0 {
                    let says = format!("{}: the driver reported XID error {value}", self.tags.says());
                    reading.notes.push(GpuNote { code: NoteCode::Xid, says });
                }
                if field == Field::EccUncorrected
                    && let Some(before) = before.filter(|&b| b < value)
                {
                    let says = format!("{}: {} new uncorrected memory errors", self.tags.says(), value - before);
                    reading.notes.push(GpuNote { code: NoteCode::Ecc, says });
                }
            }
            Err(why) => {
                self.dropped += 1;
                if self.drop_told.insert(field) {
                    let why = match why {
                        Dropped::Blank => "a blank value",
                        Dropped::Impossible => "not possible",
                    };
                    let says = format!("{}: {} read {value}, {why}: dropped", self.tags.says(), field.key());
                    reading.notes.push(GpuNote { code: NoteCode::Dropped, says });
                }
            }
        }
    }

    fn ask_processes(&mut self, first: bool, reading: &mut GpuReading) {
        if self.retired.contains_key(&Field::Processes) {
            return;
        }
        match self.card.processes() {
            Ok(now) => {
                self.last.insert(Field::Processes, now.len() as f64);
                self.slow.insert(Field::Processes, now.len() as f64);
                for new in self.residents.update(now, first) {
                    let held = new.bytes.map_or(String::new(), |b| format!(" and holds {} MiB", b >> 20));
                    let says = format!("{}: process {} came{held}", self.tags.says(), new.pid);
                    reading.notes.push(GpuNote { code: NoteCode::Neighbour, says });
                }
                self.ask_shares();
            }
            Err(Refusal::Lost) => self.lose(reading),
            Err(refusal) if refusal.is_for_good() => {
                self.retired.insert(Field::Processes, refusal);
            }
            Err(_) => {}
        }
    }

    /// Only where there are strangers: without them nobody asks what they take.
    fn ask_shares(&mut self) {
        if self.residents.strangers.is_empty() {
            self.taken = self.taken.map(|_| 0.0);
            return;
        }
        if self.shares_refused {
            return;
        }
        match self.card.shares() {
            Ok(shares) => {
                let strangers = self.residents.strangers.iter();
                self.taken = Some(strangers.filter_map(|pid| shares.get(pid)).sum());
            }
            Err(refusal) => self.shares_refused = refusal.is_for_good(),
        }
    }

    fn slices(&mut self, reading: &mut GpuReading) {
        let slices = self.card.slices();
        self.mig = slices.iter().map(|s| s.uuid.clone()).collect();
        for slice in slices {
            for (field, answer) in [(Field::MemoryUsed, slice.used), (Field::MemoryTotal, slice.total)] {
                match answer {
                    Ok(value) => {
                        if let Ok(value) = field.judge(value) {
                            let labels = self.tags.labels(field.series()).with("mig", &slice.uuid);
                            reading.samples.push(Sample { labels, value });
                        }
                    }
                    Err(why) => {
                        if self.mig_retired.insert(slice.uuid.clone()) {
                            let (device, slice, why) = (self.tags.says(), &slice.uuid, why.says());
                            let says = format!("{device}: slice {slice} does not give its memory ({why})");
                            reading.notes.push(GpuNote { code: NoteCode::Unsupported, says });
                        }
                    }
                }
            }
        }
    }

    fn refused(&self) -> Vec<(&'static str, String)> {
        self.retired.iter().map(|(f, why)| (f.key(), why.says().to_string())).collect()
    }

    fn panel(&self) -> PanelDevice {
        PanelDevice {
            index: self.tags.index.clone(),
            uuid: self.tags.uuid.clone(),
            name: (!self.tags.name.is_empty()).then(|| self.tags.name.clone()),
            pci_bus_id: self.pci_bus_id.clone(),
            mig: self.mig.clone(),
            readings: self.last.iter().map(|(f, v)| (f.key(), *v)).collect(),
            refused: self.refused(),
            processes: self.residents.now.as_ref().map(|now| now.iter().map(|p| (p.pid, p.bytes)).collect()),
            lost: self.lost,
        }
    }
}

/// Who holds memory of a device. Those of the first list are taken to be the server's; a process that comes in the
/// place of one that went (a server that was restarted) too.
#[derive(Debug, Default)]
struct Residents {
    own: BTreeSet<u32>,
    now: Option<Vec<Process>>,
    strangers: BTreeSet<u32>,
}

impl Residents {
    /// Takes in a list and tells who is new in it and takes nobody's place.
    fn update(&mut self, mut now: Vec<Process>, first: bool) -> Vec<Process> {
        now.sort_by_key(|p| (std::cmp::Reverse(p.bytes), p.pid));
        let pids: BTreeSet<u32> = now.iter().map(|p| p.pid).collect();
        if first || self.now.is_none() {
            self.own = pids;
            self.now = Some(now);
            return Vec::new();
        }
        let mut vacant = self.own.difference(&pids).count();
        self.own.retain(|pid| pids.contains(pid));
        self.strangers.retain(|pid| pids.contains(pid));
        let mut new = Vec::new();
        // The largest newcomers are the successors, since a server takes most of the memory.
        for process in &now {
            if self.own.contains(&process.pid) || self.strangers.contains(&process.pid) {
                continue;
            }
            if vacant > 0 {
                vacant -= 1;
                self.own.insert(process.pid);
            } else {
                self.strangers.insert(process.pid);
                new.push(*process);
            }
        }
        self.now = Some(now);
        new
    }

    /// Number of strangers and the bytes that they hold, as far as known; `None` before the first list.
    fn neighbours(&self) -> Option<(usize, u64)> {
        let now = self.now.as_ref()?;
        let held = now.iter().filter(|p| self.strangers.contains(&p.pid)).filter_map(|p| p.bytes).sum();
        Some((self.strangers.len(), held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newcomer_is_a_neighbour_unless_it_takes_a_place() {
        let p = |pid: u32, mib: u64| Process { pid, bytes: Some(mib << 20) };
        let mut r = Residents::default();
        assert_eq!(r.neighbours(), None);
        assert!(r.update(vec![p(10, 70_000)], true).is_empty());
        assert_eq!(r.neighbours(), Some((0, 0)));
        assert_eq!(r.update(vec![p(10, 70_000), p(11, 5)], false), [p(11, 5)]);
        assert_eq!(r.neighbours(), Some((1, 5 << 20)));
        assert!(r.update(vec![p(10, 70_000), p(11, 6)], false).is_empty(), "told once");
        assert!(r.update(vec![p(12, 70_000), p(11, 6)], false).is_empty(), "the server was restarted");
        assert_eq!(r.neighbours(), Some((1, 6 << 20)));
        assert!(r.update(vec![p(12, 70_000)], false).is_empty());
        assert_eq!(r.neighbours(), Some((0, 0)));
        assert_eq!(r.update(vec![p(12, 70_000), p(13, 1), p(14, 2)], false), [p(14, 2), p(13, 1)]);
    }

    #[test]
    fn an_empty_first_list_is_a_baseline_of_its_own() {
        let mut r = Residents::default();
        assert!(r.update(vec![], true).is_empty());
        assert_eq!(r.update(vec![Process { pid: 1, bytes: None }], false).len(), 1);
        assert_eq!(r.neighbours(), Some((1, 0)));
    }
}
