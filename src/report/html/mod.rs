//! `report.html`: one file that needs neither network nor script. The answer in a sentence,
//! why and what to do, what is doubtful, the plots, the steps, every alert of every step.

use std::io::{self, Write};

use super::answer::{self, Tone};
use super::caveats;
use super::plot::{self, Plot};
use super::rows;
use super::text::{self, instant, level, level_unit, number, percent, seconds};
use crate::model::plot::PlotData;
use crate::model::verdict::{
    AlertState, CheckState, Confidence, Evidence, Explanation, StepOutcome, StepVerdict, Verdict,
};

mod gpus;
mod markup;

use gpus::gpus;
use markup::Html;
pub(super) use markup::escape;

/// Writes the page. Without `data` it has only those plots that the verdict itself can fill.
///
/// # Errors
/// If the writer fails.
pub fn write(verdict: &Verdict, data: Option<&PlotData>, out: &mut dyn Write) -> io::Result<()> {
    let plots = plot::all(verdict, data)?;
    let mut page = Html::default();
    page.ours("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.ours("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    // Nothing may be fetched and nothing may run, whatever a name in the page says.
    page.ours(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n",
    );
    page.ours("<meta name=\"color-scheme\" content=\"light dark\">\n");
    page.leaf("title", &[], &format!("plimsoll: {} — {}", verdict.scenario, answer::sentence(verdict)));
    page.ours("<style>\n");
    page.ours(include_str!("style.css"));
    page.ours("</style>\n</head>\n<body>\n");
    page.within("a", &[("class", "skip"), ("href", "#steps")], |h| h.text("Skip to the table of steps"));
    page.within("main", &[], |h| {
        head(h, verdict);
        why(h, verdict);
        gate(h, verdict);
        doubts(h, verdict);
        figures(h, &plots);
        steps(h, verdict);
        gpus(h, verdict);
        alerts(h, verdict);
        more(h, verdict);
    });
    page.ours("</body>\n</html>\n");
    out.write_all(page.into_string().as_bytes())
}

fn tone_class(tone: Tone) -> &'static str {
    match tone {
        Tone::Bad => "bad",
        Tone::Good => "good",
        Tone::Doubt => "doubt",
        Tone::Plain => "plain",
    }
}

/// The mark on a ship's hull: a ring with a line through it.
const MARK: &str = "<svg class=\"mark\" viewBox=\"0 0 48 48\" aria-hidden=\"true\"><circle cx=\"24\" cy=\"24\" r=\"13\" \
                    fill=\"none\" stroke=\"currentColor\" stroke-width=\"4\"/><path d=\"M2 24h44\" stroke=\"currentColor\" \
                    stroke-width=\"4\"/></svg>";

/// The answer in a sentence, and its numbers.
fn head(h: &mut Html, v: &Verdict) {
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

/// Why, what to do, and what it is not.
fn why(h: &mut Html, v: &Verdict) {
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

fn gate(h: &mut Html, v: &Verdict) {
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

fn doubts(h: &mut Html, v: &Verdict) {
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

fn figures(h: &mut Html, plots: &[Plot]) {
    for p in plots {
        h.within("figure", &[("id", p.id), ("class", "card")], |h| {
            h.leaf("h2", &[], &p.title);
            h.ours(&p.wide);
            h.ours(&p.narrow);
            h.leaf("figcaption", &[], &p.caption);
        });
    }
}

/// A table that scrolls by itself where the page is narrower, by keyboard too.
fn scrollable(h: &mut Html, name: &str, inner: impl FnOnce(&mut Html)) {
    h.within("div", &[("class", "scroll"), ("tabindex", "0"), ("role", "region"), ("aria-label", name)], |h| {
        h.within("table", &[], inner);
    });
}

fn outcome_class(o: StepOutcome) -> &'static str {
    match o {
        StepOutcome::Clean => "good",
        StepOutcome::Firing => "bad",
        StepOutcome::Inconclusive => "doubt",
    }
}

fn steps(h: &mut Html, v: &Verdict) {
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
fn alerts(h: &mut Html, v: &Verdict) {
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

/// What else the run tells: other alerts, production's view, the run itself.
fn more(h: &mut Html, v: &Verdict) {
    h.within("section", &[("class", "card"), ("aria-labelledby", "more")], |h| {
        h.leaf("h2", &[("id", "more")], "The run");
        h.within("dl", &[("class", "facts")], |h| {
            for e in answer::entries(v) {
                if matches!(e.label, "also fired" | "as deployed" | "estimate" | "run") {
                    h.leaf("dt", &[], e.label);
                    h.within("dd", &[], |h| {
                        for line in &e.lines {
                            h.leaf("p", &[], line);
                        }
                    });
                }
            }
            for (name, value) in facts(v) {
                h.leaf("dt", &[], name);
                h.leaf("dd", &[], &value);
            }
        });
        let tool = format!(
            "{} {}, PromQL as in Prometheus {}. All of this is in verdict.json.",
            v.tool.name, v.tool.version, v.tool.promql
        );
        h.leaf("p", &[("class", "muted")], &tool);
    });
}

fn facts(v: &Verdict) -> Vec<(&'static str, String)> {
    let t = &v.target;
    let mut out = vec![("targets", answer::targets(v))];
    let tokens = |s: &crate::model::verdict::Spread| text::spread(s);
    out.push((
        "workload",
        format!(
            "{}; prompt tokens {}, output tokens {}, median (max)",
            v.workload.kind,
            tokens(&v.workload.prompt_tokens),
            tokens(&v.workload.output_tokens)
        ),
    ));
    let mut pool = Vec::new();
    pool.extend(t.max_model_len.map(|n| format!("longest sequence {n} tokens")));
    pool.extend(t.kv_cache_tokens.map(|n| format!("KV pool {n} tokens")));
    pool.extend(t.kv_cache_blocks.zip(t.block_size).map(|(n, size)| format!("{n} blocks of {size}")));
    if !pool.is_empty() {
        out.push(("server", pool.join(", ")));
    }
    if let Some(argv) = &t.server_command {
        out.push(("command", argv.join(" ")));
    }
    let mut gpus: Vec<String> = Vec::new();
    for g in v.steps.iter().flat_map(|s| &s.gpu) {
        let name = format!("{} {}", g.device, g.name.as_deref().unwrap_or("unknown model"));
        if !gpus.contains(&name) {
            gpus.push(name);
        }
    }
    if !gpus.is_empty() {
        out.push(("GPU", gpus.join(", ")));
    }
    out.push(("seed, nonce", format!("{}, {}", v.seed, v.nonce)));
    out
}
