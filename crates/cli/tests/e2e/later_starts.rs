//! What a command leaves in a workspace does not keep its owner from starting again, and hides nothing from the next fence.

use std::fs;

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
