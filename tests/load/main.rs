//! The streaming client: answers as real servers send them, probes, and whole loads.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod captures;
mod probe;
#[path = "../scripted/mod.rs"]
mod scripted;
mod sim;
mod transport;
