//! Reading the levels of a ladder: `[1, 2, 4]`, `1,2,4`, `1..64x2`, `1..10+1`.

use super::{Levels, Loop};

/// Most streams that a step may ask for.
const MOST_STREAMS: f64 = 100_000.0;
/// Most requests per second that a step may ask for.
const MOST_RATE: f64 = 1_000_000.0;
/// Most levels that a ladder may have.
const MOST_LEVELS: usize = 200;

/// Why levels could not be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LevelsError {
    /// Both kinds of level.
    #[error("the ladder has both `concurrency` and `request_rate`, expected one of them")]
    Both,
    /// Not one of the forms.
    #[error(
        "ladder.concurrency (--concurrency) or request_rate is `{0}`, expected a list such as 1,2,4 or a range such as 1..64x2 or 1..10+1"
    )]
    Form(String),
    /// A level that cannot be run.
    #[error("the ladder asks for {0} streams, expected a whole number from 1 to 100000")]
    Streams(f64),
    /// A rate that cannot be run.
    #[error("the ladder asks for {0} requests per second, expected a number above 0 and up to 1000000")]
    Rate(f64),
    /// No level at all, or far too many.
    #[error("the ladder has {0} levels, expected 1 to 200")]
    Count(usize),
}

/// Ascending levels without repeats.
///
/// # Errors
/// Says what was met and what is allowed.
pub fn parse_levels(levels: &Levels, kind: Loop) -> Result<Vec<f64>, LevelsError> {
    let mut out = match levels {
        Levels::One(level) => vec![*level],
        Levels::List(list) => list.clone(),
        Levels::Text(text) => from_text(text).ok_or_else(|| LevelsError::Form(text.clone()))?,
    };
    for &level in &out {
        match kind {
            Loop::Closed if !(1.0..=MOST_STREAMS).contains(&level) || level.fract() != 0.0 => {
                return Err(LevelsError::Streams(level));
            }
            Loop::Open if !(level > 0.0 && level <= MOST_RATE) => return Err(LevelsError::Rate(level)),
            _ => {}
        }
    }
    out.sort_by(f64::total_cmp);
    out.dedup();
    if out.is_empty() || out.len() > MOST_LEVELS {
        return Err(LevelsError::Count(out.len()));
    }
    Ok(out)
}

fn from_text(text: &str) -> Option<Vec<f64>> {
    let number = |t: &str| t.trim().parse::<f64>().ok().filter(|n| n.is_finite());
    let Some((from, rest)) = text.split_once("..") else {
        return text.split(',').map(number).collect();
    };
    let from = number(from)?;
    let (to, step): (&str, fn(f64, f64) -> f64) = match (rest.split_once('x'), rest.split_once('+')) {
        (Some((to, _)), None) => (to, |level, by| level * by),
        (None, Some((to, _))) => (to, |level, by| level + by),
        _ => return None,
    };
    let by = number(rest.rsplit(['x', '+']).next()?)?;
    let to = number(to)?;
    if from <= 0.0 || to < from || step(from, by) <= from {
        return None;
    }
    let mut out = Vec::new();
    let mut level = from;
    while level <= to && out.len() <= MOST_LEVELS {
        out.push(level);
        level = step(level, by);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_reads() {
        let cases: [(&str, &[f64]); 6] = [
            ("1..64x2", &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]),
            ("1..10+3", &[1.0, 4.0, 7.0, 10.0]),
            ("4", &[4.0]),
            ("8, 2,4,2", &[2.0, 4.0, 8.0]),
            ("3..20x2", &[3.0, 6.0, 12.0]),
            ("1..1x2", &[1.0]),
        ];
        for (text, want) in cases {
            assert_eq!(parse_levels(&Levels::Text(text.into()), Loop::Closed).unwrap(), want, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        for text in ["", "1..64", "0", "1..64x1", "1..64+0", "-1", "1.5", "64..1x2", "x2", "1..1e9x1.00001", "NaN"] {
            assert!(parse_levels(&Levels::Text(text.into()), Loop::Closed).is_err(), "{text}");
        }
        assert!(parse_levels(&Levels::Text("0.5,1.5".into()), Loop::Open).is_ok());
        assert!(parse_levels(&Levels::List(vec![]), Loop::Closed).is_err());
    }
}
