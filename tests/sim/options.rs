//! Ways of asking and of serving that change the shape of an answer, under the paused clock.

use std::net::SocketAddr;

use plimsoll::sim::Profile;
use serde_json::{Value, json};

use super::wire::{chat, dechunked, events, hello, page, serve, value};

/// The chunks of a streamed answer, without its `[DONE]`.
async fn stream(addr: SocketAddr, more: Value) -> Vec<Value> {
    let (head, body) = chat(addr, hello(more)).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head} {body}");
    let mut events = events(&dechunked(&body));
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    events.iter().map(|e| serde_json::from_str(e).unwrap()).collect()
}

async fn whole(addr: SocketAddr, more: Value) -> Value {
    let mut body = hello(more);
    body["stream"] = json!(false);
    let (head, body) = chat(addr, body).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head} {body}");
    serde_json::from_str(&body).unwrap()
}

fn exactly(tokens: usize, more: Value) -> Value {
    let mut body = more;
    (body["max_tokens"], body["min_tokens"]) = (json!(tokens), json!(tokens));
    body
}

#[tokio::test(start_paused = true)]
async fn a_stream_interval_gathers_tokens_and_sends_the_first_at_once() {
    let mut profile = Profile::named("roomy").unwrap();
    profile.api.stream_interval = 4;
    let addr = serve(profile).await;
    let usage = json!({"stream_options": {"include_usage": true, "continuous_usage_stats": true}});
    let chunks = stream(addr, exactly(11, usage)).await;
    let so_far: Vec<u64> = chunks.iter().map(|c| c["usage"]["completion_tokens"].as_u64().unwrap()).collect();
    assert_eq!(so_far, [0, 1, 5, 9, 11, 11], "the role, one, four, four, the rest, and the sum");
    let text = page(addr).await;
    let gaps = "vllm:inter_token_latency_seconds_count{engine=\"0\",model_name=\"tiny\"}";
    assert_eq!(value(&text, gaps), 10.0, "the server's own gaps are those of its steps");
}

#[tokio::test(start_paused = true)]
async fn reasoning_comes_before_content_and_in_a_field_of_its_own() {
    let mut profile = Profile::named("roomy").unwrap();
    profile.api.reasoning_tokens = 3;
    let addr = serve(profile).await;
    let chunks = stream(addr, exactly(8, json!({}))).await;
    let fields: Vec<&str> = chunks[1..]
        .iter()
        .map(|c| c["choices"][0]["delta"].as_object().unwrap().keys().next().unwrap().as_str())
        .collect();
    assert_eq!(fields, ["reasoning", "reasoning", "reasoning", "content", "content", "content", "content", "content"]);
    let answer = whole(addr, exactly(8, json!({"temperature": 0}))).await;
    let message = &answer["choices"][0]["message"];
    let words = |field: &str| message[field].as_str().unwrap().split_whitespace().count();
    assert_eq!((words("reasoning"), words("content")), (3, 5));
    assert_eq!(answer["usage"]["completion_tokens"], 8, "reasoning counts");
}

#[tokio::test(start_paused = true)]
async fn a_forced_tool_call_streams_its_name_once_and_its_arguments_in_parts() {
    let addr = serve(Profile::named("roomy").unwrap()).await;
    let tools = json!({"tools": [{"type": "function", "function": {"name": "count_files", "parameters": {}}}],
                       "tool_choice": "required"});
    let chunks = stream(addr, exactly(5, tools.clone())).await;
    let calls: Vec<&Value> = chunks[1..].iter().map(|c| &c["choices"][0]["delta"]["tool_calls"][0]).collect();
    assert_eq!(calls.len(), 5);
    assert_eq!(calls[0]["function"]["name"], "count_files");
    assert_eq!(calls[0]["type"], "function");
    assert!(calls[0]["id"].as_str().unwrap().starts_with("chatcmpl-tool-"));
    for call in &calls[1..] {
        assert!(call.get("id").is_none() && call["function"].get("name").is_none(), "{call}");
        assert!(call["function"]["arguments"].is_string(), "{call}");
    }
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    let answer = whole(addr, exactly(5, tools)).await;
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["content"], Value::Null);
    assert_eq!(message["tool_calls"][0]["function"]["name"], "count_files");
    // A tool that is only offered changes nothing: the model answers in words.
    let offered = json!({"tools": [{"type": "function", "function": {"name": "count_files"}}]});
    let answer = whole(addr, exactly(5, offered)).await;
    assert!(answer["choices"][0]["message"]["content"].is_string());
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
}

#[tokio::test(start_paused = true)]
async fn several_answers_to_one_request_are_requests_of_their_own_to_the_engine() {
    let addr = serve(Profile::named("roomy").unwrap()).await;
    let chunks = stream(addr, exactly(4, json!({"n": 3, "stream_options": {"include_usage": true}}))).await;
    for index in 0..3 {
        let own: Vec<&Value> =
            chunks.iter().filter_map(|c| c["choices"].get(0).filter(|c| c["index"] == index)).collect();
        assert_eq!(own.len(), 5, "the role and four tokens of choice {index}");
        assert_eq!(own[0]["delta"]["role"], "assistant");
        assert_eq!(own[4]["finish_reason"], "length");
    }
    let last = chunks.last().unwrap();
    assert_eq!((&last["usage"]["completion_tokens"], &last["usage"]["prompt_tokens"]), (&json!(12), &json!(16)));
    let text = page(addr).await;
    for (series, want) in [
        ("vllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name=\"tiny\"}", 3.0),
        ("vllm:request_params_n_sum{engine=\"0\",model_name=\"tiny\"}", 3.0),
        ("vllm:request_params_n_count{engine=\"0\",model_name=\"tiny\"}", 1.0),
        ("vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"tiny\"}", 3.0),
    ] {
        assert_eq!(value(&text, series), want, "{series}");
    }
    let answer = whole(addr, exactly(4, json!({"n": 2}))).await;
    assert_eq!(answer["choices"].as_array().unwrap().len(), 2);
    assert_ne!(answer["choices"][0]["message"]["content"], answer["choices"][1]["message"]["content"]);
}

#[tokio::test(start_paused = true)]
async fn accepted_drafts_come_in_one_chunk_and_the_page_counts_them() {
    let mut profile = Profile::named("spec").unwrap();
    let speculative = profile.engine.speculative.as_mut().unwrap();
    (speculative.draft_rate, speculative.acceptance) = (1.0, vec![1.0, 1.0, 0.0]);
    let addr = serve(profile).await;
    let usage = json!({"temperature": 0, "stream_options": {"include_usage": true, "continuous_usage_stats": true}});
    let chunks = stream(addr, exactly(10, usage)).await;
    let so_far: Vec<u64> = chunks.iter().map(|c| c["usage"]["completion_tokens"].as_u64().unwrap()).collect();
    assert_eq!(so_far, [0, 1, 4, 7, 10, 10], "one, then two drafts and a token more each step");
    let text = page(addr).await;
    for (family, want) in [("drafts", 3.0), ("draft_tokens", 9.0), ("accepted_tokens", 6.0)] {
        let series = format!("vllm:spec_decode_num_{family}_total{{engine=\"0\",model_name=\"tiny\"}}");
        assert_eq!(value(&text, &series), want, "{family}");
    }
    for (position, want) in [(0, 3.0), (1, 3.0), (2, 0.0)] {
        let series = format!(
            "vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine=\"0\",model_name=\"tiny\",position=\"{position}\"}}"
        );
        assert_eq!(value(&text, &series), want, "position {position}");
    }
}
