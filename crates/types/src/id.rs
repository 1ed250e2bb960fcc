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
