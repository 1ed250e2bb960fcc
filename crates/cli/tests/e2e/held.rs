//! What a command leaves behind for the host's version control to execute: it is made ineffective before the result is there.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::testkit::{Done, World, eventually, finish, is_root};

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
        name: "zero byte in a subsection of core",
        plant: "@ printf '[core \"fsmonitor\\0\"]\\n\\tbare = %s\\n' $EVIL >> .git/config; cd ../..; git add vendor/lib 2>/dev/null",
        host: &["git status", "git diff"],
        rule: "held.git-config",
    },
    Attack {
        name: "zero byte in a subsection of another section",
        plant: "@ printf '[diff \"external\\0\"]\\n\\tbinary = %s\\n' $EVIL >> .git/config; echo y > f",
        host: &["cd vendor/lib && git diff"],
        rule: "held.git-config",
    },
    Attack {
        name: "zero byte behind a harmless section",
        plant: "@ printf '[branch \"x\"]\\n\\tx = y\\n[core \"sshcommand\\0\"]\\n\\tabbrev = %s\\n' $EVIL >> .git/config",
        host: &["cd vendor/lib && timeout 5 git fetch ssh://127.0.0.1:1/x"],
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
        name: "remote that is called like an option",
        plant: "@ git clone -q --bare . ../up; git remote add origin ../up; \
                printf '[remote \"--upload-pack=%s </dev/null; git-upload-pack\"]\\n\\turl = ../up\\n' $EVIL >> .git/config",
        host: &["cd vendor/lib && git fetch --all", "cd vendor/lib && git remote update"],
        rule: "held.git-config",
    },
    Attack {
        name: "partial clone of a remote that is called like an option",
        plant: "@ git clone -q --bare . ../up; git remote add origin ../up; \
                git config core.repositoryFormatVersion 1; \
                git config extensions.partialClone \"--upload-pack=$EVIL </dev/null; git-upload-pack\"; \
                rm -f f .git/objects/$(git rev-parse HEAD:f | sed 's,..,&/,')",
        host: &["cd vendor/lib && git checkout -q -- f"],
        rule: "held.git-config",
    },
    Attack {
        name: "remote whose branch is kept as the common directory",
        plant: "@ git clone -q --bare . ../up; git config remote.up.url ../up; \
                git config remote.up.fetch $(git symbolic-ref HEAD):commondir; \
                C=$(git rev-parse HEAD); mkdir .git/$C; cp -r .git/objects .git/refs .git/$C; \
                printf '[core]\\nrepositoryformatversion = 0\\nfsmonitor = %s\\n' $EVIL > .git/$C/config",
        host: &["cd vendor/lib && git push -q up HEAD; git status"],
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
    Attack {
        name: "commands of a rebase behind a link",
        plant: "echo z > readme; git commit -q -am z; git rebase -q -i -x false HEAD~1 2>/dev/null; \
                echo exec $EVIL > .git/rebase-merge/git-rebase-todo; mv .git/rebase-merge r; ln -s ../r .git/rebase-merge",
        host: &["git rebase --continue"],
        rule: "held.git-rebase",
    },
    Attack {
        name: "strategy of a rebase",
        plant: "# git rebase -q main >/dev/null 2>&1; git checkout -q --theirs g; git add g; mkdir git-merge-x; \
                cp $EVIL git-merge-x/y; echo x/y > .git/rebase-merge/strategy",
        host: &["git rebase --continue"],
        rule: "held.git-rebase",
    },
    Attack {
        name: "strategy of a cherry-pick",
        plant: "# git checkout -q main; git cherry-pick other~1 other >/dev/null 2>&1; git checkout -q --theirs g; git add g; \
                mkdir git-merge-x; cp $EVIL git-merge-x/y; git config -f .git/sequencer/opts options.strategy x/y",
        host: &["git cherry-pick --continue"],
        rule: "held.git-rebase",
    },
    Attack {
        name: "hook in the index",
        plant: "FORGE .git/index .git/hooks/post-checkout $(git hash-object -w $EVIL)",
        host: &["git restore ."],
        rule: "held.git-path",
    },
    Attack {
        name: "file outside of the checkout in the index of a worktree",
        plant: "git worktree add -q wt 2>/dev/null; FORGE .git/worktrees/wt/index $TOP/.git/hooks/post-checkout $(git hash-object -w $EVIL)",
        host: &["cd wt && git checkout -- ."],
        rule: "held.git-path",
    },
    Attack {
        name: "hook in a shared index",
        plant: "git update-index --split-index; FORGE .git/sharedindex.* zz/../.git/hooks/post-checkout $(git hash-object -w $EVIL)",
        host: &["git restore ."],
        rule: "held.git-path",
    },
    Attack {
        name: "resolution of a conflict in the configuration",
        plant: "R=.git/rr-cache/0123456789012345678901234567890123456789; mkdir -p $R; cp .git/config $R/preimage; \
                cp .git/config $R/postimage; git config -f $R/postimage core.fsmonitor $EVIL; \
                printf '0123456789012345678901234567890123456789.-1\\t.git/config\\0' > .git/MERGE_RR",
        host: &["git commit -q --allow-empty -m x; git status"],
        rule: "held.git-path",
    },
    Attack {
        name: "checkout in a git directory",
        plant: "git init -q a; cd a; mkdir hooks; cp $EVIL hooks/post-checkout; git add hooks; git commit -q -m x; rm -r hooks; \
                git config core.worktree ../../.git",
        host: &["(cd a; git checkout -q -- .); git checkout -q -- ."],
        rule: "held.git-config",
    },
    Attack {
        name: "git file in a git directory",
        plant: "git init -q a; cd a; mkdir hooks; cp $EVIL hooks/post-checkout; git add hooks; git commit -q -m x; rm -r hooks; \
                echo gitdir: ../a/.git > ../.git/.git",
        host: &["(cd .git; git checkout -q -- .); git checkout -q -- ."],
        rule: "held.git-pointer",
    },
];

