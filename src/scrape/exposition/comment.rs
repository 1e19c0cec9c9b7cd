//! Lines that begin with `#`: checked, and not kept.

use super::{Format, blanks, series};

/// Checks a line that begins with `#`; says whether it is the end mark of OpenMetrics.
pub(super) fn comment(line: &[u8], format: Format) -> Result<bool, String> {
    let strict = format == Format::OpenMetrics;
    if strict && line == b"# EOF" {
        return Ok(true);
    }
    let body = &line[1..];
    let body = &body[blanks(body)..];
    let word_end = body.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(body.len());
    let (word, rest) = body.split_at(word_end);
    let meta = matches!(word, b"HELP" | b"TYPE") || (strict && word == b"UNIT");
    // Without anything after it, and without a blank after the hash, the word is only a comment.
    if !meta || rest.is_empty() || body.len() == line.len() - 1 {
        return if strict { Err("a comment, which OpenMetrics forbids".into()) } else { Ok(false) };
    }
    let rest = &rest[blanks(rest)..];
    let name_end = series::metadata_name_end(rest)
        .ok_or_else(|| format!("expected a metric name after {}", String::from_utf8_lossy(word)))?;
    let text = rest[name_end..].trim_ascii();
    match word {
        b"TYPE" if !known_type(text, strict) => Err(format!(
            "metric type `{}`, expected counter, gauge, histogram, summary or {}",
            String::from_utf8_lossy(text),
            if strict { "unknown" } else { "untyped" }
        )),
        b"HELP" if std::str::from_utf8(text).is_err() => Err("a help text that is not UTF-8".into()),
        _ => Ok(false),
    }
}

fn known_type(text: &[u8], strict: bool) -> bool {
    match text {
        b"counter" | b"gauge" | b"histogram" | b"summary" => true,
        b"untyped" => !strict,
        b"unknown" | b"gaugehistogram" | b"info" | b"stateset" => strict,
        _ => false,
    }
}
