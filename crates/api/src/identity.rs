//! Tokens, devices and browsers over the interface.

use ringfence_types::{Attenuation, Rights, SessionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a credential is good for.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// What it is for, in your words.
    pub label: String,
    #[schemars(with = "Value")]
    pub rights: Rights,
    /// Seconds after which it ends; without it with its maker, or never.
    #[serde(default)]
    pub lifetime_s: Option<u64>,
    /// The operator that it is for; without it whoever makes it.
    #[serde(default)]
    pub operator: Option<String>,
}

/// A token with its secret, which is shown once.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MintedToken {
    /// Everything about it but the secret.
    pub token: Value,
    pub secret: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListTokens {}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TokenList {
    /// Without secrets.
    pub tokens: Vec<Value>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateToken {
    pub id: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeToken {
    pub id: String,
}

/// Ends the token that it comes with.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Logout {}

/// A part of the rights of a session, for something that does a part of its work.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttenuateToken {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub label: String,
    /// What is left; only ever less than whoever hands it on has.
    #[schemars(with = "Value")]
    pub attenuation: Attenuation,
    #[serde(default)]
    pub lifetime_s: Option<u64>,
}

/// A name and a password for a cookie. Only over HTTP on TCP.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Login {
    pub name: String,
    pub password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login(…)")
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LoggedIn {
    /// For the header `X-Ringfence-Csrf` of every request that changes something.
    pub csrf: String,
}

/// A device asks to be let in.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AskToPair {
    pub label: String,
    /// Ed25519, 64 hexadecimal digits.
    pub key: String,
    #[schemars(with = "Value")]
    pub wants: Rights,
}

/// Something that the key of a device has to sign: docs/identity.md says how.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DeviceChallenge {
    /// The pairing or the device.
    pub subject: String,
    pub nonce: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AskChallenge {
    /// The pairing or the device.
    pub subject: String,
}

/// A challenge and its signature, 128 hexadecimal digits.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProvePairing {
    pub subject: String,
    pub nonce: String,
    pub signature: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CollectDevice {
    pub subject: String,
    pub nonce: String,
    pub signature: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RefreshDevice {
    pub subject: String,
    pub nonce: String,
    pub signature: String,
}

/// A request of a device as operators see it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PairingShown {
    pub pairing: Value,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListPairings {}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PairingList {
    pub waiting: Vec<Value>,
}

/// Lets a device in by the code that it shows.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovePairing {
    pub code: String,
    /// Less than it asks for.
    #[serde(default)]
    #[schemars(with = "Option<Value>")]
    pub rights: Option<Rights>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RefusePairing {
    pub code: String,
}
