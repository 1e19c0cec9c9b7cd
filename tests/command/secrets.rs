//! Secrets in every place where a user can put one are in nothing that a run writes or prints.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");

/// Each planted under a name that tells where it leaked from; no two share a beginning of eight letters.
const PLANTED: [&str; 18] = [
    "sk-FLAG-0d9f1a",
    "sk-ENVKEY-77ab12",
    "hdr-bearer-51c2ee",
    "hdr-team-9a8b7c6d",
    "hdr-toml-4f4f1b2c",
    "mtr-user-8812cc00",
    "mtr-pass-19fe20aa",
    "mtr-token-66ab31ff",
    "mtr-odd-5d5d5d5d5d5d",
    "body-key-aa01bb02",
    "srv-env-cc03dd04",
    "srv-flag-ee05ff06",
    "srv-param-1122aabb",
    "srv-list-3344ccdd",
    "prx-user-5566eeff",
    "prx-pass-7788aa00",
    "dcgm-pass-99bb11cc",
    "dcgm-token-dd22ee33",
];

fn folder(test: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("plimsoll-secrets-{}-{test}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Connections that are answered well, so that probing passes.
const GOOD_ANSWERS: usize = 20;

/// A server that throws whatever it was sent back into its answer: first as a good stream, then as errors.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (n, stream) in listener.incoming().flatten().enumerate() {
            std::thread::spawn(move || answer(stream, n));
        }
    });
    address
}

fn answer(mut stream: TcpStream, n: usize) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let length = head.lines().find_map(|l| l.to_ascii_lowercase().strip_prefix("content-length:").map(str::to_owned));
    let mut body = vec![0; length.and_then(|l| l.trim().parse().ok()).unwrap_or(0)];
    let _ = stream.read_exact(&mut body);
    let line = head.lines().next().unwrap_or("").to_owned();
    let said = format!("{head}{}", String::from_utf8_lossy(&body));
    let chunk = r#"data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"length"}],"usage":{"prompt_tokens":9,"total_tokens":10,"completion_tokens":1}}"#;
    let (status, kind, text) = if line.contains("/v1/models") {
        (
            200,
            "application/json",
            r#"{"object":"list","data":[{"id":"tiny","object":"model","max_model_len":4096}]}"#.to_owned(),
        )
    } else if line.contains("/chat/completions") && n > GOOD_ANSWERS && n.is_multiple_of(3) {
        (500, "application/json", serde_json::json!({"error": {"message": said}}).to_string())
    } else if line.contains("/chat/completions") {
        (200, "text/event-stream", format!("{chunk}\n\ndata: [DONE]\n\n"))
    } else if line.contains("metrics") && n > GOOD_ANSWERS && n.is_multiple_of(2) {
        (500, "text/plain", said)
    } else if line.contains("metrics") {
        (200, "text/plain", "# TYPE up gauge\nup 1\n".into())
    } else {
        (404, "application/json", serde_json::json!({"detail": said}).to_string())
    };
    let length = text.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
    );
}

/// Everything in a folder, and what was printed: nothing of what was planted may be in it.
fn clean(dir: &Path, output: &Output) {
    let mut texts = vec![
        ("standard output".to_owned(), String::from_utf8_lossy(&output.stdout).into_owned()),
        ("standard error".to_owned(), String::from_utf8_lossy(&output.stderr).into_owned()),
    ];
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let bytes = std::fs::read(entry.path()).unwrap();
        texts.push((entry.file_name().to_string_lossy().into_owned(), String::from_utf8_lossy(&bytes).into_owned()));
    }
    for (name, text) in &texts {
        for secret in PLANTED {
            assert!(!text.contains(secret), "{secret} is in {name}:\n{text}");
        }
    }
}

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(PLIMSOLL);
    command
        .args(args)
        .arg("--out")
        .arg(dir.join("out"))
        .current_dir(dir)
        .env("MY_KEY", "sk-ENVKEY-77ab12")
        .env("http_proxy", "http://prx-user-5566eeff:prx-pass-7788aa00@127.0.0.1:9")
        .env("no_proxy", "127.0.0.1")
        .env_remove("OPENAI_API_KEY")
        .env_remove("RUST_BACKTRACE");
    command
}

/// Waits until the recording has so many lines, then ends the run as CI would.
fn end_after(mut command: Command, run: &Path, lines: usize) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    for _ in 0..2_400 {
        let text = std::fs::read(run).unwrap_or_default();
        if text.iter().filter(|b| **b == b'\n').count() >= lines || child.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    let pid = rustix::process::Pid::from_child(&child);
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    child.wait_with_output().unwrap()
}

