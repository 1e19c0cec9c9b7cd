//! The recorded series as a unit test of `promtool test rules`: anybody can prove with it that each
//! alert fires when we say it does.
//!
//! A test holds what one production Prometheus would have stored: of every series that a rule reads
//! one sample a scrape interval, `_` between them and `stale` where a scrape failed or lacked it. Its
//! time 0 lies one evaluation before the first. Every sample stands one tick before the evaluation that
//! sees it first, so that none lies on the edge of a window, where versions of Prometheus differ.
//!
//! What is expected comes from our own evaluation of these very series, by the rules as they are
//! printed: no view that begins with a step, no count of observations, the look-back of production.
//! How that compares with what the verdict says is written into the file's comments.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use crate::model::sample::{Labels, NAME};
use crate::model::units::prometheus_duration;
use crate::model::verdict::Verdict;
use crate::promql::{Engine, Expr, parse};
use crate::series::{Grid, Store, View, is_stale};

use super::file::{Alert, Group, Record, Rule, RuleSet};
use super::judge::{Judge, alert_labels};
use super::overlay::{self, Recorder};
use super::print::{group_names, quoted};
use super::selectors::{matches, reads};
use super::state::{Became, Machine};
use super::template;

/// A test file, and where it does not show what the verdict says.
pub struct Proof {
    /// The file.
    pub tests: String,
    /// A sentence for every alert that the test shows at another time than the verdict.
    pub differs: Vec<String>,
}

/// The test of a recording's rules as [`super::print::yaml`] prints them with its constants;
/// `rule_file` is where they lie, as seen from the test.
pub fn tests(judge: &Judge<'_>, verdict: &Verdict, rule_file: &str) -> Proof {
    let set = as_printed(judge);
    let mut proof = Proof { tests: String::new(), differs: Vec::new() };
    let every = judge.timing.evaluation_ms();
    let out = &mut proof.tests;
    let _ =
        writeln!(out, "# promtool test rules THIS_FILE; {rule_file} holds what `plimsoll rules RESULT_DIR` prints.");
    let _ = writeln!(out, "rule_files: [{}]", quoted(rule_file));
    let _ = writeln!(out, "evaluation_interval: {}", time(every));
    let order: Vec<String> = group_names(&set).map(|n| quoted(&n)).collect();
    let _ = writeln!(out, "group_eval_order: [{}]", order.join(", "));
    let _ = writeln!(out, "tests:");
    whole_run(judge, &set, verdict, &mut proof);
    first_alert(judge, &set, verdict, &mut proof);
    proof
}

/// The rules with the constants as rules of their own, since production has no facts file.
fn as_printed(judge: &Judge<'_>) -> RuleSet {
    let record = |(name, value): (String, f64)| {
        let expr = parse(&format!("vector({value})")).ok()?;
        Some(Rule::Record(Record { name, expr, labels: BTreeMap::new() }))
    };
    let rules: Vec<Rule> = judge.constants().into_iter().filter_map(record).collect();
    let constants = Group { file: String::new(), name: super::print::CONSTANTS.into(), interval: None, rules };
    let groups = Some(constants).filter(|g| !g.rules.is_empty()).into_iter();
    RuleSet { groups: groups.chain(judge.rules.groups.iter().cloned()).collect(), facts: Vec::new(), time_scale: 1.0 }
}

/// As deployed: the whole run, on production's grid at phase 0.
fn whole_run(judge: &Judge<'_>, set: &RuleSet, verdict: &Verdict, proof: &mut Proof) {
    let from_ms = judge.recording.header.epoch_unix_ms;
    let until_ms = judge.recording.unix_ms(judge.recording.last);
    let window = Window::new(judge, i64::MIN + judge.timing.scrape_ms(), from_ms, until_ms);
    let shown = window.play(judge, set);
    let mut says = vec!["the whole run, as one production Prometheus would have seen it".to_owned()];
    for paged in &verdict.as_deployed {
        let there = shown.first_firing(&paged.alert).map(|ms| judge.seconds(window.unix_ms(ms)));
        says.push(format!("{} would have paged at {} s", paged.alert, paged.fired_at_s));
        if there.is_none_or(|s| (s - paged.fired_at_s).abs() > 1e-3) {
            let there = there.map_or_else(|| "never".into(), |s| format!("at {s} s"));
            let differs =
                format!("{} fires {there} in the test, and by the verdict at {} s", paged.alert, paged.fired_at_s);
            says.push(format!("({differs}: the test has whole scrape intervals only)"));
            proof.differs.push(differs);
        }
    }
    shown.write(&mut proof.tests, &window, &says, "as deployed");
}

