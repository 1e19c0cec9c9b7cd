//! The stand-in's API as a client meets it, under the paused clock.

use std::time::Duration;

use plimsoll::sim::{self, Profile};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A server of the profile and the address it listens on, for the life of the test's runtime.
async fn serve(profile: Profile) -> std::net::SocketAddr {
    let listener = sim::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(sim::serve(listener, profile, 7, std::future::pending()));
    addr
}

/// Sends one request and returns the whole response as it came, head and body.
async fn raw(addr: std::net::SocketAddr, method: &str, path: &str, more: &str, body: &str) -> (String, String) {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{more}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    // A cut connection ends in an error, after what came before it.
    let _ = stream.read_to_end(&mut text).await;
    let text = String::from_utf8(text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    (head.to_owned(), body.to_owned())
}

const JSON: &str = "content-type: application/json\r\n";

async fn chat(addr: std::net::SocketAddr, body: Value) -> (String, String) {
    raw(addr, "POST", "/v1/chat/completions", JSON, &body.to_string()).await
}

/// The payloads of a stream, in order.
fn events(body: &str) -> Vec<String> {
    body.lines().filter_map(|l| l.strip_prefix("data: ")).map(str::to_owned).collect()
}

fn hello(more: Value) -> Value {
    let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": "import os and count the files"}],
                          "stream": true, "max_tokens": 4, "min_tokens": 4, "ignore_eos": true});
    for (k, v) in more.as_object().unwrap() {
        body[k] = v.clone();
    }
    body
}

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
