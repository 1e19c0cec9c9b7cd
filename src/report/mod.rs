//! Reports: each a function of the verdict.
