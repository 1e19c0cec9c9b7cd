//! What a step that ended brings: tokens, ends, and the state of the cache.

use super::chance;
use super::engine::{Engine, Part};
use super::request::{Finish, Item, Request};
use super::tokens;

impl Engine {
    /// Applies the outcome of a step to its requests and says what they got; `acceptance` is a factor on the chance
    /// that a draft token holds.
    pub(super) fn update(&mut self, parts: &[Part], acceptance: f64) -> Vec<Item> {
        let mut items = Vec::with_capacity(parts.len());
        for part in parts {
            // A request whose client left while the step ran is gone.
            let Some(request) = self.requests.get_mut(&part.id) else { continue };
            request.in_flight -= part.tokens;
            let stale = request.stale > 0;
            if stale {
                request.stale -= part.tokens;
            }
            if !part.samples {
                continue;
            }
            let accepted = self.verify(part, stale, acceptance);
            let async_scheduling = self.spec.async_scheduling;
            let request = self.requests.get_mut(&part.id).expect("it was there a line ago");
            let (new, finish) = sample(request, 1 + accepted, self.spec.max_model_len);
            if !stale && async_scheduling {
                request.placeholders = request.placeholders.saturating_sub(new.len());
            }
            let item = Item {
                id: part.id,
                tokens: new,
                finish,
                happenings: std::mem::take(&mut request.happenings),
                cached: request.cached.take(),
            };
            if finish.is_some() {
                if request.running {
                    self.running.retain(|id| *id != part.id);
                } else {
                    self.waiting.retain(|id| *id != part.id);
                }
                // The blocks of its last tokens are complete now, and stay to be found.
                if request.running {
                    let known = request.computed.min(request.tokens.len());
                    self.remember(part.id, known);
                }
                self.forget(part.id);
            } else {
                if request.running && async_scheduling {
                    let known = request.computed.saturating_sub(request.placeholders);
                    self.remember(part.id, known);
                }
                self.draft(part.id);
            }
            items.push(item);
        }
        items
    }

    /// How many draft tokens held; the rest is taken back.
    fn verify(&mut self, part: &Part, stale: bool, acceptance: f64) -> usize {
        let (Some(spec), true) = (&self.spec.speculative, part.drafts > 0) else { return 0 };
        let request = self.requests.get_mut(&part.id).expect("the caller looked it up");
        let index = request.tokens.len() as u64;
        let accepted = (0..part.drafts)
            .take_while(|p| {
                chance::unit(self.seed ^ request.key, index, *p as u64)
                    < acceptance * spec.acceptance.get(*p).copied().unwrap_or(0.0)
            })
            .count();
        let rejected = part.drafts - accepted;
        if !stale {
            request.computed -= rejected.min(request.computed);
            request.placeholders -= rejected.min(request.placeholders);
        }
        self.stats.drafts += 1;
        self.stats.draft_tokens += part.drafts as u64;
        self.stats.accepted.resize(spec.num_speculative_tokens, 0);
        for count in &mut self.stats.accepted[..accepted] {
            *count += 1;
        }
        accepted
    }

    /// Drafts for the next step, where the drafter runs behind the step.
    fn draft(&mut self, id: u64) {
        let Some(spec) = &self.spec.speculative else { return };
        let request = self.requests.get_mut(&id).expect("the request goes on");
        if self.spec.async_scheduling || !request.running {
            return;
        }
        let wanted = !spec.greedy_only || request.greedy;
        let lucky = chance::unit(self.seed ^ request.key, request.tokens.len() as u64, 0xd4af7) < spec.draft_rate;
        request.drafts = if wanted && lucky { spec.num_speculative_tokens } else { 0 };
    }
}

/// Appends up to `count` tokens to an answer; fewer where it ends.
fn sample(request: &mut Request, count: usize, max_model_len: usize) -> (Vec<u32>, Option<Finish>) {
    let mut new = Vec::with_capacity(count);
    for _ in 0..count {
        let index = request.answered();
        let ends = request.stops_at == Some(index + 1);
        let token = if ends { tokens::IM_END } else { tokens::answer_token(request.key, index as u64) };
        request.tokens.push(token);
        new.push(token);
        if ends {
            return (new, Some(Finish::Stop));
        }
        if request.answered() >= request.max_tokens || request.tokens.len() >= max_model_len {
            return (new, Some(Finish::Length));
        }
    }
    (new, None)
}
