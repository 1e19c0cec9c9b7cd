//! The binary as its user meets it: what goes wrong is one line that says what to do, with the
//! exit code that was promised, and never a panic.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread::JoinHandle;

/// A command line of the program, run in a folder of its own.
struct Plimsoll {
    command: Command,
    folder: PathBuf,
}

impl Plimsoll {
    fn new(test: &str, args: &[&str]) -> Plimsoll {
        let folder = std::env::temp_dir().join(format!("plimsoll-cli-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(args).current_dir(&folder).env_remove("OPENAI_API_KEY").env_remove("RUST_BACKTRACE");
        Plimsoll { command, folder }
    }

    fn file(self, name: &str, text: &str) -> Plimsoll {
        std::fs::write(self.folder.join(name), text).expect("a writable folder");
        self
    }

    fn run(mut self) -> Answer {
        let Output { status, stdout, stderr } = self.command.output().expect("the program starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
        let answer = Answer { code: status.code(), out: text(stdout), err: text(stderr) };
        let _ = std::fs::remove_dir_all(&self.folder);
        answer
    }
}

/// What the program said.
#[derive(Debug)]
struct Answer {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Answer {
    /// It refused with `code`, in one line that holds all of `parts`, perhaps with hints below.
    fn refused(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.out.is_empty(), "{self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
        let lines: Vec<&str> = self.err.lines().filter(|l| !l.starts_with("hint: ")).collect();
        assert_eq!(lines.len(), 1, "one line and hints: {self:?}");
        for part in parts {
            assert!(self.err.contains(part), "`{part}` is not in {self:?}");
        }
    }
}

/// A server that answers each connection with what `answer` makes of the request line, in order
/// of arrival, `Connection: close`.
fn server(answer: impl Fn(&str) -> (u16, &'static str, String) + Send + 'static) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    let handle = std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let length = head.lines().find_map(|l| {
                l.to_ascii_lowercase().strip_prefix("content-length:").map(|v| v.trim().parse().unwrap_or(0))
            });
            let mut body = vec![0; length.unwrap_or(0)];
            let _ = stream.read_exact(&mut body);
            let (status, kind, text) = answer(head.lines().next().unwrap_or(""));
            let _ = write!(
                stream,
                "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
                text.len()
            );
        }
    });
    (address, handle)
}

const MODELS: &str = r#"{"object":"list","data":[{"id":"tiny-chat","object":"model","max_model_len":512}]}"#;
const STREAM: &str = concat!(
    r#"data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"a"},"finish_reason":null}],"usage":{"prompt_tokens":9,"total_tokens":10,"completion_tokens":1}}"#,
    "\n\n",
    r#"data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"length"}],"usage":{"prompt_tokens":9,"total_tokens":11,"completion_tokens":2}}"#,
    "\n\n",
    r#"data: {"id":"1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":9,"total_tokens":11,"completion_tokens":2}}"#,
    "\n\ndata: [DONE]\n\n",
);

/// An OpenAI-compatible server with that metrics page.
fn openai(metrics: (u16, &'static str, &'static str)) -> SocketAddr {
    let (address, _) = server(move |line| {
        if line.contains("/v1/models") {
            (200, "application/json", MODELS.into())
        } else if line.contains("/chat/completions") {
            (200, "text/event-stream", STREAM.into())
        } else if line.contains("/metrics") {
            (metrics.0, metrics.1, metrics.2.into())
        } else {
            (404, "application/json", r#"{"detail":"Not Found"}"#.into())
        }
    });
    address
}

#[test]
fn a_target_that_is_down() {
    // The port was free a moment ago, and nobody listens on it now.
    let address = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port");
    let url = format!("http://{address}");
    Plimsoll::new("down", &["run", "--url", &url]).run().refused(3, &["cannot reach", &url, "hint: "]);
}

#[test]
fn an_address_that_is_none() {
    for url in ["ftp://127.0.0.1/", "http://", "http://127.0.0.1:99999"] {
        Plimsoll::new("address", &["check", "--url", url]).run().refused(2, &[url]);
    }
}

#[test]
fn a_server_without_the_api() {
    let (address, _) = server(|_| (404, "text/html", "<html>nothing here</html>".into()));
    let url = format!("http://{address}");
    Plimsoll::new("no-api", &["run", "--url", &url]).run().refused(3, &[&url, "OpenAI-compatible", "hint: "]);
}

#[test]
fn a_key_that_is_refused() {
    let (address, _) = server(|_| (401, "application/json", r#"{"error":"Unauthorized"}"#.into()));
    let url = format!("http://{address}");
    let answer = Plimsoll::new("key", &["run", "--url", &url, "--api-key", "sk-secret-17"]).run();
    answer.refused(3, &["key", "401", "--api-key"]);
    assert!(!answer.err.contains("sk-secret-17"), "{answer:?}");
}

#[test]
fn a_model_that_is_not_served() {
    let address = openai((200, "text/plain", "vllm:num_requests_waiting 0\n"));
    let url = format!("http://{address}");
    Plimsoll::new("model", &["run", "--url", &url, "--model", "tiny-chad"])
        .run()
        .refused(3, &["tiny-chad", "tiny-chat", "did you mean"]);
}

#[test]
fn a_page_that_is_not_prometheus_text() {
    for (status, kind, page) in [
        (200, "text/html", "<!doctype html><html><body>metrics</body></html>"),
        (200, "application/json", "{\"requests\": 1}"),
        (404, "application/json", "{\"detail\":\"Not Found\"}"),
    ] {
        let url = format!("http://{}", openai((status, kind, page)));
        Plimsoll::new("page", &["check", "--url", &url, "--input-len", "64"])
            .run()
            .refused(3, &["metrics page", "/metrics", "--metrics-url"]);
    }
}

#[test]
fn prompts_longer_than_the_model_takes() {
    let address = openai((200, "text/plain", "vllm:num_requests_waiting 0\n"));
    let url = format!("http://{address}");
    Plimsoll::new("long", &["run", "--url", &url, "--input-len", "500", "--output-len", "100"])
        .run()
        .refused(2, &["500", "100", "512", "hint: ", "--input-len", "--output-len", "together at most 512"]);
}

#[test]
fn a_scenario_with_a_typo() {
    Plimsoll::new("typo", &["run", "s.toml"])
        .file("s.toml", "name = \"x\"\n\n[ladder]\nconcurency = [1, 2]\n")
        .run()
        .refused(2, &["s.toml:4", "concurency", "hint: did you mean `concurrency`?"]);
    for (text, parts) in [
        ("[ladder]\nconcurrency = true\n", ["s.toml:2", "a list such as [1, 2, 4]"]),
        ("[ladder]\nhold = 90\n", ["s.toml:2", "a time in quotes with its unit"]),
        ("seed = -1\n", ["s.toml:1", "a whole number from 0 on"]),
        ("[workload]\nkind = \"fixd\"\n", ["s.toml:", "hint: did you mean `fixed`?"]),
        (
            "[sim]\nprofile = \"roomy\"\n[sim.with.engine]\nmax_num_seq = 4\n",
            ["max_num_seq", "did you mean `max_num_seqs`?"],
        ),
        ("[gpu]\nsourc = \"off\"\n", ["s.toml:2", "hint: did you mean `source`?"]),
    ] {
        Plimsoll::new("words", &["run", "s.toml"]).file("s.toml", text).run().refused(2, &parts);
    }
    Plimsoll::new("gone", &["run", "gone.toml"]).run().refused(2, &["gone.toml"]);
    Plimsoll::new("toml", &["run", "s.toml"]).file("s.toml", "[ladder\n").run().refused(2, &["s.toml:1"]);
}

#[test]
fn a_step_too_short_to_fire() {
    Plimsoll::new("short", &["run", "--sim", "quickstart", "--hold", "10s"])
        .run()
        .refused(2, &["ladder.hold is 10s", "hint: "]);
}

#[test]
fn flags_that_cannot_be_read() {
    for (args, part) in [
        (&["run", "--concurrency", "4..2x2"][..], "4..2x2"),
        (&["run", "--slo", "ttft:p95:1s"], "ttft:p95:1s"),
        (&["run", "--sim", "quikstart"], "did you mean `quickstart`?"),
        (&["run", "--launch"], "--launch"),
        (&["run", "--rules", "gone.yml"], "gone.yml"),
        (&["rules", "--engine", "other"], "--engine"),
        (&["judge", "gone"], "gone"),
        (&["run", "--sim", "roomy", "--gpu", "smi=x.csv"], "(--gpu) is `smi=x.csv`"),
        (&["run", "--sim", "roomy", "--max-duration", "60s"], "one step takes 1m36s"),
    ] {
        Plimsoll::new("flags", args).run().refused(2, &[part]);
    }
    // clap's own words take more than a line; the code is what counts.
    assert_eq!(Plimsoll::new("clap", &["run", "--hold", "90"]).run().code, Some(2));
}

#[test]
fn a_server_program_that_is_not_there() {
    let text = "[server]\ncommand = [\"no-such-vllm\", \"serve\"]\n";
    Plimsoll::new("program", &["run", "s.toml", "--launch"])
        .file("s.toml", text)
        .run()
        .refused(2, &["`no-such-vllm`", "PATH", "hint: "]);
}

#[test]
fn a_rule_file_that_is_wrong_names_the_place() {
    let rules = "groups:\n  - name: g\n    rules:\n      - alert: A\n        expr: rate(x[1m] > 0\n";
    Plimsoll::new("rules", &["run", "--sim", "quickstart", "--rules", "r.yml"])
        .file("r.yml", rules)
        .run()
        .refused(2, &["r.yml", "group g", "rule A"]);
}
