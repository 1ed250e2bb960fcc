//! Finds files that a command executes and that do not exist when it is asked about: `./made-later`.
//!
//! An answer is bound to the absence of such a file until the command starts. From then on the command itself may make it,
//! and so may any other process of the session: no digest says what it will have. The prompt names these files, and no
//! grant is offered.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ringfence_authz::{JudgementPart, PartKind, executed_words};
use ringfence_types::{Access, ByteString, Decision, Root};

/// Where the names of a command may lead.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedIn<'a> {
    pub(super) cwd: &'a Path,
    /// The directories in which a name may be meant, the working directory among them.
    pub(super) directories: &'a BTreeSet<PathBuf>,
    pub(super) roots: &'a [Root],
}

/// Files that commands which are asked about would execute, none of which exists.
pub(super) fn files(parts: &[JudgementPart], place: NamedIn<'_>) -> BTreeSet<PathBuf> {
    let asked =
        parts.iter().filter(|part| part.aspect == PartKind::Command && part.decision == Decision::Ask);
    asked.filter_map(|part| absent(part, place)).collect()
}

/// The first word that may be the script or the program, where none of those words is a file.
fn absent(part: &JudgementPart, place: NamedIn<'_>) -> Option<PathBuf> {
    let words = executed_words(&part.argv);
    let is_program = words.first().copied() == part.argv.first();
    let is_file = |word: &&ByteString| {
        place.directories.iter().any(|directory| directory.join(word.as_path()).is_file())
    };
    // The judge has looked for a program in the directory where it would run.
    let is_there = if is_program { part.program.is_some() } else { words.iter().any(is_file) };
    let named = words.first().filter(|_| !is_there).map(|word| place.cwd.join(word.as_path()))?;
    let writable = |root: &Root| root.access == Access::Write && named.starts_with(root.path.as_path());
    place.roots.iter().any(writable).then_some(named)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ringfence_types::{Risk, RuleId};

    use super::*;

    fn command(line: &str) -> JudgementPart {
        let part = JudgementPart::new(PartKind::Command, line, RuleId::GuardedUnlisted);
        let argv: Vec<ByteString> = line.split(' ').map(ByteString::from).collect();
        JudgementPart { argv, ..part.ask(Risk::Medium, "-") }
    }

    fn found(lines: &[&str]) -> Vec<String> {
        let place = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(place.path()).unwrap();
        fs::create_dir(root.join("sub")).unwrap();
        fs::write(root.join("here.py"), "").unwrap();
        fs::write(root.join("sub/there.sh"), "").unwrap();
        let parts: Vec<JudgementPart> = lines.iter().map(|line| command(line)).collect();
        let roots = [Root { path: ByteString::from(root.as_path()), access: Access::Write }];
        let directories = BTreeSet::from([root.clone(), root.join("sub")]);
        let place = NamedIn { cwd: &root, directories: &directories, roots: &roots };
        let shown = |path: &PathBuf| path.strip_prefix(&root).unwrap().display().to_string();
        files(&parts, place).iter().map(shown).collect()
    }

    #[test]
    fn a_program_or_script_that_does_not_exist_is_found() {
        for (line, name) in [
            ("./later", "later"),
            ("bin/later -v", "bin/later"),
            ("sh later", "later"),
            ("sh -e later.sh", "later.sh"),
            ("python3 -u later.py out.json", "later.py"),
            ("node later.js here.py2", "later.js"),
        ] {
            assert_eq!(found(&[line]), [name], "{line}");
        }
    }

    #[test]
    fn what_exists_and_what_is_no_file_of_the_workspace_is_not() {
        for line in [
            "sh sub/there.sh",
            "sh there.sh",
            "python3 here.py out.json",
            "python3 -W ignore here.py",
            "python3 -m pytest.x",
            "python3 -c import.os",
            "node --eval x.y",
            "python3 --version",
            "python3",
            "cp here.py copy.py",
            "make all",
            "/usr/bin/later",
            "/opt/later.sh",
        ] {
            assert_eq!(found(&[line]), [""; 0], "{line}");
        }
        let there = JudgementPart { program: Some(PathBuf::from("/w/tool")), ..command("./tool") };
        let listed = JudgementPart { decision: Decision::Allow, ..command("./later") };
        let place = NamedIn { cwd: Path::new("/w"), directories: &BTreeSet::new(), roots: &[] };
        assert!(files(&[there, listed], place).is_empty());
    }
}
