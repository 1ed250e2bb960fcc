//! The proxy of a filtered session, by the example `bench_egress` of `ringfence-egress`, beside no proxy and the proxies of others;
//! and what it adds to the start of a program.

use std::path::Path;
use std::process::Stdio;

use super::arena::Arena;
use super::measure::{Contender, Probe, Times, interleave, named};
use super::proxies::Peer;
use super::report::{Bound, Report};
use super::start::process;
use crate::{Result, command};

const REQUESTS: &str = "1000";
const PINGS: &str = "2000";
const FLOWS: &str = "100";
const BULK: &str = "100000000";
const IDLE: &str = "5000";
/// Where the way to the server goes among the arguments.
const VIA: &str = "VIA";

pub(super) fn run(arena: &Arena, report: &mut Report) -> Result<()> {
    let program = arena.example("ringfence-egress", "bench_egress")?;
    let mut peers = vec![Peer::tinyproxy(arena)?, Peer::srt(arena)?];
    if Path::new("/usr/sbin/squid").exists() {
        peers.push(Peer::squid(arena)?);
    } else {
        println!("without squid, which is not installed");
    }
    passing(arena, report, (&program, &peers))?;
    let idle = arena.invocation(&program, &["idle", IDLE], &arena.path("home"));
    let grown = command::output_of(idle.command().stdout(Stdio::piped()))?;
    let grown = grown.trim().parse::<f64>()? / 1024.0;
    report.target("memory of 5000 idle tunnels", grown, Bound::AtMost(200.0), "MB");
    starting(arena, report)
}

/// Latency and throughput. Everybody takes part in one run.
fn passing(arena: &Arena, report: &mut Report, (program, peers): (&Path, &[Peer])) -> Result<()> {
    let measured = |arguments: &[&str], ways: &[&str]| {
        let own = ways.iter().map(|way| (*way, *way));
        let others = peers.iter().map(|peer| (peer.name, peer.address.as_str()));
        let contenders: Vec<Contender> = own
            .chain(others)
            .map(|(name, via)| {
                let words: Vec<&str> =
                    arguments.iter().map(|word| if *word == VIA { via } else { word }).collect();
                let probe = Probe::Reports(arena.invocation(program, &words, &arena.path("home")));
                Contender { name: name.to_owned(), probe }
            })
            .collect();
        interleave(&contenders, arena.effort.rounds(20))
    };
    let tunnelled = ["direct", "tunnel"];
    let requests = measured(&["request", VIA, REQUESTS], &["direct", "tunnel", "inspect"])?;
    report.table("a request over TLS for 1 kB", &requests, &["direct"]);
    let pings = measured(&["ping", VIA, PINGS], &tunnelled)?;
    report.table("64 bytes there and back over one connection", &pings, &["direct"]);
    let flows = measured(&["flow", VIA, FLOWS], &tunnelled)?;
    report.table("a connection, 64 bytes there and back, its end", &flows, &["direct"]);
    let bulk = measured(&["bulk", VIA, BULK, "1"], &tunnelled)?;
    report.table("100 MB from the server", &bulk, &["direct"]);

    let mut added = |name: &str, times: &[Times], way: &str, most: f64| -> Result<()> {
        let added = (named(times, way)?.median() - named(times, "direct")?.median()) * 1000.0;
        report.target(name, added, Bound::AtMost(most), "us");
        Ok(())
    };
    added("tunnel adds to a request, median", &requests, "tunnel", 150.0)?;
    added("inspection adds to a request, median", &requests, "inspect", 400.0)?;
    added("tunnel adds to an exchange, median", &pings, "tunnel", 150.0)?;
    added("tunnel adds to a new flow, median", &flows, "tunnel", 1000.0)?;
    let speed = named(&bulk, "direct")?.median() / named(&bulk, "tunnel")?.median();
    report.target("tunnel / direct throughput, 100 MB", speed, Bound::AtLeast(0.7), "x");
    Ok(())
}

/// What the filtered network adds to a whole run.
fn starting(arena: &Arena, report: &mut Report) -> Result<()> {
    let ringfence = arena.ringfence()?;
    let workspace = arena.workspace("filtered")?;
    let run = |net: &str| arena.invocation(&ringfence, &["run", "--net", net, "--", "/bin/true"], &workspace);
    let contenders = ["none", "filtered"].map(|net| process(&format!("--net {net}"), run(net)));
    let times = interleave(&contenders, arena.effort.rounds(200))?;
    report.table("ringfence run -- /bin/true", &times, &["--net none"]);
    let added = named(&times, "--net filtered")?.median() - named(&times, "--net none")?.median();
    report.target("the filtered network adds to a start, median", added, Bound::AtMost(3.0), "ms");
    Ok(())
}
