//! The built binary as its user meets it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod end_to_end;
mod errors;
mod gate;
mod gpu;
mod killed;
mod launch;
mod proxy;
mod secrets;
mod served;
mod terminal;
mod watch;
