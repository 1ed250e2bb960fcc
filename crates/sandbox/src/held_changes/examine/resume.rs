//! Operations of git that wait to go on: `rebase`, `am`, `cherry-pick` and `revert`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use super::super::resume_options::{
    are_apply_options, are_plain_steps, are_plain_updates, are_quoted_words, are_strategy_options,
    is_strategy, is_strategy_option,
};
use super::{Examiner, Open, Reason, all_names, executes, is_marked};
use crate::git_config::{self, GitSetting};

/// What an `author-script` sets.
const AUTHOR: &[&[u8]] = &[b"GIT_AUTHOR_NAME=", b"GIT_AUTHOR_EMAIL=", b"GIT_AUTHOR_DATE="];

impl Examiner<'_> {
    pub(super) fn resume_state(&mut self, git: &Open) {
        if let Some(rebase) = self.step(git, "rebase-merge", Reason::Shortcut) {
            self.rebase(&rebase);
        }
        if let Some(mailbox) = self.step(git, "rebase-apply", Reason::Shortcut) {
            self.progress(&mailbox, ["next", "last"]);
            self.state_file(&mailbox, "apply-opt", Reason::ApplyOptions, are_apply_options);
            self.author_script(&mailbox);
        }
        if let Some(sequencer) = self.step(git, "sequencer", Reason::Shortcut) {
            self.state_file(&sequencer, "opts", Reason::MergeStrategy, are_plain_options);
        }
        // `git bisect reset` hands it to `git checkout`.
        let no_option = |content: &[u8]| !content.starts_with(b"-");
        self.state_file(git, "BISECT_START", Reason::StateOption, no_option);
        // Git up to 2.30 evaluates it in a shell.
        self.state_file(git, "BISECT_NAMES", Reason::ShellText, |content| are_quoted_words(content, &[]));
    }

    /// How far an operation is. The prompt that comes with git puts both numbers into `PS1` as they are, and the shell expands it.
    fn progress(&mut self, state: &Open, names: [&str; 2]) {
        let number = |byte: &u8| byte.is_ascii_digit() || byte.is_ascii_whitespace();
        for name in names {
            self.state_file(state, name, Reason::Prompt, |content| content.iter().all(number));
        }
    }

    fn rebase(&mut self, rebase: &Open) {
        self.progress(rebase, ["msgnum", "end"]);
        let lines = |content: &[u8]| !content.split(|byte| *byte == b'\n').any(executes);
        self.state_file(rebase, "git-rebase-todo", Reason::RebaseCommand, lines);
        self.state_file(rebase, "git-rebase-todo", Reason::RebaseRefs, are_plain_steps);
        let known = |content: &[u8]| is_strategy(content.trim_ascii_end());
        self.state_file(rebase, "strategy", Reason::MergeStrategy, known);
        self.state_file(rebase, "strategy_opts", Reason::StrategyOptions, are_strategy_options);
        self.state_file(rebase, "update-refs", Reason::RebaseRefs, are_plain_updates);
        self.author_script(rebase);
        self.legacy_commits(rebase);
        // Git up to 2.18 evaluates it in a shell.
        let switch = |content: &[u8]| {
            matches!(content.trim_ascii(), b"" | b"--rerere-autoupdate" | b"--no-rerere-autoupdate")
        };
        self.state_file(rebase, "allow_rerere_autoupdate", Reason::ShellText, switch);
        // Only `git rebase --preserve-merges` has this directory, which git up to 2.33 knows. It takes the words of its files into a
        // shell, and names of files to write from another.
        if rebase.has("rewritten") {
            self.note(rebase.entry("rewritten", Reason::ShellText));
        }
    }

    /// Git up to 2.20 evaluates the names of these commits in a shell.
    fn legacy_commits(&mut self, rebase: &Open) {
        let Some(listed) = all_names(&rebase.fd) else { return };
        let is_commit = |name: &&OsString| {
            *name == "current" || (name.as_bytes().starts_with(b"cmt.") && !is_marked(name.as_bytes()))
        };
        let commits = listed.iter().filter(is_commit).filter_map(|name| name.to_str());
        let is_name = |content: &[u8]| content.trim_ascii().iter().all(u8::is_ascii_hexdigit);
        for name in commits {
            if self.is_over() {
                return;
            }
            self.state_file(rebase, name, Reason::ShellText, is_name);
        }
    }

    /// Git up to 2.33 executes it as a script when it goes on with `git rebase --preserve-merges`.
    fn author_script(&mut self, state: &Open) {
        let quoted = |content: &[u8]| are_quoted_words(content, AUTHOR);
        self.state_file(state, "author-script", Reason::ShellText, quoted);
    }

    /// A file that git wrote to go on with. One that cannot be read is as good as a harmful one.
    pub(super) fn state_file(
        &mut self,
        state: &Open,
        name: &str,
        reason: Reason,
        is_harmless: impl Fn(&[u8]) -> bool,
    ) {
        if !state.has(name) {
            return;
        }
        self.only_name(state, name);
        if !state.read(name).is_some_and(|content| is_harmless(&content)) {
            self.note(state.entry(name, reason));
        }
    }
}

/// The options of a cherry-pick or revert have the form of a configuration.
fn are_plain_options(content: &[u8]) -> bool {
    let config = git_config::parse(content);
    let plain = |setting: &GitSetting| match setting.key.as_slice() {
        b"strategy" => is_strategy(&setting.value),
        b"strategy-option" => is_strategy_option(&setting.value),
        _ => true,
    };
    config.bad.is_none() && config.settings.iter().all(plain)
}
