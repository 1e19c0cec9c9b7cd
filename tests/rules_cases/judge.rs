//! States of alerts over recordings: phases, failed scrapes, few observations, onsets.

use plimsoll::model::sample::Sample;
use plimsoll::model::verdict::{AlertState, AlertVerdict};
use plimsoll::rules::RuleSet;

use crate::build::{Run, rules, vllm, vllm_with};

const WAITING: &str = "
groups:
  - name: g
    rules:
      - {alert: Waiting, expr: 'vllm:num_requests_waiting > 0', for: 1m}
";

fn waiting(v: f64) -> Option<Vec<Sample>> {
    Some(vec![vllm("num_requests_waiting", v)])
}

fn verdict(run: &Run, rules: &RuleSet, step: usize, alert: &str) -> AlertVerdict {
    run.judged(rules, |j| j.step(&run.recording.steps[step]).into_iter().find(|v| v.alert == alert).unwrap())
}

/// State of `Waiting` over a step of 90 s whose queue is `queue(t)`.
fn over(queue: impl Fn(f64) -> Option<f64>) -> AlertVerdict {
    let run = Run::new(1.0, 1.0).step(8, 0.0, 90.0).server(90.0, |t| queue(t).and_then(waiting));
    verdict(&run, &rules(WAITING), 0, "Waiting")
}

#[test]
fn a_condition_that_holds_throughout_fires_at_every_phase() {
    let v = over(|_| Some(4.0));
    assert_eq!(v.state, AlertState::Firing);
    assert_eq!(v.phase_share, Some(1.0));
    assert_eq!((v.pending_at_s, v.fired_at_s, v.onset_s), (Some(1.0), Some(61.0), Some(0.0)));
    assert_eq!((v.value, v.limit), (Some(4.0), Some(0.0)));
    assert_eq!(v.labels["engine"], "0");
}

#[test]
fn one_zero_resets_only_the_phases_that_see_it() {
    // Zero at 7 s and every 15 s on: the one phase whose scrapes fall there never fires.
    let v = over(|t| Some(if (t as i64) % 15 == 7 { 0.0 } else { 4.0 }));
    assert_eq!(v.state, AlertState::Firing);
    assert!((v.phase_share.unwrap() - 14.0 / 15.0).abs() < 1e-9, "{v:?}");
}

#[test]
fn too_short_a_wait_stays_pending_or_quiet() {
    assert_eq!(over(|t| Some(if t < 40.0 { 4.0 } else { 0.0 })).state, AlertState::Pending);
    assert_eq!(over(|_| Some(0.0)).state, AlertState::Quiet);
}

#[test]
fn no_series_is_no_data() {
    let run = Run::new(1.0, 1.0).step(8, 0.0, 90.0).server(90.0, |_| Some(vec![vllm("other", 1.0)]));
    let v = verdict(&run, &rules(WAITING), 0, "Waiting");
    assert_eq!(v.state, AlertState::NoData);
    assert!(v.because.unwrap().contains("vllm:num_requests_waiting"));
}

#[test]
fn failed_scrapes_that_could_hide_an_alert_leave_it_open() {
    // 80 s of waiting with a hole in the middle that every phase falls into.
    let v = over(|t| if (35.0..52.0).contains(&t) { None } else { Some(4.0) });
    assert_eq!(v.state, AlertState::NotEvaluable, "{v:?}");
    // The same hole in an idle server could hide at most 17 s of waiting.
    let v = over(|t| if (35.0..52.0).contains(&t) { None } else { Some(0.0) });
    assert_eq!(v.state, AlertState::Quiet, "{v:?}");
    // A short hole spoils some phases; the others fire.
    let v = over(|t| if (35.0..37.0).contains(&t) { None } else { Some(4.0) });
    assert_eq!(v.state, AlertState::Firing);
    assert!(v.phase_share.unwrap() < 1.0);
}

#[test]
fn a_step_that_was_cut_is_not_evaluable() {
    let run = Run::new(1.0, 1.0).step(8, 0.0, 30.0).server(30.0, |_| waiting(4.0));
    assert_eq!(verdict(&run, &rules(WAITING), 0, "Waiting").state, AlertState::NotEvaluable);
}

#[test]
fn the_onset_is_read_from_the_whole_run() {
    let run = Run::new(1.0, 1.0)
        .step(4, 0.0, 40.0)
        .step(8, 40.0, 130.0)
        .server(130.0, |t| waiting(if t >= 30.0 { 2.0 } else { 0.0 }));
    let v = verdict(&run, &rules(WAITING), 1, "Waiting");
    assert_eq!((v.onset_s, v.pending_at_s), (Some(30.0), Some(41.0)));
}

