//! The answer on a terminal: what fired, why, what to do; what is doubtful; the steps.
//!
//! Everything is said in words; colour repeats it. Names of models, labels and errors have
//! lost their control characters before they come here, so none can drive the terminal.

use std::io::{self, Write};

use super::answer::{self, Entry, Tone};
use super::caveats;
use super::gpu;
use super::rows::{self, Column, ColumnKind};
use super::text::{width, wrap};
use crate::model::step::Phase;
use crate::model::verdict::{StepOutcome, Verdict};

/// How the terminal is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether to colour; nothing is said by colour alone.
    pub color: bool,
    /// Columns to fill; below 40 it is taken as 40.
    pub width: u16,
}

/// Columns of the labels at the left.
const LABEL: usize = 13;

/// Writes the answer, its caveats and the table of the steps.
///
/// # Errors
/// If the writer fails.
pub fn write(verdict: &Verdict, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let page = Page { columns: usize::from(style.width.max(40)), color: style.color };
    for entry in answer::entries(verdict) {
        page.entry(out, &entry)?;
    }
    page.caveats(out, verdict)?;
    page.steps(out, verdict)?;
    page.gpus(out, verdict)?;
    if let Some(comparison) = &verdict.comparison {
        writeln!(out, "\nagainst the baseline:")?;
        super::compare::write(comparison, out, style)?;
    }
    Ok(())
}

struct Page {
    columns: usize,
    color: bool,
}

impl Page {
    /// A label with its lines beside it. The first two lines share one where there is room.
    fn entry(&self, out: &mut dyn Write, entry: &Entry) -> io::Result<()> {
        let room = self.columns - LABEL;
        let mut lines = entry.lines.clone();
        if entry.label == "first alert" && lines.len() > 1 && width(&lines[0]) + 3 + width(&lines[1]) <= room {
            let moments = lines.remove(1);
            lines[0] = format!("{}   {moments}", lines[0]);
        }
        // Who is ruled out matters less the further down it stands; the reports hold every reason.
        const REASONS: usize = 2;
        if entry.label == "not because" && lines.len() > REASONS + 1 {
            let names: Vec<&str> = lines[REASONS..].iter().map(|l| l.split(':').next().unwrap_or(l)).collect();
            let more = format!("{} (why: report.html, verdict.json)", names.join(", "));
            lines.truncate(REASONS);
            lines.push(more);
        }
        let mut label = Some(entry.label);
        for (i, line) in lines.iter().enumerate() {
            // Under the line that answers, the lines that support it are set off.
            let (mark, hang) = match (entry.label, i) {
                ("because" | "gate", 1..) => ("- ", "  "),
                _ => ("", ""),
            };
            // A line that fits keeps the spaces with which it was set.
            let fits = width(mark) + width(line) <= room;
            let parts = if fits { vec![line.clone()] } else { wrap(line, room - width(mark)) };
            for (j, part) in parts.iter().enumerate() {
                let left = format!("{:<LABEL$}", label.take().unwrap_or(""));
                let left = if left.trim().is_empty() { left } else { self.paint(&left, label_paint(entry.tone)) };
                writeln!(out, "{left}{}{part}", if j == 0 { mark } else { hang })?;
            }
        }
        Ok(())
    }

    fn caveats(&self, out: &mut dyn Write, verdict: &Verdict) -> io::Result<()> {
        let groups = caveats::grouped(verdict);
        if groups.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n{}", self.paint("caveats", YELLOW))?;
        for group in groups {
            self.hanging(out, "  ! ", &format!("{} [{}]", group.line(), group.code))?;
            if !group.hint.is_empty() {
                self.hanging(out, "    hint: ", &group.hint)?;
            }
        }
        Ok(())
    }

    fn hanging(&self, out: &mut dyn Write, lead: &str, text: &str) -> io::Result<()> {
        for (i, part) in wrap(text, self.columns.saturating_sub(width(lead)).max(20)).iter().enumerate() {
            let left = if i == 0 { lead.to_owned() } else { " ".repeat(width(lead)) };
            writeln!(out, "{left}{part}")?;
        }
        Ok(())
    }

