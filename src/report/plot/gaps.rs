//! How the gaps between chunks are distributed, a row for each step.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::axis::Axis;
use super::panel::{LEFT, Panel, RIGHT, words};
use super::{Area, NARROW, Plot, Refused, at, figure, ink, px};
use crate::model::plot::{GapHistogram, PlotData};
use crate::model::verdict::{StepOutcome, Verdict};
use crate::report::text::{level_unit, number, seconds};

/// Height of a step's row, pixels of the page.
const ROW: u32 = 40;
/// Room for heading and axis.
const AROUND: u32 = 24 + 22;

/// The figure; `None` where there are no gaps.
pub(super) fn plot(v: &Verdict, data: &PlotData) -> Result<Option<Plot>, Refused> {
    let rows: Vec<(&GapHistogram, f64, StepOutcome)> = data
        .gap_histograms
        .iter()
        .filter(|h| h.counts.iter().any(|n| *n > 0))
        .filter_map(|h| v.steps.iter().find(|s| s.step == h.step).map(|s| (h, s.concurrency, s.outcome)))
        .collect();
    let edges =
        || rows.iter().flat_map(|(h, _, _)| h.edges_s.iter().zip(&h.counts).filter(|(_, n)| **n > 0).map(|(e, _)| *e));
    let near = Some(v.slo.itl_p99_s).filter(|l| *l <= edges().fold(0.0, f64::max) * 10.0);
    let write: fn(f64) -> String = seconds;
    let axis = |n| Axis::log(edges().chain(near), n, write);
    if axis(8).is_none() {
        return Ok(None);
    }
    let caption = format!(
        "One row a step, with its load. Height is the share of the step's gaps of that length, on a square-root scale so that the rare long \
         ones are seen. The dashed line is the limit of {} that 99 of 100 must keep.",
        seconds(v.slo.itl_p99_s)
    );
    let height = |_| AROUND + ROW * rows.len() as u32;
    let draw = |area: &Area<'_>, width: u32| {
        let Some(x) = axis(if width == NARROW { 4 } else { 8 }) else { return Ok(()) };
        let n = rows.len() as f64;
        let y = Axis::between(0.0, n, 1, |_| String::new()).with_ticks(Vec::new());
        let rows_are = format!("step: {}", level_unit(v));
        let head = [(rows_are.as_str(), ink::MUTED), ("clean", ink::BLUE), ("firing", ink::VERMILION)];
        let p = Panel::new(area, &x, &y, &head, true)?;
        let largest = rows.iter().flat_map(|(h, _, _)| shares(h)).fold(0.0, f64::max);
        for (i, (h, level, outcome)) in rows.iter().enumerate() {
            let foot = at(24) + at(ROW) * (i as i32 + 1);
            let base = |share: f64| foot - ((share / largest).sqrt() * f64::from(px(ROW - 6))).round() as i32;
            let name = format!("{}: {}", h.step, number(*level));
            area.draw(&Text::new(
                name,
                (at(LEFT) - at(8), foot - at(12)),
                words(ink::MUTED, HPos::Right, VPos::Center),
            ))?;
            let color = match outcome {
                StepOutcome::Clean => ink::BLUE,
                StepOutcome::Firing => ink::VERMILION,
                StepOutcome::Inconclusive => ink::MUTED,
            };
            // A staircase: each bin from its lower to its upper edge.
            let mut outline: Vec<(i32, i32)> = Vec::new();
            let mut low = lower_edge(&h.edges_s);
            for (edge, share) in h.edges_s.iter().zip(shares(h)) {
                if (x.low()..=x.high()).contains(edge) || share > 0.0 {
                    outline.push((p.column(low), base(share)));
                    outline.push((p.column(*edge), base(share)));
                }
                low = *edge;
            }
            if let (Some(first), Some(last)) = (outline.first().copied(), outline.last().copied()) {
                let mut filled = outline.clone();
                filled.extend([(last.0, foot), (first.0, foot)]);
                area.draw(&Polygon::new(filled, color.mix(0.3)))?;
                area.draw(&PathElement::new(outline, color.stroke_width(px(1))))?;
            }
            area.draw(&PathElement::new([(at(LEFT), foot), (at(width - RIGHT), foot)], ink::GRID.stroke_width(1)))?;
        }
        if let Some(limit) = near {
            let column = p.column(limit);
            let mut top = at(24);
            while top < at(24 + ROW * rows.len() as u32) {
                area.draw(&PathElement::new([(column, top), (column, top + at(5))], ink::TEXT.stroke_width(3)))?;
                top += at(9);
            }
            area.draw(&Text::new("limit", (column - at(4), at(26)), words(ink::TEXT, HPos::Right, VPos::Top)))?;
        }
        Ok(())
    };
    figure("gaps", "Gaps between chunks", caption, height, draw).map(Some)
}

fn shares(h: &GapHistogram) -> impl Iterator<Item = f64> + '_ {
    let all: u64 = h.counts.iter().sum();
    h.counts.iter().map(move |n| *n as f64 / all.max(1) as f64)
}

/// Where the first bin begins: as far below its upper edge as the next bin's edge is above it.
fn lower_edge(edges: &[f64]) -> f64 {
    match edges {
        [first, second, ..] if *second > 0.0 => first * first / second,
        [first, ..] => first / 2.0,
        [] => 0.0,
    }
}
