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

/// The line of several that fits: the first whose numbers are all known and not 0, else the last.
pub(super) fn fitting<'a>(text: &'a str, numbers: &Numbers) -> &'a str {
    let names = |line: &'a str| line.split('{').skip(1).filter_map(|tail| tail.split_once('}')).map(|(name, _)| name);
    let lines = || text.lines().map(str::trim).filter(|l| !l.is_empty());
    lines().find(|line| names(line).all(|n| numbers.tells(n))).or_else(|| lines().next_back()).unwrap_or_default()
}
