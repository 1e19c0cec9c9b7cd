//! Weighs the pairs: by how much of the alert's time each held.

use crate::model::sample::Labels;
use crate::model::step::StepSpan;
use crate::model::verdict::Confidence;
use crate::promql::{Expr, parse};
use crate::rules::{Alert, Held, Judge, Lens};

use super::LEAST_SHARE;
use super::numbers::Numbers;

/// Shares closer than this are a tie, which precedence and the order of the rules decide.
const TIE: f64 = 0.15;

/// A pair that held less than this is no runner-up, unless the winner is easily taken for it.
const NEAR: f64 = 0.1;

/// While requests wait.
const QUEUE: &str = "plimsoll:waiting > 0";

/// A pair and how much it held.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// The pair rule.
    pub pair: &'a Alert,
    /// How much of the window it held.
    pub held: Held,
}

/// The pairs that could explain an alert, weighed.
#[derive(Clone, Debug)]
pub struct Ranking<'a> {
    /// The answer; `None` if no pair held for long enough.
    pub winner: Option<Candidate<'a>>,
    /// The next best, or the one that the winner is most easily taken for.
    pub runner_up: Option<Candidate<'a>>,
    /// All others, best first.
    pub others: Vec<Candidate<'a>>,
}

impl Ranking<'_> {
    /// High if the winner held nearly always and nothing else did; low if another came close.
    pub fn confidence(&self) -> Confidence {
        let Some(winner) = &self.winner else { return Confidence::Low };
        let share = winner.held.share();
        let next = self.others.iter().chain(&self.runner_up).map(|c| c.held.share()).fold(0.0, f64::max);
        if winner.held.of < 5 {
            Confidence::Low
        } else if share >= 0.75 && share - next >= 0.4 {
            Confidence::High
        } else if share >= 0.6 || share - next >= 0.25 {
            Confidence::Medium
        } else {
            Confidence::Low
        }
    }
}

/// Weighs every pair that says it can explain `alert`; all that explain anything if none names it.
pub(super) fn rank<'a>(
    judge: &Judge<'a>,
    lens: &Lens<'_>,
    span: &StepSpan,
    numbers: &Numbers,
    alert: &str,
    window: (f64, f64),
    labels: &Labels,
) -> Ranking<'a> {
    let rules = judge.rules();
    let named = rules.pairs().any(|p| p.can_explain(alert));
    let can = |p: &Alert| if named { p.can_explain(alert) } else { p.explains.as_ref().is_some_and(|e| !e.is_empty()) };
    // What was never read (no GPU, another engine) was not ruled out either.
    let needed = |p: &Alert| p.annotations.get("plimsoll_needs").is_none_or(|name| judge.has_series(name));
    let read = |p: &Alert| judge.reads_any(p, span) && needed(p);
    let firing = rules.find(alert).map(|a| &a.expr);
    let weigh = |when: Option<&Expr>| {
        let candidates = rules.pairs().filter(|p| can(p) && read(p)).map(|pair| {
            let held = if pair.annotations.get("plimsoll_view").is_some_and(|v| v == "run") {
                judge.held_over_run(&pair.expr, firing, window, labels)
            } else {
                lens.held_while(&pair.expr, when, window, labels)
            };
            Candidate { pair, held }
        });
        order(candidates.collect())
    };
    let ranking = weigh(firing);
    // A few bursts make a P99. Where first tokens spend most of their time in the queue, what holds while there is one
    // is what counts.
    let queued = numbers.value("queue_mean") > numbers.value("ttft_mean").map(|t| 0.5 * t);
    match parse(QUEUE).ok().filter(|_| ranking.winner.is_none() && queued) {
        Some(queue) => Some(weigh(Some(&queue))).filter(|r| r.winner.is_some()).unwrap_or(ranking),
        None => ranking,
    }
}

/// Picks winner and runner-up.
pub(super) fn order(mut candidates: Vec<Candidate<'_>>) -> Ranking<'_> {
    let best = candidates.iter().map(|c| c.held.share()).fold(0.0, f64::max);
    let winner = (best >= LEAST_SHARE)
        .then(|| {
            // Of those that tie, the first by precedence; `min_by_key` keeps the order of the rules.
            let tied = candidates.iter().enumerate().filter(|(_, c)| c.held.share() > best - TIE);
            tied.min_by_key(|(_, c)| precedence(c.pair)).map(|(i, _)| i)
        })
        .flatten()
        .map(|i| candidates.remove(i));
    candidates.sort_by(|a, b| b.held.share().total_cmp(&a.held.share()));
    let rival = winner.as_ref().and_then(|w| w.pair.annotations.get("plimsoll_rival"));
    let strong = candidates.first().is_some_and(|c| c.held.share() >= LEAST_SHARE);
    let next = match rival.and_then(|name| candidates.iter().position(|c| c.pair.name == *name)) {
        Some(i) if !strong => Some(i),
        // One that hardly ever held was never near.
        _ => candidates.first().filter(|c| c.held.share() >= NEAR).map(|_| 0),
    };
    let runner_up = next.map(|i| candidates.remove(i));
    Ranking { winner, runner_up, others: candidates }
}

/// Lower goes first; 5 unless the rule says otherwise.
fn precedence(pair: &Alert) -> u32 {
    pair.annotations.get("plimsoll_precedence").and_then(|t| t.parse().ok()).unwrap_or(5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::recording::RuleFile;
    use crate::rules::{Limits, RuleSet};

    fn set() -> RuleSet {
        let mut text = String::from("groups:\n  - name: g\n    rules:\n");
        for (name, extra) in [("A", ""), ("B", "plimsoll_rival: D"), ("C", "plimsoll_precedence: '1'"), ("D", "")] {
            text += &format!(
                "      - {{alert: {name}, expr: x > 0, labels: {{plimsoll: explanation}}, annotations: {{explains: X, {extra}}}}}\n"
            );
        }
        RuleSet::load(&[RuleFile { name: "x.yml".into(), text }], &Limits::default(), 1.0).unwrap()
    }

    fn ranked(shares: [usize; 4]) -> (Option<String>, Option<String>, Confidence) {
        let set = set();
        let candidates: Vec<Candidate<'_>> = set
            .pairs()
            .zip(shares)
            .map(|(pair, held)| Candidate { pair, held: Held { held, of: 100, since_s: None } })
            .collect();
        let r = order(candidates);
        let name = |c: &Option<Candidate<'_>>| c.as_ref().map(|c| c.pair.name.clone());
        (name(&r.winner), name(&r.runner_up), r.confidence())
    }

    #[test]
    fn the_pair_that_held_longest_wins() {
        let s = |t: &str| Some(t.to_owned());
        let cases = [
            ([90, 20, 0, 0], s("A"), s("B"), Confidence::High),
            // A tie: the earlier rule.
            ([90, 95, 0, 0], s("A"), s("B"), Confidence::Medium),
            // Nothing near.
            ([90, 5, 0, 0], s("A"), None, Confidence::High),
            // A tie: precedence.
            ([90, 0, 85, 0], s("C"), s("A"), Confidence::Medium),
            // The one that it is taken for, if nothing else is strong.
            ([30, 90, 0, 10], s("B"), s("D"), Confidence::High),
            ([60, 90, 0, 10], s("B"), s("A"), Confidence::Medium),
            ([40, 30, 0, 0], None, s("A"), Confidence::Low),
        ];
        for (shares, winner, runner_up, confidence) in cases {
            assert_eq!(ranked(shares), (winner, runner_up, confidence), "{shares:?}");
        }
    }
}
