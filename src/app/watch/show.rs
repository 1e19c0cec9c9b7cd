//! A watch that goes on: a view on a terminal, a line for each change elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write};

use crate::analyze::Gauges;
use crate::app::tui::{Board, Screen};
use crate::cli::WatchArgs;
use crate::model::sample::{Labels, Scrape, SourceKind};
use crate::model::time::{Clock, Offset};
use crate::model::verdict::{AlertState, Explanation};
use crate::report::text::plain;
use crate::rules::RuleSet;
use crate::rules::live::Standing;

use super::report::because;

/// Where a watch is shown.
pub(super) struct Show {
    screen: Option<Screen>,
    board: Board,
    /// What was told on the view, for the user's own screen when it is over.
    kept: Vec<String>,
    json: bool,
    /// How each alert stood when it was last told.
    told: BTreeMap<(String, Labels), AlertState>,
    /// The firing alerts whose reason was told.
    explained: BTreeSet<String>,
}

impl Show {
    pub(super) fn new(url: &str, rules: usize, args: &WatchArgs) -> Show {
        // Who sends the answer elsewhere wants the lines.
        let plainly = args.no_tui || args.json || !std::io::stdout().is_terminal();
        let screen = if plainly { None } else { Screen::take() };
        if screen.is_none() && !args.json {
            say(&format!("watching {} by {rules} alerts; Ctrl-C ends it", plain(url)));
        }
        Show {
            screen,
            board: Board { title: format!("watches {url} by {rules} alerts"), ..Board::default() },
            kept: Vec::new(),
            json: args.json,
            told: BTreeMap::new(),
            explained: BTreeSet::new(),
        }
    }

    /// Shows how things stand at `at`.
    pub(super) fn look(
        &mut self,
        rules: &RuleSet,
        scrapes: &[Scrape],
        standing: &[Standing],
        why: &BTreeMap<String, Explanation>,
        clock: Clock,
        at: Offset,
    ) {
        for line in self.changes(standing, why, clock, at) {
            if self.screen.is_none() {
                say(&line);
                continue;
            }
            self.board.remark(&line);
            self.kept.push(line);
        }
        let Some(screen) = &mut self.screen else { return };
        let newest = |kind| scrapes.iter().rfind(|s| s.source == kind);
        let gauges = newest(SourceKind::Server).map(|s| Gauges::of(rules, s)).unwrap_or_default();
        self.board.waiting.push(gauges.waiting);
        self.board.running.push(gauges.running);
        self.board.kv_usage.push(gauges.kv_usage);
        if let Some(scrape) = newest(SourceKind::Gpu) {
            self.board.read_gpus(scrape);
        }
        self.board.stand(standing, at);
        self.board.because = why.values().next().map(because).unwrap_or_default();
        screen.draw(&self.board);
    }

    /// The lines that tell what changed since the last look.
    fn changes(
        &mut self,
        standing: &[Standing],
        why: &BTreeMap<String, Explanation>,
        clock: Clock,
        at: Offset,
    ) -> Vec<String> {
        let mut out = Vec::new();
        let time = clock_time(clock, at);
        let now: BTreeMap<(String, Labels), AlertState> =
            standing.iter().map(|s| ((s.alert.clone(), s.labels.clone()), s.state)).collect();
        for s in standing {
            let key = (s.alert.clone(), s.labels.clone());
            let before = self.told.get(&key).copied();
            // That a rule is quiet is no news at the start, nor when another label set of it is told instead.
            let changed = before != Some(s.state) && (s.state != AlertState::Quiet || before.is_some());
            // The reason may come later than the alert, and is told once.
            let reason = why.get(&s.alert).filter(|_| s.state == AlertState::Firing);
            let reason = reason.filter(|_| self.explained.insert(s.alert.clone()));
            if !changed && reason.is_none() {
                continue;
            }
            if self.json {
                let line = serde_json::json!({
                    "at_unix_ms": unix_ms(clock, at),
                    "alert": s.alert,
                    "labels": s.labels.iter().collect::<BTreeMap<_, _>>(),
                    "state": s.state,
                    "value": s.value,
                    "summary": s.summary,
                    "because": s.because,
                    "explanation": reason,
                });
                out.push(line.to_string());
                continue;
            }
            let words = s.summary.as_deref().or(s.because.as_deref()).unwrap_or_default();
            let state = match s.state {
                AlertState::Firing => "fires".to_owned(),
                AlertState::Pending => {
                    format!("pending, fires in {}", super::length(s.fires_in.unwrap_or_default()))
                }
                AlertState::Quiet => "quiet again".to_owned(),
                AlertState::NoData | AlertState::NotEvaluable => "no data".to_owned(),
            };
            out.push(format!("{time}  {} {state}  {}", plain(&s.alert), plain(words)).trim_end().to_owned());
            out.extend(reason.map(because).unwrap_or_default().iter().map(|l| format!("          {l}")));
        }
        let fires = |name: &String| standing.iter().any(|s| s.alert == *name && s.state == AlertState::Firing);
        self.explained.retain(fires);
        for ((alert, labels), before) in &self.told {
            let gone = matches!(before, AlertState::Pending | AlertState::Firing)
                && !now.contains_key(&(alert.clone(), labels.clone()));
            if gone {
                let word = if *before == AlertState::Firing { "resolved" } else { "no longer pending" };
                out.push(if self.json {
                    serde_json::json!({
                        "at_unix_ms": unix_ms(clock, at),
                        "alert": alert,
                        "labels": labels.iter().collect::<BTreeMap<_, _>>(),
                        "state": AlertState::Quiet,
                    })
                    .to_string()
                } else {
                    format!("{time}  {} {word}", plain(alert))
                });
            }
        }
        self.told = now;
        out
    }
}

impl Drop for Show {
    fn drop(&mut self) {
        // First the user's own screen, then what was told on ours.
        self.screen = None;
        self.kept.iter().for_each(|line| say(line));
    }
}

fn unix_ms(clock: Clock, at: Offset) -> i64 {
    clock.epoch_unix_ms() + i64::try_from(at.as_millis()).unwrap_or(i64::MAX)
}

/// `12:03:15`, UTC.
fn clock_time(clock: Clock, at: Offset) -> String {
    let seconds = unix_ms(clock, at).div_euclid(1_000);
    let day = seconds.rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}", day / 3_600, day / 60 % 60, day % 60)
}

/// A line of the answer. Who watches without a terminal reads standard output.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // A reader that went away ends nothing: Ctrl-C does.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
