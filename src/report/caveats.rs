//! The caveats of a verdict, drawn together: what is doubtful in ten steps is said once.

use super::text::{plain, runs};
use crate::model::verdict::Verdict;

/// Caveats of one code that call for the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The word for programs.
    pub code: String,
    /// What is doubtful, as the first of them says it, plain text.
    pub says: String,
    /// What to do, plain text; may be empty.
    pub hint: String,
    /// The steps that it is about, ascending; empty for the run as a whole.
    pub steps: Vec<u32>,
}

impl Group {
    /// Where it holds: `the run`, `step 3`, `steps 0, 2 to 5`.
    pub fn place(&self) -> String {
        match self.steps.as_slice() {
            [] => "the run".into(),
            [one] => format!("step {one}"),
            many => format!("steps {}", runs(many)),
        }
    }

    /// The caveat in a line. Of several steps the words are those of the first, and say so.
    pub fn line(&self) -> String {
        match self.steps.as_slice() {
            [] => self.says.clone(),
            [one] => format!("step {one}: {}", self.says),
            [first, one] => format!("step {first}: {}; likewise in step {one}", self.says),
            [first, rest @ ..] => format!("step {first}: {}; likewise in steps {}", self.says, runs(rest)),
        }
    }
}

/// Every caveat: those of the run, then those of the steps, each in order of appearance.
pub fn grouped(v: &Verdict) -> Vec<Group> {
    let mut out: Vec<Group> = Vec::new();
    for c in &v.caveats {
        let group = Group { code: plain(&c.code), says: plain(&c.says), hint: plain(&c.hint), steps: Vec::new() };
        if !out.contains(&group) {
            out.push(group);
        }
    }
    let of_run = out.len();
    for step in &v.steps {
        for c in &step.caveats {
            let (code, hint) = (plain(&c.code), plain(&c.hint));
            match out[of_run..].iter_mut().find(|g| g.code == code && g.hint == hint) {
                Some(g) if g.steps.last() == Some(&step.step) => {}
                Some(g) => g.steps.push(step.step),
                None => out.push(Group { code, says: plain(&c.says), hint, steps: vec![step.step] }),
            }
        }
    }
    out
}
