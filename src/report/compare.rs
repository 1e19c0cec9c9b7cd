//! Two verdicts held against each other: what got better or worse, and what nobody can tell.
//!
//! A verdict holds the 95 % interval of each 99th percentile. The ratio of two of them lies
//! between the quotients of their far ends: wider than a test of the difference would have
//! it (two such intervals that just part differ at about p = 0.006), which leaves room for the
//! number of comparisons. Whoever has the recordings can put narrower intervals in.

use std::io::{self, Write};

use super::markdown::escape;
use super::terminal::Style;
use super::text::{level, level_unit, number, percent, plain, seconds, width, wrap};
use crate::model::verdict::{Quantiles, ServerStats, StepVerdict, Verdict};

/// Changes below this share matter to nobody, however sure they are.
pub const LEAST_EFFECT: f64 = 0.05;

/// What the comparison found.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// What differs between the two runs that must not; not empty means that no change means anything.
    pub incomparable: Vec<Difference>,
    /// What is to be said before all else: it changes how the rest is read.
    pub called_out: Vec<String>,
    /// The limit before and now.
    pub limit: LimitChange,
    /// Each quantity at each level that both ran.
    pub changes: Vec<Change>,
    /// What levels are counted in.
    pub unit: &'static str,
}

/// Something that must be alike and is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What it is: `model`.
    pub what: &'static str,
    /// What the base had.
    pub base: String,
    /// What the new run has.
    pub new: String,
}

/// The limit of a run lies above the first level and not above the second; `None` where not known.
pub type Limit = (Option<f64>, Option<f64>);

/// How the limit moved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitChange {
    /// Highest clean and lowest firing level of the base.
    pub base: Limit,
    /// The same of the new run.
    pub new: Limit,
    /// What can be said of it.
    pub judgement: Judgement,
}

/// One quantity at one level.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Its name: `TTFT p99`.
    pub metric: &'static str,
    /// The level.
    pub level: f64,
    /// What the base measured.
    pub base: f64,
    /// What the new run measured.
    pub new: f64,
    /// Ends of the interval of new over base; `None` where the verdicts do not hold one.
    pub ratio_interval: Option<[f64; 2]>,
    /// What can be said of it.
    pub judgement: Judgement,
}

/// What can be said of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It got better by more than noise, and by enough to matter.
    Better,
    /// It got worse likewise.
    Worse,
    /// Any change is too small to matter.
    Same,
    /// Noise, or too little data.
    CannotTell,
}

impl Judgement {
    /// The judgement in words.
    pub fn words(self) -> &'static str {
        match self {
            Judgement::Better => "better",
            Judgement::Worse => "worse",
            Judgement::Same => "same",
            Judgement::CannotTell => "cannot tell",
        }
    }
}

/// Which way is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Good {
    /// Latencies.
    Less,
    /// Throughput.
    More,
}

/// Compares `new` with `base`.
pub fn compare(base: &Verdict, new: &Verdict) -> Comparison {
    let mut changes = Vec::new();
    let pairs = pairs(base, new);
    let called_out = fallen(new, &pairs);
    for (b, n) in pairs {
        type Latency = fn(&StepVerdict) -> &Quantiles;
        let quantiles: [(&str, Latency); 2] = [("TTFT p99", |s| &s.client.ttft_s), ("gap p99", |s| &s.client.gap_s)];
        for (metric, of) in quantiles {
            let (qb, qn) = (of(b), of(n));
            changes.extend(change(metric, n.concurrency, (qb.p99, qn.p99), ratio_of(qb, qn), Good::Less));
        }
        let tokens = (b.client.output_tokens_per_s, n.client.output_tokens_per_s);
        changes.extend(change("output tok/s", n.concurrency, tokens, None, Good::More));
    }
    Comparison {
        incomparable: differences(base, new),
        called_out,
        limit: limit(base, new),
        changes,
        unit: level_unit(new),
    }
}

