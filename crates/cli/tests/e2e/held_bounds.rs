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

/// Writes a git directory in which a file of a megabyte or less has names of gigabytes.
const BOMBS: &str = r#"
import os, struct, sys
for name in ['config', 'index', 'remotes']:
    os.makedirs(name + '/.git/objects')
    os.makedirs(name + '/.git/refs')
    open(name + '/.git/HEAD', 'w').write('ref: refs/heads/main\n')
open('config/.git/config', 'w').write('[core "' + 'x' * 400000 + '"]\n' + 'a\n' * 40000)
entry = bytes(60) + struct.pack('>H', 0xfff)
paths = [entry + b'\0' + b'a' * 400000 + b'\0'] + [entry + b'\1' + bytes([98 + n % 2]) + b'\0' for n in range(9999)]
open('index/.git/index', 'wb').write(b'DIRC' + struct.pack('>II', 4, len(paths)) + b''.join(paths) + bytes(20))
os.mkdir('remotes/.git/remotes')
for number in range(2500):
    open('remotes/.git/remotes/%d' % number, 'w').close()
    os.truncate('remotes/.git/remotes/%d' % number, 1 << 20)
"#;

/// The limits of commands are not for the process that looks at what they leave: its address space is limited here instead.
#[test]
fn small_files_with_long_names_take_a_bounded_amount_of_memory() {
    let world = World::new();
    world.repository();
    let limited = |script: &str, bombs: &str| {
        let mut shell = world.host("sh");
        shell.args(["-c", "ulimit -v 3000000; exec \"$@\"", "sh"]).arg(crate::testkit::binary());
        shell.args(["run", "--env", &format!("BOMBS={bombs}"), "--", "sh", "-c", script]);
        finish(&mut shell, b"")
    };
    limited("echo control", "").expect(0);
    let done = limited("python3 -c \"$BOMBS\"", BOMBS);
    done.expect(0).says("held.git-config").says("held.git-path").says("held.git-remote");
    limited("true", "").expect(0);
}

/// Directories whose depth takes a mount each.
const CHAINS: &str = "
import os
for number in range(40):
    os.mkdir('c%d' % number)
    here = os.open('c%d' % number, os.O_RDONLY)
    for _ in range(900):
        os.mkdir('a', dir_fd=here)
        below = os.open('a', os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open('.env', os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
";

#[test]
fn hidden_files_far_down_do_not_keep_their_owner_from_starting() {
    let world = World::new();
    world.repository();
    finish(world.host("python3").args(["-c", CHAINS]), b"").expect(0);
    let begun = Instant::now();
    world.sh("true").expect(0).says("are closed");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    (0..40).for_each(|number| remove_all(&world, &format!("c{number}")));
}
