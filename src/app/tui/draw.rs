//! Draws the board. Everything is said in words and numbers; colour repeats it.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Paragraph};

use crate::model::step::Phase;
use crate::model::units::{human_seconds, prometheus_duration};
use crate::report::text::{self, plain};

use super::board::{Alert, Board, Client, Gpu, Pace, RungState, Track};

// Of the sixteen colours that every terminal has, so that its own theme decides.
const GOOD: Style = Style::new().fg(Color::Green);
const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const DOUBT: Style = Style::new().fg(Color::Yellow);
const TRACK: Style = Style::new().fg(Color::Cyan);
const QUIET: Style = Style::new().add_modifier(Modifier::DIM);
const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);

/// Columns of the words before a number.
const LABEL: usize = 9;
/// Columns of a number.
const NUMBER: usize = 8;
/// Smaller than this there is no room for frames, nor for two panels side by side.
const FRAMED: (u16, u16) = (64, 18);
/// Alerts that are shown at most.
const ALERTS: usize = 8;
/// GPUs that are shown at most.
const GPUS: usize = 8;

/// Draws everything; what does not fit is left out from below.
pub fn draw(frame: &mut Frame<'_>, board: &Board) {
    let area = frame.area();
    if area.width < FRAMED.0 || area.height < FRAMED.1 { small(frame, board) } else { framed(frame, board) }
}

/// One thing below the other, the most important first.
fn small(frame: &mut Frame<'_>, board: &Board) {
    let [body, foot] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
    let width = usize::from(body.width);
    let mut lines = head(board, width);
    // Seven numbers take seven lines; alerts that are not quiet need their own.
    let alerts = board.alerts.len().min(3) + 1;
    let room = usize::from(body.height).saturating_sub(lines.len() + alerts);
    let mut numbers = Vec::new();
    if let Some(client) = &board.client {
        numbers.push(track("TTFT p99", &client.ttft_s.p99, Shown::latency(&client.ttft_s), width, 1));
        numbers.push(track("gap p99", &client.gap_s.p99, Shown::latency(&client.gap_s), width, 1));
    }
    numbers.push(track("waiting", &board.waiting, Shown::count(&board.waiting), width, 1));
    numbers.push(track("KV cache", &board.kv_usage, Shown::share(&board.kv_usage), width, 1));
    numbers.push(track("running", &board.running, Shown::count(&board.running), width, 1));
    if let Some(client) = &board.client {
        numbers.push(vec![Line::from(counts(client, width))]);
    }
    numbers.extend(board.gpus.iter().map(|g| vec![gpu_line(g)]));
    lines.extend(numbers.into_iter().flatten().take(room));
    lines.extend(alert_lines(board, alerts - 1, width));
    frame.render_widget(Paragraph::new(lines), body);
    frame.render_widget(Paragraph::new(how_to_end(board, width)), foot);
}

