//! Metrics pages: served one a scrape to the real poller under the paused clock, then judged by the shipped rules.
//!
//! What a single page's text says (`samples`, `sample_lines`, `labels_of_waiting`, `ttft_buckets`) is checked here too, on what the
//! poller recorded. A case's "every good scrape" yields to the rule of production: a failed scrape makes an alert not evaluable.

use std::time::Duration;

use plimsoll::analyze;
use plimsoll::model::recording::Recording;
use plimsoll::model::sample::{NAME, Sample, Scrape, SourceKind};
use plimsoll::model::time::{Clock, ClockKind, Offset};
use plimsoll::model::verdict::{AlertState, Verdict};
use plimsoll::promql::{self, Engine, Reading};
use plimsoll::rules::{Judge, Timing};
use plimsoll::scenario::Scenario;
use plimsoll::scrape::{Page, Poller, ScrapeSpec};
use plimsoll::series::{Store, View};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{recording, rules};
use crate::scripted::{self, Script, ScriptedPage};
use crate::{Case, Door, Faults, KEYS, shape};

/// Where a case names an alert, ours.
const ALERTS: [(&str, &str); 3] = [
    ("waiting>0 for 1m", "RequestsWaiting"),
    ("kv_cache>0.95 for 1m", "KvCacheFull"),
    ("preemption rate>0", "Preemptions"),
];

/// What the poller recorded, and the worst lateness of a ticker beside it, ms.
fn scrape(case: &Case, pages: &[Value]) -> (Recording, f64) {
    let at_s: Vec<u64> = pages.iter().map(|p| p["scrape_s"].as_u64().unwrap()).collect();
    let interval = at_s.windows(2).map(|w| w[1] - w[0]).min().unwrap_or(15);
    let end = at_s.last().unwrap() + interval.min(10);
    let served = pages.iter().map(|p| ScriptedPage {
        status: p.get("status").and_then(Value::as_u64).unwrap_or(200) as u16,
        body: case.read(p["file"].as_str().unwrap()),
        delay: Duration::from_millis(p.get("delay_ms").and_then(Value::as_u64).unwrap_or(0)),
    });
    let script = Script { pages: served.collect(), ..Script::default() };
    let timeout = case.object("settings").get("scrape_timeout_s").and_then(Value::as_u64).unwrap_or(10);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (events, late) = runtime.block_on(async {
        let (url, _) = scripted::serve(script).await;
        let clock = Clock::start(ClockKind::Simulated);
        let (sender, mut seen) = mpsc::unbounded_channel();
        let page = Page {
            url: format!("{url}/metrics"),
            source: SourceKind::Server,
            target: 0,
            bearer: None,
            headers: Vec::new(),
        };
        let interval = Duration::from_secs(interval);
        let spec = ScrapeSpec { interval, timeout: Duration::from_secs(timeout), ..ScrapeSpec::default() };
        let poller = Poller::start(page, &spec, clock, sender).unwrap();
        let mut late = Duration::ZERO;
        for tenth in 1..end * 10 {
            let due = Offset::from_millis(tenth * 100);
            clock.sleep_until(due).await;
            late = late.max(clock.now().since(due));
        }
        drop(poller);
        let mut events = Vec::new();
        while let Some(event) = seen.recv().await {
            events.push(event);
        }
        (events, late)
    });
    (recording(0, (0, end * 1_000), events), late.as_secs_f64() * 1e3)
}

fn samples(scrape: &Scrape) -> &[Sample] {
    scrape.result.as_deref().unwrap_or_default()
}

/// A number, or its name in a case.
fn said(v: f64) -> Value {
    if v.is_nan() {
        "NaN".into()
    } else if v.is_infinite() {
        if v > 0.0 { "+Inf".into() } else { "-Inf".into() }
    } else {
        v.into()
    }
}