/// The step that the answer rests on, at the phase in which its alert fired first.
fn first_alert(judge: &Judge<'_>, set: &RuleSet, verdict: &Verdict, proof: &mut Proof) {
    let Some(first) = &verdict.first_alert else { return };
    let Some(span) = judge.recording.steps.iter().find(|s| s.step == first.step) else { return };
    let (from_ms, fired_ms) = (judge.recording.unix_ms(span.measured.start), judge.unix_ms(first.fired_at_s));
    let phase_ms = (fired_ms - judge.timing.poll_ms() - from_ms).rem_euclid(judge.timing.scrape_ms());
    let window = Window::new(judge, from_ms, from_ms + phase_ms, fired_ms);
    let shown = window.play(judge, set);
    let says = vec![
        format!(
            "step {} ({} streams) alone: {} fires at {} s",
            first.step, first.concurrency, first.alert, first.fired_at_s
        ),
        format!("which is {} in this test", time(window.test_ms(fired_ms))),
    ];
    let there = shown.last_firing(&first.alert);
    if there.is_none_or(|at| (window.unix_ms(at) - fired_ms).abs() > 1) {
        proof.differs.push(format!("{} does not fire in the test of step {}", first.alert, first.step));
    }
    shown.write(&mut proof.tests, &window, &says, &format!("step {}", first.step));
}

/// A stretch of the recording as production's grid shows it, and the times of its test.
struct Window<'a> {
    view: View<'a>,
    /// First scrape of the grid, Unix ms.
    grid_ms: i64,
    scrape_ms: i64,
    evaluation_ms: i64,
    /// Spacing of the test's samples, which divides both intervals, ms.
    tick_ms: i64,
    /// The instant that is 0 in the test, Unix ms.
    origin_ms: i64,
    until_ms: i64,
}

