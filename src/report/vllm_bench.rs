//! One step under the flat keys that `vllm bench serve` writes, which most scripts parse.
//!
//! Its aggregates are in ms and its arrays in s. What the verdict does not hold comes from the
//! step's requests, where they are at hand; what neither holds is `null`, never left out.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::model::recording::Recording;
use crate::model::request::{Outcome, RequestTimeline};
use crate::model::step::Load;
use crate::model::time::Span;
use crate::model::verdict::{Quantiles, StepVerdict, Verdict};

/// The requests that were sent in a step's measured window, as `--save-detailed` lists them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Requests {
    /// Prompt tokens of each request, 0 where the server did not say.
    pub input_lens: Vec<u32>,
    /// Output tokens of each request, 0 for a failed one.
    pub output_lens: Vec<u32>,
    /// Time to first token of each, s; 0 for a failed one.
    pub ttfts: Vec<f64>,
    /// Gaps of each, s.
    pub itls: Vec<Vec<f64>>,
    /// Time per output token of each completed request of two tokens and more, s.
    pub tpots: Vec<f64>,
    /// End-to-end latency of each, s; 0 for a failed one.
    pub latencies: Vec<f64>,
    /// When each was sent, s since the start of the run.
    pub start_times: Vec<f64>,
    /// How long each waited in the client, s: from when it was due to when it was sent; 0 in a closed loop.
    pub queue_times: Vec<f64>,
    /// Why each failed; empty for a completed one.
    pub errors: Vec<String>,
    /// When the step began to be measured, as `20261201-102524` in UTC.
    pub date: Option<String>,
    /// Most output tokens that arrived in any second of the window.
    pub peak_tokens_per_s: Option<f64>,
}

impl Requests {
    /// Those of one step: sent while it was measured, and ended in one way or the other.
    pub fn of(recording: &Recording, step: u32) -> Requests {
        let mut out = Requests::default();
        let Some(span) = recording.steps.iter().find(|s| s.step == step).map(|s| s.measured) else { return out };
        out.date = jiff::Timestamp::from_millisecond(recording.unix_ms(span.start))
            .ok()
            .map(|t| t.strftime("%Y%m%d-%H%M%S").to_string());
        out.peak_tokens_per_s = peak(&recording.requests, span);
        for r in recording.requests.iter().filter(|r| span.contains(r.began())) {
            match &r.outcome {
                Outcome::Completed => out.push(r, String::new()),
                Outcome::Failed { class, detail, .. } => out.push(r, format!("{}: {detail}", class.as_str())),
                Outcome::Cut | Outcome::InFlight => {}
            }
        }
        out
    }

    fn push(&mut self, r: &RequestTimeline, error: String) {
        let ok = error.is_empty();
        self.input_lens.push(r.usage.prompt_tokens.unwrap_or(0));
        self.output_lens.push(if ok { r.output_tokens() } else { 0 });
        self.ttfts.push(r.ttft().filter(|_| ok).map_or(0.0, |d| d.as_secs_f64()));
        self.itls.push(if ok { r.gaps().map(|d| d.as_secs_f64()).collect() } else { Vec::new() });
        self.tpots.extend(r.tpot().map(|d| d.as_secs_f64()));
        self.latencies.push(r.e2e().map_or(0.0, |d| d.as_secs_f64()));
        self.start_times.push(r.sent.as_secs_f64());
        self.queue_times.push(r.sent.since(r.began()).as_secs_f64());
        self.errors.push(error);
    }

    /// The values of `all` that belong to completed requests.
    fn completed<T: Clone>(&self, all: &[T]) -> Vec<T> {
        all.iter().zip(&self.errors).filter(|(_, e)| e.is_empty()).map(|(x, _)| x.clone()).collect()
    }
}

/// Writes one step. Without `requests`, totals that need them are reckoned from rates, and
/// standard deviations are `null`. `detailed` adds the arrays; the answers' text is never kept.
///
/// # Errors
/// If the writer fails.
pub fn write(
    verdict: &Verdict,
    step: &StepVerdict,
    requests: Option<&Requests>,
    detail: Detail,
    out: &mut dyn Write,
) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Value::Object(object(verdict, step, requests, detail)))?;
    out.write_all(b"\n")
}

/// How much is written of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Settings and aggregates.
    Aggregates,
    /// The arrays too, as `--save-detailed` writes them.
    Arrays,
}

