//! The stand-in's metrics page beside captured pages of a real vLLM 0.31.0.

use std::net::SocketAddr;
use std::time::Duration;

use plimsoll::sim::{self, Profile};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn serve(profile: Profile) -> SocketAddr {
    let listener = sim::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(sim::serve(listener, profile, 7, std::future::pending()));
    addr
}

async fn send(addr: SocketAddr, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text.split_once("\r\n\r\n").unwrap().1.to_owned()
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
