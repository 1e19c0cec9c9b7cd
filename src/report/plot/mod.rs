//! The plots of the page as SVG, each drawn twice: for a desk and for a phone, since text that
//! shrinks with its picture cannot be read.
//!
//! Colours are written as fixed values of [`ink`]; the page's style sheet maps each to a
//! variable, so that one drawing serves light, dark and paper. Coordinates are whole, in half
//! pixels of the page, which keeps the bytes the same and the files small.

use std::io;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::model::plot::PlotData;
use crate::model::verdict::Verdict;

mod axis;
mod gaps;
pub mod ink;
mod latency;
mod panel;
mod sides;
mod timeline;

/// One figure of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plot {
    /// A word for links to it.
    pub id: &'static str,
    /// What it shows.
    pub title: String,
    /// How to read it, and what is to be seen, for those who look and for those who cannot.
    pub caption: String,
    /// The SVG element for a desk.
    pub wide: String,
    /// The SVG element for a phone.
    pub narrow: String,
}

/// Every figure for which there is something to draw, in the order of the page.
///
/// # Errors
/// If the drawing library refuses, which is a bug of ours.
pub fn all(verdict: &Verdict, data: Option<&PlotData>) -> io::Result<Vec<Plot>> {
    let nothing = PlotData::default();
    let data = data.unwrap_or(&nothing);
    let drawn =
        [latency::plot(verdict), timeline::plot(verdict, data), sides::plot(verdict), gaps::plot(verdict, data)];
    let drawn: Result<Vec<Option<Plot>>, _> = drawn.into_iter().collect();
    Ok(drawn.map_err(io::Error::other)?.into_iter().flatten().collect())
}

/// The main figure alone: latency against load. `None` if no step measured anything.
///
/// # Errors
/// If the drawing library refuses, which is a bug of ours.
pub fn main(verdict: &Verdict) -> io::Result<Option<Plot>> {
    latency::plot(verdict).map_err(io::Error::other)
}

/// A drawing that the library refused.
type Refused = DrawingAreaErrorKind<io::Error>;
/// A part of the picture.
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Pixels of the picture in one of the page.
pub const SCALE: u32 = 2;
/// Width of a figure on a desk, pixels of the page.
pub const WIDE: u32 = 960;
/// Height of the main figure on a desk, pixels of the page.
pub const LATENCY_HEIGHT: u32 = 320;
/// Width of a figure on a phone, pixels of the page.
const NARROW: u32 = 360;

/// Pixels of the page as pixels of the picture.
fn px(page: u32) -> u32 {
    page * SCALE
}

/// The same for places, which are signed.
fn at(page: u32) -> i32 {
    i32::try_from(px(page)).unwrap_or(i32::MAX)
}

/// Draws one SVG element of the page's `width` and `height`; a screen reader says the title, and then the caption of
/// the figure `id`.
fn svg(
    class: &str,
    (width, height): (u32, u32),
    (id, title): (&str, &str),
    draw: impl FnOnce(&Area<'_>) -> Result<(), Refused>,
) -> Result<String, Refused> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (px(width), px(height))).into_drawing_area();
        draw(&root)?;
        root.present()?;
    }
    // The library's own opening tag fixes the size; ours leaves it to the page.
    let body = text.split_once('>').map_or("", |(_, body)| body).trim();
    Ok(format!(
        "<svg class=\"{class}\" viewBox=\"0 0 {} {}\" role=\"img\" \
         aria-label=\"{}\" aria-describedby=\"{id}-caption\">\n{body}\n",
        px(width),
        px(height),
        super::html::escape(title)
    ))
}

/// Draws a figure in both widths; the height may depend on the width.
fn figure(
    id: &'static str,
    title: &str,
    caption: String,
    height: impl Fn(u32) -> u32,
    draw: impl Fn(&Area<'_>, u32) -> Result<(), Refused>,
) -> Result<Plot, Refused> {
    let wide = svg("wide", (WIDE, height(WIDE)), (id, title), |area| draw(area, WIDE))?;
    let narrow = svg("narrow", (NARROW, height(NARROW)), (id, title), |area| draw(area, NARROW))?;
    Ok(Plot { id, title: title.into(), caption, wide, narrow })
}
