//! The ledger through the library, by the example program `bench_ledger` of `ringfence-ledger`; it says what its modes are.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::arena::Arena;
use super::measure::{Contender, Probe, interleave, named};
use super::report::{Bound, Report};
use super::{Effort, Result};

pub(super) fn run(arena: &Arena, report: &mut Report) -> Result<()> {
    let program = arena.example("ringfence-ledger", "bench_ledger")?;
    let bench = Bench { arena, program: &program };
    writing(&bench, report)?;
    let (small, large) = match arena.effort {
        Effort::Full => (250_000, 1_000_000),
        Effort::Quick => (10_000, 40_000),
    };
    let long = bench.filled("ledger-large", large)?;
    reading(&bench, &long, report)?;
    verifying(&bench, (&long, large), small, report)
}

struct Bench<'a> {
    arena: &'a Arena,
    program: &'a Path,
}

impl Bench<'_> {
    fn contender(&self, name: &str, mode: &str, directory: &Path, rest: &[&str]) -> Contender {
        let directory = directory.display().to_string();
        let arguments: Vec<&str> = [mode, &directory].into_iter().chain(rest.iter().copied()).collect();
        let invocation = self.arena.invocation(self.program, &arguments, &self.arena.path("home"));
        Contender { name: name.to_owned(), probe: Probe::Reports(invocation) }
    }

    fn place(&self, name: &str) -> Result<PathBuf> {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.arena.path(name);
        std::fs::create_dir_all(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))?;
        Ok(path)
    }

    /// A ledger of `records` events of 1 kB.
    fn filled(&self, name: &str, records: usize) -> Result<PathBuf> {
        let path = self.place(name)?;
        let arguments = ["fill", &path.display().to_string(), &records.to_string()];
        let invocation = self.arena.invocation(self.program, &arguments, &path);
        let status = invocation.command().stdout(Stdio::null()).status()?;
        if status.success() { Ok(path) } else { Err(format!("bench_ledger fill: {status}").into()) }
    }
}

fn writing(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let place = |name| bench.place(name);
    let contenders = [
        bench.contender("bare write + fdatasync", "bare", &place("ledger-bare")?, &["20"]),
        bench.contender("append", "append", &place("ledger-append")?, &["20"]),
        bench.contender("append while somebody reads", "scanned", &place("ledger-scanned")?, &["20"]),
        bench.contender("per event, 1 thread", "threads", &place("ledger-one")?, &["1", "32"]),
        bench.contender("per event, 32 threads", "threads", &place("ledger-many")?, &["32", "10"]),
        bench.contender("open", "open", &place("ledger-append")?, &["10"]),
    ];
    let times = interleave(&contenders, bench.arena.effort.rounds(50))?;
    report.table("durable appends of 1 kB", &times, &["bare write + fdatasync", "append"]);
    let median = |name: &str| named(&times, name).map(|times| times.median());
    let append = median("append")?;
    report.target(
        "append / bare write + fdatasync",
        append / median("bare write + fdatasync")?,
        Bound::AtMost(2.0),
        "x",
    );
    let gain = median("per event, 1 thread")? / median("per event, 32 threads")?;
    report.target("events per second, 32 threads / 1", gain, Bound::AtLeast(8.0), "x");
    let beside = median("append while somebody reads")? / append;
    report.target("append while somebody reads / append", beside, Bound::AtMost(1.5), "x");
    Ok(())
}

fn reading(bench: &Bench<'_>, long: &Path, report: &mut Report) -> Result<()> {
    let questions = ["tail", "show", "kind", "session", "since", "today"];
    let contenders = questions.map(|question| bench.contender(question, question, long, &["5"]));
    let times = interleave(&contenders, bench.arena.effort.rounds(30))?;
    report.table("questions to a long ledger", &times, &[]);
    for times in &times {
        // To count a day is to look at every entry of it in an index.
        let most = if times.name == "today" { 300.0 } else { 50.0 };
        report.target(&format!("{} on a long ledger", times.name), times.median(), Bound::AtMost(most), "ms");
    }
    Ok(())
}

fn verifying(
    bench: &Bench<'_>,
    (long, large): (&Path, usize),
    small: usize,
    report: &mut Report,
) -> Result<()> {
    let short = bench.filled("ledger-small", small)?;
    let contenders =
        [bench.contender("short", "verify", &short, &[]), bench.contender("long", "verify", long, &[])];
    let times = interleave(&contenders, bench.arena.effort.rounds(10).min(5))?;
    report.table("verify", &times, &["short"]);
    let rate = |name: &str, records: usize| -> Result<f64> {
        Ok(records as f64 / (named(&times, name)?.median() / 1000.0))
    };
    let (slow, fast) = (rate("long", large)?, rate("short", small)?);
    report.target("verified events per second and core", slow, Bound::AtLeast(200_000.0), "/s");
    report.target("rate of verify, short ledger / long one", fast / slow, Bound::AtMost(1.3), "x");
    Ok(())
}
