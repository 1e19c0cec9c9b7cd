//! The run over time: the load that was applied, what waited and ran, the latencies, the GPU,
//! and below them when each alert was pending and firing. All share one time axis.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::axis::Axis;
use super::panel::{Key, LEFT, Panel, RIGHT, breadth, words};
use super::{Area, NARROW, Plot, Refused, at, figure, ink, px};
use crate::model::plot::{PlotData, Trace};
use crate::model::verdict::{AlertState, StepOutcome, Verdict};
use crate::report::text::{level_unit, number, plain, seconds};

/// Heights, pixels of the page.
const STRIP: u32 = 40;
const PANEL: u32 = 112;
const ALERT: u32 = 32;
const FOOT: u32 = 24;

/// What is drawn into a panel.
type Drawing<'d> = dyn Fn(&mut Panel<'_>) -> Result<(), Refused> + 'd;

/// One panel of the figure: its legend, its axis, and how its data is drawn.
struct Part<'d> {
    head: Vec<Key<'d>>,
    y: Axis,
    draw: Box<Drawing<'d>>,
}

/// The figure; `None` if no step was finished.
pub(super) fn plot(v: &Verdict, data: &PlotData) -> Result<Option<Plot>, Refused> {
    if v.steps.is_empty() {
        return Ok(None);
    }
    let parts = parts(v, data);
    let alerts = alerts(v);
    let caption = "The strip at the top shows the steps and their load: green is clean, vermilion with a cross fired, grey with a \
                   ring is inconclusive; the paler beginning of each is its warm-up, which is not judged. At the bottom, each alert \
                   that was pending (orange, thin) or firing (vermilion, thick) in a step.";
    let height = |_| STRIP + PANEL * parts.len() as u32 + ALERT * alerts.len() as u32 + FOOT;
    let draw = |area: &Area<'_>, width: u32| {
        let end = v.steps.iter().map(|s| s.measured_s[1]).fold(v.duration_s, f64::max);
        let minutes: fn(f64) -> String = clock;
        let x = Axis::between(0.0, end, if width == NARROW { 4 } else { 10 }, minutes)
            .with_ticks(time_ticks(end, if width == NARROW { 5 } else { 12 }));
        let (top, mut rest) = area.split_vertically(px(STRIP));
        strip(v, &top, &x, width)?;
        for part in &parts {
            let (here, below) = rest.split_vertically(px(PANEL));
            rest = below;
            let mut panel = Panel::new(&here, &x, &part.y, &part.head, false)?;
            background(v, &mut panel)?;
            (part.draw)(&mut panel)?;
        }
        for alert in &alerts {
            let (here, below) = rest.split_vertically(px(ALERT));
            rest = below;
            row(v, alert, &here, &x, width)?;
        }
        feet(&rest, &x, width)
    };
    figure("timeline", "The run over time", caption.into(), height, draw).map(Some)
}

/// Column of the picture at which an instant lies, as the panels have it.
fn column(x: &Axis, width: u32, s: f64) -> i32 {
    at(LEFT) + (x.share(s) * f64::from(px(width - LEFT - RIGHT))).round() as i32
}

/// The steps with their load.
fn strip(v: &Verdict, area: &Area<'_>, x: &Axis, width: u32) -> Result<(), Refused> {
    area.draw(&Text::new(level_unit(v).to_owned(), (at(4), at(14)), words(ink::TEXT, HPos::Left, VPos::Bottom)))?;
    for s in &v.steps {
        let color = match s.outcome {
            StepOutcome::Clean => ink::CLEAN,
            StepOutcome::Firing => ink::FIRES,
            StepOutcome::Inconclusive => ink::MUTED,
        };
        let (start, begin, end) =
            (column(x, width, s.warmup_s[0]), column(x, width, s.measured_s[0]), column(x, width, s.measured_s[1]));
        area.draw(&Rectangle::new([(start, at(18)), (begin, at(38))], color.mix(0.25).filled()))?;
        area.draw(&Rectangle::new([(begin, at(18)), (end.max(begin + 2) - 2, at(38))], color.filled()))?;
        let text = match s.outcome {
            StepOutcome::Clean => number(s.concurrency),
            StepOutcome::Firing => format!("{} ×", number(s.concurrency)),
            StepOutcome::Inconclusive => format!("{} ?", number(s.concurrency)),
        };
        // Where the words do not fit, the number alone may; else the colour has to do.
        let text = [text, number(s.concurrency)].into_iter().find(|t| breadth(t) + 6 <= end - begin);
        if let Some(text) = text {
            let middle = ((begin + end) / 2, at(28));
            area.draw(&Text::new(text, middle, words(ink::PAPER, HPos::Center, VPos::Center)))?;
        }
    }
    Ok(())
}

