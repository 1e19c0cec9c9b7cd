//! The recording on disk.
