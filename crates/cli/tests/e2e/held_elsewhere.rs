//! What a command leaves in a git directory that names places outside of the workspace: other repositories of the user, their
//! packs and tables. The host's git would read, write or remove files there.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::testkit::{Done, World, finish};

/// What a command does at the top of a repository, and what its user does there later.
struct PlaceAttack {
    name: &'static str,
    /// `$OUT` is a directory of the user beside the workspace, with the repositories `private`, `hub.git` and `tables`.
    plant: &'static str,
    host: &'static str,
    /// What the user sees when it has happened.
    sign: &'static str,
    rule: &'static str,
}

/// Adds a name to the packs of an index of several packs: file and name.
const ADD_PACK: &str = r#"
import hashlib, struct, sys
file, name = sys.argv[1], sys.argv[2].encode()
old = open(file, "rb").read()
count = old[6]
table = [struct.unpack(">4sQ", old[12 + 12 * i:24 + 12 * i]) for i in range(count + 1)]
chunks = {table[i][0]: old[table[i][1]:table[i + 1][1]] for i in range(count)}
names = [known for known in chunks[b"PNAM"].split(b"\0") if known]
assert all(name < known for known in names)
text = b"\0".join([name] + names) + b"\0"
chunks[b"PNAM"] = text + bytes(-len(text) % 4)
places = [struct.unpack(">II", chunks[b"OOFF"][i:i + 8]) for i in range(0, len(chunks[b"OOFF"]), 8)]
chunks[b"OOFF"] = b"".join(struct.pack(">II", pack + 1, offset) for pack, offset in places)
at, toc = 24 + 12 * count, b""
for kind, _ in table[:-1]:
    toc += struct.pack(">4sQ", kind, at)
    at += len(chunks[kind])
new = old[:8] + struct.pack(">I", len(names) + 1) + toc + struct.pack(">4sQ", bytes(4), at)
new += b"".join(chunks[kind] for kind, _ in table[:-1])
import os
os.remove(file)
open(file, "wb").write(new + hashlib.sha1(new).digest())
"#;

