//! Every way to a server, and everything that can happen on it, with exact times under the paused clock.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::scripted::{self, Answer, Log, Script};
use plimsoll::load::client::{self, Flight};
use plimsoll::load::{LoadOptions, Loader, Target, TargetSpec, probe_with};
use plimsoll::model::recording::Event;
use plimsoll::model::request::{FailureClass, Outcome, RequestTimeline};
use plimsoll::model::step::Load;
use plimsoll::model::time::{Clock, ClockKind};
use plimsoll::workload::{Calibration, FixedSpec, Message, Prompt, Role, Workload, WorkloadSpec};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

const MODELS: &str = r#"{"object":"list","data":[{"id":"tiny","owned_by":"vllm","max_model_len":512}]}"#;
const TOKEN: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
const STOP: &str =
    "data: {\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// An answer whose first token comes at 50 ms and whose second and last at 60 ms.
fn answer(framing: &str) -> Answer {
    Answer { lines: lines(&[json!({"at_ms": 50, "text": TOKEN}), json!({"at_ms": 60, "text": STOP})]), ..ok(framing) }
}

fn ok(framing: &str) -> Answer {
    Answer { status: 200, headers: Vec::new(), framing: framing.into(), headers_at: Duration::ZERO, lines: Vec::new() }
}

fn lines(all: &[serde_json::Value]) -> Vec<scripted::Line> {
    scripted::lines(&all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn script(answers: Vec<Answer>) -> Script {
    let mut script = Script { answers, ..Script::default() };
    script.routes.insert("/v1/models".into(), (200, "application/json".into(), MODELS.into()));
    script
}

fn prompt() -> Prompt {
    Prompt {
        index: 0,
        messages: vec![Message { role: Role::User, content: "Hi".into() }],
        asked_prompt_tokens: None,
        asked_output_tokens: Some(2),
    }
}

/// Sends one request; also how long the server asked us to stay away.
async fn send(target: &Target, clock: &Clock) -> (RequestTimeline, Option<Duration>) {
    let flight = Flight::new(RequestTimeline::blank(0));
    let wait = client::send(target, &prompt(), clock, &flight).await;
    (flight.into_timeline(), wait)
}

fn target(spec: &TargetSpec) -> Target {
    Target::unprobed(spec, |_| None, &[]).unwrap()
}

/// Runs under the paused clock.
fn paused<F: Future>(test: impl FnOnce(Clock) -> F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async { test(Clock::start(ClockKind::Simulated)).await })
}

/// One request to a script, with what the server saw.
fn once(answer: Answer, change: impl FnOnce(&mut TargetSpec)) -> (RequestTimeline, Option<Duration>, Log) {
    paused(async |clock| {
        let (url, log) = scripted::serve(script(vec![answer])).await;
        let mut spec = TargetSpec { url, model: Some("m".into()), ..TargetSpec::default() };
        change(&mut spec);
        let (timeline, wait) = send(&target(&spec), &clock).await;
        let log = log.lock().unwrap().clone();
        (timeline, wait, log)
    })
}

fn failure(t: &RequestTimeline) -> (FailureClass, Option<u16>, String) {
    match &t.outcome {
        Outcome::Failed { class, status, detail } => (*class, *status, detail.clone()),
        other => panic!("{other:?}"),
    }
}

/// Times since the request was sent, ms: of each chunk, and of the end.
fn times(t: &RequestTimeline) -> (Vec<u128>, u128) {
    let since = |at: plimsoll::model::time::Offset| at.since(t.sent).as_millis();
    (t.chunks.iter().map(|c| since(c.at)).collect(), since(t.finished))
}

/// A certificate of an authority made for the test, and the authority's own in a file.
struct Authority {
    file: PathBuf,
    config: ServerConfig,
}

impl Authority {
    fn new(name: &str, protocols: &[&[u8]]) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".into(), "localhost".into()];
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &ca).unwrap();
        let file = std::env::temp_dir().join(format!("plimsoll-{}-{name}.pem", std::process::id()));
        std::fs::write(&file, ca.pem()).unwrap();
        let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
        Authority { file, config }
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Serves a script over TLS.
async fn serve_tls(config: ServerConfig, script: Script) -> (String, Arc<Mutex<Log>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let (acceptor, script) = (TlsAcceptor::from(Arc::new(config)), Arc::new(script));
    let log = Arc::new(Mutex::new(Log::default()));
    let seen = log.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, script, log) = (acceptor.clone(), script.clone(), log.clone());
            tokio::spawn(async move {
                stream.set_nodelay(true).unwrap();
                // A client that does not trust us leaves here.
                if let Ok(stream) = acceptor.accept(stream).await {
                    log.lock().unwrap().connections += 1;
                    scripted::connection(stream, script, log).await;
                }
            });
        }
    });
    (url, seen)
}

