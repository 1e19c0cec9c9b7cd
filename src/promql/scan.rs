//! Finds places in the text of an expression, which the parser does not keep.

use super::func::{Func, refusal};
use super::parse::ParseError;
use crate::model::near::did_you_mean;

/// Words that may stand before a parenthesis without being a function.
const OTHER_WORDS: &[&str] = &[
    "sum",
    "avg",
    "count",
    "min",
    "max",
    "group",
    "stddev",
    "stdvar",
    "topk",
    "bottomk",
    "count_values",
    "quantile",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "and",
    "or",
    "unless",
    "bool",
    "offset",
    "atan2",
    "start",
    "end",
    "fill",
    "fill_left",
    "fill_right",
];

/// A piece of an expression's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    /// A name or keyword.
    Word(&'a str),
    /// A quoted string; whether its quote is closed.
    Quoted(bool),
    /// Any other character, but for space and comments.
    Mark(char),
}

/// The tokens of `text` with their byte offsets.
fn tokens(text: &str) -> Vec<(usize, Token<'_>)> {
    let mut out = Vec::new();
    let (mut at, mut brackets) = (0, 0);
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let len = match c {
            c if c.is_whitespace() => c.len_utf8(),
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' | '`' => {
                let (len, closed) = quoted(rest, c);
                out.push((at, Token::Quoted(closed)));
                len
            }
            // Inside of square brackets a colon parts the range of a subquery from its step.
            c if c.is_ascii_alphabetic() || c == '_' || (c == ':' && brackets == 0) => {
                let len =
                    rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':')).unwrap_or(rest.len());
                out.push((at, Token::Word(&rest[..len])));
                len
            }
            // A number or duration is skipped whole, so that the `m` of `5m` is no word.
            c if c.is_ascii_digit() => {
                let len = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).unwrap_or(rest.len());
                out.push((at, Token::Mark('0')));
                len
            }
            c => {
                brackets += i32::from(c == '[') - i32::from(c == ']');
                out.push((at, Token::Mark(c)));
                c.len_utf8()
            }
        };
        at += len;
    }
    out
}

/// Length of the string that `rest` begins with, and whether it ends.
fn quoted(rest: &str, quote: char) -> (usize, bool) {
    let mut escaped = false;
    for (i, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' if quote != '`' => escaped = true,
            c if c == quote => return (i + 1, true),
            _ => {}
        }
    }
    (rest.len(), false)
}

/// Refuses functions that we cannot evaluate.
pub(super) fn check(text: &str) -> Result<(), ParseError> {
    let tokens = tokens(text);
    let mut braces = 0;
    for (i, &(at, token)) in tokens.iter().enumerate() {
        match token {
            Token::Mark('{') => braces += 1,
            Token::Mark('}') => braces -= 1,
            Token::Word(name) if braces == 0 && tokens.get(i + 1).is_some_and(|t| t.1 == Token::Mark('(')) => {
                let lower = name.to_ascii_lowercase();
                if Func::named(name).is_some() || OTHER_WORDS.contains(&lower.as_str()) {
                    continue;
                }
                if let Some(why) = refusal(&lower) {
                    return Err(ParseError::pointing(format!("function `{name}` is not supported: {why}"), text, at));
                }
                let mut e = ParseError::pointing(format!("function `{name}` is not known"), text, at);
                let known = Func::ALL.iter().map(|f| f.name()).chain(OTHER_WORDS.iter().copied());
                e.hint = Some(did_you_mean(&lower, known)).filter(|hint| !hint.is_empty());
                return Err(e);
            }
            _ => {}
        }
    }
    Ok(())
}

/// The place of a word outside of strings.
pub(super) fn find_word(text: &str, word: &str) -> Option<usize> {
    tokens(text).into_iter().find(|(_, t)| *t == Token::Word(word)).map(|(at, _)| at)
}

/// Gives an error of the parser a place, where the text shows one.
pub(super) fn locate(text: &str, says: &str) -> ParseError {
    let tokens = tokens(text);
    if tokens.is_empty() {
        return ParseError::pointing("an empty expression", text, 0);
    }
    let mut open: Vec<(usize, char)> = Vec::new();
    for &(at, token) in &tokens {
        match token {
            Token::Quoted(false) => return ParseError::pointing("a string without its closing quote", text, at),
            Token::Mark(c @ ('(' | '[' | '{')) => open.push((at, c)),
            Token::Mark(c @ (')' | ']' | '}')) => {
                let pair = match c {
                    ')' => '(',
                    ']' => '[',
                    _ => '{',
                };
                match open.pop() {
                    Some((_, o)) if o == pair => {}
                    _ => return ParseError::pointing(format!("a `{c}` that closes nothing"), text, at),
                }
            }
            _ => {}
        }
    }
    if let Some((at, c)) = open.pop() {
        return ParseError::pointing(format!("a `{c}` that is never closed"), text, at);
    }
    // Two operands side by side, or an operator at the end.
    for pair in tokens.windows(2) {
        if let [(_, Token::Word(a)), (at, Token::Word(b))] = pair
            && !OTHER_WORDS.contains(&a.to_ascii_lowercase().as_str())
            && !OTHER_WORDS.contains(&b.to_ascii_lowercase().as_str())
        {
            return ParseError::pointing(format!("`{b}` after `{a}`, expected an operator between them"), text, *at);
        }
    }
    if let Some(&(at, Token::Mark(c @ ('+' | '-' | '*' | '/' | '%' | '^' | '>' | '<' | '=' | ',')))) = tokens.last() {
        return ParseError::pointing(format!("nothing after the last `{c}`"), text, at);
    }
    // The parser quotes the word that it stumbled over.
    let named = says.split('\'').nth(1).and_then(|word| find_word(text, word));
    match named {
        Some(at) => ParseError::pointing(says, text, at),
        None => ParseError { says: says.into(), at: None, place: None, hint: None },
    }
}
