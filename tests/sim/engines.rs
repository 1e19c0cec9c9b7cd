//! Which request comes first, and which engine it goes to, as a client and the page see it.

use std::time::Duration;

use plimsoll::sim::Profile;
use plimsoll::sim::profile::Policy;
use serde_json::json;

use super::wire::{chat, hello, page, serve, value};

#[tokio::test(start_paused = true)]
async fn the_lowest_priority_number_is_served_first_where_the_policy_looks_at_it() {
    for (policy, want) in [(Policy::Fcfs, ["5", "0", "-1"]), (Policy::Priority, ["-1", "0", "5"])] {
        let mut profile = Profile::named("small-batch").unwrap();
        profile.engine.max_num_seqs = 1;
        profile.engine.policy = policy;
        let addr = serve(profile).await;
        let (ended, mut order) = tokio::sync::mpsc::unbounded_channel();
        let first = tokio::spawn(chat(addr, hello(json!({"max_tokens": 100, "min_tokens": 100}))));
        tokio::time::sleep(Duration::from_millis(100)).await;
        for priority in [5, 0, -1] {
            let ended = ended.clone();
            tokio::spawn(async move {
                let (_, body) = chat(addr, hello(json!({"priority": priority}))).await;
                assert!(body.contains("[DONE]"), "{body}");
                ended.send(priority.to_string()).unwrap();
            });
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let text = page(addr).await;
        assert_eq!(value(&text, "vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"}"), 1.0);
        assert_eq!(value(&text, "vllm:num_requests_waiting{engine=\"0\",model_name=\"tiny\"}"), 3.0);
        first.await.unwrap();
        for who in want {
            assert_eq!(order.recv().await.as_deref(), Some(who), "{policy:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_engine_has_its_own_requests_limits_and_series() {
    let mut profile = Profile::named("dp2").unwrap();
    profile.engine.max_num_seqs = 2;
    let addr = serve(profile).await;
    let body = |i: u32| {
        let content = format!("request {i}");
        let mut body = hello(json!({"max_tokens": 200, "min_tokens": 200}));
        body["model"] = json!("llama-3.1-8b");
        body["messages"] = json!([{"role": "user", "content": content}]);
        body
    };
    let streams: Vec<_> = (0..5).map(|i| tokio::spawn(chat(addr, body(i)))).collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let text = page(addr).await;
    let of = |family: &str| {
        [0, 1].map(|engine| value(&text, &format!("vllm:{family}{{engine=\"{engine}\",model_name=\"llama-3.1-8b\"}}")))
    };
    assert_eq!(of("num_requests_running"), [2.0, 2.0], "max_num_seqs is each engine's own");
    let waiting = of("num_requests_waiting");
    assert_eq!(waiting.iter().sum::<f64>(), 1.0, "{waiting:?}");
    assert!(of("kv_cache_usage_perc").iter().all(|usage| *usage > 0.0));
    for stream in streams {
        assert!(stream.await.unwrap().1.contains("[DONE]"));
    }
    let text = page(addr).await;
    let served: f64 = [0, 1]
        .iter()
        .map(|engine| {
            let labels = format!("engine=\"{engine}\",finished_reason=\"length\",model_name=\"llama-3.1-8b\"");
            value(&text, &format!("vllm:request_success_total{{{labels}}}"))
        })
        .sum();
    assert_eq!(served, 5.0);
}

#[tokio::test(start_paused = true)]
async fn names_that_were_dropped_say_what_their_successors_say() {
    let mut profile = Profile::named("small-pool").unwrap();
    profile.api.old_names = true;
    let addr = serve(profile).await;
    let stream = tokio::spawn(chat(addr, hello(json!({"max_tokens": 300, "min_tokens": 300}))));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let text = page(addr).await;
    let of = |name: &str| value(&text, &format!("vllm:{name}{{engine=\"0\",model_name=\"tiny\"}}"));
    assert!(of("kv_cache_usage_perc") > 0.0);
    for (old, new) in [
        ("gpu_cache_usage_perc", "kv_cache_usage_perc"),
        ("time_per_output_token_seconds_count", "inter_token_latency_seconds_count"),
        ("time_per_output_token_seconds_sum", "inter_token_latency_seconds_sum"),
        ("gpu_prefix_cache_queries_total", "prefix_cache_queries_total"),
        ("gpu_prefix_cache_hits_total", "prefix_cache_hits_total"),
    ] {
        assert_eq!(of(old), of(new), "{old}");
    }
    assert!(stream.await.unwrap().1.contains("[DONE]"));
}