impl<'a> Window<'a> {
    /// What a Prometheus that scrapes at `grid_ms` and on saw since `from_ms`.
    fn new(judge: &Judge<'a>, from_ms: i64, grid_ms: i64, until_ms: i64) -> Window<'a> {
        let (scrape_ms, evaluation_ms) = (judge.timing.scrape_ms(), judge.timing.evaluation_ms());
        let grid = Grid { interval_ms: scrape_ms, phase_ms: grid_ms };
        let common = divisor(scrape_ms, evaluation_ms);
        let poll_ms = judge.timing.poll_ms();
        // The spacing of our own scrapes, or the next shorter one that divides the intervals.
        let tick_ms = (1..=poll_ms.min(common)).rev().find(|t| common % t == 0).unwrap_or(1);
        Window {
            view: View::on_grid(judge.store, from_ms, grid),
            grid_ms,
            scrape_ms,
            evaluation_ms,
            tick_ms,
            origin_ms: grid_ms + poll_ms - evaluation_ms,
            until_ms,
        }
    }

    /// Time in the test of an instant of the run, ms.
    fn test_ms(&self, unix_ms: i64) -> i64 {
        unix_ms - self.origin_ms
    }

    fn unix_ms(&self, test_ms: i64) -> i64 {
        test_ms + self.origin_ms
    }

    /// The samples of every series that `exprs` read: one at each scrape, at its time in the test.
    fn samples(&self, exprs: &[&Expr]) -> Store {
        let reads: Vec<_> = exprs.iter().flat_map(|e| reads(e)).collect();
        let mut out = Store::new();
        for mut layer in self.view.stores() {
            for series in layer.store.all().filter(|s| reads.iter().any(|r| matches(r.selector, &s.labels))) {
                for k in 0.. {
                    let due = self.grid_ms + k * self.scrape_ms;
                    if due > self.until_ms {
                        break;
                    }
                    // Production stores what the scrape of this interval found, and nothing if there was none.
                    if let Some((_, value)) = layer.newest(series, due, due + self.scrape_ms - 1) {
                        out.push(&series.labels, self.evaluation_ms - self.tick_ms + k * self.scrape_ms, value);
                    }
                }
            }
        }
        out
    }

    /// Evaluates the rules over the test's series as a Prometheus does, from 0 on.
    fn play(&self, judge: &Judge<'_>, set: &RuleSet) -> Shown {
        let rules = || set.groups.iter().flat_map(|g| &g.rules);
        let exprs: Vec<&Expr> = rules()
            .map(|r| match r {
                Rule::Record(r) => &r.expr,
                Rule::Alert(a) => &a.expr,
            })
            .collect();
        let samples = self.samples(&exprs);
        let engine =
            Engine { subquery_step_ms: self.evaluation_ms, reading: judge.engine.reading, ..Engine::default() };
        let every_record: BTreeSet<&str> = set.records().map(|r| r.name.as_str()).collect();
        let (mut recorder, mut recorded) = (Recorder::new(set, &every_record), Store::new());
        let alerts: Vec<&Alert> = set.alerts().collect();
        let mut machines: Vec<(Machine, BTreeMap<Labels, Labels>)> =
            alerts.iter().map(|_| Default::default()).collect();
        let asks_a_server =
            |a: &&&Alert| a.labels.values().chain(a.annotations.values()).any(|t| !template::is_plain(t));
        let untold = alerts.iter().filter(asks_a_server).map(|a| a.name.clone()).collect();
        let mut shown = Shown { checks: BTreeMap::new(), begun: Vec::new(), untold, store: Store::new() };
        let view = View::whole(&samples);
        for at_ms in (0..=self.test_ms(self.until_ms)).step_by(usize::try_from(self.evaluation_ms).unwrap_or(1)) {
            recorder.record(&engine, &view, &mut recorded, at_ms);
            let here = view.clone().with_overlay(&recorded);
            let mut firing: BTreeMap<&str, Vec<Fired>> = BTreeMap::new();
            for (alert, (machine, origins)) in alerts.iter().zip(&mut machines) {
                let mut present = Vec::new();
                for e in overlay::elements(engine.instant(&alert.expr, &here, at_ms).ok()) {
                    let labels = alert_labels(alert, &e.labels, e.value);
                    origins.insert(labels.clone(), e.labels);
                    present.push((labels, e.value));
                }
                for change in machine.step(at_ms, &present, alert.hold, alert.keep_firing) {
                    if change.became == Became::Pending && !alert.hold.is_zero() {
                        shown.begun.push((at_ms, alert.name.clone(), change.labels));
                    }
                }
                let live = machine.live().iter().filter(|(_, l)| l.fired_at_ms.is_some());
                firing.entry(&alert.name).or_default().extend(live.map(|(labels, live)| Fired {
                    annotations: annotations(alert, origins.get(labels), live.value),
                    labels: labels.clone(),
                }));
            }
            for (alert, fired) in firing {
                shown.checks.entry(alert.to_owned()).or_default().push((at_ms, fired));
            }
        }
        shown.store = samples;
        shown
    }
}

/// What an alert's annotations read, filled in.
fn annotations(alert: &Alert, of: Option<&Labels>, value: f64) -> BTreeMap<String, String> {
    let none = Labels::default();
    let render = |text: &String| template::render(text, of.unwrap_or(&none), value);
    alert.annotations.iter().map(|(key, text)| (key.clone(), render(text))).collect()
}

/// An alert that fires, as promtool compares it.
#[derive(Clone, Debug, PartialEq)]
struct Fired {
    labels: Labels,
    annotations: BTreeMap<String, String>,
}

/// What a test shows.
struct Shown {
    /// Of each alert what fired at every evaluation, by time in the test.
    checks: BTreeMap<String, Vec<(i64, Vec<Fired>)>>,
    /// When an alert with a `for` became pending.
    begun: Vec<(i64, String, Labels)>,
    /// Alerts whose templates ask a server, so that nobody can say here what they read.
    untold: BTreeSet<String>,
    /// The series of the test.
    store: Store,
}

impl Shown {
    fn first_firing(&self, alert: &str) -> Option<i64> {
        self.checks.get(alert)?.iter().find(|(_, fired)| !fired.is_empty()).map(|(at, _)| *at)
    }

    /// The last evaluation, if the alert fires at it.
    fn last_firing(&self, alert: &str) -> Option<i64> {
        self.checks.get(alert)?.last().filter(|(_, fired)| !fired.is_empty()).map(|(at, _)| *at)
    }