    fn steps(&self, out: &mut dyn Write, verdict: &Verdict) -> io::Result<()> {
        if verdict.steps.is_empty() {
            return writeln!(out, "\nno step was finished");
        }
        let outcomes: Vec<String> = verdict.steps.iter().map(rows::outcome).collect();
        let widest = outcomes.iter().map(|o| width(o)).max().unwrap_or(0);
        let table = fit(rows::columns(verdict), self.columns, widest);
        let (upper, lower) = table.headings();
        writeln!(out)?;
        if !upper.trim().is_empty() {
            writeln!(out, "{}", self.paint(upper.trim_end(), DIM))?;
        }
        let alerts = if table.outcome_beside { "  alerts" } else { "" };
        writeln!(out, "{}", self.paint(&format!("{}{alerts}", lower.trim_end()), DIM))?;
        for (i, (step, says)) in verdict.steps.iter().zip(&outcomes).enumerate() {
            let (mark, paint) = match step.outcome {
                StepOutcome::Clean => ("+", GREEN),
                StepOutcome::Firing => ("!", RED),
                StepOutcome::Inconclusive => ("?", YELLOW),
            };
            let row = table.row(i);
            if table.outcome_beside {
                writeln!(out, "{} {row}  {}", self.paint(mark, paint), self.paint(says, paint))?;
            } else {
                writeln!(out, "{} {}", self.paint(mark, paint), row.trim_end())?;
                // What the column would have told stands here, but for the way up, which is the rule.
                let phase = match step.phase {
                    Phase::Narrow | Phase::Confirm if !table.shows(ColumnKind::Phase) => {
                        format!("({}) ", rows::phase(step.phase))
                    }
                    _ => String::new(),
                };
                if says != "clean" || !phase.is_empty() {
                    for part in wrap(&format!("{phase}{says}"), self.columns - 7) {
                        writeln!(out, "       {}", self.paint(&part, paint))?;
                    }
                }
            }
        }
        for line in legend(verdict, &table) {
            self.hanging(out, "", &line)?;
        }
        Ok(())
    }

    /// Each GPU over each step: a table with what slowed it under its row.
    fn gpus(&self, out: &mut dyn Write, verdict: &Verdict) -> io::Result<()> {
        let rows = gpu::rows(verdict);
        if rows.is_empty() {
            return Ok(());
        }
        let columns: Vec<(&str, Vec<String>)> = gpu::COLUMNS
            .iter()
            .enumerate()
            .map(|(i, name)| (*name, rows.iter().map(|r| r.cells[i].clone()).collect::<Vec<_>>()))
            // One GPU needs no number.
            .filter(|(name, cells)| *name != "GPU" || cells.iter().any(|c| *c != cells[0]))
            .collect();
        let widths: Vec<usize> = columns
            .iter()
            .map(|(name, cells)| cells.iter().map(|c| width(c)).chain([width(name)]).max().unwrap_or(0))
            .collect();
        let line = |cells: Vec<&str>| -> String {
            let set: Vec<String> = cells.iter().zip(&widths).map(|(c, w)| right(c, *w)).collect();
            format!("  {}", set.join("  "))
        };
        writeln!(out, "\n{}", self.paint(&line(columns.iter().map(|(name, _)| *name).collect()), DIM))?;
        for (i, row) in rows.iter().enumerate() {
            writeln!(out, "{}", line(columns.iter().map(|(_, cells)| cells[i].as_str()).collect()))?;
            if !row.remarks.is_empty() {
                for part in wrap(&row.remarks.join("; "), self.columns - 7) {
                    writeln!(out, "       {}", self.paint(&part, YELLOW))?;
                }
            }
        }
        self.hanging(out, "", gpu::LEGEND)
    }

    fn paint(&self, text: &str, code: &str) -> String {
        if self.color && !code.is_empty() { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.into() }
    }
}

// Codes of the sixteen colours that every terminal has, so that its own theme decides.
const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "1;31";
const GREEN: &str = "1;32";
const YELLOW: &str = "1;33";

fn label_paint(tone: Tone) -> &'static str {
    match tone {
        Tone::Bad => RED,
        Tone::Good => GREEN,
        Tone::Doubt => YELLOW,
        Tone::Plain => BOLD,
    }
}

/// The columns that fit, and how.
struct Table {
    columns: Vec<Column>,
    widths: Vec<usize>,
    between: usize,
    /// Whether the outcome stands at the end of the row, not under it.
    outcome_beside: bool,
    /// Columns that were left out since they say nothing.
    idle: Vec<&'static str>,
    /// Whether columns that say something were left out for want of room.
    cut: bool,
}

/// What goes first when the terminal is narrow, after the columns that say nothing.
const LEAST_WANTED: [ColumnKind; 8] = [
    ColumnKind::Itl,
    ColumnKind::Phase,
    ColumnKind::Preemptions,
    ColumnKind::Errors,
    ColumnKind::Running,
    ColumnKind::Kv,
    ColumnKind::Waiting,
    ColumnKind::Tokens,
];

