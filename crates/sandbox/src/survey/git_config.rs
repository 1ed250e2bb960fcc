//! A git configuration, as far as the fence cares: where it sends git, and which secrets are in it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use crate::git_config;

/// Larger configurations are not shown at all.
pub(super) const MAX: u64 = 1024 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SurveyedGitConfig {
    pub(super) worktree: Option<PathBuf>,
    pub(super) hooks_paths: Vec<PathBuf>,
    pub(super) includes: Vec<PathBuf>,
    /// Directories that git copies into a new repository: hooks, and a configuration.
    pub(super) templates: Vec<PathBuf>,
    /// Files that choose among the drivers of the user.
    pub(super) attributes: Vec<PathBuf>,
    pub(super) bare: bool,
}

impl SurveyedGitConfig {
    /// What another file says too. The first that names a checkout counts.
    pub(super) fn add(&mut self, other: Self) {
        self.worktree = self.worktree.take().or(other.worktree);
        self.hooks_paths.extend(other.hooks_paths);
        self.includes.extend(other.includes);
        self.templates.extend(other.templates);
        self.attributes.extend(other.attributes);
        self.bare |= other.bare;
    }
}

/// Reads the settings that name other files.
pub(super) fn parse(content: &[u8]) -> SurveyedGitConfig {
    let mut config = SurveyedGitConfig::default();
    for setting in git_config::parse(content).settings {
        let value = &setting.value;
        let path = || PathBuf::from(OsStr::from_bytes(value));
        match (setting.section.as_slice(), setting.key.as_slice()) {
            (b"core", b"worktree") => config.worktree = Some(path()),
            (b"core", b"hookspath") => config.hooks_paths.push(path()),
            (b"core", b"attributesfile") => config.attributes.push(path()),
            (b"init", b"templatedir") => config.templates.push(path()),
            (b"core", b"bare") => config.bare = matches!(&**value, b"true" | b"yes" | b"on" | b"1" | b""),
            (b"include" | b"includeif", b"path") => config.includes.push(path()),
            _ => {}
        }
    }
    config
}

/// The names of the submodules in a `.gitmodules`.
pub(super) fn submodule_names(content: &[u8]) -> Vec<PathBuf> {
    let headers =
        logical_lines(content).into_iter().filter_map(|line| header(line.trim_ascii_start()).map(|h| h.0));
    let modules = headers.filter(|header| header.section == b"submodule");
    modules.filter_map(|header| Some(PathBuf::from(OsStr::from_bytes(&header.subsection?)))).collect()
}

/// The configuration with every credential replaced, or `None` if there is none in it.
pub(super) fn redacted(content: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(content.len());
    let mut changed = false;
    for line in logical_lines(content) {
        match without_secret_value(&line).or_else(|| without_userinfo(&line)) {
            Some(clean) => {
                changed = true;
                out.extend_from_slice(&clean);
            }
            None => out.extend_from_slice(&line),
        }
    }
    changed.then_some(out)
}

/// Lines as git counts them: a backslash at the end joins the next one, except in a comment.
fn logical_lines(content: &[u8]) -> Vec<Vec<u8>> {
    let mut out: Vec<Vec<u8>> = Vec::new();
    let mut joining = false;
    let mut comment = CommentSearch::default();
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        match out.last_mut() {
            Some(last) if joining => last.extend_from_slice(line),
            _ => {
                comment = CommentSearch::in_line(line);
                out.push(line.to_vec());
            }
        }
        let Some(last) = out.last_mut() else { continue };
        // What was joined before ends in an even number of them.
        if !ends_in_backslash(line) {
            joining = false;
            continue;
        }
        let kept = last.trim_ascii_end().len().saturating_sub(1);
        joining = !comment.is_begun_in(last.get(..kept).unwrap_or_default());
        if joining {
            last.truncate(kept);
        }
    }
    out
}

fn is_comment(line: &[u8]) -> bool {
    matches!(line.trim_ascii_start().first(), Some(b'#' | b';'))
}

/// Looks for the beginning of a comment after a value. It goes on where it was: a line can be joined from any number of lines, and
/// time would grow with the square of it.
#[derive(Default)]
struct CommentSearch {
    at: usize,
    quoted: bool,
}

impl CommentSearch {
    /// Behind the header of a section. None goes on in the next line.
    fn in_line(line: &[u8]) -> Self {
        let trimmed = line.trim_ascii_start();
        let rest = header(trimmed).map_or(trimmed, |(_, after)| after);
        Self { at: line.len() - rest.len(), quoted: false }
    }

