//! Reads Prometheus rule files: plain, or wrapped as a Kubernetes `PrometheusRule`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::recording::RuleFile;
use crate::model::sample::NAME;
use crate::model::units::parse_duration;
use crate::promql::{Expr, Type};

use super::error::RuleError;
use super::facts::{self, LabelFact};
use super::rewrite::{self, Limits};
use super::template;
use super::wire::{self, GroupWire, RuleWire};

/// The rules of a run: parsed, with the scenario's limits and time scale filled in.
#[derive(Clone, Debug)]
pub struct RuleSet {
    /// Groups in the order of the files.
    pub groups: Vec<Group>,
    /// Numbers that hide in labels, and what they become.
    pub facts: Vec<LabelFact>,
    /// Factor that was applied to every `for`, range and interval; 1 in production.
    pub time_scale: f64,
}

/// A group: its rules are evaluated in order.
#[derive(Clone, Debug)]
pub struct Group {
    /// The file that it stands in.
    pub file: String,
    /// Its name.
    pub name: String,
    /// Its own evaluation interval; `None` takes the global one.
    pub interval: Option<Duration>,
    /// Its rules.
    pub rules: Vec<Rule>,
}

/// One rule.
#[derive(Clone, Debug)]
pub enum Rule {
    /// A recording rule.
    Record(Record),
    /// An alerting rule.
    Alert(Alert),
}

/// A recording rule.
#[derive(Clone, Debug)]
pub struct Record {
    /// The metric that it makes.
    pub name: String,
    /// What it is made of.
    pub expr: Expr,
    /// Labels that it adds.
    pub labels: BTreeMap<String, String>,
}

/// An alerting rule.
#[derive(Clone, Debug)]
pub struct Alert {
    /// Its name.
    pub name: String,
    /// Its condition.
    pub expr: Expr,
    /// How long the condition must hold before it fires.
    pub hold: Duration,
    /// How long it goes on firing after the condition went.
    pub keep_firing: Duration,
    /// Labels that it adds; their values are templates.
    pub labels: BTreeMap<String, String>,
    /// Annotations; their values are templates.
    pub annotations: BTreeMap<String, String>,
    /// The alerts that it explains, if it is a pair; `None` for an alert proper. `["*"]` explains all.
    pub explains: Option<Vec<String>>,
}

impl Alert {
    /// Whether the rule's metrics may be missing without standing in the way of a clean step
    /// (annotation `plimsoll_optional: "true"`).
    pub fn optional(&self) -> bool {
        self.annotations.get("plimsoll_optional").is_some_and(|v| v == "true")
    }

    /// Whether it is a pair that can explain `alert`.
    pub fn can_explain(&self, alert: &str) -> bool {
        self.explains.as_ref().is_some_and(|names| names.iter().any(|n| n == alert || n == "*"))
    }

    /// The number that the condition is held against, where it has the form `expr > number`.
    pub fn limit(&self) -> Option<f64> {
        rewrite::limit_of(&self.expr)
    }
}

impl RuleSet {
    /// Parses every file, fills in the limits, and scales times.
    ///
    /// Files whose name ends in `.toml` hold facts (see [`super::facts`]); all others are rule files.
    ///
    /// # Errors
    /// Names file, group, rule and expression, and the place where one can be told.
    pub fn load(files: &[RuleFile], limits: &Limits, time_scale: f64) -> Result<RuleSet, RuleError> {
        if !(time_scale > 0.0 && time_scale <= 1.0) {
            return Err(RuleError::Scale { met: time_scale });
        }
        let mut set = RuleSet { groups: Vec::new(), facts: Vec::new(), time_scale };
        for file in files {
            if file.name.ends_with(".toml") {
                set.facts.extend(facts::parse(&file.name, &file.text)?);
            } else {
                set.groups.extend(load_file(file, limits, time_scale)?);
            }
        }
        let mut seen = BTreeSet::new();
        for group in &set.groups {
            if !seen.insert((&group.file, &group.name)) {
                return Err(RuleError::TwiceGroup { file: group.file.clone(), group: group.name.clone() });
            }
        }
        Ok(set)
    }

    /// Alerts proper, in the order of the files.
    pub fn alerts(&self) -> impl Iterator<Item = &Alert> {
        self.all_alerts().filter(|a| a.explains.is_none())
    }

    /// Pair rules, in the order of the files.
    pub fn pairs(&self) -> impl Iterator<Item = &Alert> {
        self.all_alerts().filter(|a| a.explains.is_some())
    }

    /// The alert or pair called `name`; the first if several are.
    pub fn find(&self, name: &str) -> Option<&Alert> {
        self.all_alerts().find(|a| a.name == name)
    }

