//! What a command leaves in a git directory for an operation to go on with, and refs that stand for other files: the host's git
//! would write hooks, configurations and files of its user because of it.

use std::fs;

use serde_json::Value;

use crate::testkit::{Done, World, finish};

/// What a command does at the top of a repository, and what its user does there later.
struct StateAttack {
    name: &'static str,
    /// `$OUT` is a directory of the user beside the workspace, with the file `rc`. `$TOP` is the workspace.
    plant: &'static str,
    host: &'static str,
    /// What the user sees when it has happened.
    sign: &'static str,
    rule: &'static str,
}

/// `mail PATH` is a patch that makes an executable file.
const MAIL: &str = r"mail() { printf 'From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\nFrom: a <a@a>\nDate: Mon, 17 Sep 2001 00:00:00 +0000\nSubject: x\n\n---\ndiff --git a/%s b/%s\nnew file mode 100755\nindex 0000000..1111111\n--- /dev/null\n+++ b/%s\n@@ -0,0 +1,2 @@\n+#!/bin/sh\n+touch %s/mark\n-- \n2\n' $1 $1 $1 $TOP; }";

/// `diverge` makes two branches that change one file; the second of two commits waits for the first. `stopped_am` leaves a
/// `git am` that stopped at the first of two mails, with options for `git apply` and a path for the second.
const STOPPED: &str = "diverge() { git checkout -q -b other; echo 1 > g; git add g; git commit -q -m 1; echo 2 > h; git add h; \
    git commit -q -m 2; git checkout -q main; echo x > g; git add g; git commit -q -m x; git checkout -q other; }; \
    stopped_am() { diverge; git format-patch -q -1 --stdout other~1 > p; git checkout -q main; git am -3 p; \
    echo 2 > .git/rebase-apply/last; echo \"$1\" > .git/rebase-apply/apply-opt; mail $2 > .git/rebase-apply/0002; }; \
    stopped_rebase() { diverge; git rebase -q main; git checkout -q --theirs g; git add g; }";

/// `elsewhere` makes a directory that is called like a commit, with a configuration that executes.
const ELSEWHERE: &str = "elsewhere() { mkdir .git/$1; cp -r .git/objects .git/refs .git/$1; \
    printf '[core]\\nrepositoryformatversion = 0\\nfsmonitor = \"touch %s/mark;:\"\\n' $TOP > .git/$1/config; }";