fn framed(frame: &mut Frame<'_>, board: &Board) {
    let area = frame.area();
    let head = head(board, usize::from(area.width));
    // The more room there is, the higher the lines of what was.
    let high = match area.height {
        0..34 => 1,
        34..44 => 2,
        _ => 3,
    };
    let gpus = board.gpus.len().min(GPUS);
    let because = if board.because.is_empty() { 0 } else { board.because.len().min(4) + 2 };
    let tracks = if board.client.is_some() { 4 * high } else { 3 * high };
    let rows = |n: usize| Constraint::Length(u16::try_from(n).unwrap_or(u16::MAX));
    let [top, numbers, gpu, alerts, why, remarks, foot] = Layout::vertical([
        rows(head.len()),
        rows(tracks + 2),
        rows(if gpus == 0 { 0 } else { gpus + 2 }),
        rows(board.alerts.len().clamp(1, ALERTS) + 3),
        rows(because),
        Constraint::Min(0),
        rows(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(head), top);
    let inner = |area: Rect| usize::from(area.width).saturating_sub(2);
    match &board.client {
        Some(client) => {
            let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).areas(numbers);
            let block = block("client").title_bottom(Line::from(spaced(counts(client, inner(left).saturating_sub(2)))));
            let pace = |word: [&str; 2], pace: &Pace| {
                let mut lines = track(word[0], &pace.p50, Shown::time(&pace.p50), inner(left), high);
                lines.extend(track(word[1], &pace.p99, Shown::latency(pace), inner(left), high));
                lines
            };
            let mut lines = pace(["TTFT p50", "TTFT p99"], &client.ttft_s);
            lines.extend(pace(["gap p50", "gap p99"], &client.gap_s));
            frame.render_widget(Paragraph::new(lines).block(block), left);
            panel(frame, right, "server", server_lines(board, inner(right), high));
        }
        None => panel(frame, numbers, "server", server_lines(board, inner(numbers), high)),
    }
    if gpus > 0 {
        panel(frame, gpu, "GPU", board.gpus.iter().take(GPUS).map(gpu_line).collect());
    }
    panel(frame, alerts, "alerts", alert_lines(board, ALERTS, inner(alerts)));
    let fits = |text: &String, area: Rect| Line::from(cut(&plain(text), inner(area)));
    if because > 0 {
        panel(frame, why, "because", board.because.iter().map(|l| fits(l, why)).collect());
    }
    if remarks.height >= 3 {
        let room = usize::from(remarks.height) - 2;
        let skip = board.remarks.len().saturating_sub(room);
        panel(frame, remarks, "so far", board.remarks.iter().skip(skip).map(|l| fits(l, remarks)).collect());
    }
    frame.render_widget(Paragraph::new(how_to_end(board, usize::from(foot.width))), foot);
}

fn block(title: &str) -> Block<'_> {
    Block::bordered().border_type(BorderType::Rounded).border_style(QUIET).title(format!(" {title} "))
}

fn panel(frame: &mut Frame<'_>, area: Rect, title: &str, lines: Vec<Line<'_>>) {
    frame.render_widget(Paragraph::new(lines).block(block(title)), area);
}

fn how_to_end(board: &Board, width: usize) -> Line<'static> {
    let says = match (board.ending, board.client.is_some()) {
        (true, _) => "ending: the verdict comes; Ctrl-C again aborts",
        (false, true) => "Ctrl-C ends the run with its verdict; twice aborts",
        (false, false) => "Ctrl-C ends",
    };
    Line::styled(cut(says, width), QUIET)
}

/// What is run, where on the ladder we are, and for how much longer.
fn head(board: &Board, width: usize) -> Vec<Line<'static>> {
    let name = "plimsoll ";
    let title = cut(&plain(&board.title), width.saturating_sub(name.len()));
    let mut out = vec![Line::from(vec![Span::styled(name, STRONG), Span::raw(title)])];
    if !board.rungs.is_empty() {
        out.push(ladder(board, width));
    }
    if board.doing.is_empty() {
        return out;
    }
    let done = if board.takes.is_zero() {
        0.0
    } else {
        1.0 - (board.left.as_secs_f64() / board.takes.as_secs_f64()).clamp(0.0, 1.0)
    };
    let bar = match width {
        0..60 => 10,
        60..100 => 16,
        _ => 20,
    };
    let full = (done * bar as f64).round() as usize;
    let mut spans = vec![
        Span::styled(format!("{:<LABEL$}", board.doing), STRONG),
        Span::raw("━".repeat(full)),
        Span::styled("─".repeat(bar - full), QUIET),
        Span::raw(format!(" {} left", whole(board.left))),
    ];
    if !board.rest.is_empty() {
        let run =
            if width < 60 { format!("  {}", plain(&board.rest)) } else { format!("  run: {}", plain(&board.rest)) };
        spans.push(Span::styled(run, QUIET));
    }
    if let Some(why) = &board.prolonged {
        spans.push(Span::styled(format!("  {}", plain(why)), DOUBT));
    }
    out.push(Line::from(spans));
    if let Some(says) = &board.silence {
        out.push(Line::styled(cut(&plain(says), width), BAD));
    }
    out
}

