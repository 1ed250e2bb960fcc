//! What a credential is good for: which methods, in which workspaces, for which calls. All of it only narrows.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::workspace::words;
use crate::{Bytes, Host, HostRule, UnknownWord};

words! {
    /// The right to call one group of methods. None contains another.
    Scope("scope") {
        /// See sessions, activity and the ledger.
        Read = "read",
        /// Start and stop sessions, make calls in them.
        Run = "run",
        /// Answer questions.
        Approve = "approve",
        /// Let devices in.
        Pair = "pair",
        /// Change who may do what: operators, tokens, configuration.
        Admin = "admin",
    }
}

words! {
    /// What kind of thing a credential is given to.
    CredentialKind("kind of token") {
        /// A program of an operator.
        Api = "api",
        /// A paired client with a key pair of its own.
        Device = "device",
        /// A browser after a password.
        Web = "web",
        /// What runs in a session.
        Session = "session",
    }
}

/// Some scopes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ScopeSet(BTreeSet<Scope>);

impl ScopeSet {
    pub fn all() -> Self {
        Scope::ALL.iter().copied().collect()
    }

    pub fn contains(&self, scope: Scope) -> bool {
        self.0.contains(&scope)
    }

    pub fn iter(&self) -> impl Iterator<Item = Scope> {
        self.0.iter().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first scope of these that `other` has not.
    pub fn beyond(&self, other: &Self) -> Option<Scope> {
        self.0.difference(&other.0).next().copied()
    }
}

impl FromIterator<Scope> for ScopeSet {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().collect())
    }
}

impl fmt::Display for ScopeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.iter().map(Scope::word).collect();
        f.write_str(if words.is_empty() { "nothing".to_owned() } else { words.join(",") }.as_str())
    }
}

/// Whether everything that `other` stands for is also in `self`.
pub trait Covers {
    fn covers(&self, other: &Self) -> bool;
}

/// Everything, or only these. Only none of them is nothing, and never everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Within<T: Ord> {
    Any,
    Only(BTreeSet<T>),
}

impl<T: Ord> Within<T> {
    /// `None`: everything.
    pub fn of(items: Option<impl IntoIterator<Item = T>>) -> Self {
        items.map_or(Self::Any, |items| Self::Only(items.into_iter().collect()))
    }

    pub fn is_any(&self) -> bool {
        matches!(self, Self::Any)
    }
}

impl<T: Ord + Covers> Within<T> {
    pub fn has(&self, item: &T) -> bool {
        match self {
            Self::Any => true,
            Self::Only(items) => items.iter().any(|known| known.covers(item)),
        }
    }
}

impl<T: Ord + Covers> Covers for Within<T> {
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (Self::Only(_), Self::Any) => false,
            (Self::Only(_), Self::Only(items)) => items.iter().all(|item| self.has(item)),
        }
    }
}

impl<T: Ord + fmt::Display> fmt::Display for Within<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Only(items) if items.is_empty() => f.write_str("none"),
            Self::Only(items) => {
                f.write_str(&items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// A directory and everything below it, by its real path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Bytes", into = "Bytes")]
pub struct Subtree(Bytes);

/// A path that could mean another place than the one it is compared as.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not an absolute path without `.` and `..`", .0.display())]
pub struct NotAbsolute(Bytes);

impl Subtree {
    pub fn new(path: &Path) -> Result<Self, NotAbsolute> {
        use std::path::Component;
        let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        // Collected again, so that `/a//b/` and `/a/b` are one.
        let clean: std::path::PathBuf = path.components().collect();
        if path.is_absolute() && plain { Ok(Self(Bytes::from(clean))) } else { Err(NotAbsolute(path.into())) }
    }

    pub fn as_path(&self) -> &Path {
        self.0.as_path()
    }
}

impl TryFrom<Bytes> for Subtree {
    type Error = NotAbsolute;

    fn try_from(path: Bytes) -> Result<Self, NotAbsolute> {
        Self::new(path.as_path())
    }
}

impl From<Subtree> for Bytes {
    fn from(subtree: Subtree) -> Self {
        subtree.0
    }
}

impl Covers for Subtree {
    fn covers(&self, other: &Self) -> bool {
        other.as_path().starts_with(self.as_path())
    }
}

impl fmt::Display for Subtree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.display())
    }
}

/// The first words of a command; what follows them is free.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommandPrefix(Vec<Bytes>);

impl CommandPrefix {
    /// Words between spaces. There is no quoting: what needs it is not a prefix that a person would write.
    pub fn parse(text: &str) -> Option<Self> {
        let words: Vec<Bytes> = text.split_ascii_whitespace().map(Bytes::from).collect();
        if words.is_empty() { None } else { Some(Self(words)) }
    }

    pub fn of_argv(argv: &[Bytes]) -> Self {
        Self(argv.to_vec())
    }
}

impl Covers for CommandPrefix {
    fn covers(&self, other: &Self) -> bool {
        !self.0.is_empty() && other.0.starts_with(&self.0)
    }
}

impl fmt::Display for CommandPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(Bytes::quoted).collect::<Vec<_>>().join(" "))
    }
}

