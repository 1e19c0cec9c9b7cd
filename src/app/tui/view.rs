//! The live view of a run: keeps the board up to date, and draws it.

use crate::app::prepare::Prepared;
use crate::app::progress::Now;
use crate::ladder::Loop;
use crate::model::recording::Header;
use crate::model::sample::{Scrape, SourceKind};
use crate::model::step::{Phase, StepPlan};
use crate::model::time::Offset;
use crate::model::verdict::{StepOutcome, StepVerdict};
use crate::rules::ENOUGH;

use super::board::{Board, Client, Pace, Rung, RungState};
use super::screen::Screen;

/// A run on the terminal.
pub struct View {
    screen: Option<Screen>,
    board: Board,
    /// How many of the recording's scrapes were taken in.
    taken: usize,
    /// What was told, for the user's own screen when the view is over.
    told: Vec<String>,
}

impl View {
    /// Takes the terminal over for a run; `None` if it cannot be drawn on.
    pub fn take(prepared: &Prepared, header: &Header) -> Option<View> {
        let screen = Screen::take()?;
        let slo = &prepared.scenario.slo;
        let planned = |level: &f64| Rung { level: *level, phase: Phase::Climb, state: RungState::Planned };
        let board = Board {
            title: format!("{}: {} at {}", header.scenario, header.target.model, header.target.url),
            unit: if prepared.ladder.kind == Loop::Closed { "streams" } else { "req/s" },
            rungs: prepared.ladder.levels.iter().map(planned).collect(),
            client: Some(Client {
                ttft_s: Pace { target_s: Some(slo.ttft_p99.as_secs_f64()), ..Pace::default() },
                gap_s: Pace { target_s: Some(slo.itl_p99.as_secs_f64()), ..Pace::default() },
                ..Client::default()
            }),
            ..Board::default()
        };
        Some(View { screen: Some(screen), board, taken: 0, told: Vec::new() })
    }

    /// A line that is worth keeping.
    pub fn say(&mut self, text: &str) {
        self.told.push(text.to_owned());
        self.board.remark(text);
        self.draw();
    }

    /// A step begins.
    pub fn begin(&mut self, plan: &StepPlan) {
        self.board.begin(plan.load.level(), plan.phase);
        self.draw();
    }

    /// A step is judged.
    pub fn end(&mut self, step: &StepVerdict) {
        self.board.end(match step.outcome {
            StepOutcome::Clean => RungState::Clean,
            StepOutcome::Firing => RungState::Firing,
            StepOutcome::Inconclusive => RungState::Inconclusive,
        });
        self.draw();
    }

    /// Takes in what was scraped since the last look; `scrapes` is the whole recording's.
    pub fn scraped(&mut self, scrapes: &[Scrape]) {
        for scrape in scrapes.iter().skip(self.taken) {
            if scrape.source == SourceKind::Gpu {
                self.board.read_gpus(scrape);
            }
        }
        self.taken = scrapes.len();
    }

    /// How it goes at `at`.
    pub fn tick(&mut self, at: Offset, now: &Now) {
        if self.board.doing != now.doing {
            self.board.doing = now.doing.to_owned();
            self.board.takes = now.left;
        }
        self.board.takes = self.board.takes.max(now.left);
        self.board.left = now.left;
        if let Some(client) = &mut self.board.client {
            client.ttft_s.p50.push(now.ttft_s);
            client.ttft_s.p99.push(now.ttft_p99_s);
            client.gap_s.p50.push(now.gap_s);
            client.gap_s.p99.push(now.gap_p99_s);
            client.chunks_per_s = now.chunks_per_s;
            client.in_flight = now.in_flight;
            [client.ended, client.failed] = now.ended;
        }
        self.board.waiting.push(now.gauges.waiting);
        self.board.running.push(now.gauges.running);
        self.board.kv_usage.push(now.gauges.kv_usage);
        self.board.prolonged = now.missing.map(|n| format!("{:.0} of {ENOUGH:.0} observations", ENOUGH - n as f64));
        self.board.silence = now.silence.clone();
        self.board.rest = now.run_left();
        self.board.stand(&now.alerts, at);
        self.draw();
    }

    /// The user asked for the end, or the ladder is at its end.
    pub fn ending(&mut self) {
        self.board.ending = true;
        self.draw();
    }

    fn draw(&mut self) {
        if let Some(screen) = &mut self.screen {
            screen.draw(&self.board);
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // First the user's own screen, then what was told on ours.
        self.screen = None;
        for line in &self.told {
            eprintln(line);
        }
    }
}

fn eprintln(line: &str) {
    use std::io::Write;
    // A closed standard error leaves nobody to tell.
    let _ = writeln!(std::io::stderr(), "{line}");
}
