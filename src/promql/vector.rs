//! Label sets as keys: hashing and comparing parts of them without building new ones.

use std::hash::Hasher;

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
    hashes: Vec<u64>,
    /// Open addressing: 0 where nothing is, else one more than the index of an item. At most half
    /// full, and its length a power of two.
    table: Vec<u32>,
}

impl<'k, T> Groups<'k, T> {
    pub(super) fn new(key: Key<'k>) -> Groups<'k, T> {
        Groups { key, items: Vec::new(), hashes: Vec::new(), table: vec![0; 64] }
    }

    /// The slot of the group that `labels` belongs to, or the free one where it would go.
    fn slot(&self, hash: u64, labels: &Labels) -> usize {
        let mask = self.table.len() - 1;
        let mut slot = hash as usize & mask;
        while let Some(i) = (self.table[slot] as usize).checked_sub(1) {
            if self.hashes[i] == hash && self.key.same(&self.items[i].0, labels) {
                break;
            }
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// The item of the group that `labels` belongs to.
    pub(super) fn find(&self, labels: &Labels) -> Option<&T> {
        let slot = self.slot(self.key.hash(labels), labels);
        (self.table[slot] as usize).checked_sub(1).map(|i| &self.items[i].1)
    }

    /// The index of that group; makes it if there is none. Tells whether it did.
    pub(super) fn place(&mut self, labels: &Labels, make: impl FnOnce() -> T) -> (usize, bool) {
        let hash = self.key.hash(labels);
        let slot = self.slot(hash, labels);
        if let Some(i) = (self.table[slot] as usize).checked_sub(1) {
            return (i, false);
        }
        self.items.push((labels.clone(), make()));
        self.hashes.push(hash);
        self.table[slot] = u32::try_from(self.items.len()).expect("fewer than 2^32 series fit into memory");
        if self.items.len() * 2 > self.table.len() {
            self.grow();
        }
        (self.items.len() - 1, true)
    }

    /// The same, giving the item.
    pub(super) fn entry(&mut self, labels: &Labels, make: impl FnOnce() -> T) -> (&mut T, bool) {
        let (i, new) = self.place(labels, make);
        (&mut self.items[i].1, new)
    }

    fn grow(&mut self) {
        let mask = self.table.len() * 4 - 1;
        self.table = vec![0; mask + 1];
        for (i, &hash) in self.hashes.iter().enumerate() {
            let mut slot = hash as usize & mask;
            while self.table[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            self.table[slot] = i as u32 + 1;
        }
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
