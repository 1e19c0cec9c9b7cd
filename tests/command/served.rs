//! `plimsoll sim` in real time, for the tests that need a server.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

/// The stand-in, ended when dropped.
pub struct Served {
    child: Child,
    /// Where it listens: a port of the system's choice.
    pub address: SocketAddr,
}

impl Served {
    /// The stand-in with the profile of the quickstart.
    pub fn start() -> Served {
        let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["sim", "--profile", "quickstart", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.find_map(|l| l.ok()?.split("http://").nth(1)?.split_whitespace().next()?.parse().ok());
        std::thread::spawn(move || lines.for_each(drop));
        Served { child, address: address.unwrap() }
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
