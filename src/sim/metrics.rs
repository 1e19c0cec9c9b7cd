//! The metrics of the engines, as the front end makes them, and how they are written.

use super::page::{Histogram, Page};
use super::profile::Profile;
use super::request::{Finish, Stats};

const TTFT: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
const ITL: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
const LATENCY: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];
const ITERATION: &[f64] = &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];

/// One, two and five times the powers of ten, up to `most`.
fn sizes(most: usize) -> Vec<f64> {
    (0..12)
        .flat_map(|power| [1.0, 2.0, 5.0].map(|m| m * 10_f64.powi(power)))
        .take_while(|edge| *edge <= most as f64)
        .collect()
}

/// All that the page says about one engine.
#[derive(Clone, Debug)]
pub(super) struct EngineMetrics {
    /// The scheduler's last report; its counts are added up below.
    pub(super) gauges: Stats,
    pub(super) cache_queries: u64,
    pub(super) cache_hits: u64,
    pub(super) preemptions: u64,
    pub(super) prompt_tokens: u64,
    pub(super) prompt_cached: u64,
    pub(super) generated: u64,
    /// By reason: stop, length, abort, error, repetition.
    pub(super) success: [u64; 5],
    pub(super) drafts: u64,
    pub(super) draft_tokens: u64,
    pub(super) accepted: Vec<u64>,
    pub(super) request_prompt: Histogram,
    pub(super) request_generated: Histogram,
    pub(super) iteration: Histogram,
    pub(super) request_most: Histogram,
    pub(super) params_n: Histogram,
    pub(super) params_max: Histogram,
    pub(super) ttft: Histogram,
    pub(super) itl: Histogram,
    pub(super) tpot: Histogram,
    pub(super) e2e: Histogram,
    pub(super) queue: Histogram,
    pub(super) inference: Histogram,
    pub(super) prefill: Histogram,
    pub(super) decode: Histogram,
    pub(super) request_preemptions: Histogram,
    pub(super) prefill_computed: Histogram,
}

impl EngineMetrics {
    /// All at zero, as after a start.
    pub(super) fn new(profile: &Profile) -> EngineMetrics {
        let sizes = sizes(profile.engine.max_model_len);
        let positions = profile.engine.speculative.as_ref().map_or(0, |s| s.num_speculative_tokens);
        EngineMetrics {
            gauges: Stats::default(),
            cache_queries: 0,
            cache_hits: 0,
            preemptions: 0,
            prompt_tokens: 0,
            prompt_cached: 0,
            generated: 0,
            success: [0; 5],
            drafts: 0,
            draft_tokens: 0,
            accepted: vec![0; positions],
            request_prompt: Histogram::new(&sizes),
            request_generated: Histogram::new(&sizes),
            iteration: Histogram::new(ITERATION),
            request_most: Histogram::new(&sizes),
            params_n: Histogram::new(&[1.0, 2.0, 5.0, 10.0, 20.0]),
            params_max: Histogram::new(&sizes),
            ttft: Histogram::new(TTFT),
            itl: Histogram::new(ITL),
            tpot: Histogram::new(ITL),
            e2e: Histogram::new(LATENCY),
            queue: Histogram::new(LATENCY),
            inference: Histogram::new(LATENCY),
            prefill: Histogram::new(LATENCY),
            decode: Histogram::new(LATENCY),
            request_preemptions: Histogram::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0]),
            prefill_computed: Histogram::new(&sizes),
        }
    }

    /// Takes the scheduler's report after a step.
    pub(super) fn report(&mut self, stats: &Stats) {
        self.cache_queries += stats.cache_queries;
        self.cache_hits += stats.cache_hits;
        self.drafts += stats.drafts;
        self.draft_tokens += stats.draft_tokens;
        for (sum, count) in self.accepted.iter_mut().zip(&stats.accepted) {
            *sum += count;
        }
        self.gauges = stats.clone();
    }

    /// Counts a request that ended for `reason`.
    pub(super) fn succeeded(&mut self, reason: Finish) {
        let at = match reason {
            Finish::Stop => 0,
            Finish::Length => 1,
            Finish::Abort => 2,
        };
        self.success[at] += 1;
    }
}

