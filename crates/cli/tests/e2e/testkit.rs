//! A small world for each test: a home, a state directory and a workspace of its own, and nothing of the
//! environment of whoever runs the tests.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) use crate::test_timeouts::eventually;
use crate::test_timeouts::{Drain, PATIENCE, command_line, end, joined};

/// The fallback where no namespaces can be made; it does not meet the default floor.
pub(crate) const LANDLOCK: &[&str] =
    &["--backend", "landlock", "--danger", "--danger-required-controls", "limits,env"];

pub(crate) struct World {
    _left: Left,
    pub(crate) root: TempDir,
    pub(crate) home: PathBuf,
    pub(crate) state: PathBuf,
    pub(crate) workspace: PathBuf,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    pub(crate) fn below(directory: &Path) -> Self {
        let root = tempfile::Builder::new().prefix("e2e.").tempdir_in(directory).unwrap();
        let canonical = fs::canonicalize(root.path()).unwrap();
        let [home, state, workspace] = ["home", "state", "w"].map(|name| canonical.join(name));
        for directory in [&home, &state, &workspace] {
            fs::create_dir(directory).unwrap();
        }
        Self { _left: Left { state: state.clone() }, root, home, state, workspace }
    }

    /// `ringfence` in the workspace, with this world's home and state and nothing else.
    pub(crate) fn ringfence(&self) -> Command {
        let mut command = Command::new(binary());
        self.dress(&mut command);
        command.env(SEEDED, seed());
        command
    }

    /// Any other program in the same surroundings: the control of an attempt, or a shell around ringfence.
    pub(crate) fn host(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        self.dress(&mut command);
        command.env("RINGFENCE", binary());
        command
    }

    pub(crate) fn dress(&self, command: &mut Command) {
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", &self.home)
            .env("XDG_STATE_HOME", &self.state)
            .env("LANG", "C.UTF-8")
            .current_dir(&self.workspace);
    }

    /// `ringfence run FLAGS -- COMMAND`, without input.
    pub(crate) fn run(&self, flags: &[&str], command: &[&str]) -> Done {
        finish(self.ringfence().arg("run").args(flags).arg("--").args(command), b"")
    }

    pub(crate) fn sh(&self, script: &str) -> Done {
        self.run(&[], &["sh", "-c", script])
    }

    pub(crate) fn sh_with(&self, flags: &[&str], script: &str) -> Done {
        self.run(flags, &["sh", "-c", script])
    }

    /// The object that `ringfence run --json` prints.
    pub(crate) fn json(&self, flags: &[&str], command: &[&str]) -> Value {
        let done = finish(self.ringfence().args(["run", "--json"]).args(flags).arg("--").args(command), b"");
        let value = done.json();
        assert_eq!(value["schema"], 1, "{value}");
        assert_eq!(
            Some(&Value::from(done.code)),
            value.get("exit_code"),
            "the exit code says the same: {value}"
        );
        value
    }

    pub(crate) fn file(&self, arguments: &[&str], input: &[u8]) -> Done {
        finish(self.ringfence().arg("file").args(arguments), input)
    }

    pub(crate) fn ledger_tool(&self, arguments: &[&str]) -> Done {
        finish(self.ringfence().arg("ledger").args(arguments), b"")
    }

    /// Every record so far, oldest first, without those that the ledger keeps about itself and about sessions.
    pub(crate) fn records(&self) -> Vec<Value> {
        const BESIDE: [&str; 5] =
            ["chain-started", "session-started", "session-ended", "ledger-read", "checkpoint-signed"];
        let mut records = self.all_records();
        records.retain(|record| !BESIDE.iter().any(|kind| record["event"]["kind"] == *kind));
        records
    }

    pub(crate) fn all_records(&self) -> Vec<Value> {
        let done = self.ledger_tool(&["tail", "-n", "100000", "--json"]).expect(0);
        done.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn ledger_path(&self) -> PathBuf {
        self.state.join("ringfence/ledger.db")
    }

    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.workspace.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.workspace.join(path)).ok()
    }

    /// A directory of this world beside the workspace.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        let path = self.home.parent().unwrap().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// git on the host, which must succeed.
    pub(crate) fn git(&self, directory: &Path, arguments: &[&str]) -> String {
        let identity = [
            "-c",
            "user.name=Host",
            "-c",
            "user.email=host@example.test",
            "-c",
            "protocol.file.allow=always",
        ];
        let done = finish(self.host("git").args(identity).args(arguments).current_dir(directory), b"");
        done.expect(0).text()
    }

    /// A repository with one commit as the workspace.
    pub(crate) fn repository(&self) {
        self.write("readme", "one\n");
        self.git(&self.workspace, &["init", "-q", "-b", "main", "."]);
        self.git(&self.workspace, &["add", "readme"]);
        self.git(&self.workspace, &["commit", "-q", "-m", "first"]);
    }
}

/// A variable of everybody who starts ringfence in these tests. What it holds is no business of what runs inside, and nothing
/// that any of them says or leaves has it.
const SEEDED: &str = "SEEDED_ACCESS";

fn seed() -> String {
    ["seeded", "into", "every", "world", "41c7"].join("+")
}

#[track_caller]
fn assert_unseen(what: &str, bytes: &[u8]) {
    assert!(!contains(bytes, seed().as_bytes()), "the seeded secret is in {what}");
}

