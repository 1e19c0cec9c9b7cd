//! The API: one entry for all paths, since what vLLM answers to a wrong path or method matters too.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use super::answer::Answer;
use super::chance;
use super::conn::Breaker;
use super::driver::{Command, Job, unix_seconds};
use super::fault::{Fault, Faults};
use super::http_metrics::Served;
use super::parse::{self, Asked, Kind};
use super::profile::Profile;
use super::refusal::Refusal;
use super::request::Ask;
use super::server::Message;
use super::stream;
use super::tokens;
use crate::model::time::{Clock, Offset};

/// Largest body that is read, in bytes.
const BODY_LIMIT: usize = 64 << 20;

/// What all requests share.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) clock: Clock,
    pub(super) profile: Profile,
    pub(super) seed: u64,
    pub(super) commands: mpsc::UnboundedSender<Command>,
    pub(super) faults: watch::Receiver<Faults>,
    /// Requests so far.
    pub(super) count: AtomicU64,
    /// What the proxy still passes on at once; `None` without a proxy.
    pub(super) proxy: Option<Arc<Semaphore>>,
}

impl Api {
    /// Takes a request through the proxy; what comes back is held until its answer is over.
    async fn through_proxy(&self) -> Option<OwnedSemaphorePermit> {
        let (gate, spec) = (self.proxy.clone()?, self.profile.proxy.as_ref()?);
        let pass = gate.acquire_owned().await.ok();
        self.clock.sleep_until(self.clock.now() + Duration::from_micros(spec.request_us.round() as u64)).await;
        pass
    }
}

/// A response and how it is counted.
struct Reply {
    response: Response,
    bytes: usize,
}

/// Answers any request.
pub(super) async fn handle(
    State(api): State<Arc<Api>>,
    ConnectInfo(breaker): ConnectInfo<Breaker>,
    request: Request,
) -> Result<Response, Infallible> {
    let began = api.clock.now();
    let index = api.count.fetch_add(1, Ordering::Relaxed);
    let down = api.faults.borrow().down(began).is_some();
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    if down || (path.starts_with("/v1/") && api.faults.borrow().drops(began, api.seed, index)) {
        breaker.trip();
        return Ok(Response::new(Body::empty()));
    }
    let known = allowed(&path, &api.profile);
    let length = |headers: &HeaderMap| {
        headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok()).unwrap_or(0)
    };
    let mut served = Served {
        handler: if known.is_some() { path.clone() } else { "none".into() },
        method: method.to_string(),
        status: 200,
        request_bytes: length(request.headers()),
        response_bytes: 0,
        seconds: 0.0,
    };
    let outcome = match &known {
        _ if !authorized(&path, request.headers(), &api.profile) => Err(Refusal::unauthorized()),
        None => Err(Refusal::not_found()),
        Some(wanted) if *wanted != method => Err(Refusal::method_not_allowed()),
        Some(_) => match (method.as_str(), path.as_str()) {
            ("POST", "/v1/chat/completions") => return Ok(generate(api, Kind::Chat, request, index, served).await),
            ("POST", "/v1/completions") => return Ok(generate(api, Kind::Text, request, index, served).await),
            _ => simple(&api, &path, request, index).await,
        },
    };
    let reply = outcome.unwrap_or_else(|refusal| refuse(&api, &refusal, known.as_ref()));
    served.status = reply.response.status().as_u16();
    served.response_bytes = reply.bytes;
    count(&api, served, began);
    Ok(reply.response)
}

/// The method of a path; `None` if there is no such path.
fn allowed(path: &str, profile: &Profile) -> Option<Method> {
    match path {
        "/v1/chat/completions" | "/v1/completions" | "/tokenize" | "/detokenize" | "/sim/faults" => Some(Method::POST),
        "/reset_prefix_cache" if profile.api.dev_mode => Some(Method::POST),
        "/v1/models" | "/health" | "/ping" | "/version" | "/load" | "/metrics" | "/dcgm/metrics" => Some(Method::GET),
        _ => None,
    }
}

/// Only `/v1` asks for the key.
fn authorized(path: &str, headers: &HeaderMap, profile: &Profile) -> bool {
    match &profile.api.api_key {
        Some(key) if path.starts_with("/v1") => headers
            .get(header::AUTHORIZATION)
            .and_then(|v| v.to_str().ok())
            .and_then(|v| v.split_once(' '))
            .is_some_and(|(scheme, given)| scheme.eq_ignore_ascii_case("bearer") && given == key),
        _ => true,
    }
}

