//! Prometheus rule files and their alerts: what judges a load step is what is deployed.
//!
//! ```text
//! RuleSet::load(&files, &limits, time_scale)     parse, fill in limits, scale times
//!   .step_length(timing)  .check_windows(timing) how long a step must be; is the scale usable
//!   print::yaml(&set, &constants)                the rules again as YAML
//!   promtool::tests(&judge, &verdict, file)      what `promtool test rules` proves them with
//! Judge::new(&set, &recording, &store, reading, timing)
//!   .step(&span)             -> Vec<AlertVerdict>   every alert, at every phase of production's grid
//!   .observations_missing(&span, fires) -> u64      why a step should be prolonged
//!   .as_deployed()           -> Vec<AsDeployed>     what production would have paged over the climb
//!   .server_stats(&span)     -> Option<ServerStats> the server's signals under their neutral names
//!   .summary(&verdict)       -> Option<String>      the rule's own words
//! Follow::new(…).look(…)                       the same round by round while the run goes on
//! ```
//!
//! Read [`mod@file`] (the rules), [`state`] (pending and firing), [`judge`] (a step), [`deployed`] and
//! [`lens`] (evaluating at the recorded resolution, for onsets and for pairs).

pub mod builtin;
pub mod deployed;
pub mod error;
pub mod facts;
pub mod file;
pub mod follow;
pub mod judge;
pub mod length;
pub mod lens;
pub mod live;
mod observations;
pub mod overlay;
mod presence;
pub mod print;
pub mod promtool;
pub mod rewrite;
mod rounds;
pub mod selectors;
pub mod sizes;
pub mod state;
pub mod stats;
pub mod template;
mod wire;

pub use error::RuleError;
pub use file::{Alert, Group, Record, Rule, RuleSet};
pub use follow::{Fired, Follow};
pub use judge::Judge;
pub use length::Timing;
pub use lens::{Held, Lens};
pub use observations::ENOUGH;
pub use rewrite::Limits;
