//! The live view in a real terminal, of the kernel's making: it is taken, drawn on, and given back however the run ends.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use plimsoll::model::recording::StopReason;
use plimsoll::model::verdict::Verdict;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

use super::served::Served;

const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");
/// Takes the user's screen away, and gives it back.
const TAKE: &str = "\u{1b}[?1049h";
const GIVE: &str = "\u{1b}[?1049l";

fn folder(test: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("plimsoll-terminal-{}-{test}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// A terminal: our end of it, and the program's.
struct Terminal {
    ours: File,
    theirs: OwnedFd,
    seen: Vec<u8>,
    /// Up to where `seen` was looked at.
    read: usize,
}

impl Terminal {
    fn new(columns: u16, rows: u16) -> Terminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        let theirs = File::options().read(true).write(true).open(name).unwrap();
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&theirs, size).unwrap();
        Terminal { ours: ours.into(), theirs: theirs.into(), seen: Vec::new(), read: 0 }
    }

    fn modes(&self) -> Termios {
        tcgetattr(&self.theirs).unwrap()
    }

    /// Reads on until `word` was drawn; what came up to there. Words are drawn one by one: a space that is there already
    /// is not drawn again.
    fn until(&mut self, word: &str) -> String {
        let mut chunk = [0; 4096];
        loop {
            let fresh = &self.seen[self.read..];
            if let Some(at) = fresh.windows(word.len()).position(|w| w == word.as_bytes()) {
                let came = String::from_utf8_lossy(&fresh[..at + word.len()]).into_owned();
                self.read += at + word.len();
                return came;
            }
            let n = self.ours.read(&mut chunk).unwrap_or(0);
            assert!(n > 0, "the terminal went away before {word:?}: {}", String::from_utf8_lossy(fresh));
            self.seen.extend(&chunk[..n]);
        }
    }

    /// Everything that was drawn, once nobody holds the other end any more.
    fn rest(self) -> String {
        let Terminal { mut ours, theirs, mut seen, .. } = self;
        drop(theirs);
        let mut chunk = [0; 4096];
        // The kernel tells the end of a terminal as an error.
        while let Ok(n @ 1..) = ours.read(&mut chunk) {
            seen.extend(&chunk[..n]);
        }
        String::from_utf8_lossy(&seen).into_owned()
    }
}

/// A run of minutes against a server in real time, on a terminal.
fn run(server: &Served, terminal: &Terminal, dir: &Path, more: &[&str]) -> Child {
    Command::new(PLIMSOLL)
        .args(["run", "--url", &server.url(), "--concurrency", "2,4", "--input-len", "64", "--output-len", "8"])
        .args(["--hold", "120s", "--warmup", "1s", "--out"])
        .arg(dir.join("out"))
        .args(more)
        .stdin(terminal.theirs.try_clone().unwrap())
        .stderr(terminal.theirs.try_clone().unwrap())
        .stdout(Stdio::piped())
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .env_remove("OPENAI_API_KEY")
        .current_dir(dir)
        .spawn()
        .unwrap()
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}

fn same(a: &Termios, b: &Termios) -> bool {
    a.local_modes == b.local_modes && a.input_modes == b.input_modes && a.output_modes == b.output_modes
}

#[test]
fn ctrl_c_and_sigterm_end_the_run_with_its_verdict_and_give_the_terminal_back() {
    let server = Served::start();
    for (name, signal) in [("int", Signal::INT), ("term", Signal::TERM)] {
        let dir = folder(name);
        let mut terminal = Terminal::new(80, 24);
        let before = terminal.modes();
        let mut child = run(&server, &terminal, &dir, &[]);
        terminal.until(TAKE);
        let drawn = terminal.until("judged");
        assert!(["TTFT", "p99", "flight", "cache"].iter().all(|word| drawn.contains(word)), "{drawn:?}");
        assert!(!terminal.modes().local_modes.contains(LocalModes::ECHO), "what is typed is drawn over the view");
        kill_process(pid(&child), signal).unwrap();
        let mut answer = String::new();
        child.stdout.take().unwrap().read_to_string(&mut answer).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{name}");
        assert!(same(&terminal.modes(), &before), "{name}: the terminal is left in other modes");
        let all = terminal.rest();
        let back = all.rfind(GIVE).expect("the user's screen comes back");
        assert!(back > all.rfind(TAKE).unwrap() && all[back..].contains("\u{1b}[?25h"), "{name}");
        // What was told while the view stood is on the user's own screen.
        assert!(all[back..].contains("step 0  2 streams"), "{name}: {:?}", &all[back..]);
        let verdict = std::fs::read_to_string(dir.join("out/verdict.json")).unwrap();
        let verdict: Verdict = serde_json::from_str(&verdict).unwrap();
        assert_eq!(verdict.stopped, Some(StopReason::Interrupted));
        assert!(dir.join("out/report.html").is_file() && answer.contains("interrupted"), "{answer}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

#[test]
fn twice_aborts_at_once_and_gives_the_terminal_back_too() {
    let server = Served::start();
    let dir = folder("twice");
    let mut terminal = Terminal::new(40, 12);
    let before = terminal.modes();
    let mut child = run(&server, &terminal, &dir, &[]);
    terminal.until(TAKE);
    terminal.until("TTFT");
    // Stopped in between, so that both come before it can end by itself.
    for signal in [Signal::STOP, Signal::INT, Signal::TERM, Signal::CONT] {
        kill_process(pid(&child), signal).unwrap();
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(same(&terminal.modes(), &before), "the terminal is left in other modes");
    let all = terminal.rest();
    assert!(all.rfind(GIVE) > all.rfind(TAKE), "{all:?}");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn plain_lines_where_they_are_asked_for_and_where_the_terminal_cannot_be_drawn_on() {
    let server = Served::start();
    for (name, size, more) in [("plain", (80, 24), &["--no-tui"][..]), ("tiny", (20, 5), &[])] {
        let dir = folder(name);
        let mut terminal = Terminal::new(size.0, size.1);
        let mut child = run(&server, &terminal, &dir, more);
        terminal.until("warm-up");
        kill_process(pid(&child), Signal::INT).unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(130), "{name}");
        let all = terminal.rest();
        assert!(!all.contains(TAKE) && all.contains("step 0"), "{name}: {all:?}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
