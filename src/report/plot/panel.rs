//! A panel: one pair of axes with what is drawn into it.

use plotters::chart::{ChartBuilder, ChartContext, LabelAreaPosition};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use super::ink;
use super::{Area, Refused, at, px};
use crate::model::plot::Trace;

type Coordinates = Cartesian2d<Axis, Axis>;

/// Room for the words of the y axis, pixels of the page.
pub(super) const LEFT: u32 = 52;
/// Air at the right.
pub(super) const RIGHT: u32 = 14;
/// Room for a panel's heading.
const HEAD: u32 = 24;
/// Room for the words of the x axis.
const FOOT: u32 = 22;

/// Size of text, pixels of the page.
const SIZE: u32 = 12;

/// A text style of the page.
pub(super) fn words(color: RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    sized(color, SIZE, h, v)
}

fn sized(color: RGBColor, size: u32, h: HPos, v: VPos) -> TextStyle<'static> {
    // The SVG backend divides by 1.24, to speak of the height of letters.
    ("sans-serif", f64::from(px(size)) * 1.24).into_font().color(&color).pos(Pos::new(h, v))
}

/// About how wide a text is, pixels of the picture.
pub(super) fn breadth(text: &str) -> i32 {
    (text.chars().count() as f64 * f64::from(px(SIZE)) * 0.6).round() as i32
}

/// One pair of axes.
pub(super) struct Panel<'a> {
    chart: ChartContext<'a, SVGBackend<'a>, Coordinates>,
    x: Axis,
    y: Axis,
}

/// A word of a panel's heading, in the colour of what it names.
pub(super) type Key<'k> = (&'k str, RGBColor);

