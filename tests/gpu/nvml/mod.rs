//! The path through `nvml-wrapper`, driven by a library of our own that answers like NVML and is
//! compiled here. No test needs a GPU; one that finds a real one reads it too.

mod devices;
mod events;
pub(crate) mod mock;
mod readings;
mod runs;
mod verdicts;