const ATTACKS: &[PlaceAttack] = &[
    PlaceAttack {
        name: "remote that is a repository of the user",
        plant: "git init -q lib; git -C lib remote add origin $OUT/private",
        host: "git -C lib fetch -q",
        sign: "git -C lib show origin/main:key | grep -q sesame",
        rule: "held.git-config",
    },
    PlaceAttack {
        name: "the same by a relative path",
        plant: "git init -q lib; git -C lib config remote.origin.url ../../out/private",
        host: "git -C lib fetch -q origin main",
        sign: "git -C lib show FETCH_HEAD:key | grep -q sesame",
        rule: "held.git-config",
    },
    PlaceAttack {
        name: "the same by a URL",
        plant: "git init -q lib; git -C lib remote add origin file://$OUT/private",
        host: "git -C lib fetch -q",
        sign: "git -C lib show origin/main:key | grep -q sesame",
        rule: "held.git-config",
    },
    PlaceAttack {
        name: "the same by a path without its ending",
        plant: "git init -q lib; git -C lib remote add origin $TOP/x/; ln -s $OUT/private x.git",
        host: "git -C lib fetch -q",
        sign: "git -C lib show origin/main:key | grep -q sesame",
        rule: "held.git-config",
    },
    PlaceAttack {
        name: "the same by a file that points there",
        plant: "git init -q lib; git -C lib remote add origin $TOP/x; echo gitdir: $OUT/private/.git > x",
        host: "git -C lib fetch -q",
        sign: "git -C lib show origin/main:key | grep -q sesame",
        rule: "held.git-config",
    },
    PlaceAttack {
        name: "the same by the name of no remote",
        plant: "git init -q -b main lib; cd lib; git config branch.main.remote zed; git config branch.main.merge refs/heads/main; \
                ln -s $OUT/private zed.git",
        host: "git -C lib fetch -q",
        sign: "git -C lib show FETCH_HEAD:key | grep -q sesame",
        rule: "held.git-config",
    },
    PlaceAttack {
        name: "the same in a linked worktree",
        plant: "git init -q -b main lib; cd lib; git commit -q --allow-empty -m x; git worktree add -q -b w ../wt 2>/dev/null; \
                git config branch.w.remote zed; git config branch.w.merge refs/heads/main; ln -s $OUT/private ../wt/zed",
        host: "git -C wt fetch -q",
        sign: "git -C wt show FETCH_HEAD:key | grep -q sesame",
        rule: "held.git-config",
    },
    PlaceAttack {
        name: "the same in another checkout of the repository",
        plant: "git init -q -b main lib; git -C lib config branch.main.remote zed; git -C lib config branch.main.merge refs/heads/main; \
                mkdir far; echo gitdir: ../lib/.git > far/.git; ln -s $OUT/private far/zed",
        host: "git -C far fetch -q",
        sign: "git -C lib show FETCH_HEAD:key | grep -q sesame",
        rule: "held.git-pointer",
    },
    PlaceAttack {
        name: "the same by a remote without an address",
        plant: "git init -q lib; cd lib; git config remote.foo.fetch '+refs/heads/*:refs/remotes/foo/*'; ln -s $OUT/private foo",
        host: "git -C lib fetch -q --all",
        sign: "git -C lib show foo/main:key | grep -q sesame",
        rule: "held.git-config",
    },
    PlaceAttack {
        name: "the same by a remote that is asked for what is missing",
        plant: "git init -q lib; cd lib; git config extensions.partialClone foo; git config core.repositoryFormatVersion 1; \
                ln -s $OUT/private foo",
        host: "git -C lib show $(git -C $OUT/private rev-parse HEAD):key > found",
        sign: "grep -q sesame found",
        rule: "held.git-config",
    },
    PlaceAttack {
        name: "repository of the user that is pushed to",
        plant: "git init -q lib; cd lib; git commit -q --allow-empty -m mark; git remote add origin .; \
                git config remote.origin.pushurl $OUT/hub.git",
        host: "git -C lib push -q origin HEAD:refs/heads/new",
        sign: "git -C $OUT/hub.git log new | grep -q mark",
        rule: "held.git-config",
    },
    PlaceAttack {
        name: "objects of the user",
        plant: "echo $OUT/private/.git/objects > .git/objects/info/alternates",
        host: "git branch found $(git -C $OUT/private rev-parse HEAD); git show found:key > found",
        sign: "grep -q sesame found",
        rule: "held.git-remote",
    },
    PlaceAttack {
        name: "objects of the user behind those of the workspace",
        plant: "mkdir -p store/info; echo $OUT/private/.git/objects > store/info/alternates; \
                echo ../../store > .git/objects/info/alternates",
        host: "git branch found $(git -C $OUT/private rev-parse HEAD); git show found:key > found",
        sign: "grep -q sesame found",
        rule: "held.git-remote",
    },
    PlaceAttack {
        name: "pack of the user that git removes",
        plant: "git repack -adq; git multi-pack-index write; \
                PACK .git/objects/pack/multi-pack-index ../../../../out/private/.git/objects/pack/pack-x.idx",
        host: "git multi-pack-index expire",
        sign: "! test -e $OUT/private/.git/objects/pack/pack-x.pack",
        rule: "held.git-path",
    },
    PlaceAttack {
        name: "table of refs of the user that git removes",
        plant: "git init -q --ref-format=reftable lib; git -C lib commit -q --allow-empty -m x; \
                sed -i '1i ../../../../out/tables/.git/reftable/x.ref' lib/.git/reftable/tables.list",
        host: "git -C lib pack-refs",
        sign: "! test -e $OUT/tables/.git/reftable/x.ref",
        rule: "held.git-path",
    },
    PlaceAttack {
        name: "worktree of which nothing is there but its place",
        plant: "mkdir -p .git/worktrees/x; echo $OUT/.git > .git/worktrees/x/gitdir",
        host: "git worktree repair",
        sign: "test -e $OUT/.git",
        rule: "held.git-pointer",
    },
    PlaceAttack {
        name: "worktree whose place is a link",
        plant: "mkdir -p .git/worktrees/x; ln -s $OUT l; echo $TOP/l > .git/worktrees/x/gitdir",
        host: "git worktree repair",
        sign: "test -e $OUT/.git",
        rule: "held.git-pointer",
    },
    PlaceAttack {
        name: "worktree whose place begins at another one",
        plant: "git worktree add -q wt 2>/dev/null; mkdir .git/worktrees/x; echo ../../out/.git > .git/worktrees/x/gitdir",
        host: "cd wt && git worktree repair; cd .. && git worktree repair",
        sign: "test -e ../out/.git",
        rule: "held.git-pointer",
    },
    PlaceAttack {
        name: "message of a commit into a ref that stands for a file",
        plant: "git init -q lib; cd lib; git commit -q --allow-empty -m x; C=$(git rev-parse HEAD); mkdir .git/$C; \
                cp -r .git/objects .git/refs .git/$C; \
                printf '[core]\\nrepositoryformatversion = 0\\nfsmonitor = \"touch %s/mark;:\"\\n' $TOP > .git/$C/config; \
                echo $C > .git/ORIG_HEAD; cd ..; git init -q tool; git -C tool commit -q --allow-empty -m 'ref: commondir'; \
                ln -f lib/.git/ORIG_HEAD tool/.git/COMMIT_EDITMSG",
        host: "git -C tool commit -q --amend --no-edit; git -C lib reset -q; git -C lib status",
        sign: "test -e mark",
        rule: "held.link",
    },
    PlaceAttack {
        name: "file of the user that a recorded resolution replaces",
        plant: "RESOLUTION ln -s $OUT l; printf '0123456789012345678901234567890123456789.-1\\tl/rc\\0' > .git/MERGE_RR",
        host: "git commit -q --allow-empty -m x",
        sign: "grep -q 'touch mark' $OUT/rc",
        rule: "held.git-path",
    },
    PlaceAttack {
        name: "file of the user that is kept as a resolution",
        plant: "RESOLUTION ln -s $OUT/rc l; printf '0123456789012345678901234567890123456789\\tl\\0' > .git/MERGE_RR; \
                rm $R/postimage",
        host: "git commit -q --allow-empty -m x",
        sign: "grep -q untouched .git/rr-cache/*/postimage",
        rule: "held.git-path",
    },
    PlaceAttack {
        name: "configuration behind the number of a variant",
        plant: "RESOLUTION cp .git/config $R/preimage; cp .git/config $R/postimage; git config -f $R/postimage core.fsmonitor \"touch $TOP/mark;:\"; \
                printf '0123456789012345678901234567890123456789.\\t-1\\t.git/config\\0' > .git/MERGE_RR; \
                D=$(printf '\\055\\061\\t.git'); mkdir \"./$D\"; touch \"./$D/config\"; B=$(git hash-object -w -- \"./$D/config\"); \
                printf '100644 %s 1\\t%s\\0' $B \"$D/config\" | git update-index -z --index-info",
        host: "git commit -q --allow-empty -m x; git rerere; git status",
        sign: "test -e mark",
        rule: "held.git-path",
    },
    PlaceAttack {
        name: "file of the user that becomes a link when git restores it",
        plant: "RESOLUTION ln -s $OUT l; git add l; rm l; mkdir l; touch l/rc; \
                printf '0123456789012345678901234567890123456789.-1\\tl/rc\\0' > .git/MERGE_RR",
        host: "git checkout -q -f -- l; git commit -q --allow-empty -m x",
        sign: "grep -q 'touch mark' $OUT/rc",
        rule: "held.git-path",
    },
    PlaceAttack {
        name: "file of the user as the list of submodules",
        plant: "git init -q lib; cd lib; git commit -q --allow-empty -m x; ln -s $OUT/rc .gitmodules; git clone -q . sub",
        host: "cd lib && git submodule add ./sub sub",
        sign: "grep -q submodule $OUT/rc",
        rule: "held.link",
    },
    PlaceAttack {
        name: "commands of a program that works with git",
        plant: "echo 'customCommands: []' > .git/lazygit.yml",
        host: "",
        sign: "test -e .git/lazygit.yml",
        rule: "held.version-control",
    },
    PlaceAttack {
        name: "server that git executes from its directory",
        plant: "mkdir .git/gitweb; printf '#!/bin/sh\\ntouch mark\\n' > .git/gitweb/served; chmod 755 .git/gitweb/served; \
                touch .git/gitweb/served.conf",
        host: "git instaweb --httpd=served --start",
        sign: "test -e mark",
        rule: "held.version-control",
    },
    PlaceAttack {
        name: "options for a signal",
        plant: "echo -l > .git/pid",
        host: "git instaweb --stop > said",
        sign: "grep -q KILL said",
        rule: "held.version-control",
    },
];

