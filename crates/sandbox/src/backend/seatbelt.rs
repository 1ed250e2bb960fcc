//! macOS: a Seatbelt profile and the `sandbox-exec` command that applies it.
//!
//! Portable code that only builds text and arguments. It has been tested as such; it has **not been run on a Mac**, and
//! no posture may claim it before that.
//!
//! INVARIANT: no byte of a path is ever part of the profile's text. Every path travels as a `-D` parameter, so there is
//! nothing to escape and nothing to break out of. Names that become part of a pattern are held to a small alphabet.
//!
//! In a profile the last rule that matches wins: what is opened comes first, what is carved out of it last. Patterns
//! ignore letter case, because the usual macOS volume does.
//!
//! What Seatbelt cannot give and Linux can: a network of its own (so `none` has no loopback either), processes that do
//! not see each other, limits.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use ringfence_types::{Access, ByteString, NetMode, Root};

/// The full path: a directory of PATH may belong to another user, who could put a `sandbox-exec` there (S002-20).
pub const SANDBOX_EXEC: &str = "/usr/bin/sandbox-exec";

/// What the profile shall hold. Every path is absolute and canonical.
#[derive(Clone, Debug)]
pub struct SeatbeltSpec<'a> {
    /// The workspace, its other roots, the synthetic home and the temporary directory. The nearest root decides.
    pub roots: &'a [Root],
    /// Files and directories that must not be visible.
    pub hidden: &'a [ByteString],
    /// Files and directories that must not be written, created or replaced.
    pub protected: &'a [ByteString],
    /// The same by name, wherever below a root: `.claude`, `.git/hooks`.
    pub protected_names: &'a [&'a str],
    pub net: NetMode,
}

/// A profile and the values of its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeatbeltProfile {
    text: String,
    parameters: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SeatbeltError {
    #[error("path `{0}` is not UTF-8, which a Seatbelt profile cannot express")]
    NotUtf8(String),
    #[error("path `{0}` is not absolute and canonical")]
    NotCanonical(String),
    #[error("name `{0}` has a character that a Seatbelt pattern cannot express safely")]
    Name(String),
    #[error("network mode `filtered` is not available yet")]
    Filtered,
    #[error("the command is empty")]
    EmptyCommand,
}

