//! Every report as a function of the verdict.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod golden;
mod junit_schema;
mod page;
mod png;
mod vllm_bench;
