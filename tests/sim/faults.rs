//! Faults on demand: what each does to the answers, to the page and to the clock, and that it ends.

use std::net::SocketAddr;
use std::time::Duration;

use plimsoll::model::time::{Clock, ClockKind};
use plimsoll::sim::Profile;
use serde_json::json;

use super::wire::{JSON, chat, events, hello, page, raw, serve, value};

/// A roomy server whose steps all take what is in them.
fn steady() -> Profile {
    let mut profile = Profile::named("roomy").unwrap();
    profile.cost.jitter = 0.0;
    profile
}

/// Asks for a fault, from now on.
async fn fault(addr: SocketAddr, text: &str) {
    let (head, body) = raw(addr, "POST", "/sim/faults", JSON, text).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head} {body}");
}

/// Sum and count of a latency that the page tells, in seconds.
async fn told(addr: SocketAddr, family: &str) -> (f64, f64) {
    let page = page(addr).await;
    let of = |part: &str| value(&page, &format!("vllm:{family}_seconds_{part}{{engine=\"0\",model_name=\"tiny\"}}"));
    (of("sum"), of("count"))
}

/// One answer of 32 tokens: the sums that it adds to TTFT and ITL, in seconds.
async fn one_answer(addr: SocketAddr) -> (f64, f64) {
    let before = (told(addr, "time_to_first_token").await.0, told(addr, "inter_token_latency").await.0);
    let (_, body) = chat(addr, hello(json!({"max_tokens": 32, "min_tokens": 32}))).await;
    assert!(body.contains("[DONE]"), "{body}");
    let after = (told(addr, "time_to_first_token").await.0, told(addr, "inter_token_latency").await.0);
    (after.0 - before.0, after.1 - before.1)
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-4 * a.abs().max(b.abs())
}

