//! What a command leaves behind for the host's version control to execute: it is made ineffective before the result is there.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::testkit::{Done, World, eventually, finish};

/// What an agent does below the workspace, a repository with one commit, and what its user does there later.
struct Attack {
    name: &'static str,
    /// Run by a shell at the top. `$EVIL` is a program in the workspace that leaves a mark, `$TOP` the workspace.
    plant: &'static str,
    /// Commands of the host, each at the top.
    host: &'static [&'static str],
    rule: &'static str,
}

const NESTED: &str = "git init -q vendor/lib; cd vendor/lib; echo x > f; git add f; git commit -q -m x;";

const ATTACKS: &[Attack] = &[
    Attack {
        name: "fsmonitor of a repository in the index",
        plant: "@ git config core.fsmonitor $EVIL; cd ../..; git add vendor/lib 2>/dev/null",
        host: &[
            "git status",
            "git diff",
            "git add -n .",
            "git commit --dry-run",
            "git describe --dirty --always",
        ],
        rule: "held.git-config",
    },
    Attack {
        name: "repository in an existing directory",
        plant: "git init -q src; git -C src config core.fsmonitor $EVIL",
        host: &["cd src && git status"],
        rule: "held.git-config",
    },
    Attack {
        name: "bare layout",
        plant: "mkdir -p src/objects src/refs; echo ref: refs/heads/x > src/HEAD; \
                printf '[core]\\nrepositoryformatversion = 0\\nbare = false\\nworktree = .\\nfsmonitor = %s\\n' $EVIL > src/config",
        host: &["cd src && git status"],
        rule: "held.git-config",
    },
    Attack {
        name: "hook",
        plant: "@ cp $EVIL .git/hooks/pre-commit",
        host: &["cd vendor/lib && git commit -q --allow-empty -m y"],
        rule: "held.git-hook",
    },
    Attack {
        name: "hooks in a link",
        plant: "@ rm -rf .git/hooks; mkdir h; cp $EVIL h/pre-commit; ln -s ../h .git/hooks",
        host: &["cd vendor/lib && git commit -q --allow-empty -m y"],
        rule: "held.git-hook",
    },
    Attack {
        name: "included file",
        plant: "@ git config -f inc core.fsmonitor $EVIL; git config include.path ../inc",
        host: &["cd vendor/lib && git status"],
        rule: "held.git-config",
    },
    Attack {
        name: "configuration of a worktree",
        plant: "@ git config extensions.worktreeConfig true; git config --worktree core.fsmonitor $EVIL",
        host: &["cd vendor/lib && git status"],
        rule: "held.git-config",
    },
    Attack {
        name: "filter",
        plant: "@ git config filter.x.clean $EVIL; echo '* filter=x' > .gitattributes; echo y > f",
        host: &["cd vendor/lib && git add f"],
        rule: "held.git-config",
    },
    Attack {
        name: "common directory without a HEAD",
        plant: "mkdir -p src/.git c/objects c/refs; echo ref: refs/heads/x > src/.git/HEAD; echo $TOP/c > src/.git/commondir; \
                printf '[core]\\nrepositoryformatversion = 0\\nfsmonitor = %s\\n' $EVIL > c/config",
        host: &["cd src && git status"],
        rule: "held.git-config",
    },
    Attack {
        name: "linked worktree with another common directory",
        plant: "git worktree add -q wt 2>/dev/null; @ git config core.fsmonitor $EVIL; cd $TOP; \
                echo $TOP/vendor/lib/.git > .git/worktrees/wt/commondir",
        host: &["cd wt && git status"],
        rule: "held.git-config",
    },
    Attack {
        name: "directory that cannot be listed",
        plant: "@ git config core.fsmonitor $EVIL; cd ../..; git add vendor/lib 2>/dev/null; chmod 0111 vendor",
        host: &["git status"],
        rule: "held.git-config",
    },
    Attack {
        name: "git directory that its owner may not write",
        plant: "@ git config core.fsmonitor $EVIL; chmod 555 .git",
        host: &["cd vendor/lib && git status"],
        rule: "held.git-config",
    },
    Attack {
        name: "names for what is kept that are all taken",
        plant: "@ git config core.fsmonitor $EVIL; cd .git; n=config.held-by-ringfence; : > $n; \
                i=0; while [ $i -lt 300 ]; do i=$((i+1)); : > $n.$i; done",
        host: &["cd vendor/lib && git status"],
        rule: "held.git-config",
    },
    Attack {
        name: "workspace that cannot be listed",
        plant: "@ git config core.fsmonitor $EVIL; chmod 0311 $TOP",
        host: &["git -C vendor/lib status"],
        rule: "held.git-config",
    },
    Attack {
        name: "commands of a rebase",
        plant: "echo z > readme; git commit -q -am z; git rebase -q -i -x false HEAD~1 2>/dev/null; \
                echo exec $EVIL > .git/rebase-merge/git-rebase-todo",
        host: &["git rebase --continue"],
        rule: "held.git-rebase",
    },
];

