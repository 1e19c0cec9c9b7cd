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
//! - `server`: all of the above on one timetable, still without sockets
//! - `rehearsal`: a closed loop of streams against it in no time at all
//! - `driver`: the one task that owns it and sleeps to its timetable
//! - `http` and its parts: the API
//!
//! Nothing of the client side is used here, so a misreading cannot cancel itself out. How close it
//! comes to a real server is in `against_real.md` beside this file.

mod answer;
pub mod chance;
mod conn;
pub mod cost;
mod dcgm;
mod driver;
mod engine;
pub mod fault;
mod front;
mod http;
mod http_metrics;
mod kv;
#[cfg(test)]
mod mechanisms;
mod metrics;
mod page;
mod parse;
mod process_metrics;
pub mod profile;
mod refusal;
mod rehearsal;
mod request;
mod schedule;
mod server;
mod stream;
mod tokens;
mod update;

use std::future::{Future, IntoFuture};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::Router;
pub use profile::Profile;
pub use rehearsal::{Load, Rehearsed, rehearse};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::model::time::{Clock, ClockKind};

/// How many connections may wait to be accepted: a burst of a thousand clients must not be refused.
const BACKLOG: u32 = 4096;

/// How long a server that is told to end waits for its connections.
const PATIENCE: Duration = Duration::from_secs(5);

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

/// Serves `profile` until `shutdown` completes, on the caller's clock. Requests that run then end
/// with the finish reason `abort`, as they do when a real server is told to end.
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
    profile.validate().map_err(|text| io::Error::new(io::ErrorKind::InvalidInput, text))?;
    let driver = driver::Driver::new(clock, profile.clone(), seed);
    let (commands, inbox) = mpsc::unbounded_channel();
    let proxy = profile.proxy.as_ref().map(|p| Arc::new(Semaphore::new(p.connections)));
    let api = http::Api { clock, profile, seed, commands, faults: driver.faults(), count: AtomicU64::new(0), proxy };
    let commands = api.commands.clone();
    let router = Router::new().fallback(http::handle).with_state(Arc::new(api));
    let running = tokio::spawn(driver.run(inbox));
    let (ended, end) = oneshot::channel();
    let down = async move {
        shutdown.await;
        let _ = commands.send(driver::Command::Shutdown);
        let _ = ended.send(());
    };
    let service = router.into_make_service_with_connect_info::<conn::Breaker>();
    let server = axum::serve(conn::Door(listener), service).with_graceful_shutdown(down);
    let patience = async {
        // Without a shutdown there is nothing to be patient for.
        if end.await.is_err() {
            std::future::pending::<()>().await;
        }
        clock.sleep_until(clock.now() + PATIENCE).await;
    };
    let outcome = tokio::select! {
        outcome = server.into_future() => outcome,
        () = patience => Ok(()),
    };
    running.abort();
    outcome
}
