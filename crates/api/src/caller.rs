//! The authenticated caller of a method.

use ringfence_types::{Attenuation, CredentialKind, Principal, Rights, Scope, SessionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The credential that a caller presents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TokenKind {
    /// Nothing: the kernel says that they own the socket. The way back in when every token is lost.
    Socket,
    Api,
    Device,
    Web,
    /// Of an agent, for what its own session is about.
    Session,
}

impl TokenKind {
    pub const ALL: &'static [Self] = &[Self::Socket, Self::Api, Self::Device, Self::Web, Self::Session];

    pub fn word(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Api => "api",
            Self::Device => "device",
            Self::Web => "web",
            Self::Session => "session",
        }
    }
}

impl From<CredentialKind> for TokenKind {
    fn from(kind: CredentialKind) -> Self {
        match kind {
            CredentialKind::Api => Self::Api,
            CredentialKind::Device => Self::Device,
            CredentialKind::Web => Self::Web,
            CredentialKind::Session => Self::Session,
        }
    }
}

/// An authenticated caller with everything that determines its rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub principal: Principal,
    pub kind: TokenKind,
    /// None for an agent, which may call the methods that are open to sessions.
    pub rights: Rights,
    /// Never wider than the session.
    pub attenuation: Attenuation,
}

impl Caller {
    /// The owner of the socket, by the peer credentials of the kernel.
    pub fn owner(principal: Principal) -> Self {
        let (rights, attenuation) = (Rights::all(), Attenuation::none());
        Self { principal, kind: TokenKind::Socket, rights, attenuation }
    }

    /// The session of an agent.
    pub fn session(&self) -> Option<&SessionId> {
        match &self.principal {
            Principal::Agent { session, .. } => Some(session),
            Principal::Operator { .. }
            | Principal::Account { .. }
            | Principal::Stranger { .. }
            | Principal::System => None,
        }
    }

    /// An agent has no scope.
    pub fn may(&self, scope: Scope) -> bool {
        self.session().is_none() && self.rights.scopes.contains(scope)
    }
}
