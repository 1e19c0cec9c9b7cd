//! Why the first alert fired, what to do, and what it is not.

use super::markup::Html;
use crate::model::verdict::{Confidence, Evidence, Explanation, Verdict};
use crate::report::answer;
use crate::report::text::number;

/// Why, what to do, and what it is not.
pub(super) fn why(h: &mut Html, v: &Verdict) {
    let Some(e) = &v.explanation else { return };
    h.within("section", &[("class", "card because"), ("aria-labelledby", "because")], |h| {
        h.leaf("h2", &[("id", "because")], "Because");
        h.leaf("p", &[("class", "lead")], &e.summary);
        pair(h, e);
        if !e.evidence.is_empty() {
            h.within("ul", &[("class", "evidence")], |h| {
                e.evidence.iter().for_each(|evidence| observation(h, evidence))
            });
        }
    });
    let not: Vec<_> = e.runner_up.iter().chain(&e.ruled_out).collect();
    if e.advice.is_empty() && not.is_empty() {
        return;
    }
    h.within("div", &[("class", "cards")], |h| {
        if !e.advice.is_empty() {
            h.within("section", &[("class", "card do"), ("aria-labelledby", "do")], |h| {
                h.leaf("h2", &[("id", "do")], "Do");
                let lines = answer::entries(v).into_iter().filter(|e| e.label == "do").flat_map(|e| e.lines);
                h.within("ul", &[], |h| lines.for_each(|line| h.leaf("li", &[], &line)));
            });
        }
        if !not.is_empty() {
            h.within("section", &[("class", "card"), ("aria-labelledby", "not")], |h| {
                h.leaf("h2", &[("id", "not")], "Not because");
                h.within("ul", &[], |h| {
                    for r in not {
                        h.within("li", &[], |h| {
                            h.leaf("strong", &[], &r.pair);
                            h.text(": ");
                            h.text(&r.why_not);
                        });
                    }
                });
            });
        }
    });
}

/// One piece of evidence, with the expression that it was read with and its numbers.
fn observation(h: &mut Html, e: &Evidence) {
    h.within("li", &[], |h| {
        h.text(&e.says);
        if let Some(expr) = &e.expr {
            h.text(" ");
            h.leaf("code", &[], expr);
        }
        let numbers = [("median", e.median), ("max", e.max)];
        let numbers: Vec<String> =
            numbers.iter().filter_map(|(word, x)| x.map(|x| format!("{word} {}", number(x)))).collect();
        if !numbers.is_empty() {
            h.text(" ");
            h.leaf("span", &[("class", "muted")], &numbers.join(", "));
        }
    });
}

fn pair(h: &mut Html, e: &Explanation) {
    let confidence = match e.confidence {
        Confidence::High => "shown by the numbers",
        Confidence::Medium => "likely",
        Confidence::Low => "a guess",
    };
    h.within("p", &[("class", "tags")], |h| {
        h.leaf("span", &[("class", "tag")], &e.pair);
        if let Some(resource) = &e.resource {
            h.text(" ");
            h.leaf("span", &[("class", "tag")], &resource.replace('_', " "));
        }
        h.text(" ");
        h.leaf("span", &[("class", "tag quiet")], confidence);
    });
}
