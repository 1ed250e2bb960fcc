//! Methods about tokens, operators, devices and web sessions.

use ringfence_identity::{CredentialSummary, OperatorSummary, PairingSummary};
use ringfence_types::{Attenuation, Rights, SessionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Longest lifetime of a token: a hundred years.
pub const LONGEST_LIFETIME_S: u64 = 3_155_760_000;
/// Pattern of labels: up to 64 printable characters.
const LABEL: &str = "^[^\\x00-\\x1f\\x7f-\\x9f]{1,64}$";
/// Pattern of operator names.
const NAME: &str = "^[a-z][a-z0-9._@-]{0,63}$";
/// Pattern of passwords with one-byte characters; longer characters reduce the count.
const PASSWORD: &str = "^[^\\n\\r\\u0000]{12,1024}$";
/// Pattern of ids.
const ID: &str = "^[0-9a-f]{16}$";

/// Creates a token.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// A label for people.
    #[schemars(extend("pattern" = LABEL))]
    pub label: String,
    #[schemars(schema_with = "crate::schema::rights")]
    #[serde(deserialize_with = "crate::schema::named")]
    pub rights: Rights,
    /// Lifetime in seconds. Default: that of its creator, or unlimited.
    #[serde(default)]
    #[schemars(range(min = 1, max = LONGEST_LIFETIME_S))]
    pub lifetime_s: Option<u64>,
    /// The operator that owns it. Default: the caller.
    #[serde(default)]
    pub operator: Option<String>,
}

/// A token with its secret, which is shown once.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MintedToken {
    /// The record of the token, without its secret.
    #[schemars(with = "Value")]
    pub token: CredentialSummary,
    pub secret: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListTokens {}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TokenList {
    /// Without secrets.
    #[schemars(with = "Vec<Value>")]
    pub tokens: Vec<CredentialSummary>,
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

/// Revokes the token of this request.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Logout {}

/// Creates a narrower token from a session token.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttenuateToken {
    #[schemars(with = "String")]
    pub session: SessionId,
    #[schemars(extend("pattern" = LABEL))]
    pub label: String,
    /// The remaining rights: at most those of the creator.
    #[schemars(schema_with = "crate::schema::attenuation")]
    #[serde(deserialize_with = "crate::schema::named")]
    pub attenuation: Attenuation,
    #[serde(default)]
    #[schemars(range(min = 1, max = LONGEST_LIFETIME_S))]
    pub lifetime_s: Option<u64>,
}

/// Exchanges a name and a password for a cookie. Only over HTTP on TCP.
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
pub struct LoginResult {
    /// For the header `X-Ringfence-Csrf`, required in every request with the cookie.
    pub csrf: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListOperators {}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OperatorList {
    /// Without password hashes.
    #[schemars(with = "Vec<Value>")]
    pub operators: Vec<OperatorSummary>,
}

/// Adds an operator, never with more rights than the caller has.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddOperator {
    /// a-z, 0-9 and . _ - @
    #[schemars(extend("pattern" = NAME))]
    pub name: String,
    #[schemars(schema_with = "crate::schema::rights")]
    #[serde(deserialize_with = "crate::schema::named")]
    pub rights: Rights,
    #[schemars(extend("pattern" = PASSWORD))]
    pub password: String,
}

impl std::fmt::Debug for AddOperator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AddOperator(…)")
    }
}

/// Sets a password. Web sessions of the operator end.
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

/// Removes an operator and revokes all credentials of that operator.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveOperator {
    pub name: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OperatorInfo {
    #[schemars(with = "Value")]
    pub operator: OperatorSummary,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_error: Option<String>,
}

/// Requests the pairing of a device.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestPairing {
    #[schemars(extend("pattern" = LABEL))]
    pub label: String,
    /// Ed25519, 64 hexadecimal digits.
    #[schemars(extend("pattern" = "^[0-9a-f]{64}$"))]
    pub key: String,
    #[schemars(schema_with = "crate::schema::rights")]
    #[serde(deserialize_with = "crate::schema::named")]
    pub wants: Rights,
}

/// A challenge that the device signs with its key (docs/identity.md).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DeviceChallenge {
    /// The pairing or the device.
    pub subject: String,
    pub nonce: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestChallenge {
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
pub struct ClaimDeviceToken {
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

/// A pairing as operators see it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PairingInfo {
    #[schemars(with = "Value")]
    pub pairing: PairingSummary,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListPairings {}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PairingList {
    #[schemars(with = "Vec<Value>")]
    pub pairings: Vec<PairingSummary>,
}

/// Approves a pairing by the code that the device shows.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovePairing {
    pub code: String,
    /// Narrower rights than the device requested.
    #[serde(default, deserialize_with = "crate::schema::named")]
    #[schemars(schema_with = "crate::schema::maybe_rights")]
    pub rights: Option<Rights>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RefusePairing {
    pub code: String,
}
