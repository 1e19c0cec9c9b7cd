//! What goes wrong, and when: each fault is a window of time in which one thing behaves badly.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::chance;
use crate::model::time::Offset;

/// A fault with its window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// When it begins, since the server started.
    #[serde(with = "crate::model::units::duration", default)]
    pub at: Duration,
    /// How long it lasts; absent is for ever.
    #[serde(
        with = "crate::model::units::duration_opt",
        default,
        rename = "for",
        skip_serializing_if = "Option::is_none"
    )]
    pub lasts: Option<Duration>,
    /// What goes wrong.
    pub kind: FaultKind,
}

/// The things that can go wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FaultKind {
    /// The engine makes no step; the API server and its page go on.
    Freeze,
    /// Every step takes `factor` times as long.
    Slow {
        /// At least 1 to slow down.
        factor: f64,
    },
    /// The GPU runs at a share of its clock, and says so.
    Throttle {
        /// Share of the clock that is left, 0 exclusive to 1.
        clock: f64,
        /// The reason that it gives.
        #[serde(default)]
        by: ThrottledBy,
    },
    /// The GPU's memory has errors that could not be corrected; they stay counted after the window.
    MemoryErrors {
        /// How many more.
        errors: u64,
    },
    /// The traffic is no longer what the drafter is good at: each draft token holds with a lower chance.
    Drift {
        /// Factor on the chance, 0 to 1.
        acceptance: f64,
    },
    /// A share of the requests to the API finds its connection closed without an answer.
    Drop {
        /// 0 to 1.
        share: f64,
    },
    /// A share of the streams is cut in the middle.
    Cut {
        /// 0 to 1.
        share: f64,
        /// Messages that a cut stream still carries.
        after: usize,
    },
    /// Requests to the API are answered with 503.
    Unavailable,
    /// The page takes `delay` longer.
    SlowPage {
        /// Time added to each scrape.
        #[serde(with = "crate::model::units::duration")]
        delay: Duration,
    },
    /// The API server's event loop is blocked: outputs come late, and so do requests.
    Lag {
        /// Time added to each output of the engine and each request.
        #[serde(with = "crate::model::units::duration")]
        delay: Duration,
    },
    /// The server goes away when the window begins, and comes back with new counters when it ends.
    Restart,
}

/// Why a GPU lowers its clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThrottledBy {
    /// It is too hot.
    #[default]
    Heat,
    /// Its power supply asks it to.
    PowerBrake,
    /// It is at its power limit: normal under full load.
    PowerCap,
    /// It says nothing.
    Silence,
}

impl Fault {
    /// A GPU that keeps `clock` of its clock from `at` on.
    pub fn throttle_from(at: Duration, clock: f64) -> Fault {
        Fault { at, lasts: None, kind: FaultKind::Throttle { clock, by: ThrottledBy::Heat } }
    }

    fn begins(&self) -> Offset {
        Offset::from_duration(self.at)
    }

    /// When it is over; `None` is never.
    pub(super) fn ends(&self) -> Option<Offset> {
        self.lasts.map(|d| self.begins() + d)
    }

    fn active(&self, at: Offset) -> bool {
        self.begins() <= at && self.ends().is_none_or(|end| at < end)
    }
}

/// All faults of a server, asked by instant.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults(pub(super) Vec<Fault>);

impl Faults {
    fn active(&self, at: Offset) -> impl Iterator<Item = &FaultKind> {
        self.0.iter().filter(move |f| f.active(at)).map(|f| &f.kind)
    }

    /// How many times longer a step takes that begins at `at`.
    pub(super) fn slow_factor(&self, at: Offset) -> f64 {
        self.active(at).map(|k| if let FaultKind::Slow { factor } = k { *factor } else { 1.0 }).product()
    }

    /// Share of the GPU's clock at `at`.
    pub(super) fn clock(&self, at: Offset) -> f64 {
        self.throttled(at).map_or(1.0, |(clock, _)| clock)
    }

