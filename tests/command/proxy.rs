//! Proxies of the environment and names, as a whole `check` meets them: real sockets, real time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use super::served::Served;

/// A host that no resolver knows: whoever reaches it went through the proxy.
const ELSEWHERE: &str = "vllm.plimsoll.invalid";

/// A forward proxy that sends all it gets to one server, whatever its name, and notes the request lines.
struct Proxy {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn start(to: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = seen.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let noted = noted.clone();
                // A connection that breaks is the client's to tell.
                std::thread::spawn(move || pass(client, to, &noted));
            }
        });
        Proxy { address, seen }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("no thread panicked").clone()
    }
}

/// Passes one request on, with its target made relative, and the answer back; then the connection is closed.
fn pass(client: TcpStream, to: SocketAddr, seen: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut from = BufReader::new(client.try_clone()?);
    let (mut head, mut line, mut length) = (String::new(), String::new(), 0);
    while from.read_line(&mut line)? > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if head.is_empty() {
            seen.lock().expect("no thread panicked").push(line.trim_end().to_owned());
            head = line.replacen(&format!("http://{ELSEWHERE}"), "", 1) + "connection: close\r\n";
        } else if !line.to_ascii_lowercase().starts_with("connection:") {
            head += &line;
        }
        line.clear();
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    let mut server = TcpStream::connect(to)?;
    server.write_all(&[head.as_bytes(), b"\r\n", &body].concat())?;
    std::io::copy(&mut server, &mut &client)?;
    client.shutdown(std::net::Shutdown::Both)
}

fn check(url: &str, environment: &[(&str, String)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    let args = ["check", "--url", url, "--gpu", "off", "--input-len", "64", "--output-len", "4"];
    command.args(args).envs(environment.iter().cloned()).env_remove("OPENAI_API_KEY");
    command.output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_proxy_of_the_environment_carries_everything_and_is_said() {
    let server = Served::start();
    let proxy = Proxy::start(server.address);
    let url = format!("http://{ELSEWHERE}");
    for name in ["http_proxy", "HTTP_PROXY", "ALL_PROXY"] {
        let before = proxy.seen().len();
        let output = check(&url, &[(name, format!("http://{}", proxy.address))]);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", text(&output.stderr));
        assert!(text(&output.stdout).contains("through a proxy"), "{name}: {}", text(&output.stdout));
        let seen = proxy.seen().split_off(before);
        for asked in ["GET http://HOST/v1/models ", "POST http://HOST/v1/chat/completions ", "GET http://HOST/metrics "]
        {
            let asked = asked.replace("HOST", ELSEWHERE);
            assert!(seen.iter().any(|line| line.starts_with(&asked)), "{name}: no {asked}in {seen:?}");
        }
    }
}

#[test]
fn no_proxy_is_asked_for_this_machine_nor_for_names_that_are_excepted() {
    let server = Served::start();
    let proxy = Proxy::start(server.address);
    let through = ("http_proxy", format!("http://{}", proxy.address));
    // Names stand for addresses once, and that is said; either is on this machine.
    for host in ["127.0.0.1", "localhost"] {
        let output = check(&format!("http://{host}:{}", server.address.port()), std::slice::from_ref(&through));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let says = text(&output.stdout);
        assert!(!says.contains("through a proxy"), "{says}");
        assert_eq!(says.contains("its name stands for 127.0.0.1"), host == "localhost", "{says}");
    }
    let output = check(&format!("http://{ELSEWHERE}"), &[through, ("no_proxy", ELSEWHERE.to_owned())]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains(ELSEWHERE), "{}", text(&output.stderr));
    assert_eq!(proxy.seen(), Vec::<String>::new());
}

#[test]
fn a_proxy_that_is_gone_is_one_line_that_names_it() {
    let gone = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("an address");
    let output = check(&format!("http://{ELSEWHERE}"), &[("http_proxy", format!("http://{gone}"))]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let says = text(&output.stderr);
    let first = format!("plimsoll: cannot reach http://{ELSEWHERE} through the proxy {gone}: ");
    assert!(says.starts_with(&first) && says.contains("no_proxy"), "{says}");
}
