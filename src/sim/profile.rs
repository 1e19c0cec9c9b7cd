//! What the stand-in serves: plain data, with named presets.
//!
//! Each preset is built to end in one state by mechanism (too few blocks, too few seats, too
//! small a budget, a slow tokenizer), never by writing what the metrics should show.

use serde::{Deserialize, Serialize};

pub use super::cost::CostSpec;
pub use super::fault::Fault;

/// A complete stand-in: engine, step time, API server, GPU and what goes wrong when.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Profile {
    /// Name of the preset it came from, for display.
    pub name: String,
    /// The scheduler and its pool.
    pub engine: EngineSpec,
    /// How long a step takes.
    pub cost: CostSpec,
    /// The API server before and behind the engine.
    pub api: ApiSpec,
    /// A proxy between the clients and the API server; `None` for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxySpec>,
    /// The GPU that the DCGM page describes.
    pub gpu: GpuSpec,
    /// What goes wrong, and when.
    pub faults: Vec<Fault>,
}

/// How requests are ordered while they wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// First come, first served.
    #[default]
    Fcfs,
    /// The lowest `priority` first, then first come.
    Priority,
}

/// The engine's settings; names and meaning are vLLM's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSpec {
    /// Engines behind one front end (data parallel); each has its own pool and limits.
    pub engines: u32,
    /// Requests that may run at once.
    pub max_num_seqs: usize,
    /// Tokens that one step may compute.
    pub max_num_batched_tokens: usize,
    /// Longest prompt plus answer, in tokens.
    pub max_model_len: usize,
    /// Tokens a block holds.
    pub block_size: usize,
    /// Blocks in the pool, one of which is reserved.
    pub num_gpu_blocks: usize,
    /// Whether blocks are found again by their content.
    pub enable_prefix_caching: bool,
    /// Whether a prompt may be computed in parts.
    pub enable_chunked_prefill: bool,
    /// Tokens a single prompt may take of a step while others are there; 0 for no cap.
    pub long_prefill_token_threshold: usize,
    /// Whether admission demands room for the whole sequence rather than its first chunk.
    pub scheduler_reserve_full_isl: bool,
    /// Share of the pool that admissions leave free.
    pub watermark: f64,
    /// How waiting requests are ordered.
    pub policy: Policy,
    /// Whether the next step is scheduled before the last one's tokens are known.
    pub async_scheduling: bool,
    /// Speculative decoding; `None` is off.
    pub speculative: Option<SpeculativeSpec>,
    /// Time that the grammar of a structured answer takes to compile, in microseconds; every request brings its own.
    pub grammar_us: u64,
    /// Grammars that are compiled at once.
    pub grammar_workers: usize,
    /// Whether a pool is accepted that cannot hold one request of `max_model_len`: vLLM refuses it, but did not
    /// when `--num-gpu-blocks-override` was applied only after the check.
    pub unchecked_pool: bool,
}

impl Default for EngineSpec {
    fn default() -> Self {
        EngineSpec {
            engines: 1,
            max_num_seqs: 256,
            max_num_batched_tokens: 2_048,
            max_model_len: 8_192,
            block_size: 16,
            num_gpu_blocks: 1_800,
            enable_prefix_caching: true,
            enable_chunked_prefill: true,
            long_prefill_token_threshold: 0,
            scheduler_reserve_full_isl: true,
            watermark: 0.0,
            policy: Policy::Fcfs,
            async_scheduling: true,
            speculative: None,
            grammar_us: 20_000,
            grammar_workers: 4,
            unchecked_pool: false,
        }
    }
}

/// A proxy in front of the API server, as production has one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxySpec {
    /// Requests that it passes on at once; further ones wait in the proxy, where the server does not know of them.
    pub connections: usize,
    /// Time that it takes over each request, in microseconds.
    #[serde(default)]
    pub request_us: f64,
}

/// Draft tokens and how many of them hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeculativeSpec {
    /// Draft tokens a step.
    pub num_speculative_tokens: usize,
    /// Chance that the draft at each position holds, given that those before it did.
    pub acceptance: Vec<f64>,
    /// Chance that a request has a draft at all in a step.
    #[serde(default = "one")]
    pub draft_rate: f64,
    /// Whether there is a draft only for greedy requests (temperature 0), as n-gram look-up finds
    /// repetition only there.
    #[serde(default)]
    pub greedy_only: bool,
    /// Slots beyond the tokens of a step that the drafter needs.
    #[serde(default)]
    pub lookahead: usize,
}

