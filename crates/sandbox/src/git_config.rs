//! A git configuration file, read exactly as git reads it.
//!
//! The configuration decides what git runs, so being nearly right is not enough: a setting that git reads and this reader
//! skips is never checked. The reader follows git's own parser character by character; where git gives up, so does it.
//!
//! The reader also gives up at a zero byte, where git does not: git reads on and takes every name for a C string, so that
//! `[core "fsmonitor\0"] bare = x` sets `core.fsmonitor`. No git writes such a file.
//!
//! It also gives up where the names of all settings become very long together. A section has one name and any number of settings:
//! a file of one megabyte could otherwise have names of a hundred gigabytes, in a process that the limits of commands are not for.

use std::ops::Range;

/// The bytes of the names of all settings of a file. Half a million settings have fewer.
const MOST_NAMED: usize = 16 * 1024 * 1024;

/// One setting: `section.subsection.key`, section and key in lower case, and its value. A key without a value is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitSetting {
    pub section: Vec<u8>,
    pub subsection: Option<Vec<u8>>,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// Git refuses the file from this line on, or reads it as something else than it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is not a line of a git configuration")]
pub struct BadLine {
    /// From 1.
    pub line: usize,
}

/// What a file says: all settings before the first line that git refuses, and that line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitConfig {
    pub settings: Vec<GitSetting>,
    pub bad: Option<BadLine>,
}

impl GitSetting {
    /// As `git config --list` writes it.
    pub fn name(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match &self.subsection {
            Some(middle) => format!("{}.{}.{}", text(&self.section), text(middle), text(&self.key)),
            None => format!("{}.{}", text(&self.section), text(&self.key)),
        }
    }
}

pub fn parse(content: &[u8]) -> GitConfig {
    let LocatedSettings { settings, bad } = locate(content);
    GitConfig { settings: settings.into_iter().map(|(setting, _)| setting).collect(), bad }
}

/// The settings of a file, each with its place in the file, and the first line that git refuses.
#[derive(Debug, Default)]
pub(crate) struct LocatedSettings {
    pub(crate) settings: Vec<(GitSetting, Range<usize>)>,
    pub(crate) bad: Option<BadLine>,
}

pub(crate) fn locate(content: &[u8]) -> LocatedSettings {
    let mut located = locate_all(content);
    if let Some(zero) = content.iter().position(|byte| *byte == 0) {
        located.settings.retain(|(_, span)| span.end <= zero);
        let before = content.iter().take(zero).filter(|byte| **byte == b'\n').count();
        let line = located.bad.map_or(before + 1, |bad| bad.line.min(before + 1));
        located.bad = Some(BadLine { line });
    }
    located
}

/// Whether git reads names or values of this file only up to a zero byte.
pub(crate) fn has_zero_byte(content: &[u8]) -> bool {
    content.contains(&0)
}

fn locate_all(content: &[u8]) -> LocatedSettings {
    let mut reader =
        GitConfigReader { rest: content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content), line: 1 };
    let mut config = LocatedSettings::default();
    let mut stem: GitSectionHeader = (Vec::new(), None);
    let mut named = 0;
    loop {
        let start = content.len() - reader.rest.len();
        let Some(byte) = reader.next() else { break };
        let read = match byte {
            byte if is_space(byte) => Some(()),
            b'#' | b';' => {
                reader.skip_line();
                Some(())
            }
            b'[' => reader.header().map(|header| stem = header),
            byte if byte.is_ascii_alphabetic() => {
                named += stem.0.len() + stem.1.as_ref().map_or(0, Vec::len);
                let setting = reader.setting(byte).filter(|_| named <= MOST_NAMED);
                setting.map(|(key, value)| {
                    let (section, subsection) = stem.clone();
                    let end = content.len() - reader.rest.len();
                    config.settings.push((GitSetting { section, subsection, key, value }, start..end));
                })
            }
            _ => None,
        };
        if read.is_none() {
            config.bad = Some(BadLine { line: reader.line });
            break;
        }
    }
    config
}

