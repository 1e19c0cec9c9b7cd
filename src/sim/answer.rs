//! Answers in vLLM's words: the chunks of a stream and the body of a whole answer.
//!
//! Fields, their order and their nulls are those of captured streams of 0.31. The role chunk of a
//! chat is made together with the first token, never before.

use std::collections::VecDeque;
use std::fmt::Write;

use bytes::Bytes;
use serde_json::{Value, json};

use super::front::Times;
use super::parse::{Asked, Kind};
use super::profile::ApiSpec;
use super::request::Finish;
use super::server::Message;
use super::tokens;

/// What all chunks of one answer have in common, and how far each choice is.
#[derive(Debug)]
pub(super) struct Answer {
    asked: Asked,
    /// `chatcmpl-…` or `cmpl-…`.
    id: String,
    /// Unix seconds.
    created: u64,
    model: String,
    fingerprint: String,
    details: bool,
    interval: usize,
    reasoning: usize,
    /// `data: {"id":…,"choices":[`
    head: String,
    choices: Vec<Choice>,
    cached: usize,
    times: Option<Times>,
    begun: bool,
}

#[derive(Clone, Debug, Default)]
struct Choice {
    /// All tokens of the answer.
    tokens: Vec<u32>,
    /// Tokens that have not been sent.
    unsent: Vec<u32>,
    sent: usize,
    finish: Option<Finish>,
}

impl Answer {
    /// An answer that has nothing yet.
    pub(super) fn new(asked: Asked, api: &ApiSpec, id: String, created: u64, fingerprint: String) -> Answer {
        let object = match asked.kind {
            Kind::Chat => "chat.completion.chunk",
            Kind::Text => "text_completion",
        };
        let head = format!(
            "data: {{\"id\":{},\"object\":\"{object}\",\"created\":{created},\"model\":{},\"choices\":[",
            quoted(&id),
            quoted(&api.model)
        );
        let choices = vec![Choice::default(); asked.n * asked.prompts.len()];
        Answer {
            asked,
            id,
            created,
            model: api.model.clone(),
            fingerprint,
            details: api.prompt_tokens_details,
            interval: api.stream_interval,
            reasoning: api.reasoning_tokens,
            head,
            choices,
            cached: 0,
            times: None,
            begun: false,
        }
    }

    /// Whether the answer is sent as it grows.
    pub(super) fn streams(&self) -> bool {
        self.asked.stream
    }

    /// Whether all choices have ended.
    pub(super) fn ended(&self) -> bool {
        self.choices.iter().all(|c| c.finish.is_some())
    }

    /// Takes a message in without making chunks of it.
    pub(super) fn take(&mut self, message: Message) -> usize {
        let at = message.choice;
        self.cached = self.cached.max(message.cached.unwrap_or(0));
        self.times = message.times.or(self.times);
        let choice = &mut self.choices[at];
        choice.unsent.extend(&message.tokens);
        choice.tokens.extend(message.tokens);
        choice.finish = message.finish;
        at
    }

    /// Appends the chunks that a message makes to `out`; the last message brings the end of the stream with it.
    pub(super) fn chunks(&mut self, message: Message, out: &mut VecDeque<Bytes>) {
        if !self.begun {
            self.begun = true;
            if self.asked.kind == Kind::Chat {
                for index in 0..self.choices.len() {
                    out.push_back(self.role_chunk(index).into());
                }
            }
        }
        let at = self.take(message);
        let choice = &self.choices[at];
        if choice.sent == 0 || choice.unsent.len() >= self.interval || choice.finish.is_some() {
            out.push_back(self.token_chunk(at).into());
        }
        if self.ended() {
            if self.asked.include_usage || (self.asked.include_metrics && self.times.is_some()) {
                out.push_back(self.last_chunk().into());
            }
            out.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
        }
    }

    fn role_chunk(&self, index: usize) -> String {
        let mut usage = String::new();
        if self.asked.continuous_usage {
            usage.push_str(",\"usage\":");
            self.usage_so_far(&mut usage, index, 0);
        }
        let ids = if self.asked.return_token_ids { list(&self.asked.prompts[0]) } else { "null".into() };
        format!(
            "{}{{\"index\":{index},\"delta\":{{\"role\":\"assistant\",\"content\":\"\"}},\"logprobs\":null,\
             \"finish_reason\":null}}]{usage},\"prompt_token_ids\":{ids},\"prompt_text\":null}}\n\n",
            self.head
        )
    }

