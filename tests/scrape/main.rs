//! The metrics page: what is read from it, and when.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cases;
mod poller;
