//! How far a step's numbers can be trusted: a bootstrap over blocks of time.
//!
//! Requests of one moment share the server's state, and gaps of one engine step are the same gap seen
//! by every stream: drawing them one by one would take them for independent and find them far too
//! sure. So the window is cut into blocks longer than a request, whole blocks are drawn with
//! replacement, and the spread of a statistic over such draws is its standard error (block
//! bootstrap: Künsch 1989). The draws are seeded, so the same recording gives the same bytes.
//!
//! What is the same in every block of a run and another in the next run, no draw of blocks can show. Where streams keep
//! step with each other, that is how many of them send together; then the statistics that hang on it have no error.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::client::Samples;
use crate::model::time::{Offset, Span};
use crate::model::verdict::Noise;

/// Draws. Two hundred give a standard error to within 5 % (Efron and Tibshirani 1993, section 6.4).
const DRAWS: usize = 200;
/// Blocks that a step is cut into, unless requests are too long for that.
const BLOCKS: usize = 24;
/// Fewer blocks tell nothing of the spread between blocks.
const LEAST_BLOCKS: usize = 6;
/// Fewest samples on which a median, and a 99th percentile, is given an error.
const ENOUGH: [usize; 2] = [20, 100];
/// Bins of a decade of the histograms that draws are added up in: steps of 0.2 %, far below any error that matters.
const BINS_A_DECADE: f64 = 1_151.0;

/// The standard errors of a step's statistics.
pub fn noise(samples: &Samples) -> Noise {
    let blocks = Blocks::cut(samples);
    if blocks.spans.len() < LEAST_BLOCKS {
        return Noise { blocks: blocks.spans.len() as u64, ..Noise::default() };
    }
    let draws = blocks.draws();
    let mixed = |error: Option<f64>| error.filter(|_| !samples.in_step);
    let [ttft_p50, ttft_p99] = blocks.quantile_errors(&samples.ttft, &draws).map(mixed);
    let [gap_p50, gap_p99] = blocks.quantile_errors(&samples.gaps, &draws);
    let gap_p99 = mixed(gap_p99);
    let [e2e_p50, _] = blocks.quantile_errors(&samples.e2e, &draws);
    Noise {
        blocks: blocks.spans.len() as u64,
        block_s: Some(blocks.spans[0].len().as_secs_f64()),
        ttft_p50_ratio: ttft_p50,
        ttft_p99_ratio: ttft_p99,
        gap_p50_ratio: gap_p50,
        gap_p99_ratio: gap_p99,
        e2e_p50_ratio: e2e_p50,
        output_tokens_ratio: blocks.sum_error(&samples.output_tokens, &draws),
    }
}

/// A statistic of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Of {
    /// Their sum, or a rate.
    Sum,
    /// Their mean.
    Mean,
    /// A quantile, 0 to 1.
    Quantile(f64),
}

/// The standard error of one statistic as a share of it, and its degrees of freedom. `None` with too few samples
/// or blocks.
pub fn error(all: &Samples, of: Of, samples: &[(Offset, f64)]) -> Option<(f64, f64)> {
    let blocks = Blocks::cut(all);
    let n = blocks.spans.len();
    if n < LEAST_BLOCKS || samples.len() < ENOUGH[0] {
        return None;
    }
    let draws = blocks.draws();
    let error = match of {
        Of::Sum => blocks.sum_error(samples, &draws),
        Of::Mean => blocks.mean_error(samples, &draws),
        Of::Quantile(q) => blocks.quantile_error(samples, &draws, [q])[0],
    };
    Some((error?, n as f64 - 1.0))
}

/// Consecutive blocks of time, in order.
struct Blocks {
    spans: Vec<Span>,
}

