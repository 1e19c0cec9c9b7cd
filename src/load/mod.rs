//! Applying one step's load, and measuring what came back.

mod url;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

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