/// Paths that answer at once.
async fn simple(api: &Api, path: &str, request: Request, index: u64) -> Result<Reply, Refusal> {
    let gone = Refusal::busy;
    match path {
        "/health" | "/ping" => Ok(reply(api, 200, None, Vec::new())),
        "/version" => Ok(json_reply(api, 200, &json!({"version": "0.31.0"}))),
        "/load" => {
            let load = ask(api, Command::Load).await.ok_or_else(gone)?;
            Ok(json_reply(api, 200, &json!({"server_load": load})))
        }
        "/metrics" => {
            let now = api.clock.now();
            let delay = api.faults.borrow().page_delay(now);
            if !delay.is_zero() {
                api.clock.sleep_until(now + delay).await;
            }
            let (page, written) = ask(api, Command::Page).await.ok_or_else(gone)?;
            if written > api.clock.now() {
                api.clock.sleep_until(written).await;
            }
            Ok(reply(api, 200, Some("text/plain; version=1.0.0; charset=utf-8"), page.into_bytes()))
        }
        "/dcgm/metrics" => {
            let page = ask(api, Command::Dcgm).await.ok_or_else(gone)?;
            Ok(reply(api, 200, Some("text/plain; charset=utf-8"), page.into_bytes()))
        }
        "/reset_prefix_cache" => {
            let done = ask(api, Command::ResetPrefixCache).await.ok_or_else(gone)?;
            Ok(json_reply(api, 200, &json!({"success": done})))
        }
        "/v1/models" => Ok(json_reply(api, 200, &models(api, index))),
        _ => {
            let content_type = content_type(request.headers());
            let bytes = axum::body::to_bytes(request.into_body(), BODY_LIMIT).await.unwrap_or_default();
            let map = parse::body(&bytes, content_type.as_deref())?;
            match path {
                "/tokenize" => {
                    let ids = parse::to_tokenize(&map)?;
                    let texts =
                        map.get("return_token_strs").and_then(Value::as_bool).unwrap_or(false).then(|| {
                            ids.iter().map(|id| tokens::decode(*id).replace(' ', "\u{120}")).collect::<Vec<_>>()
                        });
                    let body = json!({"count": ids.len(), "max_model_len": api.profile.engine.max_model_len,
                                      "tokens": ids, "token_strs": texts});
                    Ok(json_reply(api, 200, &body))
                }
                "/detokenize" => {
                    let ids = map.get("tokens").and_then(Value::as_array).cloned().unwrap_or_default();
                    let text: String =
                        ids.iter().filter_map(Value::as_u64).map(|id| tokens::decode(id as u32)).collect();
                    Ok(json_reply(api, 200, &json!({"prompt": text})))
                }
                _ => {
                    let fault: Fault = serde_json::from_value(Value::Object(map))
                        .map_err(|e| Refusal::bad_request(e.to_string(), None, None))?;
                    let _ = api.commands.send(Command::Fault(fault));
                    Ok(json_reply(api, 200, &json!({"success": true})))
                }
            }
        }
    }
}

async fn ask<T>(api: &Api, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
    let (sender, receiver) = oneshot::channel();
    api.commands.send(command(sender)).ok()?;
    receiver.await.ok()
}

/// A request for answers, streamed or whole.
async fn generate(api: Arc<Api>, kind: Kind, request: Request, index: u64, mut served: Served) -> Response {
    let pass = api.through_proxy().await;
    let began = api.clock.now();
    let content_type = content_type(request.headers());
    let own_id = request.headers().get("x-request-id").and_then(|v| v.to_str().ok()).map(str::to_owned);
    let bytes = axum::body::to_bytes(request.into_body(), BODY_LIMIT).await.unwrap_or_default();
    let prepared = if api.faults.borrow().unavailable(began) {
        Err(Refusal::busy())
    } else {
        parse::body(&bytes, content_type.as_deref()).and_then(|map| parse::asked(kind, &map, &api.profile))
    };
    let started = match prepared {
        Ok(asked) => start(&api, asked, own_id, index).await,
        Err(refusal) => Err(refusal),
    };
    let (answer, messages, guard) = match started {
        Ok(started) => started,
        Err(refusal) => {
            let reply = refuse(&api, &refusal, None);
            served.status = refusal.status;
            served.response_bytes = reply.bytes;
            count(&api, served, began);
            return reply.response;
        }
    };
    if answer.streams() {
        let cut = api.faults.borrow().cut_after(began, api.seed, index);
        let body = stream::body(answer, messages, guard, cut, stream::Counted::new(api.clone(), served, began, pass));
        return response(&api, 200, Some("text/event-stream; charset=utf-8"), body, None);
    }
    let reply = match stream::whole(answer, messages, guard).await {
        Some(body) => json_reply(&api, 200, &body),
        None => refuse(&api, &Refusal::busy(), None),
    };
    served.status = reply.response.status().as_u16();
    served.response_bytes = reply.bytes;
    count(&api, served, began);
    reply.response
}

type Started = (Answer, mpsc::UnboundedReceiver<Message>, stream::Guard);