impl Blocks {
    /// Every window in equal blocks, of which each holds a request of middling length.
    fn cut(samples: &Samples) -> Blocks {
        let mut lengths: Vec<f64> = samples.e2e.iter().map(|(_, v)| *v).collect();
        lengths.sort_by(f64::total_cmp);
        let request = super::quantiles::at(&lengths, 0.5).unwrap_or(0.0);
        let whole: f64 = samples.windows.iter().map(|w| w.len().as_secs_f64()).sum();
        let length = (whole / BLOCKS as f64).max(request);
        let mut spans = Vec::new();
        for w in &samples.windows {
            let n = (w.len().as_secs_f64() / length.max(1e-9)).floor().max(1.0) as u64;
            let ends = |i: u64| {
                Offset(
                    w.start.0 + (u128::from(w.end.0.saturating_sub(w.start.0)) * u128::from(i) / u128::from(n)) as u64,
                )
            };
            spans.extend((0..n).map(|i| Span::new(ends(i), ends(i + 1))));
        }
        Blocks { spans }
    }

    /// How often each block is in each draw.
    fn draws(&self) -> Vec<Vec<u32>> {
        let n = self.spans.len();
        let mut chance = Pcg64Mcg::seed_from_u64(n as u64);
        let draw = |_| {
            let mut times = vec![0; n];
            for _ in 0..n {
                times[chance.random_range(0..n)] += 1;
            }
            times
        };
        (0..DRAWS).map(draw).collect()
    }

    fn index(&self, at: Offset) -> Option<usize> {
        let i = self.spans.partition_point(|s| s.end <= at);
        self.spans.get(i).filter(|s| s.contains(at)).map(|_| i)
    }

    /// Errors of the median and of the 99th percentile, where there are enough samples.
    fn quantile_errors(&self, samples: &[(Offset, f64)], draws: &[Vec<u32>]) -> [Option<f64>; 2] {
        if samples.len() < ENOUGH[0] {
            return [None, None];
        }
        let [p50, p99] = self.quantile_error(samples, draws, [0.5, 0.99]);
        [p50, p99.filter(|_| samples.len() >= ENOUGH[1])]
    }

    /// Errors of quantiles.
    fn quantile_error<const N: usize>(
        &self,
        samples: &[(Offset, f64)],
        draws: &[Vec<u32>],
        quantiles: [f64; N],
    ) -> [Option<f64>; N] {
        // The bins that are in use, and how many of each block's samples lie in each.
        let bin = |v: f64| (v.max(1e-9).log10() * BINS_A_DECADE).floor() as i64;
        let mut used: Vec<i64> = samples.iter().map(|(_, v)| bin(*v)).collect();
        used.sort_unstable();
        used.dedup();
        let mut counts = vec![vec![0_u32; used.len()]; self.spans.len()];
        for (at, v) in samples {
            if let (Some(block), Ok(i)) = (self.index(*at), used.binary_search(&bin(*v))) {
                counts[block][i] += 1;
            }
        }
        let mut drawn: [Vec<f64>; N] = std::array::from_fn(|_| Vec::new());
        let mut total = vec![0_u64; used.len()];
        for times in draws {
            total.fill(0);
            for (count, n) in counts.iter().zip(times).filter(|(_, n)| **n > 0) {
                for (t, c) in total.iter_mut().zip(count) {
                    *t += u64::from(*c) * u64::from(*n);
                }
            }
            let all: u64 = total.iter().sum();
            for (q, out) in quantiles.into_iter().zip(&mut drawn) {
                out.extend(quantile(&used, &total, all, q));
            }
        }
        drawn.map(|logs| deviation(&logs))
    }

    /// Error of the sum of all samples.
    fn sum_error(&self, samples: &[(Offset, f64)], draws: &[Vec<u32>]) -> Option<f64> {
        let sums = self.sums(samples);
        let logs: Vec<f64> = draws.iter().map(|times| total(&sums, times)).filter(|s| *s > 0.0).map(f64::ln).collect();
        deviation(&logs)
    }

    /// Error of the mean of all samples.
    fn mean_error(&self, samples: &[(Offset, f64)], draws: &[Vec<u32>]) -> Option<f64> {
        let sums = self.sums(samples);
        let ones: Vec<(Offset, f64)> = samples.iter().map(|(at, _)| (*at, 1.0)).collect();
        let counts = self.sums(&ones);
        let means = draws.iter().map(|times| total(&sums, times) / total(&counts, times));
        let logs: Vec<f64> = means.filter(|m| *m > 0.0).map(f64::ln).collect();
        deviation(&logs)
    }

