//! One base URL, and every address made from it: never `/v1/v1`, never `//`.

use reqwest::Url;

/// The base of an OpenAI-compatible API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    /// Scheme, host, port and prefix, without `/v1` and without a slash at the end.
    root: Url,
    /// The socket's path, where the server listens on one.
    socket: Option<std::path::PathBuf>,
}

/// Why a base URL is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("base URL `{url}`: {fault}, expected such as http://127.0.0.1:8000 or https://host/prefix/v1")]
pub struct UrlError {
    /// The text, without credentials and query.
    pub url: String,
    /// What is wrong with it.
    pub fault: String,
}

/// Paths of the API that people paste instead of its base.
const ENDPOINTS: [&[&str]; 3] = [&["chat", "completions"], &["completions"], &["models"]];

impl BaseUrl {
    /// Reads a base URL: with or without `/v1`, slashes, a pasted endpoint; `host:port` is taken for HTTP.
    ///
    /// # Errors
    /// If it is no HTTP(S) URL, or carries a query, a fragment, or credentials.
    pub fn parse(text: &str) -> Result<BaseUrl, UrlError> {
        let text = text.trim();
        let error = |fault: &str| UrlError { url: redacted(text), fault: fault.into() };
        if text.is_empty() {
            return Err(error("it is empty"));
        }
        if let Some(path) = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")) {
            if !path.starts_with('/') {
                return Err(error("the socket's path is not absolute"));
            }
            let root = Url::parse("http://localhost/").map_err(|e| error(&e.to_string()))?;
            return Ok(BaseUrl { root, socket: Some(path.into()) });
        }
        let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let mut root = Url::parse(&full).map_err(|e| error(&e.to_string()))?;
        if !matches!(root.scheme(), "http" | "https") {
            return Err(error(&format!("its scheme is {}", root.scheme())));
        }
        if !root.has_host() {
            return Err(error("it names no host"));
        }
        if root.query().is_some() || root.fragment().is_some() {
            return Err(error("it has a query or a fragment"));
        }
        if !root.username().is_empty() || root.password().is_some() {
            return Err(error("it has credentials in it; name them with api_key_env or a header"));
        }
        let path = root.path().to_owned();
        let mut segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
        // Only behind a /v1 is a last `models` the endpoint and not somebody's prefix.
        for end in ENDPOINTS {
            if let Some(head) = segments.strip_suffix(end)
                && head.last() == Some(&"v1")
            {
                segments.truncate(head.len());
                break;
            }
        }
        if segments.last() == Some(&"v1") {
            segments.pop();
        }
        root.set_path(&segments.join("/"));
        Ok(BaseUrl { root, socket: None })
    }

    /// An address beside the API, such as `metrics` or `tokenize`.
    pub fn beside(&self, path: &str) -> Url {
        let mut url = self.root.clone();
        let prefix = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{prefix}/{path}"));
        url
    }

    /// An address of the API, such as `chat/completions`.
    pub fn api(&self, path: &str) -> Url {
        self.beside(&format!("v1/{path}"))
    }

    /// The socket's path, where the server listens on one.
    pub fn socket(&self) -> Option<&std::path::Path> {
        self.socket.as_deref()
    }

    /// Whether the server is on this machine, so that no proxy may come between.
    pub fn is_loopback(&self) -> bool {
        self.socket.is_some() || is_loopback(&self.root)
    }

    /// Whether what is sent is encrypted.
    pub fn is_https(&self) -> bool {
        self.root.scheme() == "https"
    }

    /// Host and port to resolve, if the host is a name.
    pub fn name_to_resolve(&self) -> Option<(String, u16)> {
        let host = self.root.host_str()?;
        let numeric = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
        (!numeric && self.socket.is_none()).then(|| (host.to_owned(), self.root.port_or_known_default().unwrap_or(80)))
    }
}

impl std::fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.socket {
            Some(path) => write!(f, "unix:{}", path.display()),
            None => f.write_str(self.root.as_str().trim_end_matches('/')),
        }
    }
}

/// Whether a URL's host is this machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback()),
        None => false,
    }
}

/// The text of a URL without its credentials and its query, for messages.
fn redacted(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match (text.find("://"), text.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}://{}", &text[..scheme], &text[at + 1..]),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_joined_once() {
        for (base, chat, metrics) in [
            ("http://h:1", "http://h:1/v1/chat/completions", "http://h:1/metrics"),
            ("http://h:1//v1//", "http://h:1/v1/chat/completions", "http://h:1/metrics"),
            ("h:1/v1/models", "http://h:1/v1/chat/completions", "http://h:1/metrics"),
            ("https://h/a/models", "https://h/a/models/v1/chat/completions", "https://h/a/models/metrics"),
            ("http://[::1]:8/v1/completions", "http://[::1]:8/v1/chat/completions", "http://[::1]:8/metrics"),
            ("localhost:9", "http://localhost:9/v1/chat/completions", "http://localhost:9/metrics"),
        ] {
            let url = BaseUrl::parse(base).unwrap();
            assert_eq!(url.api("chat/completions").as_str(), chat, "{base}");
            assert_eq!(url.beside("metrics").as_str(), metrics, "{base}");
        }
        assert_eq!(BaseUrl::parse("unix:/run/v.sock").unwrap().to_string(), "unix:/run/v.sock");
    }

    #[test]
    fn refusals_name_the_url_and_leak_nothing() {
        for bad in
            ["", "ftp://h/v1", "http://h/v1?key=secret", "http://u:secret@h/v1", "unix:run/x", "http://h/#secret"]
        {
            let e = BaseUrl::parse(bad).unwrap_err().to_string();
            assert!(!e.contains("secret"), "{e}");
            assert!(bad.is_empty() || e.contains('h') || e.contains("run/x"), "{e}");
        }
        assert!(BaseUrl::parse("http://127.0.0.9:1").unwrap().is_loopback());
        assert!(BaseUrl::parse("http://[::1]:1").unwrap().is_loopback());
        assert!(!BaseUrl::parse("http://128.0.0.1:1").unwrap().is_loopback());
    }
}
