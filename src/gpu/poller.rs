//! The task that reads the GPU in a live run.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::model::recording::{Event, Note};
use crate::model::sample::{Labels, NAME, Sample, Scrape, ScrapeFailure, SourceKind};
use crate::model::time::{Clock, ClockKind, Offset};

use super::follow::LogReader;
use super::page::PageReader;
use super::panel::Panel;
use super::select::Visible;
use super::spec::{GpuSpec, Source};
use super::{Depth, GpuError, GpuNote, GpuReading, GpuSource, NoteCode, nvml};

/// A running poller; it ends when this is dropped.
#[derive(Debug)]
pub struct Poller {
    panel: Panel,
    border: Arc<Notify>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Poller {
    /// What was found at the start.
    pub fn panel(&self) -> &Panel {
        &self.panel
    }

    /// Tells that a step begins or is about to end: a round is read at once that also has what is slow, such as
    /// the process list. A page or a log tells everything each time, and is left to its rhythm.
    pub fn step_border(&self) {
        self.border.notify_one();
    }

    /// Ends the polling, after a last round at which the slow readings are taken too.
    pub async fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        let _ = (&mut self.task).await;
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Opens what `spec` asks for, and reads it into `events` until the poller is dropped. `None` if the GPU is not
/// read: by choice, or because there is none, which a note then tells.
///
/// Start it when the server is up: the processes of the first round are taken to be the server's. Under
/// simulated time NVML is never asked, since its answers would follow another clock.
///
/// # Errors
/// If `gpu.devices` names what is not there, or `gpu.required` is set and there is nothing to read.
pub async fn start(spec: &GpuSpec, clock: Clock, events: UnboundedSender<Event>) -> Result<Option<Poller>, GpuError> {
    let opened = match open(spec, clock).await {
        Ok(None) => return Ok(None),
        Ok(Some(opened)) => opened,
        Err(e @ GpuError::Unavailable { .. }) if !spec.required => {
            let says = format!("{e}; the verdict has no GPU");
            tell(&events, clock.now(), GpuNote { code: NoteCode::NoGpu, says });
            return Ok(None);
        }
        Err(e) => return Err(e),
    };
    Ok(Some(run(opened, spec.interval, clock, events)))
}

/// Reads `source` into `events` at `interval`, in the task itself: for sources that answer at once.
pub async fn start_with(
    mut source: Box<dyn GpuSource + Send>,
    interval: Duration,
    clock: Clock,
    events: UnboundedSender<Event>,
) -> Poller {
    let first = Round::of(clock, || source.poll(Depth::Border));
    let panel = source.describe();
    run(Opened { reader: Reader::Direct(source), panel, first: vec![first] }, interval, clock, events)
}

/// Opens what `spec` asks for, reads it once, and tells what was found. `None` if `spec` says `off`.
///
/// # Errors
/// As [`start`], and also where there is nothing to read although it is not required.
pub async fn check(spec: &GpuSpec, clock: Clock) -> Result<Option<Panel>, GpuError> {
    Ok(open(spec, clock).await?.map(|opened| opened.panel))
}

struct Opened {
    reader: Reader,
    panel: Panel,
    first: Vec<Round>,
}

/// One round, with its place in time.
struct Round {
    sent: Offset,
    received: Offset,
    result: Result<GpuReading, ScrapeFailure>,
}

impl Round {
    fn of(clock: Clock, read: impl FnOnce() -> GpuReading) -> Round {
        let sent = clock.now();
        let reading = read();
        Round { sent, received: clock.now(), result: Ok(reading) }
    }

    fn cost(&self) -> Duration {
        self.received.since(self.sent)
    }
}

enum Reader {
    Direct(Box<dyn GpuSource + Send>),
    Thread(NvmlThread),
    Page(PageReader),
    Log(LogReader),
}

async fn open(spec: &GpuSpec, clock: Clock) -> Result<Option<Opened>, GpuError> {
    let opened = match &spec.source {
        Source::Off => return Ok(None),
        Source::Auto | Source::Nvml if clock.kind() == ClockKind::Simulated => {
            if spec.source == Source::Auto && !spec.required {
                return Ok(None);
            }
            let why = "the run's time is simulated, and a real GPU would not follow it".into();
            return Err(GpuError::Unavailable { via: "nvml", why });
        }
        Source::Auto | Source::Nvml => NvmlThread::open(spec, clock).await?,
        Source::Dcgm(url) => {
            let mut page = PageReader::new(url)?;
            let sent = clock.now();
            let (panel, reading) = page.open(&spec.devices).await?;
            let first = Round { sent, received: clock.now(), result: Ok(reading) };
            Opened { reader: Reader::Page(page), panel, first: vec![first] }
        }
        Source::Smi(path) => {
            let mut log = LogReader::new(path.clone(), spec.smi_clock_offset);
            let panel = log.open(&spec.devices).await?;
            Opened { reader: Reader::Log(log), panel, first: Vec::new() }
        }
    };
    let mut opened = opened;
    if clock.kind() == ClockKind::Real && !matches!(opened.reader, Reader::Log(_)) {
        let cost = opened.first.first().map(Round::cost);
        opened.panel.poll_us = cost.and_then(|c| u64::try_from(c.as_micros()).ok());
    }
    Ok(Some(opened))
}

fn run(opened: Opened, interval: Duration, clock: Clock, events: UnboundedSender<Event>) -> Poller {
    let border = Arc::new(Notify::new());
    let (stop, stopped) = oneshot::channel();
    let panel = opened.panel.clone();
    let mut task =
        Task { reader: opened.reader, clock, events, border: Arc::clone(&border), last_log: None, failing: false };
    task.tell(clock.now(), GpuNote { code: NoteCode::Source, says: panel.headline() });
    for remark in &panel.remarks {
        task.tell(clock.now(), GpuNote { code: NoteCode::Source, says: remark.clone() });
    }
    for round in opened.first {
        task.emit(round);
    }
    let task = tokio::spawn(async move { task.run(interval, stopped).await });
    Poller { panel, border, stop: Some(stop), task }
}

struct Task {
    reader: Reader,
    clock: Clock,
    events: UnboundedSender<Event>,
    border: Arc<Notify>,
    /// Instant of the last group of a log: a log that goes backwards is not followed.
    last_log: Option<Offset>,
    failing: bool,
}

impl Task {
    async fn run(mut self, interval: Duration, mut stopped: oneshot::Receiver<()>) {
        let mut next = self.clock.now() + interval;
        let has_depth = matches!(self.reader, Reader::Direct(_) | Reader::Thread(_));
        let border = Arc::clone(&self.border);
        loop {
            tokio::select! {
                biased;
                // Also when the poller is gone.
                _ = &mut stopped => break,
                () = border.notified(), if has_depth => {
                    self.round(Depth::Border).await;
                    continue;
                }
                () = self.clock.sleep_until(next) => {}
            }
            self.round(Depth::Round).await;
            // A round that took long skips those that it delayed.
            next = next + interval;
            while next <= self.clock.now() {
                next = next + interval;
            }
        }
        self.round(Depth::Border).await;
        if let Reader::Log(log) = &self.reader
            && let Some(note) = log.left_over()
        {
            self.tell(self.clock.now(), note);
        }
    }

    async fn round(&mut self, depth: Depth) {
        let clock = self.clock;
        match &mut self.reader {
            Reader::Direct(source) => {
                let round = Round::of(clock, || source.poll(depth));
                self.emit(round);
            }
            Reader::Thread(thread) => {
                let round = thread.poll(depth, clock).await;
                self.emit(round);
            }
            Reader::Page(page) => {
                let sent = clock.now();
                let result = page.poll().await;
                self.emit(Round { sent, received: clock.now(), result });
            }
            Reader::Log(log) => {
                let sent = clock.now();
                let now_ms = clock.epoch_unix_ms() + i64::try_from(sent.as_millis()).unwrap_or(i64::MAX);
                match log.poll(now_ms).await {
                    Ok(placed) => {
                        for group in placed {
                            self.emit_group(group.unix_ms, group.reading);
                        }
                    }
                    Err(e) => {
                        let failure = ScrapeFailure { class: "log".into(), detail: e.to_string() };
                        self.emit(Round { sent, received: clock.now(), result: Err(failure) });
                    }
                }
            }
        }
    }

    /// A group of a log carries the log's time; what came before the run is left out.
    fn emit_group(&mut self, unix_ms: i64, reading: GpuReading) {
        let Ok(ms) = u64::try_from(unix_ms - self.clock.epoch_unix_ms()) else { return };
        let sent = Offset::from_millis(ms);
        if self.last_log.is_some_and(|last| sent <= last) {
            return;
        }
        self.last_log = Some(sent);
        let received = self.clock.now();
        self.scrape(sent, received, Ok(reading.samples));
        for note in reading.notes {
            self.tell(received, note);
        }
    }

    fn emit(&mut self, round: Round) {
        let cost = round.cost();
        match round.result {
            Ok(mut reading) => {
                self.failing = false;
                // Simulated time measures nothing.
                if self.clock.kind() == ClockKind::Real {
                    let labels = Labels::new([(NAME, "plimsoll_gpu_poll_seconds")]);
                    reading.samples.push(Sample { labels, value: cost.as_secs_f64() });
                }
                self.scrape(round.sent, round.received, Ok(reading.samples));
                for note in reading.notes {
                    self.tell(round.received, note);
                }
            }
            Err(failure) => {
                if !std::mem::replace(&mut self.failing, true) {
                    let says = format!("the GPU could not be read: {}", failure.detail);
                    self.tell(round.received, GpuNote { code: NoteCode::Unreadable, says });
                }
                self.scrape(round.sent, round.received, Err(failure));
            }
        }
    }

    fn scrape(&self, sent: Offset, received: Offset, result: Result<Vec<Sample>, ScrapeFailure>) {
        // Nobody listens any more at the very end of a run; then there is nothing left to do.
        let _ = self.events.send(Event::Scrape(Scrape { source: SourceKind::Gpu, target: 0, sent, received, result }));
    }

    fn tell(&self, at: Offset, note: GpuNote) {
        tell(&self.events, at, note);
    }
}

fn tell(events: &UnboundedSender<Event>, at: Offset, note: GpuNote) {
    let _ = events.send(Event::Note(Note { at, code: note.code.as_str().into(), says: note.says }));
}

/// NVML on a thread of its own: a driver may take milliseconds, or hang, and the run must not.
struct NvmlThread {
    asks: std_mpsc::Sender<(Depth, oneshot::Sender<Round>)>,
    /// An answer that is overdue; nothing else is asked before it is there.
    overdue: Option<oneshot::Receiver<Round>>,
}

/// When a round counts as failed, as for a page.
const PATIENCE: Duration = Duration::from_secs(10);

impl NvmlThread {
    async fn open(spec: &GpuSpec, clock: Clock) -> Result<Opened, GpuError> {
        let (asks, asked) = std_mpsc::channel();
        let (found, opened) = oneshot::channel();
        let (library, devices) = (spec.nvml_library.clone(), spec.devices.clone());
        std::thread::Builder::new()
            .name("gpu".into())
            .spawn(move || serve(library, &devices, clock, found, &asked))
            .map_err(|e| GpuError::Unavailable { via: "nvml", why: format!("no thread for it: {e}") })?;
        let gone = |why: &str| GpuError::Unavailable { via: "nvml", why: why.into() };
        let (panel, first) = match tokio::time::timeout(PATIENCE, opened).await {
            Ok(Ok(answer)) => answer?,
            Ok(Err(_)) => return Err(gone("the reading thread ended")),
            Err(_) => return Err(gone("the driver did not answer within 10 s")),
        };
        Ok(Opened { reader: Reader::Thread(NvmlThread { asks, overdue: None }), panel, first: vec![first] })
    }

    async fn poll(&mut self, depth: Depth, clock: Clock) -> Round {
        let sent = clock.now();
        let failed = |class: &str, detail: &str| Round {
            sent,
            received: clock.now(),
            result: Err(ScrapeFailure { class: class.into(), detail: detail.into() }),
        };
        let mut answer = match self.overdue.take() {
            Some(answer) => answer,
            None => {
                let (reply, answer) = oneshot::channel();
                if self.asks.send((depth, reply)).is_err() {
                    return failed("driver", "the reading thread ended");
                }
                answer
            }
        };
        match tokio::time::timeout(PATIENCE, &mut answer).await {
            Ok(Ok(round)) => round,
            Ok(Err(_)) => failed("driver", "the reading thread ended"),
            Err(_) => {
                let round = failed("timeout", "the driver did not answer within 10 s");
                self.overdue = Some(answer);
                round
            }
        }
    }
}

/// The thread: opens the library, and answers until nobody can ask any more.
fn serve(
    library: Option<PathBuf>,
    devices: &[String],
    clock: Clock,
    found: oneshot::Sender<Result<(Panel, Round), GpuError>>,
    asked: &std_mpsc::Receiver<(Depth, oneshot::Sender<Round>)>,
) {
    let library = match nvml::load(library.as_deref()) {
        Ok(library) => library,
        Err(e) => return drop(found.send(Err(e))),
    };
    let mut fleet = match nvml::open(&library, devices, &Visible::here()) {
        Ok(fleet) => fleet,
        Err(e) => return drop(found.send(Err(e))),
    };
    let first = Round::of(clock, || fleet.poll(Depth::Border));
    if found.send(Ok((fleet.describe(), first))).is_err() {
        return;
    }
    while let Ok((depth, reply)) = asked.recv() {
        // Who asked may have given up meanwhile.
        let _ = reply.send(Round::of(clock, || fleet.poll(depth)));
    }
}
