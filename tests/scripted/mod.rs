//! A server that plays scripts: every byte, and the way a connection ends, at its instant.
//!
//! It is written on bare TCP and shares nothing with the client under test. Under tokio's paused clock all its
//! times are exact.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of this module")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixStream};

/// One line of a stream script.
#[derive(Clone, Debug)]
pub struct Line {
    pub at: Duration,
    pub bytes: Vec<u8>,
    pub close: Close,
}

/// What a line does to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// Nothing; after the last line the body ends as it should.
    No,
    Clean,
    Reset,
    Hang,
    Eof,
}

/// One answer to a POST.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub framing: String,
    pub headers_at: Duration,
    pub lines: Vec<Line>,
}

/// What is served.
#[derive(Clone, Debug, Default)]
pub struct Script {
    pub answers: Vec<Answer>,
    pub cycle: bool,
    /// What `/metrics` says, one a GET; the last one stays.
    pub pages: Vec<ScriptedPage>,
    /// Other paths: status, content type, body. A GET, or a POST that is no chat completion.
    pub routes: BTreeMap<String, (u16, String, String)>,
}

/// One answer of the metrics page.
#[derive(Clone, Debug)]
pub struct ScriptedPage {
    pub status: u16,
    pub body: String,
    pub delay: Duration,
}

/// What the server saw.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub scrapes: usize,
    pub posts: usize,
    pub connections: usize,
    pub in_flight: usize,
    pub max_in_flight: usize,
    /// Method and path of every request, in order.
    pub paths: Vec<String>,
    /// Headers of every request, in order, names in lower case.
    pub headers: Vec<BTreeMap<String, String>>,
    /// Bodies of the chat completions.
    pub bodies: Vec<Value>,
}

/// Reads a stream script.
pub fn lines(text: &str) -> Vec<Line> {
    text.lines().filter(|l| !l.trim().is_empty()).map(line).collect()
}

fn line(text: &str) -> Line {
    let v: Value = serde_json::from_str(text).unwrap();
    for key in v.as_object().unwrap().keys() {
        assert!(["at_ms", "text", "bytes_b64", "parts", "close"].contains(&key.as_str()), "script key `{key}`");
    }
    let mut bytes = Vec::new();
    if let Some(b) = v["bytes_b64"].as_str() {
        bytes.extend(base64(b));
    }
    if let Some(t) = v["text"].as_str() {
        bytes.extend(t.as_bytes());
    }
    for part in v["parts"].as_array().into_iter().flatten() {
        match part["text"].as_str() {
            Some(t) => bytes.extend(t.as_bytes()),
            None => {
                bytes.extend(part["repeat"].as_str().unwrap().repeat(part["count"].as_u64().unwrap() as usize).bytes())
            }
        }
    }
    let close = match v["close"].as_str() {
        None => Close::No,
        Some("clean") => Close::Clean,
        Some("reset") => Close::Reset,
        Some("hang") => Close::Hang,
        Some("eof") => Close::Eof,
        Some(other) => panic!("close `{other}`"),
    };
    Line { at: Duration::from_secs_f64(v["at_ms"].as_f64().unwrap() / 1e3), bytes, close }
}

fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::new();
    let (mut bits, mut held) = (0_u32, 0);
    for c in text.bytes().filter(|c| *c != b'=') {
        bits = bits << 6 | ALPHABET.iter().position(|a| *a == c).unwrap() as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    out
}

/// Serves a script on a port of the system's choice until the runtime ends.
pub async fn serve(script: Script) -> (String, Arc<Mutex<Log>>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(4_096).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let log = Arc::new(Mutex::new(Log::default()));
    tokio::spawn(accept(listener, Arc::new(script), log.clone()));
    (url, log)
}

async fn accept(listener: TcpListener, script: Arc<Script>, log: Arc<Mutex<Log>>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        log.lock().unwrap().connections += 1;
        tokio::spawn(connection(stream, script.clone(), log.clone()));
    }
}

