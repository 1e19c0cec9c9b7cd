//! One connection, plain or TLS: opened before any clock starts, read with stamps, and kept for the next request.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::super::lateness::Lateness;
use super::socket::Socket;
use super::tls::Session;
use crate::model::time::{Clock, Offset};

/// Bytes that one read takes at most.
const READ_BYTES: usize = 64 << 10;

/// Bytes that are decrypted at once: a TLS record holds 16 KiB at most.
const PLAIN_BYTES: usize = 16 << 10;

/// Room for what came off the wire, and for what it decrypts to.
type Scratch = (Box<[u8]>, Box<[u8]>);

thread_local! {
    /// Where bytes are read to. They are looked at before anything else can be read on this thread, so that no stream
    /// needs a buffer of its own.
    static SCRATCH: RefCell<Scratch> =
        RefCell::new((vec![0; READ_BYTES].into(), vec![0; PLAIN_BYTES].into()));
}

/// When a read's bytes came, and when it returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When its last byte came: the kernel's stamp, or the instant of the read.
    pub at: Offset,
    /// By how much the read was later than the kernel's stamp; `None` without one.
    pub late: Option<Duration>,
}

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    tls: Option<Session>,
    /// TLS records that the socket has not taken yet.
    out: Vec<u8>,
    /// How long it took to open; taken by the first request that uses it.
    pub opened_in: Option<Duration>,
    /// The latest arrival: a later read cannot be earlier.
    last: Offset,
    /// Who counts it while it is open.
    counted: Option<Arc<Lateness>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(lateness) = &self.counted {
            lateness.closed();
        }
    }
}

impl Connection {
    /// A connection over a socket that is open.
    pub fn plain(socket: Socket) -> Connection {
        Connection { socket, tls: None, out: Vec::new(), opened_in: None, last: Offset::ZERO, counted: None }
    }

    /// Shakes hands over a socket that is open.
    ///
    /// # Errors
    /// If the peer is gone, speaks no TLS, or its certificate is refused.
    pub async fn secure(socket: Socket, session: Session, clock: &Clock) -> io::Result<Connection> {
        let mut connection = Connection::plain(socket);
        connection.tls = Some(session);
        connection.flush().await?;
        while connection.tls.as_ref().is_some_and(Session::is_handshaking) {
            let read = poll_fn(|cx| connection.poll_read(cx, clock, |_, _| {})).await;
            // What we have to say of a bad certificate is still said.
            let flushed = connection.flush().await;
            if read? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            flushed?;
        }
        Ok(connection)
    }

    /// Counts it from now on among those that are open.
    pub fn count_with(&mut self, lateness: Arc<Lateness>) {
        lateness.opened();
        self.counted = Some(lateness);
    }

    /// Whether the peer has neither closed it nor sent anything that nobody asked for. What TLS itself has to say, such as
    /// a session's ticket, is taken in.
    pub fn is_idle(&mut self) -> bool {
        SCRATCH.with_borrow_mut(|(raw, plain)| {
            loop {
                let bytes = match self.socket.read_now(raw) {
                    Ok(read) if read.bytes > 0 => &raw[..read.bytes],
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
                    Ok(_) | Err(_) => return false,
                };
                let Some(tls) = &mut self.tls else { return false };
                let mut unasked = false;
                let received = tls.receive(bytes, plain, |_| unasked = true);
                if received.is_err() || unasked || tls.is_closed() || tls.take_output(&mut self.out).is_err() {
                    return false;
                }
            }
        })
    }

    /// Reads once and hands the bytes with their arrival to `each`; 0 is the end of the connection.
    ///
    /// # Errors
    /// If the connection broke.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        clock: &Clock,
        mut each: impl FnMut(&[u8], Arrival),
    ) -> Poll<io::Result<usize>> {
        SCRATCH.with_borrow_mut(|(raw, plain)| {
            let read = ready!(self.socket.poll_read(cx, raw))?;
            let (at, late) = match read.stamp.and_then(|s| clock.of_wall(s)) {
                Some((at, now)) => (at, Some(now.since(at))),
                None => (clock.now(), None),
            };
            self.last = self.last.max(at);
            let arrival = Arrival { at: self.last, late };
            let bytes = &raw[..read.bytes];
            match &mut self.tls {
                None => each(bytes, arrival),
                Some(tls) => {
                    let received = tls.receive(bytes, plain, |b| each(b, arrival));
                    tls.take_output(&mut self.out)?;
                    received?;
                    if !self.out.is_empty() && !tls.is_handshaking() {
                        // Answers of TLS itself, such as a new key's: what does not go now goes with the next request.
                        if let Poll::Ready(sent) = self.socket.poll_write(cx, &self.out) {
                            self.out.drain(..sent?);
                        }
                    }
                    if tls.is_closed() && !tls.is_handshaking() {
                        return Poll::Ready(Ok(0));
                    }
                }
            }
            Poll::Ready(Ok(read.bytes))
        })
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// If the connection broke.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if self.tls.is_none() {
            while !bytes.is_empty() {
                let sent = poll_fn(|cx| self.socket.poll_write(cx, bytes)).await?;
                bytes = &bytes[sent..];
            }
            return Ok(());
        }
        while !bytes.is_empty() {
            if let Some(tls) = &mut self.tls {
                let taken = tls.send(bytes)?;
                bytes = &bytes[taken..];
            }
            pin!(self.flush()).await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.take_output(&mut self.out)?;
        }
        let mut at = 0;
        while at < self.out.len() {
            at += poll_fn(|cx| self.socket.poll_write(cx, &self.out[at..])).await?;
        }
        self.out.clear();
        Ok(())
    }
}
