//! The numbers of a step that a finding speaks of, by name.

use std::collections::BTreeMap;

use crate::model::request::{FailureClass, Outcome, ServerTimings};
use crate::model::sample::Labels;
use crate::model::step::{Load, StepSpan};
use crate::model::units::human_seconds;
use crate::model::verdict::Evidence;
use crate::rules::sizes::{Sizes, middle};
use crate::rules::stats::Over;
use crate::rules::{Judge, Lens};

/// How a number is written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// Without decimals where it is whole, else with one.
    Count,
    /// Two decimals.
    Ratio,
    /// With its unit.
    Seconds,
}

/// A signal: its name, the expression that reads it, and how it is written. The first that gives
/// values is taken: while requests wait, then at any time.
const SIGNALS: &[(&str, &[&str], Form)] = &[
    ("waiting", &["plimsoll:waiting"], Form::Count),
    ("deferred", &["plimsoll:deferred"], Form::Count),
    ("running", &["plimsoll:running and plimsoll:waiting > 0", "plimsoll:running"], Form::Count),
    ("kv_usage", &["plimsoll:kv_usage and plimsoll:waiting > 0", "plimsoll:kv_usage"], Form::Ratio),
    ("free_blocks", &["plimsoll:free_blocks and plimsoll:waiting > 0", "plimsoll:free_blocks"], Form::Count),
    ("next_blocks", &["plimsoll:next_request_blocks"], Form::Count),
    ("kv_blocks", &["plimsoll:kv_blocks"], Form::Count),
    ("block_size", &["plimsoll:kv_block_size"], Form::Count),
    ("prefilling", &["plimsoll:prefilling"], Form::Count),
    ("prefix_hit_rate", &["plimsoll:prefix_hit_rate"], Form::Ratio),
    ("draft_acceptance", &["plimsoll:draft_acceptance"], Form::Ratio),
    ("client_lag", &["plimsoll_client_lag_seconds"], Form::Seconds),
    ("gpu_clock", &["plimsoll:gpu_sm_clock"], Form::Count),
    ("gpu_temp", &["plimsoll:gpu_temperature"], Form::Count),
    ("gpu_neighbours", &["plimsoll_gpu_neighbours"], Form::Count),
    ("gpu_neighbour_mib", &["plimsoll_gpu_neighbour_memory_bytes / 1048576"], Form::Count),
];

/// Means of a histogram over the step: growth of the sum over growth of the count.
const MEANS: &[(&str, &str, &str)] = &[
    ("ttft_mean", "plimsoll:ttft_seconds_sum", "plimsoll:ttft_seconds_count"),
    ("queue_mean", "plimsoll:queue_seconds_sum", "plimsoll:queue_seconds_count"),
    ("prefill_mean", "plimsoll:prefill_seconds_sum", "plimsoll:prefill_seconds_count"),
    ("itl_mean", "plimsoll:itl_seconds_sum", "plimsoll:itl_seconds_count"),
    ("client_ttft_mean", "plimsoll_client_ttft_seconds_sum", "plimsoll_client_ttft_seconds_count"),
    ("client_gap_mean", "plimsoll_client_gap_seconds_sum", "plimsoll_client_gap_seconds_count"),
];

/// The means that the server's own timings of each request replace, where it tells them.
type Timed = fn(&ServerTimings) -> Option<f64>;
const TIMED: [(&str, Timed); 3] =
    [("ttft_mean", |t| t.ttft_s), ("queue_mean", |t| t.queue_s), ("itl_mean", |t| t.mean_itl_s)];

/// Signals that every explanation shows, where they are known.
const SHOWN: &[(&str, &str)] = &[
    ("waiting", "requests waiting"),
    ("running", "requests running"),
    ("kv_usage", "KV cache usage"),
    ("free_blocks", "free blocks"),
];

/// Signals that an explanation by the hardware shows first, where they are known.
const HARDWARE: &[(&str, &str)] = &[("gpu_clock", "GPU clock in MHz"), ("gpu_temp", "GPU temperature in °C")];

