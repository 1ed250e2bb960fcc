//! Repositories that make git run a program: what the environment of `listed` mode holds, and what has to be found.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringfence_authz::git_keys;

use crate::testkit::{Done, World, finish, script};

/// How a listed command stays harmless in spite of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// The environment is stronger, and the command does its work.
    Environment,
    /// The environment is stronger, and git refuses.
    Refused,
    /// A setting is found and asked about. Where git runs it from: the repository, or a submodule.
    Found(&'static str),
}

struct Attack {
    name: &'static str,
    /// Made on the host in a repository with two commits and a changed file; `$EVIL` is a program that leaves a mark.
    prepare: &'static str,
    /// Below the workspace.
    cwd: &'static str,
    command: &'static str,
    held: Held,
}

const BASE: Attack =
    Attack { name: "", prepare: "", cwd: "", command: "git status", held: Held::Environment };
const FOUND: Held = Held::Found("");

const ATTACKS: &[Attack] = &[
    Attack { name: "fsmonitor", prepare: "git config core.fsmonitor $EVIL", ..BASE },
    Attack {
        name: "fsmonitor diff",
        prepare: "git config core.fsmonitor $EVIL",
        command: "git diff",
        ..BASE
    },
    Attack {
        name: "hook",
        prepare: "cp $EVIL .git/hooks/post-index-change; touch -d 2001-01-01 other",
        held: FOUND,
        ..BASE
    },
    Attack {
        name: "hook diff",
        prepare: "cp $EVIL .git/hooks/post-index-change; touch -d 2001-01-01 other",
        command: "git diff",
        held: FOUND,
        ..BASE
    },
    Attack {
        name: "hooks path",
        prepare: "mkdir h; cp $EVIL h/post-index-change; git config core.hooksPath h; touch -d 2001-01-01 other",
        command: "git diff",
        held: FOUND,
        ..BASE
    },
    Attack { name: "pager", prepare: "git config core.pager $EVIL", command: "terminal git log", ..BASE },
    Attack {
        name: "pager of a command",
        prepare: "git config pager.status $EVIL",
        command: "terminal git status",
        ..BASE
    },
    Attack {
        name: "include",
        prepare: "git config -f inc core.fsmonitor $EVIL; git config include.path ../inc",
        ..BASE
    },
    Attack { name: "home", prepare: "git config --global core.fsmonitor $EVIL", ..BASE },
    Attack {
        name: "driver of the home",
        prepare: "git config --global diff.external $EVIL",
        command: "git diff",
        ..BASE
    },
    Attack {
        name: "zero byte in a subsection",
        prepare: "printf '[diff \"external\\0\"]\\n\\tbare = %s\\n' $EVIL >> .git/config",
        command: "git diff",
        held: FOUND,
        ..BASE
    },
    Attack {
        name: "shown signature",
        prepare: "$SIGN PGP; git config gpg.program $EVIL; git config log.showSignature true",
        command: "git log",
        ..BASE
    },
    Attack {
        name: "signature by an option",
        prepare: "$SIGN PGP; git config gpg.openpgp.program $EVIL",
        command: "git log --format=%G?",
        ..BASE
    },
    // The program is git's own here, and still obeys a `gpg.conf` that a command may have written.
    Attack {
        name: "signature in a format",
        prepare: "$SIGN PGP; git config gpg.openpgp.program $EVIL; git config format.pretty %G?",
        command: "git log",
        held: FOUND,
        ..BASE
    },
    Attack {
        name: "signature in a named format",
        prepare: "$SIGN PGP; git config gpg.openpgp.program $EVIL; git config pretty.mine %G?; git config format.pretty mine",
        command: "git log",
        held: FOUND,
        ..BASE
    },
    Attack {
        name: "ssh signature",
        prepare: "$SIGN SSH; git config gpg.ssh.program $EVIL; touch as; git config gpg.ssh.allowedSignersFile as",
        command: "git log --format=%G?",
        ..BASE
    },
    Attack {
        name: "alternate refs",
        prepare: "git clone -q . alt; echo $PWD/alt/.git/objects >.git/objects/info/alternates; git config core.alternateRefsCommand $EVIL",
        command: "git log --alternate-refs",
        ..BASE
    },
    Attack {
        name: "planted bare repository",
        prepare: "cp -r .git bare; git config -f bare/config core.bare false; git config -f bare/config core.worktree ..; git config -f bare/config core.fsmonitor $EVIL",
        cwd: "bare",
        held: Held::Refused,
        ..BASE
    },
    Attack {
        name: "partial clone, ext",
        prepare: "$PARTIAL ext::$EVIL; git config protocol.ext.allow always",
        command: "git show",
        held: Held::Refused,
        ..BASE
    },
    Attack {
        name: "partial clone, ssh",
        prepare: "$PARTIAL ssh://127.0.0.1:1/x; git config core.sshCommand $EVIL",
        command: "git show",
        held: Held::Refused,
        ..BASE
    },
    Attack {
        name: "partial clone, upload-pack",
        prepare: "$PARTIAL /nowhere; git config remote.o.uploadpack $EVIL",
        command: "git show",
        held: FOUND,
        ..BASE
    },
    Attack {
        name: "partial clone, git proxy",
        prepare: "$PARTIAL git://127.0.0.1:1/x; git config core.gitProxy $EVIL",
        command: "git show",
        held: FOUND,
        ..BASE
    },
    Attack {
        name: "browser of the help",
        prepare: "git config help.format web; git config web.browser e; git config browser.e.cmd $EVIL; mkdir h; touch h/git-status.html; git config help.htmlpath h",
        command: "git status --help",
        held: FOUND,
        ..BASE
    },
    Attack {
        name: "viewer of the help",
        prepare: "git config man.viewer e; git config man.e.cmd $EVIL",
        command: "git status --help",
        held: FOUND,
        ..BASE
    },
    Attack {
        name: "external diff",
        prepare: "git config diff.external $EVIL",
        command: "git diff",
        held: FOUND,
        ..BASE
    },
    Attack {
        name: "diff driver",
        prepare: "git config diff.e.command $EVIL; echo '* diff=e' >.gitattributes",
        command: "git diff",
        held: FOUND,
        ..BASE
    },
    Attack {
        name: "textconv diff",
        prepare: "git config diff.e.textconv $EVIL; echo '* diff=e' >.gitattributes",
        command: "git diff",
        held: FOUND,
        ..BASE
    },
    Attack {
        name: "textconv log",
        prepare: "git config diff.e.textconv $EVIL; echo '* diff=e' >.git/info/attributes",
        command: "git log -p",
        held: FOUND,
        ..BASE
    },
    Attack {
        name: "textconv show",
        prepare: "git config diff.e.textconv $EVIL; echo '* diff=e' >.git/info/attributes",
        command: "git show",
        held: FOUND,
        ..BASE
    },
    Attack {
        name: "textconv grep",
        prepare: "git config diff.e.textconv $EVIL; echo '* diff=e' >.git/info/attributes",
        command: "git grep --textconv one",
        held: FOUND,
        ..BASE
    },
    Attack {
        name: "clean filter",
        prepare: "git config filter.e.clean $EVIL; echo '* filter=e' >.gitattributes; touch other",
        held: FOUND,
        ..BASE
    },
    Attack {
        name: "filter process",
        prepare: "git config filter.e.process $EVIL; echo '* filter=e' >.git/info/attributes; touch other",
        command: "git diff",
        held: FOUND,
        ..BASE
    },
    Attack {
        name: "included filter",
        prepare: "git config -f inc filter.e.clean $EVIL; git config include.path ../inc; echo '* filter=e' >.git/info/attributes; touch other",
        held: FOUND,
        ..BASE
    },
    Attack {
        name: "filter of a worktree",
        prepare: "git config extensions.worktreeConfig true; git config --worktree filter.e.clean $EVIL; echo '* filter=e' >.git/info/attributes; touch other",
        held: FOUND,
        ..BASE
    },
    Attack {
        name: "merge driver",
        prepare: "$MERGE; git config merge.e.driver \"$EVIL %O %A %B\"; echo '* merge=e' >.git/info/attributes",
        command: "git show --remerge-diff",
        held: FOUND,
        ..BASE
    },
    Attack {
        name: "merge driver by setting",
        prepare: "$MERGE; git config merge.e.driver \"$EVIL %O %A %B\"; echo '* merge=e' >.git/info/attributes; git config log.diffMerges remerge",
        command: "git log -m -p",
        held: FOUND,
        ..BASE
    },
    Attack {
        name: "submodule",
        prepare: "$SUBMODULE filter.e.clean; echo '* filter=e' >sub/.git/info/attributes; touch sub/s",
        ..BASE
    },
    Attack {
        name: "submodule diff",
        prepare: "$SUBMODULE filter.e.clean; echo '* filter=e' >sub/.git/info/attributes; touch sub/s",
        command: "git diff",
        ..BASE
    },
    Attack { name: "fsmonitor of a submodule", prepare: "$SUBMODULE core.fsmonitor; $ENTER", ..BASE },
    Attack {
        name: "submodule summary",
        prepare: "$SUBMODULE core.fsmonitor; git config status.submoduleSummary true",
        ..BASE
    },
    Attack {
        name: "submodule as text",
        prepare: "$SUBMODULE diff.e.textconv; $MOVE_ON; echo '* diff=e' >sub/.git/info/attributes; git config diff.submodule diff",
        command: "git diff",
        ..BASE
    },
    Attack {
        name: "submodule that is entered",
        prepare: "$SUBMODULE filter.e.clean; echo '* filter=e' >sub/.git/info/attributes; touch sub/s; $ENTER",
        held: Held::Found("sub"),
        ..BASE
    },
    Attack {
        name: "submodule that is entered by an option",
        prepare: "$SUBMODULE filter.e.clean; echo '* filter=e' >sub/.git/info/attributes; touch sub/s",
        command: "git diff --ignore-submodules=none",
        held: Held::Found("sub"),
        ..BASE
    },
    // Git looks at the upper bits of the mode alone.
    Attack {
        name: "submodule with the mode of a file too",
        prepare: "$SUBMODULE filter.e.clean; echo '* filter=e' >sub/.git/info/attributes; $ENTER; \
                  python3 -c 'import sys; d = open(sys.argv[1], \"rb\").read(); w = d.replace(b\"\\0\\0\\xe0\\0\", b\"\\0\\0\\xe1\\xa4\"); \
                  assert d != w; open(sys.argv[1], \"wb\").write(w)' .git/index; touch sub/s",
        held: Held::Found("sub"),
        ..BASE
    },
    Attack {
        name: "submodule by the index alone",
        prepare: "$SUBMODULE filter.e.clean; echo '* filter=e' >sub/.git/info/attributes; touch sub/s; $ENTER; git add .gitmodules; rm .gitmodules",
        held: Held::Found("sub"),
        ..BASE
    },
];

