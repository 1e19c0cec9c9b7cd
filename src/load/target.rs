//! The server as we talk to it: one HTTP client, the addresses, and the shape of the requests that it takes.

use std::net::SocketAddr;
use std::sync::{Arc, Once};
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use serde::ser::{Serialize, SerializeMap, Serializer};
use tokio::sync::mpsc::UnboundedSender;

use super::lateness::Lateness;
use super::probe::ProbeError;
use super::stream::Transcript;
use super::url::BaseUrl;
use super::wire::{self, SharedWire, Wire};
use super::{MetricsPage, TargetSpec};
use crate::model::recording::TargetFacts;
use crate::workload::{Calibration, Message, Prompt};

/// A server that requests can be sent to.
#[derive(Clone, Debug)]
pub struct Target {
    /// What is known of it, for the recording.
    pub facts: TargetFacts,
    /// What is known of its tokenizer.
    pub calibration: Calibration,
    /// The client that everything untimed goes through.
    pub http: reqwest::Client,
    /// The timed streams' own way; `None` where they go through `http` too, since a proxy stands between or the server
    /// speaks HTTP/2.
    pub wire: Option<SharedWire>,
    /// How late its requests and reads are.
    pub lateness: Arc<Lateness>,
    /// Its addresses.
    pub base: BaseUrl,
    /// What requests may ask for.
    pub shape: Shape,
    /// Limit on silence before the first token.
    pub first_token_timeout: Duration,
    /// Limit on silence after it.
    pub idle_timeout: Duration,
    /// Who wants the texts of the answers; nobody in a measurement.
    pub transcripts: Option<UnboundedSender<Transcript>>,
}

/// The parameters that a server takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Model name.
    pub model: String,
    /// Whether to ask for token counts at the end of a stream.
    pub include_usage: bool,
    /// Whether to ask for a running count on every chunk.
    pub continuous_usage: bool,
    /// Whether to force the length with `min_tokens` and `ignore_eos`.
    pub exact_output: bool,
    /// Whether to ask for the server's own timings.
    pub include_metrics: bool,
    /// Name of the parameter that bounds the answer.
    pub max_tokens_key: &'static str,
    /// Keys that win over ours.
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl Target {
    /// A target that was not asked anything yet; assumes that it takes every parameter. `key` reads the environment;
    /// `addresses` are those of a host that is a name, looked up once.
    ///
    /// # Errors
    /// If the URL, a header, the certificate file or the key's variable is not usable.
    pub fn unprobed(
        spec: &TargetSpec,
        key: impl Fn(&str) -> Option<String>,
        addresses: &[SocketAddr],
    ) -> Result<Target, ProbeError> {
        let base = BaseUrl::parse(&spec.url)?;
        let headers = headers(spec, &base, key)?;
        let url = base.api("chat/completions");
        let lateness = Arc::<Lateness>::default();
        let wire = match wire::proxy(&base, &url) {
            Some(_) => None,
            None => Some(Arc::new(Wire::new(spec, &base, &url, &headers, addresses, lateness.clone())?)),
        };
        let http = client(spec, &base, headers, addresses)?;
        let metrics_url = match spec.metrics_page(&base)? {
            MetricsPage::Off => None,
            MetricsPage::At(url) => Some(url),
        };
        Ok(Target {
            facts: TargetFacts {
                url: base.to_string(),
                metrics_url,
                model: spec.model.clone().unwrap_or_default(),
                ..TargetFacts::default()
            },
            calibration: Calibration::one_token_words(0),
            shape: Shape {
                model: spec.model.clone().unwrap_or_default(),
                include_usage: true,
                continuous_usage: true,
                exact_output: spec.exact_output,
                include_metrics: true,
                max_tokens_key: "max_tokens",
                extra: spec.extra_body.clone(),
            },
            first_token_timeout: spec.first_token_timeout,
            idle_timeout: spec.idle_timeout,
            transcripts: None,
            wire,
            lateness,
            http,
            base,
        })
    }

    /// The body of a request, as JSON.
    pub fn body(&self, prompt: &Prompt) -> Vec<u8> {
        let body = Body { shape: &self.shape, messages: &prompt.messages, max_tokens: prompt.asked_output_tokens };
        serde_json::to_vec(&body).unwrap_or_default()
    }
}

