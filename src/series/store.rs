//! Samples by series, in columns over shared scrape times.

use std::collections::HashMap;

use crate::model::sample::{Labels, NAME};

/// Bits of the NaN that Prometheus writes where a series ends.
const STALE_BITS: u64 = 0x7ff0_0000_0000_0002;

/// The staleness marker: a NaN that hides its series from instant selectors and is skipped by
/// range functions.
pub const fn stale_marker() -> f64 {
    f64::from_bits(STALE_BITS)
}

/// Whether `value` is the staleness marker; an ordinary NaN is not.
pub const fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE_BITS
}

/// Place of a series in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesId(pub u32);

/// Place of a list of times in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TimesId(pub(super) u32);

/// One series: its labels, and a column of values over a list of times.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name and labels.
    pub labels: Labels,
    /// The labels without the name: what `rate` and arithmetic return.
    pub bare: Labels,
    /// The times, shared by all series of one scrape target.
    pub(super) times: TimesId,
    /// Index into the times of the column's first cell.
    pub(super) first: usize,
    /// The cells: values or staleness markers, one for each time from the first on.
    pub(super) cells: Vec<f64>,
}

/// Every sample that is known, by series.
///
/// Series of one scrape target share one list of times, so that a view can thin all of them out
/// by choosing indices once. Series that are pushed one sample at a time have times of their own.
#[derive(Clone, Debug, Default)]
pub struct Store {
    pub(super) times: Vec<Vec<i64>>,
    /// Which lists of times belong to one pushed series alone.
    owned: Vec<bool>,
    series: Vec<Series>,
    by_labels: HashMap<Labels, SeriesId>,
    /// Series of each name, in order of their labels: the order of a Prometheus block.
    by_name: HashMap<Box<str>, Vec<SeriesId>>,
}

impl Store {
    /// A store with nothing in it.
    pub fn new() -> Store {
        Store::default()
    }

    /// Adds one sample at `t_ms`, Unix milliseconds. A sample at a time that the series already
    /// has replaces the older one; one from before the newest is put into its place.
    pub fn push(&mut self, labels: &Labels, t_ms: i64, value: f64) {
        let id = match self.by_labels.get(labels) {
            Some(&id) => id,
            None => {
                let times = self.add_times(Vec::new());
                self.owned[times.0 as usize] = true;
                self.add_series(labels.clone(), times, 0, Vec::new())
            }
        };
        self.own_times(id);
        let series = &mut self.series[id.0 as usize];
        let times = &mut self.times[series.times.0 as usize];
        if times.last().is_none_or(|&last| last < t_ms) {
            times.push(t_ms);
            series.cells.push(value);
            return;
        }
        match times.binary_search(&t_ms) {
            Ok(i) => series.cells[i] = value,
            Err(i) => {
                times.insert(i, t_ms);
                series.cells.insert(i, value);
            }
        }
    }

    /// Writes a staleness marker at `t_ms` for a series that is known; does nothing for one that is not.
    pub fn mark_stale(&mut self, labels: &Labels, t_ms: i64) {
        if self.by_labels.contains_key(labels) {
            self.push(labels, t_ms, stale_marker());
        }
    }

