//! Links that a command leaves in the directory of a version control system: the host's git would read, write and leak through them.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::testkit::{Done, World, eventually, finish};

/// What a command does at the top of a repository with two commits, and what its user does there later.
struct LinkAttack {
    name: &'static str,
    /// `$OUT` is a directory of the user beside the workspace, with the files `rc` and `key`.
    plant: &'static str,
    host: &'static str,
    /// What the user sees when it has happened.
    sign: &'static str,
}

const MESSAGE: &str = "git commit -q --allow-empty -m 'touch mark'";

const ATTACKS: &[LinkAttack] = &[
    LinkAttack {
        name: "message of a commit into a file of the shell",
        plant: "$MESSAGE; rm -f .git/COMMIT_EDITMSG; ln -s $OUT/rc .git/COMMIT_EDITMSG",
        host: "git commit -q --amend --no-edit",
        sign: "grep -q mark $OUT/rc",
    },
    LinkAttack {
        name: "message of a commit into the configuration",
        plant: "git commit -q --allow-empty -m '[core] abbrev = 13'; rm -f .git/COMMIT_EDITMSG; ln -s config .git/COMMIT_EDITMSG",
        host: "git commit -q --amend --no-edit",
        sign: "grep -q 'abbrev = 13' .git/config",
    },
    LinkAttack {
        name: "message of a merge from a file of the user",
        plant: "ln -s $OUT/key .git/MERGE_MSG",
        host: "git commit -q --allow-empty --no-edit",
        sign: "git log -1 --format=%B | grep -q sesame",
    },
    LinkAttack {
        name: "message of a squash from a file of the user",
        plant: "ln -s $OUT/key .git/SQUASH_MSG",
        host: "git commit -q --allow-empty --no-edit",
        sign: "git log -1 --format=%B | grep -q sesame",
    },
    LinkAttack {
        name: "heads that were fetched",
        plant: "rm -f .git/FETCH_HEAD; ln -s ../../../../../../../../../../../../../../../../..$OUT/rc .git/FETCH_HEAD",
        host: "git fetch -q .",
        sign: "! grep -q untouched $OUT/rc",
    },
    LinkAttack {
        name: "log of a head",
        plant: "rm -f .git/logs/HEAD; ln -s $OUT/rc .git/logs/HEAD",
        host: "git commit -q --allow-empty -m 'touch mark'",
        sign: "grep -q mark $OUT/rc",
    },
    LinkAttack {
        name: "directory of logs",
        plant: "rm -rf .git/logs/refs; ln -s $OUT .git/logs/refs",
        host: "git commit -q --allow-empty -m x",
        sign: "test -e $OUT/heads/main",
    },
    LinkAttack {
        name: "directory of branches",
        plant: "mkdir .git/refs/heads/a; rmdir .git/refs/heads/a; ln -s $OUT .git/refs/heads/a",
        host: "git branch a/rc2",
        sign: "test -e $OUT/rc2",
    },
    LinkAttack {
        name: "repository that the command has made",
        plant: "git init -q lib; cd lib; $MESSAGE; rm -f .git/COMMIT_EDITMSG; ln -s $OUT/rc .git/COMMIT_EDITMSG",
        host: "git -C lib commit -q --amend --no-edit",
        sign: "grep -q mark $OUT/rc",
    },
    LinkAttack {
        name: "bare repository",
        plant: "git clone -q --bare . b.git; rm -f b.git/FETCH_HEAD; ln -s $OUT/rc b.git/FETCH_HEAD",
        host: "git -C b.git fetch -q ..",
        sign: "! grep -q untouched $OUT/rc",
    },
    LinkAttack {
        name: "linked worktree",
        plant: "git worktree add -q wt; rm -f .git/worktrees/wt/COMMIT_EDITMSG; ln -s $OUT/rc .git/worktrees/wt/COMMIT_EDITMSG",
        host: "git -C wt commit -q --allow-empty -m mark",
        sign: "grep -q mark $OUT/rc",
    },
    LinkAttack {
        name: "message of a commit into the configuration of another repository",
        plant: "git init -q lib; git init -q tool; git -C tool commit -q --allow-empty -m '[core] fsmonitor = touch mark'; \
                ln -f lib/.git/config tool/.git/COMMIT_EDITMSG",
        host: "git -C tool commit -q --amend --no-edit",
        sign: "grep -q 'touch mark' lib/.git/config",
    },
    LinkAttack {
        name: "message of a commit into the common directory of a worktree",
        plant: "git worktree add -q wt; $MESSAGE; ln -f .git/worktrees/wt/commondir .git/COMMIT_EDITMSG",
        host: "git commit -q --amend --no-edit",
        sign: "grep -q mark .git/worktrees/wt/commondir",
    },
    LinkAttack {
        name: "log into the settings of another system",
        plant: "git init -q tool; git -C tool commit -q --allow-empty -m x; mkdir -p lib/.hg; echo '# x' > lib/.hg/hgrc; \
                ln -f lib/.hg/hgrc tool/.git/logs/HEAD",
        host: "git -C tool commit -q --allow-empty -m mark",
        sign: "grep -q mark lib/.hg/hgrc",
    },
];

