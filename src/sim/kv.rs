//! The block pool: reference counts, one queue of free blocks, and the prefix cache.
//!
//! A block is free when nobody refers to it, even while it still holds cached content. Taking a
//! block pops the head of the queue and forgets what it held. Giving a request's blocks back puts
//! those without content to the head and those with content to the tail, the end of the sequence
//! before its beginning: so the least recently used goes first, and of a sequence its tail.

use std::collections::HashMap;

/// Index of a block. Block 0 is reserved and never handed out.
pub(super) type BlockId = u32;

/// No block: the end of the queue.
const NONE: BlockId = BlockId::MAX;

#[derive(Clone, Debug)]
struct Block {
    references: u32,
    hash: Option<u64>,
    before: BlockId,
    after: BlockId,
}

/// The pool of one engine.
#[derive(Debug)]
pub(super) struct Pool {
    blocks: Vec<Block>,
    head: BlockId,
    tail: BlockId,
    free: usize,
    /// Blocks by content; several may hold the same. Never iterated.
    by_hash: HashMap<u64, Vec<BlockId>>,
    caching: bool,
}

impl Pool {
    /// A pool of `count` blocks, the reserved one included.
    pub(super) fn new(count: usize, caching: bool) -> Pool {
        let block = Block { references: 0, hash: None, before: NONE, after: NONE };
        let mut pool =
            Pool { blocks: vec![block; count], head: NONE, tail: NONE, free: 0, by_hash: HashMap::new(), caching };
        for id in 1..count {
            pool.push_tail(id as BlockId);
        }
        pool
    }

    /// Blocks that nobody refers to.
    pub(super) fn free(&self) -> usize {
        self.free
    }

    /// Blocks that can be handed out at all.
    pub(super) fn usable(&self) -> usize {
        self.blocks.len() - 1
    }

    /// Share of the usable blocks that are referred to, 0 to 1.
    pub(super) fn usage(&self) -> f64 {
        1.0 - self.free as f64 / self.usable().max(1) as f64
    }

    /// The longest run of `hashes` from the first whose blocks are cached.
    pub(super) fn find(&self, hashes: &[u64]) -> Vec<BlockId> {
        if !self.caching {
            return Vec::new();
        }
        hashes.iter().map_while(|h| self.by_hash.get(h).and_then(|ids| ids.first().copied())).collect()
    }

    /// How many of `ids` are in the free queue, and would leave it if they were shared.
    pub(super) fn free_among(&self, ids: &[BlockId]) -> usize {
        ids.iter().filter(|id| self.blocks[**id as usize].references == 0).count()
    }

    /// Refers to blocks that [`Pool::find`] returned.
    pub(super) fn share(&mut self, ids: &[BlockId]) {
        for &id in ids {
            if self.blocks[id as usize].references == 0 {
                self.unlink(id);
            }
            self.blocks[id as usize].references += 1;
        }
    }

    /// Takes `count` blocks from the head of the queue; the caller has checked that there are as many.
    pub(super) fn take(&mut self, count: usize, into: &mut Vec<BlockId>) {
        for _ in 0..count {
            let id = self.head;
            assert!(id != NONE, "the caller checks that enough blocks are free");
            self.unlink(id);
            self.forget(id);
            self.blocks[id as usize].references = 1;
            into.push(id);
        }
    }

    /// Records that block `id` holds the content with `hash`.
    pub(super) fn remember(&mut self, id: BlockId, hash: u64) {
        if self.caching && self.blocks[id as usize].hash.is_none() {
            self.blocks[id as usize].hash = Some(hash);
            self.by_hash.entry(hash).or_default().push(id);
        }
    }

    /// Gives back the blocks of a request, in the order of its sequence.
    pub(super) fn release(&mut self, ids: &[BlockId]) {
        let mut bare = Vec::new();
        for &id in ids.iter().rev() {
            let block = &mut self.blocks[id as usize];
            block.references -= 1;
            if block.references == 0 {
                if block.hash.is_some() {
                    self.push_tail(id);
                } else {
                    bare.push(id);
                }
            }
        }
        for id in bare.into_iter().rev() {
            self.push_head(id);
        }
    }

