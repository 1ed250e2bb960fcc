//! What is kept: operators, credentials, pairings and challenges. No secret is in any of them.

use std::fmt;

use jiff::Timestamp;
use ringfence_types::{Attenuation, Bytes, CredentialKind, Principal, Rights, SessionId};
use serde::{Deserialize, Serialize};

use crate::token::{hex, is_hex};

const ID_BYTES: usize = 8;

/// The public part of a credential, a pairing or a challenge.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CredentialId(String);

impl CredentialId {
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0_u8; ID_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self(hex(bytes)))
    }

    /// As it is written, or as a token that begins with it.
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == ID_BYTES * 2 && is_hex(text)).then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CredentialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whose a credential is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// Whoever owns the state directory.
    Local { uid: u32 },
    /// An operator with a name of their own.
    Account { name: String },
    /// What runs in a session.
    Session { id: SessionId, agent: Option<String> },
}

impl Owner {
    pub(crate) fn principal(&self, credential: &CredentialId, node: &str) -> Principal {
        match self {
            Self::Local { uid } => Principal::Operator {
                uid: *uid,
                name: None,
                node: node.to_owned(),
                terminal: Some(format!("token {credential}")),
            },
            Self::Account { name } => Principal::Account {
                name: name.clone(),
                credential: credential.to_string(),
                node: node.to_owned(),
            },
            Self::Session { id, agent } => Principal::Agent { session: id.clone(), name: agent.clone() },
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { uid } => write!(f, "user {uid}"),
            Self::Account { name } => f.write_str(&Bytes::from(name.as_str()).display()),
            Self::Session { id, .. } => write!(f, "{id}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Credential {
    pub(crate) id: CredentialId,
    pub(crate) kind: CredentialKind,
    /// SHA-256 of the whole token.
    pub(crate) digest: String,
    pub(crate) label: String,
    pub(crate) owner: Owner,
    pub(crate) rights: Rights,
    pub(crate) attenuation: Attenuation,
    /// Calls that were made with it, where they are counted.
    pub(crate) spent: u64,
    /// It is worth nothing once this one is.
    pub(crate) parent: Option<CredentialId>,
    /// Of a sign-in: whoever gave its operator the password, as it was then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) given_with: Vec<CredentialId>,
    pub(crate) made: Timestamp,
    pub(crate) made_by: String,
    pub(crate) expires: Option<Timestamp>,
    pub(crate) renewed: Option<Timestamp>,
    pub(crate) revoked: Option<Timestamp>,
    /// The public key of a device, in hexadecimal.
    pub(crate) key: Option<String>,
    /// When a device cannot be renewed any more.
    pub(crate) ends: Option<Timestamp>,
    /// SHA-256 of what the page of a browser has beside the cookie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) page: Option<String>,
}

/// A credential as everybody who may know of it sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    pub id: CredentialId,
    pub kind: CredentialKind,
    pub label: String,
    pub owner: Owner,
    pub rights: Rights,
    pub attenuation: Attenuation,
    pub calls_made: u64,
    pub parent: Option<CredentialId>,
    pub made: Timestamp,
    pub made_by: String,
    pub expires: Option<Timestamp>,
    pub renewed: Option<Timestamp>,
    pub revoked: Option<Timestamp>,
    /// Of a device.
    pub key: Option<String>,
}

impl From<Credential> for Meta {
    fn from(credential: Credential) -> Self {
        let Credential { id, kind, label, owner, rights, attenuation, spent, parent, .. } = credential;
        let Credential { made, made_by, expires, renewed, revoked, key, .. } = credential;
        let calls_made = spent;
        Self {
            id,
            kind,
            label,
            owner,
            rights,
            attenuation,
            calls_made,
            parent,
            made,
            made_by,
            expires,
            renewed,
            revoked,
            key,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Operator {
    pub(crate) name: String,
    /// As a PHC string.
    pub(crate) password: String,
    pub(crate) rights: Rights,
    pub(crate) made: Timestamp,
    pub(crate) made_by: String,
    pub(crate) password_set: Timestamp,
    /// The credential that the password was given with, and all that it goes back to. Empty: the owner of the machine gave it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) given_with: Vec<CredentialId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorMeta {
    pub name: String,
    pub rights: Rights,
    pub made: Timestamp,
    pub made_by: String,
    pub password_set: Timestamp,
}

impl From<Operator> for OperatorMeta {
    fn from(operator: Operator) -> Self {
        let Operator { name, rights, made, made_by, password_set, .. } = operator;
        Self { name, rights, made, made_by, password_set }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stage {
    /// The client has not shown yet that it has the key.
    Asked,
    /// It waits for an operator.
    Proven,
    Approved {
        rights: Rights,
        owner: Owner,
        by: String,
        /// The credential of whoever approved it, without which the device is worth nothing.
        #[serde(default)]
        parent: Option<CredentialId>,
        /// When that one ends.
        #[serde(default)]
        until: Option<Timestamp>,
    },
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pairing {
    pub(crate) id: CredentialId,
    pub(crate) label: String,
    pub(crate) key: String,
    pub(crate) wants: Rights,
    pub(crate) source: String,
    pub(crate) asked: Timestamp,
    pub(crate) expires: Timestamp,
    pub(crate) stage: Stage,
}

/// A request of a device that waits for an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairingMeta {
    pub id: CredentialId,
    /// What the client says of itself.
    pub label: String,
    /// The client shows the same: it stands for its key.
    pub code: String,
    pub wants: Rights,
    pub source: String,
    pub asked: Timestamp,
    pub expires: Timestamp,
}

/// What a device has to sign next. Once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Nonce {
    pub(crate) nonce: String,
    /// The pairing or the device that it is for.
    pub(crate) subject: CredentialId,
    pub(crate) expires: Timestamp,
    /// Who asked for it.
    #[serde(default)]
    pub(crate) source: String,
}
