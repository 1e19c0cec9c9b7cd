//! The same series while the run goes on: one more instant at a time, from what happened since the last one.

use super::seen::Seen;
use super::{ClientTargets, labels};
use crate::model::request::RequestTimeline;
use crate::model::step::StepSpan;
use crate::model::time::Offset;
use crate::series::store::{SeriesId, Store, TimesId};

/// Our own series at the instants so far.
pub(in crate::series) struct Growing {
    targets: ClientTargets,
    instance: String,
    times: TimesId,
    /// What was seen up to the latest instant.
    so_far: Option<(Offset, Seen)>,
    /// The series in the order in which they are made; `None` for one that nobody reads.
    ids: Vec<Option<SeriesId>>,
}

impl Growing {
    /// No instant yet; `times` are the store's own for them.
    pub(in crate::series) fn new(targets: ClientTargets, instance: &str, times: TimesId) -> Growing {
        Growing { targets, instance: instance.into(), times, so_far: None, ids: Vec::new() }
    }

    /// The times that our own series share.
    pub(in crate::series) fn times(&self) -> TimesId {
        self.times
    }

    /// The latest instant.
    pub(in crate::series) fn latest(&self) -> Option<Offset> {
        self.so_far.as_ref().map(|(at, _)| *at)
    }

    /// One more instant, whose time the store has already. `requests` are all of which anything happened since the
    /// latest instant; `keep` says which names are read.
    pub(in crate::series) fn add<'r>(
        &mut self,
        store: &mut Store,
        at: Offset,
        requests: impl Iterator<Item = &'r RequestTimeline>,
        steps: &[StepSpan],
        keep: impl Fn(&str) -> bool,
    ) {
        let instants: Vec<Offset> = self.latest().into_iter().chain([at]).collect();
        let mut fresh = Seen::new(&instants, &self.targets);
        for r in requests {
            fresh.take(r);
        }
        let so_far = match self.so_far.take() {
            None => fresh,
            Some((_, mut so_far)) => {
                so_far.go_on(&fresh);
                so_far
            }
        };
        self.so_far = Some((at, so_far.clone()));
        let (ids, mut next) = (&mut self.ids, 0);
        so_far.columns(steps, |name, label, cells| {
            match ids.get(next) {
                Some(Some(id)) => store.push_cell(*id, cells[0]),
                Some(None) => {}
                None => {
                    let of_it = || labels(name, label, &self.instance);
                    ids.push(keep(name).then(|| store.add_series(of_it(), self.times, 0, cells)));
                }
            }
            next += 1;
        });
    }
}
