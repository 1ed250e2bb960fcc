//! Finds files that a command changes and then executes: `cp new run.sh && sh run.sh`.
//!
//! The answer is bound to such a file as it is when the command starts. Once the command itself has changed it, another
//! process of the session can change it as well before it is executed, and no digest says what it will have then. The
//! prompt names these files, and no grant is offered.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ringfence_authz::{JudgementPart, PartKind};
use ringfence_types::{ByteString, Decision, RuleId};

use super::binding::names;

/// System programs that change no content of the files they write. The command still gets the copies of these files.
const KEEP_CONTENT: [&str; 4] = ["chgrp", "chmod", "chown", "mkdir"];

/// Files that one part changes and another command, which is asked about, names. A command that needs no approval executes
/// no file of the workspace. `directories` are those in which a name may be meant.
pub(super) fn files(parts: &[JudgementPart], directories: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for (at, part) in parts.iter().enumerate() {
        let Some(path) = part.path.as_ref().filter(|_| part.aspect == PartKind::Write) else { continue };
        let writer = writer(parts, at);
        if writer.is_some_and(keeps_content) {
            continue;
        }
        let is_other = |part: &JudgementPart| is_user(part) && !writer.is_some_and(|by| runs(part, by));
        let others = parts.iter().enumerate().filter(|(_, part)| is_other(part));
        let named = others.flat_map(|(at, user)| used(user, parts.get(at + 1..), directories));
        found.extend(named.filter(|name| is_at_or_below(name, path.as_path())));
    }
    found
}

/// The command that a written operand belongs to. `None`: the shell writes it, for a redirection.
fn writer(parts: &[JudgementPart], at: usize) -> Option<&JudgementPart> {
    if parts.get(at)?.rule == RuleId::GuardedRedirection {
        return None;
    }
    parts.get(..at)?.iter().rev().find(|part| part.aspect == PartKind::Command)
}

fn keeps_content(writer: &JudgementPart) -> bool {
    let name = writer.program.as_deref().and_then(Path::file_name);
    name.is_some_and(|name| KEEP_CONTENT.iter().any(|known| name == *known))
}

fn is_user(part: &JudgementPart) -> bool {
    part.aspect == PartKind::Command && part.decision == Decision::Ask
}

/// Whether `part` is `writer` itself, or a wrapper that runs it: `env sed -i s/a/b/ run.sh`.
fn runs(part: &JudgementPart, writer: &JudgementPart) -> bool {
    !writer.argv.is_empty() && part.argv.ends_with(&writer.argv) || std::ptr::eq(part, writer)
}

/// What a command may execute: what its arguments name, and what it reads (`sh <run.sh`). `behind` are the parts after it.
fn used(
    user: &JudgementPart,
    behind: Option<&[JudgementPart]>,
    directories: &BTreeSet<PathBuf>,
) -> Vec<PathBuf> {
    let own = behind.unwrap_or_default().iter().take_while(|part| part.aspect != PartKind::Command);
    let read = own.filter(|part| part.aspect == PartKind::Read).filter_map(|part| part.path.as_ref());
    let mut used = candidates(user, directories);
    used.extend(read.map(|path| path.as_path().to_owned()));
    used
}

/// Every path that the arguments of a command may name. Words with spaces are shell text, whose commands are parts.
fn candidates(part: &JudgementPart, directories: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let is_text = |word: &&ByteString| word.as_slice().iter().any(u8::is_ascii_whitespace);
    let (texts, words): (Vec<_>, Vec<_>) = part.argv.iter().partition(is_text);
    let names = words.into_iter().flat_map(names).chain(texts.into_iter().map(ByteString::as_path));
    names.flat_map(|name| directories.iter().map(move |directory| directory.join(name))).collect()
}

/// By name, and by where links lead.
fn is_at_or_below(name: &Path, written: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.components().collect());
    name.is_absolute() && (name.starts_with(written) || real(name).starts_with(real(written)))
}

#[cfg(test)]
mod tests {
    use ringfence_types::Risk;

    use super::*;

    fn command(line: &str) -> JudgementPart {
        let part = JudgementPart::new(PartKind::Command, line, RuleId::GuardedUnlisted);
        let argv: Vec<ByteString> = line.split(' ').map(ByteString::from).collect();
        let program = argv.first().map(|name| Path::new("/usr/bin").join(name.as_path()));
        JudgementPart { argv, program, ..part.ask(Risk::Medium, "-") }
    }

    fn listed(line: &str) -> JudgementPart {
        JudgementPart { decision: Decision::Allow, ..command(line) }
    }

    fn path(kind: PartKind, rule: RuleId, path: &str) -> JudgementPart {
        JudgementPart { path: Some(ByteString::from(path)), ..JudgementPart::new(kind, path, rule) }
    }

    fn writes(name: &str) -> JudgementPart {
        path(PartKind::Write, RuleId::PathOpen, name)
    }

    fn found(parts: &[JudgementPart]) -> Vec<String> {
        let directories = BTreeSet::from([PathBuf::from("/w"), PathBuf::from("/w/sub")]);
        files(parts, &directories).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn a_file_that_is_changed_and_then_executed_is_found() {
        let run = || command("sh run.sh");
        assert_eq!(found(&[command("cp new run.sh"), writes("/w/run.sh"), run()]), ["/w/run.sh"]);
        assert_eq!(found(&[command("sed -i x run.sh"), writes("/w/sub/run.sh"), run()]), ["/w/sub/run.sh"]);
        assert_eq!(
            found(&[run(), command("cp new run.sh"), writes("/w/run.sh")]),
            ["/w/run.sh"],
            "in a loop"
        );
        assert_eq!(found(&[command("cp -r new d"), writes("/w/d"), command("./d/run")]), ["/w/./d/run"]);
        let redirection = path(PartKind::Write, RuleId::GuardedRedirection, "/w/run.sh");
        assert_eq!(found(&[run(), redirection]), ["/w/run.sh"], "the shell empties it first");
        let input = path(PartKind::Read, RuleId::PathOpen, "/w/run.sh");
        assert_eq!(
            found(&[command("cp new run.sh"), writes("/w/run.sh"), command("sh"), input]),
            ["/w/run.sh"]
        );
    }

    #[test]
    fn a_file_that_is_only_changed_or_keeps_its_content_is_not() {
        let run = || command("sh run.sh");
        assert_eq!(found(&[command("chmod +x run.sh"), writes("/w/run.sh"), run()]), [""; 0]);
        assert_eq!(found(&[command("cp run.sh copy"), writes("/w/copy"), run()]), [""; 0]);
        assert_eq!(found(&[command("cp new run.sh"), writes("/w/run.sh"), listed("cat run.sh")]), [""; 0]);
        let wrapped = [command("env sed -i x run.sh"), command("sed -i x run.sh"), writes("/w/run.sh")];
        assert_eq!(found(&wrapped), [""; 0]);
    }

    #[test]
    fn a_link_does_not_hide_what_is_changed() {
        let place = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(place.path()).unwrap();
        fs::write(root.join("run.sh"), "").unwrap();
        std::os::unix::fs::symlink("run.sh", root.join("link")).unwrap();
        let link = root.join("link");
        let parts = [command("cp new link"), writes(link.to_str().unwrap()), command("sh run.sh")];
        assert_eq!(files(&parts, &BTreeSet::from([root.clone()])), BTreeSet::from([root.join("run.sh")]));
    }
}