    /// Forgets all cached content; `false`, and nothing done, while any block is referred to.
    pub(super) fn reset(&mut self) -> bool {
        if self.free != self.usable() {
            return false;
        }
        self.by_hash.clear();
        for block in &mut self.blocks {
            block.hash = None;
        }
        true
    }

    fn forget(&mut self, id: BlockId) {
        if let Some(hash) = self.blocks[id as usize].hash.take()
            && let Some(ids) = self.by_hash.get_mut(&hash)
        {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_hash.remove(&hash);
            }
        }
    }

    fn push_tail(&mut self, id: BlockId) {
        let last = self.tail;
        let block = &mut self.blocks[id as usize];
        (block.before, block.after) = (last, NONE);
        if last == NONE {
            self.head = id;
        } else {
            self.blocks[last as usize].after = id;
        }
        self.tail = id;
        self.free += 1;
    }

    fn push_head(&mut self, id: BlockId) {
        let first = self.head;
        let block = &mut self.blocks[id as usize];
        (block.before, block.after) = (NONE, first);
        if first == NONE {
            self.tail = id;
        } else {
            self.blocks[first as usize].before = id;
        }
        self.head = id;
        self.free += 1;
    }

    fn unlink(&mut self, id: BlockId) {
        let Block { before, after, .. } = self.blocks[id as usize];
        if before == NONE {
            self.head = after;
        } else {
            self.blocks[before as usize].after = after;
        }
        if after == NONE {
            self.tail = before;
        } else {
            self.blocks[after as usize].before = before;
        }
        self.free -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(pool: &mut Pool, count: usize) -> Vec<BlockId> {
        let mut ids = Vec::new();
        pool.take(count, &mut ids);
        ids
    }

    #[test]
    fn usage_counts_what_is_referred_to() {
        let mut pool = Pool::new(5, true);
        assert_eq!((pool.free(), pool.usage()), (4, 0.0));
        let ids = taken(&mut pool, 3);
        assert_eq!(ids, [1, 2, 3]);
        assert_eq!((pool.free(), pool.usage()), (1, 0.75));
        pool.remember(1, 11);
        pool.release(&ids);
        assert_eq!(pool.usage(), 0.0, "cached content that nobody refers to counts as free");
        assert_eq!(taken(&mut pool, 4).len(), 4);
        assert_eq!(pool.usage(), 1.0);
    }

    #[test]
    fn blocks_without_content_go_first_and_a_sequence_dies_from_its_end() {
        let mut pool = Pool::new(6, true);
        let ids = taken(&mut pool, 4);
        for (id, hash) in ids.iter().zip([11, 12, 13]) {
            pool.remember(*id, hash);
        }
        pool.release(&ids);
        assert_eq!(taken(&mut pool, 5), [4, 5, 3, 2, 1]);
    }

    #[test]
    fn a_prefix_is_found_shared_and_evicted() {
        let mut pool = Pool::new(4, true);
        let ids = taken(&mut pool, 2);
        pool.remember(ids[0], 11);
        pool.remember(ids[1], 12);
        pool.release(&ids);
        assert_eq!(pool.find(&[11, 12, 13]), ids);
        assert_eq!(pool.find(&[12]), [2], "a block is found by the hash of all before it");
        assert_eq!(pool.free_among(&ids), 2);
        pool.share(&ids[..1]);
        assert_eq!((pool.free(), pool.free_among(&ids)), (2, 1));
        taken(&mut pool, 2);
        assert_eq!(pool.find(&[11, 12]), [1], "the shared block stayed, the other was taken");
        assert!(!pool.reset());
    }

    #[test]
    fn the_same_content_may_be_held_twice() {
        let mut pool = Pool::new(4, true);
        let ids = taken(&mut pool, 2);
        pool.remember(ids[0], 11);
        pool.remember(ids[1], 11);
        pool.release(&ids[..1]);
        taken(&mut pool, 2);
        assert_eq!(pool.find(&[11]), [2], "one copy was evicted, the other is found");
    }

    #[test]
    fn without_caching_nothing_is_found() {
        let mut pool = Pool::new(3, false);
        let ids = taken(&mut pool, 1);
        pool.remember(ids[0], 11);
        assert!(pool.find(&[11]).is_empty());
        pool.release(&ids);
        assert!(pool.reset());
    }
}
