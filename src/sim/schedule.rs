//! One scheduling decision: running requests first, then the queue.

use super::cost::StepLoad;
use super::engine::{Engine, Part, add_load};
use super::profile::Policy;
use super::request::{Happening, Request};
use crate::model::time::Offset;

impl Engine {
    /// Decides what the next step computes, and books it.
    pub(super) fn schedule(&mut self) -> (Vec<Part>, StepLoad) {
        let mut budget = self.spec.max_num_batched_tokens;
        let present = self.running.len() + self.waiting.len();
        // A cap on long prompts protects others, so it is off for a request that is alone.
        let cap = if present > 1 { self.spec.long_prefill_token_threshold } else { 0 };
        let mut parts: Vec<Part> = Vec::new();
        let preempted = self.schedule_running(&mut budget, cap, &mut parts);
        if !preempted {
            self.schedule_waiting(&mut budget, cap, &mut parts);
        }
        let mut load = StepLoad::default();
        for part in &mut parts {
            let request = self.requests.get_mut(&part.id).expect("a scheduled request is known");
            add_load(&mut load, request, part.tokens, part.drafts);
            request.computed += part.tokens;
            request.in_flight += part.tokens;
            part.samples = request.computed >= request.tokens.len() + request.placeholders;
            if part.samples && self.spec.async_scheduling {
                request.placeholders += 1 + part.drafts;
                request.drafts = drafts_of(&self.spec, request);
            }
        }
        (parts, load)
    }

    /// Gives running requests their tokens; `true` if one of them had to go.
    fn schedule_running(&mut self, budget: &mut usize, cap: usize, parts: &mut Vec<Part>) -> bool {
        let mut preempted = false;
        let mut index = 0;
        while index < self.running.len() && *budget > 0 {
            let id = self.running[index];
            let request = &self.requests[&id];
            let ends_in_flight = request.placeholders > 0
                && request.computed + 2 - request.placeholders >= request.prompt + request.max_tokens;
            let mut want =
                (request.tokens.len() + request.drafts + request.placeholders).saturating_sub(request.computed);
            if cap > 0 {
                want = want.min(cap);
            }
            want = want.min(*budget).min((self.spec.max_model_len - 1).saturating_sub(request.computed));
            if ends_in_flight || want == 0 {
                index += 1;
                continue;
            }
            let lookahead = self.spec.speculative.as_ref().map_or(0, |s| s.lookahead);
            let mut fits = self.grow(id, want, lookahead);
            while !fits {
                let victim = self.victim();
                preempted = true;
                let position = self.running.iter().position(|r| *r == victim).expect("a victim is running");
                self.running.remove(position);
                if position < index {
                    index -= 1;
                }
                if let Some(taken) = parts.iter().position(|p| p.id == victim) {
                    *budget += parts.remove(taken).tokens;
                }
                self.preempt(victim);
                if victim == id {
                    break;
                }
                fits = self.grow(id, want, lookahead);
            }
            if !fits {
                break;
            }
            let request = self.requests.get_mut(&id).expect("a running request is known");
            let known = request.tokens.len() + request.placeholders;
            let drafts = (request.computed + want).saturating_sub(known).min(request.drafts);
            request.drafts = 0;
            parts.push(Part { id, tokens: want, drafts, samples: false });
            *budget -= want;
            index += 1;
        }
        preempted
    }