/// Words of the scripts above.
const WORDS: &[(&str, &str)] = &[
    ("$SIGN PGP", "sign PGP SIGNATURE"),
    ("$SIGN SSH", "sign SSH SIGNATURE"),
    ("$PARTIAL", "partial"),
    ("$MERGE", "merge"),
    ("$SUBMODULE", "submodule"),
    (
        "$ENTER",
        "printf '[submodule \"sub\"]\\n\\tpath = sub\\n\\turl = ./sub\\n\\tignore = none\\n' >.gitmodules",
    ),
    ("$MOVE_ON", "(cd sub; echo two >>s; git commit -q -a -m two)"),
];

const FUNCTIONS: &str = r#"
set -e
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.test GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.test
sign() {
  git cat-file commit HEAD | sed "/^committer/a gpgsig -----BEGIN $1 $2-----\n \n iQ\n -----END $1 $2-----" >c
  git update-ref HEAD "$(git hash-object -t commit -w c)"
}
partial() {
  git config core.repositoryFormatVersion 1; git config extensions.partialClone o
  git config remote.o.promisor true; git config remote.o.url "$1"
  blob=$(git rev-parse HEAD:file); rm -f ".git/objects/$(echo $blob | cut -c1-2)/$(echo $blob | cut -c3-)"
}
merge() {
  git checkout -q -- file
  git checkout -q -b side; echo side >>file; git commit -q -a -m side
  git checkout -q main; echo main >>file; git commit -q -a -m main
  git merge -q side >/dev/null 2>&1 || git commit -q -a -m merged
}
submodule() {
  git init -q -b main sub
  (cd sub; echo one >s; git add s; git commit -q -m one; git config "$1" "$EVIL")
  git -c advice.addEmbeddedRepo=false add sub; git commit -q -m sub
}
git init -q -b main .
echo one >file; echo other >other; git add .; git commit -q -m one; echo two >>file; git commit -q -a -m two; echo three >>file
"#;