fn object(v: &Verdict, s: &StepVerdict, requests: Option<&Requests>, detail: Detail) -> Map<String, Value> {
    let mut m = Map::new();
    let mut put = |key: &str, value: Value| {
        m.insert(key.into(), value);
    };
    let duration = s.measured_s[1] - s.measured_s[0];
    let (input, output) = totals(s, requests, duration);
    let per_s = |x: Option<u64>| x.filter(|_| duration > 0.0).map(|x| x as f64 / duration);

    put("date", json!(requests.and_then(|r| r.date.as_ref())));
    // The older name of the next, which vLLM keeps for scripts.
    put("endpoint_type", json!("openai-chat"));
    put("backend", json!("openai-chat"));
    put("label", json!(v.scenario));
    put("model_id", json!(v.target.model));
    put("tokenizer_id", json!(v.target.model));
    put("num_prompts", json!(s.requests.sent));
    put(
        "request_rate",
        match s.load {
            // Python's `json` writes the string for a closed loop, which sends as fast as it may.
            Load::Concurrency(_) => json!("inf"),
            Load::Rate(r) => json!(r),
        },
    );
    put("burstiness", json!(1.0));
    put(
        "max_concurrency",
        match s.load {
            Load::Concurrency(c) => json!(c),
            Load::Rate(_) => Value::Null,
        },
    );
    // What we add stands under its own prefix, as `--metadata` pairs would.
    put("plimsoll_step", json!(s.step));
    put("plimsoll_outcome", json!(s.outcome));
    put("duration", json!(duration));
    put("completed", json!(s.requests.completed));
    put("failed", json!(s.requests.failed.total));
    put("total_input_tokens", json!(input));
    put("total_output_tokens", json!(output));
    put("request_throughput", json!(s.achieved.completed_per_s));
    put("request_goodput", json!(s.client.goodput_per_s));
    put("output_throughput", json!(per_s(output).or(s.client.output_tokens_per_s)));
    put("total_token_throughput", json!(input.zip(output).and_then(|(i, o)| per_s(Some(i + o)))));
    if let (Detail::Arrays, Some(r)) = (detail, requests) {
        put("input_lens", json!(r.input_lens));
        put("output_lens", json!(r.output_lens));
        put("ttfts", json!(r.ttfts));
        put("itls", json!(r.itls));
        put("latencies", json!(r.latencies));
        put("start_times", json!(r.start_times));
        put("queue_times", json!(r.queue_times));
        // What was answered is never kept.
        put("generated_texts", json!(vec![""; r.errors.len()]));
        put("errors", json!(r.errors));
    }
    put("max_output_tokens_per_s", json!(requests.and_then(|r| r.peak_tokens_per_s)));
    put("max_concurrent_requests", json!(s.offered.concurrency));
    put("rtfx", json!(0.0));
    let itls = requests.map(|r| r.itls.iter().flatten().copied().collect::<Vec<f64>>());
    let samples = [
        ("ttft", &s.client.ttft_s, requests.map(|r| r.completed(&r.ttfts))),
        ("tpot", &s.client.tpot_s, requests.map(|r| r.tpots.clone())),
        ("itl", &s.client.gap_s, itls),
        ("e2el", &s.client.e2e_s, requests.map(|r| r.completed(&r.latencies))),
    ];
    for (name, q, samples) in samples {
        let std = samples.and_then(|x| standard_deviation(&x));
        latencies(&mut m, name, q, std);
    }
    m
}

/// Most output tokens in any of the whole seconds of a window; `None` in a window of less than one.
fn peak(requests: &[RequestTimeline], window: Span) -> Option<f64> {
    let mut seconds = vec![0.0_f64; window.len().as_secs() as usize];
    for r in requests.iter().filter(|r| r.completed()) {
        let each = f64::from(r.output_tokens()) / r.chunks.len().max(1) as f64;
        for chunk in r.chunks.iter().filter(|c| window.contains(c.at)) {
            if let Some(second) = seconds.get_mut(chunk.at.since(window.start).as_secs() as usize) {
                *second += each;
            }
        }
    }
    seconds.into_iter().max_by(f64::total_cmp)
}

fn latencies(m: &mut Map<String, Value>, name: &str, q: &Quantiles, std_s: Option<f64>) {
    for (part, x) in
        [("mean", q.mean), ("median", q.p50), ("std", std_s), ("p50", q.p50), ("p90", q.p90), ("p99", q.p99)]
    {
        m.insert(format!("{part}_{name}_ms"), json!(x.map(|x| x * 1e3)));
    }
}

/// Tokens in and out over the step's completed requests.
fn totals(s: &StepVerdict, requests: Option<&Requests>, duration: f64) -> (Option<u64>, Option<u64>) {
    let sum = |x: &[u32]| x.iter().map(|n| u64::from(*n)).sum::<u64>();
    match requests {
        Some(r) => (Some(sum(&r.completed(&r.input_lens))), Some(sum(&r.output_lens))),
        None => {
            let tokens = |rate: Option<f64>| rate.map(|x| (x * duration).round() as u64);
            (tokens(s.client.prompt_tokens_per_s), tokens(s.client.output_tokens_per_s))
        }
    }
}

/// numpy's: over n, not n − 1. `None` without samples.
fn standard_deviation(samples: &[f64]) -> Option<f64> {
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n;
    let variance = samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    (!samples.is_empty()).then(|| variance.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviation_is_numpys() {
        assert_eq!(standard_deviation(&[1.0, 2.0, 3.0, 4.0]), Some(1.25_f64.sqrt()));
        assert_eq!(standard_deviation(&[]), None);
    }
}
