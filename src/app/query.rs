//! `plimsoll query`: PromQL over a recording, as the real Prometheus would answer it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Map, Value as Json, json};

use crate::analyze;
use crate::cli::QueryArgs;
use crate::error::Refusal;
use crate::model::recording::Recording;
use crate::model::sample::{Labels, SourceKind};
use crate::model::time::Offset;
use crate::model::units::parse_duration;
use crate::promql::{self, Engine, Expr, Reading, Samples, Value};
use crate::rules::overlay::Recorder;
use crate::series::{ClientTargets, Store, View};

use super::judge::{self, Recorded};

/// Most evaluations of one range: what Prometheus allows as well.
const MOST_POINTS: u128 = 11_000;

/// Reads the recording, evaluates, and writes a table, or with `--json` what Prometheus' API answers.
///
/// # Errors
/// A [`Refusal`] for a bad expression, range or step, and whatever failed to be read or written.
pub fn query(args: &QueryArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let expr = parse(&args.expr)?;
    let range = args.range.as_deref().map(|range| Range::parse(range, args.step)).transpose()?;
    let recorded = judge::read(&args.dir, &[] as &[&Path])?;
    let recording = &recorded.recording;
    let reading = match args.prometheus {
        Some(2) => Reading::V2,
        Some(_) => Reading::V3,
        None => analyze::reading(&recorded.scenario),
    };
    let engine = Engine { reading, ..Engine::default() };
    let store = store(&recorded);
    let named = named(&recorded, &store, engine, &expr);
    let asked = Asked { recording, view: View::whole(&store).with_overlay(&named), engine };
    let answer = match range {
        Some(range) => Answer::Range(asked.range(&expr, range)?),
        None => {
            let at = args.at.map_or(recording.last, Offset::from_duration);
            Answer::Instant(at, asked.instant(&expr, at)?)
        }
    };
    let written = if args.json { answer.write_json(recording, out) } else { answer.write_table(recording, out) };
    written.context("the answer could not be written")
}

/// All series of a run, the client's with the targets of its scenario.
pub(super) fn store(recorded: &Recorded) -> Store {
    let slo = &recorded.scenario.slo;
    let targets = ClientTargets { ttft: slo.ttft_p99, gap: slo.itl_p99 };
    Store::from_recording_with(&recorded.recording, &targets)
}

/// What the run's recording rules had at each scrape, as far as the expression asks for it: so
/// that a neutral name such as `plimsoll:waiting` can be asked for too.
fn named(recorded: &Recorded, store: &Store, engine: Engine, expr: &Expr) -> Store {
    let mut needed: BTreeSet<&str> = expr.metric_names().into_iter().collect();
    // A rule can use only rules before it, so one walk backwards finds all that are needed.
    let records: Vec<_> = recorded.rules.records().collect();
    for record in records.iter().rev() {
        if needed.contains(record.name.as_str()) {
            needed.extend(record.expr.metric_names());
        }
    }
    let mut named = Store::new();
    let mut recorder = Recorder::new(&recorded.rules, &needed);
    if !recorder.is_empty() {
        let view = View::whole(store);
        for scrape in recorded.recording.scrapes.iter().filter(|s| s.source == SourceKind::Server) {
            recorder.record(&engine, &view, &mut named, recorded.recording.unix_ms(scrape.sent));
        }
    }
    named
}

/// The expression, or a refusal that shows the place.
fn parse(text: &str) -> Result<Expr, Refusal> {
    promql::parse(text).map_err(|e| {
        let hint = e.hint.clone().unwrap_or_default();
        Refusal::usage(format!("the expression `{text}` cannot be evaluated: {e}"), hint)
    })
}

/// When a range is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    from: Offset,
    to: Offset,
    step: Duration,
}

impl Range {
    /// Reads `0s..300s`.
    fn parse(text: &str, step: Duration) -> Result<Range, Refusal> {
        let bad = |why: String| Refusal::usage(format!("range `{text}`: {why}"), "write it as 0s..300s");
        let (from, to) = text.split_once("..").ok_or_else(|| bad("expected two times with .. between".into()))?;
        let time = |t: &str| parse_duration(t).map(Offset::from_duration).map_err(bad);
        let range = Range { from: time(from)?, to: time(to)?, step };
        if range.to < range.from {
            return Err(bad("its end lies before its start".into()));
        }
        if step < Duration::from_millis(1) {
            return Err(bad(format!("the step of {step:?} is too short, expected 1ms or more")));
        }
        if range.to.since(range.from).as_micros() / step.as_micros() >= MOST_POINTS {
            return Err(bad(format!("a step of {step:?} gives more than {MOST_POINTS} evaluations")));
        }
        Ok(range)
    }

    fn instants(self) -> impl Iterator<Item = Offset> {
        std::iter::successors(Some(self.from), move |at| Some(*at + self.step)).take_while(move |at| *at <= self.to)
    }
}

/// A recording that is asked.
struct Asked<'a> {
    recording: &'a Recording,
    view: View<'a>,
    engine: Engine,
}

