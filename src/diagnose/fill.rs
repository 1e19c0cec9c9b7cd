//! Fills numbers into a sentence: `{free_blocks} of {kv_blocks}`.

use super::numbers::Numbers;

/// The text with every `{name}` replaced; `None` if a number is not known, so that nobody reads
/// a sentence with a hole in it.
pub(super) fn fill(text: &str, numbers: &Numbers) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, tail)) = rest.split_once('{') {
        let (name, after) = tail.split_once('}')?;
        out += before;
        out += &numbers.text(name)?;
        rest = after;
    }
    Some(out + rest)
}
