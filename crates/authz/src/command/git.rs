//! git: what its subcommands do, which forms are blocked, and which paths its revisions name.

use std::path::{Component, Path, PathBuf};

use ringfence_types::{ByteString, Decision, Risk, RuleFamily, RuleId};

use super::arg::Arg;
use super::builtin_verdict::BuiltinVerdict;
use super::catalogue::{GIT, git_subcommand};
use super::operands::likely_path;
use super::options::{ListMembership, Operand, OperandPosition, OptionEffect, ParsedArgs, ProgramSpec, read};
use super::programs::about;
use super::rules::{CommandLine, has_option, has_plus_refspec};
use super::unknown_program::unknown_argument;
use super::wildcard::is_wild;
use super::working_dirs::WorkingDirs;
use super::{CommandContext, CommandEvaluator, RuntimeVariables, network_tools};
use crate::git_keys::asks_for_signatures;
use crate::paths::{PathIntent, judge_path};

/// They talk to other machines, or their business is to (S001-22).
const REMOTE: &str = "clone fetch pull push submodule ls-remote fetch-pack send-pack http-fetch http-push http-backend \
    remote-http remote-https remote-ftp remote-ftps remote-ext remote-fd svn p4 cvsimport cvsserver send-email imap-send daemon \
    instaweb request-pull lfs upload-pack receive-pack upload-archive";

/// What of `remote` talks to the other side.
const REMOTE_ACTIONS: &str = "update show prune set-head";

/// They run what they are given or what a file says; a rule must name them.
const CARRIERS: &str = "bisect filter-branch difftool mergetool hook for-each-repo maintenance shell credential config alias \
    send-email rebase am gui citool";

const REWRITES: &str = "reset rebase filter-branch filter-repo reflog gc prune update-ref checkout restore switch stash commit-tree replace";