/// Middle and ends of what a signal was.
#[derive(Clone, Debug, PartialEq)]
struct Signal {
    sorted: Vec<f64>,
    above_zero: usize,
    expr: String,
    form: Form,
}

/// Every number that is known about a step.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    signals: BTreeMap<&'static str, Signal>,
    single: BTreeMap<&'static str, (f64, Form)>,
    /// Requests of the step that the server timed itself.
    timed: usize,
}

impl Numbers {
    /// Reads them over `window` (seconds) of a step, for the server that `labels` speak of.
    pub(super) fn read(
        judge: &Judge<'_>,
        lens: &Lens<'_>,
        span: &StepSpan,
        window: (f64, f64),
        labels: &Labels,
    ) -> Numbers {
        let mut numbers = Numbers::default();
        for (name, exprs, form) in SIGNALS {
            for expr in *exprs {
                let mut sorted: Vec<f64> =
                    lens.values(expr, window.0, window.1, labels).into_iter().map(|(_, v)| v).collect();
                if sorted.is_empty() {
                    continue;
                }
                sorted.sort_by(f64::total_cmp);
                let above_zero = sorted.iter().filter(|v| **v > 0.0).count();
                numbers.signals.insert(name, Signal { sorted, above_zero, expr: (*expr).to_owned(), form: *form });
                break;
            }
        }
        let over = Over::new(judge, lens, span.measured);
        for (name, sum, count) in MEANS {
            numbers.put(name, over.ratio(sum, count), Form::Seconds);
        }
        numbers.put("preemptions", over.grown("plimsoll:preemptions"), Form::Count);
        numbers.put("iterations_per_s", over.per_second("plimsoll:iterations"), Form::Count);
        numbers.requests(judge, span);
        numbers.sizes(judge, span);
        numbers
    }

    fn requests(&mut self, judge: &Judge<'_>, span: &StepSpan) {
        let refused = |r: &&crate::model::request::RequestTimeline| {
            matches!(r.outcome, Outcome::Failed { class: FailureClass::Unavailable | FailureClass::RateLimited, .. })
        };
        let own = || judge.recording().requests.iter().filter(|r| r.step == span.step);
        // As the step's table counts them: by when they were due.
        let in_time = || own().filter(|r| span.measured.contains(r.began()));
        self.put("refused", Some(in_time().filter(refused).count() as f64), Form::Count);
        self.put("sent", Some(in_time().count() as f64), Form::Count);
        if let Load::Concurrency(c) = span.load {
            self.put("streams", Some(f64::from(c)), Form::Count);
        }
        // What the server says of each request is exact where it is offered, and goes first. Only what ended in
        // the measured part counts, as in the series that the pairs read.
        let timed: Vec<ServerTimings> =
            own().filter(|r| span.measured.contains(r.finished)).filter_map(|r| r.server).collect();
        self.timed = timed.len();
        for (name, pick) in TIMED {
            let values: Vec<f64> = timed.iter().filter_map(pick).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            // Without a value the mean is NaN, which `put` leaves out.
            self.put(name, Some(mean), Form::Seconds);
        }
        // Who never got a token although its step is over: the longest of them is who blocks the queue.
        let stuck = own().filter(|r| r.first_token().is_none() && !refused(r)).filter_map(|r| r.asked_prompt_tokens);
        self.put("stuck_tokens", stuck.max().map(f64::from), Form::Count);
    }

