//! The evaluator against a naive one that shares nothing with it: random series with gaps, resets,
//! jitter and staleness, random expressions, both readings, and views with a start and a grid.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use plimsoll::model::sample::Labels;
use plimsoll::promql::{Engine, Reading, parse};
use plimsoll::series::{Grid, Store, View, stale_marker};
use proptest::prelude::*;

type Set = BTreeMap<String, String>;
type Vector = Vec<(Set, f64)>;
/// A sample; `None` is a staleness marker.
type Sample = (i64, Option<f64>);

/// The naive world: every series is a plain list.
#[derive(Clone, Debug)]
struct World {
    series: Vec<(Set, Vec<Sample>)>,
}

/// An expression of the naive evaluator.
#[derive(Clone, Debug)]
enum Node {
    Select(&'static str, Option<&'static str>),
    Over(&'static str, &'static str, i64, i64),
    SumBy(Vec<&'static str>, Box<Node>),
    MaxWithout(Vec<&'static str>, Box<Node>),
    Compare(Box<Node>, &'static str, i32),
    Join(Box<Node>, &'static str, Box<Node>),
    Set(Box<Node>, &'static str, Box<Node>),
    Quantile(u8, i64),
    MaxOfSub(Box<Node>, i64, i64),
}

impl Node {
    fn text(&self) -> String {
        match self {
            Node::Select(m, None) => (*m).to_owned(),
            Node::Select(m, Some(e)) => format!("{m}{{engine=\"{e}\"}}"),
            Node::Over(f, m, w, 0) => format!("{f}({m}[{w}ms])"),
            Node::Over(f, m, w, o) => format!("{f}({m}[{w}ms] offset {o}ms)"),
            Node::SumBy(l, n) => format!("sum by ({}) ({})", l.join(","), n.text()),
            Node::MaxWithout(l, n) => format!("max without ({}) ({})", l.join(","), n.text()),
            Node::Compare(n, op, x) => format!("({} {op} {x})", n.text()),
            Node::Join(a, op, b) | Node::Set(a, op, b) => format!("({} {op} {})", a.text(), b.text()),
            Node::Quantile(q, w) => format!("histogram_quantile(0.{q:02}, sum by (le) (rate(h_bucket[{w}ms])))"),
            Node::MaxOfSub(n, w, s) => format!("max_over_time(({})[{w}ms:{s}ms])", n.text()),
        }
    }
}

struct Naive<'a> {
    world: &'a World,
    v3: bool,
}

/// Two elements that an operation may not tell apart.
#[derive(Debug)]
struct Ambiguous;

impl Naive<'_> {
    fn inside(&self, t: i64, now: i64, width: i64) -> bool {
        t <= now && if self.v3 { t > now - width } else { t >= now - width }
    }

    fn eval(&self, n: &Node, now: i64) -> Result<Vector, Ambiguous> {
        let named = |m: &str| self.world.series.iter().filter(|(l, _)| l["__name__"] == *m).collect::<Vec<_>>();
        match n {
            Node::Select(m, engine) => Ok(named(m)
                .into_iter()
                .filter(|(l, _)| engine.is_none_or(|e| l.get("engine").map_or("", String::as_str) == e))
                .filter_map(|(l, s)| {
                    let (t, v) = s.iter().rfind(|(t, _)| *t <= now)?;
                    Some((l.clone(), (*v).filter(|_| self.inside(*t, now, 300_000))?))
                })
                .collect()),
            Node::Over(f, m, w, offset) => {
                let now = now - offset;
                let of = |s: &[Sample]| -> Vec<(i64, f64)> {
                    let kept = s.iter().filter(|(t, _)| self.inside(*t, now, *w));
                    kept.filter_map(|(t, v)| Some((*t, (*v)?))).collect()
                };
                let value = |s: &[Sample]| self.over(f, &of(s), now, *w);
                Ok(named(m).into_iter().filter_map(|(l, s)| Some((unnamed(l), value(s)?))).collect())
            }
            Node::SumBy(labels, n) => Ok(group(self.eval(n, now)?, |l| labels.contains(&l), |v| v.iter().sum())),
            Node::MaxWithout(labels, n) => {
                let keep = |l: &str| l != "__name__" && !labels.contains(&l);
                Ok(group(self.eval(n, now)?, keep, |v| v.iter().copied().fold(f64::NAN, f64::max)))
            }
            Node::Compare(n, op, x) => {
                let x = f64::from(*x);
                Ok(self.eval(n, now)?.into_iter().filter(|(_, v)| holds(op, *v, x)).collect())
            }
            Node::Join(a, op, b) => {
                let (a, b) = (self.eval(a, now)?, self.eval(b, now)?);
                let right: BTreeMap<Set, f64> = b.iter().map(|(l, v)| (unnamed(l), *v)).collect();
                if right.len() != b.len() {
                    return Err(Ambiguous);
                }
                let mut out: BTreeMap<Set, f64> = BTreeMap::new();
                for (l, x) in a {
                    let l = unnamed(&l);
                    if let Some(y) = right.get(&l) {
                        let v = match *op {
                            "+" => x + y,
                            "-" => x - y,
                            "*" => x * y,
                            _ => x / y,
                        };
                        if out.insert(l, v).is_some() {
                            return Err(Ambiguous);
                        }
                    }
                }
                Ok(out.into_iter().collect())
            }
            Node::Set(a, op, b) => {
                let (a, b) = (self.eval(a, now)?, self.eval(b, now)?);
                let there = |v: &Vector| v.iter().map(|(l, _)| unnamed(l)).collect::<BTreeSet<_>>();
                let (left, right) = (there(&a), there(&b));
                Ok(match *op {
                    "and" => a.into_iter().filter(|(l, _)| right.contains(&unnamed(l))).collect(),
                    "unless" => a.into_iter().filter(|(l, _)| !right.contains(&unnamed(l))).collect(),
                    _ => a.into_iter().chain(b.into_iter().filter(|(l, _)| !left.contains(&unnamed(l)))).collect(),
                })
            }
            Node::Quantile(q, w) => {
                let rates = self.eval(&Node::Over("rate", "h_bucket", *w, 0), now)?;
                let mut buckets: BTreeMap<i64, f64> = BTreeMap::new();
                for (l, v) in rates {
                    let bound = if l["le"] == "+Inf" { i64::MAX } else { l["le"].parse().unwrap() };
                    *buckets.entry(bound).or_default() += v;
                }
                let value = quantile(f64::from(*q) / 100.0, &buckets);
                Ok(value.map(|v| (Set::new(), v)).into_iter().collect())
            }
            Node::MaxOfSub(n, w, step) => {
                let mut best: BTreeMap<Set, f64> = BTreeMap::new();
                let mut full = BTreeMap::new();
                for t in (now - w..=now).filter(|t| t % step == 0 && self.inside(*t, now, *w)) {
                    for (l, v) in self.eval(n, t)? {
                        full.insert(l.clone(), ());
                        let slot = best.entry(unnamed(&l)).or_insert(v);
                        *slot = if slot.is_nan() || v > *slot { v } else { *slot };
                    }
                }
                if full.len() == best.len() { Ok(best.into_iter().collect()) } else { Err(Ambiguous) }
            }
        }
    }

    fn over(&self, f: &str, p: &[(i64, f64)], now: i64, w: i64) -> Option<f64> {
        let n = p.len();
        let values: Vec<f64> = p.iter().map(|p| p.1).collect();
        match f {
            "avg_over_time" => (n > 0).then(|| values.iter().sum::<f64>() / n as f64),
            "max_over_time" => values.iter().copied().reduce(f64::max),
            "min_over_time" => values.iter().copied().reduce(f64::min),
            "count_over_time" => (n > 0).then_some(n as f64),
            "changes" => (n > 0).then(|| (1..n).filter(|&i| values[i] != values[i - 1]).count() as f64),
            "resets" => (n > 0).then(|| (1..n).filter(|&i| values[i] < values[i - 1]).count() as f64),
            "rate" => self.grown(p, now, w, true).map(|g| g * 1000.0 / w as f64),
            "increase" => self.grown(p, now, w, true),
            _ => self.grown(p, now, w, false),
        }
    }

    /// In whole milliseconds, by cases.
    fn grown(&self, p: &[(i64, f64)], now: i64, w: i64, counter: bool) -> Option<f64> {
        if p.len() < 2 {
            return None;
        }
        let mut grown = 0.0;
        for i in 1..p.len() {
            grown += if counter && p[i].1 < p[i - 1].1 { p[i].1 } else { p[i].1 - p[i - 1].1 };
        }
        let covered = (p[p.len() - 1].0 - p[0].0) as f64;
        let average = covered / (p.len() - 1) as f64;
        let edge = |gap: f64| if gap < 1.1 * average { gap } else { average / 2.0 };
        let born = |gap: f64| {
            if counter && grown > 0.0 && p[0].1 >= 0.0 { gap.min(covered * p[0].1 / grown) } else { gap }
        };
        let before = (p[0].0 - (now - w)) as f64;
        let head = if self.v3 { born(edge(before)) } else { edge(born(before)) };
        let tail = edge((now - p[p.len() - 1].0) as f64);
        Some(grown / covered * (covered + head + tail))
    }
}

fn holds(op: &str, a: f64, b: f64) -> bool {
    match op {
        ">" => a > b,
        "<" => a < b,
        ">=" => a >= b,
        "==" => a == b,
        _ => a != b,
    }
}

fn unnamed(l: &Set) -> Set {
    l.iter().filter(|(n, _)| *n != "__name__").map(|(n, v)| (n.clone(), v.clone())).collect()
}

fn group(v: Vector, keep: impl Fn(&str) -> bool, fold: impl Fn(&[f64]) -> f64) -> Vector {
    let mut groups: BTreeMap<Set, Vec<f64>> = BTreeMap::new();
    for (l, x) in v {
        groups.entry(l.into_iter().filter(|(n, _)| keep(n)).collect()).or_default().push(x);
    }
    groups.into_iter().map(|(l, v)| (l, fold(&v))).collect()
}

/// `None` where there are no buckets at all.
fn quantile(q: f64, buckets: &BTreeMap<i64, f64>) -> Option<f64> {
    let (&last, _) = buckets.last_key_value()?;
    let mut high = 0.0_f64;
    let rising: Vec<(i64, f64)> = buckets
        .iter()
        .map(|(b, c)| {
            high = if *c > high * (1.0 + 1e-11) { *c } else { high };
            (*b, high)
        })
        .collect();
    let total = rising[rising.len() - 1].1;
    if last != i64::MAX || rising.len() < 2 || total == 0.0 {
        return Some(f64::NAN);
    }
    let rank = q * total;
    let mut below = (0, 0.0);
    for &(bound, count) in &rising {
        if count >= rank {
            if bound == i64::MAX {
                return Some(below.0 as f64);
            }
            return Some(below.0 as f64 + (bound - below.0) as f64 * (rank - below.1) / (count - below.1));
        }
        below = (bound, count);
    }
    unreachable!("the last bucket holds every rank")
}

fn clock() -> impl Strategy<Value = Vec<i64>> {
    let steps =
        prop::collection::vec(prop_oneof![8 => 900..1_100_i64, 8 => Just(1_000_i64), 1 => 5_000..400_000_i64], 2..90);
    let scale = prop_oneof![Just(1_i64), Just(15)];
    (steps, scale).prop_map(|(steps, scale)| {
        let mut t = 0;
        let mut times = vec![0];
        for s in steps {
            t += s * scale;
            times.push(t);
        }
        times
    })
}

fn values(counter: bool) -> impl Strategy<Value = Vec<Option<f64>>> {
    let one = prop_oneof![
        12 => (0..20_u32).prop_map(Some),
        1 => Just(None),
        1 => Just(Some(1_000)),
    ];
    prop::collection::vec(one, 91).prop_map(move |steps| {
        let mut total = 0_u32;
        let mut step = |s: u32| {
            // A large step stands for a restart.
            total = if !counter {
                s % 1_000
            } else if s == 1_000 {
                0
            } else {
                total + s
            };
            f64::from(total)
        };
        steps.into_iter().map(|s| s.map(&mut step)).collect()
    })
}

fn world() -> impl Strategy<Value = World> {
    let one = |name: &'static str, extra: Option<(&'static str, &'static str)>, engine: &'static str, counter| {
        values(counter).prop_map(move |v| {
            let set = [("__name__", name), ("engine", engine)].into_iter().chain(extra);
            let set: Set = set.filter(|(_, v)| !v.is_empty()).map(|(n, v)| (n.into(), v.into())).collect();
            (set, v)
        })
    };
    let mut all = Vec::new();
    for engine in ["", "0", "1"] {
        all.push(one("a", None, engine, false).boxed());
        all.push(one("b", None, engine, true).boxed());
        for le in ["1", "2", "5", "+Inf"] {
            all.push(one("h_bucket", Some(("le", le)), engine, true).boxed());
        }
    }
    let present = prop::collection::vec(prop::bool::weighted(0.8), all.len());
    (clock(), clock(), all, present).prop_map(|(c0, c1, all, present)| {
        let clocked = |(set, values): (Set, Vec<Option<f64>>)| {
            let clock = if set.get("engine").is_some_and(|e| e == "1") { &c1 } else { &c0 };
            (set, clock.iter().copied().zip(values).collect())
        };
        World { series: all.into_iter().zip(present).filter(|(_, p)| *p).map(|(s, _)| clocked(s)).collect() }
    })
}

fn node() -> impl Strategy<Value = Node> {
    let window = prop_oneof![Just(1_000_i64), Just(15_000), Just(30_000), Just(60_000), 1..400_000_i64];
    let over = prop::sample::select(vec![
        "rate",
        "increase",
        "delta",
        "avg_over_time",
        "max_over_time",
        "min_over_time",
        "count_over_time",
        "changes",
        "resets",
    ]);
    let offset = prop_oneof![3 => Just(0_i64), 1 => 1..100_000_i64];
    let leaf = prop_oneof![
        2 => prop::sample::select(vec!["a", "b", "h_bucket"]).prop_map(|m| Node::Select(m, None)),
        1 => Just(Node::Select("a", Some("1"))),
        4 => (over, prop::sample::select(vec!["a", "b"]), window.clone(), offset).prop_map(|(f, m, w, o)| Node::Over(f, m, w, o)),
        2 => (1..100_u8, window).prop_map(|(q, w)| Node::Quantile(q, w)),
    ];
    let labels = || prop::sample::subsequence(vec!["engine", "le"], 0..=2);
    leaf.prop_recursive(3, 8, 2, move |inner| {
        let boxed = inner.prop_map(Box::new);
        let compare = prop::sample::select(vec![">", "<", ">=", "==", "!="]);
        let arithmetic = prop::sample::select(vec!["+", "-", "*", "/"]);
        let set = prop::sample::select(vec!["and", "or", "unless"]);
        prop_oneof![
            (labels(), boxed.clone()).prop_map(|(l, n)| Node::SumBy(l, n)),
            (labels(), boxed.clone()).prop_map(|(l, n)| Node::MaxWithout(l, n)),
            (boxed.clone(), compare, 0..30_i32).prop_map(|(n, op, x)| Node::Compare(n, op, x)),
            (boxed.clone(), arithmetic, boxed.clone()).prop_map(|(a, op, b)| Node::Join(a, op, b)),
            (boxed.clone(), set, boxed.clone()).prop_map(|(a, op, b)| Node::Set(a, op, b)),
            (boxed, prop::sample::select(vec![10_000_i64, 60_000]), prop::sample::select(vec![1_500_i64, 15_000]))
                .prop_map(|(n, w, s)| Node::MaxOfSub(n, w, s)),
        ]
    })
}

fn store(world: &World) -> Store {
    let mut store = Store::new();
    for (set, samples) in &world.series {
        let labels = Labels::new(set.iter().map(|(n, v)| (n.as_str(), v.as_str())));
        for (t, v) in samples {
            store.push(&labels, *t, v.unwrap_or(stale_marker()));
        }
    }
    store
}

fn same(a: f64, b: f64) -> bool {
    let near = (a - b).abs() <= 1e-8 * a.abs().max(b.abs()).max(1e-3);
    a == b || a.is_nan() && b.is_nan() || a.is_finite() && b.is_finite() && near
}

fn check(world: &World, view: &View<'_>, node: &Node, v3: bool, at: i64) -> Result<(), TestCaseError> {
    let reading = if v3 { Reading::V3 } else { Reading::V2 };
    let engine = Engine { reading, ..Engine::default() };
    let text = node.text();
    let expr = parse(&text).map_err(|e| TestCaseError::fail(format!("{text}: {e}")))?;
    let answer = engine.instant(&expr, view, at).map(|v| {
        let key = |l: &Labels| l.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect::<Set>();
        v.into_vector().into_iter().map(|e| (key(&e.labels), e.value)).collect::<BTreeMap<_, _>>()
    });
    match (answer, Naive { world, v3 }.eval(node, at)) {
        (Ok(got), Ok(want)) => {
            let want: BTreeMap<Set, f64> = want.into_iter().collect();
            let equal = got.len() == want.len() && got.iter().zip(&want).all(|((l, a), (m, b))| l == m && same(*a, *b));
            prop_assert!(equal, "{text} at {at}, v3 {v3}: {got:?}, expected {want:?}");
        }
        (Err(_), Err(Ambiguous)) => {}
        (got, want) => prop_assert!(false, "{text} at {at}, v3 {v3}: {got:?}, expected {want:?}"),
    }
    Ok(())
}

/// Only what a Prometheus sees that scrapes at `phase + k * interval`, from `from` on.
fn thinned(world: &World, from: i64, interval: i64, phase: i64) -> World {
    let seen = |samples: &[Sample]| -> Vec<Sample> {
        let spacing = samples.get(1).map_or(0, |s| s.0 - samples[0].0);
        let kept = samples.iter().enumerate().filter(|(i, (t, _))| {
            let tick = t - (t - phase).rem_euclid(interval);
            // The first at or after its tick; the very first only if its tick is near.
            let first = if *i == 0 { samples.len() < 2 || t - tick <= spacing } else { samples[i - 1].0 < tick };
            *t >= from && first
        });
        kept.map(|(_, s)| *s).collect()
    };
    World { series: world.series.iter().map(|(l, s)| (l.clone(), seen(s))).collect() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn values_agree(world in world(), node in node(), v3: bool, at in prop_oneof![0..1_000_000_i64, (0..100_i64).prop_map(|s| s * 1_000)]) {
        check(&world, &View::whole(&store(&world)), &node, v3, at)?;
    }

    #[test]
    fn values_agree_on_a_grid(
        world in world(), node in node(), v3: bool, at in 0..1_000_000_i64,
        from in 0..200_000_i64, interval in prop_oneof![Just(5_000_i64), Just(15_000)], phase in -20_000..20_000_i64,
    ) {
        let store = store(&world);
        let view = View::on_grid(&store, from, Grid { interval_ms: interval, phase_ms: phase });
        check(&thinned(&world, from, interval, phase), &view, &node, v3, at)?;
    }
}
