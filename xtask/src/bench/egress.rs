//! The proxy of a filtered session, by the example `bench_egress` of `ringfence-egress`, beside no proxy and `tinyproxy`.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::arena::Arena;
use super::measure::{Contender, Probe, interleave, named};
use super::report::{Bound, Report};
use crate::{Result, command};

const PINGS: &str = "2000";
const FLOWS: &str = "100";
const BULK: &str = "100000000";
const IDLE: &str = "5000";

pub(super) fn run(arena: &Arena, report: &mut Report) -> Result<()> {
    let program = arena.example("ringfence-egress", "bench_egress")?;
    let home = arena.path("home");
    let peer = Tinyproxy::start(arena)?;
    let vias = [("direct", "direct"), ("ringfence", "tunnel"), ("tinyproxy", peer.address.as_str())];
    let call = |arguments: &[&str]| arena.invocation(&program, arguments, &home);
    let contenders = |arguments: &[&str]| -> Vec<Contender> {
        let contender = |(name, via): &(&str, &str)| Contender {
            name: (*name).to_owned(),
            probe: Probe::Reports(call(&with_via(arguments, via))),
        };
        vias.iter().map(contender).collect()
    };

    let pings = interleave(&contenders(&["ping", VIA, PINGS]), arena.effort.rounds(20))?;
    report.table("64 bytes there and back over one connection", &pings, &["direct"]);
    let flows = interleave(&contenders(&["flow", VIA, FLOWS]), arena.effort.rounds(20))?;
    report.table("a connection, 64 bytes there and back, its end", &flows, &["direct"]);
    let bulk = interleave(&contenders(&["bulk", VIA, BULK, "1"]), arena.effort.rounds(20))?;
    report.table("100 MB from the server", &bulk, &["direct"]);

    let added = |times: &[_]| -> Result<f64> {
        Ok((named(times, "ringfence")?.median() - named(times, "direct")?.median()) * 1000.0)
    };
    report.target("tunnel adds to an exchange, median", added(&pings)?, Bound::AtMost(150.0), "us");
    report.target("tunnel adds to a new flow, median", added(&flows)?, Bound::AtMost(1000.0), "us");
    let speed = named(&bulk, "direct")?.median() / named(&bulk, "ringfence")?.median();
    report.target("tunnel / direct throughput, 100 MB", speed, Bound::AtLeast(0.7), "x");
    let grown = command::output_of(call(&["idle", IDLE]).command().stdout(Stdio::piped()))?;
    report.target(
        "memory of 5000 idle tunnels",
        grown.trim().parse::<f64>()? / 1024.0,
        Bound::AtMost(200.0),
        "MB",
    );
    Ok(())
}

/// Where the way to the server goes among the arguments.
const VIA: &str = "VIA";

fn with_via<'a>(arguments: &[&'a str], via: &'a str) -> Vec<&'a str> {
    arguments.iter().map(|word| if *word == VIA { via } else { word }).collect()
}

/// A running `tinyproxy`, which ends with this value.
struct Tinyproxy {
    address: String,
    process: Child,
}

impl Tinyproxy {
    fn start(arena: &Arena) -> Result<Self> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let config = arena.path("tinyproxy.conf");
        fs::write(
            &config,
            format!("Port {port}\nListen 127.0.0.1\nTimeout 600\nMaxClients 200\nLogLevel Critical\n"),
        )?;
        let process = Command::new("tinyproxy")
            .args(["-d", "-c"])
            .arg(&config)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("tinyproxy: {error}"))?;
        let running = Self { address: format!("127.0.0.1:{port}"), process };
        running.wait()?;
        Ok(running)
    }

    fn wait(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(&self.address).is_err() {
            if Instant::now() > deadline {
                return Err("tinyproxy does not listen".into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Tinyproxy {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
    }
}
