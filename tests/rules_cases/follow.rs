//! The rounds that are made while a run goes on, and the verdict that is made of its recording: they agree.

use std::path::Path;

use plimsoll::analyze;
use plimsoll::model::recording::{Event, Recording};
use plimsoll::model::request::{Outcome, RequestTimeline};
use plimsoll::model::sample::Sample;
use plimsoll::model::step::StepPlan;
use plimsoll::model::time::Offset;
use plimsoll::model::verdict::{AlertState, AlertVerdict};
use plimsoll::promql::Reading;
use plimsoll::rules::{Follow, Judge, Limits, RuleSet, Timing};
use plimsoll::scenario::Scenario;
use plimsoll::series::{ClientTargets, Growing, Series, Store};

use crate::build::{Run, at, pool, rules, vllm, vllm_with};
use crate::real;

/// All events of a recording in the order in which they became known.
fn events(of: &Recording) -> Vec<Event> {
    let mut out: Vec<Event> = Vec::new();
    for s in &of.steps {
        let plan = StepPlan { step: s.step, load: s.load, phase: s.phase, repeat: s.repeat, drain_first: false };
        out.push(Event::StepStarted { at: s.warmup.start, plan });
        out.push(Event::MeasureStarted { at: s.measured.start, step: s.step });
        out.push(Event::StepEnded { at: s.measured.end, step: s.step, cut_short: s.cut_short });
    }
    out.extend(of.requests.iter().cloned().map(Event::Request));
    out.extend(of.scrapes.iter().cloned().map(Event::Scrape));
    out.extend(of.health.iter().cloned().map(Event::Health));
    // What ends a step comes after all else that happened by then.
    out.sort_by_key(|e| (e.at(), matches!(e, Event::StepEnded { .. })));
    out
}

/// The requests that were in flight at `now`, as far as they had come.
fn flights(of: &Recording, now: Offset) -> Vec<RequestTimeline> {
    let out = of.requests.iter().filter(|r| r.began() <= now && r.finished > now);
    out.map(|r| RequestTimeline {
        chunks: r.chunks.iter().filter(|c| c.at <= now).cloned().collect(),
        finished: now,
        finish_reason: None,
        usage: Default::default(),
        server: None,
        outcome: Outcome::InFlight,
        ..r.clone()
    })
    .collect()
}

/// The times at which each alert of a step fired, as they were told, and the verdicts at its end.
type Followed = (Vec<(String, Option<f64>, f64)>, Vec<AlertVerdict>);

/// Follows a recording as if it went on, looking once a second; what each step came to.
fn follow(of: &Recording, rules: &RuleSet, targets: &ClientTargets, reading: Reading, timing: Timing) -> Vec<Followed> {
    let mut so_far = Recording::new(of.header.clone());
    let mut follow = Follow::new(rules, &so_far, targets, (reading, timing), true);
    let mut told = vec![Vec::new(); of.steps.len()];
    let mut out: Vec<Followed> = Vec::new();
    let mut look = Offset::ZERO;
    let mut keep = |fired: Vec<plimsoll::rules::Fired>| {
        for f in fired {
            let i = of.steps.iter().position(|s| s.step == f.step).unwrap();
            told[i].push((f.alert.alert, f.alert.since.map(Offset::as_secs_f64), f.at.as_secs_f64()));
        }
    };
    for event in events(of) {
        while look < event.at() {
            keep(follow.look(&so_far, flights(of, look), look));
            look = look + std::time::Duration::from_millis(1_000);
        }
        let (now, ends) = (event.at(), matches!(event, Event::StepEnded { .. }));
        so_far.apply(event);
        if ends {
            keep(follow.settle(&so_far, flights(of, now), now));
            out.push((Vec::new(), follow.verdicts(&so_far).unwrap().1));
        }
    }
    for (followed, told) in out.iter_mut().zip(told) {
        followed.0 = told;
    }
    out
}

/// Follows a recording and holds what came of it against the judgement of the whole; how many alerts fired.
fn agree(of: &Recording, rules: &RuleSet, targets: &ClientTargets, reading: Reading, timing: Timing) -> usize {
    let store = Store::from_recording_with(of, targets);
    let judge = Judge::new(rules, of, &store, reading, timing);
    let mut fired = 0;
    let followed = follow(of, rules, targets, reading, timing);
    assert_eq!(followed.len(), of.steps.len());
    for (span, (told, live)) in of.steps.iter().zip(followed) {
        let whole = judge.step(span);
        assert_eq!(live.len(), whole.len());
        for (live, whole) in live.iter().zip(&whole) {
            assert_eq!(live, whole, "step {}", span.step);
        }
        let mut told: Vec<_> = told.into_iter().map(|(name, since, at)| (name, since.unwrap(), at)).collect();
        let firing = whole.iter().filter(|v| v.state == AlertState::Firing);
        let mut firing: Vec<_> =
            firing.map(|v| (v.alert.clone(), v.pending_at_s.unwrap(), v.fired_at_s.unwrap())).collect();
        told.sort_by(|a, b| a.0.cmp(&b.0));
        firing.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(told, firing, "step {}", span.step);
        fired += firing.len();
    }
    fired
}

