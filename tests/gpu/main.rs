//! The GPU beside the server, from every source.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod nvml;
mod sources;
