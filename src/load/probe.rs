//! What the server is and what it takes, found out before any load.

use std::net::SocketAddr;

use serde::Deserialize;

use super::TargetSpec;
use super::client::{self, Flight, error_words};
use super::target::Target;
use super::tokens;
use super::url::{BaseUrl, UrlError};
use super::wire;
use crate::model::near::nearest;
use crate::model::request::{FailureClass, Outcome, RequestTimeline};
use crate::model::time::Clock;
use crate::workload::{FIRST_WORD, Message, Prompt, Role, Workload};

/// Why no load can be put on a server. Each is one line, with a hint of what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// The URL cannot be one.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// A setting cannot be used.
    #[error("{what}")]
    Setting {
        /// What is wrong.
        what: String,
        /// What to do.
        hint: String,
    },
    /// Nobody answers there.
    #[error("cannot reach {url}{}: {detail}", .proxy.as_ref().map_or_else(String::new, |p| format!(" through the proxy {p}")))]
    Unreachable {
        /// Base URL.
        url: String,
        /// The proxy of the environment that stands between, as `host:port`.
        proxy: Option<String>,
        /// The system's words.
        detail: String,
    },
    /// Somebody answers, but no OpenAI-compatible API.
    #[error("{url} is no OpenAI-compatible API: {detail}")]
    WrongUrl {
        /// The address that was asked.
        url: String,
        /// What came.
        detail: String,
    },
    /// 401 or 403.
    #[error("{url} refuses the API key: status {status}, {detail}")]
    WrongKey {
        /// The address that was asked.
        url: String,
        /// HTTP status.
        status: u16,
        /// The server's words.
        detail: String,
    },
    /// The server does not have the model.
    #[error("model `{wanted}` is not served, expected {}", listed(.served))]
    UnknownModel {
        /// What was asked for.
        wanted: String,
        /// What is served.
        served: Vec<String>,
        /// The most similar name that is served.
        nearest: Option<String>,
    },
    /// The server lists no model.
    #[error("{url} lists no model")]
    NoModel {
        /// Base URL.
        url: String,
    },
    /// The longest request does not fit.
    #[error("prompts of up to {prompt} tokens with answers of up to {output} do not fit the model's {most} tokens")]
    TooLong {
        /// Longest prompt, tokens.
        prompt: u32,
        /// Longest answer, tokens.
        output: u32,
        /// `max_model_len`, tokens.
        most: u32,
    },
    /// Rows of a data set do not fit.
    #[error("prompts longer than the model's {most} tokens on line {}", .lines.iter().take(8).map(u64::to_string).collect::<Vec<_>>().join(", "))]
    RowsTooLong {
        /// Their lines, from 1.
        lines: Vec<u64>,
        /// `max_model_len`, tokens.
        most: u32,
    },
    /// The server refuses even the plainest request.
    #[error("the server refuses a chat completion: status {status}, {detail}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The server's words.
        detail: String,
    },
    /// A request was taken, but its answer is of no use.
    #[error("a chat completion failed ({}): {detail}", .class.as_str())]
    BadAnswer {
        /// How it failed.
        class: FailureClass,
        /// In words.
        detail: String,
    },
}

impl ProbeError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            ProbeError::Url(_) => "give the address that the server prints at its start".into(),
            ProbeError::Setting { hint, .. } => hint.clone(),
            ProbeError::Unreachable { proxy: Some(_), .. } => {
                "the proxy comes from http_proxy, https_proxy or all_proxy; name the server in no_proxy to go around it".into()
            }
            ProbeError::Unreachable { url, .. } => {
                let base = url.trim_end_matches('/').trim_end_matches("/v1");
                format!("is the server up, and the port right? try `curl {base}/v1/models`")
            }
            ProbeError::WrongUrl { .. } => "give the API's base, with or without /v1, such as http://127.0.0.1:8000".into(),
            ProbeError::WrongKey { .. } => {
                "set the key with --api-key, or name its variable with api_key_env; OPENAI_API_KEY goes only to HTTPS or loopback"
                    .into()
            }
            ProbeError::UnknownModel { nearest: Some(n), .. } => format!("did you mean `{n}`?"),
            ProbeError::UnknownModel { .. } => "leave out --model to take the first one".into(),
            ProbeError::NoModel { .. } => "name the model with --model".into(),
            ProbeError::TooLong { most, .. } => format!(
                "give --input-len and --output-len (input_tokens and output_tokens in a scenario) of together at most {most}, \
                 or start the server with a larger --max-model-len"
            ),
            ProbeError::RowsTooLong { .. } => "shorten or remove these rows, or raise --max-model-len".into(),
            ProbeError::Refused { status: 429 | 503, .. } => "the server is busy: wait until it is idle".into(),
            ProbeError::Refused { .. } => "compare with what the model's own documentation asks for; see extra_body".into(),
            ProbeError::BadAnswer { class: FailureClass::NotStreamed, .. } => "is streaming switched off on the way?".into(),
            ProbeError::BadAnswer { .. } => "look into the server's log".into(),
        }
    }

    /// Whether the fault lies in what the user wrote, and no server was asked.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            ProbeError::Url(_)
                | ProbeError::Setting { .. }
                | ProbeError::TooLong { .. }
                | ProbeError::RowsTooLong { .. }
        )
    }
}