/// Lets a store grow with a recording, and holds every sample against the store that is made of the whole.
fn grows_alike(of: &Recording, targets: &ClientTargets) {
    let mut so_far = Recording::new(of.header.clone());
    let mut growing = Growing::new(&so_far, targets, None, true);
    let mut look = Offset::ZERO;
    for event in events(of) {
        while look < event.at() {
            growing.look(&so_far, flights(of, look), look);
            look = look + std::time::Duration::from_millis(1_000);
        }
        so_far.apply(event);
    }
    growing.settle(&so_far, Vec::new(), of.last);
    let whole = Store::from_recording_with(of, targets);
    let mut compared = 0;
    for series in whole.all() {
        let samples = |store: &Store, s: &Series| -> Vec<(i64, u64)> {
            store.samples(s).map(|(t, v)| (t, v.to_bits())).collect()
        };
        let mine = growing.store().all().find(|s| s.labels == series.labels);
        let mine = mine.unwrap_or_else(|| panic!("{} did not grow", series.labels));
        let (mine, theirs) = (samples(growing.store(), mine), samples(&whole, series));
        let first = mine.iter().zip(&theirs).find(|(a, b)| a != b);
        assert_eq!((first, mine.len()), (None, theirs.len()), "{}", series.labels);
        compared += mine.len();
    }
    assert!(compared > 1_000);
}

fn agree_of(run: &Run, rules: &RuleSet) -> usize {
    agree(&run.recording, rules, &ClientTargets::default(), Reading::V3, run.timing())
}

#[test]
fn a_recorded_run_of_a_real_server() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/small-pool");
    let recording = plimsoll::record::read(&folder).unwrap();
    let scenario = Scenario::parse(&recording.header.scenario_toml, "scenario.toml").unwrap();
    let slo = scenario.targets();
    let limits =
        Limits { ttft_p99_s: slo.ttft_p99_s, itl_p99_s: slo.itl_p99_s, error_rate_ratio: slo.error_rate_ratio };
    let rules = RuleSet::load(&recording.header.rule_files, &limits, recording.header.time_scale).unwrap();
    let (reading, timing) = (analyze::reading(&scenario), analyze::timing(&scenario));
    grows_alike(&recording, &analyze::targets(&scenario));
    assert!(agree(&recording, &rules, &analyze::targets(&scenario), reading, timing) >= 4);
}

#[test]
fn the_ladders_of_a_real_server() {
    let mut fired = 0;
    for run in real::runs() {
        fired += agree_of(&run, &run.shipped());
    }
    assert!(fired >= 9, "{fired} alerts fired");
}

#[test]
fn failed_and_late_scrapes_restarts_and_engines_that_come_and_go() {
    let rules = rules(
        "
groups:
  - name: g
    rules:
      - {record: 'q:now', expr: 'vllm:num_requests_waiting or vllm:old_waiting'}
      - {record: 'q:minute', expr: 'min_over_time(q:now[30s])'}
      - {alert: Waiting, expr: 'q:now > 0', for: 1m}
      - {alert: Long, expr: 'q:minute > 0', for: 30s, keep_firing_for: 20s, labels: {team: 'x{{ $labels.engine }}'}}
      - {alert: Preempted, expr: 'rate(vllm:num_preemptions_total[1m]) > 0'}
      - {alert: Full, expr: 'plimsoll:kv_blocks < 100 and on (engine) vllm:num_requests_waiting > 2'}
      - {alert: Gone, expr: 'absent(vllm:num_requests_waiting{engine=\"1\"})', for: 20s}
      - {alert: ClientTtft, expr: 'histogram_quantile(0.99, sum by (le) (rate(plimsoll_client_ttft_seconds_bucket[1m]))) > 0.4'}
      - {alert: InFlight, expr: 'plimsoll_in_flight > 0 and plimsoll_client_longest_wait_seconds > 0.3'}
      - {alert: Tokens, expr: 'sum(rate(plimsoll_output_tokens_total[30s])) > 1'}
",
    );
    let page = |t: f64| {
        if (35.0..38.0).contains(&t) || (200.0..214.0).contains(&t) {
            return None;
        }
        // The counter begins anew at 150 s; a second engine is there from 60 s to 180 s.
        let preempted = if t < 150.0 { (t / 40.0).floor() } else { ((t - 150.0) / 40.0).floor() };
        let queue = if (t as i64 / 50) % 2 == 0 { 4.0 } else { 0.0 };
        let mut page: Vec<Sample> =
            vec![vllm("num_requests_waiting", queue), vllm("num_preemptions_total", preempted), pool(64, 32)];
        if (60.0..180.0).contains(&t) {
            page.push(vllm_with("num_requests_waiting", &[("engine", "1")], 1.0));
        }
        Some(page)
    };
    let mut run = Run::new(1.0, 1.0)
        .warm_step(4, 0.0, 10.0, 110.0)
        .warm_step(8, 110.0, 121.5, 240.25)
        .warm_step(2, 240.25, 250.0, 330.0)
        .server(335.0, page)
        .requests(0, 0.5, 0.2, 100, 20)
        .requests(1, 0.7, 0.5, 100, 20)
        .requests(2, 1.0, 0.2, 100, 20);
    // A page that takes three seconds: what was asked for at 80 s is known at 83 s.
    for scrape in &mut run.recording.scrapes {
        if (80.0..83.0).contains(&scrape.sent.as_secs_f64()) {
            scrape.received = at(83.0);
        }
    }
    run.recording.last = at(335.0);
    grows_alike(&run.recording, &ClientTargets::default());
    assert!(agree_of(&run, &rules) >= 8);
}
