//! Finds the load at which the first production alert of an LLM server fires, and explains it.
//!
//! The program is cut once, at the recording. Left of the cut, code touches the world and may
//! only append events; right of it everything is a pure function of the recording. A live run
//! is *left, then right*; `plimsoll judge` is *right* alone and gives the same bytes.
//!
//! ```text
//!        LIVE  async, touches the world          |       PURE  sync, same input same output
//! scenario -> ladder -> load ------+             |
//!          workload -/             | Event       |
//!            scrape ---------------+--> record --+-> Recording -> series -> rules(promql) -> diagnose -> Verdict -> report
//!            gpu ------------------+   run.jsonl |                               |
//!                ^                               |                               |
//!                +---- ladder.next(&history of step verdicts) <------------------+     the only arrow back
//! sim: a stand-in vLLM behind a socket; knows nothing of the above; known only by `app` and the tests
//! ```
//!
//! What a run may say: a level is *clean* only where every rule of its step could be judged and none fired, and
//! it *fires* where one did. What could not be judged is neither, is named with its reason, and takes nothing
//! from a clean level above it: [`ladder`] says what that rests on. A server that hangs is lost, not judged.
//!
//! Who may import whom is guarded by `tests/layers.rs`.

pub mod model;

pub mod gpu;
pub mod ladder;
pub mod load;
pub mod record;
pub mod scenario;
pub mod scrape;
pub mod workload;

pub mod analyze;
pub mod compare;
pub mod diagnose;
pub mod promql;
pub mod report;
pub mod rules;
pub mod series;

pub mod sim;

pub mod app;
pub mod cli;
pub mod error;