impl SeatbeltProfile {
    pub fn compile(fence: &SeatbeltSpec<'_>) -> Result<Self, SeatbeltError> {
        let mut profile = Self { text: String::new(), parameters: Vec::new() };
        profile.text.push_str(BASE);
        profile.network(fence.net)?;
        profile.ancestors(fence)?;
        profile.roots(fence.roots)?;
        profile.protect(fence)?;
        profile.hide(fence.hidden)?;
        Ok(profile)
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn parameters(&self) -> &[(String, String)] {
        &self.parameters
    }

    /// The program and all arguments that run `argv` under this profile.
    pub fn command(&self, argv: &[ByteString]) -> Result<Vec<OsString>, SeatbeltError> {
        if argv.first().is_none_or(|program| program.as_slice().is_empty()) {
            return Err(SeatbeltError::EmptyCommand);
        }
        let mut command: Vec<OsString> = vec![SANDBOX_EXEC.into(), "-p".into(), self.text.as_str().into()];
        command
            .extend(self.parameters.iter().map(|(name, value)| OsString::from(format!("-D{name}={value}"))));
        command.push("--".into());
        command.extend(argv.iter().map(|arg| arg.as_os_str().to_owned()));
        Ok(command)
    }

    fn network(&mut self, net: NetMode) -> Result<(), SeatbeltError> {
        match net {
            NetMode::None => Ok(()),
            NetMode::Filtered => Err(SeatbeltError::Filtered),
            NetMode::Full => {
                self.text.push_str(NETWORK);
                Ok(())
            }
        }
    }

    /// Programs look at each directory on the way to a file; without that, git and many others fail on the first step.
    fn ancestors(&mut self, fence: &SeatbeltSpec<'_>) -> Result<(), SeatbeltError> {
        let mut above = BTreeSet::new();
        for root in fence.roots {
            above.extend(canonical(&root.path)?.ancestors().skip(1).map(Path::to_path_buf));
        }
        let rules = self.filters("ANCESTOR", "literal", above.iter())?;
        self.rule("ways to the roots", "allow file-read-metadata file-test-existence", &rules);
        Ok(())
    }

    fn roots(&mut self, roots: &[Root]) -> Result<(), SeatbeltError> {
        let mut sorted = roots
            .iter()
            .map(|root| Ok((canonical(&root.path)?, root.access)))
            .collect::<Result<Vec<_>, _>>()?;
        // Outer roots first, so that the nearest root has the last word.
        sorted.sort_by_key(|(path, _)| path.components().count());
        for (path, access) in &sorted {
            let filter = self.filters("ROOT", "subpath", [path])?;
            match access {
                Access::None => self.rule("closed root", "deny file-read* file-write*", &filter),
                Access::Read => {
                    self.rule(
                        "readable root",
                        "allow file-read* file-map-executable file-test-existence",
                        &filter,
                    );
                    self.rule("", "deny file-write*", &filter);
                }
                Access::Write => {
                    let opened = "allow file-read* file-write* file-map-executable file-test-existence";
                    self.rule("writable root", opened, &filter);
                }
            }
        }
        Ok(())
    }

    fn protect(&mut self, fence: &SeatbeltSpec<'_>) -> Result<(), SeatbeltError> {
        let paths = fence.protected.iter().map(canonical).collect::<Result<Vec<_>, _>>()?;
        let mut filters = self.filters("PROTECTED", "subpath", paths.iter())?;
        for name in fence.protected_names {
            filters.push(format!("(regex #\"/{}(/|$)\")", pattern(name)?));
        }
        self.rule("protected: read, never written", "deny file-write*", &filters);
        self.pin(fence, &paths)
    }

    /// Renaming a directory above a protected file would move the file out of its rule, so those directories stay
    /// where they are. Renaming needs the right to unlink the old name.
    fn pin(&mut self, fence: &SeatbeltSpec<'_>, protected: &[PathBuf]) -> Result<(), SeatbeltError> {
        let roots = fence.roots.iter().map(|root| canonical(&root.path)).collect::<Result<Vec<_>, _>>()?;
        let hidden = fence.hidden.iter().map(canonical).collect::<Result<Vec<_>, _>>()?;
        let mut pins: BTreeSet<PathBuf> = roots.iter().cloned().collect();
        for path in protected.iter().chain(&hidden) {
            let inside = |above: &&Path| roots.iter().any(|root| above.starts_with(root));
            pins.extend(path.ancestors().skip(1).filter(inside).map(Path::to_path_buf));
        }
        let mut filters = self.filters("PIN", "literal", pins.iter())?;
        for name in fence.protected_names {
            for (at, _) in name.match_indices('/') {
                let above = name.get(..at).unwrap_or_default();
                filters.push(format!("(regex #\"/{}$\")", pattern(above)?));
            }
        }
        self.rule("pinned: not renamed, not removed", "deny file-write-unlink", &filters);
        Ok(())
    }

    fn hide(&mut self, hidden: &[ByteString]) -> Result<(), SeatbeltError> {
        let paths = hidden.iter().map(canonical).collect::<Result<Vec<_>, _>>()?;
        let filters = self.filters("HIDDEN", "subpath", paths.iter())?;
        self.rule("hidden", "deny file-read* file-write* file-map-executable", &filters);
        Ok(())
    }

    /// One filter per path, each a parameter that is added here.
    fn filters<'p>(
        &mut self,
        kind: &str,
        filter: &str,
        paths: impl IntoIterator<Item = &'p PathBuf>,
    ) -> Result<Vec<String>, SeatbeltError> {
        paths
            .into_iter()
            .map(|path| Ok(format!("({filter} (param \"{}\"))", self.parameter(kind, path)?)))
            .collect()
    }

