//! The GPU beside the server, under DCGM's names.
//!
//! A server's own metrics do not show the clock or the temperature of its GPU: a hot, capped or
//! shared GPU slows every request with no change in them. So the GPU is read beside the server,
//! on the same clock, and recorded as scrapes of [`SourceKind::Gpu`](crate::model::sample::SourceKind).
//!
//! # Sources
//!
//! | `--gpu` | reads | for |
//! |---|---|---|
//! | `auto` | NVML if this machine has a driver, else nothing; says what it found | the default |
//! | `nvml` | the driver's library, on one thread of its own | a server on this machine |
//! | `dcgm=URL` | the page of a dcgm-exporter or of an nvidia_gpu_exporter | a server elsewhere |
//! | `smi=FILE` | the log of `nvidia-smi --query-gpu=timestamp,index,uuid,… --format=csv -l 1 -f FILE`, by its timestamps | a machine where neither is possible |
//! | `off` | nothing | |
//!
//! All give the same series: the names in [`field::Field`], with the labels `gpu`, `UUID` and
//! `modelName` (and `mig` for what belongs to one MIG slice). A few are ours, since no exporter has them:
//! `plimsoll_gpu_up` (0 from the loss of a GPU on), `plimsoll_gpu_processes` (processes that hold
//! memory, as of the last step border), `plimsoll_gpu_neighbours` and `plimsoll_gpu_neighbour_memory_bytes`
//! (those that came after the run began), `plimsoll_gpu_neighbour_sm_percent` (what they took of the
//! multiprocessors' time between the last two borders), `plimsoll_gpu_dropped_readings_total`, and
//! `plimsoll_gpu_poll_seconds` (what reading cost us).
//!
//! # Honesty
//!
//! A field that a device refuses is asked for once and is absent from then on, never 0. DCGM's
//! blank values and numbers that no device can have are dropped and counted. A GPU that is lost
//! is lost from then on, with a note `gpu_lost`, and the others go on. Without a driver there is
//! one note `gpu_none` and no GPU in the verdict, unless the scenario says `gpu.required = true`.
//!
//! # Cost
//!
//! Clocks, temperature, power and the like are read once a second; limits, ECC counts and the
//! process list, which are slow, at the borders of steps; facts that never change, once.
//!
//! Read in this order: [`spec`] (what a scenario says), [`field`] (what can be read), [`select`]
//! (which device), [`card`] and [`fleet`] (the honest reading, for all sources that answer field by field:
//! [`nvml`], [`scripted`]), [`page`], [`smi`] and [`follow`] (the sources that come as text), [`panel`] (for
//! `plimsoll check`), [`poller`] (the task of a live run), [`mod@stats`] (a step's numbers).

use crate::model::sample::Sample;

pub mod card;
pub mod field;
pub mod fleet;
pub mod follow;
pub mod nvml;
pub mod page;
pub mod panel;
pub mod poller;
mod residents;
pub mod scripted;
pub mod select;
pub mod smi;
pub mod spec;
pub mod stats;

pub use panel::Panel;
pub use poller::{Poller, check, start, start_with};
pub use spec::{GpuSpec, Source};
pub use stats::stats;

/// Something that can be read again and again and always answers at once.
pub trait GpuSource {
    /// What was found, for a person; richer after the first [`GpuSource::poll`].
    fn describe(&self) -> Panel;

    /// Reads every device once.
    fn poll(&mut self, depth: Depth) -> GpuReading;
}

/// How much a round of reading asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// What changes every second.
    Round,
    /// At the border of a step: also limits, error counts and the process list, which cost more.
    Border,
}

/// What one round gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuReading {
    /// Series under DCGM's names, in an order that depends only on the devices.
    pub samples: Vec<Sample>,
    /// What is worth telling beside the numbers; each thing once.
    pub notes: Vec<GpuNote>,
}

/// A remark about a GPU; the poller adds the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuNote {
    /// Which sort of remark.
    pub code: NoteCode,
    /// What happened, in a line.
    pub says: String,
}

/// The sorts of remarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteCode {
    /// What was found at the start.
    Source,
    /// No GPU can be read, and why.
    NoGpu,
    /// Fields that a device does not give, each with its reason.
    Unsupported,
    /// A GPU fell off the bus, or needs a reset.
    Lost,
    /// A value that cannot be was dropped; told once a field, counted always.
    Dropped,
    /// The driver reported a critical XID error.
    Xid,
    /// The count of uncorrected memory errors grew: what was measured is void.
    Ecc,
    /// A process that was not there at the start now holds memory of the GPU.
    Neighbour,
    /// A log or a page has parts that were not understood.
    Unreadable,
}

impl NoteCode {
    /// The code as it stands in a recording.
    pub const fn as_str(self) -> &'static str {
        match self {
            NoteCode::Source => "gpu_source",
            NoteCode::NoGpu => "gpu_none",
            NoteCode::Unsupported => "gpu_unsupported",
            NoteCode::Lost => "gpu_lost",
            NoteCode::Dropped => "gpu_dropped",
            NoteCode::Xid => "gpu_xid",
            NoteCode::Ecc => "gpu_ecc",
            NoteCode::Neighbour => "gpu_neighbour",
            NoteCode::Unreadable => "gpu_unreadable",
        }
    }
}

/// Why no GPU is read although one was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// The source cannot be had on this machine, now.
    #[error("cannot read the GPU through {via}: {why}")]
    Unavailable {
        /// The source.
        via: &'static str,
        /// What stood in the way.
        why: String,
    },
    /// A device that was asked for is not there.
    #[error("gpu.devices asks for `{asked}`, expected one of: {present}")]
    NoSuchDevice {
        /// As the user wrote it.
        asked: String,
        /// What is there.
        present: String,
    },
    /// A prefix that fits several devices.
    #[error("gpu.devices asks for `{asked}`, which fits {candidates}")]
    Ambiguous {
        /// As the user wrote it.
        asked: String,
        /// Which devices it fits.
        candidates: String,
    },
    /// Text that names no device.
    #[error(
        "gpu.devices has `{asked}`, expected an index (0), a UUID or its begin (GPU-4f0c), a MIG device (MIG-…, or 0:1), or a PCI bus id (5d:00.0)"
    )]
    NoDeviceName {
        /// As the user wrote it.
        asked: String,
    },
}

impl GpuError {
    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            GpuError::Unavailable { .. } => {
                "set `gpu.required = false` to go on without, or read another machine's GPU with --gpu dcgm=URL or smi=FILE"
            }
            GpuError::NoSuchDevice { .. } => "`plimsoll check --gpu auto` lists the devices",
            GpuError::Ambiguous { .. } => "write more of the UUID",
            GpuError::NoDeviceName { .. } => "leave gpu.devices away to read every GPU that CUDA_VISIBLE_DEVICES shows",
        }
    }
}