    fn is_begun_in(&mut self, line: &[u8]) -> bool {
        while let Some(byte) = line.get(self.at) {
            match byte {
                b'"' => self.quoted = !self.quoted,
                b'#' | b';' if !self.quoted => return true,
                b'\\' => self.at += 1,
                _ => {}
            }
            self.at += 1;
        }
        false
    }
}

fn ends_in_backslash(line: &[u8]) -> bool {
    let Some(text) = line.strip_suffix(b"\n") else { return false };
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    text.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

struct ConfigSection {
    section: Vec<u8>,
    subsection: Option<Vec<u8>>,
}

/// A section header at the start of `line`, and what follows it on the same line.
fn header(line: &[u8]) -> Option<(ConfigSection, &[u8])> {
    let inside = line.strip_prefix(b"[")?;
    let end = inside.iter().position(|byte| matches!(byte, b']' | b'"' | b' ' | b'\t' | b'.'))?;
    let (section, rest) = inside.split_at(end);
    let section = section.to_ascii_lowercase();
    let Some(quoted) = rest.trim_ascii_start().strip_prefix(b"\"") else {
        let close = rest.iter().position(|byte| *byte == b']')?;
        let after = rest.get(close + 1..).unwrap_or_default();
        return Some((ConfigSection { section, subsection: None }, after.trim_ascii_start()));
    };
    let (subsection, after) = quoted_text(quoted)?;
    let after = after.trim_ascii_start().strip_prefix(b"]")?;
    Some((ConfigSection { section, subsection: Some(subsection) }, after.trim_ascii_start()))
}

/// Text up to the closing quote, a backslash taking the next byte as it is.
fn quoted_text(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut out = Vec::new();
    let mut bytes = text.iter().enumerate();
    while let Some((index, byte)) = bytes.next() {
        match byte {
            b'"' => return Some((out, text.get(index + 1..).unwrap_or_default())),
            b'\\' => out.push(*bytes.next()?.1),
            other => out.push(*other),
        }
    }
    None
}

/// Key and raw value of a line that sets something; a key alone has an empty value.
fn setting(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.trim_ascii();
    let end =
        line.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'-').unwrap_or(line.len());
    let (key, rest) = line.split_at(end);
    if key.is_empty() {
        return None;
    }
    match rest.trim_ascii_start() {
        [] => Some((key, b"")),
        [b'=', value @ ..] => Some((key, value.trim_ascii())),
        _ => None,
    }
}

const REDACTED: &[u8] = b"redacted";

/// The line with its value replaced, if the setting is a secret by its name or its value looks like one.
fn without_secret_value(line: &[u8]) -> Option<Vec<u8>> {
    if is_comment(line) {
        return has_secret_text(line).then(|| [b"# ", REDACTED, b"\n"].concat());
    }
    let trimmed = line.trim_ascii_start();
    let rest = header(trimmed).map_or(trimmed, |(_, after)| after);
    let (key, value) = setting(rest)?;
    if !is_secret(key, value) {
        return None;
    }
    let before = line.get(..line.len().saturating_sub(rest.len())).unwrap_or_default();
    let before = without_userinfo(before).unwrap_or_else(|| before.to_vec());
    Some([&before, key, b" = ", REDACTED, b"\n"].concat())
}

fn is_secret(key: &[u8], value: &[u8]) -> bool {
    const KEYS: [&str; 7] = ["pass", "token", "secret", "apikey", "api-key", "extraheader", "cookie"];
    let key = String::from_utf8_lossy(key).to_ascii_lowercase();
    let switch = value.is_empty()
        || value.iter().all(u8::is_ascii_digit)
        || [&b"true"[..], b"false", b"yes", b"no", b"on", b"off"]
            .iter()
            .any(|word| value.eq_ignore_ascii_case(word));
    let named = key != "cookiefile" && KEYS.iter().any(|word| key.contains(word));
    !switch && (named || has_secret_text(value))
}

fn has_secret_text(text: &[u8]) -> bool {
    const MARKS: [&str; 12] = [
        "password=",
        "passwd=",
        "token=",
        "secret=",
        "authorization:",
        "bearer ",
        "ghp_",
        "gho_",
        "ghs_",
        "github_pat_",
        "glpat-",
        "xoxb-",
    ];
    let text = String::from_utf8_lossy(text).to_ascii_lowercase();
    MARKS.iter().any(|mark| text.contains(mark))
}

