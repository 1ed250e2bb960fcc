use ringfence_types::{Bytes, Layer, Refusal, RefusalCode, Scope, Wider};

use crate::password::PasswordError;
use crate::store::StoreError;
use crate::witness::Unwitnessed;

/// Why somebody is not let in, or may not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Denied {
    #[error("this is not a token of ringfence")]
    NoToken,
    /// One word for a token, a name and a password that nobody has: which of them it was is nobody's business.
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
    #[error("this takes scope `{0}`, which the token has not")]
    Scope(Scope),
    /// Without its name: what there is elsewhere is not told.
    #[error("the token is not for this workspace")]
    Workspace,
    #[error("a token is never wider than its maker: {0}")]
    Wider(#[from] Wider),
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

impl Denied {
    pub fn rule(&self) -> &'static str {
        match self {
            Self::NoToken => "identity.no-token",
            Self::Unknown => "identity.unknown",
            Self::Expired => "identity.expired",
            Self::Revoked => "identity.revoked",
            Self::Wait { .. } => "identity.wait",
            Self::Spent => "identity.budget",
            Self::Scope(_) => "identity.scope",
            Self::Workspace => "identity.workspace",
            Self::Wider(_) => "identity.wider",
            Self::Lifetime => "identity.lifetime",
            Self::NotTheirs => "identity.not-theirs",
            Self::Proof => "identity.proof",
            Self::NotApproved | Self::PairingRefused => "identity.pairing",
            Self::Csrf => "identity.csrf",
            Self::Kind => "identity.kind",
        }
    }

    /// The one thing that would change the answer.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoToken => "send `Authorization: Bearer rf_…`",
            Self::Unknown => {
                "`ringfence token create` on the machine itself makes a token, whoever lost theirs"
            }
            Self::Expired => "make a new one with `ringfence token create`; a device refreshes its own",
            Self::Revoked => "ask whoever revoked it",
            Self::Scope(scope) => {
                return Some(format!("use a token that was made with `--scope {scope}`"));
            }
            Self::Workspace => "use a token for this workspace, or one without `--workspace`",
            Self::Wider(_) | Self::Lifetime => "ask for less, or let somebody make it who has more",
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
            layer: Layer::Floor,
            rule: self.rule().to_owned(),
            message: self.to_string(),
            hint: self.hint(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Unwitnessed(#[from] Unwitnessed),
    #[error("no random bytes: {0}")]
    Random(#[from] getrandom::Error),
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error("there is no {what} `{}`", Bytes::from(id.as_str()).display())]
    NoSuch { what: &'static str, id: String },
    #[error("there is an operator `{}` already", Bytes::from(name.as_str()).display())]
    Exists { name: String },
    #[error("`{}` is no name: {why}", Bytes::from(text.as_str()).display())]
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
                Some(format!("`ringfence operator passwd {name}` sets another password"))
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