/// A host as text that was parsed, so that it can be stored and compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostLimit(String);

impl HostLimit {
    pub fn new(rule: &HostRule) -> Self {
        Self(rule.to_string())
    }

    pub fn rule(&self) -> Option<HostRule> {
        HostRule::parse(&self.0).ok()
    }
}

impl TryFrom<String> for HostLimit {
    type Error = crate::HostRuleError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        HostRule::parse(&text).map(|rule| Self::new(&rule))
    }
}

impl From<HostLimit> for String {
    fn from(limit: HostLimit) -> Self {
        limit.0
    }
}

impl Covers for HostLimit {
    fn covers(&self, other: &Self) -> bool {
        let (Some(own), Some(other)) = (self.rule(), other.rule()) else { return false };
        let port = own.port().is_none() || own.port() == other.port();
        port && match (own.host(), other.host()) {
            (Host::Below(above), Host::Name(name) | Host::Below(name)) => {
                name.strip_suffix(above.as_str()).is_some_and(|rest| rest.ends_with('.'))
                    || matches!(other.host(), Host::Below(_)) && name == above
            }
            (own, other) => own == other,
        }
    }
}

impl fmt::Display for HostLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a credential may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    pub scopes: ScopeSet,
    /// By the real paths of their roots.
    pub workspaces: Within<Subtree>,
}

/// Why what was asked for is more than there is to give.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Wider {
    #[error("it would have scope `{0}`, which its maker has not")]
    Scope(Scope),
    #[error("it would reach workspaces that its maker does not")]
    Workspaces,
    #[error("it would reach {0} that its maker does not")]
    Calls(&'static str),
    #[error("it would make more calls than its maker has left")]
    Budget,
}

impl Rights {
    /// What the owner of the machine's state has.
    pub fn all() -> Self {
        Self { scopes: ScopeSet::all(), workspaces: Within::Any }
    }

    /// Whether somebody with these rights may hand out `other`.
    pub fn may_give(&self, other: &Self) -> Result<(), Wider> {
        if let Some(scope) = other.scopes.beyond(&self.scopes) {
            return Err(Wider::Scope(scope));
        }
        if self.workspaces.covers(&other.workspaces) { Ok(()) } else { Err(Wider::Workspaces) }
    }

    pub fn covers_workspace(&self, root: &Path) -> bool {
        Subtree::new(root).is_ok_and(|root| self.workspaces.has(&root))
    }
}

/// What a session leaves of its own rights to something that it hands a part of its work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attenuation {
    /// That the file tools may touch.
    pub paths: Within<Subtree>,
    pub hosts: Within<HostLimit>,
    pub commands: Within<CommandPrefix>,
    /// How many calls; `None`: as many as its maker.
    pub calls: Option<u64>,
}

impl Attenuation {
    pub fn none() -> Self {
        Self { paths: Within::Any, hosts: Within::Any, commands: Within::Any, calls: None }
    }

    pub fn is_none(&self) -> bool {
        *self == Self::none()
    }

