//! Causes that no recorded profile shows, by their signature.

use plimsoll::model::request::{FailureClass, Outcome};
use plimsoll::model::sample::{Labels, NAME, Sample};

use crate::build::{Run, pool, vllm, vllm_with};

/// A page in a steady state: gauges, and histograms that grow by one request a second.
#[derive(Clone, Copy)]
struct Steady {
    waiting: f64,
    deferred: f64,
    running: f64,
    usage: f64,
    ttft_s: f64,
    queue_s: f64,
    prefill_s: f64,
    decode_s: f64,
    steps_per_s: f64,
}

const HEALTHY: Steady = Steady {
    waiting: 0.0,
    deferred: 0.0,
    running: 4.0,
    usage: 0.3,
    ttft_s: 0.05,
    queue_s: 0.001,
    prefill_s: 0.04,
    decode_s: 1.0,
    steps_per_s: 50.0,
};

impl Steady {
    fn page(self, t: f64) -> Vec<Sample> {
        vec![
            pool(1_001, 16),
            vllm("num_requests_waiting", self.waiting),
            vllm_with("num_requests_waiting_by_reason", &[("reason", "deferred")], self.deferred),
            vllm("num_requests_running", self.running),
            vllm("kv_cache_usage_perc", self.usage),
            vllm("num_preemptions_total", 0.0),
            vllm("iteration_tokens_total_count", t * self.steps_per_s),
            vllm("time_to_first_token_seconds_sum", t * self.ttft_s),
            vllm("time_to_first_token_seconds_count", t),
            vllm("request_queue_time_seconds_sum", t * self.queue_s),
            vllm("request_queue_time_seconds_count", t),
            vllm("request_prefill_time_seconds_sum", t * self.prefill_s),
            vllm("request_prefill_time_seconds_count", t),
            vllm("request_decode_time_seconds_sum", t * self.decode_s),
        ]
    }

    /// The pair that explains `alert`, for requests of 800/100 tokens whose client waits `client_s`.
    fn cause(self, alert: &str, client_s: f64) -> String {
        let run = Run::new(1.0, 1.0).warm_step(8, 0.0, 30.0, 120.0).server(120.0, |t| Some(self.page(t)));
        let e = run.requests(0, 0.5, client_s, 800, 100).explained(0, alert);
        println!("{alert}: {} {:?}: {}\n  {:?}", e.pair, e.confidence, e.summary, e.runner_up);
        e.pair
    }
}

