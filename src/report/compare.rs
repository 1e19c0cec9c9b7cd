//! One run held against another, in words and as a table.

use std::io::{self, Write};

use super::markdown::escape;
use super::terminal::Style;
use super::text::{number, percent, plain, seconds, width, wrap};
use crate::model::comparison::{Change, Comparison, Judgement, Metric};

/// The comparison in one sentence, with its full stop.
pub fn sentence(c: &Comparison) -> String {
    if let (Some(d), true) = (c.incomparable.first(), c.changes.is_empty()) {
        return format!("The two runs cannot be compared: another {}.", d.what);
    }
    let count = |j| c.changes.iter().filter(|c| c.judgement == j).count();
    format!(
        "The limit: {}. Of {} comparisons, {} worse, {} better, {} the same; of the others nobody can tell.",
        c.limit.judgement.words(),
        c.changes.len(),
        count(Judgement::Worse),
        count(Judgement::Better),
        count(Judgement::Same)
    )
}

/// What differs that must not, and the limit.
pub(super) fn facts(c: &Comparison) -> Vec<String> {
    let forced = if c.changes.is_empty() { "" } else { "caveat: not comparable: " };
    let differs =
        c.incomparable.iter().map(|d| format!("{forced}{}: {} before, {} now", d.what, plain(&d.base), plain(&d.new)));
    let limit = |[clean, firing]: [Option<f64>; 2]| {
        let word = |l: Option<f64>| l.map_or_else(|| "unknown".into(), number);
        format!("{} clean, {} firing", word(clean), word(firing))
    };
    let moved = format!("limit in {}: {} before; {} now", c.unit, limit(c.limit.base), limit(c.limit.new));
    differs.chain([moved]).collect()
}

/// What the table's numbers mean.
pub(super) fn note(c: &Comparison) -> String {
    format!(
        "Intervals are 95 % each. Better and worse: by at least {}, and so sure that two runs of one server give any such line \
         in {} of 100 comparisons; same: the whole interval is within it. Two runs are taken to differ by {} where repeats did not \
         measure it.",
        percent(c.least_effect_ratio),
        number(c.false_alarm_ratio * 100.0),
        percent(c.run_noise_ratio)
    )
}

/// The table's cells, by level.
pub(super) fn table(c: &Comparison) -> Vec<[String; 6]> {
    let value = |c: &Change, x: f64| match c.metric {
        Metric::OutputTokens => number(x),
        Metric::ErrorRate => percent(x),
        _ => seconds(x),
    };
    let row = |c: &Change| {
        let off = |r: f64| {
            let unit = if c.metric == Metric::ErrorRate { "pp" } else { "%" };
            format!("{:+.1} {unit}", r * 100.0)
        };
        let interval = c.interval_ratio.map_or_else(|| "-".into(), |[l, h]| format!("{} to {}", off(l), off(h)));
        let effect = c.effect_ratio.map_or_else(|| "-".into(), off);
        let at = c.level.map_or_else(|| "over all".into(), |l| format!("at {}", number(l)));
        let name = format!("{} {at}", c.metric.name());
        [name, value(c, c.base), value(c, c.new), effect, interval, c.judgement.words().into()]
    };
    c.changes.iter().map(row).collect()
}

/// Heads of the table's columns.
pub(super) const HEAD: [&str; 6] = ["", "base", "new", "change", "interval", ""];

/// Writes the comparison for a terminal.
///
/// # Errors
/// If the writer fails.
pub fn write(c: &Comparison, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let columns = usize::from(style.width.max(40));
    let called_out = c.called_out.iter().map(|l| plain(l));
    for line in called_out.chain([sentence(c)]).chain(facts(c)) {
        for part in wrap(&line, columns) {
            writeln!(out, "{part}")?;
        }
    }
    if c.changes.is_empty() {
        return Ok(());
    }
    let table: Vec<[String; 6]> = [HEAD.map(String::from)].into_iter().chain(table(c)).collect();
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
    writeln!(out)?;
    for part in wrap(&note(c), columns) {
        writeln!(out, "{part}")?;
    }
    Ok(())
}

/// Writes the comparison as Markdown.
///
/// # Errors
/// If the writer fails.
pub fn markdown(c: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "## {}\n", escape(&sentence(c)))?;
    for line in &c.called_out {
        writeln!(out, "**{}**\n", escape(line))?;
    }
    for line in facts(c) {
        writeln!(out, "- {}", escape(&line))?;
    }
    if c.changes.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n| {} |\n|---|---:|---:|---:|---:|---|", HEAD.join(" | "))?;
    for row in table(c) {
        writeln!(out, "| {} |", row.map(|cell| escape(&cell)).join(" | "))?;
    }
    writeln!(out, "\n{}", escape(&note(c)))?;
    Ok(())
}
