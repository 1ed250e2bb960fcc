//! What a person sees before anything runs.

use crate::testkit::{World, finish};

#[test]
fn help_of_each_command_has_the_essentials() {
    let world = World::new();
    let cases: [(&[&str], &[&str]); 12] = [
        (&["--help"], &["run", "file", "doctor", "ledger", "completions", "ringfence run -- git status"]),
        (
            &["run", "--help"],
            &[
                "--net",
                "--timeout",
                "--memory",
                "--pids",
                "--env",
                "--read",
                "--write",
                "--json",
                "--backend",
                "--profile",
                "124",
                "126",
                "127",
                "128+n",
                "Examples",
            ],
        ),
        (&["file", "--help"], &["read", "write", "list", "symlink"]),
        (&["file", "write", "--help"], &["standard input", "--workspace"]),
        (&["doctor", "--help"], &["--attack", "--json"]),
        (
            &["ledger", "--help"],
            &[
                "tail",
                "show",
                "verify",
                "prove",
                "export",
                "stats",
                "prune",
                "checkpoint",
                "rotate-key",
                "acknowledge",
                "restart",
            ],
        ),
        (&["ledger", "verify", "--help"], &["--head", "--checkpoint", "--key", "--proof", "Exit code"]),
        (
            &["serve", "--help"],
            &["--danger", "--allow-sensitive-roots", "--allow-denylisted-commands", "token"],
        ),
        (
            &["session", "--help"],
            &[
                "create",
                "run",
                "calls",
                "logs",
                "signal",
                "input",
                "cancel",
                "activity",
                "report-activity",
                "Examples",
            ],
        ),
        (
            &["session", "create", "--help"],
            &["--memory", "--pids", "--cpu-time", "--max-open-files", "--file-size", "--json"],
        ),
        (
            &["session", "run", "--help"],
            &["--cwd", "--env", "--timeout", "--reason", "--background", "--interactive", "Standard input"],
        ),
        (&["completions", "--help"], &["bash", "zsh", "fish"]),
    ];
    for (arguments, essentials) in cases {
        let done = finish(world.ringfence().args(arguments), b"").expect(0);
        for essential in essentials {
            assert!(done.text().contains(essential), "{arguments:?} lacks `{essential}`:\n{}", done.text());
        }
    }
    let done = finish(world.ringfence().arg("--version"), b"").expect(0);
    assert!(done.text().starts_with("ringfence "), "{}", done.text());
    assert!(!world.state.join("ringfence").exists(), "help writes nothing");
}

/// S001-9: what is not known is not guessed; the nearest known word is named.
#[test]
fn unknown_flag_is_refused() {
    let world = World::new();
    for (flags, said) in [
        (&["--tiemout", "1s"][..], "--timeout"),
        (&["--profile", "workspcae"], "did you mean `workspace`"),
        (&["--backend", "natve"], "did you mean `native`"),
        (&["--net", "ful"], "did you mean `full`"),
        (&["--timeout", "soon"], "30s"),
        (&["--memory", "lots"], "512m"),
        (&["--cpus", "x"], "0.5"),
        (&["--pids", "0"], "--pids"),
        (&["--env", "NOVALUE"], "NAME=VALUE"),
    ] {
        let done = world.run(flags, &["touch", "made"]);
        assert!(matches!(done.code, Some(125)), "{flags:?}: {:?} {}", done.code, done.err);
        assert!(done.err.contains(said), "{flags:?}: {}", done.err);
    }
    for arguments in
        [&["rnu", "--", "true"][..], &["run"], &["run", "--"], &[], &["file"], &["ledger", "tial"]]
    {
        let done = finish(world.ringfence().args(arguments), b"");
        assert_eq!(done.code, Some(125), "{arguments:?}: {}", done.err);
    }
    assert!(!world.workspace.join("made").exists());
}

#[test]
fn completions_are_scripts_that_parse() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = finish(world.ringfence().args(["completions", shell]), b"").expect(0);
        assert!(done.text().contains("ringfence") && done.text().contains("allow-host"), "{shell}");
        if shell == "bash" {
            finish(world.host("bash").args(["-n", "-s"]), &done.out).expect(0);
        }
    }
    finish(world.ringfence().args(["completions", "tcsh"]), b"").expect(125);
}