    /// Recording rules, in the order of the files.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.groups.iter().flat_map(|g| &g.rules).filter_map(|r| match r {
            Rule::Record(r) => Some(r),
            Rule::Alert(_) => None,
        })
    }

    fn all_alerts(&self) -> impl Iterator<Item = &Alert> {
        self.groups.iter().flat_map(|g| &g.rules).filter_map(|r| match r {
            Rule::Alert(a) => Some(a),
            Rule::Record(_) => None,
        })
    }
}

fn load_file(file: &RuleFile, limits: &Limits, scale: f64) -> Result<Vec<Group>, RuleError> {
    let groups = wire::read(file)?;
    // A file from which nothing can fire would judge everything clean.
    if groups.iter().all(|g| g.rules.is_empty()) {
        return Err(RuleError::Empty { file: file.name.clone() });
    }
    groups.into_iter().map(|g| load_group(file, g, limits, scale)).collect()
}

fn load_group(file: &RuleFile, wire: GroupWire, limits: &Limits, scale: f64) -> Result<Group, RuleError> {
    let place = Place { file, group: &wire.name, rule: "" };
    if wire.name.is_empty() {
        return Err(place.bad("stands in a group without a name"));
    }
    let interval = wire.interval.map(|t| place.duration("interval", &t)).transpose()?;
    let shared = wire::texts(wire.labels);
    let mut rules = Vec::new();
    for rule in wire.rules {
        rules.push(load_rule(file, &wire.name, &shared, rule, limits, scale)?);
    }
    Ok(Group { file: file.name.clone(), name: wire.name, interval: interval.map(|d| rewrite::scaled(d, scale)), rules })
}

fn load_rule(
    file: &RuleFile,
    group: &str,
    shared: &BTreeMap<String, String>,
    wire: RuleWire,
    limits: &Limits,
    scale: f64,
) -> Result<Rule, RuleError> {
    let name = match (&wire.alert, &wire.record) {
        (Some(n), None) | (None, Some(n)) => n.clone(),
        _ => {
            let met = wire.alert.or(wire.record).unwrap_or_default();
            return Err(Place { file, group, rule: &met }.bad("needs either `alert` or `record`, and not both"));
        }
    };
    let place = Place { file, group, rule: &name };
    if name.is_empty() {
        return Err(place.bad("has an empty name"));
    }
    let text = wire.expr.into_string();
    if text.trim().is_empty() {
        return Err(place.bad("has no `expr`"));
    }
    let wrong = |says: String| RuleError::Expr {
        file: file.name.as_str().into(),
        line: place.line_of(&text),
        group: group.into(),
        rule: name.as_str().into(),
        expr: short(&text).into(),
        says: says.into(),
    };
    let mut expr = crate::promql::parse(&text).map_err(|e| wrong(e.to_string()))?;
    // Prometheus finds that out at the first evaluation; here it would mean that the rule can never fire.
    let made = match expr.value_type() {
        Type::Matrix => Some("a range vector"),
        Type::Text => Some("a string"),
        Type::Scalar | Type::Vector => None,
    };
    if let Some(made) = made {
        return Err(wrong(format!("it makes {made}, expected an instant vector or a scalar")));
    }
    let mut labels = shared.clone();
    labels.extend(wire::texts(wire.labels));
    if let Some(name) = labels.keys().find(|n| n.is_empty() || *n == NAME) {
        return Err(place.bad(&format!("sets the label `{name}`, which no rule may")));
    }
    let annotations = wire::texts(wire.annotations);

    if wire.record.is_some() {
        if wire.hold.is_some() || wire.keep_firing_for.is_some() || !annotations.is_empty() {
            return Err(place.bad("is a recording rule, which takes neither `for`, `keep_firing_for` nor annotations"));
        }
        expr.scale_time(scale);
        return Ok(Rule::Record(Record { name, expr, labels }));
    }

    if let Some(key) = annotations.get("plimsoll_limit") {
        let limit = limits.named(key).ok_or_else(|| {
            place.bad(&format!("has plimsoll_limit `{key}`, expected one of {}", Limits::NAMES.join(", ")))
        })?;
        if !expr.set_limit(limit) {
            return Err(place.bad("has a plimsoll_limit, but its expression compares with no number on the right"));
        }
    }
    expr.scale_time(scale);
    for (key, value) in labels.iter().chain(&annotations) {
        template::check(value).map_err(|says| place.bad(&format!("has a template in `{key}` that {says}")))?;
    }
    let explains = (labels.get("plimsoll").map(String::as_str) == Some("explanation")).then(|| {
        let names = annotations.get("explains").map_or("", String::as_str);
        names.split(',').map(|n| n.trim().to_owned()).filter(|n| !n.is_empty()).collect()
    });
    let time = |key: &str, text: Option<String>| match text {
        Some(t) => place.duration(key, &t).map(|d| rewrite::scaled(d, scale)),
        None => Ok(Duration::ZERO),
    };
    Ok(Rule::Alert(Alert {
        hold: time("for", wire.hold)?,
        keep_firing: time("keep_firing_for", wire.keep_firing_for)?,
        name,
        expr,
        labels,
        annotations,
        explains,
    }))
}

