//! All series with their times as OpenMetrics text, which
//! `promtool tsdb create-blocks-from openmetrics` loads into a real Prometheus.
//!
//! Staleness markers cannot be written in that format and are left out by the caller; types
//! are left out too, since a type would make the loader insist on suffixes.

use std::io::{self, Write};

use crate::model::sample::{Labels, NAME};

/// Writes one series after the other, each with its `(Unix milliseconds, value)` in order of time,
/// and the end mark.
///
/// # Errors
/// If `out` fails.
pub fn write<'a, S>(out: &mut dyn Write, series: impl IntoIterator<Item = (&'a Labels, S)>) -> io::Result<()>
where
    S: IntoIterator<Item = (i64, f64)>,
{
    let mut out = io::BufWriter::new(out);
    for (labels, samples) in series {
        let head = series_text(labels);
        for (t_ms, value) in samples {
            write!(out, "{head} ")?;
            write_value(&mut out, value)?;
            out.write_all(b" ")?;
            write_seconds(&mut out, t_ms)?;
            out.write_all(b"\n")?;
        }
    }
    out.write_all(b"# EOF\n")?;
    out.flush()
}

/// `name{a="b"}` with OpenMetrics' escapes.
fn series_text(labels: &Labels) -> String {
    let mut text = labels.name().to_owned();
    let mut separator = '{';
    for (name, value) in labels.iter().filter(|(name, _)| *name != NAME) {
        text.push(separator);
        separator = ',';
        text.push_str(name);
        text.push_str("=\"");
        for c in value.chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                c => text.push(c),
            }
        }
        text.push('"');
    }
    if separator == ',' {
        text.push('}');
    }
    text
}

fn write_value(out: &mut impl Write, v: f64) -> io::Result<()> {
    if v.is_nan() {
        out.write_all(b"NaN")
    } else if v.is_infinite() {
        out.write_all(if v > 0.0 { b"+Inf" } else { b"-Inf" })
    } else if v == 0.0 || (1e-5..1e17).contains(&v.abs()) {
        write!(out, "{v}")
    } else {
        write!(out, "{v:e}")
    }
}

/// Seconds with milliseconds, and a fifth of a millisecond on top: the loader multiplies by a
/// thousand in floating point and cuts, which would lose a millisecond where the product
/// comes out just below. Rounding instead of cutting gives the same.
fn write_seconds(out: &mut impl Write, t_ms: i64) -> io::Result<()> {
    match t_ms.rem_euclid(1_000) {
        0 => write!(out, "{}", t_ms.div_euclid(1_000)),
        ms => write!(out, "{}.{ms:03}2", t_ms.div_euclid(1_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_open_metrics() {
        let labels = Labels::new([(NAME, "a:b"), ("x", "q\"b\\n\nr")]);
        let bare = Labels::new([(NAME, "up")]);
        let mut out = Vec::new();
        let series = [
            (&labels, vec![(1_767_225_600_000, 1.0), (1_767_225_601_123, f64::NAN)]),
            (&bare, vec![(1_767_225_600_007, 1e300)]),
        ];
        write(&mut out, series).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "a:b{x=\"q\\\"b\\\\n\\nr\"} 1 1767225600\na:b{x=\"q\\\"b\\\\n\\nr\"} NaN 1767225601.1232\n\
             up 1e300 1767225600.0072\n# EOF\n"
        );
    }

    #[test]
    fn every_millisecond_survives_cutting_and_rounding() {
        for ms in 0..1_000_i64 {
            for base in [0, 1_767_225_600_000, 1_796_083_000_000] {
                let mut out = Vec::new();
                write_seconds(&mut out, base + ms).unwrap();
                let seconds: f64 = String::from_utf8(out).unwrap().parse().unwrap();
                assert_eq!((seconds * 1_000.0) as i64, base + ms);
                assert_eq!((seconds * 1_000.0).round() as i64, base + ms);
            }
        }
    }
}
