//! The terminal while the live view has it, and how it is given back: whatever ends the program, a panic, an error,
//! Ctrl-C twice or SIGTERM, the user's terminal is as it was.

use std::io::{self, IsTerminal, Stderr, Write};
use std::sync::{Mutex, Once, PoisonError};

use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::layout::Rect;
use ratatui::style::Color;
use ratatui::{Terminal, TerminalOptions, Viewport};
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr, tcsetattr,
};

use super::board::Board;
use super::draw::draw;

/// Below this the view would show nothing worth its place.
const SMALLEST: (u16, u16) = (30, 8);

/// How the terminal was before it was taken; `None` while it is the user's.
static TAKEN: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal, taken over.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stderr>>,
    /// What of it we drew on last.
    area: Rect,
    /// Whether the user wants colours.
    colour: bool,
}

impl Screen {
    /// Takes the terminal over, if standard error is one that can be drawn on.
    pub fn take() -> Option<Screen> {
        let err = io::stderr();
        let dumb = std::env::var_os("TERM").is_none_or(|t| t.is_empty() || t == "dumb");
        let area = area()?;
        if dumb || !err.is_terminal() || area.width < SMALLEST.0 || area.height < SMALLEST.1 {
            return None;
        }
        let before = tcgetattr(&err).ok()?;
        let mut ours = before.clone();
        // What is typed is not shown, and Ctrl-C still comes as a signal. Nothing that would leave the screen behind.
        ours.local_modes -= LocalModes::ECHO | LocalModes::ICANON;
        ours.special_codes[SpecialCodeIndex::VSUSP] = 0;
        ours.special_codes[SpecialCodeIndex::VQUIT] = 0;
        give_back_on_panic();
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let taken = tcsetattr(&err, OptionalActions::Now, &ours)
            .map_err(io::Error::from)
            .and_then(|()| execute!(io::stderr(), EnterAlternateScreen, Hide))
            .and_then(|()| {
                let options = TerminalOptions { viewport: Viewport::Fixed(area) };
                Terminal::with_options(CrosstermBackend::new(io::stderr()), options)
            });
        match taken {
            Ok(mut terminal) => {
                let _ = terminal.clear();
                let colour = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
                Some(Screen { terminal, area, colour })
            }
            Err(_) => {
                give_back();
                None
            }
        }
    }

    /// Draws the board, if the terminal is still ours. A terminal that went away is no reason to end a run.
    pub fn draw(&mut self, board: &Board) {
        if TAKEN.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            if let Some(now) = area().filter(|now| *now != self.area) {
                self.area = now;
                let _ = self.terminal.resize(now);
            }
            let colour = self.colour;
            let _ = self.terminal.draw(|frame| {
                draw(frame, board);
                if !colour {
                    fade(frame.buffer_mut());
                }
            });
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// All of the terminal that standard error is, which need not be the one that we were started from.
fn area() -> Option<Rect> {
    let (width, height) = terminal_size::terminal_size_of(io::stderr())?;
    Some(Rect::new(0, 0, width.0, height.0))
}

/// Takes all colours out of a picture; bold and dim stay.
pub fn fade(picture: &mut Buffer) {
    for cell in &mut picture.content {
        cell.fg = Color::Reset;
        cell.bg = Color::Reset;
    }
}

/// Gives the terminal back, if it was taken; any number of times, from anywhere.
pub fn give_back() {
    let Some(before) = TAKEN.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    let mut err = io::stderr();
    // Each for itself: what of it works is better than nothing.
    let _ = execute!(err, LeaveAlternateScreen, Show);
    let _ = err.flush();
    // Keys that were pressed at the view are not for the shell.
    let _ = tcflush(&err, QueueSelector::IFlush);
    let _ = tcsetattr(&err, OptionalActions::Now, &before);
}

/// A panic's message belongs on the user's own screen.
fn give_back_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            give_back();
            before(info);
        }));
    });
}
