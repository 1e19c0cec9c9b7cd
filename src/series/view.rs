//! What an evaluation sees of a store: from a start on, and perhaps only production's scrapes.

use std::sync::Arc;

use super::store::{Series, Store, is_stale};

/// The instants at which a production Prometheus would scrape: `phase_ms + k * interval_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Scrape interval, ms; at least 1.
    pub interval_ms: i64,
    /// Any one of the instants, Unix ms.
    pub phase_ms: i64,
}

impl Grid {
    /// Number of the last instant that is not after `t_ms`.
    fn tick(self, t_ms: i64) -> i64 {
        (t_ms - self.phase_ms).div_euclid(self.interval_ms.max(1))
    }

    /// The instant with that number, Unix ms.
    fn instant(self, tick: i64) -> i64 {
        self.phase_ms + tick * self.interval_ms.max(1)
    }
}

/// A window onto a store. Cheap to make: the grid costs one pass over the scrape times, and no
/// sample is copied.
///
/// On a grid, each source shows the first scrape at or after every instant, unless the next
/// instant has come by then: what a Prometheus with that phase would have stored.
#[derive(Clone, Debug)]
pub struct View<'a> {
    store: &'a Store,
    from_ms: i64,
    /// First instant that is not seen any more.
    until_ms: i64,
    /// For each list of times, which of them are seen; empty without a grid. Shared by clones.
    chosen: Arc<[Chosen]>,
    overlays: [Option<&'a Store>; 2],
}

/// Which times of a list are seen, by index and by value.
#[derive(Clone, Debug, Default)]
struct Chosen {
    index: Vec<u32>,
    t_ms: Vec<i64>,
}

impl<'a> View<'a> {
    /// All of a store.
    pub fn whole(store: &'a Store) -> View<'a> {
        View { store, from_ms: i64::MIN, until_ms: i64::MAX, chosen: Arc::new([]), overlays: [None; 2] }
    }

    /// A store without the samples from before `from_ms`.
    pub fn since(store: &'a Store, from_ms: i64) -> View<'a> {
        View { from_ms, ..View::whole(store) }
    }

    /// The same with only the scrapes that fall on `grid`.
    pub fn on_grid(store: &'a Store, from_ms: i64, grid: Grid) -> View<'a> {
        let chosen = store.times.iter().map(|times| choose(times, from_ms, grid)).collect();
        View { chosen, ..View::since(store, from_ms) }
    }

    /// The same without the samples from `until_ms` on: a step's last instant is the next one's first.
    #[must_use]
    pub fn until(self, until_ms: i64) -> View<'a> {
        View { until_ms, ..self }
    }

    /// The same with a further store laid over it, seen whole: facts, or what recording rules have computed so far.
    /// Where several hold a metric name, the series of all are seen. A third one takes the place of the second.
    #[must_use]
    pub fn with_overlay(self, overlay: &'a Store) -> View<'a> {
        let overlays = [self.overlays[0].or(Some(overlay)), self.overlays[0].and(Some(overlay))];
        View { overlays, ..self }
    }

    /// The store below.
    pub fn store(&self) -> &'a Store {
        self.store
    }

    /// Samples from before this are not seen; Unix ms, [`i64::MIN`] for all.
    pub fn from_ms(&self) -> i64 {
        self.from_ms
    }

    /// The stores to look for series in.
    pub(crate) fn stores(&self) -> impl Iterator<Item = Layer<'a, '_>> + '_ {
        let base = Layer {
            store: self.store,
            from_ms: self.from_ms,
            until_ms: self.until_ms,
            chosen: &self.chosen,
            last: None,
        };
        let over = self.overlays.into_iter().flatten();
        let over = over.map(|store| Layer { store, from_ms: i64::MIN, until_ms: i64::MAX, chosen: &[], last: None });
        std::iter::once(base).chain(over)
    }
}

/// One store of a view, with the memory of the window that was looked up last: the series of
/// one target share their times, so neighbours need no search of their own.
#[derive(Debug)]
pub(crate) struct Layer<'a, 'v> {
    pub(crate) store: &'a Store,
    from_ms: i64,
    until_ms: i64,
    chosen: &'v [Chosen],
    last: Option<(u32, i64, i64, usize, usize)>,
}

impl Layer<'_, '_> {
    /// The newest sample of `series` in `[lo_ms, hi_ms]`, be it a staleness marker.
    pub(crate) fn newest(&mut self, series: &Series, lo_ms: i64, hi_ms: i64) -> Option<(i64, f64)> {
        let (from, to) = self.bounds(series.times.0, lo_ms, hi_ms);
        let times = &self.store.times[series.times.0 as usize];
        let chosen = self.chosen.get(series.times.0 as usize);
        (from..to).rev().find_map(|i| {
            let i = chosen.map_or(i, |c| c.index[i] as usize);
            let v = *series.cells.get(i.checked_sub(series.first)?)?;
            Some((times[i], v))
        })
    }