impl CommandEvaluator<'_> {
    pub(super) fn git(&mut self, frame: &CommandContext, args: &[Arg<'_>]) -> BuiltinVerdict {
        let global = read(&GIT, args);
        let inside = CommandContext { place: self.git_place(frame, &global), ..frame.clone() };
        let about = self.about_options(&GIT, &global);
        let rest = args.get(global.rest..).unwrap_or_default();
        let dashes = args.get(..global.rest).unwrap_or_default().last().is_some_and(|arg| arg.is("--"));
        let opinion = match rest.split_first() {
            _ if dashes => BuiltinVerdict::miss(
                RuleFamily::Option.member("git"),
                "`--` is no option of git",
                Risk::Medium,
            )
            .exact(),
            None => BuiltinVerdict::miss(RuleId::GuardedUnlisted, "it is not on the list", Risk::Low),
            Some((Arg::Text(name), args)) => self.git_command(&inside, name, args),
            Some((Arg::Unknown(why), _)) => unknown_argument(why),
            Some((Arg::Glob { .. } | Arg::Home(_), _)) => unknown_argument("the subcommand of git"),
        };
        opinion.and_if(about)
    }

    /// `git-clone` is `git clone`.
    pub(super) fn git_part(
        &mut self,
        frame: &CommandContext,
        line: &CommandLine<'_>,
        name: &[u8],
    ) -> BuiltinVerdict {
        let name = name.strip_prefix(b"git-").unwrap_or(name);
        let opinion = self.git_command(frame, name, line.args);
        let unusual = BuiltinVerdict::miss(
            RuleId::GuardedUnlisted,
            "it is a part of git that is called by itself",
            Risk::Medium,
        );
        opinion.and(unusual)
    }

    /// Where it works: every `-C` is relative to the one before.
    fn git_place(&mut self, frame: &CommandContext, global: &ParsedArgs<'_>) -> WorkingDirs {
        let mut inside = frame.clone();
        for hit in global.hits.iter().filter(|hit| hit.effect == OptionEffect::Enter) {
            let Some(dir) = hit.value else { continue };
            self.path(&inside, dir, PathIntent::List);
            inside.place = match dir {
                Arg::Text(dir) => inside.place.entered(dir, self.scene.facts),
                Arg::Glob { .. } | Arg::Home(_) | Arg::Unknown(_) => WorkingDirs::unknown(),
            };
        }
        inside.place
    }

    fn git_command(&mut self, frame: &CommandContext, name: &[u8], args: &[Arg<'_>]) -> BuiltinVerdict {
        let program = git_subcommand(name);
        let reading = read(program, args);
        let opinion = match program.standing {
            ListMembership::Listed => self.judge_reading(frame, program, &reading),
            ListMembership::Unlisted => self.unlisted_git(frame, name, program, &reading),
        };
        let opinion = opinion.and_if(listing_only(program, &reading)).and_if(signs(program, &reading));
        let opinion = opinion.and_if(blocked(name, args)).and_if(self.git_cleans(name, args));
        // Asking the machine costs more than all of the above.
        if opinion.decision == Decision::Deny {
            return opinion;
        }
        self.git_content(frame, name, args, &reading);
        opinion.and_if(self.git_settings(frame))
    }

    fn unlisted_git(
        &mut self,
        frame: &CommandContext,
        name: &[u8],
        program: &ProgramSpec,
        reading: &ParsedArgs<'_>,
    ) -> BuiltinVerdict {
        let shown = super::arg::shorten(name);
        let risk = if has(REWRITES, name) { Risk::High } else { program.risk };
        let read = self.judge_reading(frame, program, reading);
        let opinion =
            BuiltinVerdict::miss(RuleId::GuardedUnlisted, format!("`git {shown}` is not on the list"), risk)
                .and(read);
        let opinion = if has(CARRIERS, name) { opinion.named() } else { opinion };
        let remote = has(REMOTE, name)
            || name == b"remote" && talks(reading)
            || reading.has(|e| e == OptionEffect::Network);
        if remote {
            opinion.and(network_tools::reaches_out(self.scene.policy, "this subcommand of git"))
        } else {
            opinion
        }
    }

    /// Without `-n` it deletes, with or without `-f`: that depends on a setting.
    fn git_cleans(&self, name: &[u8], args: &[Arg<'_>]) -> Option<BuiltinVerdict> {
        let dry = || has_option(args, "--dry-run", &["-n"]);
        (name == b"clean" && !dry())
            .then(|| self.deny_listed("deletion", "`git clean` deletes files", Risk::Critical))
    }

    /// Settings of the repository that make git run a program (B-C25).
    fn git_settings(&mut self, frame: &CommandContext) -> Option<BuiltinVerdict> {
        if !self.is_listed() {
            return None;
        }
        if frame.surroundings == RuntimeVariables::Cleared {
            let why = "the variables that keep git from running programs of the repository are taken away";
            return Some(BuiltinVerdict::miss(RuleId::GitSurroundings, why, Risk::High).exact());
        }
        if frame.place.candidates().is_empty() {
            return Some(unknown_argument("the directory that git works in"));
        }
        let facts = self.scene.facts;
        let setting = frame.place.candidates().iter().find_map(|dir| {
            let known = self.repositories.entry(dir.clone());
            known.or_insert_with(|| facts.git_programs(dir).into_iter().next()).clone()
        })?;
        let setting = ByteString::from(setting.as_str()).display();
        let reason = format!("the repository may make git run a program or work elsewhere: {setting}");
        Some(
            BuiltinVerdict::miss(RuleId::GitConfig, reason, Risk::High)
                .exact()
                .fix("say yes to this one, or remove the setting"),
        )
    }

    /// An operand that is a revision, a path, or both: `HEAD~3`, `main:.env`, `src/lib.rs`.
    pub(super) fn revision(&mut self, frame: &CommandContext, operand: Operand<'_>, intent: PathIntent) {
        if !self.is_listed() {
            return;
        }
        match operand.arg {
            Arg::Text(text)
                if operand.side == OperandPosition::AfterDashes
                    || text.starts_with(b":")
                    || is_wild(text) =>
            {
                self.pathspec(frame, text, intent);
            }
            Arg::Text(text) if text.contains(&b':') => {
                self.blobs(frame, text);
                // No revision begins so: a file with a colon in its name, which `git diff` reads anywhere.
                if text.starts_with(b"/") || text.starts_with(b"../") || text.starts_with(b"./") {
                    self.revision_or_path(frame, text, intent);
                }
            }
            Arg::Text(text) => self.revision_or_path(frame, text, intent),
            Arg::Glob { .. } | Arg::Home(_) => self.path(frame, operand.arg, intent),
            Arg::Unknown(_) => {}
        }
    }

    /// git takes a word for a path only where there is such a file.
    fn revision_or_path(&mut self, frame: &CommandContext, text: &[u8], intent: PathIntent) {
        let part = self.path_part(frame, text, intent);
        let inside = || {
            Path::new(&*String::from_utf8_lossy(text))
                .components()
                .all(|part| matches!(part, Component::Normal(_)))
        };
        let absent = || likely_path(frame, text).is_some_and(|path| self.is_missing(&path));
        if part.decision > Decision::Allow && inside() && absent() {
            return;
        }
        self.push(frame, part);
    }

    /// `*.rs`, `:(top)src`, `:!.env`, `:/lib`, `:.env` (from the index), `:2:.env` (of a merge).
    fn pathspec(&mut self, frame: &CommandContext, text: &[u8], intent: PathIntent) {
        let rest = match text {
            [b':', b'!' | b'^', ..] => return,
            [b':', b'(', rest @ ..] => {
                let Some(close) = rest.iter().position(|byte| *byte == b')') else { return };
                let (magic, path) = rest.split_at(close);
                if magic.split(|byte| *byte == b',').any(|word| word == b"exclude") {
                    return;
                }
                path.get(1..).unwrap_or_default()
            }
            [b':', b'/', rest @ ..] => return self.blob(frame, rest),
            [b':', b'0'..=b'3', b':', rest @ ..] | [b':', rest @ ..] => return self.blob(frame, rest),
            _ => text,
        };
        let part = match rest.iter().position(|byte| matches!(byte, b'*' | b'?' | b'[')) {
            _ if rest.is_empty() => return,
            Some(at) => self.pattern_part(frame, rest.get(..at).unwrap_or_default(), rest, intent),
            None => self.path_part(frame, rest, intent),
        };
        self.push(frame, part);
    }

    /// `HEAD:.env`. A revision may have colons of its own (`HEAD@{12:30}:.env`): the path is behind any of them.
    fn blobs(&mut self, frame: &CommandContext, text: &[u8]) {
        const MOST: usize = 8;
        let colons: Vec<usize> =
            text.iter().enumerate().filter(|(_, byte)| **byte == b':').map(|(at, _)| at).collect();
        if colons.len() > MOST {
            return self.push(frame, super::git_content::unknown_file());
        }
        for path in colons.into_iter().filter_map(|at| text.get(at + 1..)) {
            self.blob(frame, path);
        }
    }

    /// A file of a commit. It is no file of the machine, so only its name counts.
    fn blob(&mut self, frame: &CommandContext, path: &[u8]) {
        if path.is_empty() || path.len() > 4096 {
            return;
        }
        let inside = below(path);
        for top in self.tops(frame) {
            let part = judge_path(self.scene, &top.join(&inside), PathIntent::Read);
            let part = if part.decision == Decision::Allow { self.unless_kept(part, &inside) } else { part };
            self.push(frame, part);
        }
    }

    /// Where a path of a commit may begin: at the top of a repository, which may be any directory from the workspace down to
    /// where the command works. `./x` and `../x` begin at one of these too.
    fn tops(&self, frame: &CommandContext) -> Vec<PathBuf> {
        let workspace = self.scene.workspace();
        let mut tops = vec![workspace.to_owned()];
        for dir in frame.place.candidates() {
            let above = dir.ancestors().take_while(|above| above.starts_with(workspace));
            tops.extend(above.map(Path::to_owned));
        }
        tops.sort();
        tops.dedup();
        tops
    }
}

/// What in the arguments is more than the subcommand says, wherever it runs.
pub(super) fn unusual(args: &[Arg<'_>]) -> Option<BuiltinVerdict> {
    let global = read(&GIT, args);
    let rest = args.get(global.rest..).unwrap_or_default();
    let inner = rest.split_first().and_then(|(name, args)| {
        let name = name.text()?;
        let program = git_subcommand(name);
        let reading = read(program, args);
        let carries = has(CARRIERS, name).then(|| {
            BuiltinVerdict::miss(RuleId::GuardedUnlisted, "it runs what it is given", Risk::High).named()
        });
        [about(program, &reading), listing_only(program, &reading), signs(program, &reading), carries]
            .into_iter()
            .flatten()
            .reduce(BuiltinVerdict::and)
    });
    about(&GIT, &global).into_iter().chain(inner).reduce(BuiltinVerdict::and)
}

/// `branch` with a name and nothing that makes it list creates a branch.
fn listing_only(program: &ProgramSpec, reading: &ParsedArgs<'_>) -> Option<BuiltinVerdict> {
    let lists = || reading.has(|effect| effect == OptionEffect::Pattern);
    (program.name == "git-branch" && !reading.operands.is_empty() && !lists()).then(|| {
        BuiltinVerdict::miss(
            RuleFamily::Option.member("git-branch"),
            "with a name it creates or changes a branch",
            Risk::Medium,
        )
        .named()
    })
}

/// `%G?`, and `%(signature)` in formats and orders of `branch`, make git run gpg.
fn signs(program: &ProgramSpec, reading: &ParsedArgs<'_>) -> Option<BuiltinVerdict> {
    let formats =
        reading.hits.iter().filter(|hit| hit.effect == OptionEffect::Format).filter_map(|hit| hit.value);
    let says = |text: &[u8], word: &[u8]| text.windows(word.len()).any(|part| part == word);
    let gpg = |arg: Arg<'_>| {
        arg.text().is_none_or(|text| {
            asks_for_signatures(text) || program.name == "git-branch" && says(text, b"signature")
        })
    };
    formats.into_iter().find(|format| gpg(*format)).map(|_| {
        let rule = RuleFamily::Option.member(program.name);
        BuiltinVerdict::miss(rule, "the format makes git run gpg", Risk::Medium).exact()
    })
}

/// The forms that document 000 blocks, in every spelling (S000-21). They are policy of git, not of the deny list.
fn blocked(name: &[u8], args: &[Arg<'_>]) -> Option<BuiltinVerdict> {
    const FIX: &str = "nothing: run it yourself, outside of Ringfence";
    let (rule, why) = match name {
        b"push" if forces(args) => (RuleId::GitPushForce, "`push --force` rewrites what others have"),
        b"reset" if has_option(args, "--hard", &[]) => {
            (RuleId::GitResetHard, "`reset --hard` throws work away")
        }
        b"clean" if has_option(args, "--force", &["-f"]) && has_option(args, "-d", &[]) => {
            (RuleId::GitCleanForce, "`clean -fd` deletes what was never committed")
        }
        _ => return None,
    };
    Some(BuiltinVerdict::deny(rule, why, Risk::Critical).fix(FIX))
}

fn forces(args: &[Arg<'_>]) -> bool {
    let with_lease =
        has_option(args, "--force-with-lease", &[]) || has_option(args, "--force-if-includes", &[]);
    has_option(args, "--force", &["-f"])
        || has_option(args, "--mirror", &[])
        || with_lease
        || has_plus_refspec(args)
}

fn talks(reading: &ParsedArgs<'_>) -> bool {
    let acts = |text: &[u8]| has(REMOTE_ACTIONS, text);
    reading.operands.first().and_then(|operand| operand.arg.text()).is_none_or(acts)
        && !reading.operands.is_empty()
}

/// Never above the workspace.
fn below(path: &[u8]) -> PathBuf {
    let mut inside = PathBuf::new();
    for component in ByteString::from(path).as_path().components() {
        match component {
            Component::Normal(name) => inside.push(name),
            Component::ParentDir => {
                inside.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    inside
}

fn has(list: &str, word: &[u8]) -> bool {
    list.split_ascii_whitespace().any(|known| known.as_bytes() == word)
}