fn one() -> f64 {
    1.0
}

/// The API server's settings and costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApiSpec {
    /// The served name.
    pub model: String,
    /// The key that `/v1` asks for; `None` for none.
    pub api_key: Option<String>,
    /// Requests beyond this many in the server are refused with 503; `None` for no cap.
    pub max_num_queued_reqs: Option<usize>,
    /// Prompt tokens beyond this many that have not started are refused with 503; `None` for no cap.
    pub max_num_queued_tokens: Option<usize>,
    /// Whether the routes of development mode exist (`/reset_prefix_cache`).
    pub dev_mode: bool,
    /// Whether a request may ask for its own metrics with `include_metrics`.
    pub per_request_metrics: bool,
    /// Whether usage tells how many prompt tokens were cached.
    pub prompt_tokens_details: bool,
    /// Whether engine metrics are made at all.
    pub log_stats: bool,
    /// Whether the page also has the names that vLLM dropped.
    pub old_names: bool,
    /// Messages of the engine that are gathered into one chunk, at least 1; the first is sent at once.
    pub stream_interval: usize,
    /// Words of an answer that are put into `reasoning` before its content begins.
    pub reasoning_tokens: usize,
    /// Tokens of an answer without a fixed length, on average.
    pub natural_answer: usize,
    /// Handling a request, in microseconds, on the event loop.
    pub request_us: f64,
    /// Rendering and tokenizing one prompt token, in microseconds, on the tokenizer's one thread.
    pub tokenize_us: f64,
    /// Handling one output, in microseconds, on the event loop.
    pub output_us: f64,
    /// Way from the engine to the event loop, in microseconds.
    pub ipc_us: f64,
    /// Writing the metrics page, in microseconds, on the event loop: everything else waits for it.
    pub page_us: f64,
}

impl Default for ApiSpec {
    fn default() -> Self {
        ApiSpec {
            model: "tiny".into(),
            api_key: None,
            max_num_queued_reqs: None,
            max_num_queued_tokens: None,
            dev_mode: false,
            per_request_metrics: false,
            prompt_tokens_details: false,
            log_stats: true,
            old_names: false,
            stream_interval: 1,
            reasoning_tokens: 0,
            natural_answer: 200,
            request_us: 800.0,
            tokenize_us: 1.0,
            output_us: 30.0,
            ipc_us: 300.0,
            page_us: 0.0,
        }
    }
}

/// The simulated GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GpuSpec {
    /// Marketing name.
    pub name: String,
    /// Clock under load, in MHz.
    pub sm_clock_mhz: f64,
    /// Memory clock, in MHz.
    pub memory_clock_mhz: f64,
    /// Power at rest, in watts.
    pub idle_w: f64,
    /// Power limit, in watts.
    pub limit_w: f64,
    /// Memory, in MiB.
    pub memory_mib: f64,
    /// Temperature at which the hardware slows down, in °C.
    pub slowdown_c: f64,
}

impl Default for GpuSpec {
    fn default() -> Self {
        GpuSpec::l4()
    }
}

impl GpuSpec {
    /// NVIDIA L4: 72 W, 24 GB.
    pub fn l4() -> GpuSpec {
        GpuSpec {
            name: "NVIDIA L4".into(),
            sm_clock_mhz: 2_040.0,
            memory_clock_mhz: 6_251.0,
            idle_w: 16.0,
            limit_w: 72.0,
            memory_mib: 23_034.0,
            slowdown_c: 89.0,
        }
    }

    /// NVIDIA H100 SXM: 700 W, 80 GB.
    pub fn h100() -> GpuSpec {
        GpuSpec {
            name: "NVIDIA H100 80GB HBM3".into(),
            sm_clock_mhz: 1_980.0,
            memory_clock_mhz: 2_619.0,
            idle_w: 72.0,
            limit_w: 700.0,
            memory_mib: 81_559.0,
            slowdown_c: 89.0,
        }
    }
}

/// One preset: its name, what it shows, and how it is made.
struct Preset {
    name: &'static str,
    summary: &'static str,
    /// Prompt and answer under which it shows that, tokens; `None`: any chat does.
    lengths: Option<(u32, u32)>,
    make: fn() -> Profile,
}

