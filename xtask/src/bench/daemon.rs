//! A daemon of its own, called by the example program `bench_daemon` of `ringfence-client`; it says what its modes are.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::arena::Arena;
use super::measure::{Contender, Probe, interleave, named};
use super::report::{Bound, Report};
use crate::Result;

const BARE: &str = "bare fork + exec";
const CALL: &str = "a call in a warm session";
const MANY: &str = "per call, 8 clients at once";
/// Issue 7.
const MOST_ADDED_MS: f64 = 3.0;
const LEAST_CALLS_PER_S: f64 = 300.0;
const MOST_IDLE_MB: f64 = 30.0;
const AT_ONCE: usize = 200;
const SUBSCRIBERS: usize = 1000;
const NONSENSE_PER_S: f64 = 10_000.0;
/// "Others keep their p99": noise on two cores, and no more.
const MOST_SLOWER: f64 = 2.0;

pub(super) fn run(arena: &Arena, report: &mut Report) -> Result<()> {
    let program = arena.example("ringfence-client", "bench_daemon")?;
    let served = Served::new(arena, &program)?;
    report.target("idle daemon, RSS", served.resident()?, Bound::AtMost(MOST_IDLE_MB), "MB");
    calls(&served, report)?;
    at_once(&served, report)?;
    nonsense(&served, report)?;
    sessions(&served, report)?;
    subscribers(&served, report)?;
    served.end()
}

/// Authenticated, judged, written down twice, run, answered.
fn calls(served: &Served<'_>, report: &mut Report) -> Result<()> {
    let bare = served.arena.invocation(served.program, &["bare", "20"], &served.workspace);
    let contenders = [
        Contender { name: BARE.into(), probe: Probe::Reports(bare) },
        Contender { name: "two fsyncs".into(), probe: Probe::TwoFsyncs(served.arena.path("state")) },
        served.contender(CALL, "calls", &["20"]),
        served.contender(MANY, "many", &["8", "25"]),
    ];
    let times = interleave(&contenders, served.arena.effort.rounds(40))?;
    report.table("calls of a daemon", &times, &[BARE, "two fsyncs"]);
    let (bare, call) = (named(&times, BARE)?, named(&times, CALL)?);
    report.target(
        "call - bare fork + exec, p50",
        call.median() - bare.median(),
        Bound::AtMost(MOST_ADDED_MS),
        "ms",
    );
    report.target(
        "call - bare fork + exec, p99",
        call.p99() - bare.p99(),
        Bound::AtMost(4.0 * MOST_ADDED_MS),
        "ms",
    );
    let rate = 1000.0 / named(&times, MANY)?.median();
    report.target("calls per second, 8 clients at once", rate, Bound::AtLeast(LEAST_CALLS_PER_S), "/s");
    Ok(())
}

/// Two hundred calls that are all under way at the same time, and all answered.
fn at_once(served: &Served<'_>, report: &mut Report) -> Result<()> {
    let took = served.times("at-once", &[&AT_ONCE.to_string()])?.as_secs_f64() * 1000.0;
    report.target(&format!("{AT_ONCE} calls under way at once"), took, Bound::AtMost(20_000.0), "ms");
    Ok(())
}

/// What calls cost others while one client sends nothing but nonsense.
fn nonsense(served: &Served<'_>, report: &mut Report) -> Result<()> {
    const BEFORE: &str = "a call, nobody else";
    const BESIDE: &str = "a call, beside 10000 bad frames/s";
    let rounds = served.arena.effort.rounds(20);
    let mut times = interleave(&[served.contender(BEFORE, "calls", &["50"])], rounds)?;
    let seconds = served.arena.effort.rounds(60);
    let count = (NONSENSE_PER_S as usize * seconds).to_string();
    let socket = served.socket.display().to_string();
    let arguments = ["nonsense", &socket, &count];
    let sends = served.arena.invocation(served.program, &arguments, &served.workspace);
    let mut sends = sends.command().stdout(Stdio::piped()).spawn()?;
    let beside = interleave(&[served.contender(BESIDE, "calls", &["50"])], rounds);
    let was_beside = sends.try_wait()?.is_none();
    let sent = sends.wait_with_output()?;
    times.extend(beside?);
    if !sent.status.success() || !was_beside {
        return Err(format!("the nonsense ended before what it was to disturb: {}", sent.status).into());
    }
    let nanoseconds: f64 = String::from_utf8(sent.stdout)?.trim().parse()?;
    let rate = count.parse::<f64>()? / nanoseconds * 1e9;
    report.table("calls beside nonsense", &times, &[BEFORE]);
    // What is paced at so many in a second is a little below that.
    report.target("bad frames per second", rate, Bound::AtLeast(0.98 * NONSENSE_PER_S), "/s");
    let slower = named(&times, BESIDE)?.p99() / named(&times, BEFORE)?.p99();
    report.target("p99 of a call beside bad frames / without", slower, Bound::AtMost(MOST_SLOWER), "");
    Ok(())
}