#[tokio::test(start_paused = true)]
async fn a_slow_engine_takes_its_factor_longer_for_each_step() {
    let addr = serve(steady()).await;
    let (_, normal) = one_answer(addr).await;
    fault(addr, r#"{"for":"30s","kind":{"slow":{"factor":3.0}}}"#).await;
    let (_, slow) = one_answer(addr).await;
    assert!(close(slow, 3.0 * normal), "{slow} against three times {normal}");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(close(one_answer(addr).await.1, normal), "and no longer than its window");
}

#[tokio::test(start_paused = true)]
async fn a_lagging_event_loop_delays_first_tokens_and_no_step() {
    let addr = serve(steady()).await;
    let (ttft, itl) = one_answer(addr).await;
    fault(addr, r#"{"for":"30s","kind":{"lag":{"delay":"200ms"}}}"#).await;
    let (late, same) = one_answer(addr).await;
    assert!(close(late - ttft, 0.4), "once for the request and once for the output: {ttft} to {late}");
    assert!(close(same, itl), "the engine's own stamps stay: {itl} to {same}");
}

#[tokio::test(start_paused = true)]
async fn a_share_of_the_connections_is_dropped_and_the_page_is_not() {
    let addr = serve(steady()).await;
    fault(addr, r#"{"for":"60s","kind":{"drop":{"share":0.5}}}"#).await;
    let mut whole = 0;
    for _ in 0..40 {
        let (head, body) = chat(addr, hello(json!({}))).await;
        if head.is_empty() {
            assert_eq!(body, "", "closed without a byte");
        } else {
            assert!(body.contains("[DONE]"), "{body}");
            whole += 1;
        }
    }
    assert!((10..=30).contains(&whole), "{whole} of 40");
    let page = page(addr).await;
    let served = "vllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name=\"tiny\"}";
    assert_eq!(value(&page, served), f64::from(whole), "a dropped request never reaches the engine");
    tokio::time::sleep(Duration::from_secs(60)).await;
    for _ in 0..10 {
        assert!(chat(addr, hello(json!({}))).await.1.contains("[DONE]"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_stream_breaks_off_after_its_messages_and_never_counts_as_finished() {
    let addr = serve(steady()).await;
    fault(addr, r#"{"for":"1s","kind":{"cut":{"share":1.0,"after":2}}}"#).await;
    let (head, body) = chat(addr, hello(json!({"max_tokens": 100, "min_tokens": 100}))).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(!body.contains("[DONE]") && events(&body).len() == 3, "the role and two tokens: {body}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let page = page(addr).await;
    for reason in ["length", "stop", "abort"] {
        let series =
            format!("vllm:request_success_total{{engine=\"0\",finished_reason=\"{reason}\",model_name=\"tiny\"}}");
        assert_eq!(value(&page, &series), 0.0, "{reason}");
    }
    assert_eq!(value(&page, "vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"}"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_server_says_503_and_its_page_goes_on() {
    let addr = serve(steady()).await;
    fault(addr, r#"{"for":"10s","kind":"unavailable"}"#).await;
    let (head, body) = chat(addr, hello(json!({}))).await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert_eq!(body, include_str!("../captures/sim/err-busy-stream.body"));
    let text = page(addr).await;
    assert_eq!(
        value(&text, "http_requests_total{handler=\"/v1/chat/completions\",method=\"POST\",status=\"5xx\"}"),
        1.0
    );
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(chat(addr, hello(json!({}))).await.1.contains("[DONE]"));
}

#[tokio::test(start_paused = true)]
async fn a_frozen_engine_stands_still_behind_a_page_that_answers() {
    let clock = Clock::start(ClockKind::Simulated);
    let addr = serve(steady()).await;
    let steps = "vllm:iteration_tokens_total_count{engine=\"0\",model_name=\"tiny\"}";
    let running = "vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"}";
    let stream = tokio::spawn(chat(addr, hello(json!({"max_tokens": 400, "min_tokens": 400}))));
    tokio::time::sleep(Duration::from_secs(1)).await;
    fault(addr, r#"{"for":"20s","kind":"freeze"}"#).await;
    // What was on its way when the engine froze still arrives.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let frozen = page(addr).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    let later = page(addr).await;
    assert_eq!(value(&frozen, running), 1.0);
    assert_eq!(value(&later, running), 1.0);
    assert_eq!(value(&later, steps), value(&frozen, steps), "no step in fifteen seconds");
    assert!(stream.await.unwrap().1.contains("[DONE]"), "and it goes on where it stood");
    assert!(clock.now().as_duration() >= Duration::from_secs(21));
    assert!(value(&page(addr).await, steps) > value(&frozen, steps));
}

#[tokio::test(start_paused = true)]
async fn a_slow_page_is_late_by_its_delay_and_holds_up_no_answer() {
    let clock = Clock::start(ClockKind::Simulated);
    let addr = serve(steady()).await;
    fault(addr, r#"{"for":"5s","kind":{"slow_page":{"delay":"3s"}}}"#).await;
    let before = clock.now();
    assert!(chat(addr, hello(json!({}))).await.1.contains("[DONE]"));
    assert!(clock.now().since(before) < Duration::from_millis(200));
    let before = clock.now();
    let late = page(addr).await;
    assert!(late.contains("vllm:num_requests_running"));
    let took = clock.now().since(before);
    assert!((3.0..3.1).contains(&took.as_secs_f64()), "{took:?}");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = clock.now();
    page(addr).await;
    assert!(clock.now().since(before) < Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn a_restart_cuts_streams_and_begins_with_new_counters_and_an_empty_cache() {
    let addr = serve(steady()).await;
    let prompt = json!({"messages": [{"role": "user", "content": "word ".repeat(300)}]});
    let hits = "vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"tiny\"}";
    let tokens = "vllm:generation_tokens_total{engine=\"0\",model_name=\"tiny\"}";
    let born = "process_start_time_seconds";
    chat(addr, hello(prompt.clone())).await;
    chat(addr, hello(prompt.clone())).await;
    let before = page(addr).await;
    assert!(value(&before, hits) > 0.0, "the second prompt is found");
    assert_eq!(value(&before, tokens), 8.0);

    fault(addr, r#"{"at":"1s","for":"2s","kind":"restart"}"#).await;
    let cut = chat(addr, hello(json!({"max_tokens": 4000, "min_tokens": 4000}))).await;
    assert!(cut.0.starts_with("HTTP/1.1 200 "), "{}", cut.0);
    assert!(!cut.1.contains("[DONE]"), "the stream breaks off when the server dies");
    assert_eq!(raw(addr, "GET", "/metrics", "", "").await.0, "", "nobody answers while it is down");
    tokio::time::sleep(Duration::from_secs(3)).await;

    let after = page(addr).await;
    assert_eq!(value(&after, tokens), 0.0, "new counters");
    assert!(value(&after, born) > value(&before, born) + 1.0, "of a new process");
    chat(addr, hello(prompt)).await;
    let after = page(addr).await;
    assert_eq!(value(&after, hits), 0.0, "that remembers no prompt");
    assert_eq!(value(&after, tokens), 4.0);
}

#[tokio::test(start_paused = true)]
async fn a_throttled_gpu_slows_every_step_and_says_so() {
    let addr = serve(steady()).await;
    let clock = |page: &str| {
        let line = page.lines().find(|l| l.starts_with("DCGM_FI_DEV_SM_CLOCK{")).expect("the clock is on the page");
        line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()
    };
    let (_, normal) = one_answer(addr).await;
    let full = clock(&raw(addr, "GET", "/dcgm/metrics", "", "").await.1);
    fault(addr, r#"{"for":"30s","kind":{"throttle":{"clock":0.5}}}"#).await;
    let (_, slow) = one_answer(addr).await;
    let half = clock(&raw(addr, "GET", "/dcgm/metrics", "", "").await.1);
    assert!(close(slow, 2.0 * normal), "{slow} against twice {normal}");
    assert_eq!(half, full / 2.0);
}

#[tokio::test(start_paused = true)]
async fn a_fault_that_is_none_is_refused_by_name() {
    let addr = serve(steady()).await;
    for (text, named) in [
        (r#"{"kind":{"slow":{"factr":3.0}}}"#, "factr"),
        (r#"{"kind":"explode"}"#, "explode"),
        (r#"{"kind":"freeze","until":"3s"}"#, "until"),
    ] {
        let (head, body) = raw(addr, "POST", "/sim/faults", JSON, text).await;
        assert!(head.starts_with("HTTP/1.1 400 ") && body.contains(named), "{text}: {head} {body}");
    }
}
