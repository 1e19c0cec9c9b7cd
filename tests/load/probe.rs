//! Probing: every way in which a target can be wrong is one line and a hint; what a server does not take is not sent.

use std::sync::{Arc, Mutex};

use crate::scripted::{self, Answer, Log, Script};
use plimsoll::load::{ProbeError, Target, TargetSpec, probe_with};
use plimsoll::model::request::FailureClass;
use plimsoll::model::time::{Clock, ClockKind};
use plimsoll::workload::{FixedSpec, Workload, WorkloadSpec};

const MODELS: &str =
    r#"{"object":"list","data":[{"id":"tiny","owned_by":"vllm","max_model_len":512},{"id":"tiny-lora"}]}"#;

fn route(script: &mut Script, path: &str, status: u16, body: &str) {
    script.routes.insert(path.into(), (status, "application/json".into(), body.into()));
}

/// An answer of two tokens, with a running count if `running`.
fn answer(running: bool) -> Answer {
    let usage = |n: u32| {
        if running { format!(r#","usage":{{"prompt_tokens":12,"completion_tokens":{n}}}"#) } else { String::new() }
    };
    let text = [
        format!(r#"data: {{"choices":[{{"delta":{{"content":"a"}}}}]{}}}"#, usage(1)),
        format!(r#"data: {{"choices":[{{"delta":{{"content":"b"}},"finish_reason":"length"}}]{}}}"#, usage(4)),
        r#"data: {"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":4},"metrics":{"queue_time_ms":2.5}}"#
            .into(),
        "data: [DONE]".into(),
    ];
    let lines = text.iter().map(|t| serde_json::json!({"at_ms": 1, "text": format!("{t}\n\n")}).to_string());
    Answer {
        status: 200,
        headers: Vec::new(),
        framing: "chunked".into(),
        headers_at: std::time::Duration::ZERO,
        lines: scripted::lines(&lines.collect::<Vec<_>>().join("\n")),
    }
}

fn refusal(status: u16, body: &str) -> Answer {
    let line = serde_json::json!({"at_ms": 1, "text": body}).to_string();
    Answer {
        status,
        headers: vec![("Content-Type".into(), "application/json".into())],
        framing: "length".into(),
        headers_at: std::time::Duration::ZERO,
        lines: scripted::lines(&line),
    }
}

fn script(answers: Vec<Answer>) -> Script {
    let mut script = Script { answers, ..Script::default() };
    route(&mut script, "/v1/models", 200, MODELS);
    script
}

fn probe(script: Script, spec: TargetSpec) -> (Result<Target, ProbeError>, Arc<Mutex<Log>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (url, log) = scripted::serve(script).await;
        let spec = TargetSpec { url: spec.url.replace("URL", &url), ..spec };
        let clock = Clock::start(ClockKind::Simulated);
        (probe_with(&spec, &clock, |_| None).await, log)
    })
}

fn at_url() -> TargetSpec {
    TargetSpec { url: "URL".into(), ..TargetSpec::default() }
}

#[test]
fn a_target_that_is_wrong_is_one_line_and_a_hint() {
    let with = |path: &str, status, body: &str| {
        let mut s = script(vec![answer(true)]);
        route(&mut s, path, status, body);
        s
    };
    let named = |model: &str| TargetSpec { model: Some(model.into()), ..at_url() };
    for (script, spec, says, hint) in [
        (
            script(vec![]),
            TargetSpec { url: "http://127.0.0.1:1".into(), ..at_url() },
            "cannot reach http://127.0.0.1:1: Connection refused",
            "is the server up",
        ),
        (Script::default(), at_url(), "is no OpenAI-compatible API: status 404", "base"),
        (with("/v1/models", 200, "<html>welcome</html>"), at_url(), "is no OpenAI-compatible API", "base"),
        (
            with("/v1/models", 401, r#"{"error":"Unauthorized"}"#),
            at_url(),
            "refuses the API key: status 401, Unauthorized",
            "api_key_env",
        ),
        (with("/v1/models", 200, r#"{"data":[]}"#), at_url(), "lists no model", "--model"),
        (
            script(vec![]),
            named("Tiny-loda"),
            "model `Tiny-loda` is not served, expected one of `tiny`, `tiny-lora`",
            "did you mean `tiny-lora`?",
        ),
        (
            script(vec![refusal(403, r#"{"error":{"message":"no"}}"#)]),
            at_url(),
            "refuses the API key: status 403, no",
            "key",
        ),
        (
            script(vec![refusal(503, r#"{"error":{"message":"busy"}}"#)]),
            at_url(),
            "refuses a chat completion: status 503, busy",
            "busy",
        ),
        (
            script(vec![refusal(404, r#"{"detail":"Not Found"}"#)]),
            at_url(),
            "is no OpenAI-compatible API: Not Found",
            "base",
        ),
        (
            script(vec![refusal(200, r#"{"choices":[{"message":{"content":"x"}}]}"#)]),
            at_url(),
            "a chat completion failed (not_streamed)",
            "streaming",
        ),
        (
            script(vec![]),
            TargetSpec { url: "ftp://h".into(), ..at_url() },
            "base URL `ftp://h`: its scheme is ftp",
            "address",
        ),
        (
            script(vec![]),
            TargetSpec { api_key_env: Some("NO_SUCH".into()), ..at_url() },
            "names `NO_SUCH`, which is not set",
            "export NO_SUCH",
        ),
        (script(vec![]), TargetSpec { ca_file: Some("no-such.pem".into()), ..at_url() }, "ca_file no-such.pem", "PEM"),
    ] {
        let e = probe(script, spec).0.unwrap_err();
        assert!(e.to_string().contains(says), "{e}\n  lacks: {says}");
        assert!(!e.to_string().contains('\n') && !e.hint().contains('\n'), "{e}");
        assert!(e.hint().contains(hint), "{e}\n  hint: {}\n  lacks: {hint}", e.hint());
    }
}

#[test]
fn what_the_server_takes_is_learnt_from_one_completion() {
    let (target, log) = probe(script(vec![answer(true)]), at_url());
    let target = target.unwrap();
    assert_eq!(target.facts.model, "tiny");
    assert_eq!(target.facts.engine.as_deref(), Some("vllm"));
    assert_eq!(target.facts.max_model_len, Some(512));
    assert!(target.facts.continuous_usage && target.facts.exact_output && target.facts.per_request_metrics);
    assert!(!target.facts.tokenize);
    let body = &log.lock().unwrap().bodies[0];
    assert_eq!((&body["min_tokens"], &body["ignore_eos"]), (&4.into(), &true.into()));

    let (target, _) = probe(script(vec![answer(false)]), at_url());
    let target = target.unwrap();
    assert!(!target.facts.continuous_usage && !target.shape.continuous_usage, "taken, but without effect");
}

#[test]
fn what_is_refused_is_not_asked_for_again() {
    let refuse = |words: &str| refusal(400, &serde_json::json!({"error": {"message": words}}).to_string());
    let (target, log) = probe(
        script(vec![
            refuse("Unrecognized request argument supplied: ignore_eos"),
            refuse("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
            refuse("something else"),
            answer(false),
        ]),
        at_url(),
    );
    let target = target.unwrap();
    assert!(!target.facts.exact_output && !target.shape.include_metrics && target.shape.include_usage);
    let last = log.lock().unwrap().bodies[3].clone();
    assert_eq!(last["max_completion_tokens"], 4);
    for absent in ["max_tokens", "min_tokens", "ignore_eos", "include_metrics"] {
        assert!(last.get(absent).is_none(), "{absent} in {last}");
    }
    let (target, log) = probe(script(vec![refuse("no")]), at_url());
    assert!(matches!(target.unwrap_err(), ProbeError::Refused { status: 400, .. }));
    assert_eq!(log.lock().unwrap().posts, 5, "each parameter is dropped once");
}

#[test]
fn a_model_name_is_enough_where_no_list_is() {
    let mut s = script(vec![answer(true)]);
    s.routes.clear();
    let (target, _) = probe(s, TargetSpec { model: Some("m".into()), ..at_url() });
    assert_eq!(target.unwrap().facts.model, "m");
}

#[test]
fn a_workload_that_does_not_fit_the_model_is_named_before_any_load() {
    let (target, _) = probe(script(vec![answer(true)]), at_url());
    let target = target.unwrap();
    let workload = |input_tokens| {
        let spec = WorkloadSpec::Fixed(FixedSpec { input_tokens, output_tokens: 100 });
        Workload::new(&spec, 1, "n", target.calibration.clone()).unwrap()
    };
    assert_eq!(target.fits(&workload(412)), Ok(()));
    let e = target.fits(&workload(413)).unwrap_err();
    assert_eq!(
        e.to_string(),
        "prompts of up to 413 tokens with answers of up to 100 do not fit the model's 512 tokens"
    );
}

#[test]
fn a_header_that_a_server_wants_goes_with_every_request() {
    let mut spec = at_url();
    spec.headers.insert("X-Team".into(), "a".into());
    let (target, log) = probe(script(vec![answer(true)]), spec);
    target.unwrap();
    let log = log.lock().unwrap();
    assert!(log.headers.iter().all(|h| h["x-team"] == "a"), "{:?}", log.headers);
    assert!(log.headers.iter().all(|h| !h.contains_key("authorization")));
    assert_eq!(log.paths[..2], ["GET /v1/models", "GET /version"]);
}

#[test]
fn a_silent_server_is_a_stall_and_no_hang() {
    let mut hang = answer(true);
    hang.lines.truncate(0);
    hang.lines = scripted::lines(r#"{"at_ms": 1, "close": "hang"}"#);
    let (target, _) = probe(script(vec![hang]), at_url());
    assert!(matches!(target.unwrap_err(), ProbeError::BadAnswer { class: FailureClass::StallTimeout, .. }));
}