    fn parameter(&mut self, kind: &str, path: &Path) -> Result<String, SeatbeltError> {
        let value = path.to_str().ok_or_else(|| SeatbeltError::NotUtf8(ByteString::from(path).display()))?;
        let prefix = format!("{kind}_");
        let number = self.parameters.iter().filter(|(name, _)| name.starts_with(&prefix)).count();
        let name = format!("{prefix}{number}");
        self.parameters.push((name.clone(), value.to_owned()));
        Ok(name)
    }

    /// A rule without filters would be about everything, so none is written.
    fn rule(&mut self, comment: &str, action: &str, filters: &[String]) {
        if filters.is_empty() {
            return;
        }
        if !comment.is_empty() {
            self.text.push_str(&format!("\n; {comment}\n"));
        }
        self.text.push_str(&format!("({action}\n  {})\n", filters.join("\n  ")));
    }
}

/// The path as the kernel names it: `/etc`, `/tmp` and `/var` are links into `/private` on every Mac.
fn canonical(path: &ByteString) -> Result<PathBuf, SeatbeltError> {
    let given = path.as_path();
    let plain = given.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !given.is_absolute() || !plain || path.as_slice().contains(&0) {
        return Err(SeatbeltError::NotCanonical(path.display()));
    }
    if given.to_str().is_none() {
        return Err(SeatbeltError::NotUtf8(path.display()));
    }
    let linked = ["/etc", "/tmp", "/var"].iter().any(|link| given.starts_with(link));
    let rest: PathBuf = given.components().skip(1).collect();
    Ok(if linked { Path::new("/private").join(rest) } else { Path::new("/").join(rest) })
}

/// A name as a pattern: letters in both cases, everything else in a class of its own.
fn pattern(name: &str) -> Result<String, SeatbeltError> {
    let refused = || SeatbeltError::Name(ByteString::from(name).display());
    if name.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return Err(refused());
    }
    let one = |c: char| match c {
        'a'..='z' | 'A'..='Z' => Ok(format!("[{}{}]", c.to_ascii_lowercase(), c.to_ascii_uppercase())),
        '0'..='9' | '_' | '/' => Ok(c.to_string()),
        '.' | '-' => Ok(format!("[{c}]")),
        _ => Err(refused()),
    };
    name.chars().map(one).collect()
}

const BASE: &str = r#"(version 1)
(deny default)

; processes see and signal only each other
(allow process-exec process-fork)
(allow process-info* signal
  (target same-sandbox))
(allow sysctl-read ipc-posix-sem pseudo-tty)

; user and group names
(allow mach-lookup
  (global-name "com.apple.system.opendirectoryd.libinfo"))

; the system runtime; no shared temporary directory, no /var/run
(allow file-read* file-map-executable file-test-existence
  (literal "/")
  (subpath "/System")
  (subpath "/usr")
  (subpath "/bin")
  (subpath "/sbin")
  (subpath "/opt")
  (subpath "/Library")
  (subpath "/Applications")
  (subpath "/private/etc")
  (subpath "/private/var/db/dyld")
  (subpath "/private/var/db/timezone")
  (subpath "/private/var/select"))
(deny file-read*
  (subpath "/Library/Keychains")
  (subpath "/private/etc/ssh")
  (literal "/private/etc/master.passwd")
  (literal "/private/etc/sudoers"))

; the links that stand for /private
(allow file-read-metadata file-test-existence
  (literal "/etc")
  (literal "/tmp")
  (literal "/var")
  (literal "/private")
  (literal "/private/tmp")
  (literal "/private/var"))

; devices
(allow file-read* file-test-existence
  (literal "/dev")
  (literal "/dev/autofs_nowait")
  (literal "/dev/random")
  (literal "/dev/urandom"))
