//! Reads a template into its text and its actions.

use super::functions;
use super::tokens::{Token, tokens};

/// A piece of a template.
#[derive(Debug)]
pub(super) enum Node<'t> {
    /// Text, with what a `-` beside it trims taken off.
    Text(&'t str),
    /// An action, with all of its own text.
    Action { source: &'t str, action: Action<'t> },
}

/// What an action does.
#[derive(Debug)]
pub(super) enum Action<'t> {
    /// A comment.
    Nothing,
    Print(Pipe),
    /// Each branch with its condition; the last may have none.
    If(Vec<(Option<Pipe>, Vec<Node<'t>>)>),
    With(Pipe, Vec<Node<'t>>, Vec<Node<'t>>),
    Range(Pipe, Vec<Node<'t>>, Vec<Node<'t>>),
    /// Something that Prometheus takes and that is not filled in here.
    Beyond,
}

/// Commands, each given the result of the one before as its last argument.
#[derive(Debug)]
pub(super) struct Pipe {
    /// Variables that it sets; two of a `range`.
    pub(super) sets: Vec<String>,
    /// Whether they are new (`:=`).
    pub(super) declares: bool,
    pub(super) commands: Vec<Vec<Term>>,
}

/// A word of a command.
#[derive(Debug)]
pub(super) enum Term {
    Text(String),
    Number(f64),
    Whole(i64),
    Flag(bool),
    Nil,
    /// `.`, or fields of it.
    Dot(Vec<String>),
    /// A variable, and fields of it.
    Variable(String, Vec<String>),
    Function(String),
    /// A pipe in parentheses.
    Inner(Box<Pipe>),
}

/// Variables that are there from the beginning.
const GIVEN: [&str; 4] = ["$labels", "$externalLabels", "$externalURL", "$value"];

/// The pieces of a template.
///
/// # Errors
/// Says what is wrong, so that it can follow "has a template that".
pub(super) fn parse(text: &str) -> Result<Vec<Node<'_>>, String> {
    let mut reader = Reader { text, at: 0, trim: false, variables: GIVEN.map(str::to_owned).to_vec() };
    let (nodes, end) = reader.nodes(None)?;
    match end {
        None => Ok(nodes),
        Some(end) => Err(format!("has `{}` without anything to end", end.word())),
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    /// Whether the action before trims the text that follows.
    trim: bool,
    variables: Vec<String>,
}

/// What ends a list of pieces.
enum End {
    /// `end`
    Close,
    Else,
    ElseIf(Pipe),
}

impl End {
    fn word(&self) -> &'static str {
        match self {
            End::Close => "end",
            _ => "else",
        }
    }
}

