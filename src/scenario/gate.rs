//! `[gate]`: what must hold for exit code 0.
//!
//! Thresholds are strings, in k6's manner: `"ttft p99 < 1s at 16"`, `"error_rate < 0.1%"`,
//! `"output_tokens_per_s > 900 at 32"`, `"not GpuThrottled"`. Without `at` they speak of every step.

use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::units::{human_seconds, parse_duration};

/// `[gate]` of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GateSpec {
    /// At least this many streams (or requests per second) must be clean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_clean_concurrency: Option<f64>,
    /// What must hold, each as a text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub thresholds: Vec<Threshold>,
    /// A verdict that this run is held against, relative to the scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<PathBuf>,
    /// By how much a latency or a rate may have got worse than in the baseline without the gate minding that it cannot
    /// rule it out: a share, or `10%`.
    pub max_regression: Share,
    /// Standard deviation by which two runs of the same server differ, as a share: what a single run cannot see.
    pub run_noise: Share,
}

impl Default for GateSpec {
    fn default() -> GateSpec {
        GateSpec {
            min_clean_concurrency: None,
            thresholds: Vec::new(),
            against: None,
            max_regression: Share(0.10),
            run_noise: Share(crate::compare::RUN_NOISE),
        }
    }
}

impl GateSpec {
    /// Whether its numbers make sense.
    ///
    /// # Errors
    /// Names the key, what was met, and what is allowed.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(least) = self.min_clean_concurrency
            && !(least > 0.0 && least.is_finite())
        {
            return Err(format!("gate.min_clean_concurrency is {least}, expected a number above 0"));
        }
        for (key, share) in [("max_regression", self.max_regression), ("run_noise", self.run_noise)] {
            if !(share.0 > 0.0 && share.0 < 1.0) {
                return Err(format!("gate.{key} is {}, expected above 0 % and below 100 %", share.0));
            }
        }
        Ok(())
    }
}

/// A share, written as a number or with a percent sign.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "f64")]
pub struct Share(pub f64);

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(f64),
    Text(String),
}

impl From<Share> for f64 {
    fn from(s: Share) -> f64 {
        s.0
    }
}

impl TryFrom<Written> for Share {
    type Error = String;
    fn try_from(w: Written) -> Result<Share, String> {
        match w {
            Written::Number(x) => Ok(Share(x)),
            Written::Text(t) => share(&t).map(Share),
        }
    }
}

fn share(text: &str) -> Result<f64, String> {
    let bad = || format!("`{text}` is no share, expected such as 0.1% or 0.001");
    let (number, factor) = match text.trim().strip_suffix('%') {
        Some(n) => (n, 0.01),
        None => (text, 1.0),
    };
    let x: f64 = number.trim().parse().map_err(|_| bad())?;
    if x.is_finite() && x >= 0.0 { Ok(x * factor) } else { Err(bad()) }
}

/// One thing that must hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Threshold {
    /// As the scenario states it.
    pub text: String,
    /// What it says.
    pub says: Says,
    /// The level that it speaks of; `None` is every step.
    pub at: Option<f64>,
}

/// What a threshold says.
#[derive(Clone, Debug, PartialEq)]
pub enum Says {
    /// A number of a step is held against a limit.
    Number {
        /// Which number.
        of: Measure,
        /// How it must lie.
        must: Compare,
        /// The limit: seconds, a rate per second, or a share.
        limit: f64,
    },
    /// An alert or a pair of this name must not show.
    Not(String),
}

/// A number that a threshold can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A statistic of a latency.
    Latency(Latency, Statistic),
    /// Failed over ended requests.
    ErrorRate,
    /// Output tokens per second.
    OutputTokens,
    /// Prompt tokens per second.
    PromptTokens,
    /// Requests per second that met every target.
    Goodput,
    /// Preemptions in a step.
    Preemptions,
    /// Prefix-cache hits over queries.
    PrefixCacheHits,
    /// Accepted over drafted tokens.
    DraftAcceptance,
}

/// A latency that the client measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the verdict")]
pub enum Latency {
    Ttft,
    Gap,
    Itl,
    Tpot,
    E2e,
}

