//! The recording on disk: the cut between measuring and judging.
//!
//! A run leaves one folder. Its `run.jsonl` holds one JSON object a line, append-only, flushed
//! every second, so that a killed run loses at most its last second:
//!
//! ```text
//! {"header":{"format":"plimsoll.run/1","scenario":"small-pool",...}}
//! {"series":{"id":0,"labels":{"__name__":"up","engine":"0"}}}           a label set, before its first use
//! {"layout":{"id":0,"series":[0,1,2]}}                                  which series a page holds, in its order
//! {"scrape":{"source":"server","target":0,"sent_us":0,"received_us":900,"layout":0},"changed":[1,4,2,"NaN"]}
//! {"scrape":{"source":"server","target":0,"sent_us":1000000,"received_us":1000700,"layout":0},"changed":[1,5]}
//! {"step_started":{"at_us":2000,"step":0,"load":{"concurrency":1},"phase":"climb","repeat":0,"drain_first":false}}
//! {"request":{"step":0,"index":0,"sent_us":2100,...,"outcome":"completed"},"chunks_us":[90000,20013,19987],"growth":1}
//! {"ended":{"at_us":90000000,"reason":"end_of_ladder"}}
//! ```
//!
//! `changed` lists position in the layout and new value, in turn; with a new layout every value
//! is 0 before. `chunks_us` holds the offset of the first output chunk, then the gaps.
//! `growth` is how the running token count grew with each chunk (`1`: by one with every
//! chunk; an array otherwise; absent where the server keeps none).
//!
//! Read [`writer`] (events to a file), [`reader`] (a file to a
//! [`Recording`](crate::model::recording::Recording)), `wire` (the lines), [`redact`] (what
//! never reaches the disk) and [`openmetrics`] (all series for a real Prometheus).

mod decode;
mod encode;
mod folder;
mod numbers;
pub mod openmetrics;
pub mod reader;
pub mod redact;
mod wire;
pub mod writer;

pub use folder::{FolderError, create_folder, write_file};
pub use reader::{ReadError, read};
pub use redact::{Redactor, in_address, is_secret_name};
pub use writer::{WriteError, Writer, start};

/// Name of the recording in a result folder.
pub const RUN_FILE: &str = "run.jsonl";