(allow file-read* file-write* file-ioctl file-test-existence
  (literal "/dev/null")
  (literal "/dev/zero")
  (literal "/dev/tty")
  (literal "/dev/ptmx")
  (literal "/dev/dtracehelper")
  (subpath "/dev/fd")
  (regex #"^/dev/ttys[0-9]+$"))
"#;

/// Internet sockets only: `(remote ip …)` leaves the Unix sockets of the host closed. Binding is to loopback, because
/// `(local ip "*:*")` would match every outgoing connection as well.
const NETWORK: &str = r#"
; the network of the host
(allow system-socket)
(allow network-outbound
  (remote ip "*:*")
  (literal "/private/var/run/mDNSResponder"))
(allow network-bind network-inbound
  (local ip "localhost:*"))
(allow file-read-metadata file-test-existence
  (literal "/private/var/run")
  (literal "/private/var/run/mDNSResponder"))
(allow file-read*
  (literal "/private/var/run/resolv.conf"))

; certificates (Go asks the agent) and the resolver's configuration
(allow mach-lookup
  (global-name "com.apple.trustd")
  (global-name "com.apple.trustd.agent")
  (global-name "com.apple.SystemConfiguration.DNSConfiguration")
  (global-name "com.apple.SystemConfiguration.configd"))
"#;

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use proptest::prelude::*;

    use super::*;

    const NAMES: &[&str] = &[".git/hooks", ".claude"];

    fn root(path: &str, access: Access) -> Root {
        Root { path: ByteString::from(path), access }
    }

    fn compile(roots: &[Root], net: NetMode) -> SeatbeltProfile {
        let protected =
            [ByteString::from("/Users/u/p/.git/config"), ByteString::from("/Users/u/p/sub/.mcp.json")];
        let hidden = [ByteString::from("/Users/u/p/.env")];
        let fence =
            SeatbeltSpec { roots, hidden: &hidden, protected: &protected, protected_names: NAMES, net };
        SeatbeltProfile::compile(&fence).unwrap()
    }

    fn workspace() -> SeatbeltProfile {
        let roots = [
            root("/Users/u/p", Access::Write),
            root("/Users/u/p/vendor", Access::Read),
            root("/Users/u/p/vendor/private", Access::None),
            root("/var/folders/x/tmp", Access::Write),
        ];
        compile(&roots, NetMode::None)
    }

    /// Where the text should change, write the new one there and read the difference as a reviewer would.
    fn golden(profile: &SeatbeltProfile, expected: &str) {
        let parameters = profile.parameters().iter().map(|(name, value)| format!("; {name}={value}\n"));
        let actual = format!("{}\n; parameters\n{}", profile.text(), parameters.collect::<String>());
        assert_eq!(
            actual, expected,
            "the profile differs from its golden file; the actual one is:\n{actual}"
        );
    }

    #[test]
    fn s002_26_golden_workspace() {
        golden(&workspace(), include_str!("seatbelt/workspace.sb"));
    }

    #[test]
    fn c35_golden_network() {
        let profile = compile(&[root("/Users/u/p", Access::Write)], NetMode::Full);
        golden(&profile, include_str!("seatbelt/network.sb"));
    }

    #[test]
    fn what_is_closed_comes_after_what_is_open() {
        let text = workspace().text().to_owned();
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part}"));
        assert!(text.starts_with("(version 1)\n(deny default)\n"));
        assert!(at("; writable root") < at("; readable root"));
        assert!(at("; readable root") < at("; closed root"));
        assert!(at("; closed root") < at("; protected"));
        assert!(at("; protected") < at("; pinned"));
        assert!(at("; pinned") < at("; hidden"));
    }

    #[test]
    fn b_s20_no_rule_about_local_addresses_opens_outgoing_traffic() {
        let full = compile(&[root("/w", Access::Write)], NetMode::Full);
        assert!(!full.text().contains("(local ip \"*:*\")"));
        assert!(!workspace().text().contains("network"));
        let filtered = SeatbeltSpec {
            roots: &[],
            hidden: &[],
            protected: &[],
            protected_names: &[],
            net: NetMode::Filtered,
        };
        assert_eq!(SeatbeltProfile::compile(&filtered), Err(SeatbeltError::Filtered));
    }

    #[test]
    fn paths_are_named_as_the_kernel_names_them() {
        for (given, expected) in [
            ("/var/folders/x", "/private/var/folders/x"),
            ("/tmp", "/private/tmp"),
            ("/etc/x", "/private/etc/x"),
            ("/private/tmp/x", "/private/tmp/x"),
            ("/tmpfoo", "/tmpfoo"),
            ("/Users//u/", "/Users/u"),
        ] {
            assert_eq!(canonical(&ByteString::from(given)), Ok(PathBuf::from(expected)));
        }
        for wrong in ["", "a", "/a/../b", "/a\0b"] {
            assert!(
                matches!(canonical(&ByteString::from(wrong)), Err(SeatbeltError::NotCanonical(_))),
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn s002_20_the_command_names_everything_in_full() {
        let profile = compile(&[root("/w", Access::Write)], NetMode::None);
        let command = profile
            .command(&[ByteString::from("ls"), ByteString::from("-l"), ByteString::from("--")])
            .unwrap();
        assert_eq!(command[0], "/usr/bin/sandbox-exec");
        assert_eq!(command[1], "-p");
        assert_eq!(command[2], profile.text());
        assert!(command.contains(&OsString::from("-DROOT_0=/w")));
        assert_eq!(command[command.len() - 4..], ["--", "ls", "-l", "--"].map(OsString::from));
        assert_eq!(profile.command(&[]), Err(SeatbeltError::EmptyCommand));
    }

    #[test]
    fn patterns_match_names_in_any_letter_case() {
        assert_eq!(pattern(".git/h0").unwrap(), "[.][gG][iI][tT]/[hH]0");
        for wrong in ["", "a b", "a\"b", "a)", "é", "a//b", "../a", "a/", "a\\b", "a*"] {
            assert!(matches!(pattern(wrong), Err(SeatbeltError::Name(_))), "{wrong:?}");
        }
    }

    #[test]
    fn an_empty_fence_opens_nothing() {
        let fence = SeatbeltSpec {
            roots: &[],
            hidden: &[],
            protected: &[],
            protected_names: &[],
            net: NetMode::None,
        };
        let profile = SeatbeltProfile::compile(&fence).unwrap();
        assert_eq!((profile.text(), profile.parameters()), (BASE, &[][..]));
    }

    fn balanced(text: &str) -> bool {
        text.matches('(').count() == text.matches(')').count()
    }

    proptest! {
        #[test]
        fn no_path_can_change_the_text(bytes in proptest::collection::vec(any::<u8>(), 1..40)) {
            let name: Vec<u8> = bytes.into_iter().filter(|b| *b != b'/' && *b != 0).collect();
            prop_assume!(!name.is_empty() && name != b"." && name != b"..");
            let path = ByteString::from([b"/Users/", &name[..]].concat());
            let roots = [Root { path: path.clone(), access: Access::Write }];
            let hidden = [ByteString::from([path.as_slice(), b"/x"].concat())];
            let fence = SeatbeltSpec { roots: &roots, hidden: &hidden, protected: &hidden, protected_names: NAMES, net: NetMode::None };
            let compiled = SeatbeltProfile::compile(&fence);
            if std::str::from_utf8(&name).is_err() {
                prop_assert!(matches!(compiled, Err(SeatbeltError::NotUtf8(_))));
                return Ok(());
            }
            let profile = compiled.unwrap();
            let plain_roots = [root("/Users/plain", Access::Write)];
            let plain_hidden = [ByteString::from("/Users/plain/x")];
            let plain = SeatbeltSpec { roots: &plain_roots, hidden: &plain_hidden, protected: &plain_hidden, ..fence };
            let expected = SeatbeltProfile::compile(&plain).unwrap();
            prop_assert_eq!(profile.text(), expected.text());
            prop_assert!(balanced(profile.text()));

            let command = profile.command(&[ByteString::from("true")]).unwrap();
            let argument = [b"-DROOT_0=", path.as_slice()].concat();
            prop_assert!(command.iter().any(|arg| arg.as_bytes() == argument.as_slice()));
        }

        #[test]
        fn a_name_is_refused_or_harmless(name in "\\PC{0,12}|[a-z./()\"*-]{0,12}") {
            if let Ok(pattern) = pattern(&name) {
                prop_assert!(pattern.chars().all(|c| c.is_ascii_alphanumeric() || "[]._/-".contains(c)));
            }
        }
    }
}
