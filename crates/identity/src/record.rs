//! Stored records: operators, credentials, pairings and challenges. None contains a secret.

use std::fmt;

use jiff::Timestamp;
use ringfence_types::{Attenuation, ByteString, CredentialKind, Principal, Rights, SessionId};
use serde::{Deserialize, Serialize};

use crate::token::{hex, is_hex};

const ID_BYTES: usize = 8;

/// The public id of a credential or a pairing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CredentialId(String);

impl CredentialId {
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0_u8; ID_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self(hex(bytes)))
    }

    /// Parses the 16 hexadecimal digits.
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

/// The owner of a credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CredentialOwner {
    /// The user that owns the state directory.
    Local { uid: u32 },
    /// An operator with an account.
    Account { name: String },
    /// The agent of a session.
    Session { id: SessionId, agent: Option<String> },
}

impl CredentialOwner {
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

impl fmt::Display for CredentialOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { uid } => write!(f, "user {uid}"),
            Self::Account { name } => f.write_str(&ByteString::from(name.as_str()).display()),
            Self::Session { id, .. } => write!(f, "{id}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CredentialRecord {
    pub(crate) id: CredentialId,
    pub(crate) kind: CredentialKind,
    /// SHA-256 of the whole token.
    pub(crate) digest: String,
    pub(crate) label: String,
    pub(crate) owner: CredentialOwner,
    pub(crate) rights: Rights,
    pub(crate) attenuation: Attenuation,
    /// Calls made with it, if they are counted.
    pub(crate) spent: u64,
    /// The credential becomes invalid with its parent.
    pub(crate) parent: Option<CredentialId>,
    /// For a web login: the credentials behind the operator's password at that time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) given_with: Vec<CredentialId>,
    pub(crate) created_at: Timestamp,
    pub(crate) created_by: String,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) renewed_at: Option<Timestamp>,
    pub(crate) revoked_at: Option<Timestamp>,
    /// The public key of a device, in hexadecimal.
    pub(crate) key: Option<String>,
    /// When the device must be paired again.
    pub(crate) ends: Option<Timestamp>,
    /// SHA-256 of the CSRF token, which the page of a browser has beside the cookie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) page: Option<String>,
}

/// The public view of a credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialSummary {
    pub id: CredentialId,
    pub kind: CredentialKind,
    pub label: String,
    pub owner: CredentialOwner,
    pub rights: Rights,
    pub attenuation: Attenuation,
    pub calls_made: u64,
    pub parent: Option<CredentialId>,
    pub created_at: Timestamp,
    pub created_by: String,
    pub expires_at: Option<Timestamp>,
    pub renewed_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    /// The public key of a device.
    pub key: Option<String>,
}

impl From<CredentialRecord> for CredentialSummary {
    fn from(credential: CredentialRecord) -> Self {
        let CredentialRecord { id, kind, label, owner, rights, attenuation, spent, parent, .. } = credential;
        let CredentialRecord { created_at, created_by, expires_at, renewed_at, revoked_at, key, .. } =
            credential;
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
            created_at,
            created_by,
            expires_at,
            renewed_at,
            revoked_at,
            key,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OperatorRecord {
    pub(crate) name: String,
    /// As a PHC string.
    pub(crate) password: String,
    pub(crate) rights: Rights,
    pub(crate) created_at: Timestamp,
    pub(crate) created_by: String,
    pub(crate) password_set_at: Timestamp,
    /// The credential that set the password, with its ancestors. Empty: the owner of the machine set it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) given_with: Vec<CredentialId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorSummary {
    pub name: String,
    pub rights: Rights,
    pub created_at: Timestamp,
    pub created_by: String,
    pub password_set_at: Timestamp,
}

impl From<OperatorRecord> for OperatorSummary {
    fn from(operator: OperatorRecord) -> Self {
        let OperatorRecord { name, rights, created_at, created_by, password_set_at, .. } = operator;
        Self { name, rights, created_at, created_by, password_set_at }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PairingStage {
    /// The device has not yet proved possession of its key.
    Asked,
    /// Waits for an operator.
    Proven,
    Approved {
        rights: Rights,
        owner: CredentialOwner,
        by: String,
        /// The approver's credential. The device becomes invalid with it.
        #[serde(default)]
        parent: Option<CredentialId>,
        /// The expiry of that credential.
        #[serde(default)]
        until: Option<Timestamp>,
    },
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PairingRecord {
    pub(crate) id: CredentialId,
    pub(crate) label: String,
    pub(crate) key: String,
    pub(crate) wants: Rights,
    pub(crate) source: String,
    pub(crate) requested_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    pub(crate) stage: PairingStage,
}

/// A pairing request that waits for an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairingSummary {
    pub id: CredentialId,
    /// The client's own claim.
    pub label: String,
    /// Derived from the key. The client shows the same code.
    pub code: String,
    pub wants: Rights,
    pub source: String,
    pub requested_at: Timestamp,
    pub expires_at: Timestamp,
}

/// An outstanding challenge, valid once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Nonce {
    pub(crate) nonce: String,
    /// The pairing or the device.
    pub(crate) subject: CredentialId,
    pub(crate) expires_at: Timestamp,
    /// The source of the request.
    #[serde(default)]
    pub(crate) source: String,
}