fn world() -> World {
    let world = World::new();
    world.repository();
    world.beside("out");
    on_host(
        &world,
        "cd $OUT; git init -q --bare hub.git; git init -q -b main private; cd private; echo sesame > key; git add key; \
         git commit -q -m x; git repack -adq; cd .git/objects/pack; for end in idx pack; do cp pack-*.$end pack-x.$end; done; \
         cd $OUT; git init -q --ref-format=reftable tables; git -C tables commit -q --allow-empty -m x; \
         cp tables/.git/reftable/*.ref tables/.git/reftable/x.ref; echo untouched > rc",
    )
    .expect(0);
    world
}

fn script(world: &World, text: &str) -> String {
    let who = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a GIT_EDITOR=true";
    let out = world.workspace.parent().unwrap().join("out");
    let top = world.workspace.display();
    let resolution = "R=.git/rr-cache/0123456789012345678901234567890123456789; mkdir -p $R; echo untouched > $R/preimage; \
                      echo touch mark > $R/postimage;";
    let text = text.replace("RESOLUTION", resolution).replace("PACK ", &format!("python3 -c '{ADD_PACK}' "));
    format!("{who}; OUT={}; TOP={top}; {text}", out.display())
}

fn on_host(world: &World, text: &str) -> Done {
    finish(world.host("sh").args(["-c", &script(world, text)]), b"")
}

