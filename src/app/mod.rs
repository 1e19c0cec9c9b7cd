//! Wires the folders together: one file a command. The only folder that knows all others.

use std::io::{IsTerminal, Write};
use std::path::Path;

use crate::cli::Command;
use crate::error::{Exit, Refusal};
use crate::model::verdict::Verdict;
use crate::report::{self, text};

mod check;
mod ci;
mod compare;
pub mod export;
mod gate;
mod judge;
pub mod launch;
mod live;
mod prepare;
mod probe;
mod progress;
pub mod query;
mod resolve;
mod rules;
mod run;
mod simulate;
mod steps;
mod tape;
mod tui;
pub mod watch;

/// Runs a command to its exit code.
///
/// # Errors
/// Whatever [`complain`] can put into words.
pub fn dispatch(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::check(&args),
        Command::Judge(args) => judge::judge(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::Query(args) => answer(|out| query::query(&args, out)),
        Command::Export(args) => answer(|out| export::export(&args, out)),
        Command::Rules(args) => rules::rules(&args),
        Command::Watch(args) => watch::watch(&args),
        Command::Sim(args) => simulate::simulate(&args),
        Command::Schema => answer(|out| Ok(report::schema::write(out)?)),
        Command::Completions { shell } => {
            let mut command = <crate::cli::Cli as clap::CommandFactory>::command();
            clap_complete::generate(shell, &mut command, "plimsoll", &mut std::io::stdout());
            Ok(Exit::Done)
        }
        Command::Supervise { argv } => std::process::exit(i32::from(launch::supervise(&argv))),
    }
}

/// Says on standard error what went wrong, and gives the exit code that belongs to it.
pub fn complain(error: &anyhow::Error) -> Exit {
    let mut err = std::io::stderr().lock();
    // A closed standard error leaves nobody to tell.
    let _ = writeln!(err, "plimsoll: {error:#}");
    match error.downcast_ref::<Refusal>() {
        Some(refusal) => {
            for line in refusal.hint.lines() {
                let _ = writeln!(err, "hint: {line}");
            }
            refusal.exit
        }
        None => Exit::Failure,
    }
}

/// Writes the answer to standard output. A reader that went away is no failure of ours.
fn answer(write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> anyhow::Result<Exit> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let gone = |error: &anyhow::Error| {
        let io = error.chain().find_map(|e| e.downcast_ref::<std::io::Error>());
        io.is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    };
    match write(&mut out).and_then(|()| Ok(out.flush()?)) {
        Err(error) if !gone(&error) => {
            let ours = error.is::<std::io::Error>();
            Err(if ours { error.context("writing the answer to standard output") } else { error })
        }
        _ => Ok(Exit::Done),
    }
}

/// Says something on standard error that does not stand in the way of the answer.
fn note(says: &str) {
    // A closed standard error leaves nobody to tell.
    let _ = writeln!(std::io::stderr().lock(), "note: {says}");
}

/// Puts a verdict before the user: as JSON for programs, else as the terminal's answer.
fn tell(verdict: &Verdict, json: bool, folder: Option<&Path>) -> anyhow::Result<Exit> {
    ci::tell(verdict);
    answer(|out| {
        if json {
            return Ok(report::json::write(verdict, out)?);
        }
        report::terminal::write(verdict, out, report::terminal::Style { color: colour(), width: width() })?;
        match folder {
            Some(folder) => Ok(writeln!(out, "\nrecording and reports: {}", folder.display())?),
            None => Ok(()),
        }
    })
}

/// Width of the terminal in columns, for tables; `COLUMNS` goes before it, and 100 where there is neither.
fn width() -> u16 {
    let told = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    told.or_else(|| terminal_size::terminal_size_of(std::io::stdout()).map(|(w, _)| w.0)).unwrap_or(100)
}

/// A page of labelled lines as the terminal takes it: what is too long goes on below its own beginning. As it is where
/// nothing tells how wide the page may be: programs read whole lines.
fn page(text: &str) -> String {
    let narrow = std::env::var_os("COLUMNS").is_some() || std::io::stdout().is_terminal();
    if narrow { hang(text, usize::from(width())) } else { text.to_owned() }
}

/// Breaks the lines that are longer than `columns`; a label (what stands before two spaces, or in the first ten
/// columns) stands alone.
fn hang(text: &str, columns: usize) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let begins = line.len() - line.trim_start().len();
        let label = line[begins..].find("  ").map(|at| begins + at).filter(|at| *at < 18);
        let indent = match label {
            Some(at) => at + line[at..].len() - line[at..].trim_start().len(),
            None if begins == 0 && line.is_char_boundary(10) => 10,
            None => begins,
        };
        if text::width(line) <= columns || indent >= columns {
            out += line;
            out.push('\n');
            continue;
        }
        for (i, part) in text::wrap(&line[indent..], columns - indent).into_iter().enumerate() {
            match i {
                0 => out += &line[..indent],
                _ => out.extend(std::iter::repeat_n(' ', indent)),
            }
            out += &part;
            out.push('\n');
        }
    }
    out
}

/// Whether standard output takes colour.
fn colour() -> bool {
    std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
        && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}

#[cfg(test)]
mod tests {
    use super::hang;

    #[test]
    fn long_lines_hang_below_their_label() {
        let text = "gpu       nvml, driver 570\n         reads    a_mhz, b_mhz, c_mhz, d_mhz\njudged by Alpha, Beta, Gamma, Delta\n          at 1 stream that takes longer, so it is\n";
        let expected = "\
gpu       nvml, driver 570
         reads    a_mhz,
                  b_mhz,
                  c_mhz,
                  d_mhz
judged by Alpha, Beta,
          Gamma, Delta
          at 1 stream that
          takes longer, so
          it is
";
        assert_eq!(hang(text, 26), expected);
        assert_eq!(hang(text, 200), text);
        assert_eq!(hang("        °C °C °C\n", 12), "        °C\n        °C\n        °C\n");
    }
}
