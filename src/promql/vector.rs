//! Label sets as keys: hashing and comparing parts of them without building new ones.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::{Element, EvalError};
use crate::model::sample::{Labels, NAME};

/// Which labels of a set make its key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Key<'a> {
    /// Only these.
    Only(&'a [Box<str>]),
    /// All but these and the name.
    Without(&'a [Box<str>]),
    /// All.
    Whole,
}

impl Key<'_> {
    fn holds(self, name: &str) -> bool {
        match self {
            Key::Only(l) => l.iter().any(|n| **n == *name),
            Key::Without(l) => name != NAME && !l.iter().any(|n| **n == *name),
            Key::Whole => true,
        }
    }

    fn pairs(self, labels: &Labels) -> impl Iterator<Item = (&str, &str)> {
        labels.iter().filter(move |(n, _)| self.holds(n))
    }

    /// The key as a label set.
    pub(super) fn labels(self, of: &Labels) -> Labels {
        match self {
            Key::Whole => of.clone(),
            _ => of.without(|n| !self.holds(n)),
        }
    }

    fn hash(self, labels: &Labels) -> u64 {
        let mut h = Fold::default();
        for (n, v) in self.pairs(labels) {
            h.write(n.as_bytes());
            h.write(v.as_bytes());
        }
        h.finish()
    }

    fn same(self, a: &Labels, b: &Labels) -> bool {
        self.pairs(a).eq(self.pairs(b))
    }
}

/// Items by key, in order of arrival.
pub(super) struct Groups<'k, T> {
    key: Key<'k>,
    /// A sample of the labels of each group, and its item.
    pub(super) items: Vec<(Labels, T)>,
    by_hash: HashMap<u64, Vec<usize>, BuildHasherDefault<Passed>>,
}

impl<'k, T> Groups<'k, T> {
    pub(super) fn new(key: Key<'k>) -> Groups<'k, T> {
        Groups { key, items: Vec::new(), by_hash: HashMap::default() }
    }

    /// The item of the group that `labels` belongs to.
    pub(super) fn find(&self, labels: &Labels) -> Option<&T> {
        let same = self.by_hash.get(&self.key.hash(labels))?;
        same.iter().map(|&i| &self.items[i]).find(|(l, _)| self.key.same(l, labels)).map(|(_, t)| t)
    }

    /// The same; makes the group if there is none. Tells whether it did.
    pub(super) fn entry(&mut self, labels: &Labels, make: impl FnOnce() -> T) -> (&mut T, bool) {
        let same = self.by_hash.entry(self.key.hash(labels)).or_default();
        let found = same.iter().copied().find(|&i| self.key.same(&self.items[i].0, labels));
        let i = found.unwrap_or_else(|| {
            self.items.push((labels.clone(), make()));
            same.push(self.items.len() - 1);
            self.items.len() - 1
        });
        (&mut self.items[i].1, found.is_none())
    }
}

/// Refuses a vector that holds a label set twice.
pub(super) fn unique(elements: &[Element], place: &'static str) -> Result<(), EvalError> {
    if elements.len() < 2 {
        return Ok(());
    }
    let mut seen = Groups::new(Key::Whole);
    for e in elements {
        if !seen.entry(&e.labels, || ()).1 {
            return Err(EvalError::SameLabels { place, labels: e.labels.to_string() });
        }
    }
    Ok(())
}

/// A fast hash of label text; collisions are told apart by comparing.
#[derive(Default)]
struct Fold(u64);

impl Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        let mut h = self.0;
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            h = (h.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
        // The length keeps "ab" + "c" apart from "a" + "bc".
        self.0 = (h.rotate_left(5) ^ bytes.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }
}

/// Passes an already mixed number through.
#[derive(Default)]
struct Passed(u64);

impl Hasher for Passed {
    fn write(&mut self, _: &[u8]) {}
    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}
