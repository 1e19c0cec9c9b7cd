//! Events on their way to disk and into memory: each goes through the writer first, so that
//! nothing is judged which was not recorded.

use anyhow::Context;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::model::recording::{Event, Note, Recording};
use crate::model::time::{Clock, Offset};
use crate::record::{self, WriteError, Writer};

/// The recording of a run that goes on.
pub struct Tape {
    /// What has happened so far.
    pub recording: Recording,
    clock: Clock,
    events: UnboundedSender<Event>,
    written: UnboundedReceiver<Event>,
    writer: JoinHandle<Result<(), WriteError>>,
    interrupt: watch::Receiver<u32>,
}

/// Why [`Tape::until`] came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woke {
    /// The time has come.
    Time,
    /// Ctrl-C.
    Interrupted,
}

impl Tape {
    /// A tape that begins now. `interrupt` counts the Ctrl-Cs.
    pub fn new(writer: Writer, clock: Clock, interrupt: watch::Receiver<u32>) -> Tape {
        let recording = Recording::new(writer.header().clone());
        let (events, arriving) = unbounded_channel();
        let (onward, written) = unbounded_channel();
        Tape { recording, clock, events, written, writer: record::start(writer, arriving, onward), interrupt }
    }

    /// Where everybody sends events.
    pub fn sender(&self) -> UnboundedSender<Event> {
        self.events.clone()
    }

    /// Waits until `at`, or until the user interrupts, and takes in what was written by then. Nobody is woken for a single
    /// event: at a thousand requests a second that would cost the streams more CPU than the recording does.
    ///
    /// # Errors
    /// If the recording cannot be written: it is the evidence, so the run fails with it.
    pub async fn until(&mut self, at: Offset) -> anyhow::Result<Woke> {
        let woke = loop {
            if *self.interrupt.borrow_and_update() > 0 {
                break Woke::Interrupted;
            }
            tokio::select! {
                biased;
                () = self.clock.sleep_until(at) => break Woke::Time,
                Ok(()) = self.interrupt.changed() => {}
            }
        };
        loop {
            match self.written.try_recv() {
                Ok(event) => self.recording.apply(event),
                Err(TryRecvError::Empty) => return Ok(woke),
                Err(TryRecvError::Disconnected) => return Err(self.failure().await),
            }
        }
    }

    /// Sends an event of our own and waits until it is in, and with it all that was sent before.
    ///
    /// # Errors
    /// If the recording cannot be written.
    pub async fn put(&mut self, event: Event) -> anyhow::Result<()> {
        // The writer holds the other end until it fails; its failure is found below.
        let _ = self.events.send(event.clone());
        while let Some(written) = self.written.recv().await {
            let last = written == event;
            self.recording.apply(written);
            if last {
                return Ok(());
            }
        }
        Err(self.failure().await)
    }

    /// Sends a remark. Not waited for: redaction may change its words, so it could not be told when it comes.
    pub fn note(&self, code: &str, says: impl Into<String>) {
        let note = Note { at: self.clock.now(), code: code.to_owned(), says: says.into() };
        let _ = self.events.send(Event::Note(note));
    }

    /// Takes in the rest, once all other senders are gone, and closes the file.
    ///
    /// # Errors
    /// If the recording cannot be written.
    pub async fn finish(self) -> anyhow::Result<Recording> {
        let Tape { mut recording, events, mut written, writer, .. } = self;
        drop(events);
        while let Some(event) = written.recv().await {
            recording.apply(event);
        }
        writer.await.context("the task that writes the recording broke off")??;
        recording.close();
        Ok(recording)
    }

    /// Why the writer ended before its time.
    async fn failure(&mut self) -> anyhow::Error {
        match (&mut self.writer).await {
            Ok(Err(error)) => error.into(),
            Ok(Ok(())) => anyhow::anyhow!("the recording was closed while the run went on"),
            Err(error) => anyhow::Error::new(error).context("the task that writes the recording broke off"),
        }
    }
}