/// Sets the table into `room`: all of it, else closer, else with the outcomes under their
/// rows, else without columns that say nothing, else without the least wanted.
fn fit(columns: Vec<Column>, room: usize, outcome: usize) -> Table {
    let mut table = Table { columns, widths: vec![], between: 2, outcome_beside: true, idle: vec![], cut: false };
    table.measure();
    // The mark and a space before the row; the outcome needs two spaces before it.
    let fits = |t: &Table| 2 + t.width() + if t.outcome_beside { 2 + outcome } else { 0 } <= room;
    if !fits(&table) {
        table.outcome_beside = outcome <= 5;
    }
    if !fits(&table) {
        let idle = |c: &Column| {
            matches!(c.kind, ColumnKind::Preemptions | ColumnKind::Errors)
                && c.is_idle()
                && c.cells.iter().any(|c| c == "0")
        };
        table.idle = table.columns.iter().filter(|c| idle(c)).map(|c| c.name).collect();
        table.columns.retain(|c| !idle(c));
        table.measure();
    }
    if !fits(&table) {
        table.between = 1;
    }
    for kind in LEAST_WANTED {
        if fits(&table) {
            break;
        }
        table.cut |= table.columns.iter().any(|c| c.kind == kind);
        table.columns.retain(|c| c.kind != kind);
        table.measure();
    }
    table
}

impl Table {
    fn measure(&mut self) {
        self.widths = self
            .columns
            .iter()
            .map(|c| c.cells.iter().map(|s| width(s)).chain([width(c.name)]).max().unwrap_or(0))
            .collect();
    }

    fn width(&self) -> usize {
        self.widths.iter().sum::<usize>() + self.between * self.widths.len().saturating_sub(1)
    }

    fn shows(&self, kind: ColumnKind) -> bool {
        self.columns.iter().any(|c| c.kind == kind)
    }

    /// The two heading lines; the heading of a group is drawn out over its columns.
    fn headings(&self) -> (String, String) {
        let (mut upper, mut lower) = (Vec::new(), Vec::new());
        let mut i = 0;
        while i < self.columns.len() {
            let group = self.columns[i].group;
            let n =
                if group.is_empty() { 1 } else { self.columns[i..].iter().take_while(|c| c.group == group).count() };
            let span = self.widths[i..i + n].iter().sum::<usize>() + self.between * (n - 1);
            upper.push(if group.is_empty() { " ".repeat(span) } else { format!("{:-^span$}", format!(" {group} ")) });
            lower.extend((i..i + n).map(|i| right(self.columns[i].name, self.widths[i])));
            i += n;
        }
        let between = " ".repeat(self.between);
        (format!("  {}", upper.join(&between)), format!("  {}", lower.join(&between)))
    }

    fn row(&self, i: usize) -> String {
        let cells: Vec<String> = self.columns.iter().zip(&self.widths).map(|(c, w)| right(&c.cells[i], *w)).collect();
        cells.join(&" ".repeat(self.between))
    }
}

fn right(text: &str, columns: usize) -> String {
    format!("{}{text}", " ".repeat(columns.saturating_sub(width(text))))
}

/// What a reader of the table may ask.
fn legend(verdict: &Verdict, table: &Table) -> Vec<String> {
    let mut out = vec![format!(
        "+ clean, ! firing, ? inconclusive; wait, run and KV: median (max); targets: {}",
        answer::targets(verdict)
    )];
    if rows::has_few_samples(verdict) {
        out.push(
            "~ a p99 of fewer than 100 requests: enough to show that a target is missed, not that it is kept".into(),
        );
    }
    if !table.idle.is_empty() {
        let words: Vec<&str> = table.idle.iter().map(|n| if *n == "preempt" { "preemptions" } else { n }).collect();
        out.push(format!("no {} in any step", words.join(" and no ")));
    }
    if table.cut {
        out.push("a wider terminal shows more columns; all of them are in steps.csv".into());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(kind: ColumnKind, name: &'static str, cell: &str) -> Column {
        Column { kind, group: "", name, cells: vec![cell.into()] }
    }

    #[test]
    fn a_narrow_terminal_loses_outcome_column_then_idle_columns_then_the_least_wanted() {
        let columns = || {
            vec![
                column(ColumnKind::Level, "streams", "8"),
                column(ColumnKind::Phase, "phase", "climb"),
                column(ColumnKind::Preemptions, "preempt", "0"),
            ]
        };
        let wide = fit(columns(), 80, 20);
        assert!(wide.outcome_beside && wide.columns.len() == 3);
        let under = fit(columns(), 40, 20);
        assert!(!under.outcome_beside && under.columns.len() == 3);
        let idle = fit(columns(), 20, 20);
        assert_eq!((idle.idle.as_slice(), idle.columns.len(), idle.cut), (["preempt"].as_slice(), 2, false));
        let cut = fit(columns(), 10, 20);
        assert_eq!((cut.columns.len(), cut.cut), (1, true));
    }
}
