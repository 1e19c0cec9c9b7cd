//! Each GPU over each step, as a table of the page.

use super::markup::Html;
use super::scrollable;
use crate::model::verdict::Verdict;
use crate::report::gpu;

pub(super) fn gpus(h: &mut Html, v: &Verdict) {
    let rows = gpu::rows(v);
    if rows.is_empty() {
        return;
    }
    h.within("section", &[("class", "card"), ("aria-labelledby", "gpus")], |h| {
        h.leaf("h2", &[("id", "gpus")], "GPU by step");
        scrollable(h, "each GPU over each step", |h| {
            h.within("thead", &[], |h| {
                h.within("tr", &[], |h| {
                    for name in gpu::COLUMNS {
                        h.leaf("th", &[("scope", "col")], name);
                    }
                    h.leaf("th", &[("scope", "col"), ("class", "left")], "remarks");
                });
            });
            h.within("tbody", &[], |h| {
                for row in &rows {
                    h.within("tr", &[], |h| {
                        for (i, cell) in row.cells.iter().enumerate() {
                            if i == 0 {
                                h.leaf("th", &[("scope", "row")], cell);
                            } else {
                                h.leaf("td", &[], cell);
                            }
                        }
                        let class = if row.remarks.is_empty() { "left wrap" } else { "left wrap state doubt" };
                        h.leaf("td", &[("class", class)], &row.remarks.join("; "));
                    });
                }
            });
        });
        h.leaf("p", &[("class", "muted")], gpu::LEGEND);
    });
}
