//! A question to a person as plain data: what is shown in every channel is made from the same [`Card`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::workspace::words;
use crate::{Bytes, CredentialKind, SessionId, UnknownWord};

/// Who did something.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "principal", rename_all = "kebab-case")]
pub enum Principal {
    /// A person with the rights of the owner of the ledger.
    Operator {
        uid: u32,
        /// The login name, where the machine knows one.
        name: Option<String>,
        /// The node where they are: users of two machines with one number are two people.
        node: String,
        /// The terminal they sit at.
        terminal: Option<String>,
    },
    /// A person who has shown a credential of this account.
    Account {
        name: String,
        /// The id of the credential, never the secret.
        credential: String,
        node: String,
    },
    /// Somebody who has not shown who they are.
    Stranger {
        /// Where they came from.
        source: String,
    },
    /// A program that asks: never somebody who answers.
    Agent { session: SessionId, name: Option<String> },
    /// Ringfence itself: time ran out, nobody was there, a crash was cleaned up.
    System,
}

impl Principal {
    /// Whether it is somebody who may answer a question, if their rights say so.
    pub fn is_person(&self) -> bool {
        match self {
            Self::Operator { .. } | Self::Account { .. } => true,
            Self::Stranger { .. } | Self::Agent { .. } | Self::System => false,
        }
    }

    /// What makes two principals the same: a person at two terminals is one.
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
        let shown = |text: &str| Bytes::from(text).display();
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
            Self::Stranger { source } => write!(f, "somebody from {}", shown(source)),
            Self::Agent { session, name: None } => write!(f, "the agent of {session}"),
            Self::Agent { session, name: Some(name) } => write!(f, "agent {} of {session}", shown(name)),
            Self::System => f.write_str("ringfence"),
        }
    }
}

/// By whose right a call was made: in a session, its own token, one that was handed on, or an operator's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeBy {
    pub principal: Principal,
    /// What they showed; `None`: the kernel knows them as the owner of the socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<ShownCredential>,
}

/// A credential by what is public of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownCredential {
    pub kind: CredentialKind,
    pub id: String,
}

impl fmt::Display for MadeBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |shown: &ShownCredential| {
            format!(" with {} token {}", shown.kind, Bytes::from(shown.id.as_str()).display())
        };
        write!(f, "{}{}", self.principal, self.shown.as_ref().map(shown).unwrap_or_default())
    }
}

/// How many different people it takes.
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
pub struct Card {
    /// Verb and target in one plain sentence.
    pub sentence: String,
    /// What would run or be written, to the letter.
    pub blocks: Vec<Block>,
    /// A label and a text each, in the order they are shown. A repeated label is one list.
    pub fields: Vec<(String, String)>,
}

/// Text of an agent, escaped, line by line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    pub title: Option<String>,
    pub lines: Vec<String>,
}

/// One thing that "always here" would store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
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
