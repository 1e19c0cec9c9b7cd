//! Bands around numbers of a real server, and how many of the stand-in's may lie outside them.

use plimsoll::sim::{Profile, Rehearsed};

/// What is judged together, and the share that may lie outside its bands: one in so many.
const KINDS: &[(&str, &[&str], usize)] = &[
    ("gauges and counts", &["running", "waiting", "kv", "kv max", "preemptions", "hit rate"], 50),
    // These follow the speed of a machine that was shared with other work, and changed within runs too.
    ("latencies and rates", &["tokens/s", "ttft ms", "itl ms", "ttft p50 ms", "gap p50 ms", "queue ms"], 3),
];

/// A number beside its recorded one.
pub struct Cell {
    pub name: &'static str,
    pub theirs: f64,
    pub ours: f64,
    /// Allowed share of difference, and allowed difference: the larger counts.
    pub share: f64,
    pub difference: f64,
    /// The machine's speed was read from it, or it follows from what that was read from.
    pub given: bool,
    /// Named as no measure.
    pub excused: bool,
}

impl Cell {
    fn close(&self) -> bool {
        self.theirs.is_nan() || (self.ours - self.theirs).abs() <= (self.share * self.theirs.abs()).max(self.difference)
    }
}

/// What was compared so far.
#[derive(Default)]
pub struct Tally {
    cells: [usize; KINDS.len()],
    out: [Vec<String>; KINDS.len()],
}

impl Tally {
    /// Counts a cell of the step that `of` names, and writes it as a table's.
    pub fn cell(&mut self, of: &str, cell: &Cell) -> String {
        let kind = KINDS.iter().position(|k| k.1.contains(&cell.name)).expect("every number has its kind");
        if !cell.given && !cell.excused {
            self.cells[kind] += 1;
            if !cell.close() {
                self.out[kind].push(format!("{of}: {} is {:.3}, recorded {:.3}", cell.name, cell.ours, cell.theirs));
            }
        }
        let mark = match (cell.given, cell.close()) {
            (true, _) => " =",
            (false, true) => "",
            (false, false) => " !",
        };
        format!(" {} / {}{mark} |", short(cell.theirs), short(cell.ours))
    }

    /// Prints what lies outside, and fails if that is too much.
    pub fn judge(&self) {
        for ((kind, _, one_in), (cells, out)) in KINDS.iter().zip(self.cells.iter().zip(&self.out)) {
            println!("{kind}: {} of {cells} outside their bands\n{}", out.len(), out.join("\n"));
            assert!(out.len() * one_in <= *cells, "{kind}: {} of {cells} outside their bands", out.len());
        }
    }
}

/// Makes everything that takes a machine's time take so many times as long.
pub fn slow_down(profile: &mut Profile, by: f64) {
    let (cost, api) = (&mut profile.cost, &mut profile.api);
    for us in [
        &mut cost.base_us,
        &mut cost.prefill_us,
        &mut cost.decode_us,
        &mut cost.draft_us,
        &mut cost.drafter_us,
        &mut cost.context_us,
        &mut cost.attention_us,
        &mut api.request_us,
        &mut api.tokenize_us,
        &mut api.output_us,
        &mut api.ipc_us,
        &mut api.page_us,
    ] {
        *us *= by;
    }
}

fn short(value: f64) -> String {
    if value == 0.0 {
        "0".into()
    } else if value.abs() < 1.0 {
        format!("{value:.3}")
    } else if value.abs() < 10.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.0}")
    }
}

/// One step of a recorded run.
pub struct Row {
    pub run: &'static str,
    /// What served: a profile, or words that make one.
    pub server: &'static str,
    fields: Vec<(&'static str, f64)>,
}

impl Row {
    /// A number of the step by its column; not a number where it has none.
    pub fn get(&self, name: &str) -> f64 {
        self.fields.iter().find(|(n, _)| *n == name).map_or(f64::NAN, |(_, v)| *v)
    }

    pub fn streams(&self) -> u32 {
        self.get("streams") as u32
    }
}

/// The steps in a file whose first columns are run and server.
pub fn rows(csv: &'static str) -> Vec<Row> {
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            let fields = names.iter().zip(&cells).skip(2).map(|(n, c)| (*n, c.parse().unwrap_or(f64::NAN))).collect();
            Row { run: cells[0], server: cells[1], fields }
        })
        .collect()
}

/// How much slower the machine was in `run` than where step times were fitted: from the
/// tokens a second of its lowest step.
pub fn slowness(rows: &[Row], run: &str, rehearsed: impl Fn(&Row, f64) -> Rehearsed) -> f64 {
    let lowest = rows.iter().filter(|r| r.run == run).min_by_key(|r| r.streams()).unwrap();
    let recorded = lowest.get("tokens_per_s");
    // Nearly everything is proportional to it, so a third look is close enough.
    (0..3).fold(1.0, |s, _| s * rehearsed(lowest, s).tokens_per_s / recorded)
}
