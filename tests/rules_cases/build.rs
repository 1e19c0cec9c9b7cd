//! Recordings made by hand.

use std::time::Duration;

use plimsoll::model::recording::{Event, Header, Recording, RuleFile, TargetFacts};
use plimsoll::model::request::{Outcome, RequestTimeline, TokenChunk, Usage};
use plimsoll::model::sample::{Labels, NAME, Sample, Scrape, ScrapeFailure, SourceKind};
use plimsoll::model::step::{Load, Phase, StepPlan, StepSpan};
use plimsoll::model::time::{ClockKind, Offset};
use plimsoll::model::verdict::{AlertVerdict, Explanation};
use plimsoll::promql::Reading;
use plimsoll::rules::{Judge, Limits, RuleSet, Timing, builtin};
use plimsoll::series::Store;

pub(crate) const EPOCH_MS: i64 = 1_767_225_600_000;

/// A run under construction; times in seconds.
pub(crate) struct Run {
    pub(crate) recording: Recording,
    pub(crate) poll_s: f64,
    pub(crate) scale: f64,
}

impl Run {
    pub(crate) fn new(poll_s: f64, scale: f64) -> Run {
        let header = Header {
            tool_version: "test".into(),
            scenario: "test".into(),
            seed: 1,
            time_scale: scale,
            target: TargetFacts { url: "http://127.0.0.1:8000".into(), ..TargetFacts::default() },
            ..Header::blank(ClockKind::Simulated, EPOCH_MS)
        };
        Run { recording: Recording::new(header), poll_s, scale }
    }

    /// A climbing step, measured from its start.
    pub(crate) fn step(self, streams: u32, from_s: f64, to_s: f64) -> Run {
        self.warm_step(streams, from_s, from_s, to_s)
    }

    /// A climbing step with a warm-up.
    pub(crate) fn warm_step(mut self, streams: u32, begin_s: f64, from_s: f64, to_s: f64) -> Run {
        let step = self.recording.steps.len() as u32;
        let plan =
            StepPlan { step, load: Load::Concurrency(streams), phase: Phase::Climb, repeat: 0, drain_first: false };
        self.recording.apply(Event::StepStarted { at: at(begin_s), plan });
        self.recording.apply(Event::MeasureStarted { at: at(from_s), step });
        self.recording.apply(Event::StepEnded { at: at(to_s), step, cut_short: None });
        self
    }

    /// Scrapes of the server from 0 to `until_s`; `None` is a failed one.
    pub(crate) fn server(mut self, until_s: f64, page: impl Fn(f64) -> Option<Vec<Sample>>) -> Run {
        let mut t = 0.0;
        while t <= until_s {
            self.scrape(t, page(t));
            t += self.poll_s;
        }
        self
    }

    pub(crate) fn scrape(&mut self, t: f64, page: Option<Vec<Sample>>) {
        let failure = || ScrapeFailure { class: "status".into(), detail: "500".into() };
        self.recording.apply(Event::Scrape(Scrape {
            source: SourceKind::Server,
            target: 0,
            sent: at(t),
            received: at(t),
            result: page.ok_or_else(failure),
        }));
    }

    /// A reading of the GPU.
    pub(crate) fn gpu(&mut self, t: f64, samples: Vec<Sample>) {
        self.recording.apply(Event::Scrape(Scrape {
            source: SourceKind::Gpu,
            target: 0,
            sent: at(t),
            received: at(t),
            result: Ok(samples),
        }));
    }

    /// A request of the given sizes; `ttft_s` after `sent_s` comes its first token.
    pub(crate) fn request(&mut self, step: u32, sent_s: f64, ttft_s: f64, prompt: u32, output: u32, outcome: Outcome) {
        let failed = matches!(outcome, Outcome::Failed { .. });
        let chunk = |s: f64| TokenChunk { at: at(sent_s + s), running_tokens: None };
        let finished = at(sent_s + ttft_s + 0.1);
        self.recording.apply(Event::Request(RequestTimeline {
            step,
            sent: at(sent_s),
            chunks: if failed { vec![] } else { vec![chunk(ttft_s), chunk(ttft_s + 0.05)] },
            finished,
            finish_reason: (!failed).then(|| "length".into()),
            usage: if failed {
                Usage::default()
            } else {
                Usage { prompt_tokens: Some(prompt), completion_tokens: Some(output), cached_tokens: None }
            },
            asked_prompt_tokens: Some(prompt),
            asked_output_tokens: Some(output),
            outcome,
            ..RequestTimeline::blank(self.recording.requests.len() as u64)
        }));
    }

    /// Requests of one size, `every_s` apart, over a step.
    pub(crate) fn requests(mut self, step: u32, every_s: f64, ttft_s: f64, prompt: u32, output: u32) -> Run {
        let span = self.recording.steps[step as usize];
        let mut t = span.warmup.start.as_secs_f64();
        while t + ttft_s + 0.1 < span.measured.end.as_secs_f64() {
            self.request(step, t, ttft_s, prompt, output, Outcome::Completed);
            t += every_s;
        }
        self
    }

    pub(crate) fn timing(&self) -> Timing {
        Timing { poll: Duration::from_secs_f64(self.poll_s), ..Timing::default() }
    }

    /// Judges with `rules`; hands everything to `look`.
    pub(crate) fn judged<T>(&self, rules: &RuleSet, look: impl FnOnce(&Judge<'_>) -> T) -> T {
        let store = Store::from_recording(&self.recording);
        look(&Judge::new(rules, &self.recording, &store, Reading::V3, self.timing()))
    }

    /// The shipped rules for vLLM, at this run's scale.
    pub(crate) fn shipped(&self) -> RuleSet {
        RuleSet::load(&builtin::files("vllm", true), &Limits::default(), self.scale).unwrap()
    }

    /// Explains `alert` in a step as if it had fired at its end.
    pub(crate) fn explained(&self, step: usize, alert: &str) -> Explanation {
        let rules = self.shipped();
        self.judged(&rules, |judge| {
            let span: StepSpan = self.recording.steps[step];
            let judged = judge.step(&span).into_iter().find(|v| v.alert == alert).unwrap();
            plimsoll::diagnose::explain(judge, &span, &AlertVerdict { onset_s: None, pending_at_s: None, ..judged })
        })
    }
}

pub(crate) fn at(seconds: f64) -> Offset {
    Offset::from_millis((seconds * 1e3).round() as u64)
}

/// Rules out of YAML text.
pub(crate) fn rules(text: &str) -> RuleSet {
    RuleSet::load(&[RuleFile { name: "test.yml".into(), text: text.into() }], &Limits::default(), 1.0).unwrap()
}

/// A sample of the server's engine 0: `("num_requests_waiting", 4.0)` and so on.
pub(crate) fn vllm(name: &str, value: f64) -> Sample {
    vllm_with(name, &[], value)
}

pub(crate) fn vllm_with(name: &str, extra: &[(&str, &str)], value: f64) -> Sample {
    let name = format!("vllm:{name}");
    let own = [(NAME, name.as_str()), ("engine", "0"), ("model_name", "tiny")];
    Sample { labels: Labels::new(own.into_iter().chain(extra.iter().copied())), value }
}

/// The pool: `blocks` of `size` tokens, one of them reserved.
pub(crate) fn pool(blocks: u32, size: u32) -> Sample {
    let (b, s) = (blocks.to_string(), size.to_string());
    let labels = [(NAME, "vllm:cache_config_info"), ("engine", "0"), ("num_gpu_blocks", &b), ("block_size", &s)];
    Sample { labels: Labels::new(labels), value: 1.0 }
}
