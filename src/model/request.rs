//! One request as the client saw it. Latencies are *derived* from the stamps, never stored.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::time::Offset;

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
        self.chunks.windows(2).map(|w| w[1].at.since(w[0].at))
    }

    /// Whether two chunks came out of one read, so that the gap between them is the transport's and not the server's.
    pub fn coalesced(&self) -> bool {
        self.chunks.windows(2).any(|w| w[0].at == w[1].at)
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
        if self.chunks.is_empty() || self.coalesced() {
            return None;
        }
        let running: Option<Vec<u32>> = self.chunks.iter().map(|c| c.running_tokens).collect();
        match running {
            Some(running) if self.tokens_differ_from_chunks() || running.first() != Some(&1) => {
                let mut each = Vec::new();
                let mut waited = Duration::ZERO;
                for (gap, counts) in self.gaps().zip(running.windows(2)) {
                    waited += gap;
                    // A chunk that added no token lends its time to the next one.
                    let grown = counts[1].checked_sub(counts[0])?;
                    if grown > 0 {
                        each.extend(std::iter::repeat_n(waited / grown, grown as usize));
                        waited = Duration::ZERO;
                    }
                }
                Some(each)
            }
            _ if self.tokens_differ_from_chunks() => None,
            _ => Some(self.gaps().collect()),
        }
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