#[test]
fn git_of_the_host_goes_to_no_place_that_a_command_has_named() {
    for attack in ATTACKS {
        let control = world();
        let planted = on_host(&control, attack.plant);
        let done = on_host(&control, attack.host);
        let sign = on_host(&control, attack.sign);
        assert_eq!(sign.code, Some(0), "control: {}: {} {}", attack.name, planted.err, done.err);
        let world = world();
        let done = world.sh(&script(&world, attack.plant));
        assert!(done.err.contains(attack.rule), "{}: {}", attack.name, done.err);
        let host = on_host(&world, attack.host);
        assert_ne!(on_host(&world, attack.sign).code, Some(0), "{}: {} {}", attack.name, done.err, host.err);
    }
}

/// A relative address begins at the checkout that git works in, which is less deep than the repository here. Hooks in the home of
/// commands would run.
#[test]
fn git_of_the_host_pushes_to_no_repository_of_the_home_of_commands() {
    let plant = |fenced: bool| {
        let world = world();
        let evil = "git init -q --bare ~/evil; printf '#!/bin/sh\\ntouch $TOP/mark\\n' > ~/evil/hooks/update; chmod 755 ~/evil/hooks/update";
        let evil = evil.replace("$TOP", &world.workspace.display().to_string());
        let done = world.sh(&evil).expect(0);
        let home = home_with("evil", &world.state).unwrap();
        let up = home.strip_prefix(world.workspace.parent().unwrap()).unwrap();
        let plant = format!(
            "mkdir a; git init -q a/b; cd a/b; git commit -q --allow-empty -m x; git worktree add -q $TOP/wt; \
             git config remote.origin.url ../../{}/evil",
            up.display()
        );
        let done = match fenced {
            true => world.sh(&script(&world, &plant)).expect(0).says("held.git-config"),
            false => {
                on_host(&world, &plant).expect(0);
                done
            }
        };
        on_host(&world, "cd wt && git push -q origin HEAD:refs/heads/new");
        assert_ne!(world.workspace.join("mark").exists(), fenced, "{}", done.err);
    };
    plant(false);
    plant(true);
}

