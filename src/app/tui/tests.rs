//! The view as it is drawn, cell by cell against the files in `tests/tui`.
//!
//! `PLIMSOLL_BLESS=1 cargo test --lib tui` writes the files anew; read the diff.

use std::path::Path;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;

use super::board::{Alert, Board, Client, Gpu, Pace, Rung, RungState, Track};
use super::draw::draw;
use super::screen::fade;
use crate::model::step::Phase;

fn track(values: impl IntoIterator<Item = f64>) -> Track {
    let mut track = Track::default();
    values.into_iter().for_each(|v| track.push(Some(v)));
    track
}

/// A run in its narrowing, with everything that can be shown.
fn running() -> Board {
    let rung = |level, phase, state| Rung { level, phase, state };
    let wave = |top: f64| (0..60).map(move |i| top * (0.5 + 0.5 * f64::from(i % 12) / 11.0));
    Board {
        title: "chat: llama-3.1-8b at http://127.0.0.1:8000".into(),
        unit: "streams",
        rungs: vec![
            rung(1.0, Phase::Climb, RungState::Clean),
            rung(2.0, Phase::Climb, RungState::Inconclusive),
            rung(4.0, Phase::Climb, RungState::Clean),
            rung(8.0, Phase::Climb, RungState::Firing),
            rung(6.0, Phase::Narrow, RungState::Running),
        ],
        doing: "prolong".into(),
        left: Duration::from_secs(42),
        takes: Duration::from_secs(120),
        prolonged: Some("61 of 100 observations".into()),
        silence: None,
        rest: "4m to 12m left".into(),
        client: Some(Client {
            ttft_s: Pace { p50: track(wave(0.282)), p99: track(wave(1.2)), target_s: Some(1.0) },
            gap_s: Pace { p50: track(wave(0.064)), p99: track(wave(0.09)), target_s: Some(0.1) },
            chunks_per_s: 92.6,
            in_flight: 6,
            ended: 412,
            failed: 1,
        }),
        waiting: track((0..60).map(|i| f64::from(i / 20))),
        running: track((0..60).map(|_| 4.0)),
        kv_usage: track(wave(0.9)),
        gpus: vec![Gpu {
            name: "0 NVIDIA L4".into(),
            clock_mhz: Some(1_020.0),
            temperature_c: Some(87.0),
            power_w: Some(41.6),
            slowed_by: vec!["sw_thermal_slowdown"],
        }],
        alerts: vec![
            Alert {
                name: "RequestsWaiting".into(),
                firing: true,
                held: Duration::from_secs(75),
                fires_in: Duration::ZERO,
                summary: "requests waiting: 2; the server cannot admit all the traffic".into(),
            },
            Alert {
                name: "KvCacheFull".into(),
                firing: false,
                held: Duration::from_secs(18),
                fires_in: Duration::from_secs(42),
                summary: "the KV cache is 96.1% full".into(),
            },
        ],
        others: [3, 1],
        because: Vec::new(),
        remarks: ["step 2  4 streams  climb", "clean  (ttft p50 282 ms, gap p50 64 ms, 97 requests)"]
            .map(String::from)
            .into(),
        ending: false,
    }
}

/// A watch whose server's pool is full; a name that would drive the terminal is drawn as text.
fn watching() -> Board {
    let run = running();
    Board {
        title: "watches http://10.0.0.7:8000/metrics\u{1b}[31m".into(),
        client: None,
        rungs: Vec::new(),
        doing: String::new(),
        gpus: Vec::new(),
        because: vec![
            "because the KV cache pool is full: 2 requests wait (PoolLimited)".into(),
            "- requests waiting: above 0 in 47 of 60 samples (median 1)".into(),
            "do: add KV memory, or send less".into(),
        ],
        ending: true,
        ..run
    }
}

fn drawn(board: &Board, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, board)).unwrap();
    let buffer = terminal.backend().buffer();
    let mut out = String::new();
    for y in 0..height {
        let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        out += line.trim_end();
        out.push('\n');
    }
    out
}

#[test]
fn the_view_from_a_small_terminal_to_a_large_one() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tui");
    for (name, board) in [("running", running()), ("watching", watching()), ("empty", Board::default())] {
        for (width, height) in [(40, 12), (80, 24), (200, 50)] {
            let path = folder.join(format!("{name}.{width}.txt"));
            let now = drawn(&board, width, height);
            if std::env::var_os("PLIMSOLL_BLESS").is_some() {
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(&path, &now).unwrap();
            }
            let golden = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(golden == now, "{} differs; this is what is drawn now:\n{now}", path.display());
        }
    }
}

#[test]
fn every_size_can_be_drawn() {
    for (width, height) in [(1, 1), (20, 5), (60, 14), (64, 18), (400, 100)] {
        drawn(&running(), width, height);
        drawn(&watching(), width, height);
        drawn(&Board::default(), width, height);
    }
    // A ladder that is longer than the line keeps the step that runs in sight.
    let mut board = running();
    board.rungs = (0..60).map(|i| Rung { level: f64::from(i), phase: Phase::Climb, state: RungState::Clean }).collect();
    board.rungs[50].state = RungState::Running;
    let line = drawn(&board, 80, 24).lines().nth(1).unwrap().to_owned();
    assert!(line.contains(" … ") && line.contains("49+ [50]") && line.ends_with('…'), "{line}");
}

#[test]
fn names_of_any_width_stay_in_their_place() {
    let mut board = running();
    board.title = "模型🚢".repeat(40);
    board.alerts[0].name = "警报".repeat(40);
    board.alerts[1].summary = "👩‍👩‍👧‍👦 e\u{301} \u{202e}gnorw".repeat(10);
    board.silence = Some("沉默".repeat(90));
    board.gpus[0].name = "\u{1b}]0;x\u{7}".repeat(30);
    for (width, height) in [(40, 12), (81, 24), (200, 50)] {
        let text = drawn(&board, width, height);
        // The frames close, and nothing reaches the terminal that could drive it.
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text}");
        assert_eq!(text.lines().count(), usize::from(height));
        if height > 12 {
            assert!(text.lines().any(|l| l.ends_with('╮')) && text.lines().any(|l| l.ends_with('╯')), "{text}");
        }
    }
}

#[test]
fn without_colours_the_words_are_the_same() {
    let colours = |fades: bool| {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        let picture = terminal
            .draw(|frame| {
                draw(frame, &running());
                if fades {
                    fade(frame.buffer_mut());
                }
            })
            .unwrap();
        let coloured = picture.buffer.content.iter().filter(|c| c.fg != Color::Reset || c.bg != Color::Reset).count();
        let words: String = picture.buffer.content.iter().map(|c| c.symbol()).collect();
        (coloured, words)
    };
    let ((coloured, words), (none, same)) = (colours(false), colours(true));
    assert!(coloured > 0 && none == 0);
    assert_eq!(words, same);
}
