//! The stand-in's metrics page beside captured pages of a real vLLM 0.31.0.

use std::net::SocketAddr;
use std::time::Duration;

use plimsoll::model::time::{Clock, ClockKind};
use plimsoll::sim::Profile;
use serde_json::json;

use super::wire::{JSON, chat, hello, raw, serve};

async fn send(addr: SocketAddr, method: &str, path: &str, body: &str) -> String {
    raw(addr, method, path, JSON, body).await.1
}

/// Comments and series identities of a page, in order, without values. Of the series whose labels
/// are settings only the labels' names are kept.
fn shape(page: &str) -> Vec<String> {
    page.lines()
        .map(|line| {
            if line.starts_with('#') {
                return line.to_owned();
            }
            let identity = line.rsplit_once(' ').unwrap().0;
            if let Some(labels) = identity.strip_prefix("vllm:cache_config_info{") {
                let names: Vec<&str> = labels.split("\",").map(|l| l.split('=').next().unwrap()).collect();
                return format!("vllm:cache_config_info {}", names.join(" "));
            }
            identity.to_owned()
        })
        .collect()
}

/// Lines that only one of two shapes has.
fn differences(ours: &[String], theirs: &[String]) -> Vec<String> {
    let missing = theirs.iter().filter(|l| !ours.contains(l)).map(|l| format!("missing: {l}"));
    let added = ours.iter().filter(|l| !theirs.contains(l)).map(|l| format!("added: {l}"));
    missing.chain(added).collect()
}

#[tokio::test(start_paused = true)]
async fn a_fresh_page_is_a_captured_one_but_for_its_values() {
    for (profile, captured) in [
        ("roomy", include_str!("../captures/vllm-0.31/metrics-idle-fresh.body")),
        ("spec", include_str!("../captures/sim/page-spec.txt")),
    ] {
        let addr = serve(Profile::named(profile).unwrap()).await;
        let page = send(addr, "GET", "/metrics", "").await;
        let (ours, theirs) = (shape(&page), shape(captured));
        assert_eq!(differences(&ours, &theirs), Vec::<String>::new(), "{profile}");
        assert_eq!(ours, theirs, "the order, too, of {profile}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_used_page_has_the_captured_families() {
    let addr = serve(Profile::named("roomy").unwrap()).await;
    send(addr, "GET", "/v1/models", "").await;
    let chat = r#"{"messages":[{"role":"user","content":"hi"}],"max_tokens":4,"ignore_eos":true,"min_tokens":4}"#;
    for (path, body) in [
        ("/tokenize", r#"{"prompt":"import os"}"#),
        ("/detokenize", r#"{"tokens":[5]}"#),
        ("/v1/chat/completions", chat),
        ("/v1/completions", r#"{"prompt":"x","max_tokens":2}"#),
        ("/v1/chat/completions", "{}"),
    ] {
        send(addr, "POST", path, body).await;
    }
    send(addr, "GET", "/nope", "").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let page = send(addr, "GET", "/metrics", "").await;
    assert_eq!(
        differences(&shape(&page), &shape(include_str!("../captures/sim/page-after.txt"))),
        Vec::<String>::new(),
        "series and families"
    );
}

#[tokio::test(start_paused = true)]
async fn several_engines_and_old_names_are_there_on_request() {
    let mut profile = Profile::named("dp2").unwrap();
    profile.api.old_names = true;
    let addr = serve(profile).await;
    let page = send(addr, "GET", "/metrics", "").await;
    for series in [
        "vllm:num_requests_running{engine=\"1\",model_name=\"llama-3.1-8b\"} 0.0",
        "vllm:gpu_cache_usage_perc{engine=\"0\",model_name=\"llama-3.1-8b\"} 0.0",
        "vllm:time_per_output_token_seconds_count{engine=\"1\",model_name=\"llama-3.1-8b\"} 0.0",
    ] {
        assert!(page.lines().any(|l| l == series), "{series}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_statistics_the_page_has_no_engine() {
    let mut profile = Profile::named("roomy").unwrap();
    profile.api.log_stats = false;
    let addr = serve(profile).await;
    let page = send(addr, "GET", "/metrics", "").await;
    assert!(!page.contains("vllm:"));
    assert!(page.contains("python_info"));
}

#[tokio::test(start_paused = true)]
async fn writing_the_page_takes_the_event_loop_and_what_is_on_it_waits() {
    let clock = Clock::start(ClockKind::Simulated);
    let mut profile = Profile::named("roomy").unwrap();
    profile.cost.jitter = 0.0;
    profile.api.page_us = 50_000.0;
    let addr = serve(profile).await;
    let asked = clock.now();
    send(addr, "GET", "/metrics", "").await;
    // Timers of the runtime tick in milliseconds.
    assert!((50..=51).contains(&clock.now().since(asked).as_millis()), "{:?}", clock.now().since(asked));
    let asked = clock.now();
    chat(addr, hello(json!({}))).await;
    let alone = clock.now().since(asked);
    let asked = clock.now();
    let page = tokio::spawn(raw(addr, "GET", "/metrics", "", ""));
    tokio::time::sleep(Duration::from_millis(1)).await;
    chat(addr, hello(json!({}))).await;
    let behind = clock.now().since(asked);
    page.await.unwrap();
    assert!(behind >= alone + Duration::from_millis(49), "{behind:?} behind a page, {alone:?} alone");
}
