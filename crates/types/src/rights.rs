//! Rights of a credential: methods, workspaces and calls. Every part only narrows.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::workspace::words;
use crate::{ByteString, Host, HostPattern, UnknownKeyword};

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

/// A set of scopes.
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

    /// The first scope in this set that `other` lacks.
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

/// Whether `self` includes everything in `other`.
pub trait ContainsAll {
    fn covers(&self, other: &Self) -> bool;
}

/// Everything, or only these. An empty list means nothing, never everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AllOrOnly<T: Ord> {
    Any,
    Only(BTreeSet<T>),
}

impl<T: Ord> AllOrOnly<T> {
    /// `None`: everything.
    pub fn of(items: Option<impl IntoIterator<Item = T>>) -> Self {
        items.map_or(Self::Any, |items| Self::Only(items.into_iter().collect()))
    }

    pub fn is_any(&self) -> bool {
        matches!(self, Self::Any)
    }
}

impl<T: Ord + ContainsAll> AllOrOnly<T> {
    pub fn has(&self, item: &T) -> bool {
        match self {
            Self::Any => true,
            Self::Only(items) => items.iter().any(|known| known.covers(item)),
        }
    }
}

impl<T: Ord + ContainsAll> ContainsAll for AllOrOnly<T> {
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (Self::Only(_), Self::Any) => false,
            (Self::Only(_), Self::Only(items)) => items.iter().all(|item| self.has(item)),
        }
    }
}

impl<T: Ord + fmt::Display> fmt::Display for AllOrOnly<T> {
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

/// A directory and everything below it, by its canonical path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "ByteString", into = "ByteString")]
pub struct Subtree(ByteString);

/// A path that is relative or contains `..`, and so is not comparable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not an absolute path without `.` and `..`", .0.display())]
pub struct RelativePathError(ByteString);

impl Subtree {
    pub fn new(path: &Path) -> Result<Self, RelativePathError> {
        use std::path::Component;
        let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        // Collected again, so that `/a//b/` and `/a/b` are equal.
        let clean: std::path::PathBuf = path.components().collect();
        if path.is_absolute() && plain {
            Ok(Self(ByteString::from(clean)))
        } else {
            Err(RelativePathError(path.into()))
        }
    }

    pub fn as_path(&self) -> &Path {
        self.0.as_path()
    }
}

impl TryFrom<ByteString> for Subtree {
    type Error = RelativePathError;

    fn try_from(path: ByteString) -> Result<Self, RelativePathError> {
        Self::new(path.as_path())
    }
}

impl From<Subtree> for ByteString {
    fn from(subtree: Subtree) -> Self {
        subtree.0
    }
}

impl ContainsAll for Subtree {
    fn covers(&self, other: &Self) -> bool {
        other.as_path().starts_with(self.as_path())
    }
}

impl fmt::Display for Subtree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.display())
    }
}

/// The first words of a command; any words may follow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommandPrefix(Vec<ByteString>);

impl CommandPrefix {
    /// Splits at spaces. There is no quoting, because a prefix that needs it is not one that a person would write.
    pub fn parse(text: &str) -> Option<Self> {
        let words: Vec<ByteString> = text.split_ascii_whitespace().map(ByteString::from).collect();
        if words.is_empty() { None } else { Some(Self(words)) }
    }

    pub fn of_argv(argv: &[ByteString]) -> Self {
        Self(argv.to_vec())
    }
}

impl ContainsAll for CommandPrefix {
    fn covers(&self, other: &Self) -> bool {
        !self.0.is_empty() && other.0.starts_with(&self.0)
    }
}

impl fmt::Display for CommandPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(ByteString::quoted).collect::<Vec<_>>().join(" "))
    }
}

/// A parsed host in text form, so that it can be stored and compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostRestriction(String);

impl HostRestriction {
    pub fn new(rule: &HostPattern) -> Self {
        Self(rule.to_string())
    }

    pub fn rule(&self) -> Option<HostPattern> {
        HostPattern::parse(&self.0).ok()
    }
}

impl TryFrom<String> for HostRestriction {
    type Error = crate::HostPatternError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        HostPattern::parse(&text).map(|rule| Self::new(&rule))
    }
}

impl From<HostRestriction> for String {
    fn from(limit: HostRestriction) -> Self {
        limit.0
    }
}

impl ContainsAll for HostRestriction {
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

impl fmt::Display for HostRestriction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Rights of a credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    pub scopes: ScopeSet,
    /// By the canonical paths of their roots.
    pub workspaces: AllOrOnly<Subtree>,
}