/// The file without the settings that `keep` rejects. `None`: git refuses the file, or what is left would be read as something else.
pub(crate) fn without(content: &[u8], keep: impl Fn(&GitSetting) -> bool) -> Option<Vec<u8>> {
    let located = locate(content);
    if located.bad.is_some() {
        return None;
    }
    let mut out = Vec::with_capacity(content.len());
    let mut copied = 0;
    for (_, span) in located.settings.iter().filter(|(setting, _)| !keep(setting)) {
        out.extend_from_slice(content.get(copied..span.start)?);
        out.push(b'\n');
        copied = span.end;
    }
    out.extend_from_slice(content.get(copied..)?);
    let wanted = located.settings.into_iter().map(|(setting, _)| setting).filter(keep);
    let left = parse(&out);
    (left.bad.is_none() && left.settings.iter().eq(wanted.collect::<Vec<_>>().iter())).then_some(out)
}

/// Section in lower case, and what is in quotes after it.
type GitSectionHeader = (Vec<u8>, Option<Vec<u8>>);

struct GitConfigReader<'a> {
    rest: &'a [u8],
    line: usize,
}

impl GitConfigReader<'_> {
    /// A carriage return before a line end is part of it.
    fn next(&mut self) -> Option<u8> {
        let (byte, rest) = match self.rest {
            [b'\r', b'\n', rest @ ..] => (b'\n', rest),
            [byte, rest @ ..] => (*byte, rest),
            [] => return None,
        };
        self.rest = rest;
        self.line += usize::from(byte == b'\n');
        Some(byte)
    }

    /// To git the end of a file is the end of a line.
    fn next_in_line(&mut self) -> u8 {
        self.next().unwrap_or(b'\n')
    }

    fn skip_line(&mut self) {
        while !matches!(self.next(), None | Some(b'\n')) {}
    }

    /// After `[`.
    fn header(&mut self) -> Option<GitSectionHeader> {
        let mut section = Vec::new();
        loop {
            match self.next()? {
                b']' => return Some((section, None)).filter(|(section, _)| !section.is_empty()),
                byte if is_space(byte) => return self.subsection(byte).map(|name| (section, Some(name))),
                byte if is_key(byte) || byte == b'.' => section.push(byte.to_ascii_lowercase()),
                _ => return None,
            }
        }
    }

    /// After the first space of a header.
    fn subsection(&mut self, mut byte: u8) -> Option<Vec<u8>> {
        while is_space(byte) {
            if byte == b'\n' {
                return None;
            }
            byte = self.next_in_line();
        }
        if byte != b'"' {
            return None;
        }
        let mut name = Vec::new();
        loop {
            match self.next_in_line() {
                b'\n' => return None,
                b'"' => break,
                b'\\' => match self.next_in_line() {
                    b'\n' => return None,
                    byte => name.push(byte),
                },
                byte => name.push(byte),
            }
        }
        (self.next_in_line() == b']').then_some(name)
    }

    /// After the first letter of a key.
    fn setting(&mut self, first: u8) -> Option<(Vec<u8>, Vec<u8>)> {
        let mut key = vec![first.to_ascii_lowercase()];
        let mut byte = self.next_in_line();
        while is_key(byte) {
            key.push(byte.to_ascii_lowercase());
            byte = self.next_in_line();
        }
        while matches!(byte, b' ' | b'\t') {
            byte = self.next_in_line();
        }
        match byte {
            b'\n' => Some((key, Vec::new())),
            b'=' => self.value().map(|value| (key, value)),
            _ => None,
        }
    }

    fn value(&mut self) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        // Spaces at the end are not part of it, unless they are quoted.
        let mut solid = 0;
        let mut quoted = false;
        loop {
            match self.next_in_line() {
                b'\n' if quoted => return None,
                b'\n' => break,
                byte if is_space(byte) && !quoted => {
                    if !value.is_empty() {
                        value.push(byte);
                    }
                    continue;
                }
                b'#' | b';' if !quoted => {
                    self.skip_line();
                    break;
                }
                b'"' => quoted = !quoted,
                b'\\' => match self.next_in_line() {
                    b'\n' => {}
                    escaped => value.push(unescaped(escaped)?),
                },
                byte => value.push(byte),
            }
            solid = value.len();
        }
        value.truncate(solid);
        Some(value)
    }
}

fn unescaped(byte: u8) -> Option<u8> {
    match byte {
        b't' => Some(b'\t'),
        b'b' => Some(8),
        b'n' => Some(b'\n'),
        b'\\' | b'"' => Some(byte),
        _ => None,
    }
}

