//! Starting the server under test, and ending it whatever happens to us.
//!
//! The server runs below a supervisor: this same program in a session of its own, which holds the
//! read end of a pipe from us. When the pipe closes, because we asked or because we were killed, the
//! supervisor ends the server's whole process group: SIGINT, then SIGTERM, then SIGKILL. Never a shell.
//!
//! What the server prints goes through the supervisor into the log, line by line, without secrets:
//! engines print their own flags, keys included.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, Read, Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::Refusal;
use crate::record::Redactor;
use crate::scenario::{Param, ServerSpec};

/// How long the server gets after SIGINT, and again after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often the supervisor looks whether the server is still there.
const LOOK: Duration = Duration::from_millis(100);
/// How long the last lines of a server that ended may take to come through.
const LAST_LINES: Duration = Duration::from_secs(1);
/// Bytes of a line after which it is cut in two.
const LONGEST_LINE: u64 = 1 << 16;
/// How much of the log's end is read for the last words.
const LAST_WORDS: u64 = 8 * 1024;

/// A server that we started.
pub struct Server {
    supervisor: Child,
    lifeline: Option<ChildStdin>,
    log: PathBuf,
    /// The argv it was started with, parameters filled in.
    pub argv: Vec<String>,
}

impl Server {
    /// Starts the server with its log in `log`, from which `secrets` are cut.
    ///
    /// # Errors
    /// If a parameter is missing, the log cannot be made, or the program cannot be started.
    pub fn start(spec: &ServerSpec, log: &Path, secrets: &[String]) -> anyhow::Result<Server> {
        let argv = argv(spec)?;
        let out = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        let me = std::env::current_exe().context("finding our own program, to supervise the server")?;
        let mut supervisor = Command::new(me)
            .arg("supervise")
            .arg("--")
            .args(&argv)
            .envs(&spec.env)
            .stdin(Stdio::piped())
            .stdout(out.try_clone().context("sharing the server's log")?)
            .stderr(out)
            .process_group(0)
            .spawn()
            .context("starting the supervisor of the server")?;
        let mut lifeline = supervisor.stdin.take();
        if let Some(pipe) = &mut lifeline {
            // Not as an argument: those can be read by everyone on the machine.
            let line = serde_json::to_string(secrets).context("handing the supervisor what it must cut out")?;
            writeln!(pipe, "{line}").context("handing the supervisor what it must cut out")?;
        }
        Ok(Server { supervisor, lifeline, log: log.to_owned(), argv })
    }

    /// How the server ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.supervisor.try_wait().ok().flatten()
    }

    /// What the server said last, and where its log is: for saying how it died.
    pub fn last_words(&self) -> String {
        let log = self.log.display();
        match self.last_lines() {
            lines if lines.is_empty() => format!("it printed nothing into its log ({log})"),
            lines => format!("its last words ({log}):\n{lines}"),
        }
    }

    fn last_lines(&self) -> String {
        let mut text = Vec::new();
        if let Ok(mut file) = File::open(&self.log) {
            let length = file.metadata().map_or(0, |m| m.len());
            let _ = file.seek(SeekFrom::Start(length.saturating_sub(LAST_WORDS)));
            let _ = file.read_to_end(&mut text);
        }
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }

    /// Where its log is.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Asks the supervisor to end the server, and waits until it has.
    pub fn stop(&mut self) {
        drop(self.lifeline.take());
        let _ = self.supervisor.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What a server's end means, in words.
pub fn say(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        // A shell's way of telling a signal; our supervisor uses it too.
        (Some(code), _) if code > 128 => format!("it was ended by signal {}", code - 128),
        (Some(code), _) => format!("it exited with code {code}"),
        (None, Some(signal)) => format!("its supervisor was ended by signal {signal}"),
        (None, None) => "it ended".to_owned(),
    }
}

/// The supervisor: runs `argv` in a process group of its own until it ends or standard input closes.
/// The first line of standard input is a JSON list of what must be cut out of the server's output.
/// Returns the code to exit with.
pub fn supervise(argv: &[String]) -> u8 {
    let Some((program, arguments)) = argv.split_first() else { return 2 };
    let mut first = String::new();
    let _ = std::io::stdin().lock().read_line(&mut first);
    let redactor = Redactor::new(serde_json::from_str::<Vec<String>>(&first).unwrap_or_default());
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).process_group(0);
    let output = std::io::pipe().and_then(|(read, write)| {
        command.stdout(write.try_clone()?).stderr(write);
        Ok(read)
    });
    let spawned = output.and_then(|output| Ok((command.spawn()?, output)));
    let (mut child, output) = match spawned {
        Ok(spawned) => spawned,
        Err(error) => {
            eprintln!("plimsoll: cannot start {program}: {error}");
            return 127;
        }
    };
    // The command holds the pipe's write end too: with it open, the output would never end.
    drop(command);
    let (copied, is_copied) = mpsc::channel();
    std::thread::spawn(move || {
        copy(output, &redactor);
        let _ = copied.send(());
    });
    let code = watch(&mut child);
    // The last words; not longer than a moment, if something that left the group still holds the pipe.
    let _ = is_copied.recv_timeout(LAST_LINES);
    code
}

/// Copies the server's output to ours, line by line, without secrets.
fn copy(output: PipeReader, redactor: &Redactor) {
    let mut output = BufReader::new(output);
    let mut out = std::io::stdout();
    let mut line = Vec::new();
    while output.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        let clean = redactor.text(&String::from_utf8_lossy(&line));
        if out.write_all(clean.as_bytes()).and_then(|()| out.flush()).is_err() {
            return;
        }
        line.clear();
    }
}