fn listed(names: &[String]) -> String {
    let mut shown: Vec<String> = names.iter().take(5).map(|n| format!("`{n}`")).collect();
    if names.len() > shown.len() {
        shown.push(format!("{} more", names.len() - shown.len()));
    }
    match shown.as_slice() {
        [one] => one.clone(),
        _ => format!("one of {}", shown.join(", ")),
    }
}

/// Finds out what the server is and what it takes: its models, its version, its tokenizer, and by one or
/// a few short completions which parameters it accepts.
///
/// # Errors
/// If nothing usable answers; the error says what to do.
pub async fn probe(spec: &TargetSpec, clock: &Clock) -> Result<Target, ProbeError> {
    probe_with(spec, clock, |name| std::env::var(name).ok()).await
}

/// [`probe`] with the environment given.
///
/// # Errors
/// As [`probe`].
pub async fn probe_with(
    spec: &TargetSpec,
    clock: &Clock,
    key: impl Fn(&str) -> Option<String>,
) -> Result<Target, ProbeError> {
    let base = BaseUrl::parse(&spec.url)?;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    if let Some((name, port)) = base.name_to_resolve() {
        // If there is none, connecting fails with the system's words, or a proxy knows it.
        addresses.extend(tokio::net::lookup_host((name, port)).await.into_iter().flatten());
    }
    let mut target = Target::unprobed(spec, key, &addresses)?;
    target.facts.addresses = addresses.iter().map(|a| a.ip().to_string()).collect();
    models(spec, &mut target).await?;
    target.facts.version = version(&target).await;
    completion(&mut target, clock).await?;
    tokens::calibrate(&mut target, clock).await;
    Ok(target)
}

impl Target {
    /// Whether every request of a workload fits into the model.
    ///
    /// # Errors
    /// If the longest does not.
    pub fn fits(&self, workload: &Workload) -> Result<(), ProbeError> {
        if let Some(most) = self.facts.max_model_len {
            let lines = workload.lines_longer_than(most);
            if !lines.is_empty() {
                return Err(ProbeError::RowsTooLong { lines, most });
            }
        }
        match (workload.longest(), self.facts.max_model_len) {
            ((Some(prompt), output), Some(most)) => {
                let output = output.unwrap_or(1);
                if prompt.saturating_add(output) > most {
                    Err(ProbeError::TooLong { prompt, output, most })
                } else {
                    Ok(())
                }
            }
            _ => Ok(()),
        }
    }
}

/// Asks which models are served, and settles on one.
async fn models(spec: &TargetSpec, target: &mut Target) -> Result<(), ProbeError> {
    #[derive(Deserialize)]
    struct List {
        data: Vec<Model>,
    }
    #[derive(Deserialize)]
    struct Model {
        id: String,
        #[serde(default)]
        owned_by: Option<String>,
        #[serde(default)]
        max_model_len: Option<u32>,
    }
    let address = target.base.api("models");
    let url = address.to_string();
    let response = target.http.get(address.clone()).send().await;
    let proxy = wire::proxy(&target.base, &address);
    let unreachable = |e: reqwest::Error| ProbeError::Unreachable {
        url: target.facts.url.clone(),
        proxy: proxy.clone(),
        detail: client::transport_failure(&e, FailureClass::Connect).1,
    };
    let response = response.map_err(unreachable)?;
    let status = response.status();
    if response.version() == reqwest::Version::HTTP_2 {
        // Where HTTP/2 is offered it is taken, and our own wire does not speak it.
        target.wire = None;
    }
    let location = response.headers().get(reqwest::header::LOCATION).and_then(|l| l.to_str().ok()).map(str::to_owned);
    let body = response.bytes().await.map_err(unreachable)?;
    if matches!(status.as_u16(), 401 | 403) {
        return Err(ProbeError::WrongKey { url, status: status.as_u16(), detail: error_words(&body) });
    }
    if let Some(to) = location.filter(|_| status.is_redirection()) {
        return Err(ProbeError::WrongUrl { url, detail: format!("it redirects to {to}; redirects are not followed") });
    }
    if matches!(status.as_u16(), 429 | 503) {
        return Err(ProbeError::Refused { status: status.as_u16(), detail: error_words(&body) });
    }
    let list = match serde_json::from_slice::<List>(&body) {
        Ok(list) if status.is_success() => list,
        // Some servers have completions only. With a model's name that is enough.
        _ if spec.model.is_some() && matches!(status.as_u16(), 404 | 405 | 501) => return Ok(()),
        _ => return Err(ProbeError::WrongUrl { url, detail: format!("status {status}: {}", error_words(&body)) }),
    };
    let found = match &spec.model {
        Some(wanted) => list.data.iter().find(|m| m.id == *wanted),
        None => list.data.first(),
    };
    let Some(model) = found else {
        let Some(wanted) = spec.model.clone() else {
            return Err(ProbeError::NoModel { url: target.facts.url.clone() });
        };
        let served: Vec<String> = list.data.into_iter().map(|m| m.id).collect();
        let nearest = nearest(&wanted, served.iter().map(String::as_str)).map(str::to_owned);
        return Err(ProbeError::UnknownModel { wanted, served, nearest });
    };
    target.facts.model.clone_from(&model.id);
    target.shape.model.clone_from(&model.id);
    target.facts.engine.clone_from(&model.owned_by);
    target.facts.max_model_len = model.max_model_len;
    Ok(())
}

