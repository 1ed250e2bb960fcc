use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::bounded;
use crate::support::Home;

/// The script in `docs/ledger.md`, as a reader would copy it.
fn documented_script() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ledger.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("```sh\n").unwrap();
    rest.split_once("\n```").unwrap().0.to_owned()
}

fn check_by_hand(home: &Home) -> Output {
    let directory = home.path.parent().unwrap();
    let mut shell = Command::new("/bin/sh");
    let output = bounded::output(shell.args(["-c", &documented_script()]).current_dir(directory));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(!complaint.contains("not found"), "this test needs `sqlite3` and `sha256sum`: {complaint}");
    output
}

#[test]
fn the_documented_procedure_finds_what_verify_finds() {
    let home = Home::with_records(5);
    let head = ringfence_ledger::verify(&home.path, None).unwrap().head.unwrap();
    let output = check_by_hand(&home);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("head {head}\n"));

    let say = |sql: &str| {
        home.sql(sql);
        let output = check_by_hand(&home);
        assert!(!output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(say("UPDATE record SET body = body || ' ' WHERE seq = 4"), "record 4 has another body\n");
    assert_eq!(say("UPDATE record SET ids = 'x' WHERE seq = 3"), "record 3 does not match its hash\n");
    assert_eq!(say("DELETE FROM record WHERE seq = 2"), "record 2 is missing\n");
}