/// `streams  1+ 2+ 4! [3] …`: as many of the last rungs as fit, and what is planned after them.
fn ladder(board: &Board, width: usize) -> Line<'static> {
    let mut marks: Vec<(String, Style, bool)> = Vec::new();
    let mut phase = Phase::Climb;
    for rung in &board.rungs {
        if rung.phase != phase {
            phase = rung.phase;
            let word = match phase {
                Phase::Climb => "climb",
                Phase::Narrow => "narrow",
                Phase::Confirm => "confirm",
            };
            marks.push((word.into(), QUIET, false));
        }
        let level = rung.level;
        let (text, style) = match rung.state {
            RungState::Planned => (format!("{level}"), QUIET),
            RungState::Running => (format!("[{level}]"), STRONG),
            RungState::Clean => (format!("{level}+"), GOOD),
            RungState::Firing => (format!("{level}!"), BAD),
            RungState::Inconclusive => (format!("{level}?"), DOUBT),
        };
        marks.push((text, style, rung.state == RungState::Running));
    }
    let label = format!("{:<LABEL$}", board.unit);
    let room = width.saturating_sub(label.len() + 4);
    let mut from = 0;
    // The rung that runs stays in sight; what lies furthest back goes first.
    let length = |m: &[(String, Style, bool)]| m.iter().map(|(t, ..)| t.chars().count() + 1).sum::<usize>();
    let last = marks.iter().position(|(.., running)| *running).map_or(marks.len(), |at| at + 1);
    while from + 1 < last && length(&marks[from..last]) > room {
        from += 1;
    }
    let mut to = last;
    while to < marks.len() && length(&marks[from..=to]) <= room {
        to += 1;
    }
    let mut spans = vec![Span::styled(label, STRONG)];
    if from > 0 {
        spans.push(Span::styled("… ", QUIET));
    }
    for (text, style, _) in &marks[from..to] {
        spans.push(Span::styled(text.clone(), *style));
        spans.push(Span::raw(" "));
    }
    if to < marks.len() {
        spans.push(Span::styled("…", QUIET));
    }
    Line::from(spans)
}

/// A number as it is shown beside the line of how it went.
struct Shown {
    number: String,
    style: Style,
    /// What is as high as the line can be; `None` for the largest value shown.
    most: Option<f64>,
}

impl Shown {
    fn time(track: &Track) -> Shown {
        Shown { number: track.now().map_or_else(|| "-".into(), human_seconds), style: STRONG, most: None }
    }

    /// A 99th percentile, which has a target.
    fn latency(pace: &Pace) -> Shown {
        Shown { style: if pace.missed() { BAD } else { STRONG }, ..Shown::time(&pace.p99) }
    }

    fn count(track: &Track) -> Shown {
        Shown { number: track.now().map_or_else(|| "-".into(), |v| format!("{v:.0}")), style: STRONG, most: None }
    }

    fn share(track: &Track) -> Shown {
        let number = track.now().map_or_else(|| "-".into(), |v| format!("{:.0} %", v * 100.0));
        Shown { number, style: STRONG, most: Some(1.0) }
    }
}

/// A word, a number, and how it went in what room is left, `high` lines in all; the words stand at the foot of them.
fn track(word: &str, track: &Track, shown: Shown, width: usize, high: usize) -> Vec<Line<'static>> {
    let before = LABEL + NUMBER + 1;
    let mut out: Vec<Line<'static>> = track
        .lines(width.saturating_sub(before), high, shown.most)
        .into_iter()
        .map(|line| Line::from(vec![Span::raw(" ".repeat(before)), Span::styled(line, TRACK)]))
        .collect();
    if let Some(last) = out.last_mut() {
        last.spans.splice(
            0..1,
            [
                Span::raw(format!("{word:<LABEL$}")),
                Span::styled(format!("{:>NUMBER$}", shown.number), shown.style),
                Span::raw(" "),
            ],
        );
    }
    out
}

