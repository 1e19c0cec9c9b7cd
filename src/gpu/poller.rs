//! The task that reads the GPU in a live run.

use tokio::sync::mpsc::UnboundedSender;

use crate::model::recording::Event;
use crate::model::time::Clock;

use super::panel::Panel;
use super::spec::GpuSpec;
use super::{GpuError, GpuSource};

/// A running poller; it ends when this is dropped.
#[derive(Debug)]
pub struct Poller {
    panel: Panel,
}

impl Poller {
    /// What was found at the start.
    pub fn panel(&self) -> &Panel {
        &self.panel
    }

    /// Tells that a step begins or ends: the next round also reads what is slow, such as the process list.
    pub fn step_border(&self) {}

    /// Ends the polling, after a last round at which the slow readings are taken too.
    pub async fn stop(self) {}
}

/// Opens what `spec` asks for, and reads it into `events` until the poller is dropped. `None` if the GPU is not
/// read: by choice, or because there is none, which a note then tells.
///
/// # Errors
/// If `gpu.devices` names what is not there, or `gpu.required` is set and there is nothing to read.
pub async fn start(
    _spec: &GpuSpec,
    _clock: Clock,
    _events: UnboundedSender<Event>,
) -> Result<Option<Poller>, GpuError> {
    Ok(None)
}

/// Reads `source` into `events` at `interval`, in the task itself: for sources that answer at once.
pub async fn start_with(
    _source: Box<dyn GpuSource + Send>,
    _interval: std::time::Duration,
    _clock: Clock,
    _events: UnboundedSender<Event>,
) -> Poller {
    Poller { panel: Panel::default() }
}

/// Opens what `spec` asks for, reads it once, and tells what was found. `None` if `spec` says `off`.
///
/// # Errors
/// As [`start`], and also where there is nothing to read although it is not required.
pub async fn check(_spec: &GpuSpec, _clock: Clock) -> Result<Option<Panel>, GpuError> {
    Ok(None)
}
