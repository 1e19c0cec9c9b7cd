//! What a template computes with.

use std::collections::BTreeMap;

use super::numbers::go_float;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item {
    Text(String),
    Number(f64),
    /// A number that is written without a point.
    Whole(i64),
    Flag(bool),
    /// Labels.
    Map(BTreeMap<String, String>),
    Nothing,
}

impl Item {
    /// As Go prints it.
    pub(super) fn print(&self) -> String {
        match self {
            Item::Text(t) => t.clone(),
            Item::Number(n) => go_float(*n),
            Item::Whole(n) => n.to_string(),
            Item::Flag(b) => b.to_string(),
            Item::Map(m) => {
                let pairs: Vec<String> = m.iter().map(|(n, v)| format!("{n}:{v}")).collect();
                format!("map[{}]", pairs.join(" "))
            }
            Item::Nothing => "<no value>".into(),
        }
    }

    /// The number that it is, or that its text says.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Item::Number(n) => Some(*n),
            Item::Whole(n) => Some(*n as f64),
            Item::Text(t) => t.parse().ok(),
            _ => None,
        }
    }

    /// Whether `if` takes it for true: whatever is neither zero nor empty.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Item::Text(t) => !t.is_empty(),
            Item::Number(n) => *n != 0.0,
            Item::Whole(n) => *n != 0,
            Item::Flag(b) => *b,
            Item::Map(m) => !m.is_empty(),
            Item::Nothing => false,
        }
    }
}
