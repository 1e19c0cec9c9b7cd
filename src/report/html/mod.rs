//! `report.html`: one file that needs neither network nor script. The answer in a sentence,
//! why and what to do, what is doubtful, the plots, the steps, every alert of every step.

use std::io::{self, Write};

use super::answer::{self, Tone};
use super::plot::{self, Plot};
use crate::model::plot::PlotData;
use crate::model::verdict::Verdict;

mod checks;
mod gpus;
mod head;
mod markup;
mod run;
mod tables;
mod why;

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
        head::head(h, verdict);
        why::why(h, verdict);
        checks::gate(h, verdict);
        checks::comparison(h, verdict);
        checks::doubts(h, verdict);
        figures(h, &plots);
        tables::steps(h, verdict);
        gpus::gpus(h, verdict);
        tables::alerts(h, verdict);
        run::more(h, verdict);
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

fn figures(h: &mut Html, plots: &[Plot]) {
    for p in plots {
        h.within("figure", &[("id", p.id), ("class", "card")], |h| {
            h.leaf("h2", &[], &p.title);
            h.ours(&p.wide);
            h.ours(&p.narrow);
            h.leaf("figcaption", &[("id", &format!("{}-caption", p.id))], &p.caption);
        });
    }
}

/// A table that scrolls by itself where the page is narrower, by keyboard too.
fn scrollable(h: &mut Html, name: &str, inner: impl FnOnce(&mut Html)) {
    h.within("div", &[("class", "scroll"), ("tabindex", "0"), ("role", "region"), ("aria-label", name)], |h| {
        h.within("table", &[], inner);
    });
}
