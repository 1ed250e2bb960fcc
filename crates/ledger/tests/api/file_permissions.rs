use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;

use ringfence_ledger::{Ledger, LedgerOpenError, VerifyError, verify};

use crate::support::{Home, append_many};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn open_error(path: &Path) -> LedgerOpenError {
    Ledger::open(path).unwrap_err()
}

#[test]
fn what_is_made_is_private() {
    let home = Home::new();
    let deep = home.directory.path().join("a/b/ledger.db");
    let ledger = Ledger::open(&deep).unwrap();
    append_many(&ledger, 1);
    for (path, expected) in [
        ("a", 0o700),
        ("a/b", 0o700),
        ("a/b/ledger.db", 0o600),
        ("a/b/ledger.db-wal", 0o600),
        ("a/b/ledger.db-shm", 0o600),
        ("a/b/ledger.key", 0o600),
    ] {
        assert_eq!(mode(&home.directory.path().join(path)), expected, "{path}");
    }
    assert_eq!(fs::read_dir(deep.parent().unwrap()).unwrap().count(), 4, "no draft is left behind");
}

#[test]
fn symlinks_are_refused() {
    let home = Home::with_records(1);
    let directory = home.directory.path();
    symlink(home.path.parent().unwrap(), directory.join("linked")).unwrap();
    symlink(&home.path, home.path.with_file_name("other.db")).unwrap();
    symlink(directory.join("nowhere"), directory.join("dangling")).unwrap();
    for path in [
        directory.join("linked/ledger.db"),
        home.path.with_file_name("other.db"),
        directory.join("dangling/ledger.db"),
    ] {
        let error = open_error(&path);
        assert!(matches!(error, LedgerOpenError::Symlink { .. }), "{error}");
        assert!(error.hint().is_some());
    }
    assert!(!directory.join("nowhere").exists());
}

#[test]
fn a_link_above_the_directory_is_followed() {
    let home = Home::with_records(1);
    let link = home.directory.path().join("link");
    symlink(home.directory.path(), &link).unwrap();
    append_many(&Ledger::open(&link.join("state/ledger.db")).unwrap(), 1);
    assert_eq!(verify(&home.path, None).unwrap().records, 2);
}

#[test]
fn what_others_can_write_is_refused() {
    for bad in [0o620, 0o602, 0o666] {
        let home = Home::with_records(1);
        set_mode(&home.path, bad);
        let error = open_error(&home.path);
        assert!(matches!(error, LedgerOpenError::WritableByOthers { mode, .. } if mode == bad), "{error}");
        set_mode(&home.path, 0o600);
        append_many(&home.open(), 1);
    }
    for bad in [0o720, 0o777, 0o1777] {
        let home = Home::with_records(1);
        set_mode(home.path.parent().unwrap(), bad);
        let error = open_error(&home.path);
        assert!(matches!(error, LedgerOpenError::WritableByOthers { mode, .. } if mode == bad), "{error}");
    }
}

#[test]
fn what_belongs_to_another_is_refused() {
    if !rustix::process::geteuid().is_root() {
        let error = open_error(Path::new("/usr/ledger.db"));
        assert!(matches!(error, LedgerOpenError::NotOurs { owner: 0, .. }), "{error}");
        return;
    }
    let home = Home::with_records(1);
    for path in [home.path.as_path(), home.path.parent().unwrap()] {
        chown(path, Some(65534), None).unwrap();
        let error = open_error(&home.path);
        assert!(matches!(error, LedgerOpenError::NotOurs { owner: 65534, .. }), "{error}");
        chown(path, Some(0), None).unwrap();
    }
    append_many(&home.open(), 1);
}

#[test]
fn a_path_that_cannot_be_is_refused() {
    let home = Home::with_records(1);
    let error = open_error(&home.path.join("below-a-file/ledger.db"));
    assert!(matches!(error, LedgerOpenError::Place { .. }), "{error}");
    let error = open_error(&home.path.join("ledger.db"));
    assert!(matches!(error, LedgerOpenError::Place { .. } | LedgerOpenError::NotAFile { .. }), "{error}");
    fs::create_dir(home.path.with_file_name("directory.db")).unwrap();
    let error = open_error(&home.path.with_file_name("directory.db"));
    assert!(matches!(error, LedgerOpenError::NotAFile { .. }), "{error}");
    assert!(matches!(open_error(Path::new("/")), LedgerOpenError::NotAFile { .. }));
}

#[test]
fn names_with_odd_bytes_work() {
    use std::os::unix::ffi::OsStrExt as _;
    let home = Home::new();
    let odd = std::ffi::OsStr::from_bytes(b"a b'?#%\xff\n");
    let path = home.directory.path().join(odd).join("file:ledger?mode=ro.db");
    append_many(&Ledger::open(&path).unwrap(), 2);
    assert_eq!(verify(&path, None).unwrap().records, 3);
}

#[test]
fn other_files_are_not_ledgers() {
    let home = Home::with_records(1);
    let other = home.path.with_file_name("other.db");
    let garbage: Vec<u8> = (0..20_000_u32).map(|n| n.to_le_bytes()[0] ^ 0xa5).collect();
    for content in [&b""[..], b"x", &garbage] {
        fs::write(&other, content).unwrap();
        set_mode(&other, 0o600);
        let error = open_error(&other);
        assert!(matches!(error, LedgerOpenError::NotALedger { .. }), "{error:?}");
        assert!(error.hint().is_some());
        let error = verify(&other, None).unwrap_err();
        assert!(matches!(error, VerifyError::Open(LedgerOpenError::NotALedger { .. })), "{error:?}");
        assert_eq!(fs::read(&other).unwrap(), content, "left as it was");
    }
    fs::remove_file(&other).unwrap();
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE record (seq)").unwrap();
    set_mode(&other, 0o600);
    assert!(matches!(open_error(&other), LedgerOpenError::NotALedger { .. }));
}

#[test]
fn a_newer_format_is_refused() {
    let home = Home::with_records(1);
    home.sql("UPDATE schema SET version = 3");
    for error in [open_error(&home.path), Ledger::open_read(&home.path).unwrap_err()] {
        assert!(matches!(error, LedgerOpenError::Newer { found: 3, known: 2, .. }), "{error}");
    }
    home.sql("UPDATE schema SET version = 2");
    append_many(&home.open(), 1);
}

#[test]
fn a_ledger_without_its_tables_is_damaged() {
    for sql in [
        "DROP TABLE record",
        "DROP TABLE schema",
        "DELETE FROM schema",
        "DROP TABLE mention",
        "DROP TABLE claim",
        "DROP TABLE open",
    ] {
        let home = Home::with_records(1);
        home.sql(sql);
        let error = open_error(&home.path);
        assert!(matches!(error, LedgerOpenError::Damaged { .. }), "{sql}: {error:?}");
        assert!(verify(&home.path, None).is_err(), "{sql}");
    }
}

#[test]
fn a_log_without_its_ledger_is_not_taken_for_a_new_one() {
    let home = Home::with_records(3);
    fs::remove_file(&home.path).unwrap();
    let error = open_error(&home.path);
    assert!(matches!(error, LedgerOpenError::Gone { .. }), "{error}");
    assert!(!home.path.exists());
}

#[test]
fn reading_never_creates() {
    let home = Home::new();
    let error = Ledger::open_read(&home.path).unwrap_err();
    assert!(matches!(error, LedgerOpenError::Missing { .. }), "{error}");
    assert!(verify(&home.path, None).is_err());
    assert!(!home.path.parent().unwrap().exists());
}