/// A thousand sessions made, used once and stopped: what is left of them.
fn sessions(served: &Served<'_>, report: &mut Report) -> Result<()> {
    let most = served.arena.effort.rounds(1000);
    // More than are remembered when they are over: what is looked for is what comes on top of those.
    served.times("sessions", &[&(most * 3 / 10).to_string()])?;
    let (resident, descriptors) = (served.resident()?, served.descriptors()?);
    let times = served.times("sessions", &[&most.to_string()])?;
    report.target(
        "sessions made, used and stopped per second",
        most as f64 / times.as_secs_f64(),
        Bound::AtLeast(20.0),
        "/s",
    );
    let grown = served.resident()? - resident;
    report.target(&format!("memory left of {most} sessions"), grown, Bound::AtMost(8.0), "MB");
    let left = served.descriptors()?.saturating_sub(descriptors);
    report.target(&format!("descriptors left of {most} sessions"), left as f64, Bound::AtMost(8.0), "");
    let doors = fs::read_dir(served.socket.with_extension("sessions"))?.count();
    report.target(&format!("directories left of {most} sessions"), doors as f64, Bound::AtMost(0.0), "");
    Ok(())
}

/// Half of them do not read; what is kept for those is bounded.
fn subscribers(served: &Served<'_>, report: &mut Report) -> Result<()> {
    let resident = served.resident()?;
    let said = served.says("subscribers", &[&SUBSCRIBERS.to_string()])?;
    let [took, dropped] = said.as_slice() else {
        return Err("the subscribers did not say what became of them".into());
    };
    report.target("64 events for 500 of 1000 subscribers", took / 1e6, Bound::AtMost(10_000.0), "ms");
    let silent = (SUBSCRIBERS / 2) as f64;
    report.target("subscribers that were dropped for not reading", *dropped, Bound::AtLeast(silent), "");
    let grown = served.resident()? - resident;
    report.target("memory that 1000 subscribers left", grown, Bound::AtMost(64.0), "MB");
    report.target("most memory in all of this", served.peak()?, Bound::AtMost(192.0), "MB");
    Ok(())
}

struct Served<'a> {
    arena: &'a Arena,
    program: &'a Path,
    child: Child,
    socket: PathBuf,
    workspace: PathBuf,
}

impl<'a> Served<'a> {
    fn new(arena: &'a Arena, program: &'a Path) -> Result<Self> {
        let workspace = arena.workspace("served")?;
        let socket = arena.path("run").join("daemon.sock");
        let place = socket.display().to_string();
        let invocation = arena.invocation(&arena.ringfence()?, &["serve", "--socket", &place], &workspace);
        let child = invocation.command().stderr(Stdio::null()).spawn()?;
        let mut served = Self { arena, program, child, socket, workspace };
        let begun = Instant::now();
        while UnixStream::connect(&served.socket).is_err() {
            if served.child.try_wait()?.is_some() || begun.elapsed() > Duration::from_secs(60) {
                return Err("the daemon does not serve".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(served)
    }

    fn contender(&self, name: &str, mode: &str, rest: &[&str]) -> Contender {
        Contender { name: name.to_owned(), probe: Probe::Reports(self.invocation(mode, rest)) }
    }

    fn invocation(&self, mode: &str, rest: &[&str]) -> super::measure::Invocation {
        let (socket, workspace) = (self.socket.display().to_string(), self.workspace.display().to_string());
        let arguments: Vec<&str> =
            [mode, &socket, &workspace].into_iter().chain(rest.iter().copied()).collect();
        self.arena.invocation(self.program, &arguments, &self.workspace)
    }

    /// How long a mode takes as a whole.
    fn times(&self, mode: &str, rest: &[&str]) -> Result<Duration> {
        let begun = Instant::now();
        let status = self.invocation(mode, rest).command().status()?;
        if status.success() {
            Ok(begun.elapsed())
        } else {
            Err(format!("bench_daemon {mode}: {status}").into())
        }
    }

    /// The numbers that a mode prints.
    fn says(&self, mode: &str, rest: &[&str]) -> Result<Vec<f64>> {
        let output =
            self.invocation(mode, rest).command().stdout(Stdio::piped()).stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(format!("bench_daemon {mode}: {}", output.status).into());
        }
        let numbers = String::from_utf8(output.stdout)?;
        numbers.lines().map(|line| Ok(line.parse::<f64>()?)).collect()
    }

    fn resident(&self) -> Result<f64> {
        self.memory("VmRSS:")
    }

    fn peak(&self) -> Result<f64> {
        self.memory("VmHWM:")
    }

    /// Megabytes.
    fn memory(&self, field: &str) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)).ok_or("no such field")?;
        let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kilobytes / 1000.0)
    }

    fn descriptors(&self) -> Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.child.id()))?.count())
    }

    fn end(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the daemon ended with {status}").into()) }
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        // Of a run that failed; one that was ended is gone already.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}
