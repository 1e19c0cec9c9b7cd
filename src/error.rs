//! Errors that a caller tells apart, and the exit codes.
