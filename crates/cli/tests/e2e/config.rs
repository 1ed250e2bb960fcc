//! `ringfence config`: what a start would take, and what it says.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::approvals::configure;
use crate::testkit::{Done, World, finish};

fn config(world: &World, arguments: &[&str]) -> Done {
    finish(world.ringfence().arg("config").args(arguments), b"")
}

/// S003-26: the same checks as a start, with the place of each mistake and the fix.
#[test]
fn s003_26_a_mistake_is_shown_with_its_place_and_what_to_write() {
    let world = World::new();
    config(&world, &["check"]).expect(0).says("does not exist");
    configure(&world, "[daemon]\nlisten = \"0.0.0.0:7420\"\n");
    let done = config(&world, &["check"]).expect(125).says("config.toml:2:10: ");
    assert!(
        done.err.contains("listen = \"0.0.0.0:7420\"") && done.err.contains("tls = \"generated\""),
        "{}",
        done.err
    );
    configure(&world, "[daemon]\nlisten = \"127.0.0.1:7420\"\n");
    assert!(config(&world, &["check"]).expect(0).text().trim_end().ends_with("config.toml: ok"));
    let file = world.home.join(".config/ringfence/config.toml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    config(&world, &["check"]).expect(125).says("chmod go-w");
}

/// C-31, S002-17: what weakens a guarantee cannot be written into a file, also not for `run`.
#[test]
fn c31_a_file_cannot_turn_on_what_only_a_flag_does() {
    let world = World::new();
    for key in ["danger", "allow_sensitive_roots", "allow_denylisted_commands"] {
        configure(&world, &format!("{key} = true\n"));
        config(&world, &["check"]).expect(125).says("flag of the command line alone");
        world.run(&[], &["touch", "made"]).expect(125).says("config.toml:1:1: ");
        assert_eq!(world.read("made"), None);
    }
    configure(&world, "");
    world.run(&[], &["touch", "made"]).expect(0);
}

/// B-A23: what is shown has no secret in it.
#[test]
fn what_is_shown_has_no_secret_in_it() {
    let world = World::new();
    let key = format!("AKIA{}", "QZ7XK4MWNP2RJTVB");
    let text = format!(
        "[approvals]\nnotify = [\"webhook\"]\n\
         webhook = {{ url = \"https://hooks.example.test/T0/{key}\", secret_file = \"~/s\" }}\n"
    );
    configure(&world, &text);
    for flags in [&["show"][..], &["show", "--json"]] {
        let shown = config(&world, flags).expect(0).text();
        assert!(shown.contains("https://hooks.example.test/") && !shown.contains(&key), "{shown}");
        assert!(shown.contains("(off)"), "nothing listens: {shown}");
    }
    let file = world.home.join(".config/ringfence/config.toml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let done = config(&world, &["check"]).expect(125).says("chmod 600");
    assert!(!done.err.contains(&key), "{}", done.err);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    config(&world, &["check"]).expect(0);
}