/// Waits for the server's end or ours, and leaves nothing of it running.
fn watch(child: &mut Child) -> u8 {
    let group = Pid::from_child(child);
    let (closed, is_closed) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = closed.send(());
    });
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            // Whatever it left behind goes with it: a killed vLLM leaves its engine's processes running.
            let _ = kill_process_group(group, Signal::KILL);
            let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
            return u8::try_from(code).unwrap_or(1);
        }
        if is_closed.recv_timeout(LOOK) != Err(mpsc::RecvTimeoutError::Timeout) {
            break;
        }
    }
    for signal in [Signal::INT, Signal::TERM] {
        let _ = kill_process_group(group, signal);
        let mut waited = Duration::ZERO;
        while waited < PATIENCE {
            if let Ok(Some(_)) = child.try_wait() {
                let _ = kill_process_group(group, Signal::KILL);
                return 0;
            }
            std::thread::sleep(LOOK);
            waited += LOOK;
        }
    }
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
    0
}

/// Looks for the program before anything is made or sent.
///
/// # Errors
/// Names the program that is not there, or the parameter that is missing.
pub fn find(spec: &ServerSpec) -> Result<(), Refusal> {
    let argv = argv(spec)?;
    let Some(program) = argv.first() else { return Ok(()) };
    let runs = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    let hint = "install it, or say where it is: with `--set launcher=\"/path/to/vllm serve\"` where the scenario has that parameter";
    if program.contains('/') {
        let says = match runs(Path::new(program)) {
            true => return Ok(()),
            false if Path::new(program).exists() => {
                format!("[server] cannot run `{program}`: it is no executable file")
            }
            false => format!("[server] cannot run `{program}`: there is no such file"),
        };
        return Err(Refusal::usage(says, hint));
    }
    let path = spec.env.get("PATH").map(Into::into).or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| runs(&folder.join(program))) {
        return Ok(());
    }
    Err(Refusal::usage(format!("[server] cannot run `{program}`: no program of that name is on PATH"), hint))
}

/// The argv with `{name}` replaced by parameters; an element that is just `{name}` of a list
/// becomes as many elements.
fn argv(spec: &ServerSpec) -> Result<Vec<String>, Refusal> {
    let mut out = Vec::new();
    for element in &spec.command {
        let whole = element.strip_prefix('{').and_then(|e| e.strip_suffix('}'));
        match whole.map(|name| (name, spec.params.get(name))) {
            Some((_, Some(Param::Many(list)))) => out.extend(list.iter().cloned()),
            _ => out.push(fill(element, &spec.params)?),
        }
    }
    if out.is_empty() {
        return Err(Refusal::usage("[server] command is empty, expected the program and its arguments", ""));
    }
    Ok(out)
}

fn fill(element: &str, params: &BTreeMap<String, Param>) -> Result<String, Refusal> {
    let mut out = String::new();
    let mut rest = element;
    while let Some((before, after)) = rest.split_once('{') {
        out += before;
        // `{` that opens no simple name stays as it is: JSON in flags has braces too.
        let name: String = after.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        if name.is_empty() || !after[name.len()..].starts_with('}') {
            out.push('{');
            rest = after;
            continue;
        }
        match params.get(&name) {
            Some(Param::One(value)) => out += value,
            Some(Param::Number(value)) => out += &value.to_string(),
            Some(Param::Many(_)) => {
                return Err(Refusal::usage(
                    format!("[server] command uses the list `{name}` inside `{element}`"),
                    "a list must be an element of its own",
                ));
            }
            None => {
                let known: Vec<&str> = params.keys().map(String::as_str).collect();
                return Err(Refusal::usage(
                    format!(
                        "[server] command uses `{{{name}}}`, which no parameter sets (known: {})",
                        known.join(", ")
                    ),
                    format!("add it under [server.params] or pass --set {name}=VALUE"),
                ));
            }
        }
        rest = &after[name.len() + 1..];
    }
    Ok(out + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(command: &[&str], params: &[(&str, Param)]) -> ServerSpec {
        ServerSpec {
            command: command.iter().map(|s| (*s).to_owned()).collect(),
            params: params.iter().map(|(n, p)| ((*n).to_owned(), p.clone())).collect(),
            ..ServerSpec::default()
        }
    }

    #[test]
    fn parameters_fill_the_command() {
        let got = argv(&spec(
            &["vllm", "serve", "{model}", "--port={port}", "{flags}", "--json", "{\"a\":1}"],
            &[
                ("model", Param::One("m".into())),
                ("port", Param::Number(8000)),
                ("flags", Param::Many(vec!["--x".into(), "1".into()])),
            ],
        ));
        assert_eq!(got.unwrap(), ["vllm", "serve", "m", "--port=8000", "--x", "1", "--json", "{\"a\":1}"]);
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        assert!(find(&spec(&["sh", "-c", "true"], &[])).is_ok());
        for (program, part) in [
            ("no-such-program-here", "on PATH"),
            ("/no/such/file", "no such file"),
            (concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), "executable"),
        ] {
            let error = find(&spec(&[program], &[])).unwrap_err();
            assert!(error.says.contains(program) && error.says.contains(part), "{error}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = argv(&spec(&["vllm", "{model}"], &[])).unwrap_err();
        assert!(error.says.contains("{model}"), "{error}");
        assert!(argv(&spec(&[], &[])).is_err());
    }
}
