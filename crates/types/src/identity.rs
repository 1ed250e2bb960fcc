//! Records of changes to operators and credentials.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::workspace::words;
use crate::{ByteString, CredentialKind, Rights, UnknownKeyword};

words! {
    /// What was done to an operator or a credential.
    IdentityVerb("change of identity") {
        OperatorAdded = "operator-added",
        PasswordSet = "password-set",
        OperatorRemoved = "operator-removed",
        Minted = "minted",
        Attenuated = "attenuated",
        Rotated = "rotated",
        Refreshed = "refreshed",
        Revoked = "revoked",
        PairingAsked = "pairing-asked",
        PairingApproved = "pairing-approved",
        PairingRefused = "pairing-refused",
    }
}

/// A change of an operator or a credential. Never holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityChange {
    pub verb: IdentityVerb,
    /// The id of a credential or of a pairing, or the name of an operator. Without spaces.
    pub subject: String,
    #[serde(default)]
    pub credential: Option<CredentialKind>,
    /// Owner of the credential.
    #[serde(default)]
    pub owner: Option<String>,
    /// New rights.
    #[serde(default)]
    pub rights: Option<Rights>,
    /// Further details: label, expiry, reason.
    #[serde(default)]
    pub detail: Option<String>,
}

impl fmt::Display for IdentityChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &str| ByteString::from(text).display();
        write!(f, "{} {}", shown(&self.subject), self.verb)?;
        if let Some(owner) = &self.owner {
            write!(f, " for {}", shown(owner))?;
        }
        if let Some(rights) = &self.rights {
            write!(f, ", may {} in {}", rights.scopes, rights.workspaces)?;
        }
        self.detail.as_ref().map_or(Ok(()), |detail| write!(f, ", {}", shown(detail)))
    }
}
