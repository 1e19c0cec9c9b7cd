//! Errors that a caller tells apart, and the exit codes with what each promises.

use std::process::ExitCode;

/// How a command ended: the one place where exit codes are documented.
///
/// Where several hold, the order of precedence is `Interrupted`, `Target`, `GateFailed`, `Inconclusive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done, and every gate passed.
    Done,
    /// 1: our own failure.
    Failure,
    /// 2: a bad command line or scenario; nothing was sent.
    Usage,
    /// 3: the target could not be reached or used, or was lost during the run.
    Target,
    /// 4: no verdict can be given; the caveats say why.
    Inconclusive,
    /// 99: a gate failed (the code that k6 users know).
    GateFailed,
    /// 130: interrupted; the recording is saved and judged as far as it went.
    Interrupted,
}

impl Exit {
    /// The number that the process ends with.
    pub const fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::Target => 3,
            Exit::Inconclusive => 4,
            Exit::GateFailed => 99,
            Exit::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// A failure that ends a command with its own exit code: one line, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{says}")]
pub struct Refusal {
    /// Which code it ends with.
    pub exit: Exit,
    /// What was attempted, what was met, what is allowed; lower case, no full stop.
    pub says: String,
    /// What to do; may be empty.
    pub hint: String,
}

impl Refusal {
    /// A bad command line or scenario.
    pub fn usage(says: impl Into<String>, hint: impl Into<String>) -> Refusal {
        Refusal { exit: Exit::Usage, says: says.into(), hint: hint.into() }
    }

    /// A target that cannot be used.
    pub fn target(says: impl Into<String>, hint: impl Into<String>) -> Refusal {
        Refusal { exit: Exit::Target, says: says.into(), hint: hint.into() }
    }
}
