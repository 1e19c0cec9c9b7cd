//! Bodies that take time: a stream of chunks, or a whole answer at its end.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use futures_util::Stream;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::answer::Answer;
use super::driver::Command;
use super::http::{self, Api};
use super::http_metrics::Served;
use super::server::Message;
use crate::model::time::Offset;

/// Tells the driver when a client leaves before its answer has ended.
#[derive(Debug)]
pub(super) struct Guard {
    commands: mpsc::UnboundedSender<Command>,
    ids: Vec<u64>,
}

impl Guard {
    /// Watches over the requests `ids`.
    pub(super) fn new(commands: mpsc::UnboundedSender<Command>, ids: Vec<u64>) -> Guard {
        Guard { commands, ids }
    }

    fn ended(&mut self) {
        self.ids.clear();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.ids.is_empty() {
            let _ = self.commands.send(Command::Abort(std::mem::take(&mut self.ids)));
        }
    }
}

/// Counts a streamed response when it ends, however it does.
#[derive(Debug)]
pub(super) struct Counted {
    api: Arc<Api>,
    served: Option<Served>,
    began: Offset,
    /// Its place in the proxy, free again when it ends.
    _pass: Option<OwnedSemaphorePermit>,
}

impl Counted {
    /// A response that began at `began` and came through the proxy with `pass`.
    pub(super) fn new(api: Arc<Api>, served: Served, began: Offset, pass: Option<OwnedSemaphorePermit>) -> Counted {
        Counted { api, served: Some(served), began, _pass: pass }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(served) = self.served.take() {
            http::count(&self.api, served, self.began);
        }
    }
}

struct Streaming {
    answer: Answer,
    messages: mpsc::UnboundedReceiver<Message>,
    guard: Guard,
    /// Chunks that are made and not yet sent.
    ready: VecDeque<Bytes>,
    /// Messages that may still come before the stream is cut.
    left: Option<usize>,
    /// The next poll ends the stream with an error.
    broken: bool,
    _counted: Counted,
}

impl Streaming {
    /// Breaks the response off at the next poll: what was sent before gets on its way first.
    fn break_off(&mut self, context: &Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        self.broken = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Stream for Streaming {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let state = &mut *self;
        loop {
            if let Some(chunk) = state.ready.pop_front() {
                return Poll::Ready(Some(Ok(chunk)));
            }
            if state.answer.ended() {
                return Poll::Ready(None);
            }
            if state.broken {
                return Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into())));
            }
            if state.left == Some(0) {
                return state.break_off(context);
            }
            let Some(message) = ready!(state.messages.poll_recv(context)) else {
                // The driver drops its end only when the server dies.
                return state.break_off(context);
            };
            state.left = state.left.map(|n| n - 1);
            state.answer.chunks(message, &mut state.ready);
            if state.answer.ended() {
                state.guard.ended();
            }
        }
    }
}

/// The body of a streamed answer; cut after `cut` messages, if a number is given.
pub(super) fn body(
    answer: Answer,
    messages: mpsc::UnboundedReceiver<Message>,
    guard: Guard,
    cut: Option<usize>,
    counted: Counted,
) -> Body {
    let ready = VecDeque::with_capacity(4);
    Body::from_stream(Streaming { answer, messages, guard, ready, left: cut, broken: false, _counted: counted })
}

/// The body of a whole answer; `None` if the server died before its end.
pub(super) async fn whole(
    mut answer: Answer,
    mut messages: mpsc::UnboundedReceiver<Message>,
    mut guard: Guard,
) -> Option<Value> {
    while !answer.ended() {
        answer.take(messages.recv().await?);
    }
    guard.ended();
    Some(answer.body())
}

/// An HTTP date: `Tue, 01 Dec 2026 02:49:51 GMT`.
pub(super) fn http_date(unix: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let days = unix.div_euclid(86_400);
    let second = unix.rem_euclid(86_400);
    let (mut year, mut day) = (1970, days);
    let leap = |y: i64| (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
    while day >= if leap(year) { 366 } else { 365 } {
        day -= if leap(year) { 366 } else { 365 };
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 0;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    format!(
        "{}, {:02} {} {year} {:02}:{:02}:{:02} GMT",
        DAYS[days.rem_euclid(7) as usize],
        day + 1,
        MONTHS[month],
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_http_wants() {
        for (unix, want) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (1_796_093_391, "Tue, 01 Dec 2026 02:49:51 GMT"),
            (1_709_164_800, "Thu, 29 Feb 2024 00:00:00 GMT"),
        ] {
            assert_eq!(http_date(unix), want);
        }
    }
}
