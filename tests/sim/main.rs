//! The embedded stand-in, held against what a real vLLM 0.31 sent, exported and did.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on fails; the table is for --nocapture"
)]

mod against_real;
mod answers;
mod bands;
mod engines;
mod faults;
mod held_out;
mod jitter;
mod options;
mod page;
mod presets;
mod refusals;
mod wire;
