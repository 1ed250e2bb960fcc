//! What a command leaves in a workspace costs the process that looks through it a bounded amount of stack and memory.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::testkit::{Done, World, finish};

/// Directories of which each leads git to the next, and a `.git` that leads to the first.
const CHAIN: &str = "
import os
os.mkdir('chain')
for number in range(12000):
    os.mkdir('chain/%d' % number)
    open('chain/%d/commondir' % number, 'w').write('../%d\\n' % (number + 1))
os.makedirs('first/.git')
open('first/.git/commondir', 'w').write('../../chain/0\\n')
";

/// Links at the end of a path of 127500 bytes.
const LINKS: &str = "
import os, sys
for _ in range(500):
    os.makedirs('d' * 255, exist_ok=True)
    os.chdir('d' * 255)
for number in range(int(sys.argv[1])):
    os.symlink('x', sys.argv[1] + '-%d' % number)
";

fn python(world: &World, program: &str, arguments: &[&str]) -> Done {
    world.run(&[], &[&["python3", "-c", program][..], arguments].concat())
}

fn remove_all(world: &World, name: &str) {
    assert!(world.host("rm").args(["-rf", name]).status().unwrap().success());
}

#[test]
fn a_chain_of_repositories_ends_neither_the_look_nor_a_later_start() {
    let world = World::new();
    world.repository();
    let mark = world.workspace.join("mark");
    let evil: PathBuf = world.write("evil", format!("#!/bin/sh\necho ran >> {}\n", mark.display()));
    fs::set_permissions(&evil, fs::Permissions::from_mode(0o755)).unwrap();
    world.sh("git init -q victim").expect(0);
    let hook = "cp evil victim/.git/hooks/pre-commit";
    let commit = || {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@a"];
        let words = ["commit", "-q", "--allow-empty", "-m", "x"];
        finish(world.host("git").args(["-C", "victim"]).args(identity).args(words), b"")
    };
    assert!(world.host("sh").args(["-c", hook]).status().unwrap().success());
    commit();
    assert!(mark.exists(), "control: without the fence the hook is executed");
    fs::remove_file(&mark).unwrap();
    fs::remove_file(world.workspace.join("victim/.git/hooks/pre-commit")).unwrap();

    world
        .run(
            &["--env", &format!("CHAIN={CHAIN}")],
            &["sh", "-c", "git init -q new; cp evil new/.git/hooks/pre-commit; python3 -c \"$CHAIN\""],
        )
        .expect(0)
        .says("held.git-hook");
    assert!(!world.workspace.join("new/.git/hooks/pre-commit").exists());
    world.sh("true").expect(0);
    remove_all(&world, "chain");
}

#[test]
fn long_paths_take_a_bounded_amount_of_memory() {
    let world = World::new();
    world.repository();
    python(&world, LINKS, &["100"]).expect(0);
    let done = python(&world, LINKS, &["1200"]);
    assert_eq!(done.code, Some(125), "{}", done.err);
    done.says("held.unfinished").says("too much memory");
    let begun = Instant::now();
    let later = world.sh("true");
    assert!(later.code != Some(0) && begun.elapsed() < Duration::from_secs(60), "{}", later.err);
    later.says("too much memory");
    remove_all(&world, &"d".repeat(255));
    world.sh("true").expect(0);
}
