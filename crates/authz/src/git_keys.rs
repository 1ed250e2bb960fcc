//! Settings of a repository that make git run a program, and what becomes of them under a listed git command.
//!
//! A repository brings its own configuration, and a dozen settings in it name programs: `git status` in a hostile
//! checkout is a command of the checkout's author. Commands that are listed as harmless must be harmless there too.
//! Three answers, each shown with real git by a test:
//!
//! - [`VARIABLES`] and [`SETTINGS`], put into the environment of every command in `listed` mode that no person approved,
//!   override what has one value: the file-system monitor, pagers, signature programs, transports, planted bare repositories.
//! - What has a name of the attacker's choice (`diff.<name>.textconv`) cannot be overridden; [`runs_a_program`] finds it,
//!   and the command is asked about. A submodule is a repository with settings of its own: git enters it when
//!   `.gitmodules` (on disk, in the index or in the last commit) or an option says so, so the caller has to look
//!   at the settings of every submodule in the index as well.
//! - The rest is reached only by commands that are asked about in any case (`commit`, `fetch`, `rebase` …).
//!
//! WHY NOT `core.hooksPath=/dev/null`: it would silently skip the hooks of a `git commit` that a policy file lists, such as
//! one that looks for secrets. The only hook that reading commands run is rare enough to be asked about: [`HOOKS`].
//!
//! WHY NOT `diff.autoRefreshIndex=false`, which keeps `git diff` from running that hook: it would show files as changed that
//! were only touched.

use ringfence_types::{ByteString, CommandMode};

use crate::policy::Policy;

/// Set for every command in `listed` mode that no person approved.
pub const VARIABLES: &[(&str, &str)] = &[
    // What only looks takes no lock that another process waits for.
    ("GIT_OPTIONAL_LOCKS", "0"),
    // A partial clone fetches what is missing through programs that its configuration names.
    ("GIT_NO_LAZY_FETCH", "1"),
    // Stronger than `core.pager` and `pager.<command>`.
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    // The home inside is writable; the operator's name is in the system's file.
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
];

/// Settings that go into the environment and are stronger than any file. All values are git's defaults or harmless.
pub const SETTINGS: &[(&str, &str)] = &[
    ("core.fsmonitor", "false"),
    // `dirty`: git compares the commit of a submodule and starts no git inside it.
    ("diff.ignoreSubmodules", "dirty"),
    ("diff.submodule", "short"),
    ("status.submoduleSummary", "false"),
    // `git grep` would print files of submodules, which are not looked at.
    ("submodule.recurse", "false"),
    ("log.showSignature", "false"),
    // `git log -p FILE` would print another file that the first one was copied from, and `git commit` what it commits.
    ("log.follow", "false"),
    ("commit.verbose", "false"),
    // `--format=%G?` asks for signatures too.
    ("gpg.program", "gpg"),
    ("gpg.x509.program", "gpgsm"),
    ("gpg.ssh.program", "ssh-keygen"),
    ("core.alternateRefsCommand", "true"),
    // Transports: a git that does not know GIT_NO_LAZY_FETCH would take these for a missing object.
    ("core.sshCommand", "ssh"),
    ("core.askPass", ""),
    // An empty helper forgets all helpers before it, those for one host included.
    ("credential.helper", ""),
    ("protocol.ext.allow", "never"),
    // A directory with `HEAD`, `objects` and `refs` in it is a repository to git, also if a command made it.
    ("safe.bareRepository", "explicit"),
    ("help.format", "man"),
];

/// Whether the policy lists commands, so that one that no person approved needs [`environment`].
pub fn protects(policy: &Policy) -> bool {
    !policy.all().all(|policy| policy.commands == CommandMode::Contained)
}

/// [`VARIABLES`] and [`SETTINGS`] as variables.
pub fn environment() -> Vec<(ByteString, ByteString)> {
    let set = |name: String, value: &str| (ByteString::from(name.as_str()), ByteString::from(value));
    let mut variables: Vec<_> =
        VARIABLES.iter().map(|(name, value)| set((*name).to_owned(), value)).collect();
    for (index, (key, value)) in SETTINGS.iter().enumerate() {
        variables.push(set(format!("GIT_CONFIG_KEY_{index}"), key));
        variables.push(set(format!("GIT_CONFIG_VALUE_{index}"), value));
    }
    variables.push(set("GIT_CONFIG_COUNT".to_owned(), &SETTINGS.len().to_string()));
    variables
}

