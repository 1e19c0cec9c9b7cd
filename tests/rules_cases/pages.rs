//! Pages as servers of other versions, several of them, or broken ones give them: what a step comes to.

use plimsoll::model::recording::Event;
use plimsoll::model::sample::{Labels, NAME, Sample, Scrape, SourceKind};
use plimsoll::model::verdict::{AlertState, AlertVerdict};
use plimsoll::rules::RuleSet;

use crate::build::{Run, at, rules, vllm, vllm_with};

fn verdict(run: &Run, rules: &RuleSet, alert: &str) -> AlertVerdict {
    run.judged(rules, |j| j.step(&run.recording.steps[0]).into_iter().find(|v| v.alert == alert).unwrap())
}

/// A step of 90 s with the page of each second, judged by the shipped rules.
fn shipped(alert: &str, page: impl Fn(f64) -> Vec<Sample>) -> AlertVerdict {
    let run = Run::new(1.0, 1.0).step(8, 0.0, 90.0).server(90.0, |t| Some(page(t)));
    verdict(&run, &run.shipped(), alert)
}

/// A histogram that gains ten observations a second, all of them slow; `name` without `_bucket`, `last` its last bound.
fn slow(name: &str, engine: Option<&str>, last: &str, count: f64) -> Vec<Sample> {
    let bucket = |le: &str, value: f64| {
        let own = [(NAME, format!("{name}_bucket")), ("le", le.into())];
        let engine = engine.map(|e| ("engine", e.to_owned()));
        Sample { labels: Labels::new(own.into_iter().chain(engine)), value }
    };
    ["0.1", "1.0", "2.5"]
        .map(|le| bucket(le, 0.0))
        .into_iter()
        .chain([bucket("40.0", count), bucket(last, count)])
        .collect()
}

#[test]
fn old_names_without_an_engine_label_are_judged() {
    for (alert, name) in [
        ("InterTokenLatencyP99", "vllm:time_per_output_token_seconds"),
        ("InterTokenLatencyP99", "vllm:inter_token_latency_seconds"),
        ("TimeToFirstTokenP99", "vllm:time_to_first_token_seconds"),
    ] {
        for engine in [None, Some("0")] {
            let v = shipped(alert, |t| slow(name, engine, "+Inf", t * 10.0));
            assert_eq!(v.state, AlertState::Firing, "{name} {engine:?}: {v:?}");
        }
    }
    let old = Labels::new([(NAME, "vllm:gpu_cache_usage_perc")]);
    let v = shipped("KvCacheFull", |_| vec![Sample { labels: old.clone(), value: 0.97 }]);
    assert_eq!((v.state, v.value), (AlertState::Firing, Some(0.97)));
}

#[test]
fn of_several_engines_the_one_that_breaks_is_named() {
    let engine = |e: &str, v| vllm_with("num_requests_waiting", &[("engine", e)], v);
    let v = shipped("RequestsWaiting", |_| vec![engine("0", 0.0), engine("1", 3.0), engine("2", 0.0)]);
    assert_eq!((v.state, v.labels["engine"].as_str(), v.value), (AlertState::Firing, "1", Some(3.0)));
    // Quantiles are read over all of them: a hundredth of slow ones in one is no hundredth of all.
    let histogram = |e: &str, slow: f64, all: f64| {
        let bucket = |le, v| vllm_with("time_to_first_token_seconds_bucket", &[("engine", e), ("le", le)], v);
        [bucket("1.0", all - slow), bucket("2.5", all), bucket("+Inf", all)]
    };
    for (slow_ones, state) in [(0.02, AlertState::Firing), (0.008, AlertState::Quiet)] {
        let v = shipped("TimeToFirstTokenP99", |t| {
            let all = (t * 100.0).floor();
            [histogram("0", 0.0, all), histogram("1", (2.0 * all * slow_ones).floor(), all)].concat()
        });
        assert_eq!(v.state, state, "{slow_ones}");
    }
}

#[test]
fn of_several_targets_the_one_that_breaks_is_named() {
    let mut run = Run::new(1.0, 1.0).step(8, 0.0, 90.0).server(90.0, |_| Some(vec![vllm("num_requests_waiting", 0.0)]));
    for t in 0..=90 {
        let (sent, samples) = (at(f64::from(t)), vec![vllm("num_requests_waiting", 2.0)]);
        run.recording.apply(Event::Scrape(Scrape {
            source: SourceKind::Server,
            target: 1,
            sent,
            received: sent,
            result: Ok(samples),
        }));
    }
    let v = verdict(&run, &run.shipped(), "RequestsWaiting");
    assert_eq!((v.state, v.labels["instance"].as_str()), (AlertState::Firing, "target-1"));
    let up = rules("groups: [{name: g, rules: [{alert: Two, expr: 'count(up == 1) == 2', for: 1m}]}]");
    assert_eq!(verdict(&run, &up, "Two").state, AlertState::Firing);
}

#[test]
fn a_restart_counts_from_zero() {
    let preemptions = |after: f64| {
        shipped("Preemptions", move |t| vec![vllm("num_preemptions_total", if t < 45.0 { 700.0 } else { after })])
    };
    assert_eq!(preemptions(700.0).state, AlertState::Quiet);
    assert_eq!(preemptions(0.0).state, AlertState::Quiet);
    // Two since the restart are two, not 702 and not less than none.
    let v = preemptions(2.0);
    assert_eq!(v.state, AlertState::Firing);
    assert!(v.value.is_some_and(|rate| rate > 0.0 && rate < 0.1), "{v:?}");
    // The buckets begin anew together: what is slow stays slow, what is fast stays fast.
    let name = "vllm:time_to_first_token_seconds";
    let v = shipped("TimeToFirstTokenP99", |t| slow(name, Some("0"), "+Inf", (t % 45.0) * 10.0));
    assert_eq!(v.state, AlertState::Firing, "{v:?}");
}

#[test]
fn no_number_holds_no_condition_and_infinity_does() {
    for (value, state) in
        [(f64::NAN, AlertState::Quiet), (f64::NEG_INFINITY, AlertState::Quiet), (f64::INFINITY, AlertState::Firing)]
    {
        let v = shipped("KvCacheFull", |_| vec![vllm("kv_cache_usage_perc", value)]);
        assert_eq!(v.state, state, "{value}: {v:?}");
    }
    let v = shipped("Preemptions", |t| vec![vllm("num_preemptions_total", if t < 30.0 { 0.0 } else { f64::NAN })]);
    assert_eq!(v.state, AlertState::Quiet);
}

#[test]
fn a_histogram_without_its_last_bucket_is_no_data() {
    let name = "vllm:time_to_first_token_seconds";
    let v = shipped("TimeToFirstTokenP99", |t| slow(name, Some("0"), "80.0", t * 10.0));
    // Prometheus makes NaN of it, and no alert: a page that could never fire must not look clean.
    assert_eq!(v.state, AlertState::NoData, "{v:?}");
    assert!(v.because.as_ref().unwrap().contains("+Inf"), "{v:?}");
}