fn world() -> World {
    let world = World::new();
    world.repository();
    let out = world.beside("out");
    fs::write(out.join("rc"), "untouched\n").unwrap();
    fs::write(out.join("key"), "sesame\n").unwrap();
    world
}

fn script(world: &World, text: &str) -> String {
    let who = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a GIT_EDITOR=true";
    let out = world.workspace.parent().unwrap().join("out");
    format!("{who}; OUT={}; {}", out.display(), text.replace("$MESSAGE", MESSAGE))
}

fn on_host(world: &World, text: &str) -> Done {
    finish(world.host("sh").args(["-c", &script(world, text)]), b"")
}

#[test]
fn git_of_the_host_follows_no_link_that_a_command_has_left() {
    for attack in ATTACKS {
        let control = world();
        on_host(&control, attack.plant);
        let done = on_host(&control, attack.host);
        assert_eq!(on_host(&control, attack.sign).code, Some(0), "control: {}: {}", attack.name, done.err);
        let world = world();
        let done = world.sh(&script(&world, attack.plant));
        assert!(done.err.contains("held.link"), "{}: {}", attack.name, done.err);
        let host = on_host(&world, attack.host);
        assert_ne!(on_host(&world, attack.sign).code, Some(0), "{}: {} {}", attack.name, done.err, host.err);
        assert_eq!(
            fs::read_to_string(world.workspace.parent().unwrap().join("out/rc")).unwrap(),
            "untouched\n"
        );
    }
}

/// A hook of the host in a bare repository is its own, and would run what git writes into it.
#[test]
fn git_of_the_host_writes_into_no_hook_through_a_second_name() {
    const PLANT: &str = "git init -q tool; git -C tool commit -q --allow-empty -m 'touch mark'; \
                         ln -f b.git/hooks/post-update tool/.git/COMMIT_EDITMSG";
    let attack = |fenced: bool| {
        let world = world();
        on_host(&world, "git clone -q --bare . b.git; printf '#!/bin/sh\n' > b.git/hooks/post-update; chmod 755 b.git/hooks/post-update")
            .expect(0);
        let done = match fenced {
            true => world.sh(&script(&world, PLANT)).expect(0).says("held.link"),
            false => on_host(&world, PLANT).expect(0),
        };
        on_host(&world, "git -C tool commit -q --amend --no-edit; git push -q b.git HEAD:refs/heads/new");
        assert_ne!(world.workspace.join("b.git/mark").exists(), fenced, "{}", done.err);
        let mode = fs::metadata(world.workspace.join("b.git/hooks/post-update")).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o755, "it is still a hook");
    };
    attack(false);
    attack(true);
}

/// A pipe would make the host's git wait for ever.
#[test]
fn no_pipe_of_a_command_stays_in_a_git_directory() {
    let world = world();
    let plant = "rm -f .git/COMMIT_EDITMSG; mkfifo .git/COMMIT_EDITMSG";
    world.sh(plant).expect(0).says("held.link");
    on_host(&world, "git commit -q --allow-empty -m x").expect(0);
    on_host(&world, plant).expect(0);
    let mut commit = world.host("sh");
    commit.args(["-c", &script(&world, "exec git commit -q --allow-empty -m y")]);
    let mut waiting = commit.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert!(waiting.try_wait().unwrap().is_none(), "control: it waits");
    waiting.kill().unwrap();
    waiting.wait().unwrap();
}

/// Links that were there, and what other programs keep beside a repository, stay.
#[test]
fn links_of_the_host_and_of_the_work_stay() {
    let world = world();
    let git = world.workspace.join(".git");
    std::os::unix::fs::symlink("HEAD", git.join("mine")).unwrap();
    world.write("bin/tool", "x");
    let done = world.sh(
        "ln -s tool bin/other; ln -s ../bin .linked; git init -q old; rm old/.git/HEAD; ln -s refs/heads/main old/.git/HEAD; \
         mkdir -p w/.hg/store; ln -s host:12 w/.hg/wlock; touch done",
    );
    done.expect(0);
    for (link, text) in [
        (".git/mine", "HEAD"),
        ("bin/other", "tool"),
        ("old/.git/HEAD", "refs/heads/main"),
        ("w/.hg/wlock", "host:12"),
    ] {
        assert_eq!(fs::read_link(world.workspace.join(link)).unwrap(), Path::new(text), "{link}");
    }
    eventually("the command has ended", || world.workspace.join("done").exists());
}

/// Other systems follow links as well.
#[test]
fn links_in_directories_of_other_systems_are_held() {
    let world = world();
    let plant = "mkdir -p a/.hg b/.svn d/.jj data; ln -s $OUT/rc a/.hg/last-message.txt; ln -s ../../data b/.svn/tmp; ln -s ../../data d/.jj/x; ln -s ../data d/.hg";
    on_host(&world, plant).expect(0);
    assert!(world.workspace.join("a/.hg/last-message.txt").is_symlink(), "control");
    on_host(&world, "rm -r a b d").expect(0);
    world.sh(&script(&world, plant)).expect(0).says("held.link");
    for link in ["a/.hg/last-message.txt", "b/.svn/tmp", "d/.jj/x", "d/.hg"] {
        assert!(!world.workspace.join(link).is_symlink(), "{link}");
    }
}
