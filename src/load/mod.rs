//! Applying one step's load, and measuring what came back.
//!
//! [`probe`] asks the server what it is and what it takes, and gives a [`Target`]. A [`Loader`] sends a
//! workload's requests to it, in a closed or an open loop; every request is one [`client::send`] over the [`wire`], whose
//! body goes through [`sse`] (bytes to events), [`chunk`] (one event's fields) and [`stream`] (what they mean
//! for the request's timeline). Stamps are the kernel's, of the bytes' arrival, or taken when a read returns, before its
//! bytes are looked at.

pub mod arrivals;
pub mod chunk;
pub mod client;
mod direct;
mod health;
mod lateness;
mod limits;
mod live;
mod loader;
mod probe;
pub mod sse;
pub mod stream;
mod target;
mod tokens;
mod twin;
mod url;
pub mod wire;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use arrivals::{ArrivalPattern, ArrivalSpec};
pub use health::HealthWatch;
pub use lateness::{Lateness, LatenessSeen};
pub use limits::allow_streams;
pub use live::Live;
pub use loader::{Drained, LoadOptions, Loader};
pub use probe::{ProbeError, probe, probe_with};
pub use target::{Shape, Target};
pub use url::{BaseUrl, UrlError};

/// The server under load, as a scenario states it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TargetSpec {
    /// Base URL, with or without `/v1`, or `unix:/path/of.sock`.
    pub url: String,
    /// Model to ask for; `None` takes the first that `/v1/models` lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Environment variable that holds the API key. Without it, `OPENAI_API_KEY` is used, but only towards HTTPS or loopback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// Headers that are sent with every request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Keys that are merged into the body of every request and win over ours.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub extra_body: serde_json::Map<String, serde_json::Value>,
    /// Where the metrics page is; `None` is `/metrics` beside the API, `"off"` is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_url: Option<String>,
    /// Limit on opening a connection.
    #[serde(with = "crate::model::units::duration")]
    pub connect_timeout: Duration,
    /// Limit on silence before the first token; every byte that arrives starts it anew.
    #[serde(with = "crate::model::units::duration")]
    pub first_token_timeout: Duration,
    /// Limit on silence after the first token.
    #[serde(with = "crate::model::units::duration")]
    pub idle_timeout: Duration,
    /// A file of PEM certificates to trust beside the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<std::path::PathBuf>,
    /// Whether any certificate will do.
    pub insecure: bool,
    /// Whether every request opens a connection of its own.
    pub new_connection: bool,
    /// Whether to ask for the exact output length with `min_tokens` and `ignore_eos` where the engine takes them.
    pub exact_output: bool,
}

impl Default for TargetSpec {
    fn default() -> TargetSpec {
        TargetSpec {
            url: "http://127.0.0.1:8000".into(),
            model: None,
            api_key_env: None,
            headers: BTreeMap::new(),
            extra_body: serde_json::Map::new(),
            metrics_url: None,
            connect_timeout: Duration::from_secs(10),
            first_token_timeout: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(60),
            ca_file: None,
            insecure: false,
            new_connection: false,
            exact_output: true,
        }
    }
}

/// Where the server's metrics are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsPage {
    /// There is no page, and none is read.
    Off,
    /// At this URL.
    At(String),
}

impl TargetSpec {
    /// Where the metrics page of a server at `base` is.
    ///
    /// # Errors
    /// If `metrics_url` is no HTTP(S) URL.
    pub fn metrics_page(&self, base: &BaseUrl) -> Result<MetricsPage, ProbeError> {
        match self.metrics_url.as_deref() {
            None => Ok(MetricsPage::At(base.beside("metrics").to_string())),
            Some("off") => Ok(MetricsPage::Off),
            Some(text) => match reqwest::Url::parse(text) {
                Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(MetricsPage::At(url.to_string())),
                _ => Err(ProbeError::Setting {
                    what: format!("metrics_url `{text}` is no URL"),
                    hint: "give the whole address, such as http://host:8000/metrics, or \"off\"".into(),
                }),
            },
        }
    }
}
