//! One request as the client saw it. Latencies are *derived* from the stamps, never stored.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::time::{Offset, Span};

/// A chunk that carried output: content, reasoning, or a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenChunk {
    /// When the read that completed the chunk's event returned.
    pub at: Offset,
    /// Completion tokens so far, where the server keeps a running count
    /// (`continuous_usage_stats`); `None` where it does not.
    pub running_tokens: Option<u32>,
}

/// Token counts as the server stated them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// `usage.prompt_tokens`.
    pub prompt_tokens: Option<u32>,
    /// `usage.completion_tokens`.
    pub completion_tokens: Option<u32>,
    /// `usage.prompt_tokens_details.cached_tokens`.
    pub cached_tokens: Option<u32>,
}

/// What vLLM says of one request when it runs with `--enable-per-request-metrics`; seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerTimings {
    /// Wait in the scheduler's queue, s.
    pub queue_s: Option<f64>,
    /// Time to first token as the server measured it, s.
    pub ttft_s: Option<f64>,
    /// Mean inter-token latency of this request, s.
    pub mean_itl_s: Option<f64>,
}

/// Why a request failed: one class for each thing a user would do differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// No connection: refused, unreachable, TLS, or the connect time-out.
    Connect,
    /// 401 or 403.
    Auth,
    /// 429.
    RateLimited,
    /// 503: the server's queue is capped, or it is shutting down.
    Unavailable,
    /// Any other status outside 2xx.
    HttpStatus,
    /// The connection was reset while the answer was on its way.
    ConnectionReset,
    /// Nothing arrived for longer than the idle or first-token time-out.
    StallTimeout,
    /// A 2xx stream that carried an error object.
    ErrorInStream,
    /// The stream ended with neither a finish reason nor `[DONE]`, or its body was cut.
    Truncated,
    /// `finish_reason` was `abort` or `error`: a server that shuts down answers so.
    Aborted,
    /// A complete answer with no output at all.
    EmptyOutput,
    /// One JSON object where a stream was asked for.
    NotStreamed,
    /// The answer could not be understood.
    Protocol,
}

impl FailureClass {
    /// The class as it stands in the recording, the verdict and metric labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            FailureClass::Connect => "connect",
            FailureClass::Auth => "auth",
            FailureClass::RateLimited => "rate_limited",
            FailureClass::Unavailable => "unavailable",
            FailureClass::HttpStatus => "http_status",
            FailureClass::ConnectionReset => "connection_reset",
            FailureClass::StallTimeout => "stall_timeout",
            FailureClass::ErrorInStream => "error_in_stream",
            FailureClass::Truncated => "truncated",
            FailureClass::Aborted => "aborted",
            FailureClass::EmptyOutput => "empty_output",
            FailureClass::NotStreamed => "not_streamed",
            FailureClass::Protocol => "protocol",
        }
    }
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A whole answer.
    Completed,
    /// No whole answer, and why.
    Failed {
        /// The class it is counted under.
        class: FailureClass,
        /// HTTP status, where there was one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        /// The server's words or the system's error, cut to a line.
        detail: String,
    },
    /// We ended it: the run was over, or interrupted.
    Cut,
    /// Not over when the recording was looked at; never written to disk.
    InFlight,
}

/// Every stamp of one request, and what was said about its tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestTimeline {
    /// Number of the step that sent it, from 0.
    pub step: u32,
    /// Index of the request in its run, from 0; with the seed it fixes prompt and lengths.
    pub index: u64,
    /// When an open loop wanted it sent; `None` in a closed loop.
    pub due: Option<Offset>,
    /// Start of the write of the request.
    pub sent: Offset,
    /// Time that opening the connection took, if one was opened for this request.
    pub connect: Option<Duration>,
    /// When the response's status line was in.
    pub headers: Option<Offset>,
    /// First byte of the body.
    pub first_byte: Option<Offset>,
    /// First event that parsed as a chunk, be it only the role.
    pub first_chunk: Option<Offset>,
    /// First chunk with visible answer text (`content`), where reasoning came before it.
    pub first_answer: Option<Offset>,
    /// Each chunk that carried output, in order of arrival.
    pub chunks: Vec<TokenChunk>,
    /// End of the body, or the instant of failure.
    pub finished: Offset,
    /// `finish_reason` as the server wrote it.
    pub finish_reason: Option<String>,
    /// Token counts as the server stated them.
    pub usage: Usage,
    /// What the server timed itself, if it told.
    pub server: Option<ServerTimings>,
    /// Prompt length that was aimed at, tokens of the chat-templated prompt.
    pub asked_prompt_tokens: Option<u32>,
    /// `max_tokens` of the request.
    pub asked_output_tokens: Option<u32>,
    /// How it ended.
    pub outcome: Outcome,
}