fn is_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

/// What git takes for space.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// What git itself reads: names and values, or nothing where it refuses the file.
    fn by_git(content: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        fs::write(&file, content).unwrap();
        let output = Command::new("git")
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .args(["config", "--no-includes", "--list", "-z", "--file"])
            .arg(&file)
            .output()
            .unwrap();
        if !output.status.success() {
            return None;
        }
        let entries = output.stdout.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
        Some(
            entries
                // A setting before any section has a name without a dot.
                .map(|entry| entry.strip_prefix(b".").unwrap_or(entry))
                .map(|entry| match entry.iter().position(|byte| *byte == b'\n') {
                    Some(at) => (entry[..at].to_vec(), entry[at + 1..].to_vec()),
                    None => (entry.to_vec(), Vec::new()),
                })
                .collect(),
        )
    }

    fn by_us(content: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        let config = parse(content);
        let name = |setting: &GitSetting| {
            let middle =
                setting.subsection.as_ref().map(|name| [b".", name.as_slice()].concat()).unwrap_or_default();
            let name = [&setting.section, middle.as_slice(), b".", &setting.key].concat();
            name.strip_prefix(b".").map(<[u8]>::to_vec).unwrap_or(name)
        };
        let settings = config.settings.iter().map(|setting| (name(setting), setting.value.clone()));
        config.bad.is_none().then(|| settings.collect())
    }

    /// A section has one name, which each of its settings has too.
    #[test]
    fn names_that_are_too_long_together_are_no_configuration() {
        let with = |section: usize, settings: usize| {
            locate(format!("[a \"{}\"]\n{}", "x".repeat(section), "b\n".repeat(settings)).as_bytes())
        };
        for control in [with(500_000, 10), with(10, 200_000)] {
            assert_eq!(control.bad, None);
        }
        let bomb = with(500_000, 200_000);
        assert!(bomb.bad.is_some());
        assert!(bomb.settings.len() < 100, "{}", bomb.settings.len());
    }

    #[test]
    fn every_form_is_read_as_git_reads_it() {
        for text in [
            "",
            "[a]\nb = c\n",
            "[a]\n\tb = c",
            "[a] b = c\n",
            "[a][b] c = d\n",
            "[a]b=c\n[a \"X y\"]D=e\n",
            "[a.B]c=d\n",
            "[A \"b\\\"c\\\\d\"]\n e\n",
            "[a]\r\nb = c\r\n",
            "\u{feff}[a]\nb=c\n",
            "[a]\nb = c # d\ne = \"f # g\" ; h\n",
            "[a]\nb = c\\\nd\n",
            "[a]\nb = \"c \\\n d\"\n",
            "[a]\nb = \\\"x\\\" \\t\\n\\\\y\n",
            "[a]\nb =   c   d   \n",
            "[a]\nb = \"  c  \"  \n",
            "[a]\nb = \"c\"d\"e\"\n",
            "[a]\nb-c2 = d\n",
            "# x\n; y\n[a] # z\nb\n",
            "[a]\nb # c\n",
            "[a]\nb = \\q\n",
            "[a]\nb = \"c\n",
            "[a \"b]\nc = d\n",
            "[a\nb = c\n",
            "[a \"b\"x]\nc = d\n",
            "[a b]\nc = d\n",
            "[a!]\nc = d\n",
            "b = c\n",
            "[a]\n1b = c\n",
            "[a]\n= c\n",
            "[a]\nb = c \\\n",
            "[]\nb = c\n",
            "[a]\nb = \t\"\"\t\n",
            "[core]\n\tpager = !sh -c \"x; y\" # z\n",
        ] {
            assert_eq!(by_us(text.as_bytes()), by_git(text.as_bytes()), "{text:?}");
        }
    }

    /// Git goes on after a zero byte and reads another name; this reader refuses the file.
    #[test]
    fn a_zero_byte_is_never_read_over() {
        for (text, by_git_alone) in [
            ("[core \"fsmonitor\0\"]\n\tbare = x\n", "core.fsmonitor"),
            ("[diff \"external\0\"]\nbare = x\n", "diff.external"),
            ("[branch \"x\0\"]\nmerge = x\n", "branch.x"),
        ] {
            let read = by_git(text.as_bytes()).unwrap();
            assert!(read.iter().any(|(name, _)| name == by_git_alone.as_bytes()), "control: {read:?}");
            let config = parse(text.as_bytes());
            assert!(config.settings.is_empty() && config.bad.is_some(), "{config:?}");
        }
        for text in ["[a]\nb = c\n[d]\ne = x\0y\n", "[a]\nb = c\n# \0\n", "[a]\nb = c\n[d \"\0\"]\ne\n"] {
            let config = parse(text.as_bytes());
            assert_eq!(config.settings.len(), 1, "{text:?}");
            assert!(config.bad.is_some_and(|bad| bad.line >= 3), "{text:?}");
            assert_eq!(without(text.as_bytes(), |_| true), None, "{text:?}");
        }
    }

    #[test]
    fn what_comes_before_a_bad_line_is_kept() {
        let config = parse(b"[a]\nb = c\n!\n[d]\ne = f\n");
        assert_eq!(config.settings.len(), 1);
        assert_eq!(config.settings[0].name(), "a.b");
        assert_eq!(config.bad, Some(BadLine { line: 3 }));
    }

    #[test]
    fn settings_are_cut_out_and_the_rest_stays() {
        let keep = |setting: &GitSetting| setting.key != b"bad";
        for (text, left) in [
            ("[a]\n\tbad = x\n\tgood = y\n", "[a]\n\t\n\tgood = y\n"),
            ("[a] bad = x\n[b]good\n", "[a] \n[b]good\n"),
            ("# c\n[a]\nbad = \"x\\\n y\" # z\n; d\n", "# c\n[a]\n\n; d\n"),
            ("\u{feff}[a]\r\nbad\r\ngood = 1\r\n", "\u{feff}[a]\r\n\ngood = 1\r\n"),
        ] {
            assert_eq!(
                without(text.as_bytes(), keep).map(|b| String::from_utf8(b).unwrap()).as_deref(),
                Some(left)
            );
        }
        assert_eq!(without(b"[a]\nbad = x\n!\n", keep), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn what_is_cut_out_is_gone(
            text in "(\\[[ab.]{0,3}( ?\"[xY\\\\\" ]{0,3}\")?\\]|[ab]{1,2} ?=? ?|[cd #;\"\\\\\t\r]{1,4}|\n){0,14}",
        ) {
            let content = text.as_bytes();
            let keep = |setting: &GitSetting| setting.key != b"a";
            if let Some(left) = without(content, keep) {
                let kept: Vec<_> = parse(content).settings.into_iter().filter(keep).collect();
                prop_assert_eq!(parse(&left).settings, kept);
            }
        }

        #[test]
        fn generated_files_are_read_as_git_reads_them(
            text in "(\\[[ab.]{0,3}( ?\"[xY\\\\\" ]{0,3}\")?\\]|[ab]{1,2} ?=? ?|[cd #;\"\\\\\t\r]{1,4}|\n){0,14}",
        ) {
            // Before 2.45 git made a space of every tab between words.
            let spaced = |read: Option<Vec<(Vec<u8>, Vec<u8>)>>| read.map(|settings| {
                let space = |value: Vec<u8>| value.into_iter().map(|byte| if is_space(byte) { b' ' } else { byte }).collect::<Vec<_>>();
                settings.into_iter().map(|(name, value)| (name, space(value))).collect::<Vec<_>>()
            });
            prop_assert_eq!(spaced(by_us(text.as_bytes())), spaced(by_git(text.as_bytes())));
        }

        /// Whatever git reads from a file with zero bytes, this reader does not call the file good.
        #[test]
        fn no_file_with_a_zero_byte_is_good(
            text in "(\\[[ab.]{0,3}( ?\"[xY\\x00\\\\\" ]{0,3}\")?\\]|[ab]{1,2} ?=? ?|[cd #;\"\\\\\t\r\\x00]{1,4}|\n){0,14}",
        ) {
            let config = parse(text.as_bytes());
            prop_assert!(config.bad.is_some() || by_git(text.as_bytes()).is_some());
            prop_assert!(config.bad.is_some() || !text.contains('\0'));
            prop_assert!(config.settings.iter().all(|setting| !setting.name().contains('\0') && !setting.value.contains(&0)));
        }

        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _read = parse(&bytes);
        }
    }
}