/// `6 in flight, 412 done, 1 failed, 93 chunks/s`; the last if there is room.
fn counts(client: &Client, width: usize) -> Vec<Span<'static>> {
    let mut out = vec![Span::raw(format!("{} in flight, {} done", client.in_flight, client.ended))];
    if client.failed > 0 {
        out.extend([Span::raw(", "), Span::styled(format!("{} failed", client.failed), BAD)]);
    }
    let chunks = format!(", {:.0} chunks/s", client.chunks_per_s);
    if out.iter().map(Span::width).sum::<usize>() + chunks.len() <= width {
        out.push(Span::raw(chunks));
    }
    out
}

fn spaced(mut spans: Vec<Span<'static>>) -> Vec<Span<'static>> {
    spans.insert(0, Span::raw(" "));
    spans.push(Span::raw(" "));
    spans
}

fn server_lines(board: &Board, width: usize, high: usize) -> Vec<Line<'static>> {
    let mut out = track("waiting", &board.waiting, Shown::count(&board.waiting), width, high);
    out.extend(track("running", &board.running, Shown::count(&board.running), width, high));
    out.extend(track("KV cache", &board.kv_usage, Shown::share(&board.kv_usage), width, high));
    out
}

fn gpu_line(g: &Gpu) -> Line<'static> {
    let number = |v: Option<f64>, unit: &str| v.map_or_else(|| format!("- {unit}"), |v| format!("{v:.0} {unit}"));
    let mut spans = vec![
        Span::raw(format!("{}  ", plain(&g.name))),
        Span::styled(number(g.clock_mhz, "MHz"), STRONG),
        Span::raw(format!("  {}  {}", number(g.temperature_c, "°C"), number(g.power_w, "W"))),
    ];
    if !g.slowed_by.is_empty() {
        spans.push(Span::styled(format!("  {}", g.slowed_by.join(", ").replace('_', " ")), DOUBT));
    }
    Line::from(spans)
}

/// At most `most` alerts, and a line for those that are not shown one by one.
fn alert_lines(board: &Board, most: usize, width: usize) -> Vec<Line<'static>> {
    let mut out: Vec<Line<'static>> = board.alerts.iter().take(most).map(|a| alert_line(a, width)).collect();
    let [quiet, without] = board.others;
    let mut rest = if board.alerts.is_empty() && board.others == [0, 0] {
        "  nothing is judged yet".to_owned()
    } else {
        format!("  {quiet} quiet")
    };
    if without > 0 {
        rest += &format!(", {without} without data");
    }
    if board.alerts.len() > most {
        rest = format!("  {} more;{rest}", board.alerts.len() - most);
    }
    out.push(Line::styled(cut(&rest, width), QUIET));
    out
}

fn alert_line(a: &Alert, width: usize) -> Line<'static> {
    let (mark, state, style) = if a.firing {
        ("! ", format!("firing, true for {}", whole(a.held)), BAD)
    } else {
        ("~ ", format!("pending, fires in {}", whole(a.fires_in)), DOUBT)
    };
    let name = format!("{mark}{}  {state}", plain(&a.name));
    let room = width.saturating_sub(text::width(&name));
    let mut spans = vec![Span::styled(cut(&name, width), style)];
    // Half a word explains nothing.
    if room >= 16 {
        spans.push(Span::raw(format!("  {}", cut(&plain(&a.summary), room - 2))));
    }
    Line::from(spans)
}

/// As much of a text as takes at most `width` columns, with a sign that there was more.
fn cut(words: &str, width: usize) -> String {
    if text::width(words) <= width {
        return words.to_owned();
    }
    let mut out = String::new();
    for c in words.chars() {
        out.push(c);
        if text::width(&out) >= width {
            out.pop();
            break;
        }
    }
    // A wide letter may leave two columns.
    if width > 0 {
        out.push('…');
    }
    out
}

/// A time in whole seconds: `42s`, `1m30s`.
fn whole(d: Duration) -> String {
    prometheus_duration(Duration::from_secs(d.as_secs_f64().ceil() as u64))
}
