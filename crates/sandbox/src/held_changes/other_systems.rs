//! What other version control systems than git execute because of a file in a checkout.

use std::path::Path;

/// Files in the directory of a system, by the name of that directory.
pub(super) const FILES: &[(&str, &[&str])] = &[
    (".hg", &["hgrc", "hgrc-not-shared", "sharedpath"]),
    (".sl", &["config", "hgrc", "sharedpath"]),
    (".jj", &["repo/config.toml", "workspace-config.toml", "config.toml"]),
    (".bzr", &["branch/branch.conf", "branch/location", "control.conf"]),
    ("_darcs", &["prefs/defaults", "prefs/prefs"]),
    (".pijul", &["config", "config.toml"]),
];

/// Files in a git directory with commands for programs that work with git: lazygit and Arcanist.
pub(super) const IN_GIT: &[&str] = &["lazygit.yml", "arc/config"];

/// The directory that `git instaweb` takes the server from, which it executes, and its configuration, if they are there.
pub(super) const INSTAWEB: &str = "gitweb";

/// Whether a `pid` of `git instaweb` is one number: it hands the words of the file to `kill` in a shell.
pub(super) fn is_process_id(content: &[u8]) -> bool {
    let digits = content.strip_suffix(b"\n").unwrap_or(content);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// The directories of Mercurial and Sapling, whose interrupted `histedit` is in this file.
pub(super) const HISTEDIT: (&[&str], &str) = (&[".hg", ".sl"], "histedit-state");

/// Whether a `histedit-state` has the form of today. Mercurial unpickles any other, which executes what it says.
pub(super) fn is_plain_histedit(content: &[u8]) -> bool {
    content.starts_with(b"v1\n")
}

/// What the system with this directory executes or obeys, from that directory.
pub(crate) fn files_of(directory: &Path) -> impl Iterator<Item = &'static str> {
    let name = directory.file_name().unwrap_or_default();
    let known = FILES.iter().filter(move |(system, _)| name.eq_ignore_ascii_case(system));
    known.flat_map(|(_, files)| files.iter().copied())
}

/// Whether a file of [`FILES`] says nothing that executes. `hg clone` writes some of them with known content; no program
/// writes the others unasked.
pub(super) fn is_harmless(file: &str, content: &[u8]) -> bool {
    if !is_plain_text(content) {
        return false;
    }
    match file {
        "hgrc" | "config" | "hgrc-not-shared" => is_plain_paths(content),
        _ => is_blank(content),
    }
}

/// Text that every program splits into the same lines. To Mercurial a carriage return ends a line, to others a form feed or a
/// line separator does: a comment could hold a setting.
fn is_plain_text(content: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(content) else { return false };
    let text = text.replace("\r\n", "\n");
    let splits =
        |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || matches!(c, '\u{2028}' | '\u{2029}');
    !text.contains(splits)
}

/// Blank lines and comments only.
fn is_blank(content: &[u8]) -> bool {
    content.split(|byte| *byte == b'\n').all(|line| is_comment(line.trim_ascii()))
}

fn is_comment(line: &[u8]) -> bool {
    line.is_empty() || line.starts_with(b"#") || line.starts_with(b";")
}

/// `[paths]` with addresses of other machines, and `[ui] username`. A line that begins with a space goes on with the one before.
fn is_plain_paths(content: &[u8]) -> bool {
    let mut section: &[u8] = b"";
    for line in content.split(|byte| *byte == b'\n') {
        let text = line.trim_ascii_end();
        if is_comment(text) {
            continue;
        }
        if matches!(text, b"[paths]" | b"[ui]") {
            section = text;
            continue;
        }
        let Some(at) = text.iter().position(|byte| *byte == b'=') else { return false };
        let (name, value) = (
            text.get(..at).unwrap_or_default().trim_ascii_end(),
            text.get(at + 1..).unwrap_or_default().trim_ascii(),
        );
        let known = match section {
            b"[paths]" => matches!(name, b"default" | b"default-push" | b"default-pull") && is_remote(value),
            b"[ui]" => name == b"username",
            _ => false,
        };
        if !known {
            return false;
        }
    }
    true
}

fn is_remote(address: &[u8]) -> bool {
    [&b"https://"[..], b"http://", b"ssh://"].iter().any(|scheme| address.starts_with(scheme))
        && !address.starts_with(b"ssh://-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_clone_writes_is_harmless() {
        for text in [
            "",
            "\n",
            "[paths]\r\ndefault = https://example.org/r\r\n",
            "# example\n[paths]\ndefault = https://example.org/r\n",
            "[ui]\nusername = A <a@b>\n",
        ] {
            assert!(is_harmless("hgrc", text.as_bytes()), "{text}");
        }
        assert!(is_harmless("repo/config.toml", b"#:schema x\n\n"));
    }

    #[test]
    fn a_process_id_is_one_number() {
        for text in ["1234\n", "1234"] {
            assert!(is_process_id(text.as_bytes()), "{text}");
        }
        for text in ["", "\n", "-1\n", "-- -1", "1 2\n", "1\n2\n", "$(x)\n", "-s KILL 1"] {
            assert!(!is_process_id(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_executes_is_not() {
        for text in [
            "[hooks]\nupdate = x\n",
            "[extensions]\nx = ./x.py\n",
            "[paths]\ndefault = /tmp/x\n",
            "%include ../x\n",
            "[ui]\nssh = x\n",
            "[ui]\nusername = x\n  y\n[hooks]\nu=v\n",
            "[paths]\ndefault:pushurl = x\n",
            "[alias]\nst = !x\n",
            "[paths]\ndefault = ssh://-oX\n",
            "# x\r[hooks]\rupdate = x\r\n",
            "[ui]\nusername = x\r[hooks]\rupdate = x\n",
            "# x\u{2028}[hooks]\n",
            "# x\u{c}[hooks]\n",
            "# x\0\n",
        ] {
            assert!(!is_harmless("hgrc", text.as_bytes()), "{text}");
        }
        assert!(!is_harmless("repo/config.toml", b"[ui]\npager = \"x\"\n"));
    }
}
