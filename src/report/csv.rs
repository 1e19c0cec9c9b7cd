//! The steps as CSV (RFC 4180): one row a step, keys with their unit, unknown is empty.

use std::io::{self, Write};

use super::rows;
use super::text::plain;
use crate::model::step::CutShort;
use crate::model::verdict::{AlertState, GpuStats, Quantiles, Spread, StepVerdict, Verdict};

/// Writes the header and a row for each step.
///
/// # Errors
/// If the writer fails.
pub fn write(verdict: &Verdict, out: &mut dyn Write) -> io::Result<()> {
    // As many groups of GPU columns as the step with most GPUs needs, so that all rows agree.
    let gpus = verdict.steps.iter().map(|s| s.gpu.len()).max().unwrap_or(0);
    let rows: Vec<Vec<(String, String)>> = verdict.steps.iter().map(|s| row(s, gpus)).collect();
    let header = match rows.first() {
        Some(first) => first.iter().map(|(k, _)| k.clone()).collect(),
        None => vec!["step".to_owned()],
    };
    line(out, &header)?;
    for row in rows {
        line(out, &row.into_iter().map(|(_, cell)| cell).collect::<Vec<_>>())?;
    }
    Ok(())
}

fn line(out: &mut dyn Write, cells: &[String]) -> io::Result<()> {
    out.write_all(cells.join(",").as_bytes())?;
    out.write_all(b"\r\n")
}

/// One row as keys and cells.
fn row(s: &StepVerdict, gpus: usize) -> Vec<(String, String)> {
    let mut r = Row(Vec::new());
    r.number("step", Some(f64::from(s.step)));
    r.number("repeat", Some(f64::from(s.repeat)));
    r.text("phase", rows::phase(s.phase));
    r.number("offered_concurrency", s.offered.concurrency.map(f64::from));
    r.number("offered_requests_per_s", s.offered.requests_per_s);
    r.text("outcome", rows::outcome_word(s.outcome));
    r.text(
        "cut_short",
        match s.cut_short {
            None => "",
            Some(CutShort::Interrupted) => "interrupted",
            Some(CutShort::TargetLost) => "target_lost",
        },
    );
    r.number("warmup_start_s", Some(s.warmup_s[0]));
    r.number("measured_start_s", Some(s.measured_s[0]));
    r.number("measured_end_s", Some(s.measured_s[1]));
    for (key, n) in [
        ("requests_sent", s.requests.sent),
        ("requests_completed", s.requests.completed),
        ("requests_failed", s.requests.failed.total),
        ("requests_in_flight_at_end", s.requests.in_flight_at_end),
        ("requests_censored", s.requests.censored),
    ] {
        r.put(key, n.to_string());
    }
    r.number("error_rate_ratio", s.client.error_rate_ratio);
    r.number("mean_in_flight", s.achieved.mean_in_flight);
    r.number("requests_per_s", s.achieved.requests_per_s);
    r.number("completed_per_s", s.achieved.completed_per_s);
    r.number("output_tokens_per_s", s.client.output_tokens_per_s);
    r.number("prompt_tokens_per_s", s.client.prompt_tokens_per_s);
    r.number("goodput_per_s", s.client.goodput_per_s);
    for (name, q) in [
        ("ttft", &s.client.ttft_s),
        ("gap", &s.client.gap_s),
        ("itl", &s.client.itl_s),
        ("tpot", &s.client.tpot_s),
        ("e2e", &s.client.e2e_s),
        ("worst_gap", &s.client.worst_gap_s),
    ] {
        r.quantiles(name, q);
    }
    let server = s.server.clone().unwrap_or_default();
    r.spread("waiting", "", &server.waiting);
    r.spread("running", "", &server.running);
    r.spread("kv_cache_usage", "", &server.kv_cache_usage);
    for (key, x) in [
        ("preemptions", server.preemptions),
        ("server_ttft_p99_s", server.ttft_p99_s),
        ("server_ttft_mean_s", server.ttft_mean_s),
        ("server_itl_p99_s", server.itl_p99_s),
        ("server_itl_mean_s", server.itl_mean_s),
        ("queue_mean_s", server.queue_mean_s),
        ("prefill_mean_s", server.prefill_mean_s),
        ("prefix_cache_hit_rate", server.prefix_cache_hit_rate),
        ("draft_acceptance_rate", server.draft_acceptance_rate),
        ("generation_tokens_per_s", server.generation_tokens_per_s),
        ("client_lag_p99_s", s.client_health.lag_p99_s),
        ("client_cpu_cores", s.client_health.cpu_cores),
        ("littles_law_residual", s.client_health.littles_law_residual),
    ] {
        r.number(key, x);
    }
    for i in 0..gpus {
        r.gpu(i, &s.gpu.get(i).cloned().unwrap_or_default());
    }
    for (key, state) in [
        ("firing", AlertState::Firing),
        ("pending", AlertState::Pending),
        ("not_evaluable", AlertState::NotEvaluable),
        ("no_data", AlertState::NoData),
    ] {
        let names: Vec<&str> = s.alerts.iter().filter(|a| a.state == state).map(|a| a.alert.as_str()).collect();
        r.text(key, &names.join("; "));
    }
    let caveats: Vec<&str> = s.caveats.iter().map(|c| c.code.as_str()).collect();
    r.text("caveats", &caveats.join("; "));
    r.0
}

