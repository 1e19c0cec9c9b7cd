//! Numbers as Go and Prometheus write them.

pub(super) const DECIMAL: [&str; 8] = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
pub(super) const BINARY: [&str; 8] = ["ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"];
const SMALL: [&str; 8] = ["m", "u", "n", "p", "f", "a", "z", "y"];

pub(super) fn humanize(v: f64, base: f64, prefixes: &[&str]) -> String {
    if v == 0.0 || !v.is_finite() {
        return significant(v, 4);
    }
    // Binary prefixes have no small ones.
    if v.abs() < 1.0 && base < 1_001.0 {
        let (v, prefix) = small(v);
        return format!("{}{prefix}", significant(v, 4));
    }
    let (mut v, mut prefix) = (v, "");
    for p in prefixes {
        if v.abs() < base {
            break;
        }
        prefix = p;
        v /= base;
    }
    format!("{}{prefix}", significant(v, 4))
}

fn small(mut v: f64) -> (f64, &'static str) {
    let mut prefix = "";
    for p in SMALL {
        if v.abs() >= 1.0 {
            break;
        }
        prefix = p;
        v *= 1_000.0;
    }
    (v, prefix)
}

pub(super) fn humanize_duration(v: f64) -> String {
    if v == 0.0 || !v.is_finite() {
        return if v == 0.0 { "0s".into() } else { significant(v, 4) };
    }
    if v.abs() < 1.0 {
        let (v, prefix) = small(v);
        return format!("{}{prefix}s", significant(v, 4));
    }
    let sign = if v < 0.0 { "-" } else { "" };
    let v = v.abs();
    let whole = v as u64;
    let (s, m, h, d) = (whole % 60, whole / 60 % 60, whole / 3_600 % 24, whole / 86_400);
    match (d, h, m) {
        (0, 0, 0) => format!("{sign}{}s", significant(v, 4)),
        (0, 0, _) => format!("{sign}{m}m {s}s"),
        (0, _, _) => format!("{sign}{h}h {m}m {s}s"),
        _ => format!("{sign}{d}d {h}h {m}m {s}s"),
    }
}

/// C's `%.{digits}g`.
pub(super) fn significant(v: f64, digits: usize) -> String {
    if let Some(word) = not_finite(v) {
        return word.into();
    }
    if v == 0.0 {
        return "0".into();
    }
    let exp = exponent(v, digits);
    if exp < -4 || exp >= digits as i32 {
        return go_exponent(&format!("{:.*e}", digits - 1, v), true);
    }
    let decimals = usize::try_from(digits as i32 - 1 - exp).unwrap_or(0);
    let text = format!("{v:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Decimal exponent of `v` after rounding to `digits` significant digits.
fn exponent(v: f64, digits: usize) -> i32 {
    let text = format!("{:.*e}", digits - 1, v);
    text.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0)
}

/// Rust's `1.5e7` as Go's `1.5e+07`; `trim` drops trailing zeros of the mantissa.
pub(super) fn go_exponent(text: &str, trim: bool) -> String {
    let Some((mantissa, exp)) = text.split_once('e') else { return text.to_owned() };
    let exp: i32 = exp.parse().unwrap_or(0);
    let mantissa =
        if trim && mantissa.contains('.') { mantissa.trim_end_matches('0').trim_end_matches('.') } else { mantissa };
    format!("{mantissa}e{}{:02}", if exp < 0 { '-' } else { '+' }, exp.abs())
}

fn not_finite(v: f64) -> Option<&'static str> {
    if v.is_nan() {
        Some("NaN")
    } else if v == f64::INFINITY {
        Some("+Inf")
    } else if v == f64::NEG_INFINITY {
        Some("-Inf")
    } else {
        None
    }
}

/// A float as Go's `%v` prints it.
pub(super) fn go_float(v: f64) -> String {
    if let Some(word) = not_finite(v) {
        return word.into();
    }
    let a = v.abs();
    if a != 0.0 && !(1e-4..1e21).contains(&a) { go_exponent(&format!("{v:e}"), false) } else { format!("{v}") }
}

/// A number of seconds since 1970 as Go prints that time; to the millisecond, as Prometheus keeps it. `None` where its
/// nanoseconds do not fit into 64 bits.
pub(super) fn timestamp(v: f64) -> Option<String> {
    let nanos = v * 1e9;
    if !(nanos > i64::MIN as f64 && nanos < i64::MAX as f64) {
        return None;
    }
    let ms = (nanos as i64).div_euclid(1_000_000);
    let (seconds, ms) = (ms.div_euclid(1_000), ms.rem_euclid(1_000));
    let (year, month, day) = date(seconds.div_euclid(86_400));
    let s = seconds.rem_euclid(86_400);
    let part = if ms == 0 { String::new() } else { format!(".{ms:03}").trim_end_matches('0').to_owned() };
    Some(format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}{part} +0000 UTC", s / 3_600, s / 60 % 60, s % 60))
}

/// Year, month and day of a number of days since 1970-01-01, by counting from 1 March of the year 0, so that a leap day
/// ends its year.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}
