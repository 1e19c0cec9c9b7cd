//! What an error rests on.

use std::error::Error;

/// An error and what caused it, the deepest last.
pub fn causes<'a>(e: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(e), |e: &&'a (dyn Error + 'static)| (*e).source())
}

/// The words of the deepest cause of an error.
pub fn deepest(e: &(dyn Error + 'static)) -> String {
    causes(e).last().map(ToString::to_string).unwrap_or_default()
}
