//! Prometheus text as Python's client library writes it.

use std::fmt::Write;

/// A number as the client library writes it: Python's `repr`, with an exponent from a million on.
pub(super) fn number(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    let text = repr(value);
    match text.find('.') {
        Some(dot) if value > 0.0 && dot > 6 => {
            let digits = format!("{}.{}{}", &text[..1], &text[1..dot], &text[dot + 1..]);
            // The library writes the exponent after a literal 0, whatever its length.
            format!("{}e+0{}", digits.trim_end_matches(['0', '.']), dot - 1)
        }
        _ => text,
    }
}

/// Python's `repr` of a float.
fn repr(value: f64) -> String {
    let magnitude = value.abs();
    if value != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').expect("this format has an exponent");
        let exponent: i32 = exponent.parse().expect("an exponent is a number");
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    format!("{value:?}")
}

/// A page that is being written.
#[derive(Debug, Default)]
pub(super) struct Page(pub(super) String);

impl Page {
    /// Begins a family.
    pub(super) fn family(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One sample; `labels` comes without braces, empty for none.
    pub(super) fn sample(&mut self, name: &str, labels: &str, value: f64) {
        if labels.is_empty() {
            self.0.push_str(name);
        } else {
            self.0.extend([name, "{", labels, "}"]);
        }
        self.value(value);
    }

    /// The value of a sample, and the end of its line.
    fn value(&mut self, value: f64) {
        self.0.push(' ');
        // Nearly all of a page is counts.
        let _ = if value.fract() == 0.0 && (0.0..1e6).contains(&value) && value.is_sign_positive() {
            write!(self.0, "{}.0", value as u64)
        } else {
            write!(self.0, "{}", number(value))
        };
        self.0.push('\n');
    }

    /// The samples of a histogram; `before` and `after` are the labels that stand before and
    /// behind `le` in the order of names, with their commas.
    pub(super) fn histogram(&mut self, name: &str, before: &str, after: &str, h: &Histogram) {
        let mut sum = 0;
        for (edge, count) in h.names.iter().zip(&h.counts) {
            sum += count;
            self.0.extend([name, "_bucket{", before, "le=\"", edge, "\"", after, "}"]);
            self.value(sum as f64);
        }
        let bare = match (before.trim_end_matches(','), after) {
            (b, "") => b.to_owned(),
            ("", a) => a.trim_start_matches(',').to_owned(),
            (b, a) => format!("{b}{a}"),
        };
        self.sample(&format!("{name}_count"), &bare, sum as f64);
        self.sample(&format!("{name}_sum"), &bare, h.sum);
    }
}

/// Counts by upper bound.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    edges: Vec<f64>,
    /// The bounds as the page writes them, infinity included.
    names: Vec<String>,
    /// Not cumulative; the last one is beyond all bounds.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// An empty histogram; the bound at infinity is added.
    pub(super) fn new(edges: &[f64]) -> Histogram {
        let names = edges.iter().map(|e| number(*e)).chain(["+Inf".into()]).collect();
        Histogram { edges: edges.to_vec(), names, counts: vec![0; edges.len() + 1], sum: 0.0 }
    }

    /// Sum of all observations.
    pub(super) fn sum(&self) -> f64 {
        self.sum
    }

    /// Number of observations.
    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Counts one observation.
    pub(super) fn observe(&mut self, value: f64) {
        let at = self.edges.partition_point(|edge| *edge < value);
        self.counts[at] += 1;
        self.sum += value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_library_does() {
        for (value, want) in [
            (0.0, "0.0"),
            (1.0, "1.0"),
            (168_832.0, "168832.0"),
            (1_135_561.0, "1.135561e+06"),
            (1_796_093_353.938_206_4, "1.7960933539382064e+09"),
            (4_819_922_944.0, "4.819922944e+09"),
            (0.888_888_888_888_888_8, "0.8888888888888888"),
            (0.000_012, "1.2e-05"),
            (f64::INFINITY, "+Inf"),
            (f64::NAN, "NaN"),
            (2_000_000.0, "2e+06"),
        ] {
            assert_eq!(number(value), want);
        }
    }

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let mut h = Histogram::new(&[0.1, 1.0]);
        for v in [0.05, 0.1, 0.5, 1.0, 7.0] {
            h.observe(v);
        }
        let mut page = Page::default();
        page.histogram("x", "a=\"1\",", ",m=\"2\"", &h);
        assert_eq!(
            page.0,
            "x_bucket{a=\"1\",le=\"0.1\",m=\"2\"} 2.0\nx_bucket{a=\"1\",le=\"1.0\",m=\"2\"} 4.0\n\
             x_bucket{a=\"1\",le=\"+Inf\",m=\"2\"} 5.0\nx_count{a=\"1\",m=\"2\"} 5.0\nx_sum{a=\"1\",m=\"2\"} 8.65\n"
        );
    }
}