/// All presets, in the order in which they are listed.
const PRESETS: &[Preset] = &[
    Preset {
        name: "quickstart",
        summary: "an 8B model on an L4 whose pool holds 2,048 tokens: requests wait for blocks",
        lengths: Some((409, 64)),
        make: quickstart,
    },
    Preset { name: "l4-8b", summary: "an 8B model on an L4 with vLLM's defaults", lengths: None, make: l4 },
    Preset { name: "h100-8b", summary: "an 8B model on an H100 with vLLM's defaults", lengths: None, make: h100 },
    Preset {
        name: "roomy",
        summary: "a toy model on a CPU with more of everything than it needs",
        lengths: None,
        make: roomy,
    },
    Preset {
        name: "small-pool",
        summary: "64 blocks of 32 tokens: long prompts wait for blocks",
        lengths: Some((409, 64)),
        make: small_pool,
    },
    Preset {
        name: "preempt",
        summary: "the same pool under long answers: running requests are thrown out",
        lengths: Some((50, 400)),
        make: preempt,
    },
    Preset {
        name: "small-batch",
        summary: "four seats: requests wait while the pool is empty",
        lengths: Some((153, 64)),
        make: small_batch,
    },
    Preset {
        name: "slow-first",
        summary: "128 tokens a step: long prompts take many steps",
        lengths: Some((6_025, 32)),
        make: slow_first,
    },
    Preset { name: "spec", summary: "n-gram speculation with three draft tokens", lengths: None, make: spec },
    Preset {
        name: "slow-tokenizer",
        summary: "an API server that is the bottleneck: a slow first token and nothing waits",
        lengths: Some((2_000, 64)),
        make: slow_tokenizer,
    },
    Preset {
        name: "throttle",
        summary: "an H100 that loses half its clock after five minutes",
        lengths: None,
        make: throttle,
    },
    Preset { name: "dp2", summary: "two engines behind one front end", lengths: Some((409, 64)), make: dp2 },
];

impl Profile {
    /// The preset called `name`; `None` if there is none.
    pub fn named(name: &str) -> Option<Profile> {
        PRESETS.iter().find(|p| p.name == name).map(|p| Profile { name: p.name.into(), ..(p.make)() })
    }

    /// Names of all presets.
    pub fn names() -> Vec<&'static str> {
        PRESETS.iter().map(|p| p.name).collect()
    }

    /// What the preset called `name` shows, in one line; `None` if there is none.
    pub fn summary(name: &str) -> Option<&'static str> {
        PRESETS.iter().find(|p| p.name == name).map(|p| p.summary)
    }

    /// Prompt and answer, in tokens, under which the preset called `name` shows what it is for; `None` if
    /// there is none, or any chat does.
    pub fn lengths(name: &str) -> Option<(u32, u32)> {
        PRESETS.iter().find(|p| p.name == name).and_then(|p| p.lengths)
    }

    /// Whether the settings can work together.
    ///
    /// # Errors
    /// Says which setting is wrong, the value met and the values allowed.
    pub fn validate(&self) -> Result<(), String> {
        let e = &self.engine;
        let at_least = |what: &str, value: usize, least: usize| {
            if value < least { Err(format!("{what} is {value}, expected at least {least}")) } else { Ok(()) }
        };
        at_least("engines", e.engines as usize, 1)?;
        at_least("max_num_seqs", e.max_num_seqs, 1)?;
        at_least("max_num_batched_tokens", e.max_num_batched_tokens, 1)?;
        at_least("block_size", e.block_size, 1)?;
        at_least("max_model_len", e.max_model_len, 2)?;
        at_least("stream_interval", self.api.stream_interval, 1)?;
        at_least("grammar_workers", e.grammar_workers, 1)?;
        if let Some(proxy) = &self.proxy {
            at_least("proxy.connections", proxy.connections, 1)?;
        }
        let blocks = if e.unchecked_pool { 1 } else { e.max_model_len.div_ceil(e.block_size) };
        at_least("num_gpu_blocks", e.num_gpu_blocks, blocks + 1)
            .map_err(|text| format!("{text}: one request of max_model_len {} must fit", e.max_model_len))?;
        if !e.enable_chunked_prefill {
            at_least("max_num_batched_tokens", e.max_num_batched_tokens, e.max_model_len)
                .map_err(|text| format!("{text}: without chunked prefill a prompt must fit into a step"))?;
        }
        if !(0.0..1.0).contains(&e.watermark) {
            return Err(format!("watermark is {}, expected 0 to 1", e.watermark));
        }
        if let Some(s) = &e.speculative
            && s.acceptance.len() != s.num_speculative_tokens
        {
            return Err(format!(
                "acceptance has {} entries, expected one for each of {} draft tokens",
                s.acceptance.len(),
                s.num_speculative_tokens
            ));
        }
        Ok(())
    }
}

