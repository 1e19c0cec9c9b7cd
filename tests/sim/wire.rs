//! A raw HTTP client for the stand-in's tests, which knows nothing of the client that we ship.

use plimsoll::sim::{self, Profile};
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A server of the profile and the address it listens on, for the life of the test's runtime.
pub async fn serve(profile: Profile) -> SocketAddr {
    let listener = sim::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(sim::serve(listener, profile, 7, std::future::pending()));
    addr
}

/// Sends one request and returns the whole response as it came, head and body.
pub async fn raw(addr: SocketAddr, method: &str, path: &str, more: &str, body: &str) -> (String, String) {
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

pub const JSON: &str = "content-type: application/json\r\n";

pub async fn chat(addr: SocketAddr, body: Value) -> (String, String) {
    raw(addr, "POST", "/v1/chat/completions", JSON, &body.to_string()).await
}

/// The payloads of a stream, in order.
pub fn events(body: &str) -> Vec<String> {
    body.lines().filter_map(|l| l.strip_prefix("data: ")).map(str::to_owned).collect()
}

pub fn hello(more: Value) -> Value {
    let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": "import os and count the files"}],
                          "stream": true, "max_tokens": 4, "min_tokens": 4, "ignore_eos": true});
    for (k, v) in more.as_object().unwrap() {
        body[k] = v.clone();
    }
    body
}

/// The payload of a chunked body; any other body as it is.
pub fn dechunked(body: &str) -> String {
    let mut out = String::new();
    let mut rest = body;
    while let Some((size, more)) = rest.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size, 16) else { return body.to_owned() };
        if size == 0 || size > more.len() {
            break;
        }
        out += &more[..size];
        rest = more[size..].trim_start_matches("\r\n");
    }
    if out.is_empty() { body.to_owned() } else { out }
}

/// The metrics page.
pub async fn page(addr: SocketAddr) -> String {
    raw(addr, "GET", "/metrics", "", "").await.1
}

/// The value of a series on a page, written as the page writes it.
pub fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find(|l| l.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
    let line = line.unwrap_or_else(|| panic!("{series} is not in\n{page}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}
