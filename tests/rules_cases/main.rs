//! Rules over whole recordings: judging steps, and naming the cause of an alert.

mod build;
mod causes;
mod golden;
mod judge;
mod real;