    fn write(&self, out: &mut String, window: &Window<'_>, says: &[String], name: &str) {
        for line in says {
            let _ = writeln!(out, "  # {line}");
        }
        let _ = writeln!(out, "  - name: {}\n    interval: {}\n    input_series:", quoted(name), time(window.tick_ms));
        for series in self.store.all() {
            let values = notation(self.store.samples(series), window.tick_ms);
            let _ = writeln!(
                out,
                "      - series: {}\n        values: {}",
                quoted(&selector(&series.labels)),
                quoted(&values)
            );
        }
        let _ = writeln!(out, "    alert_rule_test:");
        for alert in &self.untold {
            let _ = writeln!(out, "      # {alert} is left out: its templates ask the server.");
        }
        for (alert, evaluations) in self.checks.iter().filter(|(alert, _)| !self.untold.contains(*alert)) {
            for at in turns(evaluations) {
                write_check(out, alert, evaluations[at].0, &evaluations[at].1);
            }
        }
        if !self.begun.is_empty() {
            let _ = writeln!(out, "    promql_expr_test:");
        }
        for (at, alert, labels) in self.begun.iter().filter(|(_, alert, _)| !self.untold.contains(alert)) {
            let ours = [("alertname", alert.as_str()), ("alertstate", "pending"), (NAME, "ALERTS")];
            let labels = Labels::new(labels.iter().chain(ours));
            let _ = writeln!(out, "      - expr: {}", quoted(&selector(&labels)));
            let _ = writeln!(out, "        eval_time: {}", time(*at));
            let _ = writeln!(
                out,
                "        exp_samples:\n          - labels: {}\n            value: 1",
                quoted(&selector(&labels))
            );
        }
    }
}

/// The evaluations worth a check: where another set of alerts fires than before, the one before that,
/// and the last. What fires all along may change its value at each.
fn turns(evaluations: &[(i64, Vec<Fired>)]) -> BTreeSet<usize> {
    let sets = |i: usize| evaluations[i].1.iter().map(|f| &f.labels);
    let mut out: BTreeSet<usize> =
        (1..evaluations.len()).filter(|&i| !sets(i).eq(sets(i - 1))).flat_map(|i| [i - 1, i]).collect();
    out.extend(evaluations.len().checked_sub(1));
    out
}

fn write_check(out: &mut String, alert: &str, at_ms: i64, fired: &[Fired]) {
    let _ = writeln!(out, "      - eval_time: {}\n        alertname: {}", time(at_ms), quoted(alert));
    if fired.is_empty() {
        let _ = writeln!(out, "        exp_alerts: []");
        return;
    }
    let _ = writeln!(out, "        exp_alerts:");
    for f in fired {
        let mut key = "          - ";
        for (what, pairs) in [
            ("exp_labels", f.labels.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect()),
            ("exp_annotations", f.annotations.clone()),
        ] as [(&str, BTreeMap<String, String>); 2]
        {
            if pairs.is_empty() {
                let _ = writeln!(out, "{key}{what}: {{}}");
            } else {
                let _ = writeln!(out, "{key}{what}:");
            }
            for (n, v) in pairs {
                let _ = writeln!(out, "              {}: {}", quoted(&n), quoted(&v));
            }
            key = "            ";
        }
    }
}

/// `name{a="b"}` as Prometheus reads it.
fn selector(labels: &Labels) -> String {
    let mut out = labels.name().to_owned();
    for (i, (name, value)) in labels.iter().filter(|(n, _)| *n != NAME).enumerate() {
        out.push(if i == 0 { '{' } else { ',' });
        let _ = write!(out, "{name}=\"");
        for c in value.chars() {
            match c {
                '\\' => out += "\\\\",
                '"' => out += "\\\"",
                '\n' => out += "\\n",
                c => out.push(c),
            }
        }
        out.push('"');
    }
    if out.len() > labels.name().len() { out + "}" } else { out }
}

/// Samples in the notation of promtool: `_` and `_xN` for ticks without one, `VxN` for repeats.
fn notation(samples: impl Iterator<Item = (i64, f64)>, tick_ms: i64) -> String {
    let mut out = String::new();
    let mut next = 0;
    for (at_ms, value) in samples {
        let tick = at_ms / tick_ms;
        match tick - next {
            0 => {}
            1 => out += "_ ",
            gap => {
                let _ = write!(out, "_x{gap} ");
            }
        }
        next = tick + 1;
        let _ = match value {
            v if is_stale(v) => write!(out, "stale "),
            v if v.is_nan() => write!(out, "NaN "),
            v if v.is_infinite() => write!(out, "{}Inf ", if v > 0.0 { '+' } else { '-' }),
            v => write!(out, "{v} "),
        };
    }
    out.truncate(out.trim_end().len());
    out
}

fn divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a.max(1) } else { divisor(b, a % b) }
}

fn time(ms: i64) -> String {
    prometheus_duration(Duration::from_millis(ms.max(0).unsigned_abs()))
}
