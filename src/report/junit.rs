//! The verdict as JUnit XML, which every CI system shows.
//!
//! What fails a job is what fails here: the checks of the gate, and an answer that is
//! inconclusive. A step that fires is what a ladder is climbed for; it passes, and says so.

use std::io::{self, Write};
use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::answer;
use super::gpu;
use super::rows;
use super::text::{level, plain};
use crate::model::verdict::{CheckState, RunOutcome, StepOutcome, StepVerdict, Verdict};

/// Writes the XML with a newline at its end. It carries no wall-clock stamp, so that the same verdict gives the same bytes.
///
/// # Errors
/// If the writer fails.
pub fn write(verdict: &Verdict, out: &mut dyn Write) -> io::Result<()> {
    let text = report(verdict).to_string().map_err(io::Error::other)?;
    out.write_all(text.trim_end().as_bytes())?;
    out.write_all(b"\n")
}

fn report(v: &Verdict) -> Report {
    let scenario = plain(&v.scenario);
    let mut report = Report::new("plimsoll");
    let mut suite = TestSuite::new(format!("{scenario}.answer"));
    let mut answer =
        case(v.outcome != RunOutcome::Inconclusive, NonSuccessKind::Error, "inconclusive", answer::sentence(v));
    answer.name = "the run has an answer".into();
    answer.set_classname(format!("{scenario}.answer"));
    answer.set_time(seconds(v.duration_s));
    answer.set_system_out(lines(v));
    suite.add_test_case(answer);
    if let Some(limit) = &v.hardware {
        suite.add_property(("limited_by", "hardware"));
        suite.add_property(("limited_by_pair", plain(&limit.pair).as_str()));
    }
    report.add_test_suite(suite);
    if let Some(gate) = &v.gate {
        let mut suite = TestSuite::new(format!("{scenario}.gate"));
        for c in &gate.checks {
            let kind = answer::check_word(c.state);
            let mut check = case(c.state == CheckState::Passed, NonSuccessKind::Failure, kind, plain(&c.says));
            check.name = plain(&c.check).into();
            check.set_classname(format!("{scenario}.gate"));
            suite.add_test_case(check);
        }
        report.add_test_suite(suite);
    }
    let mut suite = TestSuite::new(format!("{scenario}.steps"));
    for s in &v.steps {
        let mut status = TestCaseStatus::success();
        if s.outcome == StepOutcome::Inconclusive {
            status = TestCaseStatus::skipped();
            status.set_message(rows::outcome(s));
        }
        let name = format!("step {}: {} ({})", s.step, level(v, s.concurrency), rows::phase(s.phase));
        let mut step = TestCase::new(name, status);
        step.set_classname(format!("{scenario}.steps"));
        step.set_time(seconds(s.measured_s[1] - s.measured_s[0]));
        step.set_system_out(row(v, s));
        suite.add_test_case(step);
    }
    report.add_test_suite(suite);
    report
}

fn case(passed: bool, kind: NonSuccessKind, word: &str, says: String) -> TestCase {
    let status = if passed {
        TestCaseStatus::success()
    } else {
        let mut status = TestCaseStatus::non_success(kind);
        status.set_type(word).set_message(says);
        status
    };
    TestCase::new("", status)
}

fn seconds(s: f64) -> Duration {
    Duration::try_from_secs_f64(s).unwrap_or_default()
}

/// The answer as lines.
fn lines(v: &Verdict) -> String {
    let entries = answer::entries(v);
    entries.iter().map(|e| format!("{}: {}\n", e.label, e.lines.join("\n  "))).collect()
}

/// A step as lines: its outcome, and each column by name.
fn row(v: &Verdict, s: &StepVerdict) -> String {
    let i = v.steps.iter().position(|t| std::ptr::eq(s, t)).unwrap_or_default();
    let cells: String =
        rows::columns(v).iter().map(|c| format!("{}: {}\n", [c.group, c.name].join(" ").trim(), c.cells[i])).collect();
    let gpus: String = gpu::rows(v)
        .iter()
        .filter(|r| r.step == s.step)
        .map(|r| format!("GPU {}: {}\n", r.device, gpu::sentence(r)))
        .collect();
    format!("{}\n{cells}{gpus}", rows::outcome(s))
}
