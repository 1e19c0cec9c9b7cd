//! Applying one step's load.