/// Reason why requested rights exceed the parent's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WiderThanParent {
    #[error("it would have scope `{0}`, which its creator does not have")]
    Scope(Scope),
    #[error("it would reach workspaces that its maker does not")]
    Workspaces,
    #[error("it would reach {0} that its maker does not")]
    Calls(&'static str),
    #[error("it would make more calls than its maker has left")]
    Budget,
}

impl Rights {
    /// Rights of the owner.
    pub fn all() -> Self {
        Self { scopes: ScopeSet::all(), workspaces: AllOrOnly::Any }
    }

    /// Whether a principal with these rights may grant `other`.
    pub fn may_give(&self, other: &Self) -> Result<(), WiderThanParent> {
        if let Some(scope) = other.scopes.beyond(&self.scopes) {
            return Err(WiderThanParent::Scope(scope));
        }
        if self.workspaces.covers(&other.workspaces) { Ok(()) } else { Err(WiderThanParent::Workspaces) }
    }

    pub fn covers_workspace(&self, root: &Path) -> bool {
        Subtree::new(root).is_ok_and(|root| self.workspaces.has(&root))
    }
}

/// The narrower rights that a session gives to a helper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attenuation {
    /// Paths that the file tools may use.
    pub paths: AllOrOnly<Subtree>,
    pub hosts: AllOrOnly<HostRestriction>,
    pub commands: AllOrOnly<CommandPrefix>,
    /// Number of calls; `None`: as many as the parent.
    pub calls: Option<u64>,
}

impl Attenuation {
    pub fn none() -> Self {
        Self { paths: AllOrOnly::Any, hosts: AllOrOnly::Any, commands: AllOrOnly::Any, calls: None }
    }

    pub fn is_none(&self) -> bool {
        *self == Self::none()
    }

    /// Whether a holder of this attenuation may grant `other`.
    pub fn may_give(&self, other: &Self) -> Result<(), WiderThanParent> {
        let dimensions = [
            (self.paths.covers(&other.paths), "paths"),
            (self.hosts.covers(&other.hosts), "hosts"),
            (self.commands.covers(&other.commands), "commands"),
        ];
        if let Some((_, what)) = dimensions.into_iter().find(|(covered, _)| !covered) {
            return Err(WiderThanParent::Calls(what));
        }
        match (self.calls, other.calls) {
            (Some(_), None) => Err(WiderThanParent::Budget),
            (Some(own), Some(given)) if given > own => Err(WiderThanParent::Budget),
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

    fn host(text: &str) -> HostRestriction {
        HostRestriction::new(&HostPattern::parse(text).unwrap())
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
        let none: AllOrOnly<Subtree> = AllOrOnly::of(Some([]));
        assert!(!none.has(&subtree("/")) && !none.covers(&AllOrOnly::Any) && AllOrOnly::Any.covers(&none));
        assert_eq!(none.to_string(), "none");
    }

    #[test]
    fn what_is_missing_is_named() {
        let reader = Rights { scopes: [Scope::Read].into_iter().collect(), workspaces: AllOrOnly::Any };
        let error = reader.may_give(&Rights::all()).unwrap_err();
        assert_eq!(error.to_string(), "it would have scope `run`, which its creator does not have");
    }

    fn paths() -> impl Strategy<Value = AllOrOnly<Subtree>> {
        let path = prop::sample::select(vec!["/a", "/a/b", "/a/b/c", "/a/bc", "/d", "/"]);
        prop::option::of(prop::collection::vec(path, 0..4)).prop_map(|items| {
            AllOrOnly::of(items.map(|items| items.into_iter().map(subtree).collect::<Vec<_>>()))
        })
    }

    fn hosts() -> impl Strategy<Value = AllOrOnly<HostRestriction>> {
        let names = vec!["x.example", "x.example:443", "*.example", "*.x.example", "127.0.0.1"];
        prop::option::of(prop::collection::vec(prop::sample::select(names), 0..4)).prop_map(|items| {
            AllOrOnly::of(items.map(|items| items.into_iter().map(host).collect::<Vec<_>>()))
        })
    }

    fn commands() -> impl Strategy<Value = AllOrOnly<CommandPrefix>> {
        let texts = vec!["git", "git status", "git status -s", "gitk", "cargo test"];
        prop::option::of(prop::collection::vec(prop::sample::select(texts), 0..4)).prop_map(|items| {
            AllOrOnly::of(
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
