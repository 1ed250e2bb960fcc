//! What a command leaves in a workspace does not keep its owner from starting again, and hides nothing from the next fence.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::testkit::World;

/// Makes directories deeper than any path, and then what comes after `--`.
const DEEP: &str = "import os, sys\nfor _ in range(60):\n    os.mkdir('d' * 100)\n    os.chdir('d' * 100)\nexec(sys.argv[1])\n";

#[test]
fn nothing_in_the_workspace_makes_a_later_start_fail() {
    let deep = |then: &str| format!("python3 -c \"$DEEP\" \"{then}\"");
    for script in [
        "mkdir -p sub x; ln -s ../x sub/.claude",
        "mkdir sub; ln -s .claude sub/.claude",
        "mkdir sub; ln -s .. sub/.claude",
        "mkdir sub; ln -s ../missing/deep sub/.claude",
        "mkdir sub; mkfifo sub/.claude sub/.git .env.local",
        "mkdir sub; ln -s / sub/.claude; ln -s /proc/self/root id_rsa; ln -s / k.pem",
        "git init -q sub; rm -rf sub/.git/hooks; mkdir x; ln -s ../../x sub/.git/hooks",
        "git init -q sub; mv sub/.git/config c; ln -s ../../c sub/.git/config",
        "git init -q sub; chmod 000 sub/.git",
        "mkdir -p a/b; echo x >a/.env; chmod 000 a",
        "chmod 000 .git",
        "mkdir sub; printf 'gitdir: \\377\\000\\n' >sub/.git",
        "mkdir sub; printf 'gitdir: %0300d\\n' 1 >sub/.git",
        "d=$(printf 'a\\377\\nb'); mkdir \"$d\"; echo x >\"$d/.env\"; mkdir \"$d/.claude\"",
        &deep("open('.env', 'w').write('x')"),
        &deep("os.mkdir('.claude')"),
        &deep("os.mkfifo('.env'); os.symlink('..', '.git')"),
    ] {
        let world = World::new();
        world.repository();
        world.run(&["--env", &format!("DEEP={DEEP}")], &["sh", "-c", script]).expect(0);
        let done = world.sh("echo new >ordinary; cat readme");
        assert_eq!(done.code, Some(0), "{script}: {}", done.err);
        assert_eq!(world.read("ordinary").as_deref(), Some("new\n"), "{script}");
        // What the test made is to be removed by whoever made it.
        world.host("chmod").args(["-R", "u+rwx", "."]).output().unwrap();
        world.host("find").args([".", "-delete"]).output().unwrap();
    }
}

/// A directory that a command closes is open again when the command has ended, for root too: commands of root have no right to
/// enter it, and the next start would be refused.
#[test]
fn what_a_command_has_closed_is_opened_again() {
    for closed in [".", "sub", ".git"] {
        let world = World::new();
        world.repository();
        world.write("sub/file", "x");
        // Without the `.` at its end: only a path that ends at a closed directory can be asked for its mode.
        let place: PathBuf = world.workspace.join(closed).components().collect();
        let mode = || fs::metadata(&place).unwrap().permissions().mode() & 0o700;
        world.run(&[], &["chmod", "000", closed]).expect(0).says("held.closed-directory");
        assert_eq!(mode(), 0o700, "{closed}");
        world.sh("git status >/dev/null && cat sub/file").expect(0);
        world.host("chmod").args(["000", closed]).output().unwrap();
        assert_eq!(mode(), 0, "control: {closed}");
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// What lists a git directory does so by descriptors: its path may be longer than the kernel takes.
#[test]
fn git_directories_at_the_end_of_long_paths_do_not_keep_a_start_from_working() {
    const MAKE: &str = "import os, sys\nroom = int(sys.argv[1]) - len(os.getcwd())\nwhile room > 0:\n    name = 'd' * min(200, max(1, room - 1))\n    os.mkdir(name); os.chdir(name)\n    room -= len(name) + 1\nfor name in sys.argv[2:]:\n    os.makedirs(name)\n";
    for length in (4040..=4100).step_by(6) {
        let world = World::new();
        world.repository();
        let length = length.to_string();
        let parts = [".git/objects", ".git/refs", ".git/worktrees/w", ".git/modules/m/n"];
        let command = [&["python3", "-c", MAKE, length.as_str()][..], &parts].concat();
        world.run(&[], &command).expect(0);
        let done = world.sh("cat readme");
        assert_eq!(done.code, Some(0), "{length}: {}", done.err);
        world.file(&["read", "readme"], b"").expect(0);
        world.host("find").args([".", "-delete"]).output().unwrap();
    }
}

/// Thousands of directories with one protected name each: a start takes seconds, or is refused in seconds, and the repository and
/// the working directory stay open.
#[test]
fn many_small_protected_directories_do_not_delay_a_later_start() {
    for (count, name) in [(24000, ".claude"), (24000, ".env"), (60000, ".claude")] {
        let world = World::new();
        world.repository();
        world.write("src/code", "x\n");
        let make = match name {
            ".claude" => format!("seq {count} | sed 's,.*,d&/.claude,' | xargs mkdir -p"),
            _ => format!(
                "seq {count} | sed 's,.*,d&,' | xargs mkdir -p; seq {count} | sed 's,.*,d&/.env,' | xargs touch"
            ),
        };
        world.sh(&make).expect(0);
        let begun = Instant::now();
        let done = world.sh("git status --short >/dev/null && cat src/code");
        let took = begun.elapsed();
        println!("{count} {name}: {took:?} {:?}", done.code);
        assert!(took < Duration::from_secs(30), "{count} {name}: {took:?}");
        match count {
            24000 => assert_eq!(done.text(), "x\n", "{}", done.err),
            _ => drop(done.expect(125).says("more hidden and protected files than can be mounted")),
        }
    }
}

/// A link of a protected name is held with all that it leads through: the host obeys what is at its end.
#[test]
fn what_a_protected_link_leads_to_is_held_and_told() {
    let world = World::new();
    world.repository();
    world.write("shared/settings.json", "kept\n");
    fs::create_dir(world.workspace.join("sub")).unwrap();
    for (link, target) in [("sub/.claude", "../hop"), ("hop", "shared")] {
        std::os::unix::fs::symlink(target, world.workspace.join(link)).unwrap();
    }
    let change = "echo x >shared/settings.json; echo x >sub/.claude/settings.json; rm -f hop; mkdir -p other; ln -sfn other hop; \
                  rm -f sub/.claude; mv shared s; mv sub t; true";
    let host = world.beside("control");
    world.host("cp").args(["-a", ".", host.to_str().unwrap()]).output().unwrap();
    world.sh(change).expect(0).says("read-only, too");
    let read = |path: &str| world.read(path);
    assert_eq!(read("sub/.claude/settings.json").as_deref(), Some("kept\n"));
    assert_eq!(fs::read_link(world.workspace.join("hop")).unwrap().to_str(), Some("shared"));
    let records = world.records();
    let noted = |record: &serde_json::Value| record["event"]["notes"].to_string().contains("read-only, too");
    assert!(records.iter().any(noted), "{records:?}");
    // The control: nothing holds it outside.
    world.host("sh").args(["-c", change]).current_dir(&host).output().unwrap();
    assert!(fs::read_to_string(host.join("sub/.claude/settings.json")).is_err());
}
