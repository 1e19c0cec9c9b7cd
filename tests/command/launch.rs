//! A server that plimsoll starts: its end is told with its last words, and it never outlives the run.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");

/// How often something is looked for before the test gives up, and the pause between two looks.
const LOOKS: u32 = 600;
const PAUSE: Duration = Duration::from_millis(50);

fn folder(test: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("plimsoll-launch-{}-{test}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn scenario(folder: &std::path::Path, command: &[&str], url: &str) -> PathBuf {
    let path = folder.join("s.toml");
    let text = format!(
        "time_scale = 0.1\n[target]\nurl = \"{url}\"\n[server]\ncommand = {command:?}\nready_timeout = \"60s\"\n"
    );
    std::fs::write(&path, text).unwrap();
    path
}

fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).unwrap()
}

/// Looks until `seen`, a bounded number of times.
fn wait_for(what: &str, mut seen: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if seen() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    panic!("{what} did not happen");
}

#[test]
fn a_server_that_dies_at_once_is_told_with_its_last_words() {
    let folder = folder("dies");
    let url = format!("http://{}", free_port());
    let path = scenario(&folder, &[PLIMSOLL, "sim", "--profile", "no-such-profile"], &url);
    let output = Command::new(PLIMSOLL)
        .args(["run", path.to_str().unwrap(), "--launch", "--gpu", "off", "--out"])
        .arg(folder.join("out"))
        .output()
        .unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(err.contains("the server died before it answered: it exited with code 2"), "{err}");
    assert!(err.contains("no stand-in profile is called `no-such-profile`"), "{err}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_killed_run_takes_its_server_with_it() {
    let folder = folder("killed");
    let address = free_port();
    let listen = address.to_string();
    let command = [PLIMSOLL, "sim", "--profile", "roomy", "--listen", &listen];
    let path = scenario(&folder, &command, &format!("http://{address}"));
    let mut run = Command::new(PLIMSOLL)
        .args(["run", path.to_str().unwrap(), "--launch", "--gpu", "off", "--out"])
        .arg(folder.join("out"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The recording begins once the server has answered.
    wait_for("the recording's begin", || folder.join("out/run.jsonl").exists());
    assert!(TcpStream::connect(address).is_ok());
    // SIGKILL: nothing of ours runs any more but the supervisor.
    run.kill().unwrap();
    run.wait().unwrap();
    wait_for("the server's end", || TcpStream::connect(address).is_err());

    let judged = Command::new(PLIMSOLL).arg("judge").arg(folder.join("out")).output().unwrap();
    assert_eq!(judged.status.code(), Some(4), "{}", String::from_utf8_lossy(&judged.stderr));
    assert!(String::from_utf8_lossy(&judged.stdout).contains("the run was killed"));
    std::fs::remove_dir_all(&folder).unwrap();
}
