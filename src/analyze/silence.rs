//! Whether the server has fallen silent: requests are out, and nothing comes back for any of them.
//!
//! A server that hangs produces no observation, so that rules on its histograms have nothing to
//! judge. Its silence is told beside them, lest "no data" be all that is said of it.

use std::time::Duration;

use crate::model::request::{FailureClass, Outcome, RequestTimeline};
use crate::model::time::Offset;
use crate::model::units::human_seconds;

/// From when on a silence counts as a server that hangs, at production's scale: as long as a rule waits
/// that looks whether the engine makes steps.
const HANGS_AFTER: Duration = Duration::from_secs(60);
/// The same at the least, whatever the scale: prompts take their time.
const HANGS_AFTER_AT_LEAST: Duration = Duration::from_secs(15);

/// Requests that nothing comes back for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Requests without an end.
    pub hanging: usize,
    /// Of these, those without a first token.
    pub without_first_token: usize,
    /// For how long nothing has come for any request of the run.
    pub lasts: Duration,
}

impl Silence {
    /// The silence at `at`; `None` if no request is out then. What came later is not looked at.
    pub fn at<'a>(requests: impl Iterator<Item = &'a RequestTimeline> + Clone, at: Offset) -> Option<Silence> {
        let sent = requests.filter(|r| r.sent <= at);
        let out = |r: &RequestTimeline| r.finished > at || matches!(r.outcome, Outcome::InFlight | Outcome::Cut);
        let stalled =
            |r: &RequestTimeline| matches!(r.outcome, Outcome::Failed { class: FailureClass::StallTimeout, .. });
        let token = |r: &RequestTimeline| r.chunks.iter().rev().map(|c| c.at).find(|t| *t <= at);
        // An answer of any kind is a sign of life; that we gave up waiting is none.
        let sign = |r: &RequestTimeline| {
            let ended = (!out(r) && !stalled(r)).then_some(r.finished);
            token(r).max(ended)
        };
        let last = sent.clone().filter_map(sign).max();
        let since_last = |r: &RequestTimeline| last.is_none_or(|l| r.finished > l);
        let begun = sent.clone().filter(|r| out(r) || (stalled(r) && since_last(r))).map(|r| r.sent).min()?;
        let hanging = sent.clone().filter(|r| out(r)).count();
        let without_first_token = sent.filter(|r| out(r) && token(r).is_none()).count();
        let lasts = at.since(last.map_or(begun, |l| l.max(begun)));
        (hanging > 0).then_some(Silence { hanging, without_first_token, lasts })
    }

    /// Whether it lasts so long that the server counts as hanging. `time_scale` is that of the rules.
    pub fn is_a_hang(&self, time_scale: f64) -> bool {
        self.lasts >= HANGS_AFTER.mul_f64(time_scale).max(HANGS_AFTER_AT_LEAST)
    }

    /// In words: `8 requests hang, 5 of them without a first token: nothing has come for 91 s`.
    pub fn says(&self) -> String {
        let hang =
            if self.hanging == 1 { "1 request hangs".to_owned() } else { format!("{} requests hang", self.hanging) };
        let first = match self.without_first_token {
            0 => String::new(),
            n if n == self.hanging => " without a first token".into(),
            n => format!(", {n} of them without a first token"),
        };
        format!("{hang}{first}: nothing has come from the server for {}", human_seconds(self.lasts.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::request::TokenChunk;

    /// A request sent and finished at these seconds, with tokens at those.
    fn request(sent: u64, finished: u64, tokens: &[u64], outcome: Outcome) -> RequestTimeline {
        let at = |s: u64| Offset::from_millis(s * 1_000);
        RequestTimeline {
            sent: at(sent),
            chunks: tokens.iter().map(|t| TokenChunk { at: at(*t), running_tokens: None }).collect(),
            finished: at(finished),
            outcome,
            ..RequestTimeline::blank(0)
        }
    }

    fn stall() -> Outcome {
        Outcome::Failed { class: FailureClass::StallTimeout, status: None, detail: String::new() }
    }

    #[test]
    fn silence_lasts_from_the_last_sign_of_life() {
        let done = || request(0, 10, &[5, 10], Outcome::Completed);
        let refused = || Outcome::Failed { class: FailureClass::Unavailable, status: Some(503), detail: String::new() };
        let out = |sent, tokens: &[u64]| request(sent, 100, tokens, Outcome::InFlight);
        // Requests -> (hanging, of them without a first token, seconds).
        type Case = (&'static str, Vec<RequestTimeline>, Option<(usize, usize, u64)>);
        let cases: Vec<Case> = vec![
            ("nothing is out", vec![done()], None),
            ("two hang since the last answer", vec![done(), out(10, &[]), out(8, &[])], Some((2, 2, 90))),
            ("one of them got a token", vec![done(), out(10, &[]), out(8, &[30])], Some((2, 1, 70))),
            ("a pause without requests is none", vec![done(), out(95, &[])], Some((1, 1, 5))),
            (
                "giving up is no sign of life",
                vec![done(), request(10, 70, &[], stall()), out(70, &[])],
                Some((1, 1, 90)),
            ),
            ("a refusal is one", vec![request(10, 70, &[], refused()), out(60, &[])], Some((1, 1, 30))),
        ];
        for (what, requests, expected) in cases {
            let got = Silence::at(requests.iter(), Offset::from_millis(100_000));
            let expected = expected.map(|(hanging, without_first_token, s)| Silence {
                hanging,
                without_first_token,
                lasts: Duration::from_secs(s),
            });
            assert_eq!(got, expected, "{what}");
        }
        // What happens later is not known yet.
        let later = [request(0, 50, &[40], Outcome::Completed)];
        let silence = Silence::at(later.iter(), Offset::from_millis(30_000)).unwrap();
        assert_eq!((silence.hanging, silence.lasts), (1, Duration::from_secs(30)));
    }
}