    /// Share of the GPU's clock that is left at `at`, and why; `None` if it is whole.
    pub(super) fn throttled(&self, at: Offset) -> Option<(f64, ThrottledBy)> {
        let throttles = self.active(at).filter_map(|k| match k {
            FaultKind::Throttle { clock, by } => Some((clock.min(1.0), *by)),
            _ => None,
        });
        throttles.min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// Memory errors that could not be corrected, up to `at`.
    pub(super) fn memory_errors(&self, at: Offset) -> u64 {
        let of = |f: &Fault| if let FaultKind::MemoryErrors { errors } = f.kind { errors } else { 0 };
        self.0.iter().filter(|f| f.begins() <= at).map(of).sum()
    }

    /// Factor on the chance that a draft token holds at `at`.
    pub(super) fn acceptance(&self, at: Offset) -> f64 {
        self.active(at).map(|k| if let FaultKind::Drift { acceptance } = k { *acceptance } else { 1.0 }).product()
    }

    /// When work that would run from `start` to `end` ends, given that it stands still while the
    /// engine is frozen; `None` is never.
    pub(super) fn thawed(&self, start: Offset, end: Offset) -> Option<Offset> {
        let mut end = end;
        for f in self.0.iter().filter(|f| f.kind == FaultKind::Freeze) {
            if f.begins() < end && f.ends().is_none_or(|e| e > start) {
                let from = f.begins().max(start);
                end = end + f.ends()?.since(from);
            }
        }
        Some(end)
    }

    /// Whether the API refuses everything at `at`.
    pub(super) fn unavailable(&self, at: Offset) -> bool {
        self.active(at).any(|k| *k == FaultKind::Unavailable)
    }

    /// When the server that is down at `at` comes back: `Some(None)` is never; `None` if it is up.
    pub(super) fn down(&self, at: Offset) -> Option<Option<Offset>> {
        self.0.iter().find(|f| f.kind == FaultKind::Restart && f.active(at)).map(Fault::ends)
    }

    /// The next instant after `at` at which the server goes down.
    pub(super) fn next_restart(&self, at: Offset) -> Option<Offset> {
        self.0.iter().filter(|f| f.kind == FaultKind::Restart && f.begins() > at).map(Fault::begins).min()
    }

    /// What the page's answer is late by at `at`.
    pub(super) fn page_delay(&self, at: Offset) -> Duration {
        self.active(at).map(|k| if let FaultKind::SlowPage { delay } = k { *delay } else { Duration::ZERO }).sum()
    }

    /// What the event loop is late by at `at`.
    pub(super) fn lag(&self, at: Offset) -> Duration {
        self.active(at).map(|k| if let FaultKind::Lag { delay } = k { *delay } else { Duration::ZERO }).sum()
    }

    /// Whether the connection of request `index` is closed at `at` instead of an answer.
    pub(super) fn drops(&self, at: Offset, seed: u64, index: u64) -> bool {
        self.active(at)
            .any(|k| if let FaultKind::Drop { share } = k { chance::unit(seed, 0xd209, index) < *share } else { false })
    }

    /// After how many messages the stream of request `index`, begun at `at`, is cut; `None` for not.
    pub(super) fn cut_after(&self, at: Offset, seed: u64, index: u64) -> Option<usize> {
        self.active(at).find_map(|k| match k {
            FaultKind::Cut { share, after } if chance::unit(seed, 0xc07, index) < *share => Some(*after),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(at: u64, lasts: Option<u64>, kind: FaultKind) -> Fault {
        Fault { at: Duration::from_secs(at), lasts: lasts.map(Duration::from_secs), kind }
    }

    #[test]
    fn a_frozen_engine_stands_still() {
        let s = |s: u64| Offset::from_millis(s * 1_000);
        let faults = Faults(vec![fault(10, Some(5), FaultKind::Freeze)]);
        for (start, end, want) in [(1, 2, 2), (9, 11, 16), (12, 13, 16), (16, 17, 17)] {
            assert_eq!(faults.thawed(s(start), s(end)), Some(s(want)), "{start} to {end}");
        }
        assert_eq!(Faults(vec![fault(10, None, FaultKind::Freeze)]).thawed(s(11), s(12)), None);
    }

    #[test]
    fn windows_open_and_close() {
        let s = |s: u64| Offset::from_millis(s * 1_000);
        let faults = Faults(vec![
            fault(2, Some(2), FaultKind::Slow { factor: 3.0 }),
            fault(3, None, FaultKind::Throttle { clock: 0.5, by: ThrottledBy::Heat }),
            fault(5, Some(1), FaultKind::Restart),
            fault(6, Some(1), FaultKind::MemoryErrors { errors: 2 }),
            fault(6, Some(2), FaultKind::Drift { acceptance: 0.25 }),
        ]);
        assert_eq!([5, 6, 9].map(|t| faults.memory_errors(s(t))), [0, 2, 2], "what was counted stays");
        assert_eq!([1, 2, 3, 4].map(|t| faults.slow_factor(s(t))), [1.0, 3.0, 3.0, 1.0]);
        assert_eq!([1, 7, 8].map(|t| faults.acceptance(s(t))), [1.0, 0.25, 1.0]);
        assert_eq!([2, 3, 99].map(|t| faults.clock(s(t))), [1.0, 0.5, 0.5]);
        assert_eq!([4, 5, 6].map(|t| faults.down(s(t))), [None, Some(Some(s(6))), None]);
        assert_eq!(faults.next_restart(s(1)), Some(s(5)));
    }
}