    /// What each block's samples add up to.
    fn sums(&self, samples: &[(Offset, f64)]) -> Vec<f64> {
        let mut sums = vec![0.0; self.spans.len()];
        for (at, v) in samples {
            if let Some(block) = self.index(*at) {
                sums[block] += v;
            }
        }
        sums
    }
}

/// What a draw's blocks add up to.
fn total(sums: &[f64], times: &[u32]) -> f64 {
    sums.iter().zip(times).map(|(s, n)| s * f64::from(*n)).sum()
}

/// Natural logarithm of quantile `q`, interpolated within its bin. `None` without samples.
fn quantile(bins: &[i64], counts: &[u64], all: u64, q: f64) -> Option<f64> {
    let rank = q * all.checked_sub(1)? as f64;
    let mut below = 0.0;
    for (bin, count) in bins.iter().zip(counts) {
        let here = *count as f64;
        if here > 0.0 && below + here > rank {
            let inside = (rank - below + 0.5) / here;
            return Some((*bin as f64 + inside.clamp(0.0, 1.0)) / BINS_A_DECADE * std::f64::consts::LN_10);
        }
        below += here;
    }
    None
}

/// Standard deviation of logarithms: a share. `None` where draws were too often empty.
fn deviation(logs: &[f64]) -> Option<f64> {
    let n = logs.len() as f64;
    (logs.len() * 10 >= DRAWS * 9).then(|| {
        let mean = logs.iter().sum::<f64>() / n;
        (logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::time::Offset;

    fn at(s: f64) -> Offset {
        Offset((s * 1e6) as u64)
    }

    /// Samples of 240 s, one each half second, each seen by `copies` streams at once.
    fn samples(copies: usize) -> Samples {
        let mut chance = Pcg64Mcg::seed_from_u64(7);
        let mut out = Samples { windows: vec![Span::new(at(0.0), at(240.0))], ..Samples::default() };
        for i in 0..480 {
            let t = at(f64::from(i) * 0.5 + 0.01);
            // Uniform around 1: a standard deviation of 0.2/sqrt(12) of the value.
            let v = 0.9 + 0.2 * chance.random::<f64>();
            for _ in 0..copies {
                out.gaps.push((t, v));
                out.output_tokens.push((t, v));
            }
        }
        out
    }

    #[test]
    fn the_error_of_a_mean_is_the_textbooks_and_copies_add_nothing() {
        let (one, many) = (noise(&samples(1)), noise(&samples(50)));
        let textbook = 0.2 / 12.0_f64.sqrt() / 480.0_f64.sqrt();
        let found = one.output_tokens_ratio.unwrap();
        assert!((found / textbook - 1.0).abs() < 0.35, "{found} against {textbook}");
        // Fifty streams that see the same gap are one observation, not fifty.
        assert!((many.output_tokens_ratio.unwrap() / found - 1.0).abs() < 1e-9);
        let ratio = many.gap_p50_ratio.unwrap() / one.gap_p50_ratio.unwrap();
        assert!((ratio - 1.0).abs() < 0.2, "{ratio}");
    }

    #[test]
    fn streams_in_step_leave_the_times_to_first_token_without_an_error() {
        let mut s = samples(2);
        s.ttft = s.gaps.clone();
        let mixed = noise(&s);
        s.in_step = true;
        let locked = noise(&s);
        assert!(mixed.ttft_p50_ratio.is_some() && mixed.ttft_p99_ratio.is_some() && mixed.gap_p99_ratio.is_some());
        assert_eq!([locked.ttft_p50_ratio, locked.ttft_p99_ratio, locked.gap_p99_ratio], [None; 3]);
        assert_eq!(locked.gap_p50_ratio, mixed.gap_p50_ratio);
        assert_eq!(locked.output_tokens_ratio, mixed.output_tokens_ratio);
    }

    #[test]
    fn too_little_has_no_error() {
        let mut few = samples(1);
        few.gaps.truncate(19);
        assert_eq!(noise(&few).gap_p50_ratio, None);
        let mut short = samples(1);
        // Requests of a minute leave four blocks.
        short.e2e = vec![(at(1.0), 60.0); 30];
        let found = noise(&short);
        assert_eq!((found.blocks, found.output_tokens_ratio), (4, None));
    }
}