impl Asked<'_> {
    /// The value of an expression at an offset of the run.
    fn instant(&self, expr: &Expr, at: Offset) -> Result<Value, Refusal> {
        let value = self.engine.instant(expr, &self.view, self.recording.unix_ms(at));
        value.map_err(|e| Refusal::usage(format!("the query failed at {at}: {e}"), ""))
    }

    /// The values over a range, each label set with the instants at which it was there.
    fn range(&self, expr: &Expr, range: Range) -> Result<Vec<Samples>, Refusal> {
        let mut series: BTreeMap<Labels, Vec<(i64, f64)>> = BTreeMap::new();
        for at in range.instants() {
            let value = self.instant(expr, at)?;
            if matches!(value, Value::Matrix(_) | Value::Text(_)) {
                let hint = "leave out --range to see a range of samples at one instant";
                return Err(Refusal::usage("the expression gives neither numbers nor a vector at each instant", hint));
            }
            for element in value.into_vector() {
                series.entry(element.labels).or_default().push((self.recording.unix_ms(at), element.value));
            }
        }
        Ok(series.into_iter().map(|(labels, points)| Samples { labels, points }).collect())
    }
}

/// What is written.
enum Answer {
    Instant(Offset, Value),
    Range(Vec<Samples>),
}

impl Answer {
    /// One line for each element of an instant; a block of times for each label set of a range.
    /// Times are seconds since the start of the run.
    fn write_table(&self, recording: &Recording, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Answer::Instant(_, Value::Scalar(v)) => writeln!(out, "{}", number(*v)),
            Answer::Instant(_, Value::Text(text)) => writeln!(out, "{text}"),
            Answer::Instant(at, Value::Vector(elements)) => {
                if elements.is_empty() {
                    return writeln!(out, "nothing at {at}");
                }
                let names: Vec<String> = elements.iter().map(|e| e.labels.to_string()).collect();
                let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
                for (name, element) in names.iter().zip(elements) {
                    writeln!(out, "{name:width$}  {}", number(element.value))?;
                }
                Ok(())
            }
            Answer::Instant(_, Value::Matrix(series)) | Answer::Range(series) => {
                if series.is_empty() {
                    return writeln!(out, "nothing in this range");
                }
                for (i, samples) in series.iter().enumerate() {
                    writeln!(out, "{}{}", if i > 0 { "\n" } else { "" }, samples.labels)?;
                    for (t_ms, value) in &samples.points {
                        let s = (t_ms - recording.header.epoch_unix_ms) as f64 / 1e3;
                        writeln!(out, "{s:>10.3}  {}", number(*value))?;
                    }
                }
                Ok(())
            }
        }
    }

    /// The shape of Prometheus' `/api/v1/query` and `/api/v1/query_range`, Unix seconds included.
    fn write_json(&self, recording: &Recording, out: &mut dyn Write) -> io::Result<()> {
        let (kind, result) = match self {
            Answer::Instant(at, value) => {
                let t_ms = recording.unix_ms(*at);
                match value {
                    Value::Scalar(v) => ("scalar", point(t_ms, *v)),
                    Value::Text(text) => ("string", json!([seconds(t_ms), text])),
                    Value::Vector(elements) => {
                        let rows = elements
                            .iter()
                            .map(|e| json!({"metric": metric(&e.labels), "value": point(t_ms, e.value)}));
                        ("vector", rows.collect())
                    }
                    Value::Matrix(series) => ("matrix", matrix(series)),
                }
            }
            Answer::Range(series) => ("matrix", matrix(series)),
        };
        let answer = json!({"status": "success", "data": {"resultType": kind, "result": result}});
        serde_json::to_writer(&mut *out, &answer)?;
        writeln!(out)
    }
}

fn matrix(series: &[Samples]) -> Json {
    let row = |s: &Samples| {
        let values: Vec<Json> = s.points.iter().map(|(t_ms, v)| point(*t_ms, *v)).collect();
        json!({"metric": metric(&s.labels), "values": values})
    };
    series.iter().map(row).collect()
}

fn metric(labels: &Labels) -> Json {
    Json::Object(labels.iter().map(|(n, v)| (n.to_owned(), Json::from(v))).collect::<Map<_, _>>())
}

fn point(t_ms: i64, value: f64) -> Json {
    json!([seconds(t_ms), number(value)])
}

/// Unix seconds; whole ones without a fraction, as Prometheus writes them.
fn seconds(t_ms: i64) -> Json {
    if t_ms % 1_000 == 0 { json!(t_ms / 1_000) } else { json!(t_ms as f64 / 1e3) }
}

/// A value as Prometheus writes it.
fn number(v: f64) -> String {
    if v.is_nan() {
        "NaN".into()
    } else if v.is_infinite() {
        if v > 0.0 { "+Inf".into() } else { "-Inf".into() }
    } else if v == 0.0 || (1e-6..1e21).contains(&v.abs()) {
        v.to_string()
    } else {
        format!("{v:e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_or_refused() {
        let step = Duration::from_secs(5);
        let range = Range::parse("1s..12s", step).unwrap();
        let instants: Vec<u64> = range.instants().map(Offset::as_millis).collect();
        assert_eq!(instants, [1_000, 6_000, 11_000]);
        for (text, step_ms, part) in [
            ("1s", 1_000, "two times"),
            ("1..2", 1_000, "is no duration"),
            ("2s..1s", 1_000, "before its start"),
            ("0s..1h", 0, "too short"),
            ("0s..10h", 1_000, "more than 11000"),
        ] {
            let error = Range::parse(text, Duration::from_millis(step_ms)).unwrap_err();
            assert!(error.says.contains(part), "{}", error.says);
        }
    }

    #[test]
    fn numbers_read_as_prometheus_writes_them() {
        for (v, text) in [(0.0, "0"), (4.0, "4"), (0.1, "0.1"), (1e-7, "1e-7"), (1e22, "1e22"), (f64::INFINITY, "+Inf")]
        {
            assert_eq!(number(v), text);
        }
    }
}
