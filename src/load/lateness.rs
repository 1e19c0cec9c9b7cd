//! How late the client itself is: counted where it happens, read once a second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::wire::connection::Arrival;

/// Classes of lateness: class k holds what is below 2^k µs, the last one everything.
const CLASSES: usize = 32;

/// Counts lateness since the last look. Shared by all requests of a target.
#[derive(Debug, Default)]
pub struct Lateness {
    send_max_us: AtomicU64,
    read_max_us: AtomicU64,
    /// Reads with the kernel's stamp, by how far their chunks' stamps may be off.
    blur: [AtomicU64; CLASSES],
    unstamped: AtomicU64,
    connections: AtomicU64,
}

/// A look at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatenessSeen {
    /// Longest time between the instant at which a request could have been sent and its write, µs.
    pub send_max_us: u64,
    /// Longest time between the arrival of bytes and their read, µs; `None` if no read had the kernel's stamp.
    pub read_max_us: Option<u64>,
    /// 99th percentile over the stamped reads of the time by which a chunk's stamp may be too late, µs, rounded up to a power
    /// of two: 0 where a read brought one chunk, since then the kernel's stamp is that chunk's; the lateness of the read
    /// where it brought several, which then share the stamp of the last. `None` as above.
    pub blur_p99_us: Option<u64>,
    /// Reads with the kernel's stamp.
    pub stamped: u64,
    /// Reads without it.
    pub unstamped: u64,
    /// Connections that are open.
    pub connections: u64,
}

impl Lateness {
    /// A request was written so long after it could have been.
    pub fn sent(&self, late: Duration) {
        max(&self.send_max_us, late);
    }

    /// One read of a stream brought so many chunks with output.
    pub fn read(&self, arrival: Arrival, chunks: usize) {
        let Some(late) = arrival.late else {
            self.unstamped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        max(&self.read_max_us, late);
        let blur = if chunks > 1 { micros(late) } else { 0 };
        let class = (u64::BITS - blur.leading_zeros()) as usize;
        self.blur[class.min(CLASSES - 1)].fetch_add(1, Ordering::Relaxed);
    }

    /// A connection was opened.
    pub fn opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection was closed.
    pub fn closed(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// What was counted since the last look.
    pub fn look(&self) -> LatenessSeen {
        let counts: Vec<u64> = self.blur.iter().map(|c| c.swap(0, Ordering::Relaxed)).collect();
        let read_max = self.read_max_us.swap(0, Ordering::Relaxed);
        let all: u64 = counts.iter().sum();
        // The smallest class that 99 of 100 reads do not exceed.
        let mut below = 0;
        let class = counts.iter().position(|n| {
            below += n;
            below * 100 >= all * 99
        });
        LatenessSeen {
            send_max_us: self.send_max_us.swap(0, Ordering::Relaxed),
            read_max_us: (all > 0).then_some(read_max),
            blur_p99_us: class.filter(|_| all > 0).map(|k| if k == 0 { 0 } else { 1 << k }),
            stamped: all,
            unstamped: self.unstamped.swap(0, Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
        }
    }
}

fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
}

fn max(of: &AtomicU64, late: Duration) {
    let us = micros(late);
    // Loads are cheap, and nearly everything is below the maximum.
    if us > of.load(Ordering::Relaxed) {
        of.fetch_max(us, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::time::Offset;

    #[test]
    fn only_chunks_that_share_a_read_are_blurred() {
        let lateness = Lateness::default();
        let late = |ms| Arrival { at: Offset::ZERO, late: Some(Duration::from_millis(ms)) };
        assert_eq!(lateness.look(), LatenessSeen::default());
        for _ in 0..980 {
            lateness.read(late(200), 1);
        }
        let seen = lateness.look();
        assert_eq!((seen.read_max_us, seen.blur_p99_us), (Some(200_000), Some(0)), "late, but every stamp is its own");
        for n in 0..1_000 {
            lateness.read(late(30), if n < 15 { 2 } else { 1 });
        }
        lateness.read(Arrival { at: Offset::ZERO, late: None }, 1);
        lateness.sent(Duration::from_micros(70));
        let seen = lateness.look();
        assert_eq!((seen.blur_p99_us, seen.unstamped, seen.send_max_us), (Some(32_768), 1, 70));
        assert_eq!(lateness.look().read_max_us, None, "a look begins anew");
    }
}