struct Body<'a> {
    shape: &'a Shape,
    messages: &'a [Message],
    max_tokens: Option<u32>,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct StreamOptions {
            include_usage: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            continuous_usage_stats: Option<bool>,
        }
        let Shape { extra, .. } = self.shape;
        let mut map = s.serialize_map(None)?;
        macro_rules! ours {
            ($key:expr, $value:expr) => {
                if !extra.contains_key($key) {
                    map.serialize_entry($key, $value)?;
                }
            };
        }
        ours!("model", &self.shape.model);
        ours!("messages", self.messages);
        ours!("stream", &true);
        if self.shape.include_usage {
            let options = StreamOptions {
                include_usage: true,
                continuous_usage_stats: self.shape.continuous_usage.then_some(true),
            };
            ours!("stream_options", &options);
        }
        if let Some(n) = self.max_tokens {
            ours!(self.shape.max_tokens_key, &n);
            if self.shape.exact_output {
                ours!("min_tokens", &n);
                ours!("ignore_eos", &true);
            }
        }
        if self.shape.include_metrics {
            ours!("include_metrics", &true);
        }
        for (key, value) in extra {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// Makes ring rustls' provider, once a process.
fn install_tls() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that somebody else has installed one, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

/// What every request says in its headers.
fn headers(spec: &TargetSpec, base: &BaseUrl, key: impl Fn(&str) -> Option<String>) -> Result<HeaderMap, ProbeError> {
    let mut headers = HeaderMap::new();
    // Compressing a stream delays it. What is compressed all the same is still understood.
    headers.insert(reqwest::header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    for (name, value) in &spec.headers {
        let fault = |what: String| ProbeError::Setting { what, hint: "headers = { \"x-name\" = \"value\" }".into() };
        let n = HeaderName::try_from(name.as_str()).map_err(|_| fault(format!("`{name}` is no header name")))?;
        let mut v = HeaderValue::try_from(value.as_str())
            .map_err(|_| fault(format!("the value of header `{name}` has characters that a header cannot have")))?;
        v.set_sensitive(true);
        headers.insert(n, v);
    }
    if let Some(key) = api_key(spec, base, key)? {
        let mut v = HeaderValue::try_from(format!("Bearer {}", key.trim())).map_err(|_| ProbeError::Setting {
            what: "the API key has characters that a header cannot have".into(),
            hint: "set the variable to the key alone, without quotes or line ends".into(),
        })?;
        v.set_sensitive(true);
        headers.entry(AUTHORIZATION).or_insert(v);
    }
    headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(concat!("plimsoll/", env!("CARGO_PKG_VERSION"))));
    Ok(headers)
}

/// The HTTP client of a run: keeps every connection, follows no redirect, retries nothing, and asks no
/// proxy for what is on this machine.
fn client(
    spec: &TargetSpec,
    base: &BaseUrl,
    headers: HeaderMap,
    addresses: &[SocketAddr],
) -> Result<reqwest::Client, ProbeError> {
    install_tls();
    let mut builder = reqwest::Client::builder()
        .default_headers(headers)
        .connect_timeout(spec.connect_timeout)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .tcp_nodelay(true)
        .pool_idle_timeout(None)
        .pool_max_idle_per_host(if spec.new_connection { 0 } else { usize::MAX });
    if !base.is_https() {
        builder = builder.http1_only();
    }
    if base.is_loopback() {
        builder = builder.no_proxy();
    }
    if let Some((name, _)) = base.name_to_resolve()
        && !addresses.is_empty()
    {
        builder = builder.resolve_to_addrs(&name, addresses);
    }
    if let Some(path) = base.socket() {
        builder = builder.unix_socket(path.to_owned());
    }
    if spec.insecure {
        builder = builder.tls_danger_accept_invalid_certs(true);
    }
    if let Some(path) = &spec.ca_file {
        let fault = |what: String| ProbeError::Setting {
            what: format!("ca_file {}: {what}", path.display()),
            hint: "give a file of PEM certificates".into(),
        };
        let pem = std::fs::read(path).map_err(|e| fault(e.to_string()))?;
        let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|e| fault(e.to_string()))?;
        if certificates.is_empty() {
            return Err(fault("it holds no certificate".into()));
        }
        builder = builder.tls_certs_merge(certificates);
    }
    builder.build().map_err(|e| ProbeError::Setting {
        what: format!("the HTTP client cannot be made: {e}"),
        hint: "check the TLS settings of [target]".into(),
    })
}

