//! The answer in a sentence, and the numbers that a planner copies.

use super::markup::Html;
use super::tone_class;
use crate::model::verdict::{StepOutcome, StepVerdict, Verdict};
use crate::report::answer;
use crate::report::text::{level, level_unit, number, seconds};

/// The mark on a ship's hull: a ring with a line through it.
const MARK: &str = "<svg class=\"mark\" viewBox=\"0 0 48 48\" aria-hidden=\"true\"><circle cx=\"24\" cy=\"24\" r=\"13\" \
                    fill=\"none\" stroke=\"currentColor\" stroke-width=\"4\"/><path d=\"M2 24h44\" stroke=\"currentColor\" \
                    stroke-width=\"4\"/></svg>";

/// The answer in a sentence, and its numbers.
pub(super) fn head(h: &mut Html, v: &Verdict) {
    h.within("header", &[("class", tone_class(answer::tone(v.outcome)))], |h| {
        h.within("p", &[("class", "kicker")], |h| {
            h.ours(MARK);
            h.within("span", &[], |h| {
                h.leaf("strong", &[], &v.scenario);
                h.text(" · ");
                h.text(&v.target.model);
            });
        });
        h.leaf("h1", &[], &answer::sentence(v));
        if let Some(a) = answer::entries(v).first() {
            for line in a.lines.iter().skip(1) {
                h.leaf("p", &[("class", "moments")], line);
            }
        }
        h.within("dl", &[("class", "figures")], |h| {
            for (name, value, note) in key_figures(v) {
                h.within("div", &[], |h| {
                    h.leaf("dt", &[], &name);
                    h.within("dd", &[], |h| {
                        h.leaf("strong", &[], &value);
                        if !note.is_empty() {
                            h.text(" ");
                            h.leaf("span", &[], &note);
                        }
                    });
                });
            }
        });
    });
}

/// The numbers that a planner copies: the two levels, and what the highest clean one gives.
fn key_figures(v: &Verdict) -> Vec<(String, String, String)> {
    let unit = level_unit(v);
    let mut out = Vec::new();
    let known = |l: Option<f64>| l.map_or_else(|| "none".into(), number);
    out.push(("highest clean".into(), known(v.highest_clean_concurrency), unit.to_owned()));
    out.push(("lowest firing".into(), known(v.lowest_firing_concurrency), unit.to_owned()));
    // The last step at that level is the one that confirmed it.
    let clean =
        |s: &&StepVerdict| s.outcome == StepOutcome::Clean && Some(s.concurrency) == v.highest_clean_concurrency;
    if let Some(s) = v.steps.iter().rev().find(clean) {
        let at = format!("at {}", level(v, s.concurrency));
        let client = &s.client;
        for (name, value) in [
            ("output", client.output_tokens_per_s.map(|x| format!("{} tok/s", number(x)))),
            ("TTFT p99", client.ttft_s.p99.map(seconds)),
            ("gap p99", client.gap_s.p99.map(seconds)),
        ] {
            out.extend(value.map(|value| (name.to_owned(), value, at.clone())));
        }
    }
    out
}
