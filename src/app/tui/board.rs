//! What the live view shows, as plain data: it can be drawn without a run, and a run can go on without it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::model::step::Phase;

/// How many looks a sparkline remembers.
const REMEMBERED: usize = 240;
/// How many remarks are kept to be shown.
const REMARKS: usize = 50;

/// Everything on the screen.
#[derive(Clone, Debug, Default)]
pub struct Board {
    /// What is run, and against what.
    pub title: String,
    /// What levels are counted in.
    pub unit: &'static str,
    /// The steps that were run, the one that goes on, and the levels that may follow.
    pub rungs: Vec<Rung>,
    /// What is being done: `warm-up`, `measure`, …; empty where nothing is loaded.
    pub doing: String,
    /// Until it is over, as far as is known.
    pub left: Duration,
    /// How long it takes in all.
    pub takes: Duration,
    /// Why the step takes longer than planned, in words.
    pub prolonged: Option<String>,
    /// That nothing comes from the server, in words.
    pub silence: Option<String>,
    /// What is left of the run, in words; empty where that is not known.
    pub rest: String,
    /// The client's side; `None` where we send nothing.
    pub client: Option<Client>,
    /// Requests that wait in the server.
    pub waiting: Track,
    /// Requests that run in the server.
    pub running: Track,
    /// Share of the KV pool in use, 0 to 1.
    pub kv_usage: Track,
    /// Each GPU, as of its last reading.
    pub gpus: Vec<Gpu>,
    /// Alerts that are pending or firing, the worst first.
    pub alerts: Vec<Alert>,
    /// How many alerts are quiet, and how many have no data.
    pub others: [usize; 2],
    /// Why the first firing alert fires, where that is known.
    pub because: Vec<String>,
    /// What was told last, newest last.
    pub remarks: VecDeque<String>,
    /// Whether the user asked for the end.
    pub ending: bool,
}

/// One level of the ladder.
#[derive(Clone, Debug, PartialEq)]
pub struct Rung {
    /// Streams, or requests per second.
    pub level: f64,
    /// Why it is run.
    pub phase: Phase,
    /// How it stands.
    pub state: RungState,
}

/// How a level stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RungState {
    /// Not run yet.
    Planned,
    /// Being run.
    Running,
    /// Every rule stayed quiet.
    Clean,
    /// A rule fired.
    Firing,
    /// Nothing can be said.
    Inconclusive,
}

/// What the client sees.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// Time to first token of the last seconds, s.
    pub ttft_s: Pace,
    /// Gap between chunks of the last seconds, s.
    pub gap_s: Pace,
    /// Chunks with output per second, of the last seconds.
    pub chunks_per_s: f64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests that ended.
    pub ended: u64,
    /// Of these, failures.
    pub failed: u64,
}

/// How a latency goes.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// Median.
    pub p50: Track,
    /// 99th percentile.
    pub p99: Track,
    /// What the 99th percentile may be at most; `None` if there is no target.
    pub target_s: Option<f64>,
}

impl Pace {
    /// Whether the 99th percentile of the last seconds is above its target.
    pub fn missed(&self) -> bool {
        self.p99.now().zip(self.target_s).is_some_and(|(now, target)| now > target)
    }
}

/// One GPU's last reading; `None` where it does not tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gpu {
    /// Index and model.
    pub name: String,
    /// SM clock, MHz.
    pub clock_mhz: Option<f64>,
    /// Temperature, °C.
    pub temperature_c: Option<f64>,
    /// Power, W.
    pub power_w: Option<f64>,
    /// Reasons for a low clock, in words; idleness is none.
    pub slowed_by: Vec<&'static str>,
}

/// One alert that is not quiet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Name of the rule.
    pub name: String,
    /// Whether it fires; else it is pending.
    pub firing: bool,
    /// For how long its condition has held.
    pub held: Duration,
    /// Until it fires, while it is pending.
    pub fires_in: Duration,
    /// The rule's own words.
    pub summary: String,
}