/// A hostile repository, fresh for each look at it.
struct Scene<'a> {
    world: World,
    attack: &'a Attack,
    mark: PathBuf,
}

impl<'a> Scene<'a> {
    fn new(attack: &'a Attack) -> Self {
        let world = World::new();
        let mark = world.workspace.join("ran");
        let evil = world.workspace.join("evil");
        script(&evil, &format!("#!/bin/sh\ntouch {}\nexit 0\n", mark.display()));
        let prepare =
            WORDS.iter().fold(attack.prepare.to_owned(), |text, (word, means)| text.replace(word, means));
        let mut shell = world.host("sh");
        shell.arg("-c").arg([FUNCTIONS, &prepare].concat()).env("EVIL", &evil);
        finish(&mut shell, b"").expect(0);
        if mark.exists() {
            std::fs::remove_file(&mark).unwrap();
        }
        Self { world, attack, mark }
    }

    fn cwd(&self) -> PathBuf {
        self.world.workspace.join(self.attack.cwd)
    }

    /// The command of the attack on the host, without Ringfence.
    fn git(&self, environment: &BTreeMap<String, String>) -> Done {
        let mut command = match self.attack.command.strip_prefix("terminal ") {
            Some(line) => at_a_terminal(&self.world, line),
            None => self.words(),
        };
        finish(command.envs(environment).current_dir(self.cwd()), b"")
    }

