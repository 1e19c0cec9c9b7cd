//! What the client saw in one step. Only what had happened by the window's end counts, so that
//! the verdict of a step is the same while the run goes on and afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::request::{Outcome, RequestTimeline};
use crate::model::step::{Load, StepSpan};
use crate::model::time::Span;
use crate::model::verdict::{Achieved, Caveat, ClientStats, Failed, Offered, Requests, Slo, WorkloadSummary};

use super::quantiles::{quantiles, spread};

/// Fewest samples on which a 99th percentile is printed without a caveat.
const FEW: u64 = 100;
/// Largest deviation from Little's law of a step that counts as steady.
const STEADY: f64 = 0.1;

/// The client's side of one step.
pub struct ClientSide {
    /// Requests by how they ended.
    pub requests: Requests,
    /// What was asked of the generator.
    pub offered: Offered,
    /// What it did.
    pub achieved: Achieved,
    /// Latencies and rates.
    pub stats: ClientStats,
    /// Mean in flight against rate × latency.
    pub littles_law_residual: Option<f64>,
    /// What is doubtful.
    pub caveats: Vec<Caveat>,
}

/// Measures one step from the requests of the whole run.
pub fn measure(requests: &[RequestTimeline], step: &StepSpan, slo: &Slo) -> ClientSide {
    let window = step.measured;
    let seconds = window.len().as_secs_f64();
    let per_s = |count: f64| (seconds > 0.0).then(|| count / seconds);
    let mut counted = Requests::default();
    let mut by_class: BTreeMap<String, u64> = BTreeMap::new();
    let (mut ttft, mut gaps, mut itl) = (Vec::new(), Vec::new(), Vec::new());
    let (mut tpot, mut e2e, mut worst) = (Vec::new(), Vec::new(), Vec::new());
    let (mut output_tokens, mut prompt_tokens, mut good) = (0.0, 0.0, 0u64);
    let mut in_flight = Duration::ZERO;
    let (mut ended_in_window, mut latency_sum) = (0u64, 0.0);
    let (mut coalesced, mut with_gaps) = (0u64, 0u64);

    for r in requests.iter().filter(|r| r.sent < window.end && r.finished > window.start) {
        let over = r.finished < window.end;
        let failed = over && matches!(r.outcome, Outcome::Failed { .. });
        in_flight += Span::new(r.sent.max(window.start), r.finished.min(window.end)).len();
        if over && r.completed() {
            ended_in_window += 1;
            latency_sum += r.finished.since(r.sent).as_secs_f64();
        }
        if !failed {
            let seen = r.chunks_by(window.end);
            if seen.len() > 1 && seen.last().is_some_and(|c| window.contains(c.at)) {
                with_gaps += 1;
                coalesced += u64::from(r.coalesced_by(window.end));
            }
            gaps.extend(r.gaps_in(window).map(|d| d.as_secs_f64()));
            itl.extend(r.itl_in(window).into_iter().flatten().map(|d| d.as_secs_f64()));
            output_tokens += tokens_in(r, window);
            if r.first_token().is_some_and(|t| window.contains(t)) {
                prompt_tokens += f64::from(r.usage.prompt_tokens.or(r.asked_prompt_tokens).unwrap_or(0));
            }
        }
        if !window.contains(r.began()) {
            continue;
        }
        counted.sent += 1;
        let first = r.first_token().filter(|t| *t < window.end);
        if let (true, Outcome::Failed { class, .. }) = (over, &r.outcome) {
            counted.failed.total += 1;
            *by_class.entry(class.as_str().to_owned()).or_default() += 1;
            continue;
        }
        match first {
            Some(t) => ttft.push(t.since(r.began()).as_secs_f64()),
            None => counted.censored += u64::from(!over),
        }
        if !over || matches!(r.outcome, Outcome::Cut | Outcome::InFlight) {
            counted.in_flight_at_end += 1;
            continue;
        }
        counted.completed += 1;
        e2e.extend(r.e2e().map(|d| d.as_secs_f64()));
        let per_token = r.tpot().map(|d| d.as_secs_f64());
        tpot.extend(per_token);
        worst.extend(r.gaps().max().map(|d| d.as_secs_f64()));
        let in_time = r.ttft().is_some_and(|d| d.as_secs_f64() <= slo.ttft_p99_s);
        good += u64::from(in_time && per_token.is_none_or(|t| t <= slo.itl_p99_s));
    }
    counted.failed = Failed { total: counted.failed.total, by_class };

    let ended = counted.completed + counted.failed.total;
    let mean_in_flight = per_s(in_flight.as_secs_f64());
    let littles_law_residual = mean_in_flight.filter(|&l| l > 0.0 && ended_in_window > 0).map(|l| {
        // rate × mean latency is the latencies' sum over the window's length.
        (l - latency_sum / seconds) / l
    });
    // Most are opened before the window, while workers are added.
    let of_step = requests.iter().filter(|r| r.step == step.step && r.sent < window.end);
    let connects: Vec<f64> = of_step.filter_map(|r| r.connect).map(|d| d.as_secs_f64()).collect();
    let stats = ClientStats {
        ttft_s: quantiles(ttft),
        gap_s: quantiles(gaps),
        itl_s: quantiles(itl),
        tpot_s: quantiles(tpot),
        e2e_s: quantiles(e2e),
        worst_gap_s: quantiles(worst),
        connect_s: (!connects.is_empty()).then(|| quantiles(connects)),
        output_tokens_per_s: per_s(output_tokens),
        prompt_tokens_per_s: per_s(prompt_tokens),
        goodput_per_s: per_s(good as f64),
        error_rate_ratio: (ended > 0).then(|| counted.failed.total as f64 / ended as f64),
    };
    let caveats = caveats(&counted, &stats, littles_law_residual, coalesced, with_gaps);
    ClientSide {
        offered: Offered {
            concurrency: match step.load {
                Load::Concurrency(c) => Some(c),
                Load::Rate(_) => None,
            },
            requests_per_s: match step.load {
                Load::Concurrency(_) => None,
                Load::Rate(r) => Some(r),
            },
        },
        achieved: Achieved {
            mean_in_flight,
            requests_per_s: per_s(counted.sent as f64),
            completed_per_s: per_s(ended_in_window as f64),
        },
        requests: counted,
        stats,
        littles_law_residual,
        caveats,
    }
}

