//! Where nothing explains an alert: the signals that moved most since the first step.

use crate::model::step::StepSpan;
use crate::model::units::human_seconds;
use crate::model::verdict::Evidence;
use crate::rules::Judge;
use crate::rules::stats::Over;

/// Requests that failed, of any class.
const FAILED: &str = "plimsoll_requests_total{outcome!=\"completed\"}";

/// The three signals that changed most, as evidence in words.
pub(super) fn moved_most(judge: &Judge<'_>, span: &StepSpan) -> Vec<Evidence> {
    let Some(first) = judge.recording().steps.iter().find(|s| s.load.level() < span.load.level()) else {
        return Vec::new();
    };
    let (Some(before), Some(now)) = (judge.server_stats(first), judge.server_stats(span)) else { return Vec::new() };
    let count = |v: f64| format!("{v:.1}");
    let ratio = |v: f64| format!("{v:.2}");
    // Name, expression, before, now, and how a value is written.
    type Words<'a> = &'a dyn Fn(f64) -> String;
    type Signal<'a> = (&'a str, &'a str, Option<f64>, Option<f64>, Words<'a>);
    // What the client saw moves also where the server's page stays as it was.
    let (lens, lens_before) = (judge.lens(span.measured), judge.lens(first.measured));
    let (over, over_before) = (Over::new(judge, &lens, span.measured), Over::new(judge, &lens_before, first.measured));
    let client = |sum: &str, count: &str| (over_before.ratio(sum, count), over.ratio(sum, count));
    let failed = |over: &Over<'_, '_>| over.ratio(FAILED, "plimsoll_requests_total");
    let wait = client("plimsoll_client_ttft_seconds_sum", "plimsoll_client_ttft_seconds_count");
    let gap = client("plimsoll_client_gap_seconds_sum", "plimsoll_client_gap_seconds_count");
    let clock = (over_before.spread("plimsoll:gpu_sm_clock").median, over.spread("plimsoll:gpu_sm_clock").median);
    let signals: [Signal<'_>; 13] = [
        ("share of failed requests", FAILED, failed(&over_before), failed(&over), &ratio),
        ("the client's time to first token", "plimsoll_client_ttft_seconds_sum", wait.0, wait.1, &human_seconds),
        ("the client's gap between tokens", "plimsoll_client_gap_seconds_sum", gap.0, gap.1, &human_seconds),
        ("GPU clock in MHz", "plimsoll:gpu_sm_clock", clock.0, clock.1, &count),
        ("requests waiting", "plimsoll:waiting", before.waiting.median, now.waiting.median, &count),
        ("requests running", "plimsoll:running", before.running.median, now.running.median, &count),
        ("KV cache usage", "plimsoll:kv_usage", before.kv_cache_usage.median, now.kv_cache_usage.median, &ratio),
        ("preemptions", "plimsoll:preemptions", before.preemptions, now.preemptions, &count),
        ("queue time", "plimsoll:queue_mean", before.queue_mean_s, now.queue_mean_s, &human_seconds),
        ("prefill time", "plimsoll:prefill_mean", before.prefill_mean_s, now.prefill_mean_s, &human_seconds),
        ("time to first token", "plimsoll:ttft_mean", before.ttft_mean_s, now.ttft_mean_s, &human_seconds),
        ("inter-token latency", "plimsoll:itl_seconds_sum", before.itl_mean_s, now.itl_mean_s, &human_seconds),
        (
            "prefix hit rate",
            "plimsoll:prefix_hit_rate",
            before.prefix_cache_hit_rate,
            now.prefix_cache_hit_rate,
            &ratio,
        ),
    ];
    let mut moved: Vec<(f64, Evidence)> = Vec::new();
    for (name, expr, a, b, words) in signals {
        let (Some(a), Some(b)) = (a, b) else { continue };
        let scale = a.abs().max(b.abs());
        if scale > 0.0 && (a - b).abs() / scale > 0.05 {
            let says = format!("{name} from {} to {}", words(a), words(b));
            moved.push(((a - b).abs() / scale, Evidence { says, expr: Some(expr.into()), median: Some(b), max: None }));
        }
    }
    moved.sort_by(|a, b| b.0.total_cmp(&a.0));
    moved.into_iter().take(3).map(|(_, e)| e).collect()
}
