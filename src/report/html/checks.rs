//! What the gate decided, what changed against its baseline, and what is doubtful.

use super::markup::Html;
use super::scrollable;
use crate::model::comparison::Judgement;
use crate::model::verdict::{CheckState, Verdict};
use crate::report::{answer, caveats, compare};

/// The checks of the gate.
pub(super) fn gate(h: &mut Html, v: &Verdict) {
    let Some(gate) = &v.gate else { return };
    let class = if gate.passed { "card gate good" } else { "card gate bad" };
    h.within("section", &[("class", class), ("aria-labelledby", "gate")], |h| {
        h.leaf("h2", &[("id", "gate")], if gate.passed { "Gate: passed" } else { "Gate: not passed" });
        scrollable(h, "checks of the gate", |h| {
            h.within("thead", &[], |h| {
                h.within("tr", &[], |h| {
                    for name in ["check", "outcome", "measured"] {
                        h.leaf("th", &[("scope", "col"), ("class", "left")], name);
                    }
                });
            });
            h.within("tbody", &[], |h| {
                for c in &gate.checks {
                    h.within("tr", &[], |h| {
                        h.within("th", &[("scope", "row"), ("class", "left")], |h| h.leaf("code", &[], &c.check));
                        let class = match c.state {
                            CheckState::Passed => "left state good",
                            CheckState::Failed => "left state bad",
                            CheckState::Unresolved => "left state doubt",
                        };
                        h.leaf("td", &[("class", class)], answer::check_word(c.state));
                        h.leaf("td", &[("class", "left wrap")], &c.says);
                    });
                }
            });
        });
    });
}

/// What is doubtful.
pub(super) fn doubts(h: &mut Html, v: &Verdict) {
    let groups = caveats::grouped(v);
    if groups.is_empty() {
        return;
    }
    h.within("section", &[("class", "card caveats"), ("aria-labelledby", "caveats")], |h| {
        h.leaf("h2", &[("id", "caveats")], "Caveats");
        h.within("ul", &[], |h| {
            for g in groups {
                h.within("li", &[], |h| {
                    h.text(&g.line());
                    if !g.hint.is_empty() {
                        h.text(" ");
                        h.leaf("em", &[], &g.hint);
                    }
                    h.text(" ");
                    h.leaf("code", &[("class", "muted")], &g.code);
                });
            }
        });
    });
}

/// This run held against the baseline.
pub(super) fn comparison(h: &mut Html, v: &Verdict) {
    let Some(c) = &v.comparison else { return };
    h.within("section", &[("class", "card"), ("aria-labelledby", "comparison")], |h| {
        h.leaf("h2", &[("id", "comparison")], "Against the baseline");
        for line in &c.called_out {
            h.leaf("p", &[("class", "lead")], line);
        }
        h.leaf("p", &[], &compare::sentence(c));
        h.within("ul", &[], |h| compare::facts(c).iter().for_each(|line| h.leaf("li", &[], line)));
        if c.changes.is_empty() {
            return;
        }
        scrollable(h, "every comparison", |h| {
            h.within("thead", &[], |h| {
                h.within("tr", &[], |h| {
                    for (i, name) in compare::HEAD.iter().enumerate() {
                        // A head without a word would be read as nothing at all.
                        let name = match i {
                            0 => "metric",
                            5 => "judgement",
                            _ => name,
                        };
                        let class = if matches!(i, 0 | 5) { "left" } else { "" };
                        h.leaf("th", &[("scope", "col"), ("class", class)], name);
                    }
                });
            });
            h.within("tbody", &[], |h| {
                for (row, change) in compare::table(c).iter().zip(&c.changes) {
                    let class = match change.judgement {
                        Judgement::Worse => "left state bad",
                        Judgement::Better => "left state good",
                        Judgement::Same => "left",
                        Judgement::CannotTell => "left muted",
                    };
                    h.within("tr", &[], |h| {
                        for (i, cell) in row.iter().enumerate() {
                            match i {
                                0 => h.leaf("th", &[("scope", "row"), ("class", "left")], cell),
                                5 => h.leaf("td", &[("class", class)], cell),
                                _ => h.leaf("td", &[], cell),
                            }
                        }
                    });
                }
            });
        });
        h.leaf("p", &[("class", "muted")], &compare::note(c));
    });
}
