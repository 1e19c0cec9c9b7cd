//! A request as the engine knows it, and what the engine says about it.

use super::chance::mix;
use super::kv::BlockId;
use crate::model::time::Offset;

/// What the front end asks of the engine.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    /// Unique in the life of the server.
    pub(super) id: u64,
    /// The prompt.
    pub(super) prompt: Vec<u32>,
    /// Longest answer, in tokens, at least 1.
    pub(super) max_tokens: usize,
    /// After how many tokens the model ends the answer by itself; `None` for never.
    pub(super) stops_at: Option<usize>,
    /// Decides the words of the answer.
    pub(super) key: u64,
    /// Lower is sooner, where the policy looks at it.
    pub(super) priority: i64,
    /// Temperature 0.
    pub(super) greedy: bool,
    /// Time that the grammar of a structured answer takes to compile; `None` for no grammar.
    pub(super) grammar_us: Option<u64>,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Finish {
    /// The model ended it.
    Stop,
    /// It reached its limit.
    Length,
    /// The server was told to end.
    Abort,
}

/// What happened to a request, stamped on the engine's clock; travels with its next output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Happening {
    /// The engine took it in.
    Queued(Offset),
    /// It was admitted.
    Scheduled(Offset),
    /// It lost its blocks.
    Preempted,
}

/// The engine's state of one request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: u64,
    /// Prompt and answer so far.
    pub(super) tokens: Vec<u32>,
    /// Length of the prompt.
    pub(super) prompt: usize,
    pub(super) max_tokens: usize,
    pub(super) stops_at: Option<usize>,
    pub(super) key: u64,
    pub(super) priority: i64,
    pub(super) greedy: bool,
    /// When the engine took it in.
    pub(super) arrival: Offset,
    /// Not to be admitted before this.
    pub(super) blocked_until: Offset,
    /// Tokens whose state is in the pool, or will be when the steps in flight end.
    pub(super) computed: usize,
    /// Tokens that steps in flight will bring (asynchronous scheduling).
    pub(super) placeholders: usize,
    /// Tokens in steps in flight.
    pub(super) in_flight: usize,
    /// Of those, tokens scheduled before it was preempted.
    pub(super) stale: usize,
    /// Draft tokens to verify in its next step.
    pub(super) drafts: usize,
    pub(super) preemptions: u32,
    pub(super) running: bool,
    /// Put aside for another reason than capacity, until it is admitted.
    pub(super) deferred: bool,
    /// Its blocks, in the order of the sequence.
    pub(super) blocks: Vec<BlockId>,
    /// Hashes of its full blocks, each of all tokens up to its end.
    pub(super) hashes: Vec<u64>,
    /// How many of its blocks the pool remembers.
    pub(super) remembered: usize,
    /// Prompt tokens found in the cache at its first admission; taken with its first output.
    pub(super) cached: Option<usize>,
    pub(super) happenings: Vec<Happening>,
}

impl Request {
    /// A request that the engine takes in at `at`, and whose grammar, if it has one, is `compiled` then.
    pub(super) fn new(ask: Ask, at: Offset, compiled: Option<Offset>) -> Request {
        Request {
            id: ask.id,
            prompt: ask.prompt.len(),
            tokens: ask.prompt,
            max_tokens: ask.max_tokens,
            stops_at: ask.stops_at,
            key: ask.key,
            priority: ask.priority,
            greedy: ask.greedy,
            arrival: at,
            blocked_until: compiled.unwrap_or(at),
            computed: 0,
            placeholders: 0,
            in_flight: 0,
            stale: 0,
            drafts: 0,
            preemptions: 0,
            running: false,
            deferred: false,
            blocks: Vec::new(),
            hashes: Vec::new(),
            remembered: 0,
            cached: None,
            happenings: vec![Happening::Queued(at)],
        }
    }

    /// Tokens of the answer so far.
    pub(super) fn answered(&self) -> usize {
        self.tokens.len() - self.prompt
    }

    /// Makes the hashes of all full blocks known.
    pub(super) fn hash_blocks(&mut self, block_size: usize) {
        while (self.hashes.len() + 1) * block_size <= self.tokens.len() {
            let start = self.hashes.len() * block_size;
            let before = self.hashes.last().copied().unwrap_or(0x9105_0115);
            let hash = self.tokens[start..start + block_size].iter().fold(before, |h, t| mix(h, u64::from(*t), 1));
            self.hashes.push(hash);
        }
    }
}

/// What one step said about one request.
#[derive(Debug, PartialEq)]
pub(super) struct Item {
    pub(super) id: u64,
    /// New tokens of the answer.
    pub(super) tokens: Vec<u32>,
    /// Why it ended; `None` while it goes on.
    pub(super) finish: Option<Finish>,
    pub(super) happenings: Vec<Happening>,
    /// With the first output: prompt tokens that were found in the cache.
    pub(super) cached: Option<usize>,
}

/// State of the scheduler as it is told after a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Stats {
    pub(super) running: usize,
    /// Waiting for a seat, blocks or budget.
    pub(super) capacity: usize,
    /// Waiting for something else.
    pub(super) deferred: usize,
    pub(super) kv_usage: f64,
    /// Tokens looked up in the prefix cache since the last report.
    pub(super) cache_queries: u64,
    /// Tokens found there.
    pub(super) cache_hits: u64,
    /// Drafts, draft tokens, and accepted tokens by position, of this step.
    pub(super) drafts: u64,
    pub(super) draft_tokens: u64,
    pub(super) accepted: Vec<u64>,
}

/// Everything that one step said.
#[derive(Debug, PartialEq)]
pub(super) struct StepOutput {
    /// End of the step on the engine's clock.
    pub(super) at: Offset,
    pub(super) items: Vec<Item>,
    pub(super) stats: Stats,
}