#[test]
fn tls_is_checked_against_the_authority_that_is_named_or_not_at_all() {
    let authority = Authority::new("ca", &[b"http/1.1"]);
    let other = Authority::new("other-ca", &[]);
    paused(async |clock| {
        let (url, log) = serve_tls(authority.config.clone(), script(vec![answer("chunked")])).await;
        for (ca_file, insecure, trusted) in [
            (Some(&authority.file), false, true),
            (Some(&other.file), false, false),
            (None, false, false),
            (None, true, true),
        ] {
            let spec = TargetSpec {
                url: url.clone(),
                model: Some("m".into()),
                ca_file: ca_file.cloned(),
                insecure,
                ..TargetSpec::default()
            };
            let target = target(&spec);
            assert!(target.wire.is_some(), "streams over TLS go over our own wire");
            let timed = [send(&target, &clock).await.0, send(&target, &clock).await.0];
            let untimed = target.http.get(target.base.api("models")).send().await;
            assert_eq!(untimed.is_ok(), trusted, "{ca_file:?}");
            for t in timed {
                if trusted {
                    assert!(t.completed(), "{:?}", t.outcome);
                    assert_eq!(times(&t), (vec![50, 60], 60));
                } else {
                    let (class, _, detail) = failure(&t);
                    assert_eq!(class, FailureClass::Connect);
                    assert!(detail.contains("certificate"), "{detail}");
                }
            }
        }
        // Two ways that are trusted, each with one connection for its two streams, and one for what is untimed.
        assert_eq!(log.lock().unwrap().connections, 4);
    });
}

#[test]
fn a_certificate_file_must_hold_certificates() {
    let empty = std::env::temp_dir().join(format!("plimsoll-{}-empty.pem", std::process::id()));
    std::fs::write(&empty, "nothing").unwrap();
    for file in [empty.clone(), empty.with_extension("missing")] {
        let spec =
            TargetSpec { url: "https://127.0.0.1:1".into(), ca_file: Some(file.clone()), ..TargetSpec::default() };
        let error = Target::unprobed(&spec, |_| None, &[]).unwrap_err().to_string();
        assert!(error.contains(&file.display().to_string()), "{error}");
    }
    std::fs::remove_file(empty).unwrap();
}

#[test]
fn a_unix_socket_is_a_server_too() {
    let path = std::env::temp_dir().join(format!("plimsoll-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    paused(async |clock| {
        let listener = UnixListener::bind(&path).unwrap();
        let (script, log) = (Arc::new(script(vec![answer("chunked")])), Arc::new(Mutex::new(Log::default())));
        let seen = log.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(scripted::connection(stream, script.clone(), log.clone()));
            }
        });
        let spec =
            TargetSpec { url: format!("unix:{}", path.display()), model: Some("m".into()), ..TargetSpec::default() };
        let target = target(&spec);
        let (t, _) = send(&target, &clock).await;
        assert!(t.completed(), "{:?}", t.outcome);
        assert_eq!(times(&t), (vec![50, 60], 60));
        assert!(target.http.get(target.base.api("models")).send().await.unwrap().status().is_success());
        assert_eq!(seen.lock().unwrap().paths, ["POST /v1/chat/completions", "GET /v1/models"]);
    });
    std::fs::remove_file(path).unwrap();
}

