//! Sessions through the library, by the example program `bench_session` of `ringfence-sandbox`:
//!
//! - `bench_session cold N [masks K]` prints N durations of a cold start that runs `/bin/true`;
//! - `bench_session filtered N` the same with the filtered network, without a proxy behind its doors;
//! - `bench_session warm N` starts one session and prints N durations of `/bin/true` in it;
//! - `bench_session idle N` starts one session, prints `ready`, and ends after N seconds.
//!
//! Durations are nanoseconds, one per line.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Instant;

use super::arena::Arena;
use super::measure::{Contender, Probe, interleave, named};
use super::report::{Bound, Report};
use super::start::{bare_and_peers, growth};
use crate::Result;

const PER_TURN: &str = "5";

pub(super) fn run(arena: &Arena, report: &mut Report) -> Result<()> {
    let program = arena.example("ringfence-sandbox", "bench_session")?;
    let own = arena.workspace("own-library")?;
    let session = Session { arena, program: &program, workspace: &own };
    starts(&session, report)?;
    masks(&session, report)?;
    networks(&session, report)?;
    throughput(&session, report)?;
    idle_memory(&session, report)
}

struct Session<'a> {
    arena: &'a Arena,
    program: &'a Path,
    workspace: &'a Path,
}

impl Session<'_> {
    fn contender(&self, name: &str, arguments: &[&str]) -> Contender {
        let invocation = self.arena.invocation(self.program, arguments, self.workspace);
        Contender { name: name.into(), probe: Probe::Reports(invocation) }
    }
}

fn starts(session: &Session<'_>, report: &mut Report) -> Result<()> {
    let arena = session.arena;
    let mut contenders = bare_and_peers(arena)?;
    let warm_floor = arena.workspace("warm-floor")?;
    let zygote = [&warm_floor.display().to_string(), PER_TURN, "/bin/true"];
    let zygote = arena.invocation(&arena.bin("zygote"), &zygote, &warm_floor);
    contenders.push(Contender { name: "C warm floor".into(), probe: Probe::Reports(zygote) });
    contenders.push(session.contender("library cold", &["cold", PER_TURN]));
    contenders.push(session.contender("library warm", &["warm", PER_TURN]));
    let times = interleave(&contenders, arena.effort.rounds(100))?;
    report.table("sessions in the library", &times, &["C floor", "bubblewrap", "C warm floor"]);

    let median = |name: &str| named(&times, name).map(|times| times.median());
    let (cold, warm) = (median("library cold")?, median("library warm")?);
    report.target("library cold / C floor", cold / median("C floor")?, Bound::AtMost(1.3), "x");
    report.target("library cold / bubblewrap", cold / median("bubblewrap")?, Bound::AtMost(0.55), "x");
    report.target("library warm / C warm floor", warm / median("C warm floor")?, Bound::AtMost(1.4), "x");
    report.target("library warm / bare /bin/true", warm / median("bare /bin/true")?, Bound::AtMost(2.0), "x");
    Ok(())
}

fn masks(session: &Session<'_>, report: &mut Report) -> Result<()> {
    let contenders = ["0", "100", "200"]
        .map(|count| session.contender(&format!("{count} masks"), &["cold", PER_TURN, "masks", count]));
    let times = interleave(&contenders, session.arena.effort.rounds(50))?;
    report.table("library cold by number of masks", &times, &["0 masks"]);
    let added = named(&times, "200 masks")?.median() - named(&times, "0 masks")?.median();
    report.target("200 masks add", added, Bound::AtMost(3.0), "ms");
    report.target("growth with masks, second 100 / first 100", growth(&times), Bound::AtMost(1.5), "x");
    Ok(())
}

fn networks(session: &Session<'_>, report: &mut Report) -> Result<()> {
    let contenders = [("none", "cold"), ("filtered", "filtered")]
        .map(|(net, mode)| session.contender(&format!("--net {net}"), &[mode, PER_TURN]));
    let times = interleave(&contenders, session.arena.effort.rounds(50))?;
    report.table("library cold by network", &times, &["--net none"]);
    let added = named(&times, "--net filtered")?.median() - named(&times, "--net none")?.median();
    report.target("filtered network adds", added, Bound::AtMost(3.0), "ms");
    Ok(())
}

/// Two processes at once, because the targets are for two cores.
fn throughput(session: &Session<'_>, report: &mut Report) -> Result<()> {
    for (mode, count, wanted) in [("cold", 200, 250.0), ("warm", 1500, 1500.0)] {
        let count = session.arena.effort.rounds(count);
        let invocation =
            session.arena.invocation(session.program, &[mode, &count.to_string()], session.workspace);
        let start = Instant::now();
        let both: Vec<Child> =
            (0..2).map(|_| invocation.command().spawn()).collect::<std::io::Result<_>>()?;
        for mut child in both {
            let status = child.wait()?;
            if !status.success() {
                return Err(format!("bench_session {mode} {count}: {status}").into());
            }
        }
        let rate = 2.0 * count as f64 / start.elapsed().as_secs_f64();
        report.target(&format!("{mode} starts per second, two at once"), rate, Bound::AtLeast(wanted), "/s");
    }
    Ok(())
}

fn idle_memory(session: &Session<'_>, report: &mut Report) -> Result<()> {
    let invocation = session.arena.invocation(session.program, &["idle", "2"], session.workspace);
    let mut child = invocation.command().stdout(Stdio::piped()).spawn()?;
    let measured = pss_when_ready(&mut child);
    child.wait()?;
    report.target("idle session, PSS", measured?, Bound::AtMost(1.5), "MB");
    Ok(())
}

fn pss_when_ready(child: &mut Child) -> Result<f64> {
    let output = child.stdout.take().ok_or("no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    if line.trim() != "ready" {
        return Err(format!("bench_session idle said `{}`", line.trim()).into());
    }
    let mut kilobytes = 0;
    for pid in descendants(child.id())? {
        kilobytes += pss_kilobytes(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?);
    }
    if kilobytes == 0 { Err("the session has no processes".into()) } else { Ok(kilobytes as f64 / 1000.0) }
}

fn descendants(pid: u32) -> Result<Vec<u32>> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let mut found = Vec::new();
    for child in children.split_whitespace() {
        let child = child.parse()?;
        found.push(child);
        found.extend(descendants(child)?);
    }
    Ok(found)
}

fn pss_kilobytes(rollup: &str) -> u64 {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pss_is_read_from_the_rollup() {
        assert_eq!(pss_kilobytes("Rss:  900 kB\nPss:                 123 kB\nPss_Dirty: 4 kB\n"), 123);
        assert_eq!(pss_kilobytes(""), 0);
    }
}
