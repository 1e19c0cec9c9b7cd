//! The part of Go's templates that alert annotations use.
//!
//! Values and labels (`{{ $value }}`, `{{ $labels.x }}`, `$externalLabels`, of which there are none here), variables, pipes,
//! `if`, `with`, `range`, and every function that needs nothing but its arguments: `printf`, the `humanize` family,
//! `title`, `toUpper`, `reReplaceAll`, comparisons, and so on. What needs a server behind it (`query` and
//! what is made of its result) is valid in Prometheus, so it loads, and stays as it is written; so does what Prometheus
//! would show an error for.

use std::collections::BTreeMap;

use crate::model::sample::{Labels, NAME};

mod functions;
mod item;
mod numbers;
mod parse;
mod run;
mod tokens;

use item::Item;

/// Fills in a template for one alert. What cannot be filled in stays as it is written.
pub fn render(text: &str, labels: &Labels, value: f64) -> String {
    if !text.contains("{{") {
        return text.to_owned();
    }
    match parse::parse(text) {
        Ok(nodes) => run::Run::new(map(labels), value).all(&nodes).text,
        Err(_) => text.to_owned(),
    }
}

/// Whether Prometheus would take the template: unclosed braces, unknown functions and variables are errors.
///
/// # Errors
/// Says what is wrong, so that it can follow "has a template that".
pub fn check(text: &str) -> Result<(), String> {
    parse::parse(text).map(|_| ())
}

/// Whether every action of a template can be filled in here, and not only by a server.
pub fn is_plain(text: &str) -> bool {
    parse::parse(text).is_ok_and(|nodes| run::Run::new(BTreeMap::new(), 1.0).all(&nodes).whole)
}

fn map(labels: &Labels) -> BTreeMap<String, String> {
    labels.iter().filter(|(n, _)| *n != NAME).map(|(n, v)| (n.to_owned(), v.to_owned())).collect()
}

