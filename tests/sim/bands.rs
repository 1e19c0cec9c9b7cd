//! Bands around numbers of a real server, and how many of the stand-in's may lie outside them.

use plimsoll::sim::Profile;

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