/// Variable that a key is taken from where none is named.
const DEFAULT_KEY_VARIABLE: &str = "OPENAI_API_KEY";

/// The key to send. One that nobody named goes only where it cannot be read on the way.
fn api_key(
    spec: &TargetSpec,
    base: &BaseUrl,
    key: impl Fn(&str) -> Option<String>,
) -> Result<Option<String>, ProbeError> {
    match &spec.api_key_env {
        Some(variable) => match key(variable) {
            Some(k) if !k.trim().is_empty() => Ok(Some(k)),
            _ => Err(ProbeError::Setting {
                what: format!("api_key_env names `{variable}`, which is not set"),
                hint: format!("export {variable}=…, or drop api_key_env"),
            }),
        },
        None if base.is_https() || base.is_loopback() => Ok(key(DEFAULT_KEY_VARIABLE).filter(|k| !k.trim().is_empty())),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Role;

    fn target(spec: &TargetSpec) -> Target {
        Target::unprobed(spec, |_| None, &[]).unwrap()
    }

    #[test]
    fn the_body_holds_what_the_server_takes_and_extra_keys_win() {
        let prompt = Prompt {
            index: 0,
            messages: vec![Message { role: Role::User, content: "Hi \"there\"".into() }],
            asked_prompt_tokens: None,
            asked_output_tokens: Some(7),
        };
        let mut spec = TargetSpec { model: Some("m".into()), ..TargetSpec::default() };
        let text = |t: &Target| String::from_utf8(t.body(&prompt)).unwrap();
        assert_eq!(
            text(&target(&spec)),
            r#"{"model":"m","messages":[{"role":"user","content":"Hi \"there\""}],"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},"max_tokens":7,"min_tokens":7,"ignore_eos":true,"include_metrics":true}"#
        );
        spec.extra_body.insert("max_tokens".into(), 9.into());
        spec.extra_body.insert("temperature".into(), serde_json::json!(0.5));
        let mut t = target(&spec);
        t.shape = Shape { include_usage: false, exact_output: false, include_metrics: false, ..t.shape };
        assert_eq!(
            text(&t),
            r#"{"model":"m","messages":[{"role":"user","content":"Hi \"there\""}],"stream":true,"max_tokens":9,"temperature":0.5}"#
        );
    }

    #[test]
    fn a_key_that_nobody_named_stays_off_open_wires() {
        let env = |name: &str| (name == "OPENAI_API_KEY").then(|| "sk-1".to_owned());
        for (url, named, want) in [
            ("http://127.0.0.1:1", None, Ok(Some("sk-1".to_owned()))),
            ("https://example.com", None, Ok(Some("sk-1".to_owned()))),
            ("http://10.0.0.1:1", None, Ok(None)),
            ("http://10.0.0.1:1", Some("OPENAI_API_KEY"), Ok(Some("sk-1".to_owned()))),
            ("http://10.0.0.1:1", Some("OTHER"), Err(())),
        ] {
            let spec = TargetSpec { api_key_env: named.map(Into::into), ..TargetSpec::default() };
            let base = BaseUrl::parse(url).unwrap();
            assert_eq!(api_key(&spec, &base, env).map_err(|_| ()), want, "{url} {named:?}");
        }
    }
}
