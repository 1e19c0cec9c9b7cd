//! The words of an action.

/// A word, a mark or a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Word(String),
    Text(String),
    Number(String),
    Dot(Vec<String>),
    Variable(String),
    Mark(String),
}

impl Token {
    pub(super) fn text(&self) -> String {
        match self {
            Token::Word(t) | Token::Text(t) | Token::Number(t) | Token::Variable(t) | Token::Mark(t) => t.clone(),
            Token::Dot(fields) => format!(".{}", fields.join(".")),
        }
    }
}

pub(super) fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let word =
            |from: &str| from.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.'))).unwrap_or(from.len());
        let len = match c {
            c if c.is_whitespace() => c.len_utf8(),
            '"' | '`' => {
                let (t, len) = quoted(rest, c)?;
                out.push(Token::Text(t));
                len
            }
            '$' => {
                let len = 1 + word(&rest[1..]);
                out.push(Token::Variable(rest[..len].to_owned()));
                len
            }
            '.' if !rest[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                let len = 1 + word(&rest[1..]);
                let fields = rest[1..len].split('.').filter(|f| !f.is_empty()).map(str::to_owned);
                out.push(Token::Dot(fields.collect()));
                len
            }
            c if c.is_ascii_digit()
                || c == '.'
                || (c == '-' && rest[1..].starts_with(|c: char| c.is_ascii_digit())) =>
            {
                let digits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '_');
                let len = 1 + rest[1..].find(|c| !digits(c)).unwrap_or(rest.len() - 1);
                out.push(Token::Number(rest[..len].replace('_', "")));
                len
            }
            c if c.is_alphabetic() || c == '_' => {
                let len = word(rest);
                out.push(Token::Word(rest[..len].to_owned()));
                len
            }
            ':' if rest.starts_with(":=") => {
                out.push(Token::Mark(":=".into()));
                2
            }
            '|' | '(' | ')' | ',' | '=' => {
                out.push(Token::Mark(c.into()));
                1
            }
            c => return Err(format!("has a `{c}` where none can stand")),
        };
        rest = &rest[len..];
    }
    Ok(out)
}

/// A string with its escapes undone, and its length in the text.
fn quoted(text: &str, quote: char) -> Result<(String, usize), String> {
    let mut out = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((i, c)) = chars.next() {
        match c {
            c if c == quote => return Ok((out, i + 1)),
            '\\' if quote == '"' => match chars.next().map(|(_, c)| c) {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some('r') => out.push('\r'),
                Some(c @ ('\\' | '"' | '\'')) => out.push(c),
                Some(c) => return Err(format!("has the escape `\\{c}`, which is none")),
                None => break,
            },
            c => out.push(c),
        }
    }
    Err(format!("has a quote that is never closed with {quote}"))
}
