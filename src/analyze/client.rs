//! What the client saw in one step. Only what had happened by the window's end counts, so that
//! the verdict of a step is the same while the run goes on and afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::request::{Outcome, RequestTimeline};
use crate::model::step::{Load, StepSpan};
use crate::model::time::{Offset, Span};
use crate::model::verdict::{Achieved, Caveat, ClientStats, Failed, Offered, Requests, Slo, WorkloadSummary};

use super::noise;
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
    /// What they were made from.
    pub samples: Samples,
    /// Mean in flight against rate × latency.
    pub littles_law_residual: Option<f64>,
    /// What is doubtful.
    pub caveats: Vec<Caveat>,
}

/// What the statistics of a step are made from; of several steps of one level too.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// The measured windows, in order.
    pub windows: Vec<Span>,
    /// Times to first token with when their request began, s.
    pub ttft: Vec<(Offset, f64)>,
    /// Gaps with when they ended, s.
    pub gaps: Vec<(Offset, f64)>,
    /// Times per token with when they ended, s.
    pub itl: Vec<(Offset, f64)>,
    /// Times per output token of whole requests with when they began, s.
    pub tpot: Vec<(Offset, f64)>,
    /// End-to-end times with when their request began, s.
    pub e2e: Vec<(Offset, f64)>,
    /// Worst gap of each request, s.
    pub worst_gap: Vec<f64>,
    /// Times that opening a connection took, s.
    pub connects: Vec<f64>,
    /// Output tokens with when they arrived.
    pub output_tokens: Vec<(Offset, f64)>,
    /// Prompt tokens of requests whose first token arrived, with when.
    pub prompt_tokens: Vec<(Offset, f64)>,
    /// One for each request that met every target, with when it began.
    pub good: Vec<(Offset, f64)>,
    /// Whole answers.
    pub completed: u64,
    /// Failures.
    pub failed: u64,
    /// Whether streams keep step with each other ([`in_step`]).
    pub in_step: bool,
}

impl Samples {
    /// Takes in another step of the same level.
    pub fn append(&mut self, mut other: Samples) {
        self.windows.append(&mut other.windows);
        self.ttft.append(&mut other.ttft);
        self.gaps.append(&mut other.gaps);
        self.itl.append(&mut other.itl);
        self.tpot.append(&mut other.tpot);
        self.e2e.append(&mut other.e2e);
        self.worst_gap.append(&mut other.worst_gap);
        self.connects.append(&mut other.connects);
        self.output_tokens.append(&mut other.output_tokens);
        self.prompt_tokens.append(&mut other.prompt_tokens);
        self.good.append(&mut other.good);
        self.completed += other.completed;
        self.failed += other.failed;
        self.in_step |= other.in_step;
    }

    /// The statistics of all of them together.
    pub fn stats(&self) -> ClientStats {
        let seconds: f64 = self.windows.iter().map(|w| w.len().as_secs_f64()).sum();
        // A sum of nothing is -0.
        let per_s =
            |x: &[(Offset, f64)]| (seconds > 0.0).then(|| (x.iter().map(|(_, n)| n).sum::<f64>() + 0.0) / seconds);
        let values = |x: &[(Offset, f64)]| quantiles(x.iter().map(|(_, v)| *v).collect());
        let ended = self.completed + self.failed;
        ClientStats {
            ttft_s: values(&self.ttft),
            gap_s: values(&self.gaps),
            itl_s: values(&self.itl),
            tpot_s: values(&self.tpot),
            e2e_s: values(&self.e2e),
            worst_gap_s: quantiles(self.worst_gap.clone()),
            connect_s: (!self.connects.is_empty()).then(|| quantiles(self.connects.clone())),
            output_tokens_per_s: per_s(&self.output_tokens),
            prompt_tokens_per_s: per_s(&self.prompt_tokens),
            goodput_per_s: per_s(&self.good),
            error_rate_ratio: (ended > 0).then(|| self.failed as f64 / ended as f64),
            noise: noise::noise(self),
        }
    }
}

