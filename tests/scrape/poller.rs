//! The poller against a scripted page over loopback HTTP, under a paused clock: every time exact.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use plimsoll::model::recording::Event;
use plimsoll::model::sample::Scrape;
use plimsoll::model::time::{Clock, ClockKind, Offset};
use plimsoll::scrape::{Page, Poller, ScrapeSpec, poller};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// One answer of the scripted page.
#[derive(Clone)]
struct Answer {
    status: u16,
    after: Duration,
    body: Vec<u8>,
}

fn answer(status: u16, after_ms: u64, body: impl Into<Vec<u8>>) -> Answer {
    Answer { status, after: Duration::from_millis(after_ms), body: body.into() }
}

/// Serves the answers in order, the last one for ever; gives the address of the page.
async fn serve(answers: Vec<Answer>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let handler = move |headers: HeaderMap| {
        let n = asked.fetch_add(1, Ordering::Relaxed).min(answers.len() - 1);
        let answer = answers[n].clone();
        async move {
            tokio::time::sleep(answer.after).await;
            if headers.get("authorization").is_some_and(|v| v != "Bearer hush") {
                return StatusCode::UNAUTHORIZED.into_response();
            }
            (StatusCode::from_u16(answer.status).unwrap(), answer.body).into_response()
        }
    };
    let app = axum::Router::new().route("/metrics", get(handler));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    format!("http://{address}/metrics")
}

fn spec(interval_ms: u64, timeout_ms: u64) -> ScrapeSpec {
    ScrapeSpec {
        interval: Duration::from_millis(interval_ms),
        timeout: Duration::from_millis(timeout_ms),
        ..ScrapeSpec::default()
    }
}

async fn next(events: &mut UnboundedReceiver<Event>) -> Scrape {
    match events.recv().await.unwrap() {
        Event::Scrape(scrape) => scrape,
        other => panic!("expected a scrape, got {other:?}"),
    }
}

/// `ok` or the class of the failure.
fn kind(scrape: &Scrape) -> &str {
    scrape.result.as_ref().map_or_else(|failure| failure.class.as_str(), |_| "ok")
}

#[tokio::test(start_paused = true)]
async fn two_time_outs_and_a_500_are_events_and_delay_nothing() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/24-metrics-slow-then-500");
    let case: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("case.json")).unwrap()).unwrap();
    let pages = case["inputs"]["metrics"].as_array().unwrap();
    let answers = pages.iter().map(|page| {
        let body = std::fs::read(folder.join(page["file"].as_str().unwrap())).unwrap();
        let status = page["status"].as_u64().unwrap_or(200);
        answer(u16::try_from(status).unwrap(), page["delay_ms"].as_u64().unwrap_or(0), body)
    });
    let url = serve(answers.collect()).await;
    let (sender, mut events) = unbounded_channel();
    let clock = Clock::start(ClockKind::Simulated);
    let timeout = case["settings"]["scrape_timeout_s"].as_u64().unwrap() * 1_000;
    let poller = Poller::start(Page::server(url), &spec(15_000, timeout), clock, sender).unwrap();
    let mut seen = Vec::new();
    for page in pages {
        let scrape = next(&mut events).await;
        assert_eq!(scrape.sent, Offset::from_millis(page["scrape_s"].as_u64().unwrap() * 1_000));
        seen.push(kind(&scrape).to_owned());
        if kind(&scrape) == "status" {
            assert!(scrape.result.unwrap_err().detail.contains("500"));
        }
    }
    assert_eq!(seen, ["ok", "ok", "timeout", "timeout", "status", "ok"]);
    let pages = poller.stop().await;
    assert_eq!(pages.first.unwrap(), std::fs::read(folder.join("metrics/ok0.txt")).unwrap());
    assert_eq!(pages.last.unwrap(), std::fs::read(folder.join("metrics/ok2.txt")).unwrap());
    assert_eq!(kind(&next(&mut events).await), "ok", "one more reading at the end");
    assert!(events.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_slow_page_delays_the_next_reading_to_the_grid() {
    let url = serve(vec![answer(200, 0, "a 1\n"), answer(200, 2_300, "a 2\n"), answer(200, 0, "a 3\n")]).await;
    let (sender, mut events) = unbounded_channel();
    let clock = Clock::start(ClockKind::Simulated);
    let poller = Poller::start(Page::server(url), &spec(1_000, 10_000), clock, sender).unwrap();
    let first = poller.first().await.unwrap();
    assert_eq!(first.result.as_ref().unwrap()[0].value, 1.0);
    let mut sent = Vec::new();
    for _ in 0..4 {
        let scrape = next(&mut events).await;
        assert_eq!(kind(&scrape), "ok");
        sent.push(scrape.sent.as_millis());
    }
    assert_eq!(sent, [0, 1_000, 4_000, 5_000]);
    assert_eq!(poller.latest().unwrap().result.as_ref().unwrap()[0].value, 3.0);
}

#[tokio::test(start_paused = true)]
async fn every_failure_has_its_class() {
    let clock = Clock::start(ClockKind::Simulated);
    let small = ScrapeSpec { max_bytes: 100, ..spec(1_000, 10_000) };
    for (status, body, class, part) in [
        (200, "<html>hello</html>".to_owned(), "parse", "HTML"),
        (200, "{\"detail\":\"Not Found\"}".to_owned(), "parse", "JSON"),
        (200, "up 1\nup one\n".to_owned(), "parse", "line 2"),
        (404, String::new(), "status", "404"),
        (200, "a 1\n".repeat(30), "too_large", "100 bytes"),
    ] {
        let url = serve(vec![answer(status, 0, body)]).await;
        let (sender, mut events) = unbounded_channel();
        let poller = Poller::start(Page::server(url.clone()), &small, clock, sender).unwrap();
        let failure = next(&mut events).await.result.unwrap_err();
        assert_eq!(failure.class, class);
        assert!(failure.detail.contains(part), "{}", failure.detail);
        assert_eq!(poller::once(&Page::server(url), &small).await.unwrap().unwrap_err().class, class);
        drop(poller);
    }
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("http://{nobody}/metrics?token=hush");
    let failure = poller::once(&Page::server(url), &small).await.unwrap().unwrap_err();
    assert_eq!(failure.class, "connect");
    assert!(!failure.detail.contains("hush"), "{}", failure.detail);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_sent_and_a_wrong_one_is_told() {
    let url = serve(vec![answer(200, 0, "a 1\n")]).await;
    let page = |key: &str| Page { bearer: Some(key.into()), ..Page::server(url.clone()) };
    assert!(poller::once(&page("hush"), &spec(1_000, 1_000)).await.unwrap().is_ok());
    let failure = poller::once(&page("wrong"), &spec(1_000, 1_000)).await.unwrap().unwrap_err();
    assert!(failure.detail.contains("401"), "{}", failure.detail);
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_nobody_listens() {
    let url = serve(vec![answer(200, 0, "a 1\n")]).await;
    let (sender, events) = unbounded_channel();
    let poller =
        Poller::start(Page::server(url), &spec(1_000, 1_000), Clock::start(ClockKind::Simulated), sender).unwrap();
    poller.first().await.unwrap();
    drop(events);
    let mut watch = poller.watch();
    while watch.changed().await.is_ok() {}
    assert_eq!(poller.stop().await.first.unwrap(), "a 1\n");
}