    /// The command of the attack as an agent runs it.
    fn guarded(&self) -> Done {
        let mut command = match self.attack.command.strip_prefix("terminal ") {
            Some(line) => at_a_terminal(&self.world, &format!("$RINGFENCE run --profile guarded -- {line}")),
            None => {
                let mut command = self.world.ringfence();
                command.args(["run", "--profile", "guarded", "--"]).args(self.attack.command.split(' '));
                command
            }
        };
        finish(command.current_dir(self.cwd()), b"")
    }

    fn words(&self) -> Command {
        let mut words = self.attack.command.split(' ');
        let mut command = self.world.host(words.next().unwrap());
        command.args(words);
        command
    }

    fn ran(&self) -> bool {
        self.mark.exists()
    }

    /// What of [`git_keys`] git itself sees in a directory.
    fn finds(&self, directory: &Path) -> bool {
        let settings = self.settings(directory);
        let mut command = self.world.host("git");
        command.args(["rev-parse", "--git-path", "hooks"]).current_dir(directory);
        let hooks = directory.join(finish(&mut command, b"").expect(0).text().trim());
        git_keys::HOOKS.iter().any(|hook| hooks.join(hook).exists())
            || settings.iter().any(|(key, value)| git_keys::runs_a_program(key, value))
    }

    /// Settings as git itself lists them.
    fn settings(&self, directory: &Path) -> Vec<(String, String)> {
        let mut command = self.world.host("git");
        command.args(["config", "--list", "--includes", "-z"]).current_dir(directory);
        let listed = finish(&mut command, b"").expect(0).text();
        let pairs = listed.split_terminator('\0');
        pairs
            .map(|pair| pair.split_once('\n').unwrap_or((pair, "")))
            .map(|(k, v)| (k.into(), v.into()))
            .collect()
    }
}

fn at_a_terminal(world: &World, line: &str) -> Command {
    let mut command = world.host("script");
    command.args(["-qec", line, "/dev/null"]);
    command
}

