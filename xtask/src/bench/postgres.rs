//! The ledger on PostgreSQL, by the example program `bench_postgres` of `ringfence-ledger`, against a plain `INSERT` with its
//! commit on the same server. The server is started here, without a port, with everything on disk that a commit promises.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::arena::Arena;
use super::measure::{Contender, Probe, interleave, named};
use super::report::{Bound, Report};
use crate::{Result, command};

const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
const NOBODY: u32 = 65_534;
const PER_TURN: &str = "20";
const TOGETHER: usize = 960;

/// Ends the server when its input ends, however this program does.
const GUARD: &str = r#"
    "$1"/postgres -D "$2/data" -c unix_socket_directories="$2" -c listen_addresses= </dev/null >"$2/log" 2>&1 &
    echo $!
    read -r word
    kill -QUIT $!
    wait $!
"#;

pub(super) fn run(arena: &Arena, report: &mut Report) -> Result<()> {
    let program = arena.example("ringfence-ledger", "bench_postgres")?;
    let server = Server::start()?;
    let url = server.url();
    let state = arena.path("state").join("node").display().to_string();
    single(arena, &program, [&url, &state], report)?;
    many(arena, &program, [&url, &state], report)
}

fn single(arena: &Arena, program: &Path, [url, state]: [&str; 2], report: &mut Report) -> Result<()> {
    let home = arena.path("home");
    let contender = |name: &str, arguments: &[&str]| Contender {
        name: name.into(),
        probe: Probe::Reports(arena.invocation(program, arguments, &home)),
    };
    let contenders = [
        contender("plain INSERT, commit", &["insert", url, PER_TURN]),
        contender("append to the ledger", &["append", url, state, PER_TURN]),
    ];
    let times = interleave(&contenders, arena.effort.rounds(60))?;
    report.table("PostgreSQL, one row of 1 kB", &times, &["plain INSERT, commit"]);
    let ratio =
        named(&times, "append to the ledger")?.median() / named(&times, "plain INSERT, commit")?.median();
    report.target("PostgreSQL append / plain INSERT and commit", ratio, Bound::AtMost(1.5), "x");
    Ok(())
}

/// Threads of one process share commits.
fn many(arena: &Arena, program: &Path, [url, state]: [&str; 2], report: &mut Report) -> Result<()> {
    let home = arena.path("home");
    let count = TOGETHER.to_string();
    let contender = |threads: &str| Contender {
        name: format!("{threads} threads"),
        probe: Probe::Reports(arena.invocation(program, &["threads", url, state, &count, threads], &home)),
    };
    let times = interleave(&[contender("1"), contender("32")], arena.effort.rounds(10))?;
    report.table(&format!("PostgreSQL, {TOGETHER} events"), &times, &["1 threads"]);
    let gain = named(&times, "1 threads")?.median() / named(&times, "32 threads")?.median();
    report.target("PostgreSQL, events/s of 32 writers / of 1", gain, Bound::AtLeast(8.0), "x");
    Ok(())
}

struct Server {
    directory: tempfile::TempDir,
    guard: Child,
}

impl Server {
    fn start() -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("ringfence-bench-pg.").tempdir_in("/var/tmp")?;
        if is_root() {
            chown(directory.path(), Some(NOBODY), Some(NOBODY))?;
        }
        let mut initialise = as_ordinary_user(&format!("{PROGRAMS}/initdb"));
        initialise.arg("--pgdata").arg(directory.path().join("data")).stdout(Stdio::null());
        initialise.args(["--username=owner", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"]);
        command::must_succeed(&mut initialise)?;
        let mut shell = as_ordinary_user("/bin/sh");
        shell.args(["-c", GUARD, "guard", PROGRAMS]).arg(directory.path());
        let mut guard = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(guard.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let server = Self { directory, guard };
        server.wait()?;
        Ok(server)
    }

    fn wait(&self) -> Result<()> {
        let begun = Instant::now();
        let mut ready = Command::new(format!("{PROGRAMS}/pg_isready"));
        ready.arg("--quiet").arg("--host").arg(self.directory.path());
        while !ready.status()?.success() {
            if begun.elapsed() > Duration::from_secs(30) {
                let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
                return Err(format!("the server does not start: {log}").into());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn url(&self) -> String {
        format!("postgres://owner@/postgres?host={}", self.directory.path().display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // The directory goes after it, and not before the server has let go of it.
        let _ended = self.guard.wait();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The server refuses to run as root.
fn as_ordinary_user(program: &str) -> Command {
    let mut command = if is_root() {
        let mut command = Command::new("/usr/bin/setpriv");
        command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".into()]);
        command.arg(program);
        command
    } else {
        Command::new(program)
    };
    command.env_clear().envs([("PATH", "/usr/bin:/bin"), ("LC_ALL", "C.UTF-8")]).current_dir("/");
    command
}
