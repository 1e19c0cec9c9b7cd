//! Events to `run.jsonl`: append-only, flushed every second, and the run fails if that fails.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;

use super::RUN_FILE;
use super::encode::Encoder;
use super::redact::Redactor;
use crate::model::recording::{Event, Header};

/// Time between two writes to the disk: what a killed run can lose.
pub const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// Why the recording could not be written. The run has failed then: it is the evidence.
#[derive(Debug, thiserror::Error)]
#[error("the recording {} could not be {act}", .path.display())]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// `created`, `written` or `synced`.
    pub act: &'static str,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// A recording being written.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: Arc<File>,
    header: Header,
    redactor: Redactor,
    encoder: Encoder,
    buffer: Vec<u8>,
}

impl Writer {
    /// Creates `run.jsonl` in `folder` and writes the header, without secrets, to the disk.
    ///
    /// # Errors
    /// If the file is there already or cannot be written.
    pub fn create(folder: &Path, mut header: Header, redactor: Redactor) -> Result<Writer, WriteError> {
        let path = folder.join(RUN_FILE);
        redactor.header(&mut header);
        let file = OpenOptions::new().append(true).create_new(true).open(&path);
        let file = file.map_err(|source| WriteError { path: path.clone(), act: "created", source })?;
        let mut buffer = Vec::new();
        Encoder::header(&mut buffer, &header);
        let mut writer = Writer { path, file: Arc::new(file), header, redactor, encoder: Encoder::default(), buffer };
        writer.flush()?;
        Ok(writer)
    }

    /// The header as written: begin the recording in memory with this one.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Cuts secrets out of the event, and appends it to what the next flush writes.
    pub fn append(&mut self, event: &mut Event) {
        self.redactor.event(event);
        self.encoder.event(&mut self.buffer, event);
    }

    /// Writes what was appended. Blocks on the disk: inside a runtime use [`start`].
    ///
    /// # Errors
    /// If the disk refuses it.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        let buffer = std::mem::take(&mut self.buffer);
        let written = (&*self.file).write_all(&buffer);
        written.map_err(|source| WriteError { path: self.path.clone(), act: "written", source })
    }

    /// Writes what was appended and waits until the disk has it.
    ///
    /// # Errors
    /// If the disk refuses it.
    pub fn finish(mut self) -> Result<(), WriteError> {
        self.flush()?;
        self.file.sync_data().map_err(|source| WriteError { path: self.path, act: "synced", source })
    }
}

/// Starts the task that writes every event and then passes it on, so that nothing is judged
/// which was not recorded, and nothing is shown which was not redacted.
///
/// The task ends when the last sender of `events` is gone, or with an error; `onward` closes then.
/// Await the handle: its error fails the run.
pub fn start(
    writer: Writer,
    events: UnboundedReceiver<Event>,
    onward: UnboundedSender<Event>,
) -> JoinHandle<Result<(), WriteError>> {
    tokio::spawn(write_all(writer, events, onward))
}

async fn write_all(
    mut writer: Writer,
    mut events: UnboundedReceiver<Event>,
    onward: UnboundedSender<Event>,
) -> Result<(), WriteError> {
    let mut flush = tokio::time::interval(FLUSH_EVERY);
    flush.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            biased;
            _ = flush.tick() => {
                if !writer.buffer.is_empty() {
                    writer = blocking(writer, Writer::flushed).await?;
                }
            }
            event = events.recv() => match event {
                Some(mut event) => {
                    writer.append(&mut event);
                    // A judge that left early does not stop the recording.
                    let _ = onward.send(event);
                }
                None => return blocking(writer, Writer::finish).await,
            },
        }
    }
}

impl Writer {
    fn flushed(mut self) -> Result<Writer, WriteError> {
        self.flush().map(|()| self)
    }
}

/// Runs a disk operation beside the runtime, so that a slow disk does not delay its timers.
async fn blocking<T: Send + 'static>(
    writer: Writer,
    act: impl FnOnce(Writer) -> Result<T, WriteError> + Send + 'static,
) -> Result<T, WriteError> {
    match tokio::task::spawn_blocking(move || act(writer)).await {
        Ok(result) => result,
        Err(e) => std::panic::resume_unwind(e.into_panic()),
    }
}
