//! Other proxies to compare with: each listens on a port of the loopback and ends with its value.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::arena::Arena;
use crate::Result;

/// The release that `srt.mjs` was written for.
const SRT: &str = "@anthropic-ai/sandbox-runtime@0.0.78";

pub(super) struct Peer {
    pub(super) name: &'static str,
    pub(super) address: String,
    process: Child,
}

impl Peer {
    pub(super) fn tinyproxy(arena: &Arena) -> Result<Self> {
        let port = free_port()?;
        let config = arena.path("tinyproxy.conf");
        let text = format!("Port {port}\nListen 127.0.0.1\nTimeout 600\nMaxClients 200\nLogLevel Critical\n");
        fs::write(&config, text)?;
        Self::start("tinyproxy", port, Command::new("tinyproxy").args(["-d", "-c"]).arg(&config))
    }

    /// Without a cache, a log and a helper: only what passes tunnels.
    pub(super) fn squid(arena: &Arena) -> Result<Self> {
        let port = free_port()?;
        let directory = arena.path("squid");
        fs::create_dir(&directory)?;
        let config = arena.path("squid.conf");
        let at = directory.display();
        let text = format!(
            "http_port 127.0.0.1:{port}\nhttp_access allow all\ncache deny all\naccess_log none\ncache_log /dev/null\n\
             cache_store_log none\npid_filename {at}/pid\ncoredump_dir {at}\nshutdown_lifetime 0 seconds\npinger_enable off\n"
        );
        fs::write(&config, text)?;
        // It gives up being root for a user who must reach its directory.
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777))?;
        Self::start(
            "squid",
            port,
            Command::new("squid").args(["-N", "-n", "ringfencebench", "-f"]).arg(&config),
        )
    }

    /// The proxy of Anthropic's sandbox runtime, started by itself.
    pub(super) fn srt(arena: &Arena) -> Result<Self> {
        let packages = arena.npm("srt", SRT)?;
        let script = packages.join("proxy.mjs");
        fs::write(&script, include_str!("srt.mjs"))?;
        let port_file = arena.path("srt.port");
        let mut process = Command::new("node");
        process.arg(&script).arg(&port_file).current_dir(&packages);
        let mut child = spawned("srt", &mut process)?;
        let port = wait_for("srt", || fs::read_to_string(&port_file).ok()?.trim().parse::<u16>().ok());
        match port {
            Ok(port) => Ok(Self { name: "srt", address: format!("127.0.0.1:{port}"), process: child }),
            Err(error) => {
                let _gone = child.kill();
                let _reaped = child.wait();
                Err(error)
            }
        }
    }

    fn start(name: &'static str, port: u16, command: &mut Command) -> Result<Self> {
        let process = spawned(name, command)?;
        let peer = Self { name, address: format!("127.0.0.1:{port}"), process };
        wait_for(name, || TcpStream::connect(&peer.address).ok())?;
        Ok(peer)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn spawned(name: &str, command: &mut Command) -> Result<Child> {
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(|error| format!("{name}: {error}").into())
}

fn wait_for<T>(name: &str, mut ready: impl FnMut() -> Option<T>) -> Result<T> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(value) = ready() {
            return Ok(value);
        }
        if Instant::now() > deadline {
            return Err(format!("{name} does not listen").into());
        }
        thread::sleep(Duration::from_millis(20));
    }
}
