//! The main plot as a picture, for a slide or a chat: the same drawing as the page's, with the answer above it.
//!
//! The words are drawn with a font that the program brings along, so that a machine without fonts draws them too, and
//! every machine draws the same.

use std::io;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};

use super::answer;
use super::html::escape;
use super::plot;
use super::text::{level_unit, wrap};
use crate::model::verdict::Verdict;

/// Room above the plot, pixels of the page: a line of what was run, two of the answer.
const HEAD: u32 = 112;
/// Air around it.
const EDGE: u32 = 16;
/// Letters of the answer that fit into a line.
const LETTERS: usize = 88;

/// What the page's style sheet says of letters, for a page that is always light.
const STYLE: &str = "text{font-family:sans-serif;paint-order:stroke;stroke:#fff;stroke-width:7px;stroke-linejoin:round}\
                     text[fill='#D55E00']{fill:#b34700}text[fill='#009E73']{fill:#00734f}\
                     .answer{stroke:#1b1f24;stroke-width:1.2px;paint-order:normal}";

/// The picture in PNG, twice as many pixels as the page's plot has; `None` if no step measured anything.
///
/// # Errors
/// If the drawing library refuses, which is a bug of ours.
pub fn picture(verdict: &Verdict) -> io::Result<Option<Vec<u8>>> {
    let Some(plot) = plot::main(verdict)? else { return Ok(None) };
    let (width, height) = (plot::WIDE + 2 * EDGE, plot::LATENCY_HEIGHT + HEAD + EDGE);
    let scale = plot::SCALE;
    let mut lines = String::new();
    let mut text = |y: u32, size: u32, class: &str, fill: &str, words: &str| {
        lines += &format!(
            "<text class=\"{class}\" x=\"{}\" y=\"{}\" font-size=\"{}\" fill=\"{fill}\">{}</text>\n",
            EDGE * scale,
            y * scale,
            size * scale,
            escape(words)
        );
    };
    let what = format!("{} · {} · latency against {}", verdict.scenario, verdict.target.model, level_unit(verdict));
    text(28, 14, "what", "#59636E", &wrap(&what, 2 * LETTERS).swap_remove(0));
    for (line, y) in wrap(&answer::sentence(verdict), LETTERS).iter().take(2).zip([60, 90]) {
        text(y, 24, "answer", "#1B1F24", line);
    }
    let svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\">\n\
         <style>{STYLE}</style>\n<rect width=\"{w}\" height=\"{h}\" fill=\"#FFFFFF\"/>\n{lines}\
         <svg x=\"{x}\" y=\"{y}\" width=\"{pw}\" height=\"{ph}\" {plot}</svg>\n",
        w = width * scale,
        h = height * scale,
        x = EDGE * scale,
        y = HEAD * scale,
        pw = plot::WIDE * scale,
        ph = plot::LATENCY_HEIGHT * scale,
        plot = plot.wide.trim_start_matches("<svg"),
    );
    let mut options = Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
    let family = fonts.faces().next().and_then(|face| face.families.first()).map(|(name, _)| name.clone());
    let family = family.ok_or_else(|| io::Error::other("the font that comes along cannot be read"))?;
    fonts.set_sans_serif_family(family.clone());
    options.font_family = family;
    let tree = Tree::from_str(&svg, &options).map_err(io::Error::other)?;
    let mut pixels =
        Pixmap::new(width * scale, height * scale).ok_or_else(|| io::Error::other("a picture without pixels"))?;
    resvg::render(&tree, Transform::identity(), &mut pixels.as_mut());
    pixels.encode_png().map(Some).map_err(io::Error::other)
}