    /// Admits from the queue while there is budget, a seat and room.
    fn schedule_waiting(&mut self, budget: &mut usize, cap: usize, parts: &mut Vec<Part>) {
        let mut aside = Vec::new();
        while *budget > 0 && self.running.len() < self.spec.max_num_seqs {
            let Some(&id) = self.waiting.front() else { break };
            let now = self.now();
            let request = self.requests.get_mut(&id).expect("a waiting request is known");
            if request.stale > 0 || request.blocked_until > now {
                request.deferred = true;
                aside.push(id);
                self.waiting.pop_front();
                continue;
            }
            request.hash_blocks(self.spec.block_size);
            let most = (request.tokens.len() - 1) / self.spec.block_size;
            let found = self.pool.find(&request.hashes[..most.min(request.hashes.len())]);
            let hit = found.len() * self.spec.block_size;
            let total = request.tokens.len();
            let mut want = total - hit;
            if cap > 0 {
                want = want.min(cap);
            }
            if want > *budget && !self.spec.enable_chunked_prefill {
                break;
            }
            want = want.min(*budget);
            let watermark = if self.running.is_empty() {
                0
            } else {
                (self.spec.watermark * self.spec.num_gpu_blocks as f64) as usize
            };
            // Shared blocks that lie in the free queue leave it too.
            let revived = self.pool.free_among(&found);
            let room = |tokens: usize| tokens.div_ceil(self.spec.block_size) - found.len() + revived + watermark;
            let free = self.pool.free();
            let whole = total.min(self.spec.max_model_len);
            if (self.spec.scheduler_reserve_full_isl && room(whole) > free) || room(hit + want) > free {
                break;
            }
            self.waiting.pop_front();
            self.running.push(id);
            self.pool.share(&found);
            let request = self.requests.get_mut(&id).expect("a waiting request is known");
            request.remembered = found.len();
            request.blocks = found;
            request.computed = hit;
            request.running = true;
            request.deferred = false;
            request.happenings.push(Happening::Scheduled(now));
            if request.preemptions == 0 {
                request.cached = Some(hit);
                if self.spec.enable_prefix_caching {
                    self.stats.cache_queries += total as u64;
                    self.stats.cache_hits += hit as u64;
                }
            }
            let fits = self.grow(id, want, 0);
            debug_assert!(fits, "room was checked before the admission");
            parts.push(Part { id, tokens: want, drafts: 0, samples: false });
            *budget -= want;
        }
        for id in aside.into_iter().rev() {
            self.waiting.push_front(id);
        }
    }

    /// Takes the blocks that a request needs for `want` more tokens; `false` if there are too few.
    fn grow(&mut self, id: u64, want: usize, lookahead: usize) -> bool {
        let request = self.requests.get_mut(&id).expect("a scheduled request is known");
        let slots = (request.computed + want + lookahead).min(self.spec.max_model_len);
        let need = slots.div_ceil(self.spec.block_size).saturating_sub(request.blocks.len());
        if need > self.pool.free() {
            return false;
        }
        self.pool.take(need, &mut request.blocks);
        // Drafts may be rejected, and placeholders are not known yet: only known tokens count.
        let known = (request.computed + want).min(request.tokens.len());
        self.remember(id, known);
        true
    }

    /// Lets the pool know the content of a request's blocks up to `known` tokens.
    pub(super) fn remember(&mut self, id: u64, known: usize) {
        let request = self.requests.get_mut(&id).expect("the request is known");
        request.hash_blocks(self.spec.block_size);
        let full = (known / self.spec.block_size).min(request.hashes.len()).min(request.blocks.len());
        while request.remembered < full {
            let at = request.remembered;
            self.pool.remember(request.blocks[at], request.hashes[at]);
            request.remembered += 1;
        }
    }

    /// Who goes when blocks run out.
    fn victim(&self) -> u64 {
        match self.spec.policy {
            Policy::Fcfs => *self.running.last().expect("someone runs"),
            Policy::Priority => *self
                .running
                .iter()
                .max_by_key(|id| {
                    let r = &self.requests[*id];
                    (r.priority, r.arrival, r.id)
                })
                .expect("someone runs"),
        }
    }

    /// Takes a running request's blocks and puts it to the front of the queue.
    fn preempt(&mut self, id: u64) {
        let request = self.requests.get_mut(&id).expect("a victim is known");
        self.pool.release(&std::mem::take(&mut request.blocks));
        request.remembered = 0;
        request.computed = 0;
        request.drafts = 0;
        request.placeholders = 0;
        request.stale = request.in_flight;
        request.preemptions += 1;
        request.running = false;
        request.happenings.push(Happening::Preempted);
        match self.spec.policy {
            Policy::Fcfs => self.waiting.push_front(id),
            Policy::Priority => self.enqueue(id),
        }
    }

    /// Puts a request into the queue where its policy wants it.
    pub(super) fn enqueue(&mut self, id: u64) {
        let at = match self.spec.policy {
            Policy::Fcfs => self.waiting.len(),
            Policy::Priority => {
                let rank = |r: &Request| -> (i64, Offset, u64) { (r.priority, r.arrival, r.id) };
                let mine = rank(&self.requests[&id]);
                self.waiting.iter().position(|other| rank(&self.requests[other]) > mine).unwrap_or(self.waiting.len())
            }
        };
        self.waiting.insert(at, id);
    }
}

/// Draft tokens that asynchronous scheduling reserves for a request's next step.
fn drafts_of(spec: &super::profile::EngineSpec, request: &Request) -> usize {
    match &spec.speculative {
        Some(s) if !s.greedy_only || request.greedy => s.num_speculative_tokens,
        _ => 0,
    }
}