    fn sizes(&mut self, judge: &Judge<'_>, span: &StepSpan) {
        let sizes = Sizes::of(judge.recording(), span.step);
        let (prompt, output) = (middle(&sizes.prompt), middle(&sizes.output));
        self.put("prompt_tokens", prompt, Form::Count);
        self.put("output_tokens", output, Form::Count);
        // What ends leaves room for a moment: where the next request would fit at most scrapes, the fullest moment tells.
        let (usual, least) = (self.value("free_blocks"), self.value("free_blocks.min"));
        let tight = usual.filter(|u| self.value("next_blocks").is_none_or(|next| *u < next)).or(least);
        self.put("tight_blocks", tight, Form::Count);
        let stuck = self.value("stuck_tokens").zip(self.median("block_size"));
        self.put("stuck_blocks", stuck.map(|(tokens, size)| (tokens / size).ceil()), Form::Count);
        // What a pool holds is a sum of sizes, so here the mean counts.
        let mean = |of: &[f64]| (!of.is_empty()).then(|| of.iter().sum::<f64>() / of.len() as f64);
        let Some(tokens) = mean(&sizes.prompt).zip(mean(&sizes.output)).map(|(p, o)| p + o) else { return };
        self.put("request_tokens", Some(tokens), Form::Count);
        let (Some(blocks), Some(size)) = (self.median("kv_blocks"), self.median("block_size")) else { return };
        // A prompt that is larger than the pool blocks the queue for ever: then no number of streams fits.
        if sizes.prompt.last().is_some_and(|longest| (longest / size).ceil() > blocks) {
            return;
        }
        // The last token of an answer is never computed upon, so it takes no room.
        let each = ((tokens - 1.0) / size).ceil().max(1.0);
        let fits = blocks / each;
        self.put("request_blocks", Some(each), Form::Count);
        self.put("fits", Some(fits), Form::Count);
        self.put("fits_floor", Some(fits.floor()), Form::Count);
        // The shipped rules say these two no more; recordings bring rules that do.
        self.put("fits_next", Some(fits.floor() + 1.0), Form::Count);
        let streams = self.value("streams");
        self.put("blocks_for_streams", streams.map(|s| s * each), Form::Count);
    }

    fn put(&mut self, name: &'static str, value: Option<f64>, form: Form) {
        if let Some(v) = value.filter(|v| v.is_finite()) {
            self.single.insert(name, (v, form));
        }
    }

    /// A number by its name: `waiting.max`, `waiting.median`, or `waiting` for the median.
    pub fn value(&self, name: &str) -> Option<f64> {
        if let Some((v, _)) = self.single.get(name) {
            return Some(*v);
        }
        let (signal, part) = name.split_once('.').unwrap_or((name, "median"));
        let s = self.signals.get(signal)?;
        match part {
            "median" => middle(&s.sorted),
            "max" => s.sorted.last().copied(),
            "min" => s.sorted.first().copied(),
            _ => None,
        }
    }

    /// The same as it is written in a sentence.
    pub fn text(&self, name: &str) -> Option<String> {
        let form = self
            .single
            .get(name)
            .map(|(_, f)| *f)
            .or_else(|| self.signals.get(name.split('.').next().unwrap_or(name)).map(|s| s.form))?;
        let v = self.value(name)?;
        Some(match form {
            Form::Count if v.fract().abs() < 0.05 || v.abs() >= 100.0 => format!("{v:.0}"),
            Form::Count => format!("{v:.1}"),
            Form::Ratio => format!("{v:.2}"),
            Form::Seconds => human_seconds(v),
        })
    }

    /// Requests of the step that the server timed itself; 0 where it offers no such timings.
    pub(super) fn timed(&self) -> usize {
        self.timed
    }

    /// Whether a sentence may say this number: known, and not 0.
    pub(super) fn tells(&self, name: &str) -> bool {
        self.text(name).is_some_and(|t| t.parse() != Ok(0.0))
    }

    fn median(&self, name: &str) -> Option<f64> {
        self.signals.get(name).and_then(|s| middle(&s.sorted))
    }

    /// The signals that every explanation shows, and before them those of the hardware where that is the cause.
    pub(super) fn evidence(&self, hardware: bool) -> Vec<Evidence> {
        let first = if hardware { HARDWARE } else { &[] };
        first
            .iter()
            .chain(SHOWN)
            .filter_map(|(name, words)| {
                let s = self.signals.get(name)?;
                let says = match *name {
                    "waiting" => format!("{words}: above 0 in {} of {} samples", s.above_zero, s.sorted.len()),
                    _ => words.to_string(),
                };
                Some(Evidence {
                    says,
                    expr: Some(s.expr.clone()),
                    median: middle(&s.sorted),
                    max: s.sorted.last().copied(),
                })
            })
            .collect()
    }
}
