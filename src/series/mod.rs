//! The store: samples by series.
