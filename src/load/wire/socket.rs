//! A socket that tells when its bytes arrived: by the kernel's receive stamp where there is one.
//!
//! A stamp of our own is late by as long as we were: a thread that gets no CPU for 200 ms reads, and would
//! stamp, 200 ms late. The kernel stamps a packet when it comes in, whoever has the CPU.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::net::{TcpStream, UnixStream};

use super::kernel;

/// One connected socket.
#[derive(Debug)]
pub struct Socket {
    fd: AsyncFd<OwnedFd>,
    /// Whether the kernel was asked for receive stamps.
    stamped: bool,
}

/// What one read gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Bytes; 0 is the end.
    pub bytes: usize,
    /// When the last of them came in, on the wall clock since the Unix epoch.
    pub stamp: Option<Duration>,
}

impl Socket {
    /// A TCP connection. `stamped` asks for the kernel's stamps; where there are none, reads come without.
    pub fn tcp(stream: TcpStream, stamped: bool) -> io::Result<Socket> {
        stream.set_nodelay(true)?;
        let stream = stream.into_std()?;
        let stamped = stamped && kernel::ask_for_stamps(&stream);
        Ok(Socket { fd: kernel::watch(stream.into())?, stamped })
    }

    /// A connection over a Unix socket, which has no stamps.
    pub fn unix(stream: UnixStream) -> io::Result<Socket> {
        Ok(Socket { fd: kernel::watch(stream.into_std()?.into())?, stamped: false })
    }

    /// Reads once.
    pub fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<Read>> {
        loop {
            let mut guard = ready!(self.fd.poll_read_ready(cx))?;
            match self.read_now(buffer) {
                Ok(read) => {
                    // A read that did not fill the buffer emptied the socket: what comes later is a new event.
                    if 0 < read.bytes && read.bytes < buffer.len() {
                        guard.clear_ready();
                    }
                    return Poll::Ready(Ok(read));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    /// Reads what is there; `WouldBlock` if that is nothing.
    pub fn read_now(&self, buffer: &mut [u8]) -> io::Result<Read> {
        kernel::receive(self.fd.get_ref().as_fd(), buffer, self.stamped)
    }

    /// Writes as much as goes.
    pub fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            // Nearly always there is room: try before asking.
            match kernel::send(self.fd.get_ref().as_fd(), bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready!(self.fd.poll_write_ready(cx))?.clear_ready(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return Poll::Ready(done),
            }
        }
    }
}