/// Where a directory of this name is.
fn home_with(name: &str, directory: &std::path::Path) -> Option<PathBuf> {
    let below = fs::read_dir(directory).ok()?.flatten().filter(|entry| entry.path().is_dir());
    let mut below: Vec<_> = below.collect();
    below.sort_by_key(|entry| entry.file_name() != name);
    below.into_iter().find_map(|entry| match entry.file_name() == name {
        true => Some(directory.to_owned()),
        false => home_with(name, &entry.path()),
    })
}

/// What commands make with repositories that they can see, and what git makes of objects and refs by itself.
#[test]
fn places_that_commands_can_see_stay() {
    let world = world();
    let out = world.workspace.parent().unwrap().join("out");
    let plant = "git clone -q $OUT/private clone; git clone -q -s . shared; git clone -q --reference . $OUT/private other; \
                 git init -q deep/er/lib; git -C deep/er/lib config remote.origin.url ../../../shared; \
                 git -C deep/er/lib config remote.origin.push HEAD; git worktree add -q wt 2>/dev/null; \
                 mkdir clone/origin clone/origin.git; echo x > clone/origin/f; ln -s origin clone/upstream; \
                 git -C clone config remote.upstream.prune true; git -C clone worktree add -q -b w ../linked 2>/dev/null; \
                 git -C clone config branch.w.remote origin; git clone -q clone linked/origin; \
                 git repack -adq; git multi-pack-index write --bitmap; git init -q --ref-format=reftable tables; \
                 cd tables; for i in 1 2 3; do git commit -q --allow-empty -m $i; git tag $i; done";
    let read = ["--json", "--read", out.to_str().unwrap()];
    let result = world.run(&read, &["sh", "-c", &script(&world, plant)]).json();
    assert_eq!(result["held"], Value::Array(Vec::new()), "{result}");
    assert_eq!(result["exit_code"], 0, "{result}");
    for (directory, command) in [
        ("clone", ["fetch", "-q"].as_slice()),
        ("shared", &["log", "-1"]),
        ("other", &["log", "-1"]),
        ("deep/er/lib", &["ls-remote", "-q", "origin"]),
        ("tables", &["rev-parse", "3"]),
        (".", &["multi-pack-index", "verify"]),
    ] {
        world.git(&world.workspace.join(directory), command);
    }
}

/// A conflict that a command leaves is resolved on the host, and the resolution is recorded.
#[test]
fn resolutions_of_conflicts_of_commands_are_recorded() {
    let world = world();
    let plant = "git init -q -b main lib; cd lib; git config rerere.enabled true; echo 1 > f; git add f; git commit -q -m 1; \
                 git checkout -q -b other; echo 2 > f; git commit -q -a -m 2; git checkout -q main; echo 3 > f; git commit -q -a -m 3; \
                 git merge other; test -s .git/MERGE_RR";
    let result = world.run(&["--json"], &["sh", "-c", &script(&world, plant)]).json();
    assert_eq!(result["held"], Value::Array(Vec::new()), "{result}");
    assert_eq!(result["exit_code"], 0, "{result}");
    on_host(&world, "cd lib; echo 4 > f; git commit -q -a -m 4; grep -q 4 .git/rr-cache/*/postimage")
        .expect(0);
}

/// What the host has set up with repositories elsewhere is its own.
#[test]
fn places_that_the_host_has_named_stay() {
    let world = world();
    on_host(
        &world,
        "git clone -q -s --bare $OUT/private own; git -C own worktree add -q -b w $OUT/linked 2>/dev/null; mkdir $OUT/linked/origin; git worktree add -q $OUT/tree 2>/dev/null; \
         echo x > .git/lazygit.yml",
    )
    .expect(0);
    let own = "cd own; git config core.abbrev 12; git config branch.w.remote origin; git config branch.main.remote .; \
               git config remote.linked.prune true";
    let result = world.json(&[], &["sh", "-c", own]);
    assert_eq!(result["held"], Value::Array(Vec::new()), "{result}");
    let own = world.workspace.join("own");
    world.git(&own, &["fetch", "-q"]);
    assert_eq!(world.git(&own, &["config", "core.abbrev"]).trim(), "12");
    world.git(&world.beside("out").join("tree"), &["status"]);
    assert!(world.read(".git/lazygit.yml").is_some());
}
