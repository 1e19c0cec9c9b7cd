//! Instant evaluation of PromQL over the store.