/// A number over the last looks; a gap where it was not known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Track(VecDeque<Option<f64>>);

impl Track {
    /// A look.
    pub fn push(&mut self, value: Option<f64>) {
        self.0.push_back(value.filter(|v| v.is_finite()));
        if self.0.len() > REMEMBERED {
            self.0.pop_front();
        }
    }

    /// The newest value; `None` if it is not known.
    pub fn now(&self) -> Option<f64> {
        self.0.back().copied().flatten()
    }

    /// The last `looks` values as `rows` lines of blocks, the top one first, from 0 to `most`, or to the largest shown;
    /// a gap is a space.
    pub fn lines(&self, looks: usize, rows: usize, most: Option<f64>) -> Vec<String> {
        const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let shown = || self.0.iter().skip(self.0.len().saturating_sub(looks));
        let largest = shown().flatten().copied().fold(0.0, f64::max);
        let most = most.unwrap_or(largest).max(f64::MIN_POSITIVE);
        // Nought is drawn too: it is known.
        let eighths = |v: f64| ((v / most * 8.0 * rows as f64).ceil() as usize).max(1);
        let line = |row: usize| {
            let below = 8 * (rows - 1 - row);
            shown().map(|v| v.map_or(' ', |v| BLOCKS[eighths(v).saturating_sub(below).min(8)])).collect()
        };
        (0..rows).map(line).collect()
    }
}

impl Board {
    /// Something worth telling.
    pub fn remark(&mut self, text: &str) {
        self.remarks.push_back(text.trim().to_owned());
        if self.remarks.len() > REMARKS {
            self.remarks.pop_front();
        }
    }

    /// A step of `level` begins: it takes the place of what was planned there.
    pub fn begin(&mut self, level: f64, phase: Phase) {
        let running = Rung { level, phase, state: RungState::Running };
        let planned = |r: &Rung| r.state == RungState::Planned;
        match self.rungs.iter().position(|r| planned(r) && r.level == level) {
            Some(at) if phase == Phase::Climb => self.rungs[at] = running,
            _ => {
                // What lies above is not climbed any more.
                self.rungs.retain(|r| !planned(r));
                self.rungs.push(running);
            }
        }
    }

    /// The step that runs is judged.
    pub fn end(&mut self, state: RungState) {
        if let Some(rung) = self.rungs.iter_mut().find(|r| r.state == RungState::Running) {
            rung.state = state;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_track_draws_what_it_knows() {
        let mut track = Track::default();
        for v in [Some(0.0), Some(0.5), None, Some(1.0), Some(f64::NAN), Some(0.25)] {
            track.push(v);
        }
        assert_eq!(track.lines(6, 1, None), ["▁▄ █ ▂"]);
        assert_eq!(track.lines(6, 2, None), ["   █  ", "▁█ █ ▄"]);
        assert_eq!(track.lines(2, 1, Some(0.25)), [" █"]);
        assert_eq!((track.now(), Track::default().now()), (Some(0.25), None));
        assert_eq!(Track::default().lines(9, 1, None), [""]);
    }

    #[test]
    fn a_rung_that_was_planned_is_run_and_narrowing_drops_the_rest() {
        let mut board = Board::default();
        for level in [1.0, 2.0, 4.0] {
            board.rungs.push(Rung { level, phase: Phase::Climb, state: RungState::Planned });
        }
        board.begin(1.0, Phase::Climb);
        board.end(RungState::Clean);
        board.begin(2.0, Phase::Climb);
        board.end(RungState::Firing);
        assert_eq!(board.rungs.len(), 3);
        board.begin(1.5, Phase::Narrow);
        let levels: Vec<f64> = board.rungs.iter().map(|r| r.level).collect();
        assert_eq!(levels, [1.0, 2.0, 1.5]);
    }
}