/// Writes the families of all engines; `born` is when their counters began, in unix seconds.
pub(super) fn write(page: &mut Page, profile: &Profile, engines: &[EngineMetrics], born: f64) {
    let w = &mut Writer { page, model: &profile.api.model, engines, born };
    if profile.engine.speculative.is_some() {
        w.counter("spec_decode_num_drafts", "Number of spec decoding drafts.", |e| e.drafts);
        w.counter("spec_decode_num_draft_tokens", "Number of draft tokens.", |e| e.draft_tokens);
        w.counter("spec_decode_num_accepted_tokens", "Number of accepted tokens.", |e| e.accepted.iter().sum());
        let positions: Vec<String> =
            (0..engines.first().map_or(0, |e| e.accepted.len())).map(|p| p.to_string()).collect();
        let positions: Vec<&str> = positions.iter().map(String::as_str).collect();
        w.counters(
            "spec_decode_num_accepted_tokens_per_pos",
            "Accepted tokens per draft position.",
            ("position", &positions),
            |e, p| e.accepted[p],
        );
    }
    for (kind, help) in [
        ("flops", "floating point operations per GPU"),
        ("read_bytes", "bytes read from memory per GPU"),
        ("write_bytes", "bytes written to memory per GPU"),
    ] {
        let help = format!("Estimated number of {help} (for Model Flops Utilization calculations).");
        w.counter(&format!("estimated_{kind}_per_gpu"), &help, |_| 0);
    }
    w.gauge("num_requests_running", "Number of requests in model execution batches.", |e| e.gauges.running as f64);
    w.gauge("num_requests_waiting", "Number of requests waiting to be processed.", |e| {
        (e.gauges.capacity + e.gauges.deferred) as f64
    });
    w.gauges(
        "num_requests_waiting_by_reason",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; \
         'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all \
         reasons equals vllm:num_requests_waiting.",
        ("reason", &["capacity", "deferred"]),
        |e, i| [e.gauges.capacity, e.gauges.deferred][i] as f64,
    );
    w.gauges(
        "engine_sleep_state",
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; \
         weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
        ("sleep_state", &["awake", "weights_offloaded", "discard_all"]),
        |_, i| if i == 0 { 1.0 } else { 0.0 },
    );
    w.gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", |e| e.gauges.kv_usage);
    if profile.api.old_names {
        let help = "GPU KV-cache usage. 1 means 100 percent usage.DEPRECATED: Use vllm:kv_cache_usage_perc instead.";
        w.gauge("gpu_cache_usage_perc", help, |e| e.gauges.kv_usage);
    }
    let of = |what: &str, past: &str| format!("{what}, in terms of number of {past} tokens.");
    let local = "Prefix cache";
    let external = "External prefix cache";
    let sharing = "from KV connector cross-instance cache sharing";
    w.counter("prefix_cache_queries", &of(&format!("{local} queries"), "queried"), |e| e.cache_queries);
    w.counter("prefix_cache_hits", &of(&format!("{local} hits"), "cached"), |e| e.cache_hits);
    if profile.api.old_names {
        w.counter("gpu_prefix_cache_queries", "GPU prefix cache queries.", |e| e.cache_queries);
        w.counter("gpu_prefix_cache_hits", "GPU prefix cache hits.", |e| e.cache_hits);
    }
    let queries = of(&format!("{external} queries {sharing}"), "queried");
    w.counter("external_prefix_cache_queries", &queries, |_| 0);
    w.counter("external_prefix_cache_hits", &of(&format!("{external} hits {sharing}"), "cached"), |_| 0);
    w.counter("mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items.", |_| 0);
    w.counter("mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items.", |_| 0);
    w.counter("num_preemptions", "Cumulative number of preemption from the engine.", |e| e.preemptions);
    w.counter("prompt_tokens", "Number of prefill tokens processed.", |e| e.prompt_tokens);
    w.counters(
        "prompt_tokens_by_source",
        "Number of prompt tokens by source.",
        ("source", &["local_compute", "local_cache_hit", "external_kv_transfer"]),
        |e, i| [e.prompt_tokens - e.prompt_cached, e.prompt_cached, 0][i],
    );
    w.counter("prompt_tokens_cached", "Number of cached prompt tokens (local + external).", |e| e.prompt_cached);
    w.counter("generation_tokens", "Number of generation tokens processed.", |e| e.generated);
    w.counters(
        "request_success",
        "Count of successfully processed requests.",
        ("finished_reason", &["stop", "length", "abort", "error", "repetition"]),
        |e, i| e.success[i],
    );
    w.histogram("request_prompt_tokens", "Number of prefill tokens processed.", |e| &e.request_prompt);
    w.histogram("request_generation_tokens", "Number of generation tokens processed.", |e| &e.request_generated);
    w.histogram("iteration_tokens_total", "Histogram of number of tokens per engine_step.", |e| &e.iteration);
    w.histogram(
        "request_max_num_generation_tokens",
        "Histogram of maximum number of requested generation tokens.",
        |e| &e.request_most,
    );
    w.histogram("request_params_n", "Histogram of the n request parameter.", |e| &e.params_n);
    w.histogram("request_params_max_tokens", "Histogram of the max_tokens request parameter.", |e| &e.params_max);
    w.histogram("time_to_first_token_seconds", "Histogram of time to first token in seconds.", |e| &e.ttft);
    if profile.api.old_names {
        let help =
            "Histogram of time per output token in seconds.DEPRECATED: Use vllm:inter_token_latency_seconds instead.";
        w.histogram("time_per_output_token_seconds", help, |e| &e.itl);
    }
    w.histogram("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", |e| &e.itl);
    w.histogram(
        "request_time_per_output_token_seconds",
        "Histogram of time_per_output_token_seconds per request.",
        |e| &e.tpot,
    );
    w.histogram("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", |e| &e.e2e);
    let phase = |p: &str| format!("Histogram of time spent in {p} phase for request.");
    w.histogram("request_queue_time_seconds", &phase("WAITING"), |e| &e.queue);
    w.histogram("request_inference_time_seconds", &phase("RUNNING"), |e| &e.inference);
    w.histogram("request_prefill_time_seconds", &phase("PREFILL"), |e| &e.prefill);
    w.histogram("request_decode_time_seconds", &phase("DECODE"), |e| &e.decode);
    w.histogram("request_num_preemptions", "Histogram of the number of times a request was preempted.", |e| {
        &e.request_preemptions
    });
    w.histogram(
        "request_prefill_kv_computed_tokens",
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        |e| &e.prefill_computed,
    );
    write_cache_config(w.page, profile);
}

