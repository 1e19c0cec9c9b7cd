//! The rules again as YAML: what judged is what is deployed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use crate::model::units::prometheus_duration;

use super::file::{Group, Rule, RuleSet};

/// The rule set as a Prometheus rule file, with limits and times filled in. `constants` are series
/// that production does not have, such as the pool's size out of a label: each becomes a recording
/// rule in a group of its own, ahead of those that read it.
pub fn yaml(set: &RuleSet, constants: &BTreeMap<String, f64>) -> String {
    let mut out = String::from("groups:\n");
    if !constants.is_empty() {
        out += "  # Numbers that PromQL cannot read off the server, as a run met them.\n";
        put(&mut out, format_args!("  - name: {CONSTANTS}\n    rules:\n"));
        for (name, value) in constants {
            put(&mut out, format_args!("      - record: {}\n        expr: vector({value})\n", quoted(name)));
        }
    }
    for (group, name) in set.groups.iter().zip(group_names(set)) {
        print_group(&mut out, group, &name);
    }
    out
}

/// Name of the group of the constants.
pub(super) const CONSTANTS: &str = "plimsoll_constants";

/// The names of the groups in order. Two files may hold groups of one name, which one file may not:
/// the later one then carries the name of its file.
pub(super) fn group_names(set: &RuleSet) -> impl Iterator<Item = String> + '_ {
    let mut seen = BTreeSet::new();
    set.groups.iter().map(move |group| {
        let mut name = group.name.clone();
        while !seen.insert(name.clone()) {
            name = format!("{name} ({})", group.file);
        }
        name
    })
}

fn print_group(out: &mut String, group: &Group, name: &str) {
    put(out, format_args!("  - name: {}\n", quoted(name)));
    if let Some(interval) = group.interval {
        put(out, format_args!("    interval: {}\n", prometheus_duration(interval)));
    }
    if group.rules.is_empty() {
        out.push_str("    rules: []\n");
        return;
    }
    out.push_str("    rules:\n");
    for rule in &group.rules {
        match rule {
            Rule::Record(r) => {
                put(out, format_args!("      - record: {}\n", quoted(&r.name)));
                put(out, format_args!("        expr: {}\n", quoted(&r.expr.to_string())));
                print_map(out, "labels", &r.labels);
            }
            Rule::Alert(a) => {
                put(out, format_args!("      - alert: {}\n", quoted(&a.name)));
                put(out, format_args!("        expr: {}\n", quoted(&a.expr.to_string())));
                print_time(out, "for", a.hold);
                print_time(out, "keep_firing_for", a.keep_firing);
                print_map(out, "labels", &a.labels);
                print_map(out, "annotations", &a.annotations);
            }
        }
    }
}

fn print_time(out: &mut String, key: &str, d: Duration) {
    if !d.is_zero() {
        put(out, format_args!("        {key}: {}\n", prometheus_duration(d)));
    }
}

fn print_map(out: &mut String, key: &str, map: &BTreeMap<String, String>) {
    if map.is_empty() {
        return;
    }
    put(out, format_args!("        {key}:\n"));
    for (k, v) in map {
        put(out, format_args!("          {k}: {}\n", quoted(v)));
    }
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing into a String cannot fail");
}

/// A scalar as YAML reads it back: bare where that is plain, else in double quotes.
pub(super) fn quoted(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-'))
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "true" | "false" | "yes" | "no" | "on" | "off" | "null" | "y" | "n"
        );
    if plain {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out += "\\\"",
            '\\' => out += "\\\\",
            '\n' => out += "\\n",
            '\t' => out += "\\t",
            c if c.is_control() => put(&mut out, format_args!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::recording::RuleFile;
    use crate::rules::{Limits, builtin};

    #[test]
    fn what_is_printed_loads_as_the_same_rules() {
        let limits = Limits { ttft_p99_s: 0.5, ..Limits::default() };
        let set = RuleSet::load(&builtin::files("vllm", true), &limits, 1.0).unwrap();
        let text = yaml(&set, &BTreeMap::new());
        let again =
            RuleSet::load(&[RuleFile { name: "printed.yml".into(), text: text.clone() }], &limits, 1.0).unwrap();
        assert_eq!(yaml(&again, &BTreeMap::new()), text);
        assert_eq!(again.find("TimeToFirstTokenP99").unwrap().limit(), Some(0.5));
        assert_eq!(again.pairs().count(), set.pairs().count());
    }

    #[test]
    fn constants_come_first() {
        let set = RuleSet::load(&[], &Limits::default(), 1.0).unwrap();
        let text = yaml(&set, &BTreeMap::from([("plimsoll:kv_blocks".to_owned(), 63.0)]));
        assert!(text.contains("- record: \"plimsoll:kv_blocks\"\n        expr: vector(63)\n"), "{text}");
    }
}