    /// Whether somebody limited so may hand out `other`.
    pub fn may_give(&self, other: &Self) -> Result<(), Wider> {
        let dimensions = [
            (self.paths.covers(&other.paths), "paths"),
            (self.hosts.covers(&other.hosts), "hosts"),
            (self.commands.covers(&other.commands), "commands"),
        ];
        if let Some((_, what)) = dimensions.into_iter().find(|(covered, _)| !covered) {
            return Err(Wider::Calls(what));
        }
        match (self.calls, other.calls) {
            (Some(_), None) => Err(Wider::Budget),
            (Some(own), Some(given)) if given > own => Err(Wider::Budget),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn subtree(path: &str) -> Subtree {
        Subtree::new(Path::new(path)).unwrap()
    }

    fn host(text: &str) -> HostLimit {
        HostLimit::new(&HostRule::parse(text).unwrap())
    }

    #[test]
    fn a_path_that_could_mean_another_place_is_none() {
        for bad in ["", "a", "./a", "/a/../b", "../x"] {
            assert!(Subtree::new(Path::new(bad)).is_err(), "{bad}");
        }
        assert_eq!(subtree("/a//b/"), subtree("/a/b"));
        assert!(serde_json::from_str::<Subtree>("\"/a/../b\"").is_err(), "nor when it was stored");
    }

    #[test]
    fn a_directory_covers_what_is_below_it_and_no_neighbour() {
        assert!(subtree("/a/b").covers(&subtree("/a/b/c")) && subtree("/a/b").covers(&subtree("/a/b")));
        for other in ["/a/bc", "/a", "/"] {
            assert!(!subtree("/a/b").covers(&subtree(other)), "{other}");
        }
    }

    #[test]
    fn a_host_covers_itself_and_a_wildcard_what_is_below_it() {
        let table = [
            ("a.example", "a.example", true),
            ("a.example", "a.example:443", true),
            ("a.example:443", "a.example", false),
            ("*.example.org", "b.example.org", true),
            ("*.example.org", "*.b.example.org", true),
            ("*.example.org", "*.example.org:80", true),
            ("*.example.org", "example.org", false),
            ("*.example.org", "bexample.org", false),
            ("b.example.org", "*.example.org", false),
            ("127.0.0.1", "127.0.0.1:80", true),
        ];
        for (own, other, expected) in table {
            assert_eq!(host(own).covers(&host(other)), expected, "{own} covers {other}");
        }
    }

    #[test]
    fn only_none_is_nothing() {
        let none: Within<Subtree> = Within::of(Some([]));
        assert!(!none.has(&subtree("/")) && !none.covers(&Within::Any) && Within::Any.covers(&none));
        assert_eq!(none.to_string(), "none");
    }

    #[test]
    fn what_is_missing_is_named() {
        let reader = Rights { scopes: [Scope::Read].into_iter().collect(), workspaces: Within::Any };
        let error = reader.may_give(&Rights::all()).unwrap_err();
        assert_eq!(error.to_string(), "it would have scope `run`, which its maker has not");
    }

    fn paths() -> impl Strategy<Value = Within<Subtree>> {
        let path = prop::sample::select(vec!["/a", "/a/b", "/a/b/c", "/a/bc", "/d", "/"]);
        prop::option::of(prop::collection::vec(path, 0..4)).prop_map(|items| {
            Within::of(items.map(|items| items.into_iter().map(subtree).collect::<Vec<_>>()))
        })
    }

    fn hosts() -> impl Strategy<Value = Within<HostLimit>> {
        let names = vec!["x.example", "x.example:443", "*.example", "*.x.example", "127.0.0.1"];
        prop::option::of(prop::collection::vec(prop::sample::select(names), 0..4))
            .prop_map(|items| Within::of(items.map(|items| items.into_iter().map(host).collect::<Vec<_>>())))
    }

    fn commands() -> impl Strategy<Value = Within<CommandPrefix>> {
        let texts = vec!["git", "git status", "git status -s", "gitk", "cargo test"];
        prop::option::of(prop::collection::vec(prop::sample::select(texts), 0..4)).prop_map(|items| {
            Within::of(
                items.map(|items| items.into_iter().filter_map(CommandPrefix::parse).collect::<Vec<_>>()),
            )
        })
    }

    fn rights() -> impl Strategy<Value = Rights> {
        let scopes = prop::collection::vec(prop::sample::select(Scope::ALL.to_vec()), 0..6);
        (scopes, paths())
            .prop_map(|(scopes, workspaces)| Rights { scopes: scopes.into_iter().collect(), workspaces })
    }

    fn attenuations() -> impl Strategy<Value = Attenuation> {
        (paths(), hosts(), commands(), prop::option::of(0_u64..5))
            .prop_map(|(paths, hosts, commands, calls)| Attenuation { paths, hosts, commands, calls })
    }

    const WORKSPACES: [&str; 6] = ["/", "/a", "/a/b", "/a/b/c/d", "/a/bc", "/d/e"];

    proptest! {
        #[test]
        fn what_is_given_reaches_nothing_that_its_maker_does_not(own in rights(), given in rights()) {
            if own.may_give(&given).is_ok() {
                prop_assert!(given.scopes.iter().all(|scope| own.scopes.contains(scope)));
                for root in WORKSPACES.map(Path::new) {
                    prop_assert!(own.covers_workspace(root) || !given.covers_workspace(root), "{root:?}");
                }
            }
        }

        #[test]
        fn giving_on_is_transitive(a in rights(), b in rights(), c in rights()) {
            if a.may_give(&b).is_ok() && b.may_give(&c).is_ok() {
                prop_assert!(a.may_give(&c).is_ok());
            }
            prop_assert!(a.may_give(&a).is_ok());
        }

        #[test]
        fn attenuation_only_narrows(own in attenuations(), given in attenuations()) {
            if own.may_give(&given).is_ok() {
                for path in WORKSPACES.map(subtree) {
                    prop_assert!(own.paths.has(&path) || !given.paths.has(&path));
                }
                for name in ["x.example", "x.example:443", "y.example", "a.x.example", "127.0.0.1:1"].map(host) {
                    prop_assert!(own.hosts.has(&name) || !given.hosts.has(&name));
                }
                for text in ["git", "git status", "git push", "gitk", "cargo test x"] {
                    let command = CommandPrefix::parse(text).unwrap();
                    prop_assert!(own.commands.has(&command) || !given.commands.has(&command));
                }
                prop_assert!(own.calls.is_none() || given.calls <= own.calls && given.calls.is_some());
            }
        }

        #[test]
        fn attenuation_is_transitive(a in attenuations(), b in attenuations(), c in attenuations()) {
            if a.may_give(&b).is_ok() && b.may_give(&c).is_ok() {
                prop_assert!(a.may_give(&c).is_ok());
            }
            prop_assert!(a.may_give(&a).is_ok() && Attenuation::none().may_give(&a).is_ok());
        }

        #[test]
        fn rights_are_read_back_as_they_were_written(own in rights(), limits in attenuations()) {
            let text = serde_json::to_string(&(&own, &limits)).unwrap();
            prop_assert_eq!(serde_json::from_str::<(Rights, Attenuation)>(&text).unwrap(), (own, limits));
        }
    }
}