/// What ringfence leaves of a world.
struct Left {
    state: PathBuf,
}

impl Drop for Left {
    fn drop(&mut self) {
        let mut places = vec![self.state.clone()];
        while let Some(place) = places.pop().filter(|_| !thread::panicking()) {
            // A test may have made it unreadable, or removed it.
            for entry in fs::read_dir(place).into_iter().flatten().flatten() {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => places.push(entry.path()),
                    Ok(kind) if kind.is_file() => {
                        let content = fs::read(entry.path()).unwrap_or_default();
                        assert_unseen(&entry.path().display().to_string(), &content);
                    }
                    _ => {}
                }
            }
        }
    }
}

/// How a program ended and what it said.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
    pub(crate) took: Duration,
}

impl Done {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "signal {:?}\nstdout: {}\nstderr: {}",
            self.signal,
            self.text(),
            self.err
        );
        self
    }

    #[track_caller]
    pub(crate) fn says(self, part: &str) -> Self {
        assert!(self.err.contains(part), "`{part}` is not in: {}\nstdout: {}", self.err, self.text());
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|error| {
            panic!("{error}: exit {:?}\nstdout: {}\nstderr: {}", self.code, self.text(), self.err)
        })
    }
}

/// Runs to the end with `input` on standard input.
#[track_caller]
pub(crate) fn finish(command: &mut Command, input: &[u8]) -> Done {
    finish_within(PATIENCE, command, input)
}

/// The same for what takes longer than anything else.
#[track_caller]
pub(crate) fn finish_within(limit: Duration, command: &mut Command, input: &[u8]) -> Done {
    attempt(limit, command, input).unwrap_or_else(|hung| panic!("{hung}"))
}

/// The same for whoever cleans up and must not fail where the test has failed already: what hung is told instead.
pub(crate) fn attempt(limit: Duration, command: &mut Command, input: &[u8]) -> Result<Done, String> {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // Somebody who does not read closes the pipe, which is their right.
    let feeder = thread::spawn(move || drop(stdin.write_all(&input)));
    let done = collect_within(limit, child)?;
    joined("nobody has what is written to any more", feeder);
    Ok(done)
}

/// Waits for a child; what it says on streams that are pipes is kept.
#[track_caller]
pub(crate) fn collect(child: Child) -> Done {
    collect_within(PATIENCE, child).unwrap_or_else(|hung| panic!("{hung}"))
}

fn collect_within(limit: Duration, mut child: Child) -> Result<Done, String> {
    let start = Instant::now();
    let out = child.stdout.take().map(Drain::of);
    let err = child.stderr.take().map(Drain::of);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > limit {
            let who = command_line(child.id());
            end(&mut child);
            let said = [out, err].map(|stream| stream.map_or_else(Vec::new, |stream| stream.so_far()));
            let [out, err] = said.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            return Err(format!("it hung for {limit:?}: {who}\nstdout: {out}\nstderr: {err}"));
        }
        thread::sleep(Duration::from_millis(2));
    };
    let all = |stream: Option<Drain>| stream.map_or_else(|| Ok(Vec::new()), Drain::all);
    let (out, err) = (all(out)?, all(err)?);
    assert_unseen("standard output", &out);
    assert_unseen("standard error", &err);
    Ok(Done {
        code: status.code(),
        signal: status.signal(),
        out,
        err: String::from_utf8_lossy(&err).into_owned(),
        took: start.elapsed(),
    })
}

pub(crate) fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Processes of the host that have `marker` in their arguments. Those of a sandbox are among them.
pub(crate) fn processes_with(marker: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(arguments) = fs::read(entry.path().join("cmdline")) else { continue };
        if contains(&arguments, marker.as_bytes()) {
            let text = String::from_utf8_lossy(&arguments).replace('\0', " ");
            found.push(format!("{}: {text}", entry.file_name().to_string_lossy()));
        }
    }
    found
}

pub(crate) fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    memchr::memmem::find(haystack, needle).is_some()
}

/// A word that no other process on this machine has among its arguments.
pub(crate) fn marker(world: &World) -> String {
    world.root.path().file_name().unwrap().to_string_lossy().replace('.', "-")
}

/// Whether a control of a posture is one that no command gets past by itself.
pub(crate) fn is_held(level: &Value) -> bool {
    level["level"] == "enforced" || level["gap"] == "bounded"
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[expect(clippy::disallowed_methods, reason = "tests are told where the program under test is")]
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

pub(crate) fn binary() -> PathBuf {
    variable("RINGFENCE_TEST_BIN")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_ringfence")), PathBuf::from)
}

/// By another process: a descriptor of ours that is open for writing could be inherited by what a neighbouring test starts, and
/// the copy could not be executed until that has ended.
pub(crate) fn copy_binary(to: impl AsRef<Path>) {
    finish(Command::new("cp").arg(binary()).arg(to.as_ref()), b"").expect(0);
}

/// Names in a directory, sorted.
pub(crate) fn names(directory: &Path) -> Vec<OsString> {
    let mut names: Vec<OsString> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

/// Writes and makes executable.
pub(crate) fn script(path: &Path, content: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Single quotes for a POSIX shell.
pub(crate) fn quoted(text: impl AsRef<OsStr>) -> String {
    format!("'{}'", text.as_ref().to_str().unwrap().replace('\'', "'\\''"))
}