/// Every other step shaded, so that the panels can be read downwards.
fn background(v: &Verdict, panel: &mut Panel<'_>) -> Result<(), Refused> {
    for s in v.steps.iter().filter(|s| s.step % 2 == 0) {
        panel.band(s.warmup_s[0], s.measured_s[1], ink::BAND)?;
    }
    Ok(())
}

/// The panels for which there is data.
fn parts<'d>(v: &'d Verdict, data: &'d PlotData) -> Vec<Part<'d>> {
    let mut out: Vec<Part<'d>> = Vec::new();
    let mut queue: Vec<Key<'d>> = vec![("requests", ink::TEXT)];
    queue.extend(
        [
            (!data.running.is_empty()).then_some(("running", ink::BLUE)),
            (!data.waiting.is_empty()).then_some(("waiting", ink::VERMILION)),
        ]
        .into_iter()
        .flatten(),
    );
    if queue.len() > 1 {
        let y = Axis::from_zero(highest(&data.waiting).max(highest(&data.running)).max(1.0), 3, number);
        out.push(Part {
            head: queue,
            y,
            draw: Box::new(|p| {
                p.area(&data.waiting, ink::VERMILION, 0.18)?;
                p.line(&data.running, ink::BLUE, px(1) + 1)?;
                p.line(&data.waiting, ink::VERMILION, px(1) + 1)
            }),
        });
    }
    if !data.kv_cache_usage.is_empty() {
        let percent: fn(f64) -> String = |x| format!("{:.0} %", x * 100.0);
        out.push(Part {
            head: vec![("KV cache in use", ink::PURPLE)],
            y: Axis::from_zero(1.0, 2, percent),
            draw: Box::new(|p| {
                p.area(&data.kv_cache_usage, ink::PURPLE, 0.22)?;
                p.line(&data.kv_cache_usage, ink::PURPLE, px(1) + 1)
            }),
        });
    }
    if highest(&data.preemptions) > 0.0 {
        out.push(Part {
            head: vec![("preemptions so far", ink::TEXT)],
            y: Axis::from_zero(highest(&data.preemptions), 2, number),
            draw: Box::new(|p| p.line(&data.preemptions, ink::TEXT, px(1) + 1)),
        });
    }
    let dots: Vec<(f64, f64)> =
        data.ttft.iter().filter(|d| !d.failed).filter_map(|d| Some((d.at_s, d.ttft_s?))).collect();
    if let Some(y) = Axis::log(dots.iter().map(|d| d.1).chain([v.slo.ttft_p99_s]), 4, seconds) {
        let failed: Vec<f64> = data.ttft.iter().filter(|d| d.failed).map(|d| d.at_s).collect();
        let mut head = vec![("time to first token", ink::VERMILION)];
        if !failed.is_empty() {
            head.push(("× failed", ink::TEXT));
        }
        let top = y.high();
        if !dots.is_empty() {
            out.push(Part {
                head,
                y,
                draw: Box::new(move |p| {
                    p.dots(&dots, ink::VERMILION.mix(0.75), 3)?;
                    for at_s in &failed {
                        p.mark((*at_s, top), ink::TEXT, super::panel::Shape::Cross)?;
                    }
                    p.limit(v.slo.ttft_p99_s, ink::VERMILION, "limit")
                }),
            });
        }
    }
    let p99: Trace = data.gaps.iter().map(|g| (g.at_s, Some(g.p99_s))).collect();
    let p50: Trace = data.gaps.iter().map(|g| (g.at_s, Some(g.p50_s))).collect();
    let near = Some(v.slo.itl_p99_s).filter(|l| *l <= highest(&p99) * 30.0);
    if !data.gaps.is_empty()
        && let Some(y) = Axis::log(p99.iter().chain(&p50).filter_map(|p| p.1).chain(near), 4, seconds)
    {
        out.push(Part {
            head: vec![("gap between chunks", ink::TEXT), ("p99", ink::BLUE), ("p50", ink::SKY)],
            y,
            draw: Box::new(move |p| {
                p.line(&p50, ink::SKY, px(1) + 1)?;
                p.line(&p99, ink::BLUE, px(1) + 1)?;
                p.limit(v.slo.itl_p99_s, ink::BLUE, "limit")
            }),
        });
    }
    gpus(data, &mut out);
    out
}

