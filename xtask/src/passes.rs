//! Running every test program as root and as an ordinary user.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::stage::Stage;
use crate::testing::TestExecutable;
use crate::unsteady::Outcome;
use crate::{Result, command, hung, unsteady};

const USER: &str = "ringfence-test";
/// For one program.
const TIME_LIMIT: Duration = Duration::from_secs(1500);
/// How long a program may print nothing: no test takes half of it.
const SILENCE_LIMIT: Duration = Duration::from_secs(300);
/// Set it to draw other cases; `PROPTEST_CASES` with `cargo test` draws more.
const SEED: &str = "PROPTEST_RNG_SEED";
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum As {
    Root,
    User,
}

impl As {
    pub(crate) fn parse(word: &str) -> Result<Self> {
        let found = [Self::Root, Self::User].into_iter().find(|who| who.word() == word);
        found.ok_or_else(|| format!("`{word}` is neither `root` nor `user`").into())
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::User => "user",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
    /// Of those that passed: failed beside others, passed alone.
    pub(crate) unsteady: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.unsteady += other.unsteady;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        for (number, what) in [(self.ignored, "ignored"), (self.unsteady, "unsteady")] {
            if number > 0 {
                write!(f, ", {number} {what}")?;
            }
        }
        Ok(())
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs each program and shows the output of those that fail. `only` is a part of the names of the tests to run.
pub(crate) fn run(
    stage: &Stage,
    executables: &[TestExecutable],
    who: As,
    only: Option<&str>,
) -> Result<Tally> {
    let places = Places::new(stage, who)?;
    let before = names_in(Path::new("/"))?;
    let mut total = Tally::default();
    for (test, program) in executables.iter().zip(&stage.programs) {
        let start = Instant::now();
        let run = Run { places: &places, stage, program, test };
        let first = run.of(only.as_slice())?;
        let took = start.elapsed().as_secs_f64();
        println!("{:<5} {:<44} {} in {took:.1}s", who.word(), test.name, first.tally);
        if first.tally.failed > 0 {
            println!("{}", first.output);
        }
        total.add(unsteady::look_again(first, &test.name, |name| Ok(run.of(&["--exact", name])?.tally))?);
    }
    for left in names_in(Path::new("/"))?.difference(&before) {
        println!("FAILED: a test has made `/{}` on this machine", left.display());
        total.failed += 1;
    }
    Ok(total)
}

fn names_in(directory: &Path) -> Result<BTreeSet<OsString>> {
    fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect()
}

/// Directories of one pass, owned by whoever runs it.
struct Places {
    who: As,
    home: PathBuf,
    tmp: PathBuf,
    log: PathBuf,
}

impl Places {
    fn new(stage: &Stage, who: As) -> Result<Self> {
        let base = stage.path().join(who.word());
        let places = Self { who, home: base.join("home"), tmp: base.join("tmp"), log: base.join("log") };
        let owner = if who == As::User && is_root() { Some(ordinary_user()?) } else { None };
        fs::create_dir(&base)?;
        fs::set_permissions(&base, fs::Permissions::from_mode(0o755))?;
        // A temporary directory can be passed through by others, as /tmp can: some tests become another user.
        for (directory, mode) in [(&places.home, 0o700), (&places.tmp, 0o755)] {
            fs::create_dir(directory)?;
            fs::set_permissions(directory, fs::Permissions::from_mode(mode))?;
            if let Some((uid, gid)) = owner {
                chown(directory, Some(uid), Some(gid))?;
            }
        }
        Ok(places)
    }
}

/// The ids of the test user, who is made on first use and stays. A real entry in the password file, because
/// programs under test look themselves up there.
fn ordinary_user() -> Result<(u32, u32)> {
    if let Some(ids) = lookup(&fs::read_to_string("/etc/passwd")?) {
        return Ok(ids);
    }
    command::must_succeed(Command::new("useradd").args([
        "--system",
        "--user-group",
        "--no-create-home",
        "--home-dir",
        "/nonexistent",
        "--shell",
        "/bin/sh",
        USER,
    ]))?;
    lookup(&fs::read_to_string("/etc/passwd")?).ok_or_else(|| format!("user {USER} could not be made").into())
}

fn lookup(passwd: &str) -> Option<(u32, u32)> {
    let line = passwd.lines().find(|line| line.split(':').next() == Some(USER))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// One test program in one pass.
struct Run<'a> {
    places: &'a Places,
    stage: &'a Stage,
    program: &'a Path,
    test: &'a TestExecutable,
}

impl Run<'_> {
    /// Runs all of its tests, or those that the arguments choose.
    fn of(&self, chosen: &[&str]) -> Result<Outcome> {
        let log = File::create(&self.places.log)?;
        let mut command = self.command(chosen);
        command.stdout(log.try_clone()?).stderr(log);
        let (ended, tree) = wait(command.spawn()?, || Ok(fs::metadata(&self.places.log)?.len()))?;
        let mut output = String::from_utf8_lossy(&fs::read(&self.places.log)?).into_owned();
        match ended {
            Ended::Well | Ended::Badly => {
                let mut outcome = Outcome::of(output);
                if ended == Ended::Badly && outcome.tally.failed == 0 {
                    outcome.tally.failed = 1;
                    outcome.output.push_str(&format!("\n{}: ended badly\n", self.test.name));
                }
                Ok(outcome)
            }
            Ended::Hung => {
                output.push_str(&format!("\n{}: it hung and was ended\n{tree}", self.test.name));
                let listed = command::output_of(self.command(chosen).arg("--list"))?;
                Ok(Outcome::of_hung(output, &listed))
            }
        }
    }

    fn command(&self, chosen: &[&str]) -> Command {
        let Self { places, stage, program, test } = *self;
        let mut command = test_command(places, program);
        command
            .arg(format!("--test-threads={}", test.threads()))
            .args(chosen)
            .current_dir(stage.source(&test.directory))
            .env("CARGO_MANIFEST_DIR", stage.source(&test.directory))
            .env("RINGFENCE_TEST_TOOLCHAIN", &stage.toolchain)
            .env("RINGFENCE_TEST_BIN", &stage.binary)
            .env("CARGO_BIN_EXE_ringfence", &stage.binary)
            .stdin(Stdio::null())
            .process_group(0);
        if let Some(agents) = &stage.agents {
            command.env("RINGFENCE_TEST_AGENTS", agents);
        }
        command
    }
}

/// The test program under an environment that has nothing of the developer's in it.
fn test_command(places: &Places, program: &Path) -> Command {
    let mut command = if places.who == As::User && is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    let user = match (places.who, is_root()) {
        (As::Root, _) => "root".into(),
        (As::User, true) => USER.into(),
        (As::User, false) => std::env::var_os("USER").unwrap_or_default(),
    };
    command
        .env_clear()
        .env("PATH", SYSTEM_PATH)
        .env("HOME", &places.home)
        .env("TMPDIR", &places.tmp)
        .env("USER", user)
        .env("LANG", "C.UTF-8")
        .env("RUST_BACKTRACE", "1")
        // The same cases in every run: a gate that draws anew each time fails those who changed nothing.
        .env(SEED, std::env::var_os(SEED).unwrap_or_else(|| "1".into()))
        .env("RINGFENCE_TEST_AS", places.who.word());
    command
}

#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Well,
    Badly,
    Hung,
}