#[test]
fn http_2_is_taken_where_it_is_offered() {
    let authority = Authority::new("h2-ca", &[b"h2", b"http/1.1"]);
    paused(async |clock| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let acceptor = TlsAcceptor::from(Arc::new(authority.config.clone()));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(acceptor.accept(stream).await.unwrap()).await.unwrap();
                    while let Some(Ok((request, mut respond))) = connection.accept().await {
                        let kind = if request.method() == "GET" { "application/json" } else { "text/event-stream" };
                        let body = match request.uri().path() {
                            "/v1/models" => MODELS.to_owned(),
                            "/v1/chat/completions" => [TOKEN, STOP].concat(),
                            _ => "{}".to_owned(),
                        };
                        let head = http::Response::builder().header("content-type", kind).body(()).unwrap();
                        let mut stream = respond.send_response(head, false).unwrap();
                        stream.send_data(body.into(), true).unwrap();
                    }
                });
            }
        });
        let spec = TargetSpec { url, ca_file: Some(authority.file.clone()), ..TargetSpec::default() };
        let target = probe_with(&spec, &clock, |_| None).await.unwrap();
        assert!(target.wire.is_none(), "our own wire speaks no HTTP/2");
        assert!(send(&target, &clock).await.0.completed());
    });
}

#[test]
fn compressed_streams_are_understood_as_they_come() {
    let pack = |gzip: bool| {
        let mut packed: [Vec<u8>; 2] = Default::default();
        if gzip {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(TOKEN.as_bytes()).unwrap();
            encoder.flush().unwrap();
            packed[0] = std::mem::take(encoder.get_mut());
            encoder.write_all(STOP.as_bytes()).unwrap();
            packed[1] = encoder.finish().unwrap();
        } else {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(TOKEN.as_bytes()).unwrap();
            encoder.flush().unwrap();
            packed[0] = std::mem::take(encoder.get_mut());
            encoder.write_all(STOP.as_bytes()).unwrap();
            packed[1] = encoder.finish().unwrap();
        }
        packed
    };
    for (name, packed) in [("gzip", pack(true)), ("deflate", pack(false))] {
        let line = |ms: u64, bytes: &[u8]| scripted::Line {
            at: Duration::from_millis(ms),
            bytes: bytes.to_vec(),
            close: scripted::Close::No,
        };
        let answer = Answer {
            headers: vec![("Content-Encoding".into(), name.into())],
            lines: vec![line(50, &packed[0]), line(60, &packed[1])],
            ..ok("chunked")
        };
        let (t, _, log) = once(answer, |_| {});
        assert!(t.completed(), "{name}: {:?}", t.outcome);
        assert_eq!(times(&t), (vec![50, 60], 60), "{name}");
        assert_eq!(log.headers[0]["accept-encoding"], "identity");
    }
    let encoded = |how: &str| Answer { headers: vec![("Content-Encoding".into(), how.into())], ..answer("chunked") };
    let (class, _, detail) = failure(&once(encoded("br"), |_| {}).0);
    assert!(class == FailureClass::Protocol && detail.contains("br"), "{class:?} {detail}");
    let (class, _, detail) = failure(&once(encoded("gzip"), |_| {}).0);
    assert!(class == FailureClass::Protocol && detail.contains("compressed"), "{class:?} {detail}");
}