/// A statistic of a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they say it themselves")]
pub enum Statistic {
    Mean,
    P50,
    P90,
    P99,
    Max,
}

/// How a number must lie to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Below, or equal with `<=`.
    Below {
        /// Whether the limit itself is allowed.
        or_equal: bool,
    },
    /// Above, or equal with `>=`.
    Above {
        /// Whether the limit itself is allowed.
        or_equal: bool,
    },
}

impl Compare {
    /// Whether `x` lies so.
    pub fn holds(self, x: f64, limit: f64) -> bool {
        match self {
            Compare::Below { or_equal } => x < limit || or_equal && x == limit,
            Compare::Above { or_equal } => x > limit || or_equal && x == limit,
        }
    }
}

const LATENCIES: [(&str, Latency); 5] = [
    ("ttft", Latency::Ttft),
    ("gap", Latency::Gap),
    ("itl", Latency::Itl),
    ("tpot", Latency::Tpot),
    ("e2e", Latency::E2e),
];
const STATISTICS: [(&str, Statistic); 5] = [
    ("mean", Statistic::Mean),
    ("p50", Statistic::P50),
    ("p90", Statistic::P90),
    ("p99", Statistic::P99),
    ("max", Statistic::Max),
];
const NUMBERS: [(&str, Measure); 7] = [
    ("error_rate", Measure::ErrorRate),
    ("output_tokens_per_s", Measure::OutputTokens),
    ("prompt_tokens_per_s", Measure::PromptTokens),
    ("goodput_per_s", Measure::Goodput),
    ("preemptions", Measure::Preemptions),
    ("prefix_cache_hit_rate", Measure::PrefixCacheHits),
    ("draft_acceptance_rate", Measure::DraftAcceptance),
];

impl Measure {
    /// Whether its values lie between 0 and 1.
    fn is_share(self) -> bool {
        matches!(self, Measure::ErrorRate | Measure::PrefixCacheHits | Measure::DraftAcceptance)
    }

    /// A value of it for a person.
    pub fn words(self, x: f64) -> String {
        match self {
            Measure::Latency(..) => human_seconds(x),
            m if m.is_share() => format!("{} %", digits(x * 100.0)),
            _ => digits(x),
        }
    }
}

