//! A stand-in vLLM 0.31 behind a socket: the same mechanisms, so the same numbers for the same reasons.
//!
//! Read in this order:
//! - [`profile`]: what is served, as plain data with named presets
//! - [`chance`]: seeded draws that do not depend on the order of events
//! - `tokens`: text to token ids and back
//! - `kv`: the block pool with its prefix cache
//! - `cost`: how long an engine step takes
//! - `request`, `engine`: the scheduler, a pure state machine on a timetable
//! - `front`: the API process between engine and client, which observes the metrics
//! - `metrics`: the page
//! - `driver`: the one task that owns all of the above and sleeps to its timetable
//! - `http` and its parts: the API
//!
//! Nothing of the client side is used here, so a misreading cannot cancel itself out.

pub mod chance;
pub mod cost;
pub mod fault;
pub mod profile;

use std::future::Future;
use std::io;
use std::net::SocketAddr;

pub use profile::Profile;
use tokio::net::{TcpListener, TcpSocket};

use crate::model::time::{Clock, ClockKind};

/// How many connections may wait to be accepted: a burst of a thousand clients must not be refused.
const BACKLOG: u32 = 4096;

/// A listener for [`serve`]; port 0 lets the system choose.
///
/// # Errors
/// If the address cannot be bound.
pub fn bind(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

/// Serves `profile` until `shutdown` completes, on a clock that begins now and claims the
/// fixed simulated epoch, so that equal seeds give equal bytes.
///
/// # Errors
/// If the profile is invalid or the listener breaks.
pub async fn serve(
    listener: TcpListener,
    profile: Profile,
    seed: u64,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    serve_on(Clock::start(ClockKind::Simulated), listener, profile, seed, shutdown).await
}

/// Serves `profile` until `shutdown` completes, on the caller's clock.
///
/// # Errors
/// If the profile is invalid or the listener breaks.
pub async fn serve_on(
    clock: Clock,
    listener: TcpListener,
    profile: Profile,
    seed: u64,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let _ = (clock, listener, profile, seed);
    shutdown.await;
    Ok(())
}