pub fn check(case: &Case, pages: &[Value], faults: &mut Faults) {
    let name = &case.name;
    let (recording, late_ms) = scrape(case, pages);
    let rules = rules();
    let store = Store::from_recording(&recording);
    // Production's grid is that of the case, and each evaluation sees the scrape of its own instant.
    let every = Duration::from_secs(15);
    let timing = Timing { scrape: every, evaluation: every, poll: every };
    let judge = Judge::new(&rules, &recording, &store, Reading::V3, timing);
    let verdict = analyze::verdict(&recording, &Scenario::default(), &rules);
    let ask = |query: &str, at_s: f64| -> Vec<f64> {
        let at_ms = recording.header.epoch_unix_ms + (at_s * 1e3) as i64;
        let answer = Engine::default().instant(&promql::parse(query).unwrap(), &View::whole(&store), at_ms).unwrap();
        match answer {
            promql::Value::Vector(v) => v.into_iter().map(|e| e.value).collect(),
            other => panic!("{query}: {other:?}"),
        }
    };
    let first = &recording.scrapes[0];
    let end_s = recording.last.as_secs_f64();
    for (key, want) in &case.expect() {
        match shape(key).as_str() {
            "scrapes_ok" | "scrapes_failed" => {
                let ok = recording.scrapes.iter().filter(|s| s.result.is_ok()).count();
                let got = if key == "scrapes_ok" { ok } else { recording.scrapes.len() - ok };
                faults.check(name, key, got as u64, want.as_u64().unwrap());
            }
            "failure_classes" => {
                let failures: Vec<_> = recording.scrapes.iter().filter_map(|s| s.result.as_ref().err()).collect();
                for (class, n) in want.as_object().unwrap() {
                    let is = |f: &&&plimsoll::model::sample::ScrapeFailure| match class.strip_prefix("http_") {
                        Some(status) => f.class == "status" && f.detail.contains(status),
                        None => f.class == *class,
                    };
                    faults.check(name, class, failures.iter().filter(is).count() as u64, n.as_u64().unwrap());
                }
            }
            "load_delayed_ms_max" => faults.check(name, key, late_ms <= want.as_f64().unwrap(), true),
            "metric_used" => {
                faults.check(name, key, store.has_name(want.as_str().unwrap()), true);
                let kv = verdict.steps[0].server.as_ref().and_then(|s| s.kv_cache_usage.max);
                faults.check(name, "the old name is read under the neutral one", kv.is_some(), true);
            }
            "waiting_total_at_#s" | "kv_max_at_#s" => {
                let at_s: f64 = key.rsplit('_').next().unwrap().trim_end_matches('s').parse().unwrap();
                let query = match key.starts_with("waiting") {
                    true => "sum(vllm:num_requests_waiting)",
                    false => "max(vllm:kv_cache_usage_perc or vllm:gpu_cache_usage_perc)",
                };
                faults.check(name, key, ask(query, at_s), vec![want.as_f64().unwrap()]);
            }
            "preemptions_increase_total" | "generation_tokens_increase_total" => {
                let counter = key.trim_end_matches("_increase_total");
                let metric = if counter == "preemptions" {
                    "vllm:num_preemptions_total"
                } else {
                    "vllm:generation_tokens_total"
                };
                faults.check(name, key, increase(&recording, metric), want.as_f64().unwrap());
            }
            "restart_seen_at_s" => {
                let at_s = want.as_f64().unwrap();
                let changed = |at| ask("changes(process_start_time_seconds[30s])", at);
                faults.check(name, key, (changed(at_s), changed(at_s - 1.0)), (vec![1.0], vec![0.0]));
            }
            "never" => {
                faults.check(name, "no negative rate", ask("rate(vllm:num_preemptions_total[1m]) < 0", end_s), vec![]);
                let early = judge.as_deployed().iter().any(|a| a.alert == "Preemptions" && a.fired_at_s == 30.0);
                faults.check(name, &format!("{want}"), early, false);
            }
            "samples" => {
                for (series, want) in want.as_object().unwrap() {
                    let got = samples(first).iter().find(|s| s.labels.name() == series).map(|s| said(s.value));
                    let got = got.map(|v| v.as_f64().map_or(v.clone(), Value::from));
                    faults.check(name, series, got, Some(want.as_f64().map_or(want.clone(), Value::from)));
                }
            }
            "labels_of_waiting" => {
                let waiting = samples(first).iter().find(|s| s.labels.name() == "vllm:num_requests_waiting");
                let Some(waiting) = waiting else {
                    faults.0.push(format!("{name}: no waiting in {:?}", first.result));
                    continue;
                };
                for (label, want) in want.as_object().unwrap() {
                    faults.check(name, label, waiting.labels.get(label), want.as_str());
                }
            }
            "ttft_buckets" => {
                for (le, want) in want.as_object().unwrap() {
                    let edge = |t: &str| t.parse::<f64>().unwrap_or(f64::NAN);
                    let is = |s: &&Sample| {
                        s.labels.name() == "vllm:time_to_first_token_seconds_bucket"
                            && s.labels.get("le").is_some_and(|l| edge(l) == edge(le))
                    };
                    faults.check(name, le, samples(first).iter().find(is).map(|s| s.value), want.as_f64());
                }
            }
            "sample_lines" => faults.check(name, key, samples(first).len() as u64, want.as_u64().unwrap()),
            "parse_errors" => {
                let broken = recording.scrapes.iter().filter(|s| s.result.is_err()).count() as u64;
                faults.check(name, key, broken, want.as_u64().unwrap());
            }
            "prefix_cache_hit_share_in_run" => {
                let (hits, asked) = ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total");
                let share = increase(&recording, hits) / increase(&recording, asked);
                faults.close(name, key, Some(share), want.as_f64(), 1e-9);
                let ours = verdict.steps[0].server.as_ref().and_then(|s| s.prefix_cache_hit_rate);
                faults.close(name, "prefix_cache_hit_rate", ours, want.as_f64(), 1e-9);
            }
            "warning" => warned(name, want, &verdict, faults),
            "alerts" => alerts(name, want, &judge, &recording, faults),
            other => {
                let elsewhere =
                    KEYS.iter().any(|(k, door)| *k == other && matches!(door, Door::Dataset | Door::Setting));
                faults.check(name, &format!("{other} is checked for pages"), elsewhere, true);
            }
        }
    }
}

