//! `plimsoll watch` against a scripted page, on the paused clock: a minute and a half of watching takes no time.

use std::fmt::Write;

use plimsoll::app::watch::{Outcome, Watch, Watched};
use plimsoll::cli::WatchArgs;
use plimsoll::error::{Exit, Refusal};
use plimsoll::model::time::{Clock, ClockKind};
use plimsoll::model::verdict::{AlertState, AlertVerdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a page says at a second of the test; `None` closes the connection instead.
type Script = fn(f64) -> Option<String>;

/// A vLLM page: requests that wait, the share of its pool in use, and tokens that come every 20 ms at `rate` a second.
fn page(t: f64, waiting: f64, usage: f64, rate: f64) -> String {
    let mut out = String::new();
    let own = "engine=\"0\",model_name=\"tiny\"";
    for (name, value) in [
        ("num_requests_waiting", waiting),
        ("num_requests_running", 4.0),
        ("kv_cache_usage_perc", usage),
        ("num_preemptions_total", 0.0),
        ("iteration_tokens_total_count", t * 50.0),
    ] {
        let _ = writeln!(out, "vllm:{name}{{{own}}} {value}");
    }
    let _ = writeln!(out, "vllm:cache_config_info{{engine=\"0\",num_gpu_blocks=\"129\",block_size=\"16\"}} 1");
    for (name, per_s) in [("time_to_first_token_seconds", rate), ("inter_token_latency_seconds", rate * 10.0)] {
        let n = 1_000.0 + (t * per_s).floor();
        for le in ["0.05", "+Inf"] {
            let _ = writeln!(out, "vllm:{name}_bucket{{{own},le=\"{le}\"}} {n}");
        }
        let _ = writeln!(out, "vllm:{name}_count{{{own}}} {n}\nvllm:{name}_sum{{{own}}} {}", n * 0.02);
    }
    out
}

async fn answer(mut stream: TcpStream, clock: Clock, script: Script) {
    let mut request = Vec::new();
    let mut chunk = [0; 1_024];
    loop {
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(n) => request.extend_from_slice(&chunk[..n]),
        }
        if !request.ends_with(b"\r\n\r\n") {
            continue;
        }
        let head = String::from_utf8_lossy(&request).into_owned();
        let wanted = head.starts_with("GET /prefix/metrics ") && head.to_lowercase().contains("x-team: a\r\n");
        request.clear();
        let Some(body) = script(clock.now().as_secs_f64()) else { return };
        let status = if wanted { "200 OK" } else { "404 Not Found" };
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n", body.len());
        if stream.write_all(format!("{head}{body}").as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn watched(script: Script, headers: &[&str]) -> anyhow::Result<Watched> {
    let clock = Clock::start(ClockKind::Simulated);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            tokio::spawn(answer(stream, clock, script));
        }
    });
    let args = WatchArgs {
        url: format!("http://{address}/prefix/metrics"),
        headers: headers.iter().map(|h| (*h).to_owned()).collect(),
        gpu: "off".into(),
        once: true,
        ..WatchArgs::default()
    };
    let (_never, interrupt) = tokio::sync::watch::channel(0);
    Ok(Watch::new(&args)?.once(clock, interrupt).await?.expect("nobody interrupts"))
}

fn alert<'w>(watched: &'w Watched, name: &str) -> &'w AlertVerdict {
    watched.alerts.iter().find(|a| a.alert == name).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_well_is_quiet() {
    let w = watched(|t| Some(page(t, 0.0, 0.4, 5.0)), &["X-Team: a"]).await.unwrap();
    assert_eq!((w.outcome, w.exit()), (Outcome::Quiet, Exit::Done), "{:#?}", w.alerts);
    assert!(w.url.ends_with("/prefix/metrics") && w.explanations.is_empty());
    assert!(w.window_s >= 76.0, "as long as the rules need: {}", w.window_s);
    assert!(w.alerts.iter().all(|a| !a.alert.starts_with("Client")), "there is no client to be judged");
    let server = w.server.as_ref().unwrap();
    assert_eq!((server.running.median, server.waiting.max), (Some(4.0), Some(0.0)));
    let json = serde_json::to_value(&w).unwrap();
    assert_eq!((json["schema"].as_str(), json["outcome"].as_str()), (Some("plimsoll.watch/1"), Some("quiet")));
}

#[tokio::test(start_paused = true)]
async fn a_full_pool_fires_and_is_explained() {
    let w = watched(|t| Some(page(t, 3.0, 0.97, 5.0)), &["X-Team: a"]).await.unwrap();
    assert_eq!((w.outcome, w.exit()), (Outcome::Firing, Exit::GateFailed));
    assert_eq!(alert(&w, "RequestsWaiting").state, AlertState::Firing);
    assert_eq!(alert(&w, "TimeToFirstTokenP99").state, AlertState::Quiet);
    let why = &w.explanations["RequestsWaiting"];
    assert_eq!(why.pair, "PoolLimited", "{why:?}");
    assert!(why.evidence.iter().any(|e| e.says.contains("requests waiting: above 0")), "{why:?}");
}

/// Three requests wait for half a minute, twice: never for the minute that the alert asks for.
#[tokio::test(start_paused = true)]
async fn what_does_not_last_is_pending_and_fails_no_probe() {
    let script = |t: f64| Some(page(t, if ((t / 30.0) as u64).is_multiple_of(2) { 3.0 } else { 0.0 }, 0.4, 5.0));
    let w = watched(script, &["X-Team: a"]).await.unwrap();
    assert_eq!(alert(&w, "RequestsWaiting").state, AlertState::Pending);
    assert_eq!(w.exit(), Exit::Done);
}

#[tokio::test(start_paused = true)]
async fn an_idle_server_is_not_known_to_be_well() {
    let w = watched(|t| Some(page(t, 0.0, 0.0, 0.0)), &["X-Team: a"]).await.unwrap();
    assert_eq!((w.outcome, w.exit()), (Outcome::Inconclusive, Exit::Inconclusive));
    assert_eq!(alert(&w, "InterTokenLatencyP99").state, AlertState::NoData);
}

fn refused(error: &anyhow::Error) -> Exit {
    error.downcast_ref::<Refusal>().unwrap_or_else(|| panic!("{error:?}")).exit
}

#[tokio::test(start_paused = true)]
async fn a_page_that_goes_away_or_never_was_is_a_lost_target() {
    let gone = watched(|t| (t < 30.0).then(|| page(t, 0.0, 0.4, 5.0)), &["X-Team: a"]).await.unwrap_err();
    assert_eq!(refused(&gone), Exit::Target);
    assert!(gone.to_string().contains("cannot be read any more"), "{gone}");
    let closed = watched(|t| Some(page(t, 0.0, 0.4, 5.0)), &[]).await.unwrap_err();
    assert_eq!(refused(&closed), Exit::Target);
    assert!(closed.to_string().contains("cannot be used") && closed.to_string().contains("404"), "{closed}");
}