/// Measures one step from the requests of the whole run.
pub fn measure(requests: &[RequestTimeline], step: &StepSpan, slo: &Slo) -> ClientSide {
    let window = step.measured;
    let seconds = window.len().as_secs_f64();
    let per_s = |count: f64| (seconds > 0.0).then(|| count / seconds);
    let mut counted = Requests::default();
    let mut by_class: BTreeMap<String, u64> = BTreeMap::new();
    let mut samples = Samples { windows: vec![window], ..Samples::default() };
    let mut in_flight = Duration::ZERO;
    let (mut ended_in_window, mut latency_sum) = (0u64, 0.0);
    let (mut coalesced, mut with_gaps) = (0u64, 0u64);
    let mut answers: Vec<f64> = Vec::new();

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
            let timed = |(at, d): (Offset, Duration)| (at, d.as_secs_f64());
            samples.gaps.extend(r.gaps_at(window).map(timed));
            samples.itl.extend(r.itl_at(window).into_iter().flatten().map(timed));
            tokens_in(r, window, &mut samples.output_tokens);
            if let Some(t) = r.first_token().filter(|t| window.contains(*t)) {
                let tokens = r.usage.prompt_tokens.or(r.asked_prompt_tokens).unwrap_or(0);
                samples.prompt_tokens.push((t, f64::from(tokens)));
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
            Some(t) => samples.ttft.push((r.began(), t.since(r.began()).as_secs_f64())),
            None => counted.censored += u64::from(!over),
        }
        if !over || matches!(r.outcome, Outcome::Cut | Outcome::InFlight) {
            counted.in_flight_at_end += 1;
            continue;
        }
        counted.completed += 1;
        answers.push(f64::from(r.output_tokens()));
        samples.e2e.extend(r.e2e().map(|d| (r.began(), d.as_secs_f64())));
        let per_token = r.tpot().map(|d| d.as_secs_f64());
        samples.tpot.extend(per_token.map(|t| (r.began(), t)));
        samples.worst_gap.extend(r.gaps().max().map(|d| d.as_secs_f64()));
        let in_time = r.ttft().is_some_and(|d| d.as_secs_f64() <= slo.ttft_p99_s);
        if in_time && per_token.is_none_or(|t| t <= slo.itl_p99_s) {
            samples.good.push((r.began(), 1.0));
        }
    }
    counted.failed = Failed { total: counted.failed.total, by_class };

    (samples.completed, samples.failed) = (counted.completed, counted.failed.total);
    samples.in_step = matches!(step.load, Load::Concurrency(c) if c >= 2) && in_step(&answers);
    let mean_in_flight = per_s(in_flight.as_secs_f64());
    let littles_law_residual = mean_in_flight.filter(|&l| l > 0.0 && ended_in_window > 0).map(|l| {
        // rate × mean latency is the latencies' sum over the window's length.
        (l - latency_sum / seconds) / l
    });
    // Most are opened before the window, while workers are added.
    let of_step = requests.iter().filter(|r| r.step == step.step && r.sent < window.end);
    samples.connects.extend(of_step.filter_map(|r| r.connect).map(|d| d.as_secs_f64()));
    let stats = samples.stats();
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
        samples,
        littles_law_residual,
        caveats,
    }
}

/// Whether answers of such lengths keep the streams of a closed loop in step. An engine gives every running request one
/// token a step; where all take as many steps, two streams that once sent in the same one do so for the whole run, and
/// their prompts are computed together each time. How many fell together is one draw a run.
fn in_step(answers: &[f64]) -> bool {
    let n = answers.len() as f64;
    let mean = answers.iter().sum::<f64>() / n;
    let deviation = (answers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
    // Lengths that differ by this share part two streams by a whole answer within some hundred of them.
    const PARTS: f64 = 0.1;
    answers.len() > 1 && deviation < PARTS * mean
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

/// Output tokens that arrived in the window, with when: by the running count, else the answer's tokens
/// spread evenly over its chunks, else one a chunk.
fn tokens_in(r: &RequestTimeline, window: Span, into: &mut Vec<(Offset, f64)>) {
    let each = match r.usage.completion_tokens {
        Some(n) if !r.chunks.is_empty() => f64::from(n) / r.chunks.len() as f64,
        _ => 1.0,
    };
    let mut before = 0;
    for chunk in r.chunks_by(window.end) {
        let here = match chunk.running_tokens {
            Some(now) => f64::from(now.saturating_sub(before)),
            None => each,
        };
        before = chunk.running_tokens.unwrap_or(before);
        if window.contains(chunk.at) {
            into.push((chunk.at, here));
        }
    }
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
            match stats.ttft_s.n {
                0 => "no request that was sent in the measured part got a first token".to_owned(),
                1 => "the TTFT P99 rests on 1 request".to_owned(),
                n => format!("the TTFT P99 rests on {n} requests"),
            },
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
