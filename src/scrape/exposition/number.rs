//! What follows a series on its line: value, timestamp, exemplar.

use super::{Format, Refusal, blanks, line_end};

/// Reads from the end of a series to the end of its line. Gives the value and where the next
/// line begins.
pub(super) fn sample_tail(page: &[u8], at: usize, format: Format) -> Result<(f64, usize), Refusal> {
    let at = gap(page, at, format)?;
    let end = token_end(page, at);
    if end == at {
        return Err(Refusal::new(at, "expected a value after the series"));
    }
    let value = value(&page[at..end]).map_err(|what| Refusal { at, what })?;
    let mut at = end;
    if !line_is_over(page, &mut at, format)? && page[at] != b'#' {
        let end = token_end(page, at);
        timestamp(&page[at..end], format).map_err(|what| Refusal { at, what })?;
        at = end;
        if !line_is_over(page, &mut at, format)? && page[at] != b'#' {
            return Err(Refusal::new(at, "text after the timestamp"));
        }
    }
    if page.get(at) == Some(&b'#') {
        at = line_end(page, at);
    }
    Ok((value, at + 1))
}

/// Skips the blanks between two tokens.
fn gap(page: &[u8], at: usize, format: Format) -> Result<usize, Refusal> {
    let n = blanks(&page[at..]);
    if format == Format::OpenMetrics && (n != 1 || page[at] != b' ') {
        return Err(Refusal::new(at, "expected one space between two tokens"));
    }
    Ok(at + n)
}

/// Skips to the next token; says whether the line ended instead.
fn line_is_over(page: &[u8], at: &mut usize, format: Format) -> Result<bool, Refusal> {
    if *at < page.len() && page[*at] != b'\n' {
        *at = gap(page, *at, format)?;
    }
    Ok(matches!(page.get(*at), None | Some(b'\n')))
}

fn token_end(page: &[u8], at: usize) -> usize {
    page[at..].iter().position(|b| matches!(b, b' ' | b'\t' | b'\n' | b'{')).map_or(page.len(), |n| at + n)
}

/// A value as Go's `ParseFloat` takes it in Prometheus: decimal, `NaN`, `Inf` or `Infinity`
/// in any case; neither hexadecimal nor with underscores, nor too large for a double.
fn value(text: &[u8]) -> Result<f64, String> {
    // Most values of a page are `0.0`, or small whole numbers written so.
    if let Some(v) = small_whole(text) {
        return Ok(v);
    }
    let bad = || format!("value `{}` is no number", String::from_utf8_lossy(text));
    let text = std::str::from_utf8(text).map_err(|_| bad())?;
    let v: f64 = text.parse().map_err(|_| bad())?;
    let by_word = text.contains(['n', 'N']);
    if v.is_nan() {
        // A sign before NaN is refused by Go. One bit pattern for all: the staleness marker is ours to set.
        return if text.len() == 3 { Ok(f64::NAN) } else { Err(bad()) };
    }
    if v.is_infinite() && !by_word { Err(bad()) } else { Ok(v) }
}

/// `17` or `17.0` with at most eight digits.
fn small_whole(text: &[u8]) -> Option<f64> {
    let digits = text.strip_suffix(b".0").unwrap_or(text);
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    let mut n = 0_u32;
    for b in digits {
        if !b.is_ascii_digit() {
            return None;
        }
        n = n * 10 + u32::from(b - b'0');
    }
    Some(f64::from(n))
}

/// Whole milliseconds in the text format, seconds in OpenMetrics. Checked, not kept.
fn timestamp(text: &[u8], format: Format) -> Result<(), String> {
    let ok = std::str::from_utf8(text).is_ok_and(|t| match format {
        Format::Text => t.parse::<i64>().is_ok(),
        Format::OpenMetrics => t.parse::<f64>().is_ok_and(f64::is_finite),
    });
    if ok { Ok(()) } else { Err(format!("timestamp `{}` is no number", String::from_utf8_lossy(text))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        for (text, v) in [
            ("0.0", 0.0),
            ("17", 17.0),
            ("12345678.0", 12_345_678.0),
            ("123456789", 123_456_789.0),
            ("1.7960933539391649e+09", 1_796_093_353.939_164_9),
            (".5", 0.5),
            ("5.", 5.0),
            ("+5", 5.0),
            ("+Inf", f64::INFINITY),
        ] {
            assert_eq!(value(text.as_bytes()).unwrap().to_bits(), v.to_bits(), "{text}");
        }
        assert!(value(b"-0").unwrap().is_sign_negative());
    }
}
