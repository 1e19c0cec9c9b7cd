//! One request over our own [`wire`](super::wire): the clock starts at the write and stops at the stamp of the bytes.

use std::future::{Future as _, poll_fn};
use std::io::{self, Write as _};
use std::task::Poll;
use std::time::Duration;

use super::chunk::line;
use super::client::{self, BODY_END_GRACE, Flight, MAX_ERROR_BYTES, fail, refusal_words, status_class};
use super::stream::{Answer, BodyEnd, Transcript};
use super::target::Target;
use super::wire::connection::{Arrival, Connection};
use super::wire::http1::{self, Body, Encoding, Framing, Head, Malformed};
use super::wire::{DialError, Wire};
use crate::model::cause::deepest;
use crate::model::request::{FailureClass, RequestTimeline};
use crate::model::time::{Clock, Offset};
use crate::workload::Prompt;

/// Sends one request and follows its answer to the end, as [`super::client::send`] does.
pub async fn send(wire: &Wire, target: &Target, prompt: &Prompt, clock: &Clock, flight: &Flight) -> Option<Duration> {
    let request = wire.request(&target.body(prompt));
    let mut connection = match wire.take_idle() {
        Some(connection) => connection,
        None => match wire.dial(clock).await {
            Ok(connection) => connection,
            Err(e) => {
                fail(flight, clock.now(), FailureClass::Connect, None, line(&dial_words(&e)));
                return None;
            }
        },
    };
    let mut exchange = Exchange::new(
        target.transcripts.is_some().then(|| Transcript { index: prompt.index, ..Transcript::default() }),
    );
    let reusable = {
        let connect = connection.opened_in.take();
        let sent = clock.now();
        {
            let mut timeline = flight.timeline();
            (timeline.sent, timeline.connect) = (sent, connect);
        }
        follow(wire, target, clock, flight, &mut connection, &request, sent, &mut exchange).await
    };
    if reusable {
        wire.give_back(connection);
    }
    let Exchange { answer, head, .. } = exchange;
    if let (Some(sender), Some(transcript)) = (&target.transcripts, answer.into_transcript()) {
        let _ = sender.send(transcript);
    }
    head.filter(|h| !(200..300).contains(&h.status)).and_then(|h| h.retry_after)
}

fn dial_words(e: &DialError) -> String {
    match e {
        DialError::Io(e) => deepest(e),
        DialError::TimedOut(_) => e.to_string(),
    }
}

/// What ended the wait for an answer.
enum Event {
    Read(io::Result<usize>),
    Alarm,
}