const ATTACKS: &[StateAttack] = &[
    StateAttack {
        name: "mail that writes a hook",
        plant: "stopped_am \"'--unsafe-paths' '--apply'\" .git/hooks/post-checkout",
        host: "git am --skip; git checkout -q main",
        sign: "test -e mark",
        rule: "held.git-rebase",
    },
    StateAttack {
        name: "mail that writes a hook when the first is resolved",
        plant: "stopped_am \"'--unsafe-paths' '--apply'\" .git/hooks/post-checkout; git checkout -q --theirs g; git add g",
        host: "git am --continue; git checkout -q main",
        sign: "test -e mark",
        rule: "held.git-rebase",
    },
    StateAttack {
        name: "mail that writes a file of the user",
        plant: "stopped_am \"'--unsafe-paths' '--apply'\" ../out/new",
        host: "git am --skip",
        sign: "test -e $OUT/new",
        rule: "held.git-rebase",
    },
    StateAttack {
        name: "mail whose ancestor replaces a file of the user",
        plant: "stopped_am \"'--build-fake-ancestor=$OUT/rc'\" x",
        host: "git am --skip",
        sign: "! grep -q untouched $OUT/rc",
        rule: "held.git-rebase",
    },
    StateAttack {
        name: "mail in a linked worktree",
        plant: "stopped_am \"'--unsafe-paths' '--apply'\" $TOP/.git/hooks/post-checkout; git worktree add -q wt other; \
                mv .git/rebase-apply .git/worktrees/wt; git reset -q --hard",
        host: "cd wt && git am --skip; git checkout -q --detach",
        sign: "test -e mark",
        rule: "held.git-rebase",
    },
    StateAttack {
        name: "options of the strategy of a rebase",
        plant: "stopped_rebase; echo resolve > .git/rebase-merge/strategy; \
                echo '\"'index-output=$OUT/rc'\"' > .git/rebase-merge/strategy_opts",
        host: "git rebase --continue",
        sign: "! grep -q untouched $OUT/rc",
        rule: "held.git-rebase",
    },
    StateAttack {
        name: "options of the strategy of a cherry-pick",
        plant: "diverge; git checkout -q main; git cherry-pick other~1 other; git checkout -q --theirs g; git add g; \
                git config -f .git/sequencer/opts options.strategy resolve; \
                git config -f .git/sequencer/opts options.strategy-option index-output=$OUT/rc",
        host: "git cherry-pick --continue",
        sign: "! grep -q untouched $OUT/rc",
        rule: "held.git-rebase",
    },
    // What git up to 2.33 does in `git rebase --continue`, and up to 2.30 in `git bisect visualize`, both scripts then.
    StateAttack {
        name: "author of a rebase for an older git",
        plant: "stopped_rebase; echo \"touch $TOP/mark\" >> .git/rebase-merge/author-script",
        host: ". $TOP/.git/rebase-merge/author-script",
        sign: "test -e mark",
        rule: "held.git-rebase",
    },
    StateAttack {
        name: "parents of a rebase for an older git",
        plant: "stopped_rebase; mkdir .git/rebase-merge/rewritten; \
                echo \"x;touch $TOP/mark\" > .git/rebase-merge/rewritten/$(git rev-parse HEAD)",
        host: "new_p=$(cat .git/rebase-merge/rewritten/*); eval git merge \"$new_p\"",
        sign: "test -e mark",
        rule: "held.git-rebase",
    },
    StateAttack {
        name: "paths of a bisection for an older git",
        plant: "git bisect start; echo \"x; touch $TOP/mark\" > .git/BISECT_NAMES",
        host: "set git log; eval '\"$@\"' --bisect -- $(cat .git/BISECT_NAMES)",
        sign: "test -e mark",
        rule: "held.git-rebase",
    },
    // What `git-sh-prompt` does with `PROMPT_COMMAND`.
    StateAttack {
        name: "progress of a rebase in the prompt of a shell",
        plant: "mkdir .git/rebase-merge; echo '$(touch mark)' > .git/rebase-merge/msgnum; echo 2 > .git/rebase-merge/end",
        host: "bash -c 'read -r step < .git/rebase-merge/msgnum; PS1=\"$step/2\"; : \"${PS1@P}\"'",
        sign: "test -e mark",
        rule: "held.git-rebase",
    },
    StateAttack {
        name: "progress of a mail in the prompt of a shell",
        plant: "mkdir .git/rebase-apply; echo 1 > .git/rebase-apply/next; echo '$(touch mark)' > .git/rebase-apply/last",
        host: "bash -c 'read -r total < .git/rebase-apply/last; PS1=\"1/$total\"; : \"${PS1@P}\"'",
        sign: "test -e mark",
        rule: "held.git-rebase",
    },
    StateAttack {
        name: "branch of a bisection that is an option",
        plant: "git bisect start; git bisect bad; echo \"--pathspec-from-file=$OUT/rc\" > .git/BISECT_START",
        host: "git bisect reset > said 2>&1",
        sign: "grep -q untouched said",
        rule: "held.git-rebase",
    },
    StateAttack {
        name: "refs that a rebase moves",
        plant: "echo b > b; git add b; git commit -q -m b; C=$(git rev-parse HEAD~1); elsewhere $C; \
                git rebase -q -i -x false HEAD~1; : > .git/rebase-merge/git-rebase-todo; \
                printf 'commondir\\n0000000000000000000000000000000000000000\\n%s\\n' $C > .git/rebase-merge/update-refs",
        host: "git rebase --continue; git status",
        sign: "test -e mark",
        rule: "held.git-rebase",
    },
    StateAttack {
        name: "step of a rebase that moves what is no ref",
        plant: "stopped_rebase; mkdir .git/more; echo update-ref more/commondir >> .git/rebase-merge/git-rebase-todo",
        host: "git rebase --edit-todo; git rebase --continue",
        sign: "test -e .git/more/commondir",
        rule: "held.git-rebase",
    },
    StateAttack {
        name: "head of before that stands for the common directory",
        plant: "elsewhere $(git rev-parse HEAD); echo ref: commondir > .git/ORIG_HEAD",
        host: "git reset -q; git status",
        sign: "test -e mark",
        rule: "held.git-pointer",
    },
    StateAttack {
        name: "branch that stands for the common directory",
        plant: "echo b > b; git add b; git commit -q -m b; git branch next; git reset -q --hard HEAD~1; elsewhere $(git rev-parse next); \
                echo $(git rev-parse HEAD) commondir > .git/packed-refs; echo ref: commondir > .git/refs/heads/main",
        host: "git merge -q next; git status",
        sign: "test -e mark",
        rule: "held.git-pointer",
    },
    StateAttack {
        name: "ref of a repository that the command has made",
        plant: "git clone -q . lib; cd lib; elsewhere $(git rev-parse HEAD); mkdir -p .git/refs/a/b; echo ref: refs/a/b/c > .git/ORIG_HEAD; \
                echo ref: commondir > .git/refs/a/b/c",
        host: "cd lib; git reset -q; git status",
        sign: "test -e mark",
        rule: "held.git-pointer",
    },
    StateAttack {
        name: "worktree in a directory of the user",
        plant: "git worktree add -q wt; echo $OUT/.git > .git/worktrees/wt/gitdir",
        host: "git worktree repair",
        sign: "test -e $OUT/.git",
        rule: "held.git-pointer",
    },
];