/// What of two runs must be alike for their numbers to be compared.
pub fn differences(base: &Verdict, new: &Verdict) -> Vec<Difference> {
    let argv = |v: &Verdict| v.target.server_command.as_ref().map_or_else(|| "not ours".into(), |a| a.join(" "));
    let gpus = |v: &Verdict| {
        let names = v.steps.iter().flat_map(|s| &s.gpu).filter_map(|g| g.name.clone());
        let names: std::collections::BTreeSet<String> = names.collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    };
    let lengths = |v: &Verdict| {
        let of = |x: Option<f64>| x.map_or_else(|| "unknown".into(), number);
        format!("{} in, {} out", of(v.workload.prompt_tokens.median), of(v.workload.output_tokens.median))
    };
    type Words = fn(&Verdict) -> String;
    let all: [(&'static str, Words); 7] = [
        ("scenario", |v| v.scenario.clone()),
        ("model", |v| v.target.model.clone()),
        ("engine", |v| v.target.engine.clone().unwrap_or_else(|| "unknown".into())),
        ("clock", |v| format!("{:?}", v.clock).to_lowercase()),
        ("time scale", |v| number(v.time_scale)),
        ("workload", |v| v.workload.kind.clone()),
        ("targets", super::answer::targets),
    ];
    let rest = [
        ("lengths", lengths(base), lengths(new)),
        ("GPU", gpus(base), gpus(new)),
        ("server command", argv(base), argv(new)),
    ];
    all.into_iter()
        .map(|(what, of)| (what, of(base), of(new)))
        .chain(rest)
        // Lengths are drawn, and runs of another length draw a few more of them.
        .filter(|(what, b, n)| b != n && !(*what == "lengths" && alike(base, new)))
        .map(|(what, base, new)| Difference { what, base, new })
        .collect()
}

/// Whether the middle lengths of prompts and outputs are within 2 % of each other.
fn alike(base: &Verdict, new: &Verdict) -> bool {
    let near = |b: Option<f64>, n: Option<f64>| match (b, n) {
        (Some(b), Some(n)) => (b - n).abs() <= 0.02 * b.abs().max(n.abs()),
        (b, n) => b == n,
    };
    let (b, n) = (&base.workload, &new.workload);
    near(b.prompt_tokens.median, n.prompt_tokens.median) && near(b.output_tokens.median, n.output_tokens.median)
}

/// The last step of each level that both runs have: the one that confirmed it, if any did.
fn pairs<'v>(base: &'v Verdict, new: &'v Verdict) -> Vec<(&'v StepVerdict, &'v StepVerdict)> {
    let last =
        |v: &'v Verdict, level: f64| v.steps.iter().rev().find(|s| s.concurrency == level && s.cut_short.is_none());
    let mut levels: Vec<f64> = new.steps.iter().map(|s| s.concurrency).collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    levels.into_iter().filter_map(|l| Some((last(base, l)?, last(new, l)?))).collect()
}

/// Rates whose fall means that the traffic or the prompts changed, not the server; each once, for the level where it fell most.
fn fallen(new: &Verdict, pairs: &[(&StepVerdict, &StepVerdict)]) -> Vec<String> {
    type Rate = fn(&ServerStats) -> Option<f64>;
    let rates: [(&str, Rate); 2] = [
        ("the prefix-cache hit rate fell", |s| s.prefix_cache_hit_rate),
        ("the draft acceptance rate fell", |s| s.draft_acceptance_rate),
    ];
    let mut out = Vec::new();
    for (says, of) in rates {
        let both = pairs.iter().filter_map(|(b, n)| {
            let of = |s: &StepVerdict| s.server.as_ref().and_then(of);
            Some((of(b)?, of(n)?, n.concurrency))
        });
        let most = both.filter(|(b, n, _)| b - n > LEAST_EFFECT).max_by(|x, y| (x.0 - x.1).total_cmp(&(y.0 - y.1)));
        out.extend(most.map(|(b, n, at)| {
            let (b, n, at) = (percent(b), percent(n), level(new, at));
            format!("{says} from {b} to {n} at {at}: most often the start of the prompts, or the traffic, changed")
        }));
    }
    out
}

/// The interval of new over base, from the far ends of both; `None` where an end is not known.
fn ratio_of(base: &Quantiles, new: &Quantiles) -> Option<[f64; 2]> {
    let ([Some(b0), Some(b1)], [Some(n0), Some(n1)]) = (base.p99_ci95?, new.p99_ci95?) else { return None };
    (b0 > 0.0).then(|| [n0 / b1, n1 / b0])
}

fn change(
    metric: &'static str,
    level: f64,
    (base, new): (Option<f64>, Option<f64>),
    ratio_interval: Option<[f64; 2]>,
    good: Good,
) -> Option<Change> {
    let (base, new) = (base?, new?);
    let judgement = if base > 0.0 { judge(new / base, ratio_interval, good) } else { Judgement::CannotTell };
    Some(Change { metric, level, base, new, ratio_interval, judgement })
}

/// Judges a ratio of new over base. It moved if its interval leaves out 1 and it is off 1 by
/// [`LEAST_EFFECT`]; it is the same if its whole interval lies within that; else nobody can tell.
pub fn judge(ratio: f64, interval: Option<[f64; 2]>, good: Good) -> Judgement {
    let Some([low, high]) = interval else { return Judgement::CannotTell };
    let (up, down) = (1.0 + LEAST_EFFECT, 1.0 / (1.0 + LEAST_EFFECT));
    match good {
        _ if low >= down && high <= up => Judgement::Same,
        Good::Less if low > 1.0 && ratio >= up => Judgement::Worse,
        Good::Less if high < 1.0 && ratio <= down => Judgement::Better,
        Good::More if low > 1.0 && ratio >= up => Judgement::Better,
        Good::More if high < 1.0 && ratio <= down => Judgement::Worse,
        _ => Judgement::CannotTell,
    }
}

/// Limits are intervals: one moved if they do not overlap.
fn limit(base: &Verdict, new: &Verdict) -> LimitChange {
    let of = |v: &Verdict| (v.highest_clean_concurrency, v.lowest_firing_concurrency);
    let (b, n) = (of(base), of(new));
    let reached = |clean: Option<f64>, firing: Option<f64>| matches!((clean, firing), (Some(c), Some(f)) if c >= f);
    let judgement = if b == n && b != (None, None) {
        Judgement::Same
    } else if reached(n.0, b.1) {
        Judgement::Better
    } else if reached(b.0, n.1) {
        Judgement::Worse
    } else {
        Judgement::CannotTell
    };
    LimitChange { base: b, new: n, judgement }
}