impl RequestTimeline {
    /// A request of which nothing is known yet but its index.
    pub fn blank(index: u64) -> RequestTimeline {
        RequestTimeline {
            step: 0,
            index,
            due: None,
            sent: Offset::ZERO,
            connect: None,
            headers: None,
            first_byte: None,
            first_chunk: None,
            first_answer: None,
            chunks: Vec::new(),
            finished: Offset::ZERO,
            finish_reason: None,
            usage: Usage::default(),
            server: None,
            asked_prompt_tokens: None,
            asked_output_tokens: None,
            outcome: Outcome::InFlight,
        }
    }

    /// First chunk that carried output.
    pub fn first_token(&self) -> Option<Offset> {
        self.chunks.first().map(|c| c.at)
    }

    /// Last chunk that carried output.
    pub fn last_token(&self) -> Option<Offset> {
        self.chunks.last().map(|c| c.at)
    }

    /// The instant latencies count from: due in an open loop, sent in a closed one.
    pub fn began(&self) -> Offset {
        self.due.unwrap_or(self.sent)
    }

    /// Time to first token as the user felt it. `None` if no token arrived.
    pub fn ttft(&self) -> Option<Duration> {
        self.first_token().map(|t| t.since(self.began()))
    }

    /// Time from the start to the end of the answer, for completed requests.
    pub fn e2e(&self) -> Option<Duration> {
        matches!(self.outcome, Outcome::Completed).then(|| self.finished.since(self.began()))
    }

    /// Completion tokens: from usage where stated, else the running count, else one a chunk.
    pub fn output_tokens(&self) -> u32 {
        self.usage
            .completion_tokens
            .or_else(|| self.chunks.last().and_then(|c| c.running_tokens))
            .unwrap_or_else(|| u32::try_from(self.chunks.len()).unwrap_or(u32::MAX))
    }