    /// Appends the samples of `series` in `[lo_ms, hi_ms]`, without staleness markers.
    pub(crate) fn range(&mut self, series: &Series, lo_ms: i64, hi_ms: i64, out: &mut Vec<(i64, f64)>) {
        let (from, to) = self.bounds(series.times.0, lo_ms, hi_ms);
        let times = &self.store.times[series.times.0 as usize];
        let mut take = |i: usize| {
            if let Some(&v) = i.checked_sub(series.first).and_then(|cell| series.cells.get(cell))
                && !is_stale(v)
            {
                out.push((times[i], v));
            }
        };
        match self.chosen.get(series.times.0 as usize) {
            None => (from..to).for_each(&mut take),
            Some(chosen) => chosen.index[from..to].iter().for_each(|&i| take(i as usize)),
        }
    }

    /// Indices (into the chosen times, or into all) of the times in `[lo_ms, hi_ms]`.
    fn bounds(&mut self, times: u32, lo_ms: i64, hi_ms: i64) -> (usize, usize) {
        if let Some((t, lo, hi, from, to)) = self.last
            && (t, lo, hi) == (times, lo_ms, hi_ms)
        {
            return (from, to);
        }
        let list = self.chosen.get(times as usize).map_or(&self.store.times[times as usize], |c| &c.t_ms);
        let lo = lo_ms.max(self.from_ms);
        let from = list.partition_point(|&t| t < lo);
        let to = from + list[from..].partition_point(|&t| t <= hi_ms && t < self.until_ms);
        self.last = Some((times, lo_ms, hi_ms, from, to));
        (from, to)
    }
}

/// The first time at or after each instant of the grid.
fn choose(times: &[i64], from_ms: i64, grid: Grid) -> Chosen {
    let mut chosen = Chosen::default();
    let mut taken = None;
    // A scrape from before the window is not seen, but it can be the one that its instant got.
    let begin = times.partition_point(|&t| t < from_ms.saturating_sub(grid.interval_ms));
    for (i, &t) in times.iter().enumerate().skip(begin) {
        let tick = grid.tick(t);
        // Nothing tells that the recording's very first scrape was due to an instant long before it.
        if i == 0 && times.get(1).is_some_and(|next| t - grid.instant(tick) > next - t) {
            taken = Some(tick);
        }
        if taken != Some(tick) {
            taken = Some(tick);
            chosen.index.push(u32::try_from(i).expect("fewer than 2^32 scrapes fit into memory"));
            chosen.t_ms.push(t);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::{Labels, NAME};

    fn each_second(n: i64) -> Store {
        let mut store = Store::new();
        let l = Labels::new([(NAME, "x")]);
        for s in 0..n {
            store.push(&l, s * 1000, s as f64);
        }
        store
    }

    fn seen(view: &View<'_>, lo: i64, hi: i64) -> Vec<f64> {
        let mut out = Vec::new();
        for mut layer in view.stores() {
            for &id in layer.store.named("x") {
                let series = layer.store.series(id);
                layer.range(series, lo, hi, &mut out);
            }
        }
        out.into_iter().map(|(_, v)| v).collect()
    }

    #[test]
    fn a_view_starts_at_its_start() {
        let store = each_second(10);
        assert_eq!(seen(&View::whole(&store), 0, 3000), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(seen(&View::since(&store, 2000), 0, 3000), [2.0, 3.0]);
        assert_eq!(seen(&View::since(&store, 2000).until(4000), 0, 9000), [2.0, 3.0], "its end is not its own");
    }

    #[test]
    fn a_grid_shows_the_first_scrape_of_each_interval() {
        let store = each_second(40);
        let grid = |phase_ms| Grid { interval_ms: 15_000, phase_ms };
        assert_eq!(seen(&View::on_grid(&store, 0, grid(0)), 0, 40_000), [0.0, 15.0, 30.0]);
        // The instant at -11 s saw no scrape at all.
        assert_eq!(seen(&View::on_grid(&store, 0, grid(4_000)), 0, 40_000), [4.0, 19.0, 34.0]);
        assert_eq!(seen(&View::on_grid(&store, 5_000, grid(4_000)), 0, 40_000), [19.0, 34.0]);
        // Between two scrapes: the later one.
        assert_eq!(seen(&View::on_grid(&store, 1_000, grid(4_500)), 0, 40_000), [5.0, 20.0, 35.0]);
    }

    #[test]
    fn an_overlay_is_seen_whole() {
        let (store, mut over) = (each_second(3), Store::new());
        over.push(&Labels::new([(NAME, "x"), ("a", "b")]), 500, 7.0);
        assert_eq!(seen(&View::since(&store, 2_000).with_overlay(&over), 0, 3_000), [2.0, 7.0]);
    }
}
