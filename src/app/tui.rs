//! The live view on a terminal: [`board`] is what it shows, [`draw`](mod@draw) how, [`screen`] where.

pub mod board;
pub mod draw;
mod feed;
mod screen;
#[cfg(test)]
mod tests;
mod view;

pub use board::Board;
pub use screen::{Screen, give_back};
pub use view::View;
