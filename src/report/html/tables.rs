//! The steps, and every alert in every step.

use super::markup::Html;
use super::scrollable;
use crate::model::verdict::{AlertState, StepOutcome, StepVerdict, Verdict};
use crate::report::rows;
use crate::report::text::{self, instant, level, number, percent};

fn outcome_class(o: StepOutcome) -> &'static str {
    match o {
        StepOutcome::Clean => "good",
        StepOutcome::Firing => "bad",
        StepOutcome::Inconclusive => "doubt",
    }
}

pub(super) fn steps(h: &mut Html, v: &Verdict) {
    h.within("section", &[("class", "card"), ("aria-labelledby", "steps")], |h| {
        h.leaf("h2", &[("id", "steps")], "Steps");
        if v.steps.is_empty() {
            h.leaf("p", &[], "No step was finished.");
            return;
        }
        let columns = rows::columns(v);
        scrollable(h, "the steps", |h| {
            h.within("thead", &[], |h| {
                h.within("tr", &[], |h| {
                    for group in columns.chunk_by(|a, b| a.group == b.group && !a.group.is_empty()) {
                        let span = group.len().to_string();
                        if group[0].group.is_empty() {
                            h.leaf("th", &[("scope", "col"), ("rowspan", "2")], group[0].name);
                        } else {
                            h.leaf("th", &[("scope", "colgroup"), ("colspan", &span)], group[0].group);
                        }
                    }
                    h.leaf("th", &[("scope", "col"), ("rowspan", "2"), ("class", "left")], "alerts");
                });
                h.within("tr", &[], |h| {
                    for c in columns.iter().filter(|c| !c.group.is_empty()) {
                        h.leaf("th", &[("scope", "col")], c.name);
                    }
                });
            });
            h.within("tbody", &[], |h| {
                for (i, s) in v.steps.iter().enumerate() {
                    h.within("tr", &[("class", outcome_class(s.outcome))], |h| {
                        for (j, c) in columns.iter().enumerate() {
                            if j == 0 {
                                h.leaf("th", &[("scope", "row")], &c.cells[i]);
                            } else {
                                h.leaf("td", &[], &c.cells[i]);
                            }
                        }
                        let class = format!("left wrap state {}", outcome_class(s.outcome));
                        h.leaf("td", &[("class", &class)], &rows::outcome(s));
                    });
                }
            });
        });
        let mut note = String::from(
            "wait, run and KV: median, and the largest in brackets. gap: time between two chunks that carry output.",
        );
        if rows::has_few_samples(v) {
            note += " ~ marks a p99 of fewer than 100 requests: enough to show that a target is missed, not that it is kept.";
        }
        h.leaf("p", &[("class", "muted")], &note);
    });
}

/// Every rule in every step.
pub(super) fn alerts(h: &mut Html, v: &Verdict) {
    let mut names: Vec<&str> = Vec::new();
    for a in v.steps.iter().flat_map(|s| &s.alerts) {
        if !names.contains(&a.alert.as_str()) {
            names.push(&a.alert);
        }
    }
    if names.is_empty() {
        return;
    }
    h.within("section", &[("class", "card"), ("aria-labelledby", "alerts")], |h| {
        h.leaf("h2", &[("id", "alerts")], "Alerts by step");
        scrollable(h, "every alert in every step", |h| {
            h.within("thead", &[], |h| {
                h.within("tr", &[], |h| {
                    h.leaf("th", &[("scope", "col"), ("class", "left")], "alert");
                    for s in &v.steps {
                        h.within("th", &[("scope", "col"), ("class", "center")], |h| {
                            h.leaf("span", &[], &format!("step {}", s.step));
                            h.leaf("span", &[], &level(v, s.concurrency));
                        });
                    }
                });
            });
            h.within("tbody", &[], |h| {
                for name in names {
                    h.within("tr", &[], |h| {
                        h.leaf("th", &[("scope", "row"), ("class", "left")], name);
                        for s in &v.steps {
                            alert_cell(h, s, name);
                        }
                    });
                }
            });
        });
        h.leaf(
            "p",
            &[("class", "muted")],
            "A percentage is the share of the phases of the production scrape grid in which the alert fired.",
        );
    });
}

fn alert_cell(h: &mut Html, s: &StepVerdict, name: &str) {
    let severity = |state: AlertState| match state {
        AlertState::Firing => 4,
        AlertState::NotEvaluable => 3,
        AlertState::NoData => 2,
        AlertState::Pending => 1,
        AlertState::Quiet => 0,
    };
    // One alert may have several label sets; the worst stands for it.
    let Some(a) = s.alerts.iter().filter(|a| a.alert == name).max_by_key(|a| severity(a.state)) else {
        h.leaf("td", &[("class", "center")], text::UNKNOWN);
        return;
    };
    let (word, class) = match a.state {
        AlertState::Quiet => ("quiet".to_owned(), "center quiet"),
        AlertState::Pending => ("pending".to_owned(), "center state pending"),
        AlertState::Firing => match a.phase_share {
            Some(share) if share < 1.0 => (format!("firing {}", percent(share)), "center state bad"),
            _ => ("firing".to_owned(), "center state bad"),
        },
        AlertState::NoData => ("no data".to_owned(), "center state doubt"),
        AlertState::NotEvaluable => ("not evaluable".to_owned(), "center state doubt"),
    };
    let mut title = Vec::new();
    title.extend(a.value.map(|x| format!("value {}", number(x))));
    title.extend(a.limit.map(|x| format!("limit {}", number(x))));
    title.extend(a.fired_at_s.map(|t| format!("fired at {}", instant(t))));
    title.extend(a.because.clone());
    if title.is_empty() {
        h.leaf("td", &[("class", class)], &word);
    } else {
        h.leaf("td", &[("class", class), ("title", &title.join(", "))], &word);
    }
}