impl Comparison {
    /// The comparison in one sentence, with its full stop.
    pub fn sentence(&self) -> String {
        if let Some(d) = self.incomparable.first() {
            return format!("The two runs cannot be compared: another {}.", d.what);
        }
        let count = |j| self.changes.iter().filter(|c| c.judgement == j).count();
        format!(
            "The limit: {}. Of {} comparisons, {} worse, {} better, {} the same; of the others nobody can tell.",
            self.limit.judgement.words(),
            self.changes.len(),
            count(Judgement::Worse),
            count(Judgement::Better),
            count(Judgement::Same)
        )
    }

    /// Every line but the table: what differs, what is called out, and the limit.
    fn lines(&self) -> Vec<String> {
        let differs =
            self.incomparable.iter().map(|d| format!("{}: {} before, {} now", d.what, plain(&d.base), plain(&d.new)));
        let limit = |(clean, firing): Limit| {
            let word = |l: Option<f64>| l.map_or_else(|| "unknown".into(), number);
            format!("{} clean, {} firing", word(clean), word(firing))
        };
        let moved = format!("limit in {}: {} before; {} now", self.unit, limit(self.limit.base), limit(self.limit.new));
        differs.chain(self.called_out.iter().cloned()).chain([moved]).collect()
    }

    /// The table's cells, by level.
    fn table(&self) -> Vec<[String; 6]> {
        let value = |c: &Change, x: f64| if c.metric == "output tok/s" { number(x) } else { seconds(x) };
        let row = |c: &Change| {
            let off = |r: f64| format!("{:+.1} %", (r - 1.0) * 100.0);
            let interval = c.ratio_interval.map_or_else(|| "-".into(), |[l, h]| format!("{} to {}", off(l), off(h)));
            let ratio = if c.base > 0.0 { off(c.new / c.base) } else { "-".into() };
            let name = format!("{} at {}", c.metric, number(c.level));
            [name, value(c, c.base), value(c, c.new), ratio, interval, c.judgement.words().into()]
        };
        self.changes.iter().map(row).collect()
    }
}

const HEAD: [&str; 6] = ["", "base", "new", "change", "interval", ""];

/// Writes the comparison for a terminal.
///
/// # Errors
/// If the writer fails.
pub fn write(c: &Comparison, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let columns = usize::from(style.width.max(40));
    for line in std::iter::once(c.sentence()).chain(c.lines()) {
        for part in wrap(&line, columns) {
            writeln!(out, "{part}")?;
        }
    }
    let table: Vec<[String; 6]> = [HEAD.map(String::from)].into_iter().chain(c.table()).collect();
    let widths: Vec<usize> = (0..6).map(|i| table.iter().map(|r| width(&r[i])).max().unwrap_or(0)).collect();
    writeln!(out)?;
    for row in &table {
        let pad = |i: usize| " ".repeat(widths[i] - width(&row[i]));
        let mut line = format!("{}{}", row[0], pad(0));
        for (i, cell) in row.iter().enumerate().skip(1) {
            // Words stand at the left of their column, numbers at the right.
            line += &if i == 5 { format!("  {cell}") } else { format!("  {}{cell}", pad(i)) };
        }
        let line = line.trim_end();
        let code = match row[5].as_str() {
            "worse" => "1;31",
            "better" => "1;32",
            _ => "",
        };
        if style.color && !code.is_empty() {
            writeln!(out, "\u{1b}[{code}m{line}\u{1b}[0m")?;
        } else {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// Writes the comparison as Markdown.
///
/// # Errors
/// If the writer fails.
pub fn markdown(c: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "## {}\n", escape(&c.sentence()))?;
    for line in c.lines() {
        writeln!(out, "- {}", escape(&line))?;
    }
    writeln!(out, "\n| {} |\n|---|---:|---:|---:|---:|---|", HEAD.join(" | "))?;
    for row in c.table() {
        writeln!(out, "| {} |", row.map(|cell| escape(&cell)).join(" | "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_if_it_is_sure_and_large_enough() {
        for (ratio, interval, good, expected) in [
            (1.2, Some([1.1, 1.3]), Good::Less, Judgement::Worse),
            (1.2, Some([1.1, 1.3]), Good::More, Judgement::Better),
            (1.2, Some([0.9, 1.5]), Good::Less, Judgement::CannotTell),
            (0.8, Some([0.7, 0.9]), Good::Less, Judgement::Better),
            (1.02, Some([1.01, 1.03]), Good::Less, Judgement::Same),
            (1.04, Some([1.01, 1.08]), Good::Less, Judgement::CannotTell),
            (2.0, None, Good::Less, Judgement::CannotTell),
        ] {
            assert_eq!(judge(ratio, interval, good), expected, "{ratio} {interval:?}");
        }
    }
}
