//! What one look at a live server gave: for scripts, and for people.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Exit;
use crate::model::verdict::{AlertState, AlertVerdict, Explanation, GpuStats, ServerStats};
use crate::report::text::{number, plain};

/// Version of the wire form.
pub const SCHEMA: &str = "plimsoll.watch/1";

/// What a look gave. Keys end in their unit, unknown is `null`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// [`SCHEMA`].
    pub schema: String,
    /// The page, without what may be secret.
    pub url: String,
    /// When the look ended, ms since 1970 UTC.
    pub at_unix_ms: i64,
    /// How much of time was judged, s.
    pub window_s: f64,
    /// The answer in a word.
    pub outcome: Outcome,
    /// Every alert, as in a step's verdict.
    pub alerts: Vec<AlertVerdict>,
    /// Why those that fire do so, by their names.
    pub explanations: BTreeMap<String, Explanation>,
    /// What the page said.
    pub server: Option<ServerStats>,
    /// Each GPU, if any was read.
    pub gpu: Vec<GpuStats>,
}

/// The answer in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// No alert fires, and every one could be judged.
    Quiet,
    /// An alert fires.
    Firing,
    /// None fires, and of some it cannot be said that they would not.
    Inconclusive,
}

impl Outcome {
    pub(super) fn of(alerts: &[AlertVerdict]) -> Outcome {
        let any = |state: AlertState| alerts.iter().any(|a| a.state == state);
        if any(AlertState::Firing) {
            Outcome::Firing
        } else if alerts.is_empty() || any(AlertState::NoData) || any(AlertState::NotEvaluable) {
            Outcome::Inconclusive
        } else {
            Outcome::Quiet
        }
    }
}

impl Watched {
    /// The exit code that it stands for.
    pub fn exit(&self) -> Exit {
        match self.outcome {
            Outcome::Quiet => Exit::Done,
            Outcome::Firing => Exit::GateFailed,
            Outcome::Inconclusive => Exit::Inconclusive,
        }
    }
}

/// As JSON.
pub(super) fn json(watched: &Watched, out: &mut dyn Write) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, watched)?;
    Ok(writeln!(out)?)
}

/// As lines for a person.
pub(super) fn text(watched: &Watched, out: &mut dyn Write) -> anyhow::Result<()> {
    let head = match watched.outcome {
        Outcome::Quiet => "quiet: no alert fires".to_owned(),
        Outcome::Firing => "firing".to_owned(),
        Outcome::Inconclusive => "inconclusive: no alert fires, and not all could be judged".to_owned(),
    };
    let window = super::length(Duration::try_from_secs_f64(watched.window_s).unwrap_or_default());
    writeln!(out, "{head} ({} over {window})", plain(&watched.url))?;
    for alert in &watched.alerts {
        let (mark, word) = match alert.state {
            AlertState::Firing => ("!", "fires"),
            AlertState::Pending => ("~", "pending"),
            AlertState::Quiet => ("+", "quiet"),
            AlertState::NoData => ("?", "no data"),
            AlertState::NotEvaluable => ("?", "cannot be judged"),
        };
        let mut line = format!("{mark} {}: {word}", plain(&alert.alert));
        if let Some(value) = alert.value {
            line += &format!(", value {}", number(value));
        }
        if let Some(because) = &alert.because {
            line += &format!(", {}", plain(because));
        }
        writeln!(out, "{line}")?;
        if let Some(why) = watched.explanations.get(&alert.alert) {
            for line in because(why) {
                writeln!(out, "    {line}")?;
            }
        }
    }
    Ok(())
}

/// An explanation as lines: the finding, its evidence, what to do.
pub(super) fn because(why: &Explanation) -> Vec<String> {
    let mut out = vec![format!("because {} ({})", plain(&why.summary), plain(&why.pair))];
    out.extend(why.evidence.iter().map(|e| {
        let median = e.median.map_or(String::new(), |m| format!(" (median {})", number(m)));
        format!("- {}{median}", plain(&e.says))
    }));
    out.extend(why.advice.iter().map(|a| format!("do: {}", plain(a))));
    out
}