fn l4() -> Profile {
    Profile {
        cost: CostSpec::l4_8b(),
        api: ApiSpec {
            model: "llama-3.1-8b".into(),
            request_us: 500.0,
            output_us: 12.0,
            ipc_us: 150.0,
            ..ApiSpec::default()
        },
        ..Profile::default()
    }
}

fn h100() -> Profile {
    Profile {
        engine: EngineSpec {
            max_num_seqs: 1_024,
            max_num_batched_tokens: 8_192,
            max_model_len: 32_768,
            num_gpu_blocks: 26_600,
            ..EngineSpec::default()
        },
        cost: CostSpec::h100_8b(),
        gpu: GpuSpec::h100(),
        ..l4()
    }
}

fn quickstart() -> Profile {
    Profile { engine: EngineSpec { max_model_len: 1_024, num_gpu_blocks: 128, ..EngineSpec::default() }, ..l4() }
}

/// The engine that the recorded runs of the real vLLM had, on a CPU: blocks of 32, no asynchronous scheduling.
fn cpu(engine: EngineSpec) -> Profile {
    Profile {
        engine: EngineSpec { block_size: 32, async_scheduling: false, ..engine },
        cost: CostSpec::cpu_tiny(),
        api: ApiSpec {
            request_us: 4_500.0,
            output_us: 66.0,
            ipc_us: 660.0,
            tokenize_us: 2.2,
            page_us: 7_500.0,
            ..ApiSpec::default()
        },
        ..Profile::default()
    }
}

fn roomy() -> Profile {
    cpu(EngineSpec { max_num_seqs: 64, max_model_len: 8_192, num_gpu_blocks: 8_192, ..EngineSpec::default() })
}

fn small_pool() -> Profile {
    cpu(EngineSpec { max_num_seqs: 128, max_model_len: 1_024, num_gpu_blocks: 64, ..EngineSpec::default() })
}

fn preempt() -> Profile {
    small_pool()
}

fn small_batch() -> Profile {
    cpu(EngineSpec { max_num_seqs: 4, max_model_len: 2_048, num_gpu_blocks: 8_192, ..EngineSpec::default() })
}

fn slow_first() -> Profile {
    cpu(EngineSpec {
        max_num_seqs: 128,
        max_model_len: 8_192,
        max_num_batched_tokens: 128,
        num_gpu_blocks: 4_096,
        ..EngineSpec::default()
    })
}

fn spec() -> Profile {
    cpu(EngineSpec {
        max_num_seqs: 128,
        max_model_len: 4_096,
        num_gpu_blocks: 8_192,
        speculative: Some(SpeculativeSpec {
            num_speculative_tokens: 3,
            acceptance: vec![1.0, 1.0, 1.0],
            draft_rate: 0.94,
            greedy_only: true,
            lookahead: 0,
        }),
        ..EngineSpec::default()
    })
}

fn slow_tokenizer() -> Profile {
    let mut p = h100();
    p.api.tokenize_us = 400.0;
    p
}

fn throttle() -> Profile {
    let mut p = h100();
    p.faults.push(Fault::throttle_from(std::time::Duration::from_secs(300), 0.5));
    p
}

fn dp2() -> Profile {
    let mut p = quickstart();
    p.engine.engines = 2;
    p
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_valid_and_survives_toml() {
        for name in Profile::names() {
            let profile = Profile::named(name).unwrap();
            profile.validate().unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(Profile::summary(name).is_some());
            let text = toml::to_string(&profile).unwrap();
            assert_eq!(toml::from_str::<Profile>(&text).unwrap(), profile, "{name}");
        }
        assert!(Profile::named("nope").is_none());
    }

    #[test]
    fn settings_that_cannot_work_are_named() {
        let with = |change: fn(&mut Profile)| {
            let mut p = quickstart();
            change(&mut p);
            p.validate().unwrap_err()
        };
        assert!(with(|p| p.engine.max_num_seqs = 0).contains("max_num_seqs is 0"));
        assert!(with(|p| p.engine.num_gpu_blocks = 64).contains("one request of max_model_len 1024 must fit"));
        assert!(with(|p| p.engine.watermark = 1.5).contains("watermark is 1.5"));
    }
}
