//! Wires the folders together: one file a command.

pub mod export;
pub mod query;
