//! The honest reading of devices that answer field by field: what is refused is asked once, what cannot
//! be is dropped and counted, and what is lost stays lost.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::sample::Sample;

use super::card::{Card, Pace, Query, Refusal, Tags};
use super::field::{Dropped, Field};
use super::panel::{Panel, PanelDevice};
use super::residents::Residents;
use super::{Depth, GpuNote, GpuReading, GpuSource, NoteCode};

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
                // A sum of nothing is -0.
                self.taken = Some(strangers.filter_map(|pid| shares.get(pid)).sum::<f64>() + 0.0);
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
