//! Connections: accepted without delay, and closable without an answer.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// A listener whose connections send at once (Nagle's delay would turn milliseconds of simulated
/// time into hours) and can be broken off by a handler.
pub(super) struct Door(pub(super) TcpListener);

/// Breaks the connection of the request that it came with.
#[derive(Clone, Debug, Default)]
pub(super) struct Breaker(Arc<AtomicBool>);

impl Breaker {
    /// From now on nothing is written to the connection; the next write ends it.
    pub(super) fn trip(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A connection with its breaker.
pub(super) struct Connection {
    stream: TcpStream,
    breaker: Breaker,
}

impl axum::serve::Listener for Door {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            // An error concerns one connection that is gone, or a shortage of descriptors that passes.
            match self.0.accept().await {
                Ok((stream, addr)) => {
                    if stream.set_nodelay(true).is_ok() {
                        return (Connection { stream, breaker: Breaker::default() }, addr);
                    }
                }
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Connected<IncomingStream<'_, Door>> for Breaker {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Breaker {
        stream.io().breaker.clone()
    }
}

impl Connection {
    fn check(&self) -> io::Result<()> {
        if self.breaker.0.load(Ordering::Relaxed) { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
