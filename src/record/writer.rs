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
use crate::model::time::ClockKind;

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
    /// Creates `run.jsonl` in `folder` with the header, without secrets, in it. Whoever finds the file finds
    /// the whole header: it gets its name only then.
    ///
    /// # Errors
    /// If the file is there already or cannot be written.
    pub fn create(folder: &Path, mut header: Header, redactor: Redactor) -> Result<Writer, WriteError> {
        let (path, unnamed) = (folder.join(RUN_FILE), folder.join(format!(".{RUN_FILE}.tmp")));
        redactor.header(&mut header);
        let failed = |act: &'static str| {
            let path = path.clone();
            move |source| WriteError { path, act, source }
        };
        // What a run left that was killed just here is no recording.
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).open(&unnamed).map_err(failed("created"))?;
        let mut text = Vec::new();
        Encoder::header(&mut text, &header);
        (&file).write_all(&text).map_err(failed("written"))?;
        // A link, unlike a rename, never takes the place of a recording that is there; not every file system has it.
        match std::fs::hard_link(&unnamed, &path) {
            Ok(()) => drop(std::fs::remove_file(&unnamed)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(failed("created")(e)),
            Err(_) => std::fs::rename(&unnamed, &path).map_err(failed("created"))?,
        }
        let file = OpenOptions::new().append(true).open(&path).map_err(failed("created"))?;
        let (encoder, buffer) = (Encoder::default(), Vec::new());
        Ok(Writer { path, file: Arc::new(file), header, redactor, encoder, buffer })
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

/// Runs a disk operation beside the runtime, so that a slow disk does not delay its timers. In simulated time it can
/// delay none, and there the order of events must not hang on how fast the disk is: the same seed gives the same bytes.
async fn blocking<T: Send + 'static>(
    writer: Writer,
    act: impl FnOnce(Writer) -> Result<T, WriteError> + Send + 'static,
) -> Result<T, WriteError> {
    if writer.header.clock == ClockKind::Simulated {
        return act(writer);
    }
    match tokio::task::spawn_blocking(move || act(writer)).await {
        Ok(result) => result,
        Err(e) => std::panic::resume_unwind(e.into_panic()),
    }
}
