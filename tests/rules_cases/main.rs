//! Rules over whole recordings: judging steps, and naming the cause of an alert.

mod build;
mod causes;
mod judge;
mod real;
