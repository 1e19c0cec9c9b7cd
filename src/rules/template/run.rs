//! Fills in the actions of a template.

use std::collections::BTreeMap;

use super::parse::{Action, Node, Pipe, Term};
use super::{Item, Problem, functions};

/// A template being filled in.
pub(super) struct Run {
    labels: BTreeMap<String, String>,
    value: f64,
    /// Variables of the template's own, the innermost last.
    variables: Vec<(String, Item)>,
    /// What `.` is: `None` for the whole (`.Value`, `.Labels`).
    dot: Option<Item>,
}

/// What came of it.
pub(super) struct Filled {
    pub(super) text: String,
    /// Whether every action could be filled in.
    pub(super) whole: bool,
}

impl Run {
    pub(super) fn new(labels: BTreeMap<String, String>, value: f64) -> Run {
        Run { labels, value, variables: Vec::new(), dot: None }
    }

    /// All pieces; an action that cannot be filled in stays as it is written.
    pub(super) fn all(&mut self, nodes: &[Node<'_>]) -> Filled {
        let mut out = Filled { text: String::new(), whole: true };
        for node in nodes {
            match node {
                Node::Text(t) => out.text += t,
                Node::Action { source, action } => match self.action(action) {
                    Ok(text) => out.text += &text,
                    Err(Problem::NeedsServer | Problem::Fails) => {
                        out.text += source;
                        out.whole = false;
                    }
                },
            }
        }
        out
    }

    /// The same inside of an action, which is filled in as a whole or not at all.
    fn body(&mut self, nodes: &[Node<'_>]) -> Result<String, Problem> {
        let known = self.variables.len();
        let mut out = String::new();
        for node in nodes {
            match node {
                Node::Text(t) => out += t,
                Node::Action { action, .. } => out += &self.action(action)?,
            }
        }
        self.variables.truncate(known);
        Ok(out)
    }

    fn action(&mut self, action: &Action<'_>) -> Result<String, Problem> {
        match action {
            Action::Nothing => Ok(String::new()),
            Action::Beyond => Err(Problem::NeedsServer),
            Action::Print(pipe) => {
                let made = self.pipe(pipe)?;
                Ok(if pipe.sets.is_empty() { made.print() } else { String::new() })
            }
            Action::If(branches) => {
                let known = self.variables.len();
                for (condition, body) in branches {
                    let holds = match condition {
                        Some(pipe) => self.pipe(pipe)?.is_true(),
                        None => true,
                    };
                    if holds {
                        let made = self.body(body);
                        self.variables.truncate(known);
                        return made;
                    }
                }
                self.variables.truncate(known);
                Ok(String::new())
            }
            Action::With(pipe, body, other) => {
                let known = self.variables.len();
                let item = self.pipe(pipe)?;
                let made = if item.is_true() { self.inside(item, body) } else { self.body(other) };
                self.variables.truncate(known);
                made
            }
            Action::Range(pipe, body, other) => self.range(pipe, body, other),
        }
    }

    fn range(&mut self, pipe: &Pipe, body: &[Node<'_>], other: &[Node<'_>]) -> Result<String, Problem> {
        let Item::Map(map) = self.commands(pipe)? else { return Err(Problem::Fails) };
        if map.is_empty() {
            return self.body(other);
        }
        let known = self.variables.len();
        let mut out = String::new();
        for (key, value) in map {
            match &pipe.sets[..] {
                [] => {}
                [v] => self.variables.push((v.clone(), Item::Text(value.clone()))),
                [k, v, ..] => {
                    self.variables.push((k.clone(), Item::Text(key)));
                    self.variables.push((v.clone(), Item::Text(value.clone())));
                }
            }
            let made = self.inside(Item::Text(value), body);
            self.variables.truncate(known);
            out += &made?;
        }
        Ok(out)
    }

    /// A body with something else as `.`.
    fn inside(&mut self, dot: Item, body: &[Node<'_>]) -> Result<String, Problem> {
        let before = self.dot.replace(dot);
        let made = self.body(body);
        self.dot = before;
        made
    }

    /// Evaluates a pipe and sets its variable.
    fn pipe(&mut self, pipe: &Pipe) -> Result<Item, Problem> {
        let made = self.commands(pipe)?;
        if let Some(name) = pipe.sets.first() {
            match self.variables.iter_mut().rfind(|(n, _)| n == name).filter(|_| !pipe.declares) {
                Some((_, item)) => *item = made.clone(),
                None => self.variables.push((name.clone(), made.clone())),
            }
        }
        Ok(made)
    }

    fn commands(&mut self, pipe: &Pipe) -> Result<Item, Problem> {
        let mut piped: Option<Item> = None;
        for command in &pipe.commands {
            let Some((head, rest)) = command.split_first() else { return Err(Problem::Fails) };
            let mut args = Vec::with_capacity(rest.len() + 1);
            for term in rest {
                args.push(self.term(term)?);
            }
            args.extend(piped.take());
            piped = Some(match head {
                Term::Function(name) => functions::call(name, &args)?,
                // Only functions take arguments.
                term if args.is_empty() => self.term(term)?,
                _ => return Err(Problem::Fails),
            });
        }
        piped.ok_or(Problem::Fails)
    }

    fn term(&mut self, term: &Term) -> Result<Item, Problem> {
        match term {
            Term::Text(t) => Ok(Item::Text(t.clone())),
            Term::Number(n) => Ok(Item::Number(*n)),
            Term::Whole(n) => Ok(Item::Whole(*n)),
            Term::Flag(b) => Ok(Item::Flag(*b)),
            Term::Nil => Ok(Item::Nothing),
            Term::Function(name) => functions::call(name, &[]),
            Term::Inner(pipe) => self.pipe(pipe),
            Term::Dot(fields) => match (&self.dot, &fields[..]) {
                (None, _) => self.given(fields),
                (Some(item), fields) => field(item.clone(), fields),
            },
            Term::Variable(name, fields) => {
                if let Some((_, item)) = self.variables.iter().rfind(|(n, _)| n == name) {
                    return field(item.clone(), fields);
                }
                let whole = |of: &str| [&[of.to_owned()], &fields[..]].concat();
                match name.as_str() {
                    "$value" => self.given(&whole("Value")),
                    "$labels" => self.given(&whole("Labels")),
                    "$externalLabels" => self.given(&whole("ExternalLabels")),
                    "$" => self.given(fields),
                    // The address of a Prometheus that is not there.
                    _ => Err(Problem::NeedsServer),
                }
            }
        }
    }

    /// A field of what a template is given.
    fn given(&self, fields: &[String]) -> Result<Item, Problem> {
        let Some((first, rest)) = fields.split_first() else { return Err(Problem::Fails) };
        match first.as_str() {
            "Value" => field(Item::Number(self.value), rest),
            "Labels" => field(Item::Map(self.labels.clone()), rest),
            "ExternalLabels" => field(Item::Map(BTreeMap::new()), rest),
            "ExternalURL" => Err(Problem::NeedsServer),
            _ => Err(Problem::Fails),
        }
    }
}

/// A field of a value: of labels, one that is missing is empty.
fn field(item: Item, fields: &[String]) -> Result<Item, Problem> {
    match (item, fields) {
        (item, []) => Ok(item),
        (Item::Map(map), [name]) => Ok(Item::Text(map.get(name).cloned().unwrap_or_default())),
        _ => Err(Problem::Fails),
    }
}