/// Writes the request, reads the answer and closes the timeline; whether the connection can go on.
#[expect(clippy::too_many_arguments, reason = "all that one exchange needs")]
async fn follow(
    wire: &Wire,
    target: &Target,
    clock: &Clock,
    flight: &Flight,
    connection: &mut Connection,
    request: &[u8],
    sent: Offset,
    exchange: &mut Exchange,
) -> bool {
    let mut limit = target.first_token_timeout;
    let mut alarm = std::pin::pin!(tokio::time::sleep_until(clock.instant(sent + limit)));
    let written = tokio::select! {
        biased;
        written = connection.write_all(request) => written,
        () = &mut alarm => Err(io::ErrorKind::TimedOut.into()),
    };
    // A server may refuse before it has read all: then what it says is worth more than the failed write.
    let mut broken = match written {
        Ok(()) => None,
        Err(e) if matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => Some(e),
        Err(e) => {
            exchange.close(Ended::Broken(e), clock.now(), limit, flight);
            return false;
        }
    };
    let mut heard = sent;
    let ended = loop {
        let event = poll_fn(|cx| {
            let read = connection.poll_read(cx, clock, |bytes, arrival| {
                let mut timeline = flight.timeline();
                let before = timeline.chunks.len();
                exchange.take(bytes, arrival, &mut timeline);
                wire.saw(arrival, timeline.chunks.len() - before);
            });
            match read {
                Poll::Ready(read) => Poll::Ready(Event::Read(read)),
                // The alarm is moved only when it rings: no timer is touched at a token.
                Poll::Pending => alarm.as_mut().poll(cx).map(|()| Event::Alarm),
            }
        })
        .await;
        match event {
            // TLS can say in one read that it was the last.
            Event::Read(Ok(0)) => break if exchange.is_settled() { Ended::Settled } else { Ended::Closed },
            Event::Read(Ok(_)) => {
                heard = exchange.last;
                if exchange.is_settled() {
                    break Ended::Settled;
                }
                if limit != target.idle_timeout && exchange.begun {
                    limit = target.idle_timeout;
                    alarm.as_mut().reset(clock.instant(heard + limit));
                }
            }
            Event::Read(Err(e)) => break Ended::Broken(broken.take().unwrap_or(e)),
            Event::Alarm => {
                let due = heard + limit;
                if clock.now() >= due {
                    break Ended::Silent;
                }
                alarm.as_mut().reset(clock.instant(due));
            }
        }
    };
    let at = if let Ended::Settled = ended { exchange.last } else { clock.now() };
    exchange.close(ended, at, limit, flight);
    if exchange.fault.is_some() {
        return false;
    }
    if !exchange.body_is_over() && exchange.answer_is_over && exchange.keep_alive() {
        // The end of the body is waited for, so that the connection can be used again.
        let rest = async {
            while !exchange.body_is_over() && exchange.fault.is_none() {
                let read = poll_fn(|cx| connection.poll_read(cx, clock, |bytes, _| exchange.skip(bytes))).await;
                if !read.is_ok_and(|n| n > 0) {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout_at(clock.instant(clock.now() + BODY_END_GRACE), rest).await;
    }
    exchange.body_is_over() && exchange.keep_alive() && exchange.fault.is_none()
}

/// How the reading ended.
enum Ended {
    /// All has come that was waited for.
    Settled,
    /// The server closed the connection.
    Closed,
    Broken(io::Error),
    Silent,
}

/// An answer on its way in: head, framing, compression, events.
#[derive(Debug)]
struct Exchange {
    head: Option<Head>,
    /// What has come of the head.
    head_bytes: Vec<u8>,
    body: Body,
    inflate: Option<Inflate>,
    answer: Answer,
    /// Whether the answer has said its last, be the body over or not.
    answer_is_over: bool,
    /// The body of an answer outside 2xx.
    refusal: Vec<u8>,
    fault: Option<String>,
    /// Whether output has begun to come.
    begun: bool,
    /// Bytes came that nobody asked for.
    surplus: bool,
    last: Offset,
}

impl Exchange {
    fn new(transcript: Option<Transcript>) -> Exchange {
        Exchange {
            head: None,
            head_bytes: Vec::new(),
            body: Body::new(Framing::UntilClose),
            inflate: None,
            answer: Answer::new(transcript),
            answer_is_over: false,
            refusal: Vec::new(),
            fault: None,
            begun: false,
            surplus: false,
            last: Offset::ZERO,
        }
    }

    fn body_is_over(&self) -> bool {
        self.head.is_some() && self.body.is_over()
    }

    fn keep_alive(&self) -> bool {
        !self.surplus && self.head.as_ref().is_some_and(|h| h.keep_alive)
    }

    /// Whether nothing more is waited for.
    fn is_settled(&self) -> bool {
        self.fault.is_some() || self.answer_is_over || self.body_is_over() || self.refusal.len() >= MAX_ERROR_BYTES
    }

    /// Takes in one read.
    fn take(&mut self, bytes: &[u8], arrival: Arrival, timeline: &mut RequestTimeline) {
        self.last = arrival.at;
        if self.head.is_some() {
            return self.take_body(bytes, arrival.at, timeline);
        }
        // The usual head comes in one read, and is not copied.
        if self.head_bytes.is_empty() {
            self.take_head(bytes, arrival.at, timeline);
        } else {
            let mut all = std::mem::take(&mut self.head_bytes);
            all.extend_from_slice(bytes);
            self.take_head(&all, arrival.at, timeline);
        }
    }

    fn take_head(&mut self, bytes: &[u8], at: Offset, timeline: &mut RequestTimeline) {
        match http1::head(bytes) {
            Ok(None) => self.head_bytes = bytes.to_vec(),
            Ok(Some((head, length))) => {
                timeline.headers = Some(at);
                self.body = Body::new(head.framing);
                match &head.encoding {
                    Encoding::Identity => {}
                    Encoding::Gzip => self.inflate = Some(Inflate::gzip()),
                    Encoding::Deflate => self.inflate = Some(Inflate::deflate()),
                    Encoding::Unknown(name) => {
                        self.fault = Some(format!(
                            "the body is compressed with {name}, which nobody asked for, expected identity"
                        ));
                    }
                }
                self.head = Some(head);
                if self.fault.is_none() {
                    self.take_body(&bytes[length..], at, timeline);
                }
            }
            Err(e) => self.fault = Some(line(&e.to_string())),
        }
    }

    fn take_body(&mut self, bytes: &[u8], at: Offset, timeline: &mut RequestTimeline) {
        let Exchange { body, inflate, answer, answer_is_over, refusal, head, begun, .. } = self;
        let good = head.as_ref().is_some_and(|h| (200..300).contains(&h.status));
        let mut fault: Option<String> = None;
        let mut plain = |bytes: &[u8]| {
            if !good {
                let room = MAX_ERROR_BYTES.saturating_sub(refusal.len());
                refusal.extend_from_slice(&bytes[..bytes.len().min(room)]);
            } else if !*answer_is_over {
                *answer_is_over = !answer.read(bytes, at, timeline);
            }
        };
        let fed = match inflate {
            None => body.feed(bytes, plain),
            Some(inflate) => body.feed(bytes, |packed| match inflate.push(packed) {
                Ok(bytes) => plain(bytes),
                Err(e) => {
                    fault.get_or_insert_with(|| format!("the compressed body cannot be read: {e}"));
                }
            }),
        };
        *begun = *begun || Answer::begun(timeline);
        self.settle_feed(fed, bytes.len(), fault);
    }

    /// Takes in what comes behind the answer's last word.
    fn skip(&mut self, bytes: &[u8]) {
        let fed = self.body.feed(bytes, |_| {});
        self.settle_feed(fed, bytes.len(), None);
    }

    fn settle_feed(&mut self, fed: Result<usize, Malformed>, given: usize, fault: Option<String>) {
        match fed {
            Ok(used) => self.surplus |= used < given,
            Err(e) => self.fault = Some(e.to_string()),
        }
        if fault.is_some() {
            self.fault = fault;
        }
    }

    /// Closes the timeline.
    fn close(&mut self, ended: Ended, at: Offset, limit: Duration, flight: &Flight) {
        let Some(head) = &self.head else {
            let (class, detail) = match (ended, self.fault.take()) {
                (_, Some(fault)) => (FailureClass::Protocol, fault),
                (Ended::Broken(e), _) if e.kind() == io::ErrorKind::TimedOut => (
                    FailureClass::StallTimeout,
                    format!("the request could not be sent within {} s", limit.as_secs_f64()),
                ),
                (Ended::Broken(e), _) => broken(&e),
                (Ended::Silent, _) => (FailureClass::StallTimeout, format!("no answer for {} s", limit.as_secs_f64())),
                (Ended::Closed | Ended::Settled, _) => {
                    (FailureClass::ConnectionReset, "connection closed before message completed".into())
                }
            };
            return fail(flight, at, class, None, detail);
        };
        if !(200..300).contains(&head.status) {
            let detail = refusal_words(&self.refusal, head.location.as_deref(), head.retry_after);
            return fail(flight, at, status_class(head.status), Some(head.status), detail);
        }
        let how = match (ended, &self.fault) {
            (_, Some(fault)) => BodyEnd::Broken(FailureClass::Protocol, fault.clone()),
            (Ended::Settled, None) => BodyEnd::Whole,
            (Ended::Closed, None) if self.body.may_end_here() => BodyEnd::Whole,
            (Ended::Closed, None) => {
                BodyEnd::Broken(FailureClass::Truncated, "end of file before the end of the body".into())
            }
            (Ended::Broken(e), None) => {
                let (class, detail) = broken(&e);
                BodyEnd::Broken(class, detail)
            }
            (Ended::Silent, None) => BodyEnd::Silent(limit),
        };
        self.answer.close(how, at, &mut flight.timeline());
    }
}

/// The class of a connection that broke.
fn broken(e: &io::Error) -> (FailureClass, String) {
    (client::broken(e.kind(), FailureClass::Truncated).unwrap_or(FailureClass::Protocol), line(&deepest(e)))
}

/// Decompresses a body as it comes: what one read brought is handed on at once.
#[derive(Debug)]
enum Inflate {
    Gzip(flate2::write::MultiGzDecoder<Vec<u8>>),
    Deflate(flate2::write::ZlibDecoder<Vec<u8>>),
}

impl Inflate {
    fn gzip() -> Inflate {
        Inflate::Gzip(flate2::write::MultiGzDecoder::new(Vec::new()))
    }

    fn deflate() -> Inflate {
        Inflate::Deflate(flate2::write::ZlibDecoder::new(Vec::new()))
    }

    fn push(&mut self, packed: &[u8]) -> io::Result<&[u8]> {
        let out = match self {
            Inflate::Gzip(d) => {
                d.get_mut().clear();
                d.write_all(packed)?;
                d.flush()?;
                d.get_ref()
            }
            Inflate::Deflate(d) => {
                d.get_mut().clear();
                d.write_all(packed)?;
                d.flush()?;
                d.get_ref()
            }
        };
        Ok(out)
    }
}