/// The line with the user part of each URL replaced, or only its password where the scheme needs a user (ssh).
fn without_userinfo(line: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(line.len());
    let mut rest = line;
    let mut changed = false;
    while let Some(at) = rest.windows(3).position(|window| window == b"://") {
        let (before, after) = rest.split_at(at + 3);
        out.extend_from_slice(before);
        let end = after.iter().position(|b| matches!(b, b'/' | b'?' | b'#') || b.is_ascii_whitespace());
        let (authority, tail) = after.split_at(end.unwrap_or(after.len()));
        rest = tail;
        match authority.iter().rposition(|byte| *byte == b'@').map(|at| authority.split_at(at)) {
            Some((user, host)) if user != REDACTED => {
                let clean =
                    if before.ends_with(b"ssh://") { password_replaced(user) } else { REDACTED.to_vec() };
                changed |= clean != user;
                out.extend_from_slice(&clean);
                out.extend_from_slice(host);
            }
            _ => out.extend_from_slice(authority),
        }
    }
    out.extend_from_slice(rest);
    changed.then_some(out)
}

fn password_replaced(user: &[u8]) -> Vec<u8> {
    match user.iter().position(|byte| *byte == b':') {
        Some(colon) => [user.get(..=colon).unwrap_or_default(), REDACTED].concat(),
        None => user.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(text: &str) -> Option<String> {
        redacted(text.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn ordinary_configurations_are_left_alone() {
        for text in [
            "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = git@github.com:a/b.git\n",
            "[remote \"o\"]\n\turl = ssh://git@github.com/a/b\n\turl = https://github.com/a@b/c\n",
            "[http]\n\tsslCertPasswordProtected = true\n\tcookieFile = ~/.cookies\n",
            "# see https://example.com/x\n",
        ] {
            assert_eq!(clean(text), None, "{text}");
        }
    }

    #[test]
    fn every_credential_is_replaced() {
        for text in [
            "[remote \"o\"]\n\turl = https://u:SECRET@h/r\n",
            "[remote \"o\"]\n\turl = \"https://SECRET@h/r\"\n",
            "[remote \"o\"] url=https://SECRET@h/r\n",
            "[remote \"o\"]\n\turl = https://u:SEC\\\nRET@h/r\n",
            "[remote \"o\"]\n\turl = ssh://git:SECRET@h/r\n",
            "[url \"https://SECRET@h/\"]\n\tinsteadOf = https://h/\n",
            "[http \"https://h/\"]\n\textraheader = AUTHORIZATION: basic SECRET\n",
            "[http]\n\tExtraHeader = X: \\\n  SECRET\n",
            "[sendemail]\n\tsmtpPass = SECRET\n",
            "[x]\n\tapiToken=SECRET",
            "[credential]\n\thelper = \"!f() { echo password=SECRET; }; f\"\n",
            "# old: https://u:SECRET@h/r\n",
            "; token=SECRET\n",
            "[a]\n\tb = c # \\\n\tpassword = SECRET\n",
        ] {
            let clean = clean(text).unwrap_or_else(|| panic!("left alone: {text}"));
            assert!(!clean.contains("SECRET") && !clean.contains("RET@"), "{clean}");
            assert!(clean.contains("redacted"), "{clean}");
        }
    }

    #[test]
    fn a_line_of_many_lines_takes_no_hours() {
        let joined = |lines: usize| ["[user]\n\tname = ", &"a\\\n".repeat(lines), "b # \\\n[x]\n"].concat();
        assert_eq!(logical_lines(joined(3).as_bytes())[1], b"\tname = aaab # \\\n", "control");
        for text in [joined(300_000), format!("[a]\nb = {}", "\\\\\\\n".repeat(200_000))] {
            let begun = std::time::Instant::now();
            assert_eq!(clean(&text), None);
            assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
        }
    }

    #[test]
    fn what_is_not_secret_stays() {
        let text = "[core]\n\tbare = false\n[remote \"o\"]\n\turl = https://u:p@h/r.git\n\tfetch = +a:b\n";
        assert_eq!(clean(text).unwrap(), text.replace("u:p@", "redacted@"));
    }

    #[test]
    fn settings_that_lead_elsewhere() {
        let text = "[core]\n worktree = ../../w x # c\n hooksPath = \".hu sky/_\"\n bare\n[includeIf \"gitdir:/x\"] path = ../a\\\nb\n";
        let config = parse(text.as_bytes());
        assert_eq!(config.worktree, Some(PathBuf::from("../../w x")));
        assert_eq!(config.hooks_paths, [PathBuf::from(".hu sky/_")]);
        assert_eq!(config.includes, [PathBuf::from("../ab")]);
        assert!(config.bare);
        let config = parse(b"[init]\n templateDir = ~/t\n[core]\n attributesFile = a\n");
        assert_eq!(
            (config.templates, config.attributes),
            (vec![PathBuf::from("~/t")], vec![PathBuf::from("a")])
        );
        let modules = b"[submodule \"a/b \\\"c\"]\n\tpath = x\n[other \"y\"]\n";
        assert_eq!(submodule_names(modules), [PathBuf::from("a/b \"c")]);
    }
}
