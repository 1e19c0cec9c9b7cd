//! Plain data: what every folder shares and what flows between them.
//!
//! Nothing here does I/O, and nothing here imports another folder. Read in this order:
//! [`time`] (the one clock), [`units`], [`request`] (one request as the client saw it),
//! [`sample`] (one scrape), [`step`] (one load step), [`recording`] (the events of a run),
//! [`verdict`] (the answer), [`comparison`] (two answers held against each other) and [`plot`] (what the plots
//! need besides); [`near`] (the name that was meant) and [`cause`] (what an error rests on) serve everywhere.

pub mod cause;
pub mod comparison;
pub mod near;
pub mod plot;
pub mod recording;
pub mod request;
pub mod sample;
pub mod step;
pub mod time;
pub mod units;
pub mod verdict;