#[test]
fn a_run_against_a_server_that_repeats_all_it_hears() {
    let dir = folder("run");
    let address = echo();
    let text = format!(
        "time_scale = 0.1\n[target]\nurl = \"http://{address}\"\napi_key_env = \"MY_KEY\"\n\
         metrics_url = \"http://mtr-user-8812cc00:mtr-pass-19fe20aa@{address}/metrics?token=mtr-token-66ab31ff&odd=mtr-odd-5d5d5d5d5d5d\"\n\
         extra_body = {{ api_key = \"body-key-aa01bb02\" }}\n\
         [target.headers]\nX-Toml = \"hdr-toml-4f4f1b2c\"\n\
         [workload]\nkind = \"fixed\"\ninput_tokens = 64\noutput_tokens = 4\n[ladder]\nconcurrency = [2]\nramp = \"0s\"\n"
    );
    std::fs::write(dir.join("s.toml"), text).unwrap();
    let args = ["run", "s.toml", "--gpu", "off", "--no-tui", "-H", "X-Team: hdr-team-9a8b7c6d"];
    let output = end_after(command(&dir, &args), &dir.join("out/run.jsonl"), 60);
    let recording = std::fs::read_to_string(dir.join("out/run.jsonl")).unwrap();
    // The test means something only if errors were recorded that had the secrets in them.
    assert!(recording.contains("http_status") && recording.contains("[redacted]"), "{recording}");
    assert!(dir.join("out/verdict.json").exists(), "{output:?}");
    clean(&dir.join("out"), &output);
    // What is made again is clean too.
    let again = Command::new(PLIMSOLL).args(["judge", "out"]).current_dir(&dir).output().unwrap();
    clean(&dir.join("out"), &again);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn flags_and_a_server_that_prints_what_it_was_started_with() {
    let dir = folder("launch");
    let address = echo();
    let text = format!(
        "time_scale = 0.1\n[target]\nurl = \"http://{address}\"\n\
         [server]\ncommand = [\"/bin/sh\", \"-c\", \"echo started with $0 $@ and $HF_TOKEN; exec sleep 60\", \"{{name}}\", \
         \"--api-key\", \"srv-flag-ee05ff06\", \"--hf-token={{hf_token}}\", \"{{flags}}\"]\nready_timeout = \"60s\"\n\
         [server.env]\nHF_TOKEN = \"srv-env-cc03dd04\"\n\
         [server.params]\nname = \"it\"\nhf_token = \"srv-param-1122aabb\"\nflags = [\"--token\", \"srv-list-3344ccdd\"]\n\
         [workload]\nkind = \"fixed\"\ninput_tokens = 64\noutput_tokens = 4\n[ladder]\nconcurrency = [2]\nramp = \"0s\"\n"
    );
    std::fs::write(dir.join("s.toml"), text).unwrap();
    let args = [
        "run",
        "s.toml",
        "--launch",
        "--gpu",
        "off",
        "--no-tui",
        "--api-key",
        "sk-FLAG-0d9f1a",
        "-H",
        "Authorization: Bearer hdr-bearer-51c2ee",
    ];
    let output = end_after(command(&dir, &args), &dir.join("out/run.jsonl"), 40);
    let log = std::fs::read_to_string(dir.join("out/server.log")).unwrap();
    assert!(log.contains("started with it --api-key [redacted]"), "{log}\n{output:?}");
    clean(&dir.join("out"), &output);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn what_is_refused_is_refused_without_repeating_a_secret() {
    let dir = folder("refused");
    let address = echo();
    let url = format!("http://{address}");
    let dcgm = format!("dcgm=http://u:dcgm-pass-99bb11cc@{address}/none?token=dcgm-token-dd22ee33");
    let with_user = format!("http://mtr-user-8812cc00:mtr-pass-19fe20aa@{address}/?token=mtr-token-66ab31ff");
    let dead = "http://mtr-user-8812cc00:mtr-pass-19fe20aa@127.0.0.1:9/metrics?token=mtr-token-66ab31ff";
    for args in [
        vec!["run", "--url", &url, "--gpu", &dcgm],
        vec!["run", "--url", &with_user],
        vec!["run", "--url", &url, "--gpu", "off", "--metrics-url", dead],
        vec!["run", "--url", &url, "-H", "Authorization Bearer hdr-bearer-51c2ee"],
        vec!["run", "--url", &url, "--gpu", "off", "--extra-body", "{\"api_key\": \"body-key-aa01bb02\""],
        vec!["run", "--url", "http://127.0.0.1:9", "--api-key", "sk-FLAG-0d9f1a"],
    ] {
        let output = command(&dir, &args).output().unwrap();
        assert_ne!(output.status.code(), Some(0), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
        clean(&dir.join("out"), &output);
        let _ = std::fs::remove_dir_all(dir.join("out"));
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