struct Writer<'a> {
    page: &'a mut Page,
    model: &'a str,
    engines: &'a [EngineMetrics],
    born: f64,
}

impl Writer<'_> {
    /// Labels with one more, in the order of names.
    fn labels(&self, engine: usize, more: Option<(&str, &str)>) -> String {
        let model = self.model;
        match more {
            None => format!("engine=\"{engine}\",model_name=\"{model}\""),
            Some((k, v)) if k < "model_name" => format!("engine=\"{engine}\",{k}=\"{v}\",model_name=\"{model}\""),
            Some((k, v)) => format!("engine=\"{engine}\",model_name=\"{model}\",{k}=\"{v}\""),
        }
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Fn(&EngineMetrics) -> f64) {
        let name = format!("vllm:{name}");
        self.page.family(&name, help, "gauge");
        for (i, e) in self.engines.iter().enumerate() {
            let labels = self.labels(i, None);
            self.page.sample(&name, &labels, value(e));
        }
    }

    fn gauges(&mut self, name: &str, help: &str, by: (&str, &[&str]), value: impl Fn(&EngineMetrics, usize) -> f64) {
        let name = format!("vllm:{name}");
        self.page.family(&name, help, "gauge");
        for (i, e) in self.engines.iter().enumerate() {
            for (j, kind) in by.1.iter().enumerate() {
                let labels = self.labels(i, Some((by.0, kind)));
                self.page.sample(&name, &labels, value(e, j));
            }
        }
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Fn(&EngineMetrics) -> u64) {
        let total = format!("vllm:{name}_total");
        self.page.family(&total, help, "counter");
        for (i, e) in self.engines.iter().enumerate() {
            let labels = self.labels(i, None);
            self.page.sample(&total, &labels, value(e) as f64);
        }
        self.created(name, help, None);
    }

    fn counters(&mut self, name: &str, help: &str, by: (&str, &[&str]), value: impl Fn(&EngineMetrics, usize) -> u64) {
        let total = format!("vllm:{name}_total");
        self.page.family(&total, help, "counter");
        for (i, e) in self.engines.iter().enumerate() {
            for (j, kind) in by.1.iter().enumerate() {
                let labels = self.labels(i, Some((by.0, kind)));
                self.page.sample(&total, &labels, value(e, j) as f64);
            }
        }
        self.created(name, help, Some(by));
    }

    fn histogram(&mut self, name: &str, help: &str, value: impl Fn(&EngineMetrics) -> &Histogram) {
        let full = format!("vllm:{name}");
        self.page.family(&full, help, "histogram");
        for (i, e) in self.engines.iter().enumerate() {
            let (before, after) = (format!("engine=\"{i}\","), format!(",model_name=\"{}\"", self.model));
            self.page.histogram(&full, &before, &after, value(e));
        }
        self.created(name, help, None);
    }

    fn created(&mut self, name: &str, help: &str, by: Option<(&str, &[&str])>) {
        let name = format!("vllm:{name}_created");
        self.page.family(&name, help, "gauge");
        for i in 0..self.engines.len() {
            match by {
                None => {
                    let labels = self.labels(i, None);
                    self.page.sample(&name, &labels, self.born);
                }
                Some((key, kinds)) => {
                    for kind in kinds {
                        let labels = self.labels(i, Some((key, kind)));
                        self.page.sample(&name, &labels, self.born);
                    }
                }
            }
        }
    }
}

