//! The clock of a run: monotonic, read here alone, in whole microseconds since the run began.
//!
//! Everything else takes [`Offset`]s as arguments. The reader is tokio's clock, so a run
//! against the embedded stand-in can be executed under paused time.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Microseconds since the run began, on the run's monotonic clock.
///
/// Microseconds are also what the recording stores, so that a live verdict and one made
/// from the recording rest on identical numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Offset(pub u64);

impl Offset {
    /// The start of the run.
    pub const ZERO: Offset = Offset(0);

    /// From whole milliseconds.
    pub const fn from_millis(ms: u64) -> Offset {
        Offset(ms * 1_000)
    }

    /// From a duration since the start of the run; truncates below a microsecond.
    pub fn from_duration(d: Duration) -> Offset {
        Offset(u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
    }

    /// Seconds since the start of the run.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Whole milliseconds since the start of the run, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000
    }

    /// As a duration since the start of the run.
    pub const fn as_duration(self) -> Duration {
        Duration::from_micros(self.0)
    }

    /// Time since `earlier`; zero if `earlier` is in fact later.
    pub const fn since(self, earlier: Offset) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Offset {
    type Output = Offset;
    fn add(self, d: Duration) -> Offset {
        Offset(self.0.saturating_add(u64::try_from(d.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Offset {
    type Output = Offset;
    fn sub(self, d: Duration) -> Offset {
        Offset(self.0.saturating_sub(u64::try_from(d.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s", self.as_secs_f64())
    }
}

/// A half-open stretch of the run: `start` belongs to it, `end` does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// First instant of the span.
    pub start: Offset,
    /// First instant after the span.
    pub end: Offset,
}

impl Span {
    /// A span from `start` to `end`; empty if `end` is not later.
    pub const fn new(start: Offset, end: Offset) -> Span {
        Span { start, end }
    }

    /// Length of the span.
    pub const fn len(self) -> Duration {
        self.end.since(self.start)
    }

    /// Whether nothing fits into the span.
    pub const fn is_empty(self) -> bool {
        self.end.0 <= self.start.0
    }

    /// Whether `at` lies in the span.
    pub const fn contains(self, at: Offset) -> bool {
        self.start.0 <= at.0 && at.0 < self.end.0
    }
}

/// Which clock a run was timed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClockKind {
    /// The machine's monotonic clock.
    Real,
    /// tokio's paused clock: only with the embedded stand-in.
    Simulated,
}

/// The only reader of clocks in the program.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: tokio::time::Instant,
    kind: ClockKind,
    epoch_unix_ms: i64,
}

/// How far apart two readings of the clocks may be to count as one.
const WALL_APART: Duration = Duration::from_micros(5);

/// How often they are read for that.
const WALL_TRIES: u32 = 4;

/// Age beyond which an instant of the wall clock is not believed.
const WALL_LATEST: Duration = Duration::from_secs(60);

/// Wall-clock start that a simulated run claims, so that equal seeds give equal bytes:
/// 2026-01-01T00:00:00Z.
pub const SIMULATED_EPOCH_UNIX_MS: i64 = 1_767_225_600_000;

impl Clock {
    /// Starts a clock whose offsets count from now. Must be called inside a tokio runtime;
    /// `kind` says whether that runtime's clock is paused.
    #[expect(clippy::disallowed_methods, reason = "the one place where clocks are read")]
    pub fn start(kind: ClockKind) -> Clock {
        let epoch_unix_ms = match kind {
            ClockKind::Simulated => SIMULATED_EPOCH_UNIX_MS,
            ClockKind::Real => std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX)),
        };
        Clock { began: tokio::time::Instant::now(), kind, epoch_unix_ms }
    }

    /// The offset of this instant.
    #[expect(clippy::disallowed_methods, reason = "the one place where clocks are read")]
    pub fn now(&self) -> Offset {
        Offset::from_duration(tokio::time::Instant::now().saturating_duration_since(self.began))
    }

    /// The offset of an instant on the wall clock, given as the time since the Unix epoch, and that of now. Both clocks are
    /// read together, so that only a wall clock that is set between the instant and now can make the first wrong.
    /// `None` under simulated time, and where the instant is not within a minute before now: then the wall clock was set.
    #[expect(clippy::disallowed_methods, reason = "the one place where clocks are read")]
    pub fn of_wall(&self, instant: Duration) -> Option<(Offset, Offset)> {
        if self.kind == ClockKind::Simulated {
            return None;
        }
        let mut pair = (self.began, Duration::ZERO);
        for _ in 0..WALL_TRIES {
            let before = tokio::time::Instant::now();
            let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()?;
            let after = tokio::time::Instant::now();
            pair = (after, wall);
            // If the thread lost the CPU between the two, they do not belong together.
            if after.saturating_duration_since(before) < WALL_APART {
                break;
            }
        }
        let (now, wall) = pair;
        let now = Offset::from_duration(now.saturating_duration_since(self.began));
        let late = match wall.checked_sub(instant) {
            Some(late) => late,
            // The clocks' readings are some tens of nanoseconds apart.
            None if instant - wall < WALL_APART => Duration::ZERO,
            None => return None,
        };
        (late < WALL_LATEST).then(|| (now - late, now))
    }

    /// The runtime's instant of `at`, for sleeping to an absolute target.
    pub fn instant(&self, at: Offset) -> tokio::time::Instant {
        self.began + at.as_duration()
    }

    /// Sleeps until `at`; returns at once if that has passed.
    pub async fn sleep_until(&self, at: Offset) {
        tokio::time::sleep_until(self.instant(at)).await;
    }

    /// Which clock this is.
    pub const fn kind(&self) -> ClockKind {
        self.kind
    }

    /// Unix milliseconds of offset zero: the wall clock, read once.
    pub const fn epoch_unix_ms(&self) -> i64 {
        self.epoch_unix_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "it is the clock that is tested")]
    async fn an_instant_of_the_wall_clock_lies_where_it_was() {
        let clock = Clock::start(ClockKind::Real);
        let wall = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        // Between two readings of our own, whatever time passes between them.
        let before = clock.now();
        let instant = wall();
        let after = clock.now();
        let (at, now) = clock.of_wall(instant).unwrap();
        let slack = WALL_APART * 2;
        assert!(at + slack >= before && at <= after + slack && now >= at, "{before:?} {at:?} {after:?} {now:?}");
        assert_eq!(clock.of_wall(instant + Duration::from_secs(3_600)), None, "to come");
        assert_eq!(clock.of_wall(instant - Duration::from_secs(3_600)), None, "long ago");
    }

    #[tokio::test(start_paused = true)]
    async fn simulated_time_has_no_wall() {
        assert_eq!(Clock::start(ClockKind::Simulated).of_wall(Duration::from_secs(1)), None);
    }
}