/// An expression on one line, and not more of it than a line holds.
fn short(expr: &str) -> String {
    const MOST: usize = 200;
    let line = expr.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line,
    }
}

/// Where an error is.
#[derive(Clone, Copy)]
struct Place<'a> {
    file: &'a RuleFile,
    group: &'a str,
    rule: &'a str,
}

impl Place<'_> {
    fn bad(&self, says: &str) -> RuleError {
        RuleError::Rule {
            file: self.file.name.clone(),
            group: self.group.to_owned(),
            rule: self.rule.to_owned(),
            says: says.to_owned(),
        }
    }

    fn duration(&self, key: &str, text: &str) -> Result<Duration, RuleError> {
        // Prometheus also knows days, weeks and years, which a load step never needs.
        let weeks = text.trim().strip_suffix('w').and_then(|n| n.parse::<u64>().ok());
        let read = match weeks {
            Some(weeks) => {
                weeks.checked_mul(7 * 86_400).map(Duration::from_secs).ok_or_else(|| "it is too long".into())
            }
            None => parse_duration(text),
        };
        // Prometheus keeps times in signed nanoseconds, which end at 292 years.
        let short = |d: &Duration| i64::try_from(d.as_nanos()).is_ok();
        let read = read.and_then(|d| if short(&d) { Ok(d) } else { Err(format!("{text} is longer than 292 years")) });
        read.map_err(|says| self.bad(&format!("has a bad `{key}`: {says}")))
    }

    /// The line of the file on which the expression begins, found by its first words; counted from 1.
    fn line_of(&self, expr: &str) -> Option<usize> {
        let first = expr.trim().lines().next()?.trim();
        let hits: Vec<usize> =
            self.file.text.lines().enumerate().filter(|(_, l)| l.contains(first)).map(|(i, _)| i + 1).collect();
        match hits[..] {
            [one] => Some(one),
            // Several rules may share their first line: the right one follows the rule's own name.
            _ => {
                let named = self.file.text.lines().position(|l| {
                    let l = l.trim().trim_start_matches("- ");
                    l.strip_prefix("alert:")
                        .or_else(|| l.strip_prefix("record:"))
                        .is_some_and(|n| n.trim().trim_matches(['"', '\'']) == self.rule)
                })?;
                hits.into_iter().find(|line| *line > named)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<RuleSet, RuleError> {
        let file = RuleFile { name: "x.yml".into(), text: text.into() };
        RuleSet::load(&[file], &Limits::default(), 1.0)
    }

    const PLAIN: &str = "
groups:
  - name: g
    interval: 30s
    rules:
      - record: job:x:sum
        expr: sum(x)
      - alert: A
        expr: job:x:sum > 1
        for: 1m
        keep_firing_for: 5m
        labels: {severity: page, tier: 1}
        annotations: {summary: 'x is {{ $value }}'}
";

    #[test]
    fn a_plain_file_loads() {
        let set = load(PLAIN).unwrap();
        assert_eq!(set.groups[0].interval, Some(Duration::from_secs(30)));
        let alert = set.alerts().next().unwrap();
        assert_eq!((alert.hold.as_secs(), alert.keep_firing.as_secs()), (60, 300));
        assert_eq!(alert.labels["tier"], "1");
        assert_eq!(alert.limit(), Some(1.0));
        assert_eq!(set.records().next().unwrap().name, "job:x:sum");
    }

    #[test]
    fn a_kubernetes_file_loads() {
        let inner: String = PLAIN.lines().map(|l| format!("  {l}\n")).collect();
        let text = format!(
            "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata: {{name: x}}\nspec:\n{inner}"
        );
        assert_eq!(load(&text).unwrap().alerts().count(), 1);
    }

    #[test]
    fn limits_and_scale_are_filled_in() {
        let text = "
groups:
  - name: g
    rules:
      - alert: A
        expr: histogram_quantile(0.99, sum by (le) (rate(t_bucket[5m]))) > 1
        for: 1m
        annotations: {plimsoll_limit: slo.ttft_p99}
";
        let file = RuleFile { name: "x.yml".into(), text: text.into() };
        let limits = Limits { ttft_p99_s: 0.25, ..Limits::default() };
        let set = RuleSet::load(&[file], &limits, 0.1).unwrap();
        let a = set.find("A").unwrap();
        assert_eq!(a.hold, Duration::from_secs(6));
        assert_eq!(a.expr.to_string(), "histogram_quantile(0.99, sum by (le) (rate(t_bucket[30s]))) > 0.25");
    }

    #[test]
    fn errors_name_file_group_rule_and_place() {
        let cases = [
            ("groups: [{name: g, rules: [{alert: A, expr: 'x >'}]}]", "x.yml:1"),
            ("groups: [{name: g, rules: [{alert: A, expr: 'x > 1', fro: 1m}]}]", "fro"),
            ("groups: [{name: g, rules: [{expr: 'x > 1'}]}]", "alert"),
            ("groups: [{name: g, rules: [{alert: A, expr: 'x > 1', for: 1q}]}]", "1q"),
            ("groups: [{name: g, rules: [{alert: A, expr: 'x > 1', annotations: {s: '{{ nope $value }}'}}]}]", "nope"),
            ("groups: [{name: g, rules: [{alert: A, expr: 'x > 1', annotations: {plimsoll_limit: slo.x}}]}]", "slo.x"),
            ("groups: [{name: g, rules: [{alert: A, expr: x}]}, {name: g}]", "group g twice"),
            ("", "holds no rule"),
            ("groups:", "holds no rule"),
            ("groups: []", "holds no rule"),
            ("groups: [{name: g, rules: []}]", "holds no rule"),
            ("groups: [{name: '', rules: [{alert: A, expr: x}]}]", "without a name"),
            ("groups: [{name: g, rules: [{alert: '', expr: x}]}]", "empty name"),
            ("groups: [{name: g, rules: [{alert: A, expr: x, labels: {__name__: y}}]}]", "__name__"),
            ("groups: [{name: g, rules: [{alert: A, expr: x, for: 99999999999999999w}]}]", "too long"),
            ("groups: [{name: g, rules: [{alert: A, expr: x, for: 400y}]}]", "`for`"),
            ("groups: [{name: g, rules: [{alert: A, expr: 'x[5m]'}]}]", "a range vector, expected an instant vector"),
            ("groups: [{name: g, rules: [{record: a, expr: '\"s\"'}]}]", "a string, expected an instant vector"),
            ("groups: [{name: g, rules: [{alert: A, expr: }]}]", "no `expr`"),
            ("groups: [{name: g, rules: [{alert: A, expr: [x]}]}]", "expected a text, a number, or true or false"),
            ("groups: [{name: g, rules: [{alert: A, alert: B, expr: x}]}]", "duplicate mapping key: alert"),
            ("groups: [{name: g, rules: [{alert: A, expr: x}]}]\n---\ngroups: []", "several YAML documents"),
            ("kind: ConfigMap\ndata: {}", "Kubernetes `ConfigMap`"),
            ("kind: PrometheusRule\nmetadata: {name: x}", "missing field `spec`"),
            (
                "a: &a [1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n\
              d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\n",
                "250000",
            ),
            ("groups:\n\t- name: g", "tab"),
            ("42", "expected mapping"),
        ];
        for (text, part) in cases {
            let says = load(text).unwrap_err().to_string();
            assert!(says.contains("x.yml") && says.contains(part), "{text}: {says}");
            assert!(!says.contains('\n') && says.len() < 500, "{text}: {says}");
        }
        let long = format!("groups: [{{name: g, rules: [{{alert: A, expr: '{}'}}]}}]", ["x"; 5_000].join(" +\n  "));
        let says = load(&long).unwrap_err().to_string();
        assert!(says.contains("4096") && says.len() < 500 && !says.contains('\n'), "{says}");
    }

    #[test]
    fn files_come_as_people_write_them() {
        let crlf = PLAIN.replace('\n', "\r\n");
        let bom = format!("\u{feff}{PLAIN}");
        let marked = format!("---{PLAIN}...\n");
        let nulls = "groups: [{name: g, rules: }, {name: 1, limit: 0, labels: , rules: [{alert: 2, expr: 3, for: , \
                     labels: {a: , b: true}, annotations: }]}]";
        let anchors = "groups: [{name: g, rules: [&a {alert: A, expr: x, for: 1m}, {<<: *a, alert: B}]}]";
        for (text, alerts) in [(crlf.as_str(), 1), (&bom, 1), (&marked, 1), (nulls, 1), (anchors, 2)] {
            let set = load(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(set.alerts().count(), alerts, "{text}");
        }
        let labels = &load(nulls).unwrap();
        let labels = &labels.alerts().next().unwrap().labels;
        assert_eq!((labels["a"].as_str(), labels["b"].as_str()), ("", "true"));
    }
}
