//! Approvals as plain data: every channel shows the same [`ApprovalPrompt`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::workspace::words;
use crate::{ByteString, CredentialKind, SessionId, UnknownKeyword};

/// Author of an action or answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "principal", rename_all = "kebab-case")]
pub enum Principal {
    /// A person with the rights of the owner of the ledger.
    Operator {
        uid: u32,
        /// The login name, where the machine knows one.
        name: Option<String>,
        /// Node of the user: the same user id on two machines is two people.
        node: String,
        /// Terminal of the person.
        terminal: Option<String>,
    },
    /// A person who authenticated with a credential of this account.
    Account {
        name: String,
        /// The id of the credential, never the secret.
        credential: String,
        node: String,
    },
    /// An unauthenticated client.
    Stranger {
        /// Origin of the connection.
        source: String,
    },
    /// A program that makes requests. It never answers one.
    Agent { session: SessionId, name: Option<String> },
    /// Ringfence itself: for expiry, a missing approver or recovery after a crash.
    System,
}

impl Principal {
    /// Whether this principal may answer approvals, if its rights permit.
    pub fn is_person(&self) -> bool {
        match self {
            Self::Operator { .. } | Self::Account { .. } => true,
            Self::Stranger { .. } | Self::Agent { .. } | Self::System => false,
        }
    }

    /// Identity for comparison: a person at two terminals is one.
    pub fn identity(&self) -> String {
        match self {
            Self::Operator { uid, node, .. } => format!("operator:{uid}@{node}"),
            Self::Account { name, node, .. } => format!("account:{name}@{node}"),
            Self::Stranger { source } => format!("stranger:{source}"),
            Self::Agent { session, .. } => format!("agent:{session}"),
            Self::System => "system".to_owned(),
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &str| ByteString::from(text).display();
        match self {
            Self::Operator { uid, name, terminal, .. } => {
                match name {
                    Some(name) => f.write_str(&shown(name))?,
                    None => write!(f, "user {uid}")?,
                }
                terminal.as_ref().map_or(Ok(()), |terminal| write!(f, " at {}", shown(terminal)))
            }
            Self::Account { name, credential, .. } => {
                write!(f, "{} with {}", shown(name), shown(credential))
            }
            Self::Stranger { source } => write!(f, "a client from {}", shown(source)),
            Self::Agent { session, name: None } => write!(f, "the agent of {session}"),
            Self::Agent { session, name: Some(name) } => write!(f, "agent {} of {session}", shown(name)),
            Self::System => f.write_str("ringfence"),
        }
    }
}

/// The principal whose rights a call uses: in a session its own token, an attenuated one, or an operator's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallOrigin {
    pub principal: Principal,
    /// The credential; `None`: the owner of the socket, as reported by the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialRef>,
}

/// The public part of a credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialRef {
    pub kind: CredentialKind,
    pub id: String,
}

impl fmt::Display for CallOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.principal.fmt(f)?;
        self.credential.as_ref().map_or(Ok(()), |credential| {
            let id = ByteString::from(credential.id.as_str()).display();
            write!(f, " with {} token {id}", credential.kind)
        })
    }
}

/// Number of different people that must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quorum {
    /// At least 1.
    pub approve: u8,
    /// At least 1.
    pub deny: u8,
}

impl Default for Quorum {
    fn default() -> Self {
        Self { approve: 1, deny: 1 }
    }
}

/// A question as a person reads it. Everything is escaped and without secrets; nothing is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalPrompt {
    /// Verb and target in one plain sentence.
    pub sentence: String,
    /// What would run or be written, to the letter.
    pub blocks: Vec<QuotedText>,
    /// A label and a text each, in the order they are shown. A repeated label is one list.
    pub fields: Vec<(String, String)>,
}

/// Text of an agent, escaped, line by line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotedText {
    pub title: Option<String>,
    pub lines: Vec<String>,
}

/// One thing that "always here" would store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantOffer {
    pub scope: OfferScope,
    /// Exactly what it would permit, in words.
    pub permits: String,
    /// The same as text of a policy file: what is shown is what is stored.
    pub stored: String,
}

words! {
    /// How wide a stored answer is.
    OfferScope("scope") {
        /// These arguments and no others.
        Exact = "exact",
        /// These first words, in this directory and below it.
        Here = "here",
        /// These first words, anywhere in the workspace.
        Prefix = "prefix",
    }
}