    /// The one chunk that most of a stream is made of, so it is written in one go.
    fn token_chunk(&mut self, at: usize) -> String {
        let choice = &mut self.choices[at];
        let mut unsent = std::mem::take(&mut choice.unsent);
        let before = choice.sent;
        choice.sent += unsent.len();
        let choice = &self.choices[at];
        let finish = choice.finish.map(|f| self.reason(f));
        let mut out = String::with_capacity(self.head.len() + 224 + 8 * unsent.len());
        out.push_str(&self.head);
        let _ = write!(out, "{{\"index\":{at},");
        match self.asked.kind {
            Kind::Chat => {
                out.push_str("\"delta\":");
                self.delta(&mut out, &unsent, before);
            }
            Kind::Text => {
                out.push_str("\"text\":");
                quote(&mut out, &unsent);
            }
        }
        out.push_str(",\"logprobs\":null,\"finish_reason\":");
        let _ = match finish {
            Some(reason) => write!(out, "\"{reason}\""),
            None => write!(out, "null"),
        };
        if self.asked.kind == Kind::Text {
            out.push_str(",\"stop_reason\":null,\"prompt_token_ids\":null");
        } else if finish.is_some() {
            out.push_str(",\"stop_reason\":null");
        }
        out.push_str(",\"token_ids\":");
        if self.asked.return_token_ids {
            out.push_str(&list(&unsent));
        } else {
            out.push_str("null");
        }
        out.push_str("}]");
        if self.asked.continuous_usage {
            out.push_str(",\"usage\":");
            self.usage_so_far(&mut out, at, choice.sent);
        }
        if self.ended() && !self.asked.include_usage {
            let _ = write!(out, ",\"system_fingerprint\":\"{}\"", self.fingerprint);
        }
        out.push_str("}\n\n");
        // Its room is used again.
        unsent.clear();
        self.choices[at].unsent = unsent;
        out
    }

    /// The part of a chat chunk that says what is new; `before` tokens have been sent.
    fn delta(&self, out: &mut String, unsent: &[u32], before: usize) {
        if let Some(name) = &self.asked.function {
            out.push_str("{\"tool_calls\":[{");
            if before == 0 {
                let id = self.id.trim_start_matches("chatcmpl-");
                let _ = write!(
                    out,
                    "\"id\":\"chatcmpl-tool-{id}\",\"type\":\"function\",\"index\":0,\
                     \"function\":{{\"name\":{},\"arguments\":",
                    quoted(name)
                );
            } else {
                out.push_str("\"index\":0,\"function\":{\"arguments\":");
            }
            quote(out, unsent);
            out.push_str("}}]}");
            return;
        }
        out.push_str(if before < self.reasoning { "{\"reasoning\":" } else { "{\"content\":" });
        quote(out, unsent);
        out.push('}');
    }

    fn last_chunk(&self) -> String {
        let usage = if self.asked.include_usage {
            let details = if self.details {
                format!(",\"prompt_tokens_details\":{{\"cached_tokens\":{},\"created_cache_tokens\":0}}", self.cached)
            } else {
                String::new()
            };
            let (prompt, completion) = self.sums();
            format!(
                ",\"usage\":{{\"prompt_tokens\":{prompt},\"total_tokens\":{},\"completion_tokens\":{completion}{details}}}",
                prompt + completion
            )
        } else {
            String::new()
        };
        let metrics = match self.times {
            Some(times) if self.asked.include_metrics => format!(",\"metrics\":{}", self.metrics(times)),
            _ => String::new(),
        };
        format!("{}]{usage},\"system_fingerprint\":\"{}\"{metrics}}}\n\n", self.head, self.fingerprint)
    }

    /// Usage of one choice after `sent` tokens, as continuous usage tells it.
    fn usage_so_far(&self, out: &mut String, at: usize, sent: usize) {
        let prompt = self.prompt_of(at);
        let details = if self.asked.kind == Kind::Chat { ",\"completion_tokens_details\":null" } else { "" };
        let _ = write!(
            out,
            "{{\"prompt_tokens\":{prompt},\"total_tokens\":{},\"completion_tokens\":{sent}{details}}}",
            prompt + sent
        );
    }

    fn prompt_of(&self, at: usize) -> usize {
        self.asked.prompts[at / self.asked.n].len()
    }

    /// Tokens of all prompts and of all answers.
    fn sums(&self) -> (usize, usize) {
        let prompt = self.asked.prompts.iter().map(Vec::len).sum();
        (prompt, self.choices.iter().map(|c| c.tokens.len()).sum())
    }