#[test]
fn as_deployed_blames_the_step_in_which_it_began() {
    let run = Run::new(1.0, 1.0)
        .step(2, 0.0, 60.0)
        .step(4, 60.0, 120.0)
        .step(8, 120.0, 180.0)
        .server(180.0, |t| waiting(if t >= 80.0 { 2.0 } else { 0.0 }));
    let rules = rules(WAITING);
    let paged = run.judged(&rules, |j| j.as_deployed());
    assert_eq!(paged.len(), 1);
    assert_eq!((paged[0].concurrency_blamed, paged[0].concurrency_then), (Some(4.0), Some(8.0)));
    assert_eq!((paged[0].active_at_s, paged[0].fired_at_s), (91.0, 151.0));
}

/// A histogram that gains `per_s` observations a second, of which `slow` in all are above 1 s.
fn quantile(per_s: f64, slow: f64) -> (AlertVerdict, u64) {
    let rules = rules(
        "
groups:
  - name: g
    rules:
      - alert: Ttft
        expr: histogram_quantile(0.99, sum by (le) (rate(vllm:t_bucket[5m]))) > 1
",
    );
    let run = Run::new(1.0, 1.0).step(8, 0.0, 90.0).server(90.0, |t| {
        let all = t * per_s;
        let slow = if t > 5.0 { slow } else { 0.0 };
        let bucket = |le: &str, v: f64| vllm_with("t_bucket", &[("le", le)], v);
        Some(vec![bucket("0.5", all - slow), bucket("1.0", all - slow), bucket("2.5", all), bucket("+Inf", all)])
    });
    run.judged(&rules, |j| {
        let verdicts = j.step(&run.recording.steps[0]);
        let fires = |name: &str| verdicts.iter().any(|v| v.alert == name && v.state == AlertState::Firing);
        let missing = j.observations_missing(&run.recording.steps[0], fires);
        (verdicts.into_iter().next().unwrap(), missing)
    })
}

#[test]
fn quantiles_wait_for_their_observations() {
    let (v, missing) = quantile(10.0, 0.0);
    assert_eq!((v.state, missing), (AlertState::Quiet, 0));
    let (v, _) = quantile(10.0, 100.0);
    assert_eq!(v.state, AlertState::Firing);
    // 44 of them up to the last page before the end, with one slow one: 56 more could make it the hundredth.
    let (v, missing) = quantile(0.5, 1.0);
    assert_eq!((v.state, missing), (AlertState::NotEvaluable, 56));
    assert!(v.because.unwrap().contains("44 observations"));
    // With ten slow ones it fires whatever else comes.
    let (v, missing) = quantile(0.5, 10.0);
    assert_eq!((v.state, missing), (AlertState::Firing, 0));
    // None at all.
    let (v, _) = quantile(0.0, 0.0);
    assert_eq!(v.state, AlertState::NoData);
}

#[test]
fn recording_rules_feed_later_ones() {
    let rules = rules(
        "
groups:
  - name: g
    rules:
      - {record: 'q:now', expr: 'vllm:num_requests_waiting or vllm:old_waiting'}
      - {record: 'q:minute', expr: 'min_over_time(q:now[1m])'}
      - {alert: Waiting, expr: 'q:minute > 0', for: 30s, labels: {team: 'x{{ $labels.engine }}'}}
",
    );
    let run = Run::new(1.0, 1.0).step(8, 0.0, 90.0).server(90.0, |_| Some(vec![vllm("old_waiting", 3.0)]));
    let v = verdict(&run, &rules, 0, "Waiting");
    assert_eq!(v.state, AlertState::Firing, "{v:?}");
    assert_eq!(v.labels["team"], "x0");
}

#[test]
fn old_names_and_missing_engine_labels_are_read() {
    let run = Run::new(1.0, 1.0).step(8, 0.0, 90.0).server(90.0, |_| {
        let labels = plimsoll::model::sample::Labels::new([("__name__", "vllm:gpu_cache_usage_perc")]);
        Some(vec![Sample { labels, value: 0.97 }])
    });
    assert_eq!(verdict(&run, &run.shipped(), 0, "KvCacheFull").state, AlertState::Firing);
}

#[test]
fn each_engine_is_an_alert_of_its_own() {
    let run = Run::new(1.0, 1.0).step(8, 0.0, 90.0).server(90.0, |t| {
        // The two take turns: neither waits for a minute.
        let first = (t / 20.0) as i64 % 2 == 0;
        let other = Sample {
            labels: vllm("num_requests_waiting", 0.0).labels.with("engine", "1"),
            value: f64::from(u8::from(!first)),
        };
        Some(vec![vllm("num_requests_waiting", f64::from(u8::from(first))), other])
    });
    assert_eq!(verdict(&run, &rules(WAITING), 0, "Waiting").state, AlertState::Pending);
}