struct Row(Vec<(String, String)>);

impl Row {
    fn put(&mut self, key: &str, cell: String) {
        self.0.push((key.into(), cell));
    }

    fn number(&mut self, key: &str, x: Option<f64>) {
        self.put(key, x.filter(|x| x.is_finite()).map(|x| x.to_string()).unwrap_or_default());
    }

    fn text(&mut self, key: &str, text: &str) {
        self.put(key, quoted(text));
    }

    fn quantiles(&mut self, name: &str, q: &Quantiles) {
        self.put(&format!("{name}_n"), q.n.to_string());
        let [lower, upper] = q.p99_ci95.unwrap_or_default();
        for (part, x) in [
            ("mean", q.mean),
            ("p50", q.p50),
            ("p90", q.p90),
            ("p99", q.p99),
            ("p99_ci95_lower", lower),
            ("p99_ci95_upper", upper),
            ("max", q.max),
        ] {
            self.number(&format!("{name}_{part}_s"), x);
        }
    }

    fn spread(&mut self, name: &str, unit: &str, s: &Spread) {
        for (part, x) in [("min", s.min), ("median", s.median), ("max", s.max)] {
            self.number(&format!("{name}_{part}{unit}"), x);
        }
    }

    fn gpu(&mut self, i: usize, g: &GpuStats) {
        self.text(&format!("gpu{i}_device"), &g.device);
        self.spread(&format!("gpu{i}_sm_clock"), "_mhz", &g.sm_clock_mhz);
        self.spread(&format!("gpu{i}_temperature"), "_c", &g.temperature_c);
        self.spread(&format!("gpu{i}_power"), "_w", &g.power_w);
        self.number(&format!("gpu{i}_energy_j_per_1k_tokens"), g.energy_j_per_1k_tokens);
        let reasons: Vec<String> =
            g.throttle_reasons.iter().map(|t| format!("{} {}", t.reason, t.share_ratio)).collect();
        self.text(&format!("gpu{i}_throttle_reasons"), &reasons.join("; "));
        let whole = |n: Option<u64>| n.map(|n| n as f64);
        self.number(&format!("gpu{i}_neighbours"), whole(g.neighbours));
        self.number(&format!("gpu{i}_neighbour_memory_bytes"), whole(g.neighbour_memory_bytes));
        self.number(&format!("gpu{i}_neighbour_sm_pct"), g.neighbour_sm_pct);
        self.number(&format!("gpu{i}_ecc_uncorrected"), whole(g.ecc_uncorrected));
        let xids: Vec<String> = g.xids.iter().map(u32::to_string).collect();
        self.text(&format!("gpu{i}_xids"), &xids.join("; "));
    }
}

/// A text as one cell. Spreadsheets run what begins with `=`, `+`, `-` or `@`; an apostrophe stops them.
fn quoted(text: &str) -> String {
    let mut text = plain(text);
    if text.starts_with(['=', '+', '-', '@']) {
        text.insert(0, '\'');
    }
    if text.contains(['"', ',', ';', '\'']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_cell_and_no_formula() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,\"b\"\nc"), "\"a,\"\"b\"\" c\"");
        assert_eq!(quoted("=cmd()"), "\"'=cmd()\"");
    }
}