fn world() -> World {
    let world = World::new();
    world.repository();
    fs::write(world.beside("out").join("rc"), "untouched\n").unwrap();
    world
}

fn script(world: &World, text: &str) -> String {
    let who = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a GIT_EDITOR=true";
    let out = world.workspace.parent().unwrap().join("out");
    let top = world.workspace.display();
    format!("{who}; OUT={}; TOP={top}; {MAIL}; {STOPPED}; {ELSEWHERE}; {text}", out.display())
}

fn on_host(world: &World, text: &str) -> Done {
    finish(world.host("sh").args(["-c", &script(world, text)]), b"")
}

#[test]
fn git_of_the_host_goes_on_with_nothing_that_leads_elsewhere() {
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

/// An operation that a command could not finish, with options of git itself, goes on as it would have.
#[test]
fn interrupted_operations_of_commands_go_on() {
    for (stop, go_on, sign) in [
        (
            "diverge; git format-patch -q -2 --stdout other > p; git checkout -q main; git am -3 --whitespace=fix -C2 p",
            "git am --skip",
            "test -e h && ! test -e .git/rebase-apply",
        ),
        (
            "diverge; git rebase -q --apply --whitespace=fix main",
            "git rebase --skip",
            "test -e h && ! test -e .git/rebase-apply",
        ),
        (
            "diverge; git rebase -q -X patience -X find-renames=50% --update-refs main; git checkout -q --theirs g; git add g",
            "git rebase --continue",
            "test -e h && ! test -e .git/rebase-merge",
        ),
        (
            "git bisect start -- 'a b' \"it's\" readme; GIT_AUTHOR_NAME=\"O'Neil !\"; diverge; git rebase -q main",
            "git rebase --skip",
            "test -e h && ! test -e .git/rebase-merge && test -e .git/BISECT_NAMES",
        ),
        (
            "diverge; git checkout -q main; git cherry-pick -X patience other~1 other; git checkout -q --theirs g; git add g",
            "git cherry-pick --continue",
            "test -e h && ! test -e .git/sequencer",
        ),
    ] {
        let world = world();
        let result = world.run(&["--json"], &["sh", "-c", &script(&world, stop)]).json();
        assert_eq!(result["held"], Value::Array(Vec::new()), "{stop}: {result}");
        let done = on_host(&world, go_on);
        assert_eq!(on_host(&world, sign).code, Some(0), "{stop}: {}", done.err);
    }
}

/// Worktrees in the `/tmp` of commands, those that the host adds beside the workspace meanwhile, and symbolic refs of git.
#[test]
fn worktrees_and_refs_of_everyday_stay() {
    let world = world();
    let beside = world.beside("more").join("tree");
    let begin = script(
        &world,
        "git worktree add -q $(mktemp -u /tmp/tree.XXXXXXXX); git clone -q . lib; git symbolic-ref refs/heads/alias refs/heads/main; touch ready; \
         while [ ! -e over ]; do sleep 0.1; done",
    );
    let result = std::thread::scope(|scope| {
        let run = scope.spawn(|| world.run(&["--json"], &["sh", "-c", &begin]).json());
        crate::testkit::eventually("the command waits", || world.workspace.join("ready").exists());
        on_host(&world, &format!("git worktree add -q {}", beside.display())).expect(0);
        world.write("over", "");
        run.join().unwrap()
    });
    assert_eq!(result["held"], Value::Array(Vec::new()), "{result}");
    world.git(&beside, &["status"]);
    let listed = world.git(&world.workspace, &["worktree", "list"]);
    assert!(listed.contains(beside.to_str().unwrap()), "{listed}");
    assert_eq!(
        world.git(&world.workspace.join("lib"), &["symbolic-ref", "refs/remotes/origin/HEAD"]).trim(),
        "refs/remotes/origin/main"
    );
}
