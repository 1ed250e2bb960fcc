//! Workspaces: profiles, network modes and roots, and the macro for closed vocabularies.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ByteString;

/// A word outside a closed vocabulary, with the nearest known one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{word}`{}; known: {known}", nearest.as_ref().map(|n| format!(" (did you mean `{n}`?)")).unwrap_or_default())]
pub struct UnknownKeyword {
    pub what: &'static str,
    pub word: String,
    pub nearest: Option<&'static str>,
    pub known: String,
}

impl UnknownKeyword {
    pub fn new(what: &'static str, word: &str, known: &[&'static str]) -> Self {
        let nearest = nearest(word, known.iter().copied());
        Self { what, word: ByteString::from(word).display(), nearest, known: known.join(", ") }
    }
}

/// The known word that `word` may misspell.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let nearest = known.into_iter().min_by_key(|known| distance(known, word));
    nearest.filter(|known| distance(known, word) <= 2 + known.len() / 4)
}

/// Levenshtein distance over bytes: good enough to guess a misspelt keyword.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut previous = i;
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
        for (j, y) in b.bytes().enumerate() {
            let left = row.get(j).copied().unwrap_or(usize::MAX - 1);
            let Some(cell) = row.get_mut(j + 1) else { continue };
            let substituted = previous + usize::from(x != y);
            previous = *cell;
            *cell = substituted.min(*cell + 1).min(left + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident ($what:literal) { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant),+ }

        impl $name {
            pub const WORDS: &'static [&'static str] = &[$($word),+];
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl FromStr for $name {
            type Err = UnknownKeyword;
            fn from_str(s: &str) -> Result<Self, UnknownKeyword> {
                match s { $($word => Ok(Self::$variant),)+ _ => Err(UnknownKeyword::new($what, s, Self::WORDS)) }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}
pub(crate) use words;

/// Home of a workspace in a sandbox with its own tree. Its content persists.
pub const HOME_INSIDE: &str = "/home/ringfence";

/// The port of a session's proxy, on both loopback addresses inside.
pub const PROXY_PORT: u16 = 3128;

words! {
    /// A named bundle of policy.
    Profile("profile") {
        /// Read the workspace, run and write nothing.
        Review = "review",
        /// Only listed commands run without a question (document 001).
        Guarded = "guarded",
        /// Anything may run inside the fence; crossings ask. The default.
        Workspace = "workspace",
        /// Listed commands on a read-only workspace, small limits, no questions (document 004).
        Strict = "strict",
        /// As `strict`, without shells, and nothing can open the network (document 004).
        AirGapped = "air-gapped",
        /// The whole machine except the sensitive roots. Needs `--danger`.
        Danger = "danger",
    }
}

impl Profile {
    /// Higher is stricter: a `minimum_profile` refuses everything below it.
    pub fn strictness(self) -> u8 {
        match self {
            Self::Danger => 0,
            Self::Workspace => 1,
            Self::Guarded => 2,
            Self::Strict => 3,
            Self::AirGapped => 4,
            Self::Review => 5,
        }
    }
}

words! {
    /// What the network of a sandbox is.
    NetMode("network mode") {
        /// An own network with loopback only.
        None = "none",
        /// Named hosts through the egress proxy.
        Filtered = "filtered",
        /// The network of the host.
        Full = "full",
    }
}

words! {
    /// What a root gives.
    Access("access") {
        None = "none",
        Read = "read",
        Write = "write",
    }
}

/// One directory of a workspace. The path is absolute and canonical.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Root {
    pub path: ByteString,
    pub access: Access,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_words_name_the_nearest() {
        let error = "workspcae".parse::<Profile>().unwrap_err();
        assert_eq!(error.nearest, Some("workspace"));
        assert_eq!("zzzzzz".parse::<Profile>().unwrap_err().nearest, None);
        assert_eq!("none".parse::<NetMode>(), Ok(NetMode::None));
    }
}