    /// Times between consecutive chunks that carried output.
    pub fn gaps(&self) -> impl Iterator<Item = Duration> + '_ {
        self.gaps_in(Span::new(Offset::ZERO, Offset(u64::MAX)))
    }

    /// Those of them that ended in `window`.
    pub fn gaps_in(&self, window: Span) -> impl Iterator<Item = Duration> + '_ {
        self.gaps_at(window).map(|(_, gap)| gap)
    }

    /// The same with when each ended.
    pub fn gaps_at(&self, window: Span) -> impl Iterator<Item = (Offset, Duration)> + '_ {
        let seen = self.chunks_by(window.end);
        let before = seen.partition_point(|c| c.at < window.start);
        seen[before.saturating_sub(1)..].windows(2).map(|w| (w[1].at, w[1].at.since(w[0].at)))
    }

    /// Whether two chunks came out of one read, so that the gap between them is the transport's and not the server's.
    pub fn coalesced(&self) -> bool {
        self.coalesced_by(Offset(u64::MAX))
    }

    /// The same of the chunks that had come before `end`.
    pub fn coalesced_by(&self, end: Offset) -> bool {
        self.chunks_by(end).windows(2).any(|w| w[0].at == w[1].at)
    }

    /// The chunks that had come before `end`.
    pub fn chunks_by(&self, end: Offset) -> &[TokenChunk] {
        &self.chunks[..self.chunks.partition_point(|c| c.at < end)]
    }

    /// Whether the whole answer came out of one read: something on the way holds streams back.
    pub fn buffered(&self) -> bool {
        self.chunks.len() > 1 && self.first_token() == self.last_token()
    }

    /// Whether the server stated more or fewer tokens than there were chunks with output.
    pub fn tokens_differ_from_chunks(&self) -> bool {
        self.usage.completion_tokens.is_some_and(|n| usize::try_from(n) != Ok(self.chunks.len()))
    }

    /// Time of every token after those of the first chunk: a gap spread over the growth of the running count, or the gaps
    /// themselves where tokens equal chunks. `None` where neither holds, where no token came, or where reads were coalesced.
    pub fn itl(&self) -> Option<Vec<Duration>> {
        self.itl_in(Span::new(Offset::ZERO, Offset(u64::MAX)))
    }

    /// The same of the tokens that arrived in `window`. Chunks from after it are unknown to it, so the
    /// answer is the same while the request goes on; but whether tokens equal chunks may only be known at its end.
    pub fn itl_in(&self, window: Span) -> Option<Vec<Duration>> {
        Some(self.itl_at(window)?.into_iter().map(|(_, each)| each).collect())
    }

    /// The same with when each token arrived.
    pub fn itl_at(&self, window: Span) -> Option<Vec<(Offset, Duration)>> {
        let seen = self.chunks_by(window.end);
        if seen.is_empty() || self.coalesced_by(window.end) {
            return None;
        }
        let counted = seen.iter().all(|c| c.running_tokens.is_some()) && seen.is_sorted_by_key(|c| c.running_tokens);
        // An answer without usage is counted by its chunks, once it is whole.
        let one_each = match self.usage.completion_tokens {
            Some(n) => usize::try_from(n) == Ok(self.chunks.len()),
            None => self.completed(),
        };
        if !counted && !one_each {
            return None;
        }
        let mut each = Vec::new();
        // A chunk that added no token lends its time to the next one that does.
        let mut since = seen[0].at;
        for pair in seen.windows(2) {
            let grown = match (counted, pair[0].running_tokens, pair[1].running_tokens) {
                (true, Some(before), Some(now)) => now - before,
                _ => 1,
            };
            if grown == 0 {
                continue;
            }
            if window.contains(pair[1].at) {
                let waited = pair[1].at.since(since);
                match grown {
                    1 => each.push((pair[1].at, waited)),
                    n => each.extend(std::iter::repeat_n((pair[1].at, waited / n), n as usize)),
                }
            }
            since = pair[1].at;
        }
        Some(each)
    }

    /// Time per output token after the first: (last − first)/(n − 1). `None` below two tokens.
    pub fn tpot(&self) -> Option<Duration> {
        let n = self.output_tokens();
        let (first, last) = (self.first_token()?, self.last_token()?);
        (n >= 2 && matches!(self.outcome, Outcome::Completed)).then(|| last.since(first) / (n - 1))
    }

    /// Whether a whole answer came.
    pub fn completed(&self) -> bool {
        matches!(self.outcome, Outcome::Completed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request with chunks at these ms and these running counts, and what usage said.
    fn answer(chunks: &[(u64, Option<u32>)], completion_tokens: Option<u32>, outcome: Outcome) -> RequestTimeline {
        let chunk =
            |&(ms, running_tokens): &(u64, Option<u32>)| TokenChunk { at: Offset::from_millis(ms), running_tokens };
        RequestTimeline {
            chunks: chunks.iter().map(chunk).collect(),
            finished: Offset::from_millis(10_000),
            usage: Usage { completion_tokens, ..Usage::default() },
            outcome,
            ..RequestTimeline::blank(0)
        }
    }

    fn itl_ms(r: &RequestTimeline, from_ms: u64, to_ms: u64) -> Option<Vec<u128>> {
        let window = Span::new(Offset::from_millis(from_ms), Offset::from_millis(to_ms));
        Some(r.itl_in(window)?.into_iter().map(|d| d.as_millis()).collect())
    }

    #[test]
    fn times_per_token_spread_a_gap_over_what_the_count_grew() {
        let running = [(100, Some(1)), (140, Some(1)), (180, Some(3)), (200, Some(4)), (260, Some(6))];
        let r = answer(&running, Some(6), Outcome::Completed);
        // The chunk at 140 ms added nothing, so its time goes to the tokens of the next one.
        assert_eq!(itl_ms(&r, 0, 1_000), Some(vec![40, 40, 20, 30, 30]));
        // A token belongs to the window in which it arrived, however long it was waited for.
        assert_eq!(itl_ms(&r, 150, 250), Some(vec![40, 40, 20]));
        // What comes after the window changes nothing in it.
        let going_on = answer(&running[..4], None, Outcome::InFlight);
        assert_eq!(itl_ms(&going_on, 150, 250), itl_ms(&r, 150, 250));
    }

    #[test]
    fn chunks_are_tokens_only_where_usage_agrees_or_is_silent_on_a_whole_answer() {
        let bare = [(100, None), (150, None), (210, None)];
        assert_eq!(itl_ms(&answer(&bare, Some(3), Outcome::Completed), 0, 1_000), Some(vec![50, 60]));
        assert_eq!(itl_ms(&answer(&bare, Some(3), Outcome::Completed), 160, 1_000), Some(vec![60]));
        assert_eq!(itl_ms(&answer(&bare, None, Outcome::Completed), 0, 1_000), Some(vec![50, 60]));
        assert_eq!(itl_ms(&answer(&bare, None, Outcome::InFlight), 0, 1_000), None);
        assert_eq!(itl_ms(&answer(&bare, Some(7), Outcome::Completed), 0, 1_000), None);
        // A count that falls tells nothing.
        let falls = [(100, Some(2)), (150, Some(1)), (210, Some(5))];
        assert_eq!(itl_ms(&answer(&falls, Some(5), Outcome::Completed), 0, 1_000), None);
    }

    #[test]
    fn chunks_of_one_read_have_no_time_per_token_and_do_have_gaps() {
        let merged = [(100, Some(1)), (150, Some(2)), (150, Some(3)), (210, Some(4))];
        let r = answer(&merged, Some(4), Outcome::Completed);
        assert_eq!(itl_ms(&r, 0, 1_000), None);
        // Before the shared read nothing was merged yet.
        assert_eq!(itl_ms(&r, 0, 150), Some(vec![]));
        let gaps = |from, to| -> Vec<u128> {
            let window = Span::new(Offset::from_millis(from), Offset::from_millis(to));
            r.gaps_in(window).map(|d| d.as_millis()).collect()
        };
        assert_eq!((gaps(0, 1_000), gaps(150, 210), gaps(151, 1_000)), (vec![50, 0, 60], vec![50, 0], vec![60]));
        assert_eq!((gaps(0, 100), gaps(0, 101), gaps(300, 400)), (vec![], vec![], vec![]));
    }
}
