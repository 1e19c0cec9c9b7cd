//! As deployed: what one production Prometheus would have paged over the climb.

use std::collections::BTreeSet;

use crate::model::step::Phase;
use crate::model::verdict::AsDeployed;
use crate::series::{Grid, Store, View};

use super::file::Alert;
use super::judge::{Judge, alert_labels};
use super::overlay::{self, Recorder};
use super::state::{Became, Machine};

impl Judge<'_> {
    /// Every alert that would have paged while the ladder climbed, on production's grid at phase 0
    /// with nothing hidden from it: in the order in which they fired, each rule once.
    ///
    /// The step to blame is the one that holds the beginning of the condition, not the one in
    /// which it fired, since a window still holds the steps before.
    pub fn as_deployed(&self) -> Vec<AsDeployed> {
        let climb: Vec<_> = self.recording.steps.iter().filter(|s| s.phase == Phase::Climb && s.repeat == 0).collect();
        let (Some(first), Some(last)) = (climb.first(), climb.last()) else { return Vec::new() };
        // Drained steps may follow the climb; production would have seen the same until then.
        let from_ms = self.recording.header.epoch_unix_ms;
        let end_ms = self.recording.unix_ms(last.measured.end);
        let grid = Grid { interval_ms: self.timing.scrape_ms(), phase_ms: from_ms };
        let view = View::on_grid(self.store, i64::MIN + grid.interval_ms, grid);

        let alerts: Vec<&Alert> = self.rules.alerts().collect();
        let needed: BTreeSet<&str> = self.rules.records_behind(alerts.iter().map(|a| &a.expr));
        let mut recorder = Recorder::new(self.rules, &needed);
        let mut overlay = Store::clone(&self.facts);
        let mut machines: Vec<Machine> = alerts.iter().map(|_| Machine::default()).collect();
        let mut paged: Vec<AsDeployed> = Vec::new();

        let mut at_ms = from_ms + self.timing.poll_ms();
        while at_ms <= end_ms {
            if !recorder.is_empty() {
                recorder.record(&self.engine, &view, &mut overlay, at_ms);
            }
            let here = view.clone().with_overlay(&overlay);
            for (alert, machine) in alerts.iter().zip(&mut machines) {
                let elements = overlay::elements(self.engine.instant(&alert.expr, &here, at_ms).ok());
                let present: Vec<_> =
                    elements.iter().map(|e| (alert_labels(alert, &e.labels, e.value), e.value)).collect();
                for change in machine.step(at_ms, &present, alert.hold, alert.keep_firing) {
                    if change.became == Became::Firing && !paged.iter().any(|p| p.alert == alert.name) {
                        let level = |ms: i64| {
                            let s = self.seconds(ms);
                            let holds = |a: f64| climb.iter().rfind(|c| c.warmup.start.as_secs_f64() <= a);
                            holds(s).map(|c| c.load.level())
                        };
                        paged.push(AsDeployed {
                            alert: alert.name.clone(),
                            active_at_s: self.seconds(change.active_at_ms),
                            fired_at_s: self.seconds(at_ms),
                            concurrency_then: level(at_ms),
                            concurrency_blamed: level(change.active_at_ms).or(Some(first.load.level())),
                        });
                    }
                }
            }
            at_ms += self.timing.evaluation_ms();
        }
        paged
    }
}
