//! One request: send it, stamp what comes back, class how it ended.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, DATE, HeaderValue, LOCATION, RETRY_AFTER};

use super::chunk::{Chunk, line};
use super::direct;
use super::stream::{Answer, BodyEnd, Transcript};
use super::target::Target;
use super::wire::connection::Arrival;
use super::wire::http1;
use crate::model::cause::{causes, deepest};
use crate::model::request::{FailureClass, Outcome, RequestTimeline};
use crate::model::time::{Clock, Offset};
use crate::workload::Prompt;

/// A request on its way: its timeline can be looked at while it grows.
#[derive(Debug)]
pub struct Flight(Mutex<RequestTimeline>);

impl Flight {
    /// A request that is about to be sent.
    pub fn new(timeline: RequestTimeline) -> Flight {
        Flight(Mutex::new(timeline))
    }

    /// Its timeline, once nobody else looks at it.
    pub fn into_timeline(self) -> RequestTimeline {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its timeline. Held for the length of one read's parse at most.
    pub fn timeline(&self) -> MutexGuard<'_, RequestTimeline> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long the end of a finished body is waited for, so that its connection can be used again.
pub(super) const BODY_END_GRACE: Duration = Duration::from_millis(50);

/// Largest error body that is read, bytes.
pub(super) const MAX_ERROR_BYTES: usize = 64 << 10;

/// Sends one request and follows its answer to the end; the flight's timeline is complete when it returns.
/// Gives how long the server asked us to stay away, if it did.
pub async fn send(target: &Target, prompt: &Prompt, clock: &Clock, flight: &Flight) -> Option<Duration> {
    match &target.wire {
        Some(wire) => direct::send(wire, target, prompt, clock, flight).await,
        None => send_by_library(target, prompt, clock, flight).await,
    }
}

/// The same through reqwest, for what our own wire cannot carry: proxies and HTTP/2. Its stamps are those of user space.
async fn send_by_library(target: &Target, prompt: &Prompt, clock: &Clock, flight: &Flight) -> Option<Duration> {
    let request = target
        .http
        .post(target.base.api("chat/completions"))
        .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .body(target.body(prompt));
    let sent = clock.now();
    flight.timeline().sent = sent;
    let mut alarm = std::pin::pin!(tokio::time::sleep_until(clock.instant(sent + target.first_token_timeout)));
    let response = tokio::select! {
        biased;
        response = request.send() => response,
        () = &mut alarm => {
            fail(flight, clock.now(), FailureClass::StallTimeout, None, format!("no answer for {} s", target.first_token_timeout.as_secs_f64()));
            return None;
        }
    };
    let mut response = match response {
        Ok(response) => response,
        Err(e) => {
            let (class, detail) = transport_failure(&e, FailureClass::ConnectionReset);
            fail(flight, clock.now(), class, None, detail);
            return None;
        }
    };
    let headers = clock.now();
    flight.timeline().headers = Some(headers);
    if !response.status().is_success() {
        return refused(response, target, clock, flight).await;
    }

    let wanted = target.transcripts.as_ref().map(|_| Transcript { index: prompt.index, ..Transcript::default() });
    let mut answer = Answer::new(wanted);
    let (mut last, mut limit) = (headers, target.first_token_timeout);
    let end = loop {
        tokio::select! {
            biased;
            read = response.chunk() => {
                // The stamp comes before any look at the bytes.
                let at = clock.now();
                last = at;
                match read {
                    Ok(Some(bytes)) => {
                        let mut timeline = flight.timeline();
                        target.lateness.read(Arrival { at, late: None }, 1);
                        let more = answer.read(&bytes, at, &mut timeline);
                        if limit != target.idle_timeout && Answer::begun(&timeline) {
                            limit = target.idle_timeout;
                            alarm.as_mut().reset(clock.instant(at + limit));
                        }
                        if !more {
                            break BodyEnd::Whole;
                        }
                    }
                    Ok(None) => break BodyEnd::Whole,
                    Err(e) => {
                        let (class, detail) = transport_failure(&e, FailureClass::Truncated);
                        break BodyEnd::Broken(class, detail);
                    }
                }
            }
            // The alarm is moved only when it rings: no timer is touched at a token.
            () = &mut alarm => {
                let due = last + limit;
                if clock.now() >= due {
                    last = clock.now();
                    break BodyEnd::Silent(limit);
                }
                alarm.as_mut().reset(clock.instant(due));
            }
        }
    };
    let whole = end == BodyEnd::Whole;
    let transcript = answer.end(end, last, &mut flight.timeline());
    if let (Some(sender), Some(transcript)) = (&target.transcripts, transcript) {
        let _ = sender.send(transcript);
    }
    if whole {
        let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
        let _ = tokio::time::timeout_at(clock.instant(last + BODY_END_GRACE), rest).await;
    }
    None
}

/// An answer with a status outside 2xx.
async fn refused(mut response: reqwest::Response, target: &Target, clock: &Clock, flight: &Flight) -> Option<Duration> {
    let status = response.status();
    let text = |name| response.headers().get(name).and_then(|v| v.to_str().ok());
    let retry_after = text(RETRY_AFTER).and_then(|r| http1::wait(r, text(DATE)));
    let location = text(LOCATION).map(str::to_owned);
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(bytes)) = response.chunk().await {
            body.extend_from_slice(&bytes[..bytes.len().min(MAX_ERROR_BYTES - body.len())]);
            if body.len() == MAX_ERROR_BYTES {
                break;
            }
        }
    };
    let _ = tokio::time::timeout_at(clock.instant(clock.now() + target.idle_timeout), read).await;
    let detail = refusal_words(&body, location.as_deref(), retry_after);
    fail(flight, clock.now(), status_class(status.as_u16()), Some(status.as_u16()), detail);
    retry_after
}

