//! The summary in Markdown, made for `GITHUB_STEP_SUMMARY`: never larger than a summary may be.

use std::io::{self, Write};

use super::answer::{self, Tone};
use super::caveats;
use super::gpu;
use super::rows;
use super::text::plain;
use crate::model::verdict::{StepOutcome, Verdict};

/// What a summary may hold: 1 MiB, of which another step's text may be in the file already.
pub const SUMMARY_LIMIT_BYTES: usize = 1_000_000;

/// Writes the summary, of at most `limit_bytes`; what is left out for that is said at its end.
///
/// # Errors
/// If the writer fails.
pub fn write(verdict: &Verdict, out: &mut dyn Write, limit_bytes: usize) -> io::Result<()> {
    let mut text = String::new();
    let mut left_out = false;
    // Room for the sentence that says so is kept free.
    let room = limit_bytes.saturating_sub(LEFT_OUT.len());
    for block in blocks(verdict) {
        if text.len() + block.len() <= room {
            text += &block;
        } else {
            left_out = true;
        }
    }
    if left_out {
        text += LEFT_OUT;
    }
    // Below the size of that sentence there is nothing that could be said whole.
    if text.len() <= limit_bytes { out.write_all(text.as_bytes()) } else { Ok(()) }
}

const LEFT_OUT: &str = "\nSome of this report was too long for a summary; all of it is in `verdict.json`.\n";

/// The report in pieces, each of which may be left out without breaking the others.
fn blocks(v: &Verdict) -> Vec<String> {
    let mark = match answer::tone(v.outcome) {
        Tone::Bad => "🔴",
        Tone::Good => "🟢",
        Tone::Doubt | Tone::Plain => "🟡",
    };
    let mut out = vec![format!("## {mark} {}\n\n", escape(&answer::sentence(v)))];
    for e in answer::entries(v) {
        let mut lines = e.lines.iter().map(|l| escape(l));
        let first = lines.next().unwrap_or_default();
        let mut block = format!("- **{}**: {first}\n", escape(e.label));
        for line in lines {
            block += &format!("  - {line}\n");
        }
        out.push(block);
    }
    let caveats = caveats::grouped(v);
    if !caveats.is_empty() {
        out.push("\n### Caveats\n\n".into());
        for c in caveats {
            let hint = if c.hint.is_empty() { String::new() } else { format!("<br>*hint*: {}", escape(&c.hint)) };
            out.push(format!("- {}{hint}\n", escape(&c.line())));
        }
    }
    if let Some(c) = &v.comparison {
        let mut block = Vec::new();
        // A Vec takes everything.
        if super::compare::markdown(c, &mut block).is_ok() {
            out.push(format!("\n##{}", String::from_utf8_lossy(&block)));
        }
    }
    if v.steps.is_empty() {
        return out;
    }
    let columns = rows::columns(v);
    let mut head = String::from("\n### Steps\n\n| ");
    let mut rule = String::from("\n|");
    for c in &columns {
        head += &format!("| {} ", [c.group, c.name].join(" ").trim());
        rule += "---:|";
    }
    // The first column is the mark of the outcome, the last its words.
    out.push(format!("{head}| alerts |{}---|\n", rule.replacen('|', "|:-:|", 1)));
    for (i, step) in v.steps.iter().enumerate() {
        let mark = match step.outcome {
            StepOutcome::Clean => "🟢",
            StepOutcome::Firing => "🔴",
            StepOutcome::Inconclusive => "🟡",
        };
        let cells: Vec<String> = columns.iter().map(|c| escape(&c.cells[i])).collect();
        out.push(format!("| {mark} | {} | {} |\n", cells.join(" | "), escape(&rows::outcome(step))));
    }
    out.push(format!(
        "\nwait, run and KV: median (max). A p99 with `~` rests on fewer than 100 samples. Targets: {}.\n",
        escape(&answer::targets(v))
    ));
    out.extend(gpus(v));
    out
}

/// Each GPU over each step.
fn gpus(v: &Verdict) -> Vec<String> {
    let rows = gpu::rows(v);
    if rows.is_empty() {
        return Vec::new();
    }
    let rule = "---:|".repeat(gpu::COLUMNS.len());
    let mut out = vec![format!("\n### GPU\n\n| {} | remarks |\n|{rule}---|\n", gpu::COLUMNS.join(" | "))];
    for row in rows {
        let cells: Vec<String> = row.cells.iter().map(|c| escape(c)).collect();
        out.push(format!("| {} | {} |\n", cells.join(" | "), escape(&row.remarks.join("; "))));
    }
    out.push(format!("\n{}\n", escape(gpu::LEGEND)));
    out
}

/// Text of which no character is taken for markup, a link, or a mention.
pub fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in plain(text).chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            // Mentions are made of these even where no bracket is; links likewise, below.
            '@' => out += "&#64;",
            '|' => out += "&#124;",
            '\\' | '`' | '*' | '_' | '[' | ']' | '~' | '#' | '$' | '!' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out.replace("://", "&#58;//").replace("www.", "www&#46;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup() {
        assert_eq!(
            escape("a|b <b> [x](http://h) @you `c` *d* www.e\n# f"),
            "a&#124;b &lt;b&gt; \\[x\\](http&#58;//h) &#64;you \\`c\\` \\*d\\* www&#46;e \\# f"
        );
    }
}
