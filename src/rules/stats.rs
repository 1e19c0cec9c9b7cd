//! The server's signals over a step, read under their neutral names.

use crate::model::sample::{Labels, SourceKind};
use crate::model::step::StepSpan;
use crate::model::time::Span;
use crate::model::verdict::{ServerStats, Spread};

use super::judge::Judge;
use super::lens::Lens;

/// Every neutral name that the table of a step reads.
const READ: [&str; 19] = [
    "plimsoll:waiting",
    "plimsoll:running",
    "plimsoll:kv_usage",
    "plimsoll:preemptions",
    "plimsoll:ttft_seconds_bucket",
    "plimsoll:ttft_seconds_sum",
    "plimsoll:ttft_seconds_count",
    "plimsoll:itl_seconds_bucket",
    "plimsoll:itl_seconds_sum",
    "plimsoll:itl_seconds_count",
    "plimsoll:queue_seconds_sum",
    "plimsoll:queue_seconds_count",
    "plimsoll:prefill_seconds_sum",
    "plimsoll:prefill_seconds_count",
    "plimsoll:prefix_hits",
    "plimsoll:prefix_queries",
    "plimsoll:accepted_tokens",
    "plimsoll:draft_tokens",
    "plimsoll:generation_tokens",
];

impl Judge<'_> {
    /// What the server's page said over the measured part of a step; `None` without any scrape.
    pub fn server_stats(&self, span: &StepSpan) -> Option<ServerStats> {
        let scrapes = self.recording.scrapes.iter().filter(|s| s.source == SourceKind::Server);
        let (good, failed): (Vec<_>, Vec<_>) =
            scrapes.filter(|s| span.measured.contains(s.sent)).partition(|s| s.result.is_ok());
        if good.is_empty() && failed.is_empty() {
            return None;
        }
        let read: Vec<_> = READ.iter().filter_map(|name| crate::promql::parse(name).ok()).collect();
        let lens = self.lens_for(span.measured, &read);
        let over = Over::new(self, &lens, span.measured);
        Some(ServerStats {
            scrapes: good.len() as u64,
            failed_scrapes: failed.len() as u64,
            waiting: over.spread("sum(plimsoll:waiting)"),
            running: over.spread("sum(plimsoll:running)"),
            kv_cache_usage: over.spread("max(plimsoll:kv_usage)"),
            preemptions: over.grown("plimsoll:preemptions"),
            ttft_p99_s: over.quantile("plimsoll:ttft_seconds_bucket"),
            ttft_mean_s: over.ratio("plimsoll:ttft_seconds_sum", "plimsoll:ttft_seconds_count"),
            itl_p99_s: over.quantile("plimsoll:itl_seconds_bucket"),
            itl_mean_s: over.ratio("plimsoll:itl_seconds_sum", "plimsoll:itl_seconds_count"),
            queue_mean_s: over.ratio("plimsoll:queue_seconds_sum", "plimsoll:queue_seconds_count"),
            prefill_mean_s: over.ratio("plimsoll:prefill_seconds_sum", "plimsoll:prefill_seconds_count"),
            prefix_cache_hit_rate: over.ratio("plimsoll:prefix_hits", "plimsoll:prefix_queries"),
            draft_acceptance_rate: over.ratio("plimsoll:accepted_tokens", "plimsoll:draft_tokens"),
            generation_tokens_per_s: over.per_second("plimsoll:generation_tokens"),
        })
    }
}

/// A stretch of a lens, asked about neutral names.
pub struct Over<'a, 'b> {
    lens: &'a Lens<'b>,
    from_s: f64,
    to_s: f64,
}

impl<'a, 'b> Over<'a, 'b> {
    /// What a lens shows of a span.
    pub fn new(judge: &Judge<'_>, lens: &'a Lens<'b>, span: Span) -> Over<'a, 'b> {
        let (from_s, to_s) = judge.window(span);
        Over { lens, from_s, to_s }
    }

    /// Middle and ends of an expression.
    pub fn spread(&self, expr: &str) -> Spread {
        let mut values: Vec<f64> =
            self.lens.values(expr, self.from_s, self.to_s, &Labels::default()).into_iter().map(|(_, v)| v).collect();
        values.sort_by(f64::total_cmp);
        let median = match values.len() {
            0 => None,
            n if n % 2 == 1 => Some(values[n / 2]),
            n => Some((values[n / 2 - 1] + values[n / 2]) / 2.0),
        };
        Spread { min: values.first().copied(), median, max: values.last().copied() }
    }

    /// Growth of a counter between the first and the last scrape, resets included, not extrapolated.
    pub fn grown(&self, counter: &str) -> Option<f64> {
        self.growth(counter).map(|(grown, _)| grown)
    }

    /// Growth of one counter over that of another; `None` if the second did not grow.
    pub fn ratio(&self, above: &str, below: &str) -> Option<f64> {
        let (a, b) = (self.grown(above)?, self.grown(below)?);
        (b > 0.0).then(|| a / b)
    }

    /// Growth of a counter over the time between its first and last scrape.
    pub fn per_second(&self, counter: &str) -> Option<f64> {
        self.growth(counter).and_then(|(grown, over)| (over > 0.0).then(|| grown / over))
    }

    /// 99th percentile over exactly this stretch.
    fn quantile(&self, buckets: &str) -> Option<f64> {
        let (from, to) = self.ends()?;
        let window = ((to - from) * 1e3).round() as i64 + 1;
        let expr = format!("histogram_quantile(0.99, sum by (le) (increase({buckets}[{window}ms])))");
        let (_, v) = self.lens.values(&expr, to, to, &Labels::default()).pop()?;
        Some(v)
    }

    fn growth(&self, counter: &str) -> Option<(f64, f64)> {
        let values = self.lens.values(&format!("sum({counter})"), self.from_s, self.to_s, &Labels::default());
        let (first, last) = (values.first()?, values.last()?);
        let grown = values.windows(2).map(|w| if w[1].1 < w[0].1 { w[1].1 } else { w[1].1 - w[0].1 }).sum();
        (values.len() > 1).then_some((grown, last.0 - first.0))
    }

    fn ends(&self) -> Option<(f64, f64)> {
        let at = self.lens.times(self.from_s, self.to_s);
        Some((*at.first()?, *at.last()?))
    }
}
