//! Latency against load, with the limits and the mark up to which the server may be loaded.

use plotters::prelude::*;

use super::axis::Axis;
use super::panel::{LEFT, Panel, RIGHT, Shape};
use super::{Area, LATENCY_HEIGHT, NARROW, Plot, Refused, figure, ink, px};
use crate::model::plot::Trace;
use crate::model::verdict::{Quantiles, StepOutcome, StepVerdict, Verdict};
use crate::report::text::{level_unit, number, seconds};

/// One of the two panels.
struct Side {
    name: &'static str,
    of: fn(&StepVerdict) -> &Quantiles,
    limit_s: f64,
    limit_name: &'static str,
    color: RGBColor,
}

/// The figure; `None` if no step measured anything.
pub(super) fn plot(v: &Verdict) -> Result<Option<Plot>, Refused> {
    let sides = [
        Side {
            name: "time to first token",
            of: |s| &s.client.ttft_s,
            limit_s: v.slo.ttft_p99_s,
            limit_name: "TTFT",
            color: ink::VERMILION,
        },
        Side {
            name: "gap between chunks",
            of: |s| &s.client.gap_s,
            limit_s: v.slo.itl_p99_s,
            limit_name: "ITL",
            color: ink::BLUE,
        },
    ];
    let sides: Vec<Side> =
        sides.into_iter().filter(|side| v.steps.iter().any(|s| (side.of)(s).p50.is_some())).collect();
    if sides.is_empty() {
        return Ok(None);
    }
    let caption = format!(
        "99th percentile (strong line) and median (thin line) at each load, both axes logarithmic. A disc is a clean step, \
         a cross one that fired, a ring an inconclusive one; an upright bar is the 95 % confidence interval of the 99th \
         percentile. The dashed lines are the limits: {} to the first token and {} between tokens.{}",
        seconds(v.slo.ttft_p99_s),
        seconds(v.slo.itl_p99_s),
        match (v.highest_clean_concurrency, v.lowest_firing_concurrency) {
            (Some(c), Some(f)) => format!(
                " The green line is the mark: {} {} are clean, at {} a rule fires.",
                number(c),
                level_unit(v),
                number(f)
            ),
            (Some(c), None) => format!(" The green line is the highest level that was run clean: {}.", number(c)),
            (None, Some(f)) => format!(" A rule fires from {} {} on.", number(f), level_unit(v)),
            (None, None) => String::new(),
        }
    );
    let height = |width| if width == NARROW { 250 * sides.len() as u32 } else { LATENCY_HEIGHT };
    let draw = |area: &Area<'_>, width: u32| {
        let parts =
            if width == NARROW { area.split_evenly((sides.len(), 1)) } else { area.split_evenly((1, sides.len())) };
        let room = if width == NARROW { width } else { width / sides.len() as u32 } - LEFT - RIGHT;
        sides.iter().zip(&parts).try_for_each(|(side, part)| panel(v, side, part, room))
    };
    figure("latency", "Latency against load", caption, height, draw).map(Some)
}

fn panel(v: &Verdict, side: &Side, area: &Area<'_>, room: u32) -> Result<(), Refused> {
    let mut values: Vec<f64> = v.steps.iter().flat_map(|s| [(side.of)(s).p50, (side.of)(s).p99]).flatten().collect();
    // A limit that is far from everything would press the data into a corner; it is drawn if it is near.
    let highest = values.iter().copied().fold(0.0, f64::max);
    if side.limit_s <= highest * 30.0 {
        values.push(side.limit_s);
    }
    let seconds: fn(f64) -> String = seconds;
    let levels: Vec<f64> = v.steps.iter().map(|s| s.concurrency).collect();
    let (Some(x), Some(y)) = (Axis::log(levels.iter().copied(), 99, number), Axis::log(values, 6, seconds)) else {
        return Ok(());
    };
    let ticks = spread_out(&x, levels, room);
    let x = x.with_ticks(ticks);
    let mut p = Panel::new(area, &x, &y, &[(side.name, side.color), ("strong: p99, thin: p50", ink::MUTED)], true)?;
    // The range in which a rule fires, from the lowest level at which one did.
    if let Some(firing) = v.lowest_firing_concurrency {
        p.band(firing, x.high(), ink::VERMILION.mix(0.08))?;
    }
    if let Some(clean) = v.highest_clean_concurrency {
        p.band(x.low(), clean, ink::GREEN.mix(0.07))?;
        p.upright(clean, ink::GREEN, &format!("{} clean", number(clean)))?;
    }
    p.limit(side.limit_s, side.color, &format!("{} limit {}", side.limit_name, seconds(side.limit_s)))?;
    p.line(&by_level(v, |s| (side.of)(s).p50), side.color, px(1))?;
    p.line(&by_level(v, |s| (side.of)(s).p99), side.color, px(2) + 1)?;
    for s in &v.steps {
        let q = (side.of)(s);
        if let Some([Some(low), Some(high)]) = q.p99_ci95 {
            p.whisker(s.concurrency, low, high, side.color)?;
        }
        if let Some(p50) = q.p50 {
            p.dots(&[(s.concurrency, p50)], side.color, px(2))?;
        }
        if let Some(p99) = q.p99 {
            p.mark((s.concurrency, p99), side.color, shape(s.outcome))?;
        }
    }
    let (right, foot) = (x.high(), area.dim_in_pixel().1);
    let place = (p.column(right), area.get_base_pixel().1 + i32::try_from(foot).unwrap_or(0) - 4);
    p.text(
        place,
        level_unit(v),
        super::panel::words(
            ink::MUTED,
            plotters::style::text_anchor::HPos::Right,
            plotters::style::text_anchor::VPos::Bottom,
        ),
    )
}

/// The shape of a step's mark.
pub(super) fn shape(outcome: StepOutcome) -> Shape {
    match outcome {
        StepOutcome::Clean => Shape::Disc,
        StepOutcome::Firing => Shape::Cross,
        StepOutcome::Inconclusive => Shape::Ring,
    }
}

/// One point a level, in their order: the mean over the steps that ran it.
fn by_level(v: &Verdict, of: impl Fn(&StepVerdict) -> Option<f64>) -> Trace {
    let mut points: Vec<(f64, f64)> = v.steps.iter().filter_map(|s| Some((s.concurrency, of(s)?))).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
        .chunk_by(|a, b| a.0 == b.0)
        .map(|same| (same[0].0, Some(same.iter().map(|p| p.1).sum::<f64>() / same.len() as f64)))
        .collect()
}

/// Levels that get a tick: as many as can be read, the lowest and the highest always.
fn spread_out(x: &Axis, mut levels: Vec<f64>, room: u32) -> Vec<f64> {
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    let column = |l: f64| x.share(l) * f64::from(room);
    let mut out: Vec<f64> = Vec::new();
    for l in levels.iter().rev() {
        if out.last().is_none_or(|last| column(*last) - column(*l) >= 26.0) {
            out.push(*l);
        }
    }
    out.reverse();
    out
}