/// Why an action is not filled in.
enum Problem {
    /// It asks a server.
    NeedsServer,
    /// Prometheus would show an error.
    Fails,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_fill_in_as_go_does() {
        let labels = Labels::new([("engine", "0"), ("model_name", "tiny")]);
        let cases = [
            ("{{ $value }} waiting", 4.0, "4 waiting"),
            ("{{$value}}", 0.083_333_333_333_333_33, "0.08333333333333333"),
            ("{{ $value }}", 1e-7, "1e-07"),
            ("{{ $labels.engine }}/{{ .Labels.model_name }}/{{ $labels.none }}", 0.0, "0/tiny/"),
            ("{{ $value | humanize }}", 12_345.0, "12.35k"),
            ("{{ humanize $value }}", 0.001_5, "1.5m"),
            ("{{ $value | humanize1024 }}", 2_048.0, "2ki"),
            ("{{ $value | humanizePercentage }}", 0.956_7, "95.67%"),
            ("{{ $value | humanizeDuration }}", 3_725.4, "1h 2m 5s"),
            ("{{ $value | humanizeDuration }}", 1.234_56, "1.235s"),
            ("{{ $value | humanizeDuration }}", 0.25, "250ms"),
            (r#"{{ printf "%.2f s of %s" $value $labels.model_name }}"#, 1.0 / 3.0, "0.33 s of tiny"),
            (r#"{{ $value | printf "%.1f%%" }}"#, 99.0, "99.0%"),
            ("{{ $labels.model_name | toUpper }}", 0.0, "TINY"),
            ("{{ $value }}", f64::INFINITY, "+Inf"),
            ("{{ with query \"up\" }}x", 0.0, "{{ with query \"up\" }}x"),
            ("no template", 0.0, "no template"),
            ("{{ $labels.model_name | title }}", 0.0, "Tiny"),
            ("{{ title \"small-pool of_x.y 3rd\" }}", 0.0, "Small-Pool Of_x.Y 3rd"),
            ("{{ $value | humanizeTimestamp }}", 1_767_225_600.0, "2026-01-01 00:00:00 +0000 UTC"),
            ("{{ humanizeTimestamp $value }}", 951_782_400.25, "2000-02-29 00:00:00.25 +0000 UTC"),
            ("{{ humanizeTimestamp $value }}", f64::NAN, "NaN"),
            ("{{ humanizeTimestamp $value }}", 1e300, "{{ humanizeTimestamp $value }}"),
            ("a {{- \" b\" -}} c{{/* never seen */}}", 0.0, "a bc"),
            ("{{ if gt $value 3.5 }}many{{ else if gt $value 1.0 }}some{{ else }}few{{ end }}", 2.0, "some"),
            ("{{ if and $labels.engine (ne $labels.engine \"1\") }}not 1{{ end }}", 0.0, "not 1"),
            // Go compares no whole number with a broken one: Prometheus shows an error there.
            ("{{ if gt $value 3 }}x{{ end }}", 4.0, "{{ if gt $value 3 }}x{{ end }}"),
            ("{{ with $labels.engine }}engine {{ . }}{{ else }}none{{ end }}", 0.0, "engine 0"),
            ("{{ with $labels.none }}engine {{ . }}{{ else }}none{{ end }}", 0.0, "none"),
            ("{{ range $k, $v := $labels }}{{ $k }}={{ $v }};{{ end }}", 0.0, "engine=0;model_name=tiny;"),
            ("{{ range .Labels }}<{{ . }}>{{ end }}", 0.0, "<0><tiny>"),
            ("{{ $x := $labels.engine }}{{ if true }}{{ $x = \"7\" }}{{ end }}{{ $x }}", 0.0, "7"),
            (
                "{{ $labels }} {{ index $labels \"engine\" }} {{ len $labels }}",
                0.0,
                "map[engine:0 model_name:tiny] 0 2",
            ),
            ("{{ $externalLabels.cluster }}|{{ .ExternalLabels }}", 0.0, "|map[]"),
            ("{{ reReplaceAll \"(.)i\" \"${1}I\" $labels.model_name }} {{ match \"^t\" \"tiny\" }}", 0.0, "tIny true"),
            (
                "{{ \"a.b.c:9090\" | stripDomain }} {{ stripPort \"a.b:9090\" }} {{ stripDomain \"10.0.0.1:1\" }}",
                0.0,
                "a:9090 a.b 10.0.0.1:1",
            ),
            ("{{ parseDuration \"1m30s\" }}", 0.0, "90"),
            ("{{ printf \"%s=%v\" \"a\" 3 }} {{ print 1 2 \"x\" 3 }}", 0.0, "a=3 1 2x3"),
            ("{{ \"a\\n\\\"b\\\"\" }}", 0.0, "a\n\"b\""),
            (
                "{{ $value | humanize }} of {{ query \"up\" | first | value }}",
                5.0,
                "5 of {{ query \"up\" | first | value }}",
            ),
            ("{{ if query \"up\" }}{{ $value }}{{ end }}", 0.0, "{{ if query \"up\" }}{{ $value }}{{ end }}"),
        ];
        for (text, value, want) in cases {
            assert_eq!(render(text, &labels, value), want, "{text}");
        }
    }

    #[test]
    fn what_prometheus_refuses_is_refused() {
        assert!(check("{{ $value").is_err());
        assert!(check("{{ humanise $value }}").unwrap_err().contains("humanise"));
        assert!(check("{{ range query \"up\" }}{{ . }}{{ end }}").is_ok());
        assert!(check("{{ $value | humanize }} {{ $labels.x }}").is_ok());
        for (text, says) in [
            ("{{ if $value }}x", "`if`"),
            ("{{ end }}", "`end`"),
            ("{{ else }}", "`else`"),
            ("{{ $vaule }}", "$vaule"),
            ("{{ \"x }}", "quote"),
            ("{{ ( $value }}", ")"),
            ("{{ }}", "empty"),
            ("{{ if }}x{{ end }}", "empty"),
            ("{{ $value ] }}", "]"),
        ] {
            assert!(check(text).is_err_and(|e| e.contains(says)), "{text}: {:?}", check(text));
        }
    }
}