/// A connection that the script is played on.
pub trait Peer: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Lets the connection end with a reset when it is dropped, where that can be.
    fn reset(&self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Peer for TcpStream {
    fn reset(&self) -> std::io::Result<()> {
        self.set_zero_linger()
    }
}

impl Peer for UnixStream {}

impl Peer for tokio_rustls::server::TlsStream<TcpStream> {}

struct Request {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// Plays the script on one connection.
pub async fn connection<S: Peer>(mut stream: S, script: Arc<Script>, log: Arc<Mutex<Log>>) {
    let mut buffer = Vec::new();
    while let Some(request) = next_request(&mut stream, &mut buffer).await {
        {
            let mut log = log.lock().unwrap();
            log.paths.push(format!("{} {}", request.method, request.path));
            log.headers.push(request.headers.clone());
        }
        let keep =
            if request.method == "POST" && request.path.ends_with("/v1/chat/completions") && !script.answers.is_empty()
            {
                let answer = {
                    let mut log = log.lock().unwrap();
                    let n = log.posts;
                    log.posts += 1;
                    log.bodies.push(serde_json::from_slice(&request.body).unwrap_or_default());
                    log.in_flight += 1;
                    log.max_in_flight = log.max_in_flight.max(log.in_flight);
                    let count = script.answers.len();
                    script.answers[if script.cycle { n % count } else { n.min(count - 1) }].clone()
                };
                let mut left = false;
                let mut leave = || {
                    if !std::mem::replace(&mut left, true) {
                        log.lock().unwrap().in_flight -= 1;
                    }
                };
                let keep = play(&mut stream, &answer, &mut leave).await.unwrap_or(false);
                leave();
                keep
            } else if request.path == "/metrics" && !script.pages.is_empty() {
                let n = {
                    let mut log = log.lock().unwrap();
                    log.scrapes += 1;
                    log.scrapes - 1
                };
                let page = &script.pages[n.min(script.pages.len() - 1)];
                tokio::time::sleep(page.delay).await;
                let head = format!(
                    "HTTP/1.1 {} Status\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\n\r\n{}",
                    page.status,
                    page.body.len(),
                    page.body
                );
                stream.write_all(head.as_bytes()).await.is_ok()
            } else {
                let (status, kind, body) = script.routes.get(&request.path).cloned().unwrap_or((
                    404,
                    "application/json".into(),
                    r#"{"detail":"Not Found"}"#.into(),
                ));
                let head = format!(
                    "HTTP/1.1 {status} Status\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(head.as_bytes()).await.is_ok()
            };
        if !keep {
            return;
        }
    }
}

async fn next_request<S: Peer>(stream: &mut S, buffer: &mut Vec<u8>) -> Option<Request> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(buffer[..head_end].to_vec()).unwrap();
    let mut words = head.lines().next()?.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let headers: BTreeMap<String, String> = head
        .lines()
        .skip(1)
        .filter_map(|l| l.split_once(':'))
        .map(|(n, v)| (n.to_ascii_lowercase(), v.trim().to_owned()))
        .collect();
    let length: usize = headers.get("content-length").map_or(0, |l| l.parse().unwrap());
    while buffer.len() < head_end + length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let body = buffer[head_end..head_end + length].to_vec();
    buffer.drain(..head_end + length);
    Some(Request { method, path, headers, body })
}

/// Plays one answer; whether the connection can go on.
async fn play<S: Peer>(stream: &mut S, answer: &Answer, leave: &mut impl FnMut()) -> std::io::Result<bool> {
    let start = tokio::time::sleep(Duration::ZERO).deadline();
    tokio::time::sleep_until(start + answer.headers_at).await;
    let mut head = format!("HTTP/1.1 {} Status\r\n", answer.status);
    let named = |name: &str| answer.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    if !named("content-type") {
        head += "Content-Type: text/event-stream; charset=utf-8\r\n";
    }
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &match answer.framing.as_str() {
        "chunked" => "Transfer-Encoding: chunked\r\n".to_owned(),
        "length" => format!("Content-Length: {}\r\n", answer.lines.iter().map(|l| l.bytes.len()).sum::<usize>()),
        _ => "Connection: close\r\n".to_owned(),
    };
    stream.write_all(format!("{head}\r\n").as_bytes()).await?;
    let mut end = Close::Clean;
    for (i, line) in answer.lines.iter().enumerate() {
        tokio::time::sleep_until(start + line.at).await;
        if i + 1 == answer.lines.len() && line.close != Close::Hang {
            leave();
        }
        if !line.bytes.is_empty() {
            let mut out = Vec::new();
            if answer.framing == "chunked" {
                out.extend(format!("{:x}\r\n", line.bytes.len()).bytes());
                out.extend(&line.bytes);
                out.extend(b"\r\n");
            } else {
                out.extend(&line.bytes);
            }
            stream.write_all(&out).await?;
        }
        if line.close != Close::No {
            end = line.close;
            break;
        }
    }
    match end {
        Close::No | Close::Clean => {
            if answer.framing == "chunked" {
                stream.write_all(b"0\r\n\r\n").await?;
            }
            Ok(answer.framing != "close")
        }
        Close::Eof => Ok(false),
        Close::Reset => {
            stream.reset()?;
            Ok(false)
        }
        Close::Hang => {
            // Until the client leaves.
            let mut rest = [0_u8; 64];
            while stream.read(&mut rest).await? > 0 {}
            Ok(false)
        }
    }
}