/// Hands a request to the driver and waits until its prompt is rendered.
async fn start(api: &Api, asked: Asked, own_id: Option<String>, index: u64) -> Result<Started, Refusal> {
    let asks = asks(api, &asked, index);
    let ids: Vec<u64> = asks.iter().map(|a| a.id).collect();
    let (replies, messages) = mpsc::unbounded_channel();
    let (admitted, verdict) = oneshot::channel();
    let guard = stream::Guard::new(api.commands.clone(), ids);
    api.commands.send(Command::Submit(Job { asks, replies, admitted })).map_err(|_| Refusal::busy())?;
    let rendered = verdict.await.map_err(|_| Refusal::busy())?.map_err(|_| Refusal::busy())?;
    api.clock.sleep_until(rendered).await;
    let prefix = if asked.kind == Kind::Chat { "chatcmpl" } else { "cmpl" };
    let own = own_id.unwrap_or_else(|| format!("{:016x}", chance::mix(api.seed, 0x1d, index)));
    let created = unix_seconds(&api.clock, api.clock.now()) as u64;
    let fingerprint = format!("vllm-0.31.0-{:08x}", chance::mix(api.seed, 0xf1, 0) as u32);
    Ok((Answer::new(asked, &api.profile.api, format!("{prefix}-{own}"), created, fingerprint), messages, guard))
}

/// One ask for each answer.
fn asks(api: &Api, asked: &Asked, index: u64) -> Vec<Ask> {
    let mut asks = Vec::with_capacity(asked.prompts.len() * asked.n);
    for (p, prompt) in asked.prompts.iter().enumerate() {
        for i in 0..asked.n {
            let choice = (p * asked.n + i) as u64;
            // A greedy answer is the same for the same prompt; any other belongs to its request.
            let key = if asked.greedy {
                prompt.iter().fold(0x9eed, |h, id| chance::mix(h, u64::from(*id), 0))
            } else {
                chance::mix(api.seed, index, choice)
            };
            let natural = api.profile.api.natural_answer as f64 * (0.25 + 1.5 * chance::unit(key, 0x57, 0));
            asks.push(Ask {
                id: (index << 12) | choice,
                prompt: prompt.clone(),
                max_tokens: asked.max_tokens,
                stops_at: (!asked.ignore_eos).then(|| (natural as usize).max(asked.min_tokens + 1)),
                key,
                priority: asked.priority,
                greedy: asked.greedy,
                grammar_us: asked.structured.then_some(api.profile.engine.grammar_us),
            });
        }
    }
    asks
}

fn models(api: &Api, index: u64) -> Value {
    let created = unix_seconds(&api.clock, api.clock.now()) as u64;
    json!({"object": "list", "data": [{
        "id": api.profile.api.model, "object": "model", "created": created, "owned_by": "vllm",
        "root": "model", "parent": null, "max_model_len": api.profile.engine.max_model_len,
        "permission": [{
            "id": format!("modelperm-{:016x}", chance::mix(api.seed, 0x9e, index)), "object": "model_permission",
            "created": created, "allow_create_engine": false, "allow_sampling": true, "allow_logprobs": true,
            "allow_search_indices": false, "allow_view": true, "allow_fine_tuning": false, "organization": "*",
            "group": null, "is_blocking": false,
        }],
    }]})
}

fn content_type(headers: &HeaderMap) -> Option<String> {
    headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).map(str::to_owned)
}

/// Counts a response that ends now.
pub(super) fn count(api: &Api, mut served: Served, began: Offset) {
    served.seconds = api.clock.now().since(began).as_secs_f64();
    let _ = api.commands.send(Command::Served(served));
}

fn refuse(api: &Api, refusal: &Refusal, wanted: Option<&Method>) -> Reply {
    let mut reply = json_reply(api, refusal.status, &refusal.body);
    if let (405, Some(method)) = (refusal.status, wanted)
        && let Ok(value) = method.as_str().parse()
    {
        reply.response.headers_mut().insert(header::ALLOW, value);
    }
    if refusal.status == 401 {
        reply.response.headers_mut().remove(header::VARY);
    }
    reply
}

fn json_reply(api: &Api, status: u16, body: &Value) -> Reply {
    reply(api, status, Some("application/json"), body.to_string().into_bytes())
}

fn reply(api: &Api, status: u16, content_type: Option<&'static str>, body: Vec<u8>) -> Reply {
    let bytes = body.len();
    Reply { response: response(api, status, content_type, Body::from(body), Some(bytes)), bytes }
}

fn response(api: &Api, status: u16, content_type: Option<&'static str>, body: Body, length: Option<usize>) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if let Ok(date) = stream::http_date(unix_seconds(&api.clock, api.clock.now()) as i64).parse() {
        headers.insert(header::DATE, date);
    }
    headers.insert(header::SERVER, header::HeaderValue::from_static("uvicorn"));
    if let Some(length) = length {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    if let Some(kind) = content_type {
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    }
    headers.insert(header::VARY, header::HeaderValue::from_static("Origin"));
    response
}