    /// How many series there are.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Whether there is no series at all.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Every series, in the order in which they were first seen.
    pub fn all(&self) -> impl Iterator<Item = &Series> + '_ {
        self.series.iter()
    }

    /// The series of one metric name, in order of their labels.
    pub fn named(&self, name: &str) -> &[SeriesId] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// Whether any series of this name was ever there.
    pub fn has_name(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Every metric name, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.by_name.keys().map(|n| &**n).collect();
        names.sort_unstable();
        names
    }

    /// The series at `id`.
    pub fn series(&self, id: SeriesId) -> &Series {
        &self.series[id.0 as usize]
    }

    /// Samples of a series in order of time, staleness markers included.
    pub fn samples<'a>(&'a self, series: &'a Series) -> impl Iterator<Item = (i64, f64)> + 'a {
        let times = &self.times[series.times.0 as usize][series.first..];
        times.iter().copied().zip(series.cells.iter().copied())
    }

    /// The same, of those after `after_ms` alone.
    pub fn samples_after<'a>(&'a self, series: &'a Series, after_ms: i64) -> impl Iterator<Item = (i64, f64)> + 'a {
        let times = &self.times[series.times.0 as usize][series.first..];
        let from = times.partition_point(|t| *t <= after_ms).min(series.cells.len());
        times[from..].iter().copied().zip(series.cells[from..].iter().copied())
    }

    /// Time of the newest sample of a series; `None` if it has none, or is not there.
    pub fn newest(&self, labels: &Labels) -> Option<i64> {
        let series = self.series(*self.by_labels.get(labels)?);
        let last = (series.first + series.cells.len()).checked_sub(1)?;
        self.times[series.times.0 as usize].get(last).copied()
    }

    /// Earliest and latest time of any sample; `None` if there is none.
    pub fn bounds_ms(&self) -> Option<(i64, i64)> {
        let first = self.times.iter().filter_map(|t| t.first()).min()?;
        let last = self.times.iter().filter_map(|t| t.last()).max()?;
        Some((*first, *last))
    }

    /// Takes a list of strictly increasing times that series can share.
    pub(super) fn add_times(&mut self, times: Vec<i64>) -> TimesId {
        debug_assert!(times.is_sorted_by(|a, b| a < b));
        self.times.push(times);
        self.owned.push(false);
        TimesId(u32::try_from(self.times.len() - 1).expect("fewer than 2^32 series fit into memory"))
    }

    /// Takes a column whose cell `i` belongs to time `first + i`. A label set that is already
    /// there keeps its older column.
    pub(super) fn add_series(&mut self, labels: Labels, times: TimesId, first: usize, cells: Vec<f64>) -> SeriesId {
        if let Some(&id) = self.by_labels.get(&labels) {
            return id;
        }
        let id = SeriesId(u32::try_from(self.series.len()).expect("fewer than 2^32 series fit into memory"));
        self.by_labels.insert(labels.clone(), id);
        let peers = self.by_name.entry(labels.name().into()).or_default();
        let place = peers.partition_point(|p| self.series[p.0 as usize].labels < labels);
        peers.insert(place, id);
        let bare = labels.without(|n| n == NAME);
        self.series.push(Series { labels, bare, times, first, cells });
        id
    }

    /// One more time for a list that series share, later than all that are in it.
    pub(super) fn push_time(&mut self, times: TimesId, t_ms: i64) {
        let list = &mut self.times[times.0 as usize];
        debug_assert!(list.last().is_none_or(|last| *last < t_ms));
        list.push(t_ms);
    }

    /// How many times a shared list has.
    pub(super) fn times_len(&self, times: TimesId) -> usize {
        self.times[times.0 as usize].len()
    }

    /// The newest time of a shared list, Unix ms.
    pub(super) fn newest_ms(&self, times: TimesId) -> Option<i64> {
        self.times[times.0 as usize].last().copied()
    }

    /// One more cell at the end of a column.
    pub(super) fn push_cell(&mut self, id: SeriesId, value: f64) {
        self.series[id.0 as usize].cells.push(value);
    }

    /// Where the next cell of a column belongs, as an index into its times.
    pub(super) fn next_cell(&self, id: SeriesId) -> usize {
        let series = &self.series[id.0 as usize];
        series.first + series.cells.len()
    }

    /// Gives a series that shares its times a list of its own, so that it can grow alone.
    fn own_times(&mut self, id: SeriesId) {
        if self.owned[self.series[id.0 as usize].times.0 as usize] {
            return;
        }
        let (times, cells) = self.samples(&self.series[id.0 as usize]).unzip();
        let own = self.add_times(times);
        self.owned[own.0 as usize] = true;
        let series = &mut self.series[id.0 as usize];
        (series.times, series.first, series.cells) = (own, 0, cells);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &[(&str, &str)]) -> Labels {
        Labels::new(text.iter().copied())
    }

    #[test]
    fn samples_keep_their_order_whatever_the_order_of_arrival() {
        let mut store = Store::new();
        let l = labels(&[(NAME, "up"), ("job", "a")]);
        for (t, v) in [(10, 1.0), (30, 3.0), (20, 2.0), (30, 4.0)] {
            store.push(&l, t, v);
        }
        store.mark_stale(&l, 40);
        store.mark_stale(&labels(&[(NAME, "other")]), 40);
        let s = store.series(store.named("up")[0]);
        let got: Vec<(i64, u64)> = store.samples(s).map(|(t, v)| (t, v.to_bits())).collect();
        assert_eq!(got, [(10, 1f64.to_bits()), (20, 2f64.to_bits()), (30, 4f64.to_bits()), (40, STALE_BITS)]);
        assert_eq!(store.len(), 1);
        assert_eq!(s.bare, labels(&[("job", "a")]));
    }

    #[test]
    fn a_pushed_sample_leaves_the_other_series_of_its_target_alone() {
        let mut store = Store::new();
        let times = store.add_times(vec![10, 20]);
        let (a, b) = (labels(&[(NAME, "a")]), labels(&[(NAME, "b")]));
        store.add_series(a.clone(), times, 0, vec![1.0, 2.0]);
        store.add_series(b.clone(), times, 1, vec![5.0]);
        store.push(&b, 25, 6.0);
        let of = |n: &str| store.samples(store.series(store.named(n)[0])).collect::<Vec<_>>();
        assert_eq!(of("a"), [(10, 1.0), (20, 2.0)]);
        assert_eq!(of("b"), [(20, 5.0), (25, 6.0)]);
    }
}