#[test]
fn refusals_keep_their_words_and_their_wait_and_are_sent_once() {
    let refusal = |status: u16, headers: &[(&str, &str)]| Answer {
        status,
        headers: headers.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect(),
        lines: lines(&[json!({"at_ms": 1, "text": "{\"error\":{\"message\":\"too busy\"}}"})]),
        ..ok("length")
    };
    let date = ("Date", "Tue, 01 Dec 2026 04:00:00 GMT");
    for (answer, class, wait, said) in [
        (refusal(429, &[("Retry-After", "7")]), FailureClass::RateLimited, Some(7), "retry after 7 s"),
        (refusal(503, &[]), FailureClass::Unavailable, None, "too busy"),
        (
            refusal(503, &[("Retry-After", "Tue, 01 Dec 2026 04:00:30 GMT"), date]),
            FailureClass::Unavailable,
            Some(30),
            "retry after 30 s",
        ),
        (refusal(307, &[("Location", "http://elsewhere/v1")]), FailureClass::HttpStatus, None, "http://elsewhere/v1"),
        (refusal(401, &[]), FailureClass::Auth, None, "too busy"),
        (refusal(500, &[]), FailureClass::HttpStatus, None, "too busy"),
    ] {
        let status = answer.status;
        let (t, waited, log) = once(answer, |_| {});
        let (got, code, detail) = failure(&t);
        assert_eq!((got, code), (class, Some(status)));
        assert!(detail.contains(said), "{detail}");
        assert_eq!(waited.map(|w| w.as_secs()), wait);
        assert_eq!(log.posts, 1, "nothing is retried");
    }
}

