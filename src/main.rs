//! Parse, run, map the outcome to an exit code.

use std::process::ExitCode;

use clap::Parser;
use plimsoll::{app, cli::Cli};

fn main() -> ExitCode {
    // clap ends the process itself: 0 for --help and --version, 2 for a bad command line.
    let cli = Cli::parse();
    match app::dispatch(cli.command) {
        Ok(exit) => exit.into(),
        Err(error) => app::complain(&error).into(),
    }
}
