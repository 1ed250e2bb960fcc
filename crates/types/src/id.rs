//! Ids of sessions, transactions, grants, chains and workspaces.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::hex;

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// A fresh id from the kernel's random source.
            pub fn random() -> Result<Self, getrandom::Error> {
                let mut bytes = [0_u8; 12];
                getrandom::fill(&mut bytes)?;
                Ok(Self(format!(concat!($prefix, "_{}"), hex(bytes))))
            }

            /// `None`: the text has not the form of such an id.
            pub fn parse(text: &str) -> Option<Self> {
                let digits = text.strip_prefix(concat!($prefix, "_"))?;
                let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
                (digits.len() == 24 && digits.bytes().all(is_digit)).then(|| Self(text.to_owned()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

random_id!(/** One running agent, bound to one workspace. */ SessionId, "ses");
random_id!(/** One unit of attributable effect. */ TransactionId, "tx");
random_id!(/** One stored, reusable answer of a person. */ GrantId, "gr");
random_id!(/** One chain of the ledger: a run of records that one key vouches for. */ ChainId, "ch");

/// Identity of a workspace: a digest of its canonical path, so a directory has the same id in every run without a registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkspaceId(String);

impl WorkspaceId {
    pub fn of_canonical_path(path: &std::path::Path) -> Self {
        use std::os::unix::ffi::OsStrExt as _;
        let digest = Sha256::digest(path.as_os_str().as_bytes());
        Self(format!("ws_{}", hex(digest.get(..10).unwrap_or_default())))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkspaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_form_of_an_id_is_one() {
        let id = TransactionId::random().unwrap();
        assert_eq!(TransactionId::parse(id.as_str()), Some(id.clone()));
        for text in [
            "",
            "tx_",
            "tx_../../../../etc/passwd0000",
            "ses_000000000000000000000000",
            "tx_00000000000000000000000G",
        ] {
            assert_eq!(TransactionId::parse(text), None, "{text}");
        }
        assert_eq!(TransactionId::parse(&format!("{id}0")), None);
    }
}
