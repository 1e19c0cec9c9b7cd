//! The recording: what a run wrote is read back, queried and exported.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod query;
mod roundtrip;