/// Adds an entry to an index that git would refuse: file, path and blob. Git does not look at the checksum.
const FORGE: &str = r#"
import struct, sys
file, path, blob = sys.argv[1], sys.argv[2].encode(), bytes.fromhex(sys.argv[3])
old = open(file, "rb").read()
count = struct.unpack(">I", old[8:12])[0]
at, entries = 12, []
for _ in range(count):
    end = old.index(b"\0", at + 62)
    size = (end - at + 8) // 8 * 8
    entries.append((old[at + 62:end], old[at:at + size]))
    at += size
entry = struct.pack(">10I", 0, 0, 0, 0, 0, 0, 0o100755, 0, 0, 0) + blob + struct.pack(">H", len(path)) + path
entries.append((path, entry + bytes(8 - len(entry) % 8)))
new = old[:8] + struct.pack(">I", count + 1) + b"".join(entry for _, entry in sorted(entries)) + old[at:-20]
open(file, "wb").write(new + old[-20:])
"#;

/// Two branches that change one file: the second of two commits waits for the first.
const DIVERGED: &str = "git checkout -q -b other; echo 1 > g; git add g; git commit -q -m 1; echo 2 > h; git add h; git commit -q -m 2; \
                        git checkout -q main; echo x > g; git add g; git commit -q -m x; git checkout -q other;";

/// The same with a repository in the home of the sandbox, which the host has too.
const FROM_HOME: &[(&str, &str, &str)] = &[
    ("git file", "echo gitdir: $HOSTHOME/evil/.git > src/.git", "held.git-pointer"),
    ("link called .git", "ln -s $HOSTHOME/evil/.git src/.git", "held.git-pointer"),
    ("link in place of a directory", "rm -r src; ln -s $HOSTHOME/evil src", "held.link"),
    (
        "git file through a directory that is not there yet",
        "echo gitdir: build/../../../../../../../../../../../../..$HOSTHOME/evil/.git > src/.git",
        "held.git-pointer",
    ),
];

