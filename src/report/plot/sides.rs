//! The first token as the client and as the server timed it: where they part, something
//! between them takes the time.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::axis::Axis;
use super::panel::{LEFT, Panel, RIGHT, Shape, words};
use super::{Area, NARROW, Plot, Refused, at, figure, ink, px};
use crate::model::verdict::{StepVerdict, Verdict};
use crate::report::text::{level_unit, number, seconds};

/// Height of a step's row, pixels of the page.
const ROW: u32 = 30;
/// Room for heading and axis.
const AROUND: u32 = 24 + 22;

/// The four numbers of a row, s.
struct Row<'v> {
    step: &'v StepVerdict,
    /// Client's and server's mean.
    mean: [Option<f64>; 2],
    /// Client's and server's 99th percentile.
    p99: [Option<f64>; 2],
}

/// The figure; `None` where the server told nothing.
pub(super) fn plot(v: &Verdict) -> Result<Option<Plot>, Refused> {
    let rows: Vec<Row<'_>> = v
        .steps
        .iter()
        .filter_map(|step| {
            let server = step.server.as_ref()?;
            let client = &step.client.ttft_s;
            (server.ttft_p99_s.is_some() || server.ttft_mean_s.is_some()).then_some(Row {
                step,
                mean: [client.mean, server.ttft_mean_s],
                p99: [client.p99, server.ttft_p99_s],
            })
        })
        .collect();
    let values = rows.iter().flat_map(|r| r.mean.into_iter().chain(r.p99)).flatten();
    let write: fn(f64) -> String = seconds;
    let Some(x) = Axis::log(values, 6, write) else { return Ok(None) };
    let caption = "Time to first token by step, client (vermilion) against server (blue), logarithmic: a disc is the 99th \
                   percentile, a ring the mean. The client counts requests by when they were sent, the server by when their \
                   first token came; the server's percentile is read from the buckets of its histogram.";
    let height = |_| AROUND + ROW * rows.len() as u32;
    let draw = |area: &Area<'_>, width: u32| {
        let rows_are = format!("step: {}", level_unit(v));
        let head = [
            (rows_are.as_str(), ink::MUTED),
            ("client", ink::VERMILION),
            ("server", ink::BLUE),
            ("p99 ●, mean ○", ink::MUTED),
        ];
        let n = rows.len() as f64;
        let y = Axis::between(0.0, n, 1, |_| String::new()).with_ticks(Vec::new());
        let x = if width == NARROW {
            Axis::log([x.low() * 1.25, x.high() / 1.25], 4, write).unwrap_or_else(|| x.clone())
        } else {
            x.clone()
        };
        let mut p = Panel::new(area, &x, &y, &head, true)?;
        for (i, row) in rows.iter().enumerate() {
            let middle = n - 0.5 - i as f64;
            if i % 2 == 0 {
                let top = at(24) + at(ROW) * i as i32;
                let corners = [(at(LEFT), top), (at(width - RIGHT), top + at(ROW))];
                area.draw(&Rectangle::new(corners, ink::BAND.filled()))?;
            }
            let place = (at(LEFT) - at(8), at(24) + at(ROW) * i as i32 + at(ROW / 2));
            let name = format!("{}: {}", row.step.step, number(row.step.concurrency));
            area.draw(&Text::new(name, place, words(ink::MUTED, HPos::Right, VPos::Center)))?;
            for (pair, shape) in [(row.mean, Shape::Ring), (row.p99, Shape::Disc)] {
                if let [Some(client), Some(server)] = pair {
                    p.line(&vec![(client, Some(middle)), (server, Some(middle))], ink::MUTED, px(1) + 1)?;
                }
                for (value, color) in pair.into_iter().zip([ink::VERMILION, ink::BLUE]) {
                    if let Some(value) = value {
                        p.mark((value, middle), color, shape)?;
                    }
                }
            }
        }
        Ok(())
    };
    figure("sides", "First token: client against server", caption.into(), height, draw).map(Some)
}