/// Whether a setting makes a *listed* git command run a program although [`VARIABLES`] and [`SETTINGS`] are in force.
/// `key` is written as by `git config --list`: `core.pager`, `diff.x.textconv`. Letter case does not matter, and a
/// missing middle is forgiven: rather one question too many.
pub fn runs_a_program(key: &str, value: &str) -> bool {
    let Some((section, name)) = ends(key) else { return false };
    let found = FOUND.iter().any(|(known, names)| {
        section.eq_ignore_ascii_case(known) && names.iter().any(|known| name.eq_ignore_ascii_case(known))
    });
    found && !is_harmless(section, value.trim())
        || runs_gpg(section, name, value)
        || is_remote_like_an_option(key, section, name, value)
}

/// A partial clone hands the name of its remote to `git fetch` as an argument, and `--upload-pack=x` executes x.
fn is_remote_like_an_option(key: &str, section: &str, name: &str, value: &str) -> bool {
    let middle = key.get(section.len() + 1..).unwrap_or_default();
    let is = |known: &str| section.eq_ignore_ascii_case(known);
    is("remote") && middle.starts_with('-')
        || is("extensions") && name.eq_ignore_ascii_case("partialclone") && value.starts_with('-')
}

/// Formats and orders of the repository that ask for signatures. gpg and ssh-keygen are the system's, but they obey files of
/// the home: `photo-viewer` in `gpg.conf`.
fn runs_gpg(section: &str, name: &str, value: &str) -> bool {
    let is = |known: &str, text: &str| text.eq_ignore_ascii_case(known);
    let format = is("format", section) && is("pretty", name) || is("pretty", section);
    let order = is("sort", name) && (is("branch", section) || is("tag", section));
    format && asks_for_signatures(value.as_bytes())
        || order && value.to_ascii_lowercase().contains("signature")
}

/// Whether a format has `%G?` or one of its siblings, with or without what may stand between (`%+G?`, `%<(9)%G?`).
pub fn asks_for_signatures(format: &[u8]) -> bool {
    let after = |at: usize| format.get(at + 1..).unwrap_or_default();
    let modifier = |byte: &&u8| matches!(byte, b'+' | b'-' | b' ');
    let marks = format.iter().enumerate().filter(|(_, byte)| **byte == b'%').map(|(at, _)| after(at));
    marks.into_iter().any(|rest| rest.iter().find(|byte| !modifier(byte)) == Some(&b'G'))
}

/// Hooks that a listed git command runs: `git diff` refreshes the index. They are in `core.hooksPath` where it is set (relative
/// to the top of the work tree), else in `hooks` of the common git directory.
pub const HOOKS: [&str; 1] = ["post-index-change"];

/// Where a name of the attacker's choice, or a list, keeps the environment from overriding a setting.
const FOUND: &[(&str, &[&str])] = &[
    ("diff", &["external", "command", "textconv"]),
    ("filter", &["clean", "smudge", "process"]),
    // `--remerge-diff` and `log.diffMerges` merge again.
    ("merge", &["driver"]),
    // `--help` starts these.
    ("man", &["cmd", "path"]),
    ("browser", &["cmd", "path"]),
    // The fetch of a partial clone, where git does not know GIT_NO_LAZY_FETCH.
    ("remote", &["uploadpack", "receivepack", "vcs"]),
    ("core", &["gitproxy", "virtualfilesystem"]),
    ("hook", &["command"]),
    ("lfs", &["clean", "smudge", "standalonetransferagent", "path"]),
];

/// `git lfs install --local` writes exactly these; the program is the system's.
const LFS: &[&str] = &["git-lfs clean -- %f", "git-lfs smudge -- %f", "git-lfs filter-process"];

fn is_harmless(section: &str, value: &str) -> bool {
    section.eq_ignore_ascii_case("filter") && (value.is_empty() || LFS.contains(&value))
}

