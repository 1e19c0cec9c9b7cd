//! One page over HTTP, within limits of time and size.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{ACCEPT, CONTENT_TYPE};

use super::exposition::Format;
use crate::model::cause::{causes, deepest};
use crate::model::sample::{ScrapeFailure, SourceKind};

/// A page to read: where it is and whose samples it holds.
#[derive(Clone)]
pub struct Page {
    /// Its address.
    pub url: String,
    /// What its samples are about.
    pub source: SourceKind,
    /// Index of the target among those of its kind.
    pub target: u32,
    /// Sent as `Authorization: Bearer …`; `None` sends no such header.
    pub bearer: Option<String>,
    /// Further headers, in order.
    pub headers: Vec<(String, String)>,
}

impl std::fmt::Debug for Page {
    /// Leaves out every header's value: each may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Page").field("source", &self.source).field("target", &self.target).finish_non_exhaustive()
    }
}

impl Page {
    /// The metrics page of the one server of a run, read without a key.
    pub fn server(url: impl Into<String>) -> Page {
        Page { url: url.into(), source: SourceKind::Server, target: 0, bearer: None, headers: Vec::new() }
    }
}

/// Why a page cannot be read at all: found before any load.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The address cannot be understood.
    #[error("metrics address `{url}` is no HTTP address ({reason}), expected one such as http://host:8000/metrics")]
    Url {
        /// As given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A header has a name or a value that HTTP does not allow.
    #[error("header `{name}` of the metrics page has a name or a value that HTTP does not allow")]
    Header {
        /// Its name; the value may be a secret.
        name: String,
    },
    /// The HTTP client could not be set up.
    #[error("the client for the metrics page could not be set up")]
    Client(#[source] reqwest::Error),
}

/// What came back with a 2xx status.
#[derive(Clone, Debug)]
pub struct Body {
    /// The page, verbatim after decompression.
    pub bytes: Bytes,
    /// The grammar that its `Content-Type` names.
    pub format: Format,
}

/// A connection of its own to one page, so that reading it never waits for the load.
#[derive(Debug)]
pub struct Fetcher {
    client: reqwest::Client,
    request: reqwest::Request,
    timeout: Duration,
    max_bytes: usize,
}

/// Plain text before all else: a newer client library rewrites the colons of metric names
/// when it may answer in OpenMetrics.
const ACCEPTED: &str = "text/plain;version=0.0.4;q=0.9,*/*;q=0.1";

impl Fetcher {
    /// Prepares reading `page`; connects only with the first [`Fetcher::get`].
    ///
    /// # Errors
    /// If the address or a header cannot be used.
    pub fn new(page: &Page, timeout: Duration, max_bytes: usize) -> Result<Fetcher, PageError> {
        // Only the first call in a process installs it; later ones find it there.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let bad = |reason: String| PageError::Url { url: page.url.clone(), reason };
        let url = reqwest::Url::parse(&page.url).map_err(|e| bad(e.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad(format!("scheme `{}`", url.scheme())));
        }
        let mut client = reqwest::Client::builder()
            .user_agent(concat!("plimsoll/", env!("CARGO_PKG_VERSION")))
            .pool_max_idle_per_host(1)
            .tcp_nodelay(true);
        if is_loopback(&url) {
            client = client.no_proxy();
        }
        let client = client.build().map_err(PageError::Client)?;
        let mut request = client.get(url).header(ACCEPT, ACCEPTED);
        if let Some(key) = &page.bearer {
            request = request.bearer_auth(key);
        }
        for (name, value) in &page.headers {
            let bad = || PageError::Header { name: name.clone() };
            let name = reqwest::header::HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
            let value = reqwest::header::HeaderValue::from_str(value).map_err(|_| bad())?;
            request = request.header(name, value);
        }
        let name = "authorization".to_owned();
        let request = request.build().map_err(|_| PageError::Header { name })?;
        Ok(Fetcher { client, request, timeout, max_bytes })
    }

    /// Reads the page once.
    ///
    /// # Errors
    /// Says why there was no page within the limits.
    pub async fn get(&self) -> Result<Body, ScrapeFailure> {
        match tokio::time::timeout(self.timeout, self.read()).await {
            Ok(result) => result,
            Err(_) => Err(failure("timeout", format!("no whole page within {:?}", self.timeout))),
        }
    }

    async fn read(&self) -> Result<Body, ScrapeFailure> {
        let request = self.request.try_clone().expect("a request without a body can be cloned");
        let mut response = self.client.execute(request).await.map_err(transport)?;
        let status = response.status();
        if !status.is_success() {
            return Err(failure("status", format!("the page answered {status}")));
        }
        let format = Format::of(response.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok()));
        let mut bytes = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(transport)? {
            if bytes.len() + chunk.len() > self.max_bytes {
                return Err(failure("too_large", format!("the page is longer than {} bytes", self.max_bytes)));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Body { bytes: bytes.freeze(), format })
    }
}

/// Whether an address names this machine: no proxy may stand between us and it.
fn is_loopback(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or("").trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn failure(class: &str, detail: String) -> ScrapeFailure {
    ScrapeFailure { class: class.into(), detail }
}

/// An error of the HTTP client as a failure: without the address, whose query may be a secret.
fn transport(error: reqwest::Error) -> ScrapeFailure {
    let class = if error.is_connect() { "connect" } else { "transport" };
    let error = error.without_url();
    if error.is_connect() {
        // The system's own words; who was asked to connect, and by which layer, is told elsewhere or nobody's concern.
        return failure(class, deepest(&error));
    }
    let mut detail = error.to_string();
    for cause in causes(&error).skip(1) {
        let says = cause.to_string();
        if !detail.contains(&says) {
            detail = format!("{detail}: {says}");
        }
    }
    failure(class, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_before_any_request() {
        for url in ["", "host:8000", "ftp://host/metrics", "http://"] {
            assert!(Fetcher::new(&Page::server(url), Duration::from_secs(1), 1).is_err(), "{url}");
        }
        let page = Page { headers: vec![("x y".into(), "1".into())], ..Page::server("http://127.0.0.1/") };
        assert!(matches!(Fetcher::new(&page, Duration::from_secs(1), 1), Err(PageError::Header { .. })));
    }

    #[test]
    fn loopback_is_told_from_the_world() {
        for (url, loopback) in [
            ("http://127.0.0.1:1/", true),
            ("http://[::1]:1/", true),
            ("http://localhost/", true),
            ("http://10.0.0.1/", false),
            ("https://example.com/", false),
        ] {
            assert_eq!(is_loopback(&reqwest::Url::parse(url).unwrap()), loopback, "{url}");
        }
    }

    #[test]
    fn a_page_prints_no_secret() {
        let page = Page { bearer: Some("hush".into()), ..Page::server("http://h/?token=hush") };
        assert!(!format!("{page:?}").contains("hush"));
    }
}
