//! The timed stream's own HTTP/1.1, over sockets that tell when their bytes arrived.
//!
//! An HTTP library reads for us, and what it hands on carries no stamp but that of the instant at which we were
//! woken, which is late whenever this process is. Here every read comes with the kernel's receive stamp (`socket`),
//! under TLS as well (`tls`); connections are opened before the clock starts and kept; and between the read and the
//! events lies nothing but the framing ([`http1`]). Everything that is not timed goes through reqwest, and so do
//! streams that this cannot carry: those through a proxy, and HTTP/2.

pub mod connection;
pub mod http1;
mod kernel;
mod socket;
mod tls;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::Url;
use reqwest::header::HeaderMap;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Semaphore;

use super::TargetSpec;
use super::lateness::Lateness;
use super::probe::ProbeError;
use super::url::BaseUrl;
use crate::model::time::{Clock, ClockKind};
use connection::Connection;
use socket::Socket;
use tls::Tls;

/// How many connections are opened at a time: a server's backlog is finite, and what does not fit into it waits a second.
const DIALS_AT_ONCE: usize = 128;

/// The way to the server: its address, the requests' head, and the connections that are open.
pub struct Wire {
    way: Way,
    tls: Option<Tls>,
    /// The head of every request, up to the value of `content-length`.
    head: Vec<u8>,
    connect_timeout: Duration,
    /// Whether connections are kept.
    keep: bool,
    idle: Mutex<Vec<Connection>>,
    dials: Semaphore,
    lateness: Arc<Lateness>,
}

impl std::fmt::Debug for Wire {
    /// Without the head, which may hold a key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").field("way", &self.way).field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

/// Where to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    Tcp(Vec<SocketAddr>),
    /// A name that was not looked up, or could not be.
    Name(String, u16),
    Unix(PathBuf),
}

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The system's or TLS's words.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It took too long.
    #[error("no connection within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
}

