//! What of two runs must be alike for their numbers to be compared.

use std::collections::BTreeSet;

use crate::model::comparison::Difference;
use crate::model::units::human_seconds;
use crate::model::verdict::{Spread, Verdict};

/// Middles of lengths may differ by this share.
const LENGTHS: f64 = 0.02;

/// Lengths that are drawn differ by chance, which two runs of few requests show; but by no more than this share.
const DRAWN: f64 = 0.1;

/// Everything that differs and must not. Versions of the engine may: they are what is compared.
pub fn differences(base: &Verdict, new: &Verdict) -> Vec<Difference> {
    type Words = fn(&Verdict) -> String;
    let all: [(&str, Words); 11] = [
        ("scenario", |v| v.scenario.clone()),
        ("model", |v| v.target.model.clone()),
        ("engine", |v| or_unknown(v.target.engine.as_ref())),
        ("clock", |v| format!("{:?}", v.clock).to_lowercase()),
        ("time scale", |v| v.time_scale.to_string()),
        ("workload", |v| v.workload.kind.clone()),
        ("kind of load", |v| match v.steps.first().map(|s| s.load) {
            Some(crate::model::step::Load::Rate(_)) => "requests per second".into(),
            Some(crate::model::step::Load::Concurrency(_)) => "streams".into(),
            None => "unknown".into(),
        }),
        ("targets", |v| {
            let slo = &v.slo;
            format!(
                "TTFT {}, ITL {}, errors {}",
                human_seconds(slo.ttft_p99_s),
                human_seconds(slo.itl_p99_s),
                slo.error_rate_ratio
            )
        }),
        ("longest sequence", |v| or_unknown(v.target.max_model_len.as_ref())),
        ("block size", |v| or_unknown(v.target.block_size.as_ref())),
        ("GPU", gpus),
    ];
    let mut out: Vec<Difference> = all
        .into_iter()
        .map(|(what, of)| (what, of(base), of(new)))
        .filter(|(_, b, n)| b != n)
        .map(|(what, base, new)| Difference { what: what.into(), base, new })
        .collect();
    if base.void.is_some() || new.void.is_some() {
        let words = |v: &Verdict| v.void.as_ref().map_or_else(|| "sound".into(), |why| format!("broken: {why}"));
        out.insert(0, Difference { what: "the hardware".into(), base: words(base), new: words(new) });
    }
    let (b, n) = (&base.workload, &new.workload);
    let drawn = [requests(base), requests(new)];
    if !(near(&b.prompt_tokens, &n.prompt_tokens, drawn) && near(&b.output_tokens, &n.output_tokens, drawn)) {
        out.push(Difference { what: "lengths".into(), base: lengths(base), new: lengths(new) });
    }
    // Who did not start the server does not know its flags; only two that are known can differ.
    if let (Some(b), Some(n)) = (&base.target.server_command, &new.target.server_command) {
        let (b, n) = (flags(b), flags(n));
        if b != n {
            let only = |a: &BTreeSet<String>, other: &BTreeSet<String>| {
                let words: Vec<&str> = a.difference(other).map(String::as_str).collect();
                if words.is_empty() { "nothing more".to_owned() } else { words.join(" ") }
            };
            out.push(Difference { what: "server flags".into(), base: only(&b, &n), new: only(&n, &b) });
        }
    }
    out
}

fn or_unknown(x: Option<&impl ToString>) -> String {
    x.map_or_else(|| "unknown".into(), ToString::to_string)
}

/// Models of the GPUs beside the server, with how many of each.
fn gpus(v: &Verdict) -> String {
    let cards: BTreeSet<(&str, &str)> = v
        .steps
        .iter()
        .flat_map(|s| &s.gpu)
        .map(|g| {
            (
                g.name.as_deref().unwrap_or("unknown model"),
                if g.uuid.is_empty() { g.device.as_str() } else { g.uuid.as_str() },
            )
        })
        .collect();
    let mut names: Vec<&str> = cards.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    let words: Vec<String> =
        names.chunk_by(|a, b| a == b).map(|same| format!("{} x {}", same.len(), same[0])).collect();
    if words.is_empty() { "none seen".into() } else { words.join(", ") }
}

fn lengths(v: &Verdict) -> String {
    format!(
        "{} in, {} out",
        or_unknown(v.workload.prompt_tokens.median.as_ref()),
        or_unknown(v.workload.output_tokens.median.as_ref())
    )
}

fn requests(v: &Verdict) -> f64 {
    v.steps.iter().map(|s| s.requests.completed as f64).sum()
}

/// Whether the middles of two spreads, of so many requests each, are within [`LENGTHS`] of each other, or within what
/// chance makes of them: three times the standard error of the difference, had the lengths been drawn evenly between
/// the smallest and the largest.
fn near(b: &Spread, n: &Spread, requests: [f64; 2]) -> bool {
    let (Some(middle), Some(other)) = (b.median, n.median) else { return b.median == n.median };
    let largest = middle.abs().max(other.abs());
    let width = |s: &Spread| s.max.zip(s.min).map_or(0.0, |(max, min)| max - min);
    let error = width(b).max(width(n)) / 2.0 * requests.iter().map(|n| 1.0 / n.max(1.0)).sum::<f64>().sqrt();
    (middle - other).abs() <= (3.0 * error).clamp(LENGTHS * largest, DRAWN * largest)
}

/// The flags of a command, each with its value; not the program, which is what a release replaces, nor where it listens.
fn flags(argv: &[String]) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    let mut flag: Option<String> = None;
    for word in argv.iter().skip_while(|w| !w.starts_with('-')) {
        if word.starts_with("--") {
            out.extend(flag.replace(word.clone()));
        } else if let Some(f) = &mut flag {
            f.push(' ');
            f.push_str(word);
        }
    }
    out.extend(flag);
    out.retain(|f| !["--port", "--host"].iter().any(|p| f.split([' ', '=']).next() == Some(p)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_program_and_port_are_no_other_flags() {
        let words = |t: &str| t.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let old = flags(&words("/old/vllm serve model --port 1 --max-num-seqs 8 --enforce-eager"));
        let new = flags(&words("/new/vllm serve model --enforce-eager --port=2 --max-num-seqs 8"));
        assert_eq!(old, new);
        assert_eq!(old.len(), 2);
        assert_ne!(old, flags(&words("/new/vllm serve model --enforce-eager --max-num-seqs 16")));
    }
}
