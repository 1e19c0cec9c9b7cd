//! What else the run tells.

use super::markup::Html;
use crate::model::verdict::Verdict;
use crate::report::{answer, text};

/// What else the run tells: other alerts, production's view, the run itself.
pub(super) fn more(h: &mut Html, v: &Verdict) {
    h.within("section", &[("class", "card"), ("aria-labelledby", "more")], |h| {
        h.leaf("h2", &[("id", "more")], "The run");
        h.within("dl", &[("class", "facts")], |h| {
            for e in answer::entries(v) {
                if matches!(e.label, "also fired" | "as deployed" | "estimate" | "run") {
                    h.leaf("dt", &[], e.label);
                    h.within("dd", &[], |h| {
                        for line in &e.lines {
                            h.leaf("p", &[], line);
                        }
                    });
                }
            }
            for (name, value) in facts(v) {
                h.leaf("dt", &[], name);
                h.leaf("dd", &[], &value);
            }
        });
        let tool = format!(
            "{} {}, PromQL as in Prometheus {}. All of this is in verdict.json.",
            v.tool.name, v.tool.version, v.tool.promql
        );
        h.leaf("p", &[("class", "muted")], &tool);
    });
}

fn facts(v: &Verdict) -> Vec<(&'static str, String)> {
    let t = &v.target;
    let mut out = vec![("targets", answer::targets(v))];
    let tokens = |s: &crate::model::verdict::Spread| text::spread(s);
    out.push((
        "workload",
        format!(
            "{}; prompt tokens {}, output tokens {}, median (max)",
            v.workload.kind,
            tokens(&v.workload.prompt_tokens),
            tokens(&v.workload.output_tokens)
        ),
    ));
    let mut pool = Vec::new();
    pool.extend(t.max_model_len.map(|n| format!("longest sequence {n} tokens")));
    pool.extend(t.kv_cache_tokens.map(|n| format!("KV pool {n} tokens")));
    pool.extend(t.kv_cache_blocks.zip(t.block_size).map(|(n, size)| format!("{n} blocks of {size}")));
    if !pool.is_empty() {
        out.push(("server", pool.join(", ")));
    }
    if let Some(argv) = &t.server_command {
        out.push(("command", argv.join(" ")));
    }
    let mut gpus: Vec<String> = Vec::new();
    for g in v.steps.iter().flat_map(|s| &s.gpu) {
        let name = format!("{} {}", g.device, g.name.as_deref().unwrap_or("unknown model"));
        if !gpus.contains(&name) {
            gpus.push(name);
        }
    }
    if !gpus.is_empty() {
        out.push(("GPU", gpus.join(", ")));
    }
    out.push(("seed, nonce", format!("{}, {}", v.seed, v.nonce)));
    out
}