impl Wire {
    /// The way to `base` for requests to `url` with these headers. `addresses` are those of a host that is a name.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn new(
        spec: &TargetSpec,
        base: &BaseUrl,
        url: &Url,
        headers: &HeaderMap,
        addresses: &[SocketAddr],
        lateness: Arc<Lateness>,
    ) -> Result<Wire, ProbeError> {
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or(80);
        let way = match (base.socket(), host.trim_matches(['[', ']']).parse()) {
            (Some(path), _) => Way::Unix(path.to_owned()),
            (None, Ok(ip)) => Way::Tcp(vec![SocketAddr::new(ip, port)]),
            (None, Err(_)) if addresses.is_empty() => Way::Name(host.to_owned(), port),
            (None, Err(_)) => Way::Tcp(addresses.to_vec()),
        };
        let setting = |e: tls::TlsError| ProbeError::Setting {
            what: e.to_string(),
            hint: "check the TLS settings of [target]".into(),
        };
        let tls = if base.is_https() {
            let extra = spec.ca_file.as_deref().map(tls::certificates).transpose().map_err(setting)?;
            Some(Tls::new(host, extra.unwrap_or_default(), spec.insecure).map_err(setting)?)
        } else {
            None
        };
        Ok(Wire {
            way,
            tls,
            head: request_head(url, headers, spec.new_connection),
            connect_timeout: spec.connect_timeout,
            keep: !spec.new_connection,
            idle: Mutex::new(Vec::new()),
            dials: Semaphore::new(DIALS_AT_ONCE),
            lateness,
        })
    }

    /// A request, as it goes over the connection.
    pub fn request(&self, body: &[u8]) -> Vec<u8> {
        let length = body.len().to_string();
        [self.head.as_slice(), length.as_bytes(), b"\r\n\r\n", body].concat()
    }

    /// A connection that is open and at rest, if there is one. Those that the server has closed meanwhile are dropped.
    pub fn take_idle(&self) -> Option<Connection> {
        loop {
            let mut connection = self.idle().pop()?;
            if connection.is_idle() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for another request, or drops it where each request is to have its own.
    pub fn give_back(&self, connection: Connection) {
        if self.keep {
            self.idle().push(connection);
        }
    }

    /// How many connections are to be opened so that `streams` more find one.
    pub fn missing(&self, streams: usize) -> usize {
        if self.keep { streams.saturating_sub(self.idle().len()) } else { 0 }
    }

    /// Opens a connection, so that the next request finds it open. What goes wrong goes wrong again when the request is
    /// sent, and is told then.
    pub async fn open_ahead(&self, clock: &Clock) {
        if let Ok(connection) = self.dial(clock).await {
            self.give_back(connection);
        }
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// If there is none within the limit.
    pub async fn dial(&self, clock: &Clock) -> Result<Connection, DialError> {
        // Closed it never is.
        let _turn = self.dials.acquire().await;
        let begun = clock.now();
        let limit = clock.instant(begun + self.connect_timeout);
        let mut connection = match tokio::time::timeout_at(limit, self.connect(clock)).await {
            Ok(connected) => connected?,
            Err(_) => return Err(DialError::TimedOut(self.connect_timeout)),
        };
        connection.opened_in = Some(clock.now().since(begun));
        connection.count_with(self.lateness.clone());
        Ok(connection)
    }

    async fn connect(&self, clock: &Clock) -> std::io::Result<Connection> {
        // Simulated time has no kernel in it.
        let stamped = clock.kind() == ClockKind::Real;
        let socket = match &self.way {
            Way::Unix(path) => Socket::unix(UnixStream::connect(path).await?)?,
            Way::Tcp(addresses) => Socket::tcp(TcpStream::connect(addresses.as_slice()).await?, stamped)?,
            Way::Name(host, port) => Socket::tcp(TcpStream::connect((host.as_str(), *port)).await?, stamped)?,
        };
        match &self.tls {
            None => Ok(Connection::plain(socket)),
            Some(tls) => {
                let session = tls.session().map_err(std::io::Error::other)?;
                Connection::secure(socket, session, clock).await
            }
        }
    }

    /// Counts one read of a stream, which brought so many chunks with output.
    pub fn saw(&self, arrival: connection::Arrival, chunks: usize) {
        self.lateness.read(arrival, chunks);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The proxy of the environment that stands between us and `url`, as `host:port` without credentials. What is on this
/// machine is never asked of one.
pub fn proxy(base: &BaseUrl, url: &Url) -> Option<String> {
    use hyper_util::client::proxy::matcher::Matcher;
    if base.is_loopback() {
        return None;
    }
    let to = url.as_str().parse::<http::Uri>().ok()?;
    let through = Matcher::from_env().intercept(&to)?;
    let host = through.uri().host().unwrap_or_default();
    Some(through.uri().port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

/// The head of a streaming request, up to the value of `content-length`.
fn request_head(url: &Url, headers: &HeaderMap, close: bool) -> Vec<u8> {
    let mut head = Vec::new();
    let mut line = |name: &[u8], value: &[u8]| {
        head.extend_from_slice(name);
        head.extend_from_slice(b": ");
        head.extend_from_slice(value);
        head.extend_from_slice(b"\r\n");
    };
    let port = url.port().map_or_else(String::new, |p| format!(":{p}"));
    let host = format!("{}{port}", url.host_str().unwrap_or_default());
    if !headers.contains_key("host") {
        line(b"host", host.as_bytes());
    }
    for (name, value) in headers {
        if !matches!(name.as_str(), "content-length" | "transfer-encoding" | "content-type" | "connection") {
            line(name.as_str().as_bytes(), value.as_bytes());
        }
    }
    if !headers.contains_key("accept") {
        line(b"accept", b"text/event-stream, */*");
    }
    line(b"content-type", b"application/json");
    if close {
        line(b"connection", b"close");
    }
    let path = url.path();
    let mut out = format!("POST {path} HTTP/1.1\r\n").into_bytes();
    out.extend_from_slice(&head);
    out.extend_from_slice(b"content-length: ");
    out
}

/// A wire that requests and loaders share.
pub type SharedWire = Arc<Wire>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_says_where_what_and_with_which_headers() {
        let url = Url::parse("http://[::1]:8000/a/v1/chat/completions").unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("authorization", "Bearer x".parse().unwrap());
        headers.insert("content-length", "9".parse().unwrap());
        let text = String::from_utf8(request_head(&url, &headers, true)).unwrap();
        assert_eq!(
            text,
            "POST /a/v1/chat/completions HTTP/1.1\r\nhost: [::1]:8000\r\nauthorization: Bearer x\r\n\
             accept: text/event-stream, */*\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: "
        );
    }
}
