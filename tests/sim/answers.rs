//! Answers as a client meets them, beside captured ones, under the paused clock.

use std::time::Duration;

use plimsoll::sim::{self, Profile};
use serde_json::{Value, json};

use super::wire::{JSON, chat, dechunked, events, hello, raw, serve};

#[tokio::test(start_paused = true)]
async fn a_stream_has_the_shape_of_a_captured_one() {
    let addr = serve(Profile::named("roomy").unwrap()).await;
    let (head, body) =
        chat(addr, hello(json!({"stream_options": {"include_usage": true, "continuous_usage_stats": true}}))).await;
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(head.contains("content-type: text/event-stream; charset=utf-8"), "{head}");
    assert!(head.contains("server: uvicorn"), "{head}");
    let events = events(&body);
    assert_eq!(events.len(), 7, "{body}");
    assert!(events[0].contains(r#""delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":16,"total_tokens":16,"completion_tokens":0,"completion_tokens_details":null},"prompt_token_ids":null,"prompt_text":null}"#));
    assert!(events[1].contains(r#""finish_reason":null,"token_ids":null}],"usage":{"prompt_tokens":16,"total_tokens":17,"completion_tokens":1,"completion_tokens_details":null}}"#));
    assert!(events[4].contains(r#""finish_reason":"length","stop_reason":null,"token_ids":null}],"usage""#));
    assert!(events[5].contains(r#""choices":[],"usage":{"prompt_tokens":16,"total_tokens":20,"completion_tokens":4},"system_fingerprint":"vllm-0.31.0-"#));
    assert_eq!(events[6], "[DONE]");
}

#[tokio::test(start_paused = true)]
async fn the_metrics_page_counts_what_was_served() {
    let addr = serve(Profile::named("roomy").unwrap()).await;
    chat(addr, hello(json!({}))).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (head, page) = raw(addr, "GET", "/metrics", "", "").await;
    assert!(head.contains("content-type: text/plain; version=1.0.0; charset=utf-8"), "{head}");
    for line in [
        "vllm:prompt_tokens_total{engine=\"0\",model_name=\"tiny\"} 16.0",
        "vllm:generation_tokens_total{engine=\"0\",model_name=\"tiny\"} 4.0",
        "vllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name=\"tiny\"} 1.0",
        "vllm:inter_token_latency_seconds_count{engine=\"0\",model_name=\"tiny\"} 3.0",
        "vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} 0.0",
        "http_requests_total{handler=\"/v1/chat/completions\",method=\"POST\",status=\"2xx\"} 1.0",
    ] {
        assert!(page.lines().any(|l| l == line), "{line} is not in\n{page}");
    }
}

/// Replaces what differs from run to run: ids, instants, words, fingerprints, counts, token ids; then
/// names runs of equal chunks once, since a real tokenizer may hold half a character back.
fn bleached(text: &str) -> Vec<String> {
    fn bleach(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    match key.as_str() {
                        "id" | "created" | "content" | "text" | "system_fingerprint" => *value = json!("*"),
                        "time_to_first_token_ms"
                        | "generation_time_ms"
                        | "queue_time_ms"
                        | "mean_itl_ms"
                        | "tokens_per_second" => *value = json!("*"),
                        "prompt_tokens" | "completion_tokens" | "total_tokens" | "max_model_len" => *value = json!(0),
                        "token_ids" | "prompt_token_ids" | "tokens" if !value.is_null() => *value = json!("*"),
                        _ => bleach(value),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(bleach),
            _ => {}
        }
    }
    let mut lines: Vec<String> = text
        .lines()
        .filter(|l| !l.is_empty())
        .map(|l| match serde_json::from_str::<Value>(l.strip_prefix("data: ").unwrap_or(l)) {
            Ok(mut value) => {
                bleach(&mut value);
                value.to_string()
            }
            Err(_) => l.to_owned(),
        })
        .collect();
    lines.dedup();
    lines
}

#[tokio::test(start_paused = true)]
async fn answers_have_the_fields_of_captured_ones_in_their_order() {
    let mut profile = Profile::named("roomy").unwrap();
    profile.api.per_request_metrics = true;
    let addr = serve(profile.clone()).await;
    profile.api.prompt_tokens_details = true;
    let detailed = serve(profile).await;
    let usage = json!({"include_usage": true});
    let continuous = json!({"include_usage": true, "continuous_usage_stats": true});
    let n = |n: usize, more: Value| {
        let mut body = hello(more);
        (body["max_tokens"], body["min_tokens"]) = (json!(n), json!(n));
        body
    };
    for (name, addr, path, body, captured) in [
        ("bare", addr, "/v1/chat/completions", n(12, json!({})), include_str!("../captures/sim/sse-no-usage.body")),
        (
            "usage",
            addr,
            "/v1/chat/completions",
            n(12, json!({"stream_options": usage})),
            include_str!("../captures/sim/sse-usage.body"),
        ),
        (
            "continuous",
            addr,
            "/v1/chat/completions",
            n(12, json!({"stream_options": continuous})),
            include_str!("../captures/sim/sse-continuous.body"),
        ),
        (
            "whole",
            addr,
            "/v1/chat/completions",
            n(12, json!({"stream": false})),
            include_str!("../captures/sim/chat-nonstream.body"),
        ),
        (
            "text",
            addr,
            "/v1/completions",
            json!({"prompt": "a b c", "max_tokens": 6, "min_tokens": 6, "ignore_eos": true, "stream": true, "stream_options": continuous}),
            include_str!("../captures/sim/sse-completions.body"),
        ),
        (
            "token ids",
            addr,
            "/v1/chat/completions",
            n(3, json!({"stream_options": continuous, "return_token_ids": true})),
            include_str!("../captures/sim/sse-request-id.body"),
        ),
        (
            "own metrics",
            detailed,
            "/v1/chat/completions",
            n(4, json!({"stream_options": continuous, "include_metrics": true})),
            include_str!("../captures/sim/sse-per-request-metrics.body"),
        ),
    ] {
        let (_, answer) = raw(addr, "POST", path, JSON, &body.to_string()).await;
        let answer: String = dechunked(&answer);
        assert_eq!(bleached(&answer), bleached(captured), "{name}");
    }
    for (path, captured) in [
        ("/v1/models", include_str!("../captures/sim/models.body")),
        ("/version", include_str!("../captures/sim/version.body")),
    ] {
        let (_, answer) = raw(addr, "GET", path, "", "").await;
        assert_eq!(bleached(&answer), bleached(captured), "{path}");
    }
    let (_, answer) = raw(
        addr,
        "POST",
        "/tokenize",
        JSON,
        r#"{"messages":[{"role":"user","content":"import os and count the files"}]}"#,
    )
    .await;
    assert_eq!(bleached(&answer), bleached(include_str!("../captures/sim/tokenize-chat.body")));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_is_never_counted_as_finished() {
    let addr = serve(Profile::named("roomy").unwrap()).await;
    let leaving = tokio::time::timeout(
        Duration::from_secs(1),
        chat(addr, hello(json!({"max_tokens": 4000, "min_tokens": 4000}))),
    );
    assert!(leaving.await.is_err());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (_, page) = raw(addr, "GET", "/metrics", "", "").await;
    for line in [
        "vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} 0.0",
        "vllm:request_success_total{engine=\"0\",finished_reason=\"abort\",model_name=\"tiny\"} 0.0",
        "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"tiny\"} 1.0",
        "vllm:e2e_request_latency_seconds_count{engine=\"0\",model_name=\"tiny\"} 0.0",
    ] {
        assert!(page.lines().any(|l| l == line), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_told_to_end_ends_its_streams_as_aborted() {
    let listener = sim::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(sim::serve(listener, Profile::named("roomy").unwrap(), 7, async {
        let _ = stopped.await;
    }));
    let client = tokio::spawn(chat(addr, hello(json!({"max_tokens": 4000, "min_tokens": 4000}))));
    tokio::time::sleep(Duration::from_secs(1)).await;
    stop.send(()).unwrap();
    let body = client.await.unwrap().1;
    assert!(body.contains(r#""finish_reason":"abort""#) && body.contains("[DONE]"), "{body}");
    server.await.unwrap().unwrap();
}

/// All bytes that 32 clients and a scraper receive in ten simulated seconds.
fn everything(seed: u64) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let listener = sim::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(sim::serve(listener, Profile::named("small-pool").unwrap(), seed, std::future::pending()));
        let clients: Vec<_> = (0..32)
            .map(|i| {
                tokio::spawn(async move {
                    let mut all = String::new();
                    for turn in 0..2 {
                        let content = format!("client {i} turn {turn} {}", "word ".repeat(300));
                        let body = hello(json!({"max_tokens": 20, "min_tokens": 20,
                                                "messages": [{"role": "user", "content": content}]}));
                        all += &chat(addr, body).await.1;
                    }
                    all
                })
            })
            .collect();
        let mut all = Vec::new();
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            all.push(raw(addr, "GET", "/metrics", "", "").await.1);
        }
        for client in clients {
            all.push(client.await.unwrap());
        }
        all
    })
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let first = everything(1);
    assert!(
        first.iter().any(|page| page.contains("num_requests_waiting{engine=\"0\",model_name=\"tiny\"} 2")),
        "someone waits"
    );
    assert!(first == everything(1));
    assert!(first != everything(2));
}
