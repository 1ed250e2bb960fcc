//! Tokens, operators, devices and browsers over the interface.

use ringfence_types::{Attenuation, Rights, SessionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The longest that a token is made for: a hundred years.
pub const LONGEST_LIFETIME_S: u64 = 3_155_760_000;
/// What people call something: up to 64 characters that can be seen.
const LABEL: &str = "^[^\\x00-\\x1f\\x7f-\\x9f]{1,64}$";
/// The form of the name of an operator.
const NAME: &str = "^[a-z][a-z0-9._@-]{0,63}$";
/// The form of a password, of characters with one byte; with longer ones it has fewer.
const PASSWORD: &str = "^[^\\n\\r\\u0000]{12,1024}$";
/// The form of an id.
const ID: &str = "^[0-9a-f]{16}$";

/// What a credential is good for.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// What it is for, in your words.
    #[schemars(extend("pattern" = LABEL))]
    pub label: String,
    #[schemars(schema_with = "crate::shape::rights")]
    #[serde(deserialize_with = "crate::shape::named")]
    pub rights: Rights,
    /// Seconds after which it ends; without it with its maker, or never.
    #[serde(default)]
    #[schemars(range(min = 1, max = LONGEST_LIFETIME_S))]
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
    #[schemars(extend("pattern" = ID))]
    pub id: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeToken {
    #[schemars(extend("pattern" = ID))]
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
    #[schemars(extend("pattern" = LABEL))]
    pub label: String,
    /// What is left; only ever less than whoever hands it on has.
    #[schemars(schema_with = "crate::shape::attenuation")]
    #[serde(deserialize_with = "crate::shape::named")]
    pub attenuation: Attenuation,
    #[serde(default)]
    #[schemars(range(min = 1, max = LONGEST_LIFETIME_S))]
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
    /// For the header `X-Ringfence-Csrf` of every request that comes with the cookie, also of one that only reads.
    pub csrf: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListOperators {}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OperatorList {
    /// Without what is kept of their passwords.
    pub operators: Vec<Value>,
}

/// Somebody with a name and a password, never with more rights than yours.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddOperator {
    /// a-z, 0-9 and . _ - @
    #[schemars(extend("pattern" = NAME))]
    pub name: String,
    #[schemars(schema_with = "crate::shape::rights")]
    #[serde(deserialize_with = "crate::shape::named")]
    pub rights: Rights,
    #[schemars(extend("pattern" = PASSWORD))]
    pub password: String,
}

impl std::fmt::Debug for AddOperator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AddOperator(…)")
    }
}

/// Another password; browsers that are signed in with the old one are signed out.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetPassword {
    pub name: String,
    #[schemars(extend("pattern" = PASSWORD))]
    pub password: String,
}

impl std::fmt::Debug for SetPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SetPassword(…)")
    }
}

/// Removes an operator, and revokes all that is theirs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveOperator {
    pub name: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OperatorShown {
    pub operator: Value,
}

/// A device asks to be let in.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AskToPair {
    #[schemars(extend("pattern" = LABEL))]
    pub label: String,
    /// Ed25519, 64 hexadecimal digits.
    #[schemars(extend("pattern" = "^[0-9a-f]{64}$"))]
    pub key: String,
    #[schemars(schema_with = "crate::shape::rights")]
    #[serde(deserialize_with = "crate::shape::named")]
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
    #[schemars(extend("pattern" = ID))]
    pub subject: String,
}

/// A challenge and its signature, 128 hexadecimal digits.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProvePairing {
    #[schemars(extend("pattern" = ID))]
    pub subject: String,
    pub nonce: String,
    pub signature: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CollectDevice {
    #[schemars(extend("pattern" = ID))]
    pub subject: String,
    pub nonce: String,
    pub signature: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RefreshDevice {
    #[schemars(extend("pattern" = ID))]
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
    #[serde(default, deserialize_with = "crate::shape::named")]
    #[schemars(schema_with = "crate::shape::maybe_rights")]
    pub rights: Option<Rights>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RefusePairing {
    pub code: String,
}