/// The engine's version, where it tells.
async fn version(target: &Target) -> Option<String> {
    #[derive(Deserialize)]
    struct Version {
        version: String,
    }
    let response = target.http.get(target.base.beside("version")).send().await.ok()?;
    let body = response.error_for_status().ok()?.bytes().await.ok()?;
    serde_json::from_slice::<Version>(&body).ok().map(|v| v.version)
}

/// Tokens that a probing completion asks for.
const PROBE_TOKENS: u32 = 4;

/// Sends a short completion with every parameter that we would like to use, and drops what is refused.
async fn completion(target: &mut Target, clock: &Clock) -> Result<(), ProbeError> {
    let answer = loop {
        let answer = ask(target, FIRST_WORD.into(), PROBE_TOKENS, clock).await;
        let Outcome::Failed { class, status, detail } = &answer.outcome else { break answer };
        match (class, status) {
            (FailureClass::HttpStatus, Some(400 | 422)) if yield_to(target, detail) => {}
            (FailureClass::Auth, Some(status)) => {
                let url = target.base.api("chat/completions").to_string();
                return Err(ProbeError::WrongKey { url, status: *status, detail: detail.clone() });
            }
            (FailureClass::HttpStatus, Some(404)) if detail.to_lowercase().contains("model") => {
                return Err(ProbeError::UnknownModel {
                    wanted: target.shape.model.clone(),
                    served: Vec::new(),
                    nearest: None,
                });
            }
            (FailureClass::HttpStatus, Some(404 | 405)) => {
                let url = target.base.api("chat/completions").to_string();
                return Err(ProbeError::WrongUrl { url, detail: detail.clone() });
            }
            (FailureClass::Connect, _) => {
                let proxy = wire::proxy(&target.base, &target.base.api("chat/completions"));
                return Err(ProbeError::Unreachable { url: target.facts.url.clone(), proxy, detail: detail.clone() });
            }
            (_, Some(status)) => return Err(ProbeError::Refused { status: *status, detail: detail.clone() }),
            (class, None) => return Err(ProbeError::BadAnswer { class: *class, detail: detail.clone() }),
        }
    };
    // What is taken without a word may still have no effect; then it is not sent.
    let running = answer.chunks.iter().any(|c| c.running_tokens.is_some());
    target.shape.continuous_usage &= running;
    target.shape.include_metrics &= answer.server.is_some();
    target.facts.continuous_usage = running;
    target.facts.per_request_metrics = answer.server.is_some();
    target.facts.exact_output = target.shape.exact_output && answer.usage.completion_tokens == Some(PROBE_TOKENS);
    Ok(())
}

/// Drops one parameter after a refusal: the one that its words name, else the least common one. `false` if there is none left.
fn yield_to(target: &mut Target, words: &str) -> bool {
    let shape = &mut target.shape;
    if words.contains("max_completion_tokens") && shape.max_tokens_key == "max_tokens" {
        shape.max_tokens_key = "max_completion_tokens";
        return true;
    }
    let named = |names: &[&str]| names.iter().any(|n| words.contains(n));
    type Flag = fn(&mut super::Shape) -> &mut bool;
    let order: [(&[&str], Flag); 4] = [
        (&["include_metrics"], |s| &mut s.include_metrics),
        (&["continuous_usage_stats"], |s| &mut s.continuous_usage),
        (&["min_tokens", "ignore_eos"], |s| &mut s.exact_output),
        (&["stream_options", "include_usage"], |s| &mut s.include_usage),
    ];
    for by_name in [true, false] {
        for (names, flag) in order {
            if *flag(shape) && (!by_name || named(names)) {
                *flag(shape) = false;
                return true;
            }
        }
    }
    false
}

/// One short completion outside of any load.
pub(super) async fn ask(target: &Target, content: String, output_tokens: u32, clock: &Clock) -> RequestTimeline {
    let prompt = Prompt {
        index: 0,
        messages: vec![Message { role: Role::User, content }],
        asked_prompt_tokens: None,
        asked_output_tokens: Some(output_tokens),
    };
    let flight = Flight::new(RequestTimeline::blank(0));
    client::send(target, &prompt, clock, &flight).await;
    flight.into_timeline()
}