    fn metrics(&self, times: Times) -> Value {
        let generated = self.sums().1 as f64;
        let seconds = (times.first_ms + times.generation_ms) / 1e3;
        json!({
            "time_to_first_token_ms": times.first_ms,
            "generation_time_ms": times.generation_ms,
            "queue_time_ms": times.queue_ms,
            "mean_itl_ms": times.mean_itl_ms,
            "tokens_per_second": if seconds > 0.0 { json!(generated / seconds) } else { Value::Null },
        })
    }

    fn reason(&self, finish: Finish) -> &'static str {
        match finish {
            Finish::Abort => "abort",
            _ if self.asked.function.is_some() => "tool_calls",
            Finish::Stop => "stop",
            Finish::Length => "length",
        }
    }

    /// The body of an answer that is not streamed.
    pub(super) fn body(&self) -> Value {
        let chat = self.asked.kind == Kind::Chat;
        let choices: Vec<Value> = self
            .choices
            .iter()
            .enumerate()
            .map(|(index, choice)| {
                let reason = choice.finish.map(|f| self.reason(f));
                let ids = if self.asked.return_token_ids { json!(choice.tokens) } else { Value::Null };
                if chat {
                    json!({
                        "index": index,
                        "message": self.message(&choice.tokens),
                        "logprobs": null,
                        "finish_reason": reason,
                        "stop_reason": null,
                        "token_ids": ids,
                        "routed_experts": null,
                    })
                } else {
                    json!({
                        "index": index,
                        "text": text_of(&choice.tokens),
                        "logprobs": null,
                        "finish_reason": reason,
                        "stop_reason": null,
                        "token_ids": ids,
                        "prompt_logprobs": null,
                        "prompt_token_ids": null,
                        "routed_experts": null,
                    })
                }
            })
            .collect();
        let (prompt, completion) = self.sums();
        let details =
            if self.details { json!({"cached_tokens": self.cached, "created_cache_tokens": 0}) } else { Value::Null };
        let metrics = match self.times {
            Some(times) if self.asked.include_metrics => self.metrics(times),
            _ => Value::Null,
        };
        let usage = json!({
            "prompt_tokens": prompt,
            "total_tokens": prompt + completion,
            "completion_tokens": completion,
            "prompt_tokens_details": details,
            "completion_tokens_details": null,
        });
        let mut body = json!({
            "id": self.id,
            "object": if chat { "chat.completion" } else { "text_completion" },
            "created": self.created,
            "model": self.model,
            "choices": choices,
            "service_tier": null,
            "system_fingerprint": self.fingerprint,
            "usage": usage,
        });
        let rest = if chat {
            json!({"prompt_logprobs": null, "prompt_token_ids": null, "prompt_text": null, "kv_transfer_params": null,
                   "ec_transfer_params": null, "metrics": metrics})
        } else {
            json!({"kv_transfer_params": null, "metrics": metrics})
        };
        if let (Value::Object(body), Value::Object(rest)) = (&mut body, rest) {
            body.extend(rest);
        }
        body
    }

    fn message(&self, ids: &[u32]) -> Value {
        let (reasoning, content) = ids.split_at(self.reasoning.min(ids.len()));
        let reasoning = if reasoning.is_empty() { Value::Null } else { json!(text_of(reasoning)) };
        let mut message = json!({
            "role": "assistant",
            "content": text_of(content),
            "refusal": null,
            "annotations": null,
            "audio": null,
            "function_call": null,
            "reasoning": reasoning,
        });
        if let Some(name) = &self.asked.function {
            message["content"] = Value::Null;
            message["tool_calls"] = json!([{
                "id": format!("chatcmpl-tool-{}", self.id.trim_start_matches("chatcmpl-")),
                "type": "function",
                "function": {"name": name, "arguments": text_of(ids)},
            }]);
        }
        message
    }
}

/// Text of an answer; the token that ends it has none.
fn text_of(ids: &[u32]) -> String {
    let mut text = String::with_capacity(8 * ids.len());
    for id in ids.iter().filter(|id| **id != tokens::IM_END) {
        tokens::decode_into(&mut text, *id);
    }
    text
}

/// Appends the text of an answer's tokens as a JSON string.
fn quote(out: &mut String, ids: &[u32]) {
    out.push('"');
    // No token has a text that JSON would escape.
    for id in ids.iter().filter(|id| **id != tokens::IM_END) {
        tokens::decode_into(out, *id);
    }
    out.push('"');
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn list(ids: &[u32]) -> String {
    let items: Vec<String> = ids.iter().map(u32::to_string).collect();
    format!("[{}]", items.join(","))
}