/// Waits for a child that leads its own process group. When it takes too long, or `printed` does not grow any more, what there
/// is to see of its processes is returned and the group is killed.
fn wait(mut child: Child, printed: impl Fn() -> Result<u64>) -> Result<(Ended, String)> {
    let start = Instant::now();
    let (mut length, mut heard) = (0, start);
    loop {
        if let Some(status) = child.try_wait()? {
            let ended = if status.success() { Ended::Well } else { Ended::Badly };
            return Ok((ended, String::new()));
        }
        let now = printed()?;
        if now != length {
            (length, heard) = (now, Instant::now());
        }
        if start.elapsed() >= TIME_LIMIT || heard.elapsed() >= SILENCE_LIMIT {
            let tree = hung::describe(child.id());
            end(&mut child)?;
            return Ok((Ended::Hung, tree));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn end(child: &mut Child) -> Result<()> {
    kill_process_group(Pid::from_child(child), Signal::KILL)?;
    child.wait()?;
    Ok(())
}

/// Sums the `test result:` lines of a test program's output.
pub(crate) fn tally_of(output: &str) -> Tally {
    let mut total = Tally::default();
    for line in output.lines().filter_map(|line| line.trim().strip_prefix("test result:")) {
        total.add(Tally {
            passed: number(line, "passed"),
            failed: number(line, "failed"),
            ignored: number(line, "ignored"),
            unsteady: 0,
        });
    }
    total
}

fn number(line: &str, label: &str) -> u64 {
    let words: Vec<&str> = line.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
    let pair = words.windows(2).find(|pair| pair[1] == label);
    pair.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_summed() {
        let output = "test a ... ok\n\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured\n\
                      test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured\n";
        assert_eq!(tally_of(output), Tally { passed: 4, failed: 2, ignored: 1, unsteady: 0 });
        assert_eq!(tally_of("nothing"), Tally::default());
    }

    #[test]
    fn the_user_is_looked_up_by_whole_name() {
        let passwd =
            "root:x:0:0::/:/bin/sh\nringfence-test2:x:1:1::/:/bin/sh\nringfence-test:x:997:996::/:/bin/sh\n";
        assert_eq!(lookup(passwd), Some((997, 996)));
        assert_eq!(lookup("root:x:0:0::/:/bin/sh\n"), None);
    }

    #[test]
    fn a_child_that_hangs_is_killed_with_its_group() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 100 & sleep 100"]).process_group(0);
        let mut child = command.spawn().unwrap();
        let group = Pid::from_child(&child);
        end(&mut child).unwrap();
        let gone = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            rustix::process::test_kill_process_group(group).is_err()
        });
        assert!(gone, "the background sleep outlived its group");
    }

    #[test]
    fn a_child_that_ends_is_judged_by_its_status() {
        let run = |program: &str| wait(Command::new(program).spawn().unwrap(), || Ok(0)).unwrap().0;
        assert_eq!(run("true"), Ended::Well);
        assert_eq!(run("false"), Ended::Badly);
    }
}