/// Clock, temperature and power, all GPUs in one panel each; stretches of lowered clocks are shaded.
fn gpus<'d>(data: &'d PlotData, out: &mut Vec<Part<'d>>) {
    type Reading = fn(&crate::model::plot::GpuTraces) -> &Trace;
    let readings: [(&'static str, RGBColor, Reading); 3] = [
        ("SM clock, MHz", ink::GREEN, |g| &g.sm_clock_mhz),
        ("GPU temperature, °C", ink::ORANGE, |g| &g.temperature_c),
        ("GPU power, W", ink::SKY, |g| &g.power_w),
    ];
    for (i, (name, color, of)) in readings.into_iter().enumerate() {
        let known: Vec<f64> = data.gpus.iter().flat_map(of).filter_map(|p| p.1).filter(|x| x.is_finite()).collect();
        let (Some(low), Some(high)) = (known.iter().copied().reduce(f64::min), known.iter().copied().reduce(f64::max))
        else {
            continue;
        };
        let air = ((high - low) * 0.1).max(high.abs() * 0.02).max(0.5);
        let mut head = vec![(name, color)];
        if i == 0 && data.gpus.iter().any(|g| !g.throttled_s.is_empty()) {
            head.push(("throttled", ink::VERMILION));
        }
        out.push(Part {
            head,
            y: Axis::between(low - air, high + air, 3, number),
            draw: Box::new(move |p| {
                for [from, to] in data.gpus.iter().flat_map(|g| &g.throttled_s) {
                    p.band(*from, *to, ink::VERMILION.mix(0.12))?;
                }
                data.gpus.iter().try_for_each(|g| p.line(of(g), color, px(1) + 1))
            }),
        });
    }
}

fn highest(t: &Trace) -> f64 {
    t.iter().filter_map(|p| p.1).filter(|x| x.is_finite()).fold(0.0, f64::max)
}

/// Alerts that were ever pending or firing, in the order of the rules.
fn alerts(v: &Verdict) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for a in v.steps.iter().flat_map(|s| &s.alerts) {
        if matches!(a.state, AlertState::Pending | AlertState::Firing) && !out.contains(&a.alert) {
            out.push(a.alert.clone());
        }
    }
    out
}

/// One alert's pending and firing stretches; in a step they last to the end of what was judged.
fn row(v: &Verdict, alert: &str, area: &Area<'_>, x: &Axis, width: u32) -> Result<(), Refused> {
    area.draw(&Text::new(plain(alert), (at(LEFT), at(14)), words(ink::TEXT, HPos::Left, VPos::Bottom)))?;
    let ends = [(at(LEFT), at(23)), (at(width - RIGHT), at(23))];
    area.draw(&PathElement::new(ends, ink::GRID.stroke_width(2)))?;
    for s in &v.steps {
        for a in s.alerts.iter().filter(|a| a.alert == alert) {
            let end = s.measured_s[1];
            if let Some(pending) = a.pending_at_s {
                let to = a.fired_at_s.unwrap_or(end);
                let corners = [(column(x, width, pending), at(21)), (column(x, width, to), at(25))];
                area.draw(&Rectangle::new(corners, ink::ORANGE.filled()))?;
            }
            if let Some(fired) = a.fired_at_s {
                let left = column(x, width, fired);
                // An alert that fired at the very end must be seen too.
                let corners = [(left, at(18)), (column(x, width, end).max(left + at(2)), at(28))];
                area.draw(&Rectangle::new(corners, ink::VERMILION.filled()))?;
            }
        }
    }
    Ok(())
}

/// The words of the time axis.
fn feet(area: &Area<'_>, x: &Axis, width: u32) -> Result<(), Refused> {
    let ends = [(at(LEFT), 2), (at(width - RIGHT), 2)];
    area.draw(&PathElement::new(ends, ink::GRID.stroke_width(2)))?;
    for tick in &x.ticks {
        let left = column(x, width, *tick);
        area.draw(&PathElement::new([(left, 2), (left, at(4))], ink::GRID.stroke_width(2)))?;
        let h = if width < NARROW + 1 && left > at(width) - at(40) { HPos::Right } else { HPos::Center };
        area.draw(&Text::new(x.words(*tick), (left, at(8)), words(ink::MUTED, h, VPos::Top)))?;
    }
    Ok(())
}

/// Instants at a round number of seconds or minutes.
fn time_ticks(end: f64, most: usize) -> Vec<f64> {
    let steps = [
        1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0,
        43_200.0,
    ];
    let step = steps.into_iter().find(|s| end / s <= most as f64).unwrap_or(86_400.0);
    (0..).map(|i| f64::from(i) * step).take_while(|t| *t <= end).take(1_000).collect()
}

/// Time since the start of the run: `0`, `30 s`, `2:30`, `1:02:00`.
fn clock(s: f64) -> String {
    let s = s.round() as u64;
    let (hours, minutes, seconds) = (s / 3_600, s / 60 % 60, s % 60);
    match (hours, minutes) {
        (0, 0) if seconds == 0 => "0".into(),
        (0, 0) => format!("{seconds} s"),
        (0, _) => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_ticked_at_round_minutes() {
        assert_eq!(time_ticks(1291.0, 12), (0..11).map(|i| f64::from(i) * 120.0).collect::<Vec<_>>());
        assert_eq!([0.0, 30.0, 150.0, 3720.0].map(clock), ["0", "30 s", "2:30", "1:02:00"]);
    }
}