/// The same with a repository in the home of the sandbox, which the host has too.
const FROM_HOME: &[(&str, &str, &str)] = &[
    ("git file", "echo gitdir: $HOSTHOME/evil/.git > src/.git", "held.git-pointer"),
    ("link called .git", "ln -s $HOSTHOME/evil/.git src/.git", "held.git-pointer"),
    ("link in place of a directory", "rm -r src; ln -s $HOSTHOME/evil src", "held.link"),
];

fn world() -> (World, PathBuf) {
    let world = World::new();
    world.repository();
    world.write("src/code", "x\n");
    world.git(&world.workspace, &["add", "src"]);
    world.git(&world.workspace, &["commit", "-q", "-m", "second"]);
    let mark = world.workspace.join("mark");
    let evil = world.write("evil", format!("#!/bin/sh\necho ran >> {}\ncat >/dev/null\n", mark.display()));
    fs::set_permissions(&evil, fs::Permissions::from_mode(0o755)).unwrap();
    (world, mark)
}

fn script(world: &World, plant: &str) -> String {
    let identity = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a;";
    let top = world.workspace.display();
    format!("{identity} TOP={top}; EVIL=$TOP/evil; {}", plant.replace('@', NESTED))
}

fn on_host(world: &World, command: &str) -> Done {
    let mut shell = world.host("sh");
    let identity = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a GIT_EDITOR=true;";
    finish(shell.args(["-c", &format!("{identity} {command}")]), b"")
}

fn held(world: &World) -> Vec<Value> {
    let events = world.all_records().into_iter().map(|record| record["event"].clone());
    events
        .filter(|event| event["kind"] == "held")
        .flat_map(|event| event["changes"].as_array().unwrap().clone())
        .collect()
}

fn rules(changes: &[Value]) -> Vec<&str> {
    changes.iter().map(|change| change["rule"].as_str().unwrap()).collect()
}

#[test]
fn git_of_the_host_executes_nothing_that_a_command_has_left() {
    for attack in ATTACKS {
        let (control, mark) = world();
        on_host(&control, &script(&control, attack.plant));
        for command in attack.host {
            let _gone = fs::remove_file(&mark);
            on_host(&control, command);
            assert!(mark.exists(), "control: {}: {command}", attack.name);
        }
        on_host(&control, "chmod -f 755 . vendor vendor/lib/.git");
        let (world, mark) = world();
        let done = world.sh(&script(&world, attack.plant));
        assert!(done.err.contains(attack.rule), "{}: {}", attack.name, done.err);
        for command in attack.host {
            on_host(&world, command);
            assert!(!mark.exists(), "{}: {command}: {}", attack.name, done.err);
        }
        assert!(rules(&held(&world)).contains(&attack.rule), "{}", attack.name);
    }
}

