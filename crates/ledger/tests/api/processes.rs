//! What needs other processes. A test here runs itself again as its child: with `CHILD` set it does the child's part.

use std::fs;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use ringfence_ledger::{AppendError, Ledger, LedgerOpenError, verify};
use rustix::process::{Signal, getpid, kill_process};

use crate::bounded;
use crate::support::{Home, append_many, battery, ids, intent};

pub(crate) const CHILD: &str = "RINGFENCE_LEDGER_TEST_CHILD";

#[expect(clippy::disallowed_methods, reason = "the test tells its own child what to do")]
pub(crate) fn told() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

/// This test binary, to run only `test`, as a child.
pub(crate) fn child(test: &str, path: &Path) -> Command {
    command(std::env::current_exe().unwrap().as_path(), test, path)
}

fn command(program: &Path, test: &str, path: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", "--nocapture", "--test-threads=1", test]);
    command.env(CHILD, path).stdin(Stdio::null());
    command
}

pub(crate) fn assert_success(output: &Output) {
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn what_is_receipted_survives_kill_9() {
    if let Some(path) = told() {
        let ledger = Ledger::open(&path).unwrap();
        let receipt = ledger.append(&intent(&ids())).unwrap();
        fs::write(path.with_file_name("receipt"), format!("{}:{}", receipt.seq(), receipt.hash())).unwrap();
        kill_process(getpid(), Signal::KILL).unwrap();
    }
    let home = Home::with_records(2);
    for killed in 1..=20_u64 {
        let output = bounded::output(&mut child("processes::what_is_receipted_survives_kill_9", &home.path));
        assert_eq!(output.status.signal(), Some(9), "{output:?}");
        let receipt = fs::read_to_string(home.path.with_file_name("receipt")).unwrap();
        let verification = verify(&home.path, None).unwrap();
        assert_eq!(verification.head.unwrap().to_string(), receipt);
        assert_eq!(verification.records, 2 + killed);
        assert_eq!(verification.incomplete.len() as u64, killed);
    }
}

#[test]
fn eight_processes_make_one_chain() {
    if let Some(path) = told() {
        append_many(&Ledger::open(&path).unwrap(), 50);
        return;
    }
    let home = Home::new();
    let spawn = |_| {
        let mut command = child("processes::eight_processes_make_one_chain", &home.path);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..8).map(spawn).collect();
    children.into_iter().for_each(|child| assert_success(&bounded::collected(child)));
    let verification = verify(&home.path, None).unwrap();
    assert_eq!(verification.records, 401 + verification.checkpoints);
}

#[test]
fn threads_make_one_chain() {
    let home = Home::new();
    let shared = home.open();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| append_many(&shared, 25));
            scope.spawn(|| append_many(&home.open(), 25));
        }
    });
    let verification = verify(&home.path, None).unwrap();
    assert_eq!(verification.records, 201 + verification.checkpoints);
}

/// Every one of them finds no ledger and makes one; one of these is used by all.
#[test]
fn a_ledger_is_made_once() {
    for _ in 0..10 {
        let home = Home::new();
        thread::scope(|scope| {
            (0..8).for_each(|_| drop(scope.spawn(|| append_many(&home.open(), 1))));
        });
        assert_eq!(verify(&home.path, None).unwrap().records, 9);
    }
}

/// A full disk, as far as a limit on the size of files is one: refused, and nothing half written.
#[test]
fn no_room_is_an_error_and_no_record() {
    if let Some(path) = told() {
        let ledger = Ledger::open(&path).unwrap();
        let mut written = 0_u32;
        let error = loop {
            match ledger.append(&battery(written)) {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, AppendError::Full(_) | AppendError::Storage(_)), "{error}");
        assert!(ledger.append(&battery(0)).is_err());
        fs::write(path.with_file_name("written"), written.to_string()).unwrap();
        return;
    }
    let home = Home::with_records(3);
    let inner = child("processes::no_room_is_an_error_and_no_record", &home.path);
    let limited = "trap '' XFSZ; ulimit -f 128; exec \"$0\" \"$@\"";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", limited]).arg(inner.get_program()).args(inner.get_args()).env(CHILD, &home.path);
    assert_success(&bounded::output(&mut command));
    let written: u64 = fs::read_to_string(home.path.with_file_name("written")).unwrap().parse().unwrap();
    assert!(written > 0);
    let verification = verify(&home.path, None).unwrap();
    assert_eq!(verification.records - verification.checkpoints, 3 + written);
    append_many(&home.open(), 1);
}

/// An ordinary user and a directory that is theirs but read-only. As root the test becomes nobody for it.
#[test]
fn a_directory_without_permission_is_an_error() {
    if let Some(path) = told() {
        let error = Ledger::open(&path).unwrap_err();
        assert!(matches!(error, LedgerOpenError::Place { .. }), "{error}");
        assert!(error.hint().is_some());
        let error = Ledger::open(&path.with_file_name("deeper").join("ledger.db")).unwrap_err();
        assert!(matches!(error, LedgerOpenError::Place { .. }), "{error}");
        return;
    }
    let home = Home::new();
    let program = home.directory.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let locked = home.directory.path().join("locked");
    fs::create_dir(&locked).unwrap();
    let mut command =
        command(&program, "processes::a_directory_without_permission_is_an_error", &locked.join("ledger.db"));
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&locked, Some(65534), Some(65534)).unwrap();
        command.uid(65534).gid(65534);
    }
    set_mode(home.directory.path(), 0o755);
    set_mode(&locked, 0o500);
    command.current_dir("/");
    assert_success(&bounded::output(&mut command));
    assert_eq!(fs::read_dir(&locked).unwrap().count(), 0);
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}