/// Three significant digits, without zeros at the end.
fn digits(x: f64) -> String {
    let places = if x.abs() >= 100.0 {
        0
    } else if x.abs() >= 10.0 {
        1
    } else {
        2
    };
    let text = format!("{x:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

impl TryFrom<String> for Threshold {
    type Error = String;
    fn try_from(text: String) -> Result<Threshold, String> {
        text.parse()
    }
}

impl From<Threshold> for String {
    fn from(t: Threshold) -> String {
        t.text
    }
}

impl FromStr for Threshold {
    type Err = String;

    /// Reads `METRIC [STATISTIC] OPERATOR LIMIT [at LEVEL]` or `not NAME [at LEVEL]`.
    fn from_str(text: &str) -> Result<Threshold, String> {
        let spaced = ["<=", ">=", "<", ">"]
            .iter()
            .find_map(|op| text.split_once(op).map(|(a, b)| format!("{a} {op} {b}")))
            .unwrap_or_else(|| text.to_owned());
        let mut words: Vec<&str> = spaced.split_whitespace().collect();
        let mut at = None;
        if let [.., "at", level] = words[..] {
            let level: f64 = level.parse().map_err(|_| {
                format!("the threshold `{text}` ends in `at {level}`, expected a level of the ladder, such as `at 16`")
            })?;
            at = Some(level);
            words.truncate(words.len() - 2);
        }
        let says = match words[..] {
            ["not", name] => Says::Not(name.to_owned()),
            ["not", ..] => return Err(form(text)),
            [metric, op, limit] => number(text, metric, None, op, limit)?,
            [metric, statistic, op, limit] => number(text, metric, Some(statistic), op, limit)?,
            _ => return Err(form(text)),
        };
        Ok(Threshold { text: text.trim().to_owned(), says, at })
    }
}

fn form(text: &str) -> String {
    format!(
        "the threshold `{text}` cannot be read, expected such as `ttft p99 < 1s at 16`, `error_rate < 0.1%` or \
         `not GpuThrottled`"
    )
}

fn number(text: &str, metric: &str, statistic: Option<&str>, op: &str, limit: &str) -> Result<Says, String> {
    let listed = |names: Vec<&str>| names.join(", ");
    let of = if let Some((_, latency)) = LATENCIES.iter().find(|(n, _)| *n == metric) {
        let allowed = || listed(STATISTICS.iter().map(|(n, _)| *n).collect());
        let s = statistic.ok_or_else(|| {
            format!("the threshold `{text}` names no statistic of {metric}, expected one of {}", allowed())
        })?;
        let found = STATISTICS.iter().find(|(n, _)| *n == s);
        let (_, s) = found
            .ok_or_else(|| format!("`{s}` in the threshold `{text}` is no statistic, expected one of {}", allowed()))?;
        Measure::Latency(*latency, *s)
    } else if let Some((_, m)) = NUMBERS.iter().find(|(n, _)| *n == metric) {
        if let Some(s) = statistic {
            return Err(format!("`{s}` in the threshold `{text}` does not belong: {metric} is one number a step"));
        }
        *m
    } else {
        let names: Vec<&str> = LATENCIES.iter().map(|(n, _)| *n).chain(NUMBERS.iter().map(|(n, _)| *n)).collect();
        return Err(format!("`{metric}` in the threshold `{text}` is no metric, expected one of {}", listed(names)));
    };
    let must = match op {
        "<" => Compare::Below { or_equal: false },
        "<=" => Compare::Below { or_equal: true },
        ">" => Compare::Above { or_equal: false },
        ">=" => Compare::Above { or_equal: true },
        _ => return Err(format!("`{op}` in the threshold `{text}` is no comparison, expected one of <, <=, >, >=")),
    };
    let wrong = |says: String| format!("in the threshold `{text}`: {says}");
    let limit = match of {
        Measure::Latency(..) => parse_duration(limit).map_err(wrong)?.as_secs_f64(),
        m if m.is_share() => share(limit).map_err(wrong)?,
        _ => limit
            .parse()
            .ok()
            .filter(|x: &f64| x.is_finite())
            .ok_or_else(|| wrong(format!("`{limit}` is no number")))?,
    };
    Ok(Says::Number { of, must, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_read_as_they_are_written() {
        let number = |of, must, limit| Says::Number { of, must, limit };
        let (below, above) = (Compare::Below { or_equal: false }, Compare::Above { or_equal: false });
        for (text, says, at) in [
            ("ttft p99 < 1s at 16", number(Measure::Latency(Latency::Ttft, Statistic::P99), below, 1.0), Some(16.0)),
            ("error_rate<0.1%", number(Measure::ErrorRate, below, 0.001), None),
            ("output_tokens_per_s > 900 at 32", number(Measure::OutputTokens, above, 900.0), Some(32.0)),
            (
                "gap p50 <= 25ms",
                number(Measure::Latency(Latency::Gap, Statistic::P50), Compare::Below { or_equal: true }, 0.025),
                None,
            ),
            ("not GpuThrottled", Says::Not("GpuThrottled".into()), None),
            ("not PoolLimited at 8", Says::Not("PoolLimited".into()), Some(8.0)),
        ] {
            let read: Threshold = text.parse().unwrap();
            assert_eq!((read.says, read.at), (says, at), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_says_what_is_allowed() {
        for (text, part) in [
            ("tftt p99 < 1s", "expected one of ttft, gap"),
            ("ttft < 1s", "names no statistic of ttft, expected one of mean, p50"),
            ("ttft p98 < 1s", "`p98`"),
            ("ttft p99 = 1s", "no comparison"),
            ("ttft p99 < 1", "no duration"),
            ("error_rate p99 < 1%", "does not belong"),
            ("error_rate < x", "no share"),
            ("output_tokens_per_s > 5s", "no number"),
            ("ttft p99 < 1s at many", "a level of the ladder"),
            ("not", "cannot be read"),
            ("", "cannot be read"),
        ] {
            let error = text.parse::<Threshold>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