/// Section and name of a key; what is between the first and the last dot is a name of the author's choice.
fn ends(key: &str) -> Option<(&str, &str)> {
    let (section, _) = key.split_once('.')?;
    let (_, name) = key.rsplit_once('.')?;
    Some((section, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_with_names_of_their_own_are_found() {
        for key in [
            "diff.external",
            "diff.x.command",
            "diff.x.textconv",
            "diff.A.b.C.textconv",
            "DIFF.x.TextConv",
            "diff.textconv",
            "filter.x.clean",
            "filter.x.smudge",
            "filter.x.process",
            "merge.x.driver",
            "man.x.cmd",
            "man.man.path",
            "browser.firefox.path",
            "browser.x.cmd",
            "remote.origin.uploadpack",
            "remote.origin.receivepack",
            "remote.origin.vcs",
            "core.gitProxy",
            "remote.--upload-pack=x.promisor",
            "hook.x.command",
            "lfs.extension.x.clean",
            "lfs.customtransfer.x.path",
        ] {
            assert!(runs_a_program(key, "evil"), "{key}");
            assert!(runs_a_program(&key.to_ascii_uppercase(), "git-lfs"), "{key}");
        }
    }

    /// What ordinary repositories have. A question about each of them would teach people to say yes.
    #[test]
    fn ordinary_settings_are_not_programs() {
        for (key, value) in [
            ("core.bare", "false"),
            ("core.hookspath", ".husky/_"),
            ("core.pager", "less -F"),
            ("core.editor", "vim"),
            ("core.sshcommand", "ssh -i ~/.ssh/work"),
            ("core.fsmonitor", "true"),
            ("credential.helper", "store"),
            ("remote.origin.url", "git@example.org:a/b.git"),
            ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"),
            ("remote.origin.promisor", "true"),
            ("extensions.partialclone", "origin"),
            ("branch.main.merge", "refs/heads/main"),
            ("submodule.lib.url", "https://example.org/lib.git"),
            ("user.name", "filter.x.clean"),
            ("alias.st", "!status"),
            ("diff.algorithm", "histogram"),
            ("diff.x.xfuncname", "^fn"),
            ("merge.conflictstyle", "zdiff3"),
            ("filter.lfs.clean", "git-lfs clean -- %f"),
            ("filter.lfs.smudge", "git-lfs smudge -- %f"),
            ("filter.lfs.process", "git-lfs filter-process"),
            ("filter.lfs.required", "true"),
            ("filter.x.clean", ""),
            ("gpg.program", "gpg2"),
            ("", ""),
            ("filter", "x"),
            (".", "x"),
        ] {
            assert!(!runs_a_program(key, value), "{key}");
        }
    }

    #[test]
    fn a_remote_that_is_called_like_an_option_is_found() {
        assert!(runs_a_program("extensions.partialClone", "--upload-pack=x"));
        assert!(runs_a_program("remote.-x.url", "https://example.org"));
        assert!(!runs_a_program("remote.a-b.url", "-x"));
    }

    #[test]
    fn formats_and_orders_that_ask_for_signatures_run_gpg() {
        for (key, value) in [
            ("format.pretty", "%h %G?"),
            ("format.pretty", "format:%<(9)%+GS"),
            ("pretty.mine", "tformat:%GK"),
            ("branch.sort", "-signature:grade"),
            ("tag.sort", "signature"),
        ] {
            assert!(runs_a_program(key, value), "{key} {value}");
        }
        for (key, value) in [
            ("format.pretty", "%h GPG 100%"),
            ("pretty.mine", "%s"),
            ("branch.sort", "-committerdate"),
            ("branch.signature.sort", "x"),
        ] {
            assert!(!runs_a_program(key, value), "{key} {value}");
        }
    }

    #[test]
    fn only_the_exact_commands_of_lfs_are_harmless() {
        for value in [
            "git-lfs clean -- %f; evil",
            "./git-lfs clean -- %f",
            "git-lfs  clean -- %f",
            "git-lfs filter-process -s evil",
        ] {
            assert!(runs_a_program("filter.lfs.clean", value), "{value}");
        }
        assert!(runs_a_program("diff.lfs.textconv", "git-lfs clean -- %f"));
    }

    /// Otherwise a call could take back what is set here.
    #[test]
    fn no_caller_may_set_what_is_set_here() {
        let rules = crate::env::EnvRules::default();
        for (name, value) in environment() {
            assert!(crate::env::check_addition(&name, &value, &rules).is_err(), "{}", name.display());
        }
        assert_eq!(environment().len(), VARIABLES.len() + 2 * SETTINGS.len() + 1);
    }

    #[test]
    fn nothing_is_both_overridden_and_asked_about() {
        for (key, value) in SETTINGS {
            assert!(!runs_a_program(key, value), "{key}");
        }
    }
}
