//! Wires the folders together: one file a command. The only folder that knows all others.

use std::io::{IsTerminal, Write};
use std::path::Path;

use crate::cli::Command;
use crate::error::{Exit, Refusal};
use crate::model::verdict::Verdict;
use crate::report;

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
        Err(error) if !gone(&error) => Err(error),
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

/// Whether standard output takes colour.
fn colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}