#[test]
fn each_signature_has_its_name() {
    let ttft = "TimeToFirstTokenP99";
    let cases = [
        ("tokenizer", Steady { ttft_s: 2.0, ..HEALTHY }.cause(ttft, 2.1), "SlowApiServer"),
        ("prefill", Steady { ttft_s: 2.0, prefill_s: 1.9, ..HEALTHY }.cause(ttft, 2.1), "LongPrompts"),
        ("proxy", HEALTHY.cause("ClientTimeToFirstTokenP99", 3.0), "SlowNetwork"),
        ("hang", Steady { waiting: 3.0, steps_per_s: 0.0, ..HEALTHY }.cause("RequestsWaiting", 1.0), "FrozenEngine"),
        (
            "giant",
            Steady { waiting: 3.0, running: 0.0, usage: 0.0, ..HEALTHY }.cause("RequestsWaiting", 1.0),
            "RequestNeverFits",
        ),
        ("lora", Steady { waiting: 3.0, deferred: 3.0, ..HEALTHY }.cause("RequestsWaiting", 1.0), "RequestsDeferred"),
        ("pool", Steady { waiting: 3.0, usage: 0.96, ..HEALTHY }.cause("RequestsWaiting", 1.0), "PoolLimited"),
        ("batch", Steady { waiting: 3.0, ..HEALTHY }.cause("RequestsWaiting", 1.0), "SequenceLimited"),
        ("budget", Steady { waiting: 3.0, prefill_s: 2.0, ..HEALTHY }.cause("RequestsWaiting", 1.0), "TokenBudget"),
        ("chunks", Steady { prefill_s: 0.5, ..HEALTHY }.cause("InterTokenLatencyP99", 1.0), "PrefillStalls"),
        ("steps", HEALTHY.cause("InterTokenLatencyP99", 1.0), "FullBatchGaps"),
        ("nothing", HEALTHY.cause("Preemptions", 1.0), "Unexplained"),
    ];
    let wrong: Vec<_> = cases.iter().filter(|(_, got, want)| got != want).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn refused_requests_are_a_capped_queue() {
    let mut run = Run::new(1.0, 1.0).warm_step(8, 0.0, 30.0, 120.0).server(120.0, |t| Some(HEALTHY.page(t)));
    for i in 0..100 {
        let refused =
            Outcome::Failed { class: FailureClass::Unavailable, status: Some(503), detail: "queue full".into() };
        run.request(0, f64::from(i), 0.01, 800, 100, if i % 2 == 0 { refused } else { Outcome::Completed });
    }
    let e = run.explained(0, "ClientErrors");
    assert_eq!(e.pair, "QueueCap", "{e:?}");
    assert!(e.summary.contains("refuses requests: 35 of 70 were answered with 503"), "{}", e.summary);
}

/// Without the pool's size the rule of thumb is all there is.
#[test]
fn an_unknown_pool_falls_back_on_usage() {
    for (usage, want) in [(0.95, "PoolLimited"), (0.3, "SequenceLimited")] {
        let run = Run::new(1.0, 1.0).warm_step(8, 0.0, 30.0, 120.0).server(120.0, |t| {
            let mut page = Steady { waiting: 3.0, usage, ..HEALTHY }.page(t);
            page.remove(0);
            Some(page)
        });
        let e = run.requests(0, 1.0, 0.5, 800, 100).explained(0, "RequestsWaiting");
        assert_eq!(e.pair, want, "{e:?}");
    }
}

/// GPU readings beside a page: the hardware goes before the configuration.
#[test]
fn a_throttled_gpu_is_blamed_and_a_healthy_one_is_not() {
    for (mask, want) in
        [(0.0, "FullBatchGaps"), (4.0, "FullBatchGaps"), (40.0, "GpuThermalSlowdown"), (136.0, "GpuPowerBrake")]
    {
        let mut run = Run::new(1.0, 1.0).warm_step(8, 0.0, 30.0, 120.0).server(120.0, |t| Some(HEALTHY.page(t)));
        for t in 0..120 {
            let labels = |name: &str| Labels::new([(NAME, name), ("gpu", "0"), ("UUID", "GPU-1")]);
            let sample = |name: &str, value: f64| Sample { labels: labels(name), value };
            run.gpu(
                f64::from(t),
                vec![
                    sample("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", mask),
                    sample("DCGM_FI_DEV_SM_CLOCK", 1_200.0),
                    sample("DCGM_FI_DEV_GPU_TEMP", 88.0),
                ],
            );
        }
        let e = run.explained(0, "InterTokenLatencyP99");
        assert_eq!(e.pair, want, "mask {mask}: {e:?}");
    }
}

#[test]
fn a_clock_that_fell_is_seen_against_the_runs_own_best() {
    let mut run = Run::new(1.0, 1.0)
        .warm_step(4, 0.0, 30.0, 120.0)
        .warm_step(8, 120.0, 150.0, 240.0)
        .server(240.0, |t| Some(HEALTHY.page(t)));
    for t in 0..240 {
        let labels = |name: &str| Labels::new([(NAME, name), ("gpu", "0"), ("UUID", "GPU-1")]);
        let sample = |name: &str, value: f64| Sample { labels: labels(name), value };
        let clock = if t < 120 { 1_980.0 } else { 1_200.0 };
        run.gpu(
            f64::from(t),
            vec![sample("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 0.0), sample("DCGM_FI_DEV_SM_CLOCK", clock)],
        );
    }
    assert_eq!(run.explained(1, "InterTokenLatencyP99").pair, "GpuClockFell");
    assert_eq!(run.explained(0, "InterTokenLatencyP99").pair, "FullBatchGaps");
}

/// Two tokens in a hundred come late: a prompt in the midst of the batch, not the batch itself.
#[test]
fn late_tokens_far_above_the_mean_are_prefill_in_the_batch() {
    for (late, want) in [(0.02, "PrefillStalls"), (0.9, "FullBatchGaps")] {
        let run = Run::new(1.0, 1.0).warm_step(8, 0.0, 30.0, 120.0).server(120.0, |t| {
            let (all, slow) = (t * 50.0, t * 50.0 * late);
            let mut page = HEALTHY.page(t);
            for (le, n) in [("0.025", all - slow), ("0.15", all - slow), ("0.2", all), ("+Inf", all)] {
                page.push(vllm_with("inter_token_latency_seconds_bucket", &[("le", le)], n));
            }
            page.push(vllm("inter_token_latency_seconds_sum", (all - slow) * 0.02 + slow * 0.17));
            page.push(vllm("inter_token_latency_seconds_count", all));
            Some(page)
        });
        let e = run.requests(0, 1.0, 0.5, 800, 100).explained(0, "InterTokenLatencyP99");
        assert_eq!(e.pair, want, "{late}: {e:?}");
    }
}