impl<'a> Panel<'a> {
    /// An empty panel with its grid. The heading's words are its legend; `foot` tells whether
    /// the words of the x axis stand under it.
    pub(super) fn new(area: &Area<'a>, x: &Axis, y: &Axis, head: &[Key<'_>], foot: bool) -> Result<Panel<'a>, Refused> {
        let mut left = at(4);
        for (text, color) in head {
            area.draw(&Text::new(
                (*text).to_owned(),
                (left, at(HEAD) - at(8)),
                words(*color, HPos::Left, VPos::Bottom),
            ))?;
            left += breadth(text) + at(12);
        }
        let mut chart = ChartBuilder::on(area)
            .margin_top(px(HEAD))
            .margin_right(px(RIGHT))
            .margin_bottom(if foot { 0 } else { px(4) })
            .set_label_area_size(LabelAreaPosition::Left, px(LEFT))
            .set_label_area_size(LabelAreaPosition::Bottom, if foot { px(FOOT) } else { 0 })
            .build_cartesian_2d(x.clone(), y.clone())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(ink::GRID.stroke_width(1))
            .axis_style(ink::GRID.stroke_width(2))
            .x_labels(if foot { x.ticks.len() } else { 0 })
            .y_labels(y.ticks.len())
            .label_style(sized(ink::MUTED, SIZE, HPos::Left, VPos::Top))
            .draw()?;
        Ok(Panel { chart, x: x.clone(), y: y.clone() })
    }

    /// Pixels of the picture at which a value of the x axis lies.
    pub(super) fn column(&self, x: f64) -> i32 {
        self.chart.backend_coord(&(x, self.y.low())).0
    }

    /// A stretch of the x axis over the panel's whole height.
    pub(super) fn band(&mut self, from: f64, to: f64, color: impl Color) -> Result<(), Refused> {
        let corners = [(from, self.y.low()), (to, self.y.high())];
        self.chart.draw_series([Rectangle::new(corners, color.filled())])?;
        Ok(())
    }

    /// A line through the known points, broken at the others.
    pub(super) fn line(&mut self, points: &Trace, color: RGBColor, width: u32) -> Result<(), Refused> {
        for part in points.split(|(_, y)| y.is_none()) {
            let part: Vec<(f64, f64)> = part.iter().filter_map(|(x, y)| Some((*x, (*y)?))).collect();
            let part = self.thinned(&part);
            match part.as_slice() {
                [] => {}
                [one] => {
                    self.chart.draw_series([Circle::new(*one, px(1), color.filled())])?;
                }
                _ => {
                    self.chart.draw_series(LineSeries::new(part, color.stroke_width(width)))?;
                }
            }
        }
        Ok(())
    }

    /// The area between the line and the foot of the panel.
    pub(super) fn area(&mut self, points: &Trace, color: RGBColor, alpha: f64) -> Result<(), Refused> {
        let foot = self.y.low();
        for part in points.split(|(_, y)| y.is_none()) {
            let part: Vec<(f64, f64)> = part.iter().filter_map(|(x, y)| Some((*x, (*y)?))).collect();
            let mut part = self.thinned(&part);
            if let (Some(first), Some(last)) = (part.first().copied(), part.last().copied()) {
                part.push((last.0, foot));
                part.push((first.0, foot));
                self.chart.draw_series([Polygon::new(part, color.mix(alpha))])?;
            }
        }
        Ok(())
    }

    /// Of many points in one column of pixels, the first, the least, the largest and the last.
    fn thinned(&self, points: &[(f64, f64)]) -> Vec<(f64, f64)> {
        let column = |p: &(f64, f64)| self.chart.backend_coord(p).0;
        let mut out: Vec<(f64, f64)> = Vec::with_capacity(points.len().min(4_096));
        for same in points.chunk_by(|a, b| column(a) == column(b)) {
            if same.len() <= 4 {
                out.extend(same);
                continue;
            }
            let order = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
            let ends = [same.first(), same.iter().min_by(order), same.iter().max_by(order), same.last()];
            out.extend(ends.into_iter().flatten());
        }
        out
    }

    /// Dots of a radius in half pixels; of those that would cover each other one is drawn.
    pub(super) fn dots(&mut self, points: &[(f64, f64)], color: impl Color, radius: u32) -> Result<(), Refused> {
        let cell = i32::try_from(radius.max(1)).unwrap_or(1);
        let mut seen = std::collections::BTreeSet::new();
        for (x, y) in points {
            let place = (*x, *y);
            let (i, j) = self.chart.backend_coord(&place);
            if seen.insert((i / cell, j / cell)) {
                self.chart.draw_series([Circle::new(place, radius, color.filled())])?;
            }
        }
        Ok(())
    }

    /// A dot with a rim of paper, to stand on a line; hollow if `hollow`.
    pub(super) fn mark(&mut self, (x, y): (f64, f64), color: RGBColor, shape: Shape) -> Result<(), Refused> {
        let place = (x, y);
        match shape {
            Shape::Disc => {
                self.chart.draw_series([Circle::new(place, px(5), ink::PAPER.filled())])?;
                self.chart.draw_series([Circle::new(place, px(4), color.filled())])?;
            }
            Shape::Ring => {
                self.chart.draw_series([Circle::new(place, px(4), ink::PAPER.filled())])?;
                self.chart.draw_series([Circle::new(place, px(4), color.stroke_width(px(2)))])?;
            }
            Shape::Cross => {
                self.chart.draw_series([Circle::new(place, px(5), ink::PAPER.filled())])?;
                self.chart.draw_series([Cross::new(place, px(4), color.stroke_width(px(2)))])?;
            }
        }
        Ok(())
    }

    /// An upright line with bars at its ends: an interval.
    pub(super) fn whisker(&mut self, x: f64, low: f64, high: f64, color: RGBColor) -> Result<(), Refused> {
        let ends = vec![(x, low), (x, high)];
        self.chart.draw_series([PathElement::new(ends, color.mix(0.5).stroke_width(px(4)))])?;
        Ok(())
    }

    /// A dashed line across the panel: a limit, named at its left end.
    pub(super) fn limit(&mut self, value: f64, color: RGBColor, name: &str) -> Result<(), Refused> {
        if !(self.y.low()..=self.y.high()).contains(&value) {
            return Ok(());
        }
        let ends = vec![(self.x.low(), value), (self.x.high(), value)];
        let dashed = DashedLineSeries::new(ends, px(5), px(4), color.stroke_width(px(1) + 1));
        self.chart.draw_series(dashed)?;
        let (left, row) = self.chart.backend_coord(&(self.x.low(), value));
        let (_, top) = self.chart.backend_coord(&(self.x.low(), self.y.high()));
        // Over the line where there is room, else under it, for the heading is above.
        let (row, v) = if row - top < at(16) { (row + at(3), VPos::Top) } else { (row - at(2), VPos::Bottom) };
        self.text((left + at(6), row), name, words(color, HPos::Left, v))
    }

    /// An upright line at `x`, with words at its foot: a limit may run along the head, and the axis leaves air below the
    /// data. They stand to the right of the line if there is room.
    pub(super) fn upright(&mut self, x: f64, color: RGBColor, name: &str) -> Result<(), Refused> {
        let ends = vec![(x, self.y.low()), (x, self.y.high())];
        self.chart.draw_series([PathElement::new(ends, color.stroke_width(px(1) + 1))])?;
        let (column, foot) = self.chart.backend_coord(&(x, self.y.low()));
        let room = self.column(self.x.high()) - column - at(4);
        let (left, h) =
            if breadth(name) <= room { (column + at(4), HPos::Left) } else { (column - at(4), HPos::Right) };
        self.text((left, foot - at(3)), name, words(color, h, VPos::Bottom))
    }

    /// Words at a place of the picture.
    pub(super) fn text(&self, place: (i32, i32), text: &str, style: TextStyle<'static>) -> Result<(), Refused> {
        let area = self.chart.plotting_area().strip_coord_spec();
        let base = area.get_base_pixel();
        area.draw(&Text::new(text.to_owned(), (place.0 - base.0, place.1 - base.1), style))
    }
}

/// The shape of a mark; outcomes differ in shape, not in colour alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Filled: clean.
    Disc,
    /// Hollow: not known.
    Ring,
    /// A cross: firing.
    Cross,
}