fn listed() -> BTreeMap<String, String> {
    git_keys::environment().into_iter().map(|(name, value)| (name.display(), value.display())).collect()
}

/// Every attack works without Ringfence, and what the environment cannot hold has a name that is known.
#[test]
fn s001_20_hostile_repositories_run_programs_and_are_known() {
    for attack in ATTACKS {
        let scene = Scene::new(attack);
        let place = if let Held::Found(place) = attack.held { place } else { attack.cwd };
        let found = scene.finds(&scene.world.workspace.join(place)) && !attack.name.contains("home");
        assert_eq!(found, matches!(attack.held, Held::Found(_)), "{}", attack.name);
        let done = scene.git(&BTreeMap::new());
        assert!(scene.ran(), "{}: {} {}", attack.name, done.text(), done.err);
    }
}

#[test]
fn s001_20_the_environment_of_listed_commands_is_stronger_than_a_repository() {
    for attack in ATTACKS.iter().filter(|attack| !matches!(attack.held, Held::Found(_))) {
        let scene = Scene::new(attack);
        let done = scene.git(&listed());
        assert!(!scene.ran(), "{}: {} {}", attack.name, done.text(), done.err);
        match attack.held {
            Held::Refused => assert_ne!(done.code, Some(0), "{}", attack.name),
            _ => assert_eq!(done.code, Some(0), "{}: {}", attack.name, done.err),
        }
    }
}

/// The same attacks against the whole: what is listed runs and harms nobody, the rest is not run without a question.
#[test]
fn s001_20_listed_git_runs_no_program_of_a_repository() {
    for attack in ATTACKS {
        let scene = Scene::new(attack);
        let sub = scene.world.workspace.join("sub");
        let twice = attack.held == Held::Environment && sub.exists() && scene.finds(&sub);
        let done = scene.guarded();
        assert!(!scene.ran(), "{}: {} {}", attack.name, done.text(), done.err);
        let plain = ["git status", "git diff", "git log", "git show"].contains(&attack.command);
        match attack.held {
            Held::Environment if twice => assert_eq!(done.code, Some(126), "{}: {}", attack.name, done.err),
            Held::Environment if plain => {
                assert_eq!(done.code, Some(0), "{}: {}", attack.name, done.err);
                assert!(!done.out.is_empty(), "{}", attack.name);
            }
            Held::Environment => {}
            Held::Refused => assert_ne!(done.code, Some(0), "{}", attack.name),
            Held::Found(_) => assert_eq!(done.code, Some(126), "{}: {}", attack.name, done.err),
        }
    }
}

/// Prints every joined pair of letters with which git writes a file that stands where a value could. git does not join every
/// letter with every other, and says so only when it has opened the file.
const PAIRS: &str = r#"
for command in log diff; do
  for first in $LETTERS; do
    for second in G I L O S l n; do
      git $command -$first$second --output=canary >/dev/null 2>&1 </dev/null
      if test -e canary; then rm canary; echo "git $command -$first$second --output=canary"; fi
    done
  done
done
"#;

/// S001-20: an option that writes is asked about also where another option could take it for its value.
#[test]
fn s001_20_a_value_that_git_takes_for_an_option_is_asked_about() {
    let world = World::new();
    world.repository();
    let letters: Vec<String> =
        ('0'..='9').chain('a'..='z').chain('A'..='Z').map(|letter| letter.to_string()).collect();
    let mut shell = world.host("sh");
    shell.args(["-c", PAIRS]).env("LETTERS", letters.join(" "));
    let written = finish(&mut shell, b"").expect(0).text();
    assert!(written.lines().any(|line| line == "git log -iG --output=canary"), "the control: {written}");
    let case = |line: &str| format!("[[case]]\nshell = \"{line}\"\nexpect = \"not-allow\"\n");
    let cases: String = written.lines().map(case).collect();
    let file = world.write("cases.toml", cases);
    let mut test = world.ringfence();
    finish(test.args(["policy", "test", "--profile", "guarded"]).arg(file), b"").expect(0);
}
