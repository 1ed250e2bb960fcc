use ringfence_types::{ByteString, PolicyLayer, Refusal, RefusalCode, RuleId, Scope, WiderThanParent};

use crate::audit_sink::AuditWriteError;
use crate::password::PasswordError;
use crate::store::IdentityStoreError;

/// Why authentication or authorization failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    #[error("this is not a token of ringfence")]
    NoToken,
    /// One error for an unknown token, name and password, so that an attacker cannot tell which one was wrong.
    #[error("the credential is not known")]
    Unknown,
    #[error("the token has expired")]
    Expired,
    #[error("the token was revoked")]
    Revoked,
    #[error("there were too many failures; the next attempt is looked at in {seconds} s")]
    Wait { seconds: u64 },
    #[error("the budget of calls of this token is spent")]
    Spent,
    #[error("scope `{0}` is required")]
    Scope(Scope),
    /// Without the workspace's name, so that the error does not reveal other workspaces.
    #[error("the token is not for this workspace")]
    Workspace,
    #[error("a token is never wider than its maker: {0}")]
    Wider(#[from] WiderThanParent),
    #[error("a token does not outlive its maker")]
    Lifetime,
    #[error(
        "a token gets another secret from itself, from the one it was made with, or from the owner of the machine"
    )]
    NotTheirs,
    #[error("the challenge was not signed with the key of the device, or is too old")]
    Proof,
    #[error("no operator has approved the pairing yet")]
    NotApproved,
    #[error("an operator has refused the pairing")]
    PairingRefused,
    #[error("the request does not carry the CSRF token of its session")]
    Csrf,
    #[error("this kind of credential cannot do that")]
    Kind,
}

impl AuthError {
    pub fn rule(&self) -> RuleId {
        match self {
            Self::NoToken => RuleId::IdentityNoToken,
            Self::Unknown => RuleId::IdentityUnknown,
            Self::Expired => RuleId::IdentityExpired,
            Self::Revoked => RuleId::IdentityRevoked,
            Self::Wait { .. } => RuleId::IdentityThrottled,
            Self::Spent => RuleId::IdentityBudget,
            Self::Scope(_) => RuleId::IdentityScope,
            Self::Workspace => RuleId::IdentityWorkspace,
            Self::Wider(_) => RuleId::IdentityWiderThanParent,
            Self::Lifetime => RuleId::IdentityLifetime,
            Self::NotTheirs => RuleId::IdentityNotOwner,
            Self::Proof => RuleId::IdentityProof,
            Self::NotApproved | Self::PairingRefused => RuleId::IdentityPairing,
            Self::Csrf => RuleId::IdentityCsrf,
            Self::Kind => RuleId::IdentityKind,
        }
    }

    /// The next step that would change the answer.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoToken => "send `Authorization: Bearer rf_…`",
            Self::Unknown => "`ringfence token create` on the machine of the daemon creates another token",
            Self::Expired => "make a new one with `ringfence token create`; a device refreshes its own",
            Self::Revoked => "ask an operator for another token",
            Self::Scope(scope) => {
                return Some(format!("use a token that was made with `--scope {scope}`"));
            }
            Self::Workspace => "use a token for this workspace, or one without `--workspace`",
            Self::Wider(_) | Self::Lifetime => {
                "request fewer rights, or let an operator with these rights create it"
            }
            Self::NotTheirs => {
                "revoke it and make another, or `ringfence token rotate` on the machine itself"
            }
            Self::NotApproved => {
                "`ringfence device approve` on the machine, or an operator with scope `pair`"
            }
            Self::Csrf => "send what `csrf` of the login said as `X-Ringfence-Csrf`",
            Self::Wait { .. } | Self::Spent | Self::Proof | Self::PairingRefused | Self::Kind => return None,
        };
        Some(hint.to_owned())
    }

    pub fn refusal(&self) -> Refusal {
        Refusal {
            code: RefusalCode::Identity,
            layer: PolicyLayer::Floor,
            rule: self.rule().into(),
            message: self.to_string(),
            hint: self.hint(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    #[error(transparent)]
    Denied(#[from] AuthError),
    #[error(transparent)]
    Store(#[from] IdentityStoreError),
    #[error(transparent)]
    Unwitnessed(#[from] AuditWriteError),
    #[error("no random bytes: {0}")]
    Random(#[from] getrandom::Error),
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error("there is no {what} `{}`", ByteString::from(id.as_str()).display())]
    NoSuch { what: &'static str, id: String },
    #[error("there is an operator `{}` already", ByteString::from(name.as_str()).display())]
    Exists { name: String },
    #[error("`{}` is no name: {why}", ByteString::from(text.as_str()).display())]
    Name { text: String, why: &'static str },
    #[error("a device shows 64 hexadecimal digits of an Ed25519 public key")]
    Key,
    #[error("{0}")]
    Full(&'static str),
    #[error("the end lies too far in the future, or has been already")]
    End,
}

impl IdentityError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Denied(denied) => denied.hint(),
            Self::Store(error) => error.hint(),
            Self::Exists { name } => {
                Some(format!("`ringfence operator set-password {name}` sets another password"))
            }
            Self::NoSuch { what: "operator", .. } => Some("`ringfence operator list` shows them".to_owned()),
            Self::NoSuch { what: "pairing", .. } => {
                Some("`ringfence device list` shows what waits; a request lives 10 minutes".to_owned())
            }
            Self::NoSuch { .. } => Some("`ringfence token list` shows them".to_owned()),
            _ => None,
        }
    }
}
