//! Rules over whole recordings: judging steps, and naming the cause of an alert.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking; what it prints is for --nocapture"
)]

mod build;
mod causes;
mod follow;
mod golden;
mod judge;
mod pages;
mod public;
mod real;