impl<'t> Reader<'t> {
    /// Pieces up to what ends them; `inside` is the action that they belong to.
    fn nodes(&mut self, inside: Option<&str>) -> Result<(Vec<Node<'t>>, Option<End>), String> {
        let mut out = Vec::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(open) = rest.find("{{") else {
                out.push(Node::Text(self.trimmed(rest)));
                self.at = self.text.len();
                return match inside {
                    None => Ok((out, None)),
                    Some(word) => Err(format!("has a `{word}` that is never ended with `{{{{ end }}}}`")),
                };
            };
            let (before, begin) = (self.trimmed(&rest[..open]), self.at + open);
            let action = self.action(begin)?;
            out.push(Node::Text(if action.starts_with('-') { before.trim_end() } else { before }));
            let inner = action.strip_prefix('-').unwrap_or(action);
            let inner = inner.strip_suffix('-').unwrap_or(inner).trim();
            if inner.starts_with("/*") {
                out.push(Node::Action { source: &self.text[begin..self.at], action: Action::Nothing });
                continue;
            }
            let tokens = tokens(inner)?;
            let (word, rest) = match tokens.split_first() {
                Some((Token::Word(w), rest)) => (w.as_str(), rest),
                Some(_) => ("", &tokens[..]),
                None => return Err("has an empty action: `{{ }}`".into()),
            };
            let known = self.variables.len();
            let action = match word {
                "end" if rest.is_empty() => return Ok((out, Some(End::Close))),
                "else" => match rest {
                    [] => return Ok((out, Some(End::Else))),
                    [Token::Word(w), rest @ ..] if w == "if" => {
                        return Ok((out, Some(End::ElseIf(self.pipe(rest)?))));
                    }
                    _ => return Err(format!("cannot be read: `{{{{ {inner} }}}}`")),
                },
                "if" => self.branches(rest)?,
                "with" | "range" => {
                    let pipe = self.pipe(rest)?;
                    let (body, end) = self.nodes(Some(word))?;
                    let other = match end {
                        Some(End::Else) => self.last_branch(word)?,
                        Some(End::ElseIf(_)) => return Err(format!("has an `else if` in a `{word}`")),
                        _ => Vec::new(),
                    };
                    if word == "with" { Action::With(pipe, body, other) } else { Action::Range(pipe, body, other) }
                }
                "define" | "block" => {
                    self.nodes(Some(word))?;
                    Action::Beyond
                }
                "template" | "break" | "continue" => Action::Beyond,
                _ => {
                    out.push(Node::Action {
                        source: &self.text[begin..self.at],
                        action: Action::Print(self.pipe(&tokens)?),
                    });
                    continue;
                }
            };
            self.variables.truncate(known);
            out.push(Node::Action { source: &self.text[begin..self.at], action });
        }
    }

    /// An `if` from its condition on.
    fn branches(&mut self, condition: &[Token]) -> Result<Action<'t>, String> {
        let mut branches = Vec::new();
        let mut condition = self.pipe(condition)?;
        loop {
            let (body, end) = self.nodes(Some("if"))?;
            branches.push((Some(condition), body));
            match end {
                Some(End::ElseIf(next)) => condition = next,
                Some(End::Else) => {
                    branches.push((None, self.last_branch("if")?));
                    return Ok(Action::If(branches));
                }
                _ => return Ok(Action::If(branches)),
            }
        }
    }

    /// What follows an `else`.
    fn last_branch(&mut self, word: &str) -> Result<Vec<Node<'t>>, String> {
        match self.nodes(Some(word))? {
            (body, Some(End::Close)) => Ok(body),
            _ => Err(format!("has two `else` in one `{word}`")),
        }
    }

    /// The text of the action that begins at `begin`, without its braces; goes on behind it.
    fn action(&mut self, begin: usize) -> Result<&'t str, String> {
        let rest = &self.text[begin + 2..];
        let comment = rest.trim_start_matches('-').trim_start().starts_with("/*");
        let (mut quote, mut escaped) = (None, false);
        for (i, c) in rest.char_indices() {
            match quote {
                _ if escaped => escaped = false,
                Some('"') if c == '\\' => escaped = true,
                Some(q) if c == q => quote = None,
                Some(_) => {}
                None if !comment && matches!(c, '"' | '`') => quote = Some(c),
                None if rest[i..].starts_with("}}") => {
                    let action = &rest[..i];
                    self.trim = action.len() > 1 && action.ends_with('-');
                    self.at = begin + 2 + i + 2;
                    return Ok(action);
                }
                None => {}
            }
        }
        match quote {
            Some(q) => Err(format!("has a quote that is never closed with {q}")),
            None => Err("is never closed with `}}`".into()),
        }
    }

    fn trimmed(&self, text: &'t str) -> &'t str {
        if self.trim { text.trim_start() } else { text }
    }

    fn pipe(&mut self, tokens: &[Token]) -> Result<Pipe, String> {
        let mut left = tokens;
        let pipe = self.pipe_of(&mut left)?;
        match left.first() {
            None => Ok(pipe),
            Some(t) => Err(format!("has a `{}` where none can stand", t.text())),
        }
    }

    /// A pipe up to a closing parenthesis or the end.
    fn pipe_of(&mut self, left: &mut &[Token]) -> Result<Pipe, String> {
        let mut pipe = Pipe { sets: Vec::new(), declares: false, commands: Vec::new() };
        if let [Token::Variable(a), Token::Mark(comma), Token::Variable(b), Token::Mark(op), rest @ ..] = *left
            && comma == ","
            && op.ends_with('=')
        {
            (pipe.sets, pipe.declares, *left) = (vec![a.clone(), b.clone()], op == ":=", rest);
        } else if let [Token::Variable(a), Token::Mark(op), rest @ ..] = *left
            && op.ends_with('=')
        {
            (pipe.sets, pipe.declares, *left) = (vec![a.clone()], op == ":=", rest);
        }
        loop {
            let mut command = Vec::new();
            while let Some((token, rest)) = left.split_first() {
                let term = match token {
                    Token::Mark(m) if m == "|" || m == ")" => break,
                    Token::Mark(m) if m == "(" => {
                        *left = rest;
                        let inner = self.pipe_of(left)?;
                        match left.split_first() {
                            Some((Token::Mark(m), _)) if m == ")" => Term::Inner(inner.into()),
                            _ => return Err("has a `(` without its `)`".into()),
                        }
                    }
                    Token::Mark(m) => return Err(format!("has a `{m}` where none can stand")),
                    Token::Text(t) => Term::Text(t.clone()),
                    Token::Number(n) => number(n)?,
                    Token::Dot(fields) => Term::Dot(fields.clone()),
                    Token::Variable(v) => self.variable(v)?,
                    Token::Word(w) => match w.as_str() {
                        "true" => Term::Flag(true),
                        "false" => Term::Flag(false),
                        "nil" => Term::Nil,
                        w if functions::exists(w) => Term::Function(w.to_owned()),
                        w => return Err(format!("calls `{w}`, which is no template function")),
                    },
                };
                command.push(term);
                // A closing parenthesis was looked at, but not taken.
                *left = &left[1..];
            }
            if command.is_empty() {
                return Err("has an empty command".into());
            }
            pipe.commands.push(command);
            match left.split_first() {
                Some((Token::Mark(m), rest)) if m == "|" => *left = rest,
                _ => break,
            }
        }
        for name in &pipe.sets {
            let known = self.variables.contains(name);
            match pipe.declares {
                true => self.variables.push(name.clone()),
                false if known => {}
                false => return Err(format!("uses {name}, which is no variable")),
            }
        }
        Ok(pipe)
    }

    fn variable(&self, text: &str) -> Result<Term, String> {
        let mut parts = text.split('.').map(str::to_owned);
        let name = parts.next().unwrap_or_default();
        if name == "$" || self.variables.contains(&name) {
            return Ok(Term::Variable(name, parts.collect()));
        }
        Err(format!("uses {name}, which is no variable"))
    }
}

fn number(text: &str) -> Result<Term, String> {
    if let Ok(n) = text.parse() {
        return Ok(Term::Whole(n));
    }
    text.parse().map(Term::Number).map_err(|_| format!("has `{text}`, which is no number"))
}
