//! A place where a script can run and do nothing but be recorded.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(2);

/// Appends its arguments to the log of the run, with an end behind them, in one write. Succeeds now and then, so
/// that every branch is taken and every loop ends.
const STUB: &str =
    "#!/bin/sh\nprintf '%s\\0' \"${0##*/}\" \"$@\" /end/ >> \"$ORACLE_LOG\"\nexit $(($$ & 1))\n";

/// Every word of the generators is a program: a word that one shell takes for a command is seen.
pub(crate) const PROGRAMS: &[&str] = &[
    "alpha",
    "beta",
    "gamma",
    "rm",
    "x",
    "y",
    "E",
    "EE",
    "a",
    "b",
    "ab",
    "1",
    "2",
    "12",
    "cat",
    "more",
    "in",
    "if",
    "then",
    "else",
    "fi",
    "do",
    "done",
    "case",
    "esac",
    "for",
    "while",
    "until",
    "select",
    "function",
    "coproc",
    "repeat",
    "foreach",
    "end",
    "always",
    "noglob",
    "nocorrect",
    "{",
    "}",
    "!",
    "[[",
    "]]",
    "{}",
    "{a}",
    "x=1",
    "a,b",
    "x+=1",
    "-",
    "--",
    "-p",
    "+",
    "^",
    "@",
    "%",
    ",",
    "a}",
    "{a",
    "$",
    "$x",
    "~",
    "a~",
    "#",
    "a#",
    "x[1]=1",
];

/// What patterns find.
const FILES: &[&str] = &["ab", "xy", "a=b", "{a}", "a b"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shell {
    Bash,
    PosixBash,
    Dash,
    Zsh,
}

impl Shell {
    fn command(self) -> Command {
        let (names, options): (&[&str], &[&str]) = match self {
            Self::Bash => (&["/bin/bash", "/usr/bin/bash"], &["--norc", "--noprofile"]),
            Self::PosixBash => (&["/bin/bash", "/usr/bin/bash"], &["--posix", "--norc", "--noprofile"]),
            Self::Dash => (&["/bin/dash", "/usr/bin/dash"], &[]),
            Self::Zsh => (&["/bin/zsh", "/usr/bin/zsh"], &["-f"]),
        };
        let found = names.iter().find(|name| Path::new(name).exists());
        let program = found.unwrap_or_else(|| panic!("{names:?} is missing: install bash, dash and zsh"));
        let mut command = Command::new(program);
        command.args(options);
        command
    }
}

/// What a shell did with a script.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) calls: Vec<Vec<Vec<u8>>>,
    pub(crate) files: BTreeSet<Vec<u8>>,
    #[expect(dead_code, reason = "a failing test prints it")]
    pub(crate) errors: Vec<u8>,
}

pub(crate) struct Machine {
    place: TempDir,
    runs: u64,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let place = TempDir::new().unwrap();
        let (bin, stub) = (place.path().join("bin"), place.path().join("stub"));
        std::fs::create_dir(&bin).unwrap();
        std::fs::create_dir(place.path().join("home")).unwrap();
        std::fs::write(&stub, STUB).unwrap();
        std::fs::set_permissions(&stub, std::fs::Permissions::from_mode(0o755)).unwrap();
        for program in PROGRAMS {
            symlink(&stub, bin.join(program)).unwrap();
        }
        Self { place, runs: 0 }
    }

    /// Runs a script where nothing but stubs can be called.
    pub(crate) fn run(&mut self, shell: Shell, script: &[u8]) -> Record {
        self.runs += 1;
        let work = self.place.path().join(format!("work{}", self.runs));
        let log = self.place.path().join(format!("log{}", self.runs));
        std::fs::create_dir(&work).unwrap();
        FILES.iter().for_each(|file| std::fs::write(work.join(file), "").unwrap());
        let errors = self.shell(shell, script, &work, &log);
        let record = Record { calls: calls(&log), files: files(&work), errors };
        // Something in the background may still write: the whole place goes in the end.
        let _ = std::fs::remove_dir_all(&work);
        let _ = std::fs::remove_file(&log);
        record
    }

    fn shell(&self, shell: Shell, script: &[u8], work: &Path, log: &PathBuf) -> Vec<u8> {
        let mut command = shell.command();
        command.arg("-c").arg(OsStr::from_bytes(script)).env_clear();
        command.env("PATH", self.place.path().join("bin")).env("HOME", self.place.path().join("home"));
        command.env("ORACLE_LOG", log).env("LC_ALL", "C.UTF-8").current_dir(work).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command.spawn().unwrap())
    }
}

/// Waits until everything that holds an output is gone, but not for ever. Its errors.
fn finish(mut child: Child) -> Vec<u8> {
    let (mut output, mut errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let group = Pid::from_child(&child);
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = errors.read_to_end(&mut text);
        let _ = output.read_to_end(&mut Vec::new());
        text
    });
    let start = Instant::now();
    while !reader.is_finished() && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_micros(200));
    }
    if !reader.is_finished() {
        let _ = kill_process_group(group, Signal::KILL);
    }
    child.wait().unwrap();
    reader.join().unwrap()
}

fn calls(log: &Path) -> Vec<Vec<Vec<u8>>> {
    let bytes = std::fs::read(log).unwrap_or_default();
    let mut calls = Vec::new();
    let mut call = Vec::new();
    for word in bytes.split(|byte| *byte == 0) {
        call.push(word.to_vec());
        if word == b"/end/" {
            call.pop();
            calls.push(std::mem::take(&mut call));
        }
    }
    calls
}

fn files(work: &Path) -> BTreeSet<Vec<u8>> {
    let entries = std::fs::read_dir(work).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_vec());
    names.filter(|name| !FILES.iter().any(|file| file.as_bytes() == name)).collect()
}
