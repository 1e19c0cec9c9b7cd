//! The store: every number from every source as Prometheus series.
//!
//! This is the only place where the sources meet: the server's pages, the GPU's readings and
//! what the client saw become series with the labels that a Prometheus server would have given
//! them. [`Store`] holds the samples, [`recorded`] fills it from a recording, [`client`] lists
//! and synthesises the series of our own, and a [`View`] is what an evaluation sees of it: from
//! a start on, and, if asked, only the scrapes that a production Prometheus would have made. A
//! [`Growing`] store is the same while the run goes on.

pub mod client;
mod growing;
pub mod recorded;
mod store;
mod told;
mod view;

pub use client::ClientTargets;
pub use growing::Growing;
pub use store::{Series, SeriesId, Store, is_stale, stale_marker};
pub use view::{Grid, View};
