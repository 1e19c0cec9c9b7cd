//! What the stand-in refuses, and in which words, under the paused clock.

use std::time::Duration;

use plimsoll::sim::Profile;
use serde_json::json;

use super::wire::{JSON, chat, hello, raw, serve};

#[tokio::test(start_paused = true)]
async fn refusals_are_those_of_a_real_server() {
    let addr = serve(Profile::named("roomy").unwrap()).await;
    let words = "word ".repeat(9_000);
    let long = json!({"model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": words}]}).to_string();
    let ok = |more: &str| format!(r#"{{"messages":[{{"role":"user","content":"hi"}}],"model":"tiny"{more}}}"#);
    for (name, status, method, path, head, body, captured) in [
        ("404", 404, "GET", "/nope", JSON, String::new(), include_str!("../captures/sim/err-404.body")),
        ("405", 405, "GET", "/v1/chat/completions", JSON, String::new(), include_str!("../captures/sim/err-405.body")),
        (
            "type",
            400,
            "POST",
            "/v1/chat/completions",
            JSON,
            ok(r#","max_tokens":"x""#),
            include_str!("../captures/sim/err-bad-type.body"),
        ),
        (
            "too big",
            400,
            "POST",
            "/v1/chat/completions",
            JSON,
            ok(r#","max_tokens":9000"#),
            include_str!("../captures/sim/err-max-tokens-too-big.body"),
        ),
        (
            "zero",
            400,
            "POST",
            "/v1/chat/completions",
            JSON,
            ok(r#","max_tokens":0"#),
            include_str!("../captures/sim/err-max-tokens-zero.body"),
        ),
        (
            "min",
            400,
            "POST",
            "/v1/chat/completions",
            JSON,
            ok(r#","max_tokens":4,"min_tokens":9"#),
            include_str!("../captures/sim/err-min-gt-max.body"),
        ),
        (
            "missing",
            400,
            "POST",
            "/v1/chat/completions",
            JSON,
            r#"{"model":"tiny"}"#.into(),
            include_str!("../captures/sim/err-missing-messages.body"),
        ),
        (
            "media",
            400,
            "POST",
            "/v1/chat/completions",
            "",
            ok(""),
            include_str!("../captures/sim/err-no-content-type.body"),
        ),
        (
            "long",
            400,
            "POST",
            "/v1/chat/completions",
            JSON,
            long,
            include_str!("../captures/sim/err-prompt-too-long.body"),
        ),
        (
            "options",
            400,
            "POST",
            "/v1/chat/completions",
            JSON,
            ok(r#","stream_options":{"include_usage":true}"#),
            include_str!("../captures/sim/err-stream-options-without-stream.body"),
        ),
        (
            "model",
            404,
            "POST",
            "/v1/chat/completions",
            JSON,
            ok("").replace("tiny", "nope"),
            include_str!("../captures/sim/err-unknown-model.body"),
        ),
    ] {
        let (head, answer) = raw(addr, method, path, head, &body).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{name}: {head}");
        assert_eq!(answer, captured, "{name}");
    }
    let (head, answer) =
        raw(addr, "POST", "/v1/chat/completions", JSON, "{\"model\": \"tiny\", \"messages\": x}").await;
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    assert!(answer.contains("JSON decode error"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_key_is_asked_for_under_v1_alone() {
    let mut profile = Profile::named("roomy").unwrap();
    profile.api.api_key = Some("s3cret".into());
    let addr = serve(profile).await;
    for (path, key, status) in [
        ("/v1/models", None, 401),
        ("/v1/models", Some("wrong"), 401),
        ("/v1/models", Some("s3cret"), 200),
        ("/metrics", None, 200),
        ("/health", None, 200),
        ("/version", None, 200),
    ] {
        let head = key.map_or(String::new(), |k| format!("authorization: Bearer {k}\r\n"));
        let (answer, body) = raw(addr, "GET", path, &head, "").await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path} with {key:?}: {answer}");
        if status == 401 {
            assert_eq!(body, include_str!("../captures/sim/auth-none.body"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_with_503() {
    let mut profile = Profile::named("roomy").unwrap();
    profile.api.max_num_queued_reqs = Some(1);
    let addr = serve(profile).await;
    let slow = tokio::spawn(chat(addr, hello(json!({"max_tokens": 200, "min_tokens": 200}))));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (head, body) = chat(addr, hello(json!({}))).await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert_eq!(body, include_str!("../captures/sim/err-busy-stream.body"));
    assert!(slow.await.unwrap().1.contains("[DONE]"));
}

#[tokio::test(start_paused = true)]
async fn the_cache_is_reset_only_in_development_mode() {
    let addr = serve(Profile::named("roomy").unwrap()).await;
    let (head, _) = raw(addr, "POST", "/reset_prefix_cache", "", "").await;
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    let mut profile = Profile::named("roomy").unwrap();
    profile.api.dev_mode = true;
    let addr = serve(profile).await;
    let slow = tokio::spawn(chat(addr, hello(json!({"max_tokens": 200, "min_tokens": 200}))));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (_, body) = raw(addr, "POST", "/reset_prefix_cache", "", "").await;
    assert_eq!(body, r#"{"success":false}"#, "while a request runs");
    slow.await.unwrap();
    let (_, body) = raw(addr, "POST", "/reset_prefix_cache", "", "").await;
    assert_eq!(body, r#"{"success":true}"#);
}

#[tokio::test(start_paused = true)]
async fn prompt_tokens_that_have_not_started_fill_a_queue_too() {
    let mut profile = Profile::named("small-batch").unwrap();
    profile.engine.max_num_seqs = 1;
    profile.api.max_num_queued_tokens = Some(20);
    let addr = serve(profile).await;
    let long = || hello(json!({"max_tokens": 100, "min_tokens": 100}));
    let running = tokio::spawn(chat(addr, long()));
    // Its 16 tokens no longer count once it has its first token.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let waiting: Vec<_> = (0..2).map(|_| tokio::spawn(chat(addr, long()))).collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (head, body) = chat(addr, hello(json!({}))).await;
    assert!(head.starts_with("HTTP/1.1 503 "), "32 tokens wait where 20 may: {head}");
    assert_eq!(body, include_str!("../captures/sim/err-busy-stream.body"));
    assert!(running.await.unwrap().1.contains("[DONE]"));
    for stream in waiting {
        assert!(stream.await.unwrap().1.contains("[DONE]"), "16 tokens were below the cap");
    }
    assert!(chat(addr, hello(json!({}))).await.0.starts_with("HTTP/1.1 200 "));
}