/// Prompt and answer lengths as the server counted them, over the whole run.
pub fn workload(kind: &str, requests: &[RequestTimeline]) -> WorkloadSummary {
    let done = || requests.iter().filter(|r| r.completed());
    WorkloadSummary {
        kind: kind.to_owned(),
        prompt_tokens: spread(done().filter_map(|r| r.usage.prompt_tokens).map(f64::from)),
        output_tokens: spread(done().map(|r| f64::from(r.output_tokens()))),
    }
}

/// Output tokens that arrived in the window: by the running count, else the answer's tokens spread
/// evenly over its chunks, else one a chunk.
fn tokens_in(r: &RequestTimeline, window: Span) -> f64 {
    let each = match r.usage.completion_tokens {
        Some(n) if !r.chunks.is_empty() => f64::from(n) / r.chunks.len() as f64,
        _ => 1.0,
    };
    let mut before = 0;
    let mut tokens = 0.0;
    for chunk in r.chunks_by(window.end) {
        let here = match chunk.running_tokens {
            Some(now) => f64::from(now.saturating_sub(before)),
            None => each,
        };
        before = chunk.running_tokens.unwrap_or(before);
        if window.contains(chunk.at) {
            tokens += here;
        }
    }
    tokens
}

fn caveats(
    requests: &Requests,
    stats: &ClientStats,
    residual: Option<f64>,
    coalesced: u64,
    with_gaps: u64,
) -> Vec<Caveat> {
    let mut out = Vec::new();
    if stats.ttft_s.n < FEW {
        out.push(Caveat::new(
            "p99_few_samples",
            format!("the TTFT P99 rests on {} requests", stats.ttft_s.n),
            "hold the step longer: 100 requests are the least for a P99",
        ));
    }
    if requests.censored > 0 {
        out.push(Caveat::new(
            "censored_requests",
            format!(
                "{} of {} requests had no first token when the step ended; the TTFT percentiles lack them",
                requests.censored, requests.sent
            ),
            "read the TTFT percentiles as lower bounds, or hold the step longer",
        ));
    }
    if let Some(residual) = residual.filter(|r| r.abs() > STEADY) {
        out.push(Caveat::new(
            "not_steady",
            format!("requests in flight differ by {:.0} % from rate x latency", residual * 100.0),
            "the step was not steady: warm up or hold longer",
        ));
    }
    if coalesced * 20 > with_gaps {
        out.push(Caveat::new(
            "coalesced_reads",
            format!("{coalesced} of {with_gaps} answers had several chunks in one read; they give no ITL"),
            "look for a buffering proxy, or for a client that is too busy",
        ));
    }
    out
}
