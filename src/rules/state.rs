//! The alert state machine, as Prometheus' `rules/alerting.go` has it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::sample::Labels;

/// A live alert: one label set of one rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Live {
    /// When it became pending, Unix ms.
    pub active_at_ms: i64,
    /// When it fired; `None` while it is pending.
    pub fired_at_ms: Option<i64>,
    /// Value at the latest evaluation at which it was present.
    pub value: f64,
    /// First evaluation at which it was absent while firing, if it is kept firing.
    gone_since_ms: Option<i64>,
}

/// What an evaluation changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// When, Unix ms.
    pub at_ms: i64,
    /// Which label set, without the metric name.
    pub labels: Labels,
    /// What it became.
    pub became: Became,
    /// When it had become pending, Unix ms.
    pub active_at_ms: i64,
    /// Its value.
    pub value: f64,
}

/// The states that an alert can change to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Became {
    /// The condition holds, but not yet for long enough.
    Pending,
    /// It fires.
    Firing,
    /// It was pending, and the condition went.
    Inactive,
    /// It was firing, and the condition went.
    Resolved,
}

/// One rule's alerts over time.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    live: BTreeMap<Labels, Live>,
}

impl Machine {
    /// Takes in the elements present at `at_ms`; evaluations must come in order of time.
    ///
    /// A pending alert fires once `at - activeAt >= hold`, the evaluation that made it pending
    /// included. One absent evaluation ends a pending alert; a firing one ends too unless
    /// `keep_firing` has not run out since the first absent evaluation.
    pub fn step(
        &mut self,
        at_ms: i64,
        present: &[(Labels, f64)],
        hold: Duration,
        keep_firing: Duration,
    ) -> Vec<Transition> {
        let (hold, keep) = (millis(hold), millis(keep_firing));
        let mut changes = Vec::new();
        for (labels, value) in present {
            let live = self.live.entry(labels.clone()).or_insert_with(|| {
                changes.push(transition(at_ms, labels, Became::Pending, at_ms, *value));
                Live { active_at_ms: at_ms, fired_at_ms: None, value: *value, gone_since_ms: None }
            });
            live.value = *value;
            live.gone_since_ms = None;
            if live.fired_at_ms.is_none() && at_ms - live.active_at_ms >= hold {
                live.fired_at_ms = Some(at_ms);
                changes.push(transition(at_ms, labels, Became::Firing, live.active_at_ms, *value));
            }
        }
        self.live.retain(|labels, live| {
            if present.iter().any(|(l, _)| l == labels) {
                return true;
            }
            if live.fired_at_ms.is_some() && keep > 0 {
                let gone = *live.gone_since_ms.get_or_insert(at_ms);
                if at_ms - gone < keep {
                    return true;
                }
            }
            let became = if live.fired_at_ms.is_some() { Became::Resolved } else { Became::Inactive };
            changes.push(transition(at_ms, labels, became, live.active_at_ms, live.value));
            false
        });
        changes
    }

    /// The alerts that are pending or firing now, by label set.
    pub fn live(&self) -> &BTreeMap<Labels, Live> {
        &self.live
    }
}

fn transition(at_ms: i64, labels: &Labels, became: Became, active_at_ms: i64, value: f64) -> Transition {
    Transition { at_ms, labels: labels.clone(), became, active_at_ms, value }
}

fn millis(d: Duration) -> i64 {
    i64::try_from(d.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `x` is present, `_` absent, an evaluation every 15 s; returns (seconds, state) of each change.
    fn run(pattern: &str, hold_s: u64, keep_s: u64) -> Vec<(i64, Became)> {
        let mut m = Machine::default();
        let labels = Labels::new([("a", "b")]);
        let mut out = Vec::new();
        for (i, c) in pattern.chars().enumerate() {
            let at = i as i64 * 15_000;
            let present = if c == 'x' { vec![(labels.clone(), 1.0)] } else { vec![] };
            let hold = Duration::from_secs(hold_s);
            for t in m.step(at, &present, hold, Duration::from_secs(keep_s)) {
                out.push((t.at_ms / 1_000, t.became));
            }
        }
        out
    }

    #[test]
    fn transitions() {
        use Became::*;
        type Case<'a> = (&'a str, u64, u64, &'a [(i64, Became)]);
        let cases: &[Case<'_>] = &[
            ("xxxx", 60, 0, &[(0, Pending)]),
            ("xxxxx", 60, 0, &[(0, Pending), (60, Firing)]),
            ("xxx_xxxxx", 60, 0, &[(0, Pending), (45, Inactive), (60, Pending), (120, Firing)]),
            ("_x_", 0, 0, &[(15, Pending), (15, Firing), (30, Resolved)]),
            ("x____", 0, 30, &[(0, Pending), (0, Firing), (45, Resolved)]),
            ("x_x__", 0, 30, &[(0, Pending), (0, Firing)]),
            // 25 s does not divide the 15 s grid: rounded up.
            ("xxx", 25, 0, &[(0, Pending), (30, Firing)]),
        ];
        for (pattern, hold, keep, want) in cases {
            assert_eq!(run(pattern, *hold, *keep), *want, "{pattern} for {hold} keep {keep}");
        }
    }

    #[test]
    fn label_sets_are_alerts_of_their_own() {
        let mut m = Machine::default();
        let (a, b) = (Labels::new([("e", "0")]), Labels::new([("e", "1")]));
        m.step(0, &[(a.clone(), 1.0)], Duration::from_secs(10), Duration::ZERO);
        let t = m.step(10_000, &[(a.clone(), 2.0), (b.clone(), 1.0)], Duration::from_secs(10), Duration::ZERO);
        assert_eq!(t.iter().map(|t| t.became).collect::<Vec<_>>(), [Became::Firing, Became::Pending]);
        assert_eq!(m.live()[&a].value, 2.0);
        assert_eq!(m.live()[&b].active_at_ms, 10_000);
    }
}