/// The home inside is a directory of the host that nobody looks through.
#[test]
fn nothing_leads_git_of_the_host_into_the_home_of_commands() {
    const EVIL_HOME: &str = "git init -q ~/evil; git -C ~/evil config core.fsmonitor $EVIL;";
    for (name, plant, rule) in FROM_HOME {
        let (world, mark) = world();
        world.sh(&script(&world, EVIL_HOME)).expect(0);
        let home = home_of(&world.state).unwrap();
        let plant = plant.replace("$HOSTHOME", &home.display().to_string());
        let done = world.sh(&script(&world, &plant));
        assert!(done.err.contains(rule), "{name}: {}", done.err);
        on_host(&world, "cd src && git status");
        assert!(!mark.exists(), "{name}");
        on_host(&world, &script(&world, &format!("rm -rf src; mkdir src; {plant}")));
        on_host(&world, "cd src && git status");
        assert!(mark.exists(), "control: {name}");
    }
}

/// Where the directory `evil` was made.
fn home_of(directory: &Path) -> Option<PathBuf> {
    for entry in fs::read_dir(directory).ok()?.flatten().filter(|entry| entry.path().is_dir()) {
        if entry.file_name() == "evil" {
            return Some(directory.to_owned());
        }
        if let Some(found) = home_of(&entry.path()) {
            return Some(found);
        }
    }
    None
}

/// Clones, submodules and worktrees that commands make are what they were.
#[test]
fn ordinary_repositories_of_commands_stay_usable() {
    let (world, _) = world();
    let origin = world.beside("origin");
    world.git(&origin, &["init", "-q", "--bare", "."]);
    world.git(&world.workspace, &["push", "-q", origin.to_str().unwrap(), "main"]);
    let script = script(
        &world,
        "git clone -q . vendor/clone; cd vendor/clone; git checkout -q -b work; echo y > new; git add new; git commit -q -m new; \
         git -c protocol.file.allow=always submodule --quiet add $TOP/vendor/clone sub 2>&1; git worktree add -q ../tree 2>&1; \
         cd $TOP; git init -q --bare vendor/bare.git; git -C vendor/clone push -q $TOP/vendor/bare.git work",
    );
    let done = world.run(&["--json"], &["sh", "-c", &script]);
    let result = done.json();
    assert_eq!(result["held"], Value::Array(Vec::new()), "{result}");
    let clone = world.workspace.join("vendor/clone");
    assert_eq!(world.git(&clone, &["log", "--format=%s", "-1"]).trim(), "new");
    assert_eq!(
        world.git(&clone, &["config", "remote.origin.url"]).trim(),
        world.workspace.join(".").to_str().unwrap()
    );
    world.git(&clone.join("sub"), &["status"]);
    world.git(&world.workspace.join("vendor/tree"), &["status"]);
    let bare = world.workspace.join("vendor/bare.git");
    assert_eq!(world.git(&bare, &["log", "--format=%s", "-1", "work"]).trim(), "new");
}

/// What the host has set up itself is not touched, whatever a command does beside it; the rest of a configuration stays.
#[test]
fn what_the_host_has_made_is_left_alone() {
    let (world, mark) = world();
    let bare = world.workspace.join("bare.git");
    world.git(&world.workspace, &["init", "-q", "--bare", "bare.git"]);
    world.git(&bare, &["config", "core.pager", "less"]);
    fs::copy(world.workspace.join("evil"), bare.join("hooks/post-update")).unwrap();
    let nested = world.workspace.join("own");
    world.git(&world.workspace, &["init", "-q", "own"]);
    world.git(&nested, &["config", "core.editor", "vim"]);
    let result = world.json(
        &[],
        &[
            "sh",
            "-c",
            &script(
                &world,
                "git -C bare.git config core.fsmonitor $EVIL; git -C bare.git config core.abbrev 12; @",
            ),
        ],
    );
    let changes = result["held"].as_array().unwrap();
    assert_eq!(rules(changes), ["held.git-config"], "{result}");
    assert_eq!(world.git(&bare, &["config", "core.pager"]).trim(), "less");
    assert_eq!(world.git(&bare, &["config", "core.abbrev"]).trim(), "12");
    assert_eq!(
        finish(world.host("git").args(["-C", "bare.git", "config", "core.fsmonitor"]), b"").code,
        Some(1)
    );
    assert!(bare.join("hooks/post-update").exists());
    assert_eq!(world.git(&nested, &["config", "core.editor"]).trim(), "vim");
    let kept = fs::read_to_string(changes[0]["kept"].as_str().unwrap()).unwrap();
    assert!(kept.contains("fsmonitor"), "the original is kept: {kept}");
    assert!(!mark.exists());
}