/// The settings of the cache, as labels.
fn write_cache_config(page: &mut Page, profile: &Profile) {
    let e = &profile.engine;
    let tokens = e.num_gpu_blocks * e.block_size;
    let boolean = |b: bool| if b { "True" } else { "False" };
    page.family("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", "gauge");
    for engine in 0..e.engines {
        let labels = format!(
            "_block_size_resolved=\"True\",block_size=\"{block}\",cache_dtype=\"auto\",\
             effective_attention_block_size=\"{block}\",enable_mamba_shared_prefix_checkpoint=\"False\",\
             enable_prefix_caching=\"{caching}\",engine=\"{engine}\",gpu_memory_utilization=\"0.92\",\
             is_attention_free=\"False\",kv_cache_dtype_skip_layers=\"[]\",kv_cache_layout=\"None\",\
             kv_cache_max_concurrency=\"{concurrency:?}\",kv_cache_memory_bytes=\"None\",\
             kv_cache_size_tokens=\"{tokens}\",kv_offloading_backend=\"native\",kv_offloading_size=\"None\",\
             kv_sharing_fast_prefill=\"False\",mamba_block_size=\"None\",mamba_cache_dtype=\"auto\",\
             mamba_cache_mode=\"none\",mamba_page_size_padded=\"None\",mamba_ssm_cache_dtype=\"auto\",\
             num_cpu_blocks=\"None\",num_gpu_blocks=\"{blocks}\",num_gpu_blocks_override=\"{blocks}\",\
             prefix_cache_retention_interval=\"0\",prefix_caching_hash_algo=\"sha256\",prefix_match_unit=\"None\",\
             replayssm_buffer_len=\"16\",skip_page_size_padded=\"None\",sliding_window=\"None\",\
             swa_bounded_replay=\"True\",use_kda_recoverssm=\"False\",use_replayssm=\"False\",\
             user_specified_block_size=\"True\",user_specified_mamba_block_size=\"False\"",
            block = e.block_size,
            caching = boolean(e.enable_prefix_caching),
            concurrency = tokens as f64 / e.max_model_len as f64,
            blocks = e.num_gpu_blocks,
        );
        page.sample("vllm:cache_config_info", &labels, 1.0);
    }
}
