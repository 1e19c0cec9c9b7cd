//! Wires the folders together: one file a command.