#[test]
fn a_worker_that_was_told_to_stay_away_does() {
    let refusal = Answer {
        status: 429,
        headers: vec![("Retry-After".into(), "3".into())],
        lines: lines(&[json!({"at_ms": 0, "text": "{}"})]),
        ..ok("length")
    };
    let sent = paused(async |clock| {
        let (url, log) = scripted::serve(script(vec![refusal, answer("chunked")])).await;
        let spec = TargetSpec { url, model: Some("m".into()), ..TargetSpec::default() };
        let fixed = FixedSpec { input_tokens: 64, output_tokens: 2 };
        let calibration = Calibration::one_token_words(10);
        let workload = Workload::new(&WorkloadSpec::Fixed(fixed), 1, "n", calibration).unwrap();
        let (events, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let options = LoadOptions { max_requests: Some(2), ..LoadOptions::default() };
        let mut loader = Loader::new(Arc::new(target(&spec)), Arc::new(workload), clock, events, options);
        loader.raise_to(0, Load::Concurrency(1), Duration::ZERO);
        loader.finish().await;
        drop(loader);
        let mut sent = Vec::new();
        while let Some(event) = seen.recv().await {
            if let Event::Request(r) = event {
                sent.push((r.sent.as_millis(), r.completed()));
            }
        }
        assert_eq!(log.lock().unwrap().connections, 1, "a refusal does not cost the connection");
        sent
    });
    assert_eq!(sent, [(0, false), (3_000, true)]);
}

#[test]
fn connections_are_kept_unless_each_request_is_to_have_its_own() {
    for (framing, new_connection, connections) in
        [("chunked", false, 1), ("length", false, 1), ("chunked", true, 3), ("close", false, 3)]
    {
        let log = paused(async |clock| {
            let (url, log) = scripted::serve(script(vec![answer(framing)])).await;
            let spec = TargetSpec { url, model: Some("m".into()), new_connection, ..TargetSpec::default() };
            let target = target(&spec);
            for i in 0..3 {
                let (t, _) = send(&target, &clock).await;
                assert!(t.completed(), "{framing}: {:?}", t.outcome);
                assert_eq!(t.connect.is_some(), i == 0 || connections == 3, "{framing}");
                assert_eq!(times(&t), (vec![50, 60], 60), "{framing}");
            }
            log.lock().unwrap().clone()
        });
        assert_eq!(log.connections, connections, "{framing}, a connection each: {new_connection}");
        let close = log.headers.iter().filter(|h| h.get("connection").is_some_and(|c| c == "close")).count();
        assert_eq!(close, if new_connection { 3 } else { 0 });
    }
}

#[test]
fn a_connection_that_the_server_closed_meanwhile_costs_no_request() {
    // It says that it would stay, and goes.
    let last = Answer {
        lines: lines(&[json!({"at_ms": 1, "text": TOKEN}), json!({"at_ms": 2, "text": STOP, "close": "eof"})]),
        ..ok("length")
    };
    paused(async |clock| {
        let (url, log) = scripted::serve(script(vec![last])).await;
        let spec = TargetSpec { url, model: Some("m".into()), ..TargetSpec::default() };
        let target = target(&spec);
        for _ in 0..3 {
            assert!(send(&target, &clock).await.0.completed());
            clock.sleep_until(clock.now() + Duration::from_secs(1)).await;
        }
        assert_eq!(log.lock().unwrap().connections, 3);
    });
}

#[test]
fn every_wait_has_its_limit() {
    let hang = |lines: &[serde_json::Value], headers_at: u64| Answer {
        lines: scripted::lines(&lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")),
        headers_at: Duration::from_millis(headers_at),
        ..ok("chunked")
    };
    let limits = |spec: &mut TargetSpec| {
        spec.first_token_timeout = Duration::from_secs(3);
        spec.idle_timeout = Duration::from_secs(1);
    };
    for (answer, chunks, ms, said) in [
        (hang(&[json!({"at_ms": 9_000, "text": TOKEN})], 9_000), vec![], 3_000, "no answer for 3 s"),
        (hang(&[json!({"at_ms": 9_000, "text": TOKEN})], 0), vec![], 3_000, "nothing arrived for 3 s"),
        (
            hang(&[json!({"at_ms": 500, "text": TOKEN}), json!({"at_ms": 600, "text": "", "close": "hang"})], 0),
            vec![500],
            1_500,
            "nothing arrived for 1 s",
        ),
        (
            // Comments keep it alive, and are no token.
            hang(
                &[
                    json!({"at_ms": 2_000, "text": ": ping\n\n"}),
                    json!({"at_ms": 4_000, "text": TOKEN}),
                    json!({"at_ms": 4_900, "text": ": ping\n\n"}),
                    json!({"at_ms": 4_901, "text": "", "close": "hang"}),
                ],
                0,
            ),
            vec![4_000],
            5_900,
            "nothing arrived for 1 s",
        ),
    ] {
        let (t, _, _) = once(answer, limits);
        let (class, _, detail) = failure(&t);
        assert_eq!((class, detail.as_str()), (FailureClass::StallTimeout, said));
        assert_eq!(times(&t), (chunks, ms), "{said}");
    }
}

#[test]
fn opening_a_connection_has_a_limit_and_is_told_apart() {
    paused(async |clock| {
        // Takes connections, and says nothing: a handshake that never ends.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let spec = TargetSpec {
            url,
            model: Some("m".into()),
            insecure: true,
            connect_timeout: Duration::from_secs(2),
            ..TargetSpec::default()
        };
        let (t, _) = send(&target(&spec), &clock).await;
        assert_eq!(failure(&t), (FailureClass::Connect, None, "no connection within 2 s".into()));
        assert_eq!(clock.now().as_millis(), 2_000);

        let gone = listener.local_addr().unwrap();
        drop(listener);
        let spec = TargetSpec { url: format!("http://{gone}"), ..spec };
        let (class, _, detail) = failure(&send(&target(&spec), &clock).await.0);
        assert_eq!(class, FailureClass::Connect);
        assert!(detail.contains("refused"), "{detail}");
    });
}

#[test]
fn what_is_no_http_is_named() {
    for (bytes, class) in [
        ("SSH-2.0-OpenSSH_9\r\n", FailureClass::Protocol),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", FailureClass::Protocol),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nda", FailureClass::Truncated),
        ("HTTP/1.1 200", FailureClass::ConnectionReset),
        ("", FailureClass::ConnectionReset),
    ] {
        let got = paused(async |clock| {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            tokio::spawn(async move {
                use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 4_096];
                let _ = stream.read(&mut request).await.unwrap();
                stream.write_all(bytes.as_bytes()).await.unwrap();
            });
            let spec = TargetSpec { url, model: Some("m".into()), ..TargetSpec::default() };
            failure(&send(&target(&spec), &clock).await.0)
        });
        assert_eq!(got.0, class, "{bytes:?}: {}", got.2);
    }
}