/// The supervisor is killed before its last look: the next start makes it.
#[test]
fn what_a_killed_session_left_is_made_ineffective_by_the_next_start() {
    let (world, mark) = world();
    let plant = script(
        &world,
        "@ git config core.fsmonitor $EVIL; cd $TOP; git add vendor/lib 2>/dev/null; touch planted; sleep 60",
    );
    let mut command = world.ringfence();
    command
        .args(["run", "--", "sh", "-c", &plant])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let planted = world.workspace.join("planted");
    eventually("it is planted", || planted.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    on_host(&world, "git status");
    assert!(mark.exists(), "control: nobody has looked yet");
    fs::remove_file(&mark).unwrap();
    world.sh("true").expect(0).says("held.git-config");
    on_host(&world, "git status");
    assert!(!mark.exists());
}

/// An agent that runs for hours leaves no such thing for hours.
#[test]
fn what_is_planted_is_made_ineffective_while_the_command_runs() {
    let (world, mark) = world();
    let plant = script(&world, "@ git config core.fsmonitor $EVIL; cd $TOP; touch planted; sleep 120");
    let mut command = world.ringfence();
    command
        .args(["run", "--", "sh", "-c", &plant])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let config = world.workspace.join("vendor/lib/.git/config");
    let planted = world.workspace.join("planted");
    eventually("it is planted", || planted.exists());
    let clean = || fs::read_to_string(&config).is_ok_and(|text| !text.contains("fsmonitor"));
    assert!(!clean(), "control: it is there at first");
    eventually("it was looked at", clean);
    on_host(&world, "cd vendor/lib && git status");
    assert!(!mark.exists());
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The file tools make no repository either.
#[test]
fn file_tools_make_no_repository_that_executes() {
    let (world, mark) = world();
    let config = format!(
        "[core]\nrepositoryformatversion = 0\nworktree = .\nfsmonitor = {}\n",
        world.workspace.join("evil").display()
    );
    fs::create_dir(world.workspace.join("src/objects")).unwrap();
    fs::create_dir(world.workspace.join("src/refs")).unwrap();
    let parts: [(&str, &[u8]); 2] = [("src/config", config.as_bytes()), ("src/HEAD", b"ref: refs/heads/x\n")];
    for (path, content) in parts {
        world.file(&["write", path], content).expect(0);
    }
    on_host(&world, "cd src && git status");
    assert!(!mark.exists());
    assert_eq!(rules(&held(&world)), ["held.git-config"]);
    world.write("src/config", &config);
    on_host(&world, "cd src && git status");
    assert!(mark.exists(), "control");
}

/// Other systems take orders from their directories as well.
#[test]
fn configurations_of_other_systems_are_held() {
    let (world, _) = world();
    world.write(".hg/hgrc", "[paths]\ndefault = https://example.org/r\n");
    let plant = "echo '[hooks]' >> .hg/hgrc; mkdir -p a/.hg b/.jj/repo c/.hg; printf '[hooks]\\nupdate = x\\n' > a/.hg/hgrc; \
                 echo 'ui.pager = \"x\"' > b/.jj/repo/config.toml; printf '[paths]\\ndefault = https://example.org/r\\n' > c/.hg/hgrc";
    world.sh(plant);
    assert!(!world.read(".hg/hgrc").unwrap().contains("hooks"), "what exists is read-only");
    assert_eq!(rules(&held(&world)), ["held.version-control", "held.version-control"]);
    assert!(world.read("a/.hg/hgrc").is_none() && world.read("b/.jj/repo/config.toml").is_none());
    assert!(world.read("c/.hg/hgrc").is_some(), "what a clone writes stays");
}