/// What the host does: a build makes a directory, and git is asked.
const LATER: &str = "mkdir -p src/build; cd src && git status";

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
    let plant = plant.replace('@', NESTED).replace('#', DIVERGED);
    let plant = plant.replace("FORGE", &format!("python3 -c '{FORGE}'"));
    format!("{identity} TOP={top}; EVIL=$TOP/evil; {plant}")
}

fn on_host(world: &World, command: &str) -> Done {
    let mut shell = world.host("sh");
    let identity = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a GIT_EDITOR=true;";
    finish(shell.args(["-c", &format!("{identity} {command}")]), b"")
}

fn held(world: &World) -> Vec<Value> {
    let events = world.all_records().into_iter().map(|record| record["event"].clone());
    events
        .filter(|event| event["kind"] == "changes-held")
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
        on_host(&world, LATER);
        assert!(!mark.exists(), "{name}");
        on_host(&world, &script(&world, &format!("rm -rf src; mkdir src; {plant}")));
        on_host(&world, LATER);
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

/// Mounts do not hold what is in a bare repository of the host; the look at the end does.
#[test]
fn attributes_of_a_bare_repository_are_held() {
    let (world, _) = world();
    world.git(&world.workspace, &["init", "-q", "--bare", "bare.git"]);
    let plant = "mkdir -p bare.git/info; echo '* diff=x' > bare.git/info/attributes";
    world.sh(plant).expect(0).says("held.git-attributes");
    assert!(world.read("bare.git/info/attributes").is_none());
    on_host(&world, plant).expect(0);
    assert!(world.read("bare.git/info/attributes").is_some(), "control");
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
    let changes = held(&world);
    assert_eq!(
        rules(&changes),
        ["held.git-config"; 2],
        "a git directory is not its own checkout: {changes:?}"
    );
    world.write("src/config", &config);
    on_host(&world, "cd src && git status");
    assert!(mark.exists(), "control");
}

/// Which directory a repository shares with may be said before that directory has anything in it.
#[test]
fn file_tools_make_no_repository_in_two_places() {
    let (world, mark) = world();
    let config = format!(
        "[core]\nrepositoryformatversion = 0\nsshCommand = \"echo ran >> {}; false\"\n[remote \"origin\"]\nurl = ssh://127.0.0.1:1/x\n",
        mark.display()
    );
    fs::create_dir_all(world.workspace.join("common/objects")).unwrap();
    fs::create_dir_all(world.workspace.join("common/refs")).unwrap();
    for (path, content) in
        [("src/HEAD", "ref: refs/heads/x\n"), ("src/commondir", "../common\n"), ("common/config", &config)]
    {
        world.file(&["write", path], content.as_bytes()).expect(0);
    }
    on_host(&world, "cd src && git fetch");
    assert!(!mark.exists());
    assert_eq!(rules(&held(&world)), ["held.git-config"]);
    world.write("common/config", &config);
    on_host(&world, "cd src && git fetch");
    assert!(mark.exists(), "control");
}

/// What a session has planted is not the host's own to one that begins meanwhile: it could plant it again later.
#[test]
fn sessions_do_not_vouch_for_each_other() {
    let (world, mark) = world();
    // Mounts hold the configuration of a `.git` that is there at the start by themselves, and not this one.
    let plant = "mkdir -p x/objects x/refs; cp settings x/config; echo ref: refs/heads/x > x/HEAD";
    let settings = "[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\nfsmonitor = ";
    world.write("settings", format!("{settings}{}\n", world.workspace.join("evil").display()));
    let begin = |command: &str| {
        let mut run = world.ringfence();
        run.args(["run", "--", "sh", "-c", command]).stdin(Stdio::null()).stdout(Stdio::null());
        run.stderr(Stdio::null()).spawn().unwrap()
    };
    let exists = |name: &str| world.workspace.join(name).exists();
    let mut first =
        begin(&format!("while [ ! -e stop ]; do {plant}; touch planted; sleep 0.05; done; rm -r x"));
    eventually("the first plants", || exists("planted"));
    let mut second = begin(&format!("touch begun; while [ ! -e over ]; do sleep 0.1; done; {plant}"));
    eventually("the second runs", || exists("begun"));
    world.write("stop", "");
    assert!(first.wait().unwrap().success());
    assert!(!exists("x"), "the first is over and has left nothing");
    world.write("over", "");
    second.wait().unwrap();
    assert!(exists("x/HEAD"), "the second has planted it again");
    on_host(&world, "cd x && git status");
    assert!(!mark.exists(), "{:?}", held(&world));
    on_host(&world, plant);
    on_host(&world, "cd x && git status");
    assert!(mark.exists(), "control");
}

/// Directories in each other that cannot be listed take a look for each. Root lists them all the same.
#[test]
fn a_call_fails_when_the_look_at_its_end_is_not_finished() {
    let (world, mark) = world();
    // More than the looks at the end of the call and of its session uncover.
    let deep = format!("deep{}", "/d".repeat(200));
    let close = "p=$PWD; while [ $p != $TOP ]; do chmod 0111 $p; p=${p%/*}; done";
    let plant = format!("git init -q {deep}; cd {deep}; git config core.fsmonitor $EVIL; {close}");
    let done = world.sh(&script(&world, &plant));
    let status = format!("git -C {deep} status");
    if !is_root() {
        assert_eq!(done.code, Some(125), "{}", done.err);
        done.says("held.unfinished").says("could not be looked through to the end");
        on_host(&world, &status);
        assert!(mark.exists(), "control: it was not finished");
        fs::remove_file(&mark).unwrap();
        // Each start goes on where the one before has ended, and says so until it is done.
        world.sh("true").expect(0).says("held.unfinished");
        world.sh("true").expect(0).says("held.closed-directory");
    }
    on_host(&world, &status);
    assert!(!mark.exists());
    assert!(rules(&held(&world)).contains(&"held.git-config"));
}

/// What a configuration of the host leads to is as good as that configuration.
#[test]
fn what_the_host_includes_is_looked_at() {
    let (world, mark) = world();
    world.git(&world.workspace, &["init", "-q", "--bare", "bare.git"]);
    let bare = world.workspace.join("bare.git");
    world.git(&bare, &["config", "include.path", "../included"]);
    world.git(&bare, &["config", "core.hooksPath", "../own-hooks"]);
    let editor = "[core]\n\teditor = vim\n";
    world.write("included", editor);
    world.write("own-hooks/notes", "x");
    let status = "git --git-dir bare.git --work-tree . status";
    let commit = "git --git-dir bare.git --work-tree src commit -q --allow-empty -m x";
    let plants = [
        "git config -f included core.fsmonitor $EVIL",
        "printf '[core \"fsmonitor\\0\"]\\n\\tbare = %s\\n' $EVIL >> included",
        "cp $EVIL own-hooks/pre-commit",
    ];
    for (plant, host) in plants.iter().zip([status, status, commit]) {
        let done = world.sh(&script(&world, plant));
        on_host(&world, host);
        assert!(!mark.exists(), "{plant}: {}", done.err);
        // A file with a zero byte is put aside as a whole.
        let kept = world.read("included").or_else(|| world.read("included.held-by-ringfence.1")).unwrap();
        assert!(kept.contains("vim") && world.read("own-hooks/notes").is_some());
        on_host(&world, &script(&world, plant));
        on_host(&world, host);
        assert!(mark.exists(), "control: {plant}");
        fs::remove_file(&mark).unwrap();
        world.write("included", editor);
    }
    assert_eq!(rules(&held(&world)), ["held.git-config", "held.git-config", "held.git-hook"]);
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
