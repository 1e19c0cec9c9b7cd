//! Numbers with units: how durations are read from a scenario and printed for a person.

use std::time::Duration;

/// Reads a Prometheus-style duration: `90s`, `1m30s`, `250ms`, `2h`; a bare number is refused.
///
/// # Errors
/// Says what was met and which forms are allowed.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is no duration, expected a number with its unit, such as 250ms, 90s, 1m30s or 2h");
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(bad());
    }
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut total = 0.0_f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(bad)?;
        let number: f64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return Err(bad()),
        };
        total += number * unit;
        rest = &rest[letters..];
    }
    Duration::try_from_secs_f64(total).map_err(|_| bad())
}

/// A duration as Prometheus writes it, to the millisecond: `1m30s`, `250ms`, `0s`.
pub fn prometheus_duration(d: Duration) -> String {
    let mut ms = u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    if ms == 0 {
        return "0s".into();
    }
    let mut out = String::new();
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        if ms >= size {
            out += &format!("{}{unit}", ms / size);
            ms %= size;
        }
    }
    out
}

/// Seconds for a person, three significant digits: `850 us`, `12.4 ms`, `1.25 s`, `93 s`.
pub fn human_seconds(s: f64) -> String {
    let a = s.abs();
    if a == 0.0 {
        "0 s".into()
    } else if a < 1e-3 {
        format!("{:.0} us", s * 1e6)
    } else if a < 0.1 {
        format!("{:.1} ms", s * 1e3)
    } else if a < 1.0 {
        format!("{:.0} ms", s * 1e3)
    } else if a < 10.0 {
        format!("{s:.2} s")
    } else {
        format!("{s:.0} s")
    }
}

/// For `#[serde(with = "crate::model::units::duration")]`: a duration as a string such as `90s`.
pub mod duration {
    use std::time::Duration;

    use serde::{Deserializer, Serializer};

    /// Reads `90s`.
    ///
    /// # Errors
    /// If the text is no duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        d.deserialize_str(Text)
    }

    struct Text;

    impl serde::de::Visitor<'_> for Text {
        type Value = Duration;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a time in quotes with its unit, such as \"90s\" or \"1m30s\"")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Duration, E> {
            super::parse_duration(text).map_err(E::custom)
        }
    }

    /// Writes `1m30s`.
    ///
    /// # Errors
    /// If the serializer fails.
    pub fn serialize<S: Serializer>(d: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&super::prometheus_duration(*d))
    }
}

/// For `#[serde(with = "crate::model::units::duration_opt", default)]`: the same, or absent.
pub mod duration_opt {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Reads `90s`.
    ///
    /// # Errors
    /// If the text is no duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
        Option::<Given>::deserialize(d).map(|given| given.map(|g| g.0))
    }

    struct Given(Duration);

    impl<'de> Deserialize<'de> for Given {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Given, D::Error> {
            super::duration::deserialize(d).map(Given)
        }
    }

    /// Writes `1m30s`, or nothing.
    ///
    /// # Errors
    /// If the serializer fails.
    pub fn serialize<S: Serializer>(d: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
        match d {
            Some(d) => s.serialize_str(&super::prometheus_duration(*d)),
            None => s.serialize_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_print() {
        for (text, ms) in
            [("90s", 90_000), ("1m30s", 90_000), ("250ms", 250), ("2h", 7_200_000), ("0", 0), ("1.5s", 1_500)]
        {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(ms), "{text}");
        }
        for bad in ["", "90", "s", "1x", "-3s", "1 s"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        assert_eq!(prometheus_duration(Duration::from_millis(90_250)), "1m30s250ms");
        assert_eq!(prometheus_duration(Duration::ZERO), "0s");
    }
}
