//! Which pair of metrics explains the first alert.