/// What an answer outside 2xx says, in a line.
pub(super) fn refusal_words(body: &[u8], location: Option<&str>, retry_after: Option<Duration>) -> String {
    let mut words = error_words(body);
    if let Some(to) = location {
        words = format!("redirected to {}; redirects are not followed", line(to));
    }
    if let Some(s) = retry_after {
        words = format!("{words} (retry after {} s)", s.as_secs_f64());
    }
    words
}

/// The class of a status outside 2xx.
pub fn status_class(status: u16) -> FailureClass {
    match status {
        401 | 403 => FailureClass::Auth,
        429 => FailureClass::RateLimited,
        503 => FailureClass::Unavailable,
        _ => FailureClass::HttpStatus,
    }
}

/// What an error body says, in a line.
pub fn error_words(body: &[u8]) -> String {
    let said = Chunk::parse(body.trim_ascii()).ok().and_then(|c| c.error());
    said.unwrap_or_else(|| if body.is_empty() { "no body".into() } else { line(&String::from_utf8_lossy(body)) })
}

/// Closes a timeline: the request failed.
pub(super) fn fail(flight: &Flight, at: Offset, class: FailureClass, status: Option<u16>, detail: String) {
    let mut timeline = flight.timeline();
    timeline.finished = at;
    timeline.outcome = Outcome::Failed { class, status, detail };
}

/// The class of an error of the transport, and the words of its deepest cause. `cut` is what a connection that was
/// closed in an orderly way, but too early, means at this point.
pub fn transport_failure(e: &reqwest::Error, cut: FailureClass) -> (FailureClass, String) {
    let class = causes(e).filter_map(|cause| broken(cause.downcast_ref::<io::Error>()?.kind(), cut)).next();
    let words = line(&deepest(e));
    let class = if e.is_connect() {
        FailureClass::Connect
    } else if let Some(class) = class {
        class
    } else if e.is_timeout() {
        FailureClass::StallTimeout
    } else if words.contains("closed before message completed") || words.contains("end of file before") {
        cut
    } else {
        FailureClass::Protocol
    };
    (class, words)
}

/// The class of a connection that broke with such an error; `cut` as for [`transport_failure`].
pub(super) fn broken(kind: io::ErrorKind, cut: FailureClass) -> Option<FailureClass> {
    use io::ErrorKind as Kind;
    match kind {
        Kind::ConnectionReset | Kind::BrokenPipe | Kind::ConnectionAborted => Some(FailureClass::ConnectionReset),
        Kind::UnexpectedEof => Some(cut),
        _ => None,
    }
}