/// Warnings that the analysis does not give yet: until it does, only these may be missing.
const AWAITED: &[&str] = &[];

/// Warnings that a case wants, and that the verdict has under their code.
fn warned(name: &str, want: &Value, verdict: &Verdict, faults: &mut Faults) {
    let all = verdict.caveats.iter().chain(verdict.steps.iter().flat_map(|s| &s.caveats));
    let codes: Vec<&str> = all.map(|c| c.code.as_str()).collect();
    let want = want.as_str().unwrap();
    let said = codes.contains(&want) || AWAITED.contains(&want);
    faults.check(name, &format!("caveat {want} in {codes:?}"), said, true);
}

/// Growth of a counter over all its series and good scrapes; after a restart it counts from 0.
fn increase(recording: &Recording, metric: &str) -> f64 {
    let mut total = 0.0;
    let mut last: std::collections::BTreeMap<&plimsoll::model::sample::Labels, f64> = std::collections::BTreeMap::new();
    for sample in recording.scrapes.iter().flat_map(samples).filter(|s| s.labels.get(NAME) == Some(metric)) {
        if let Some(before) = last.insert(&sample.labels, sample.value) {
            total += if sample.value < before { sample.value } else { sample.value - before };
        }
    }
    total
}

fn alerts(name: &str, want: &Value, judge: &Judge<'_>, recording: &Recording, faults: &mut Faults) {
    let fired = judge.as_deployed();
    let verdicts = judge.step(&recording.steps[0]);
    for (case_name, want) in want.as_object().unwrap() {
        let Some((_, alert)) = ALERTS.iter().find(|(n, _)| n == case_name) else {
            faults.0.push(format!("{name}: alert `{case_name}` is none of ours"));
            continue;
        };
        let deployed = fired.iter().find(|a| a.alert == *alert);
        let verdict = verdicts.iter().find(|a| a.alert == *alert).unwrap();
        if want == "did not fire" {
            faults.check(name, alert, (deployed.is_some(), verdict.state == AlertState::Firing), (false, false));
            continue;
        }
        if want.get("one_of").is_some() {
            // DESIGN: where a gap could hide a firing alert, it is not evaluable.
            faults.check(name, alert, verdict.state, AlertState::NotEvaluable);
            continue;
        }
        for (what, want) in want.as_object().unwrap() {
            match what.as_str() {
                "fires_at_s" => faults.check(name, alert, deployed.map(|a| a.fired_at_s), want.as_f64()),
                "first_true_s" => faults.check(name, alert, deployed.map(|a| a.active_at_s), want.as_f64()),
                "engine" => {
                    faults.check(name, alert, verdict.labels.get("engine").map(String::as_str), want.as_str());
                }
                other => faults.0.push(format!("{name}: {alert}: {other} is not checked")),
            }
        }
    }
}
