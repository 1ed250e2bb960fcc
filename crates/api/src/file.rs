//! Files of a workspace.

use std::path::PathBuf;

use ringfence_types::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Data;

/// What is sent somewhere else may be this large.
pub const MOST_SENT: u64 = 25 * 1024 * 1024;

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadFile {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub path: PathBuf,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FileContent {
    pub transaction: Option<String>,
    pub bytes: u64,
    pub content: Data,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteFile {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub path: PathBuf,
    pub content: Data,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Written {
    pub transaction: Option<String>,
    pub bytes: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListDirectory {
    #[schemars(with = "String")]
    pub session: SessionId,
    #[serde(default)]
    pub path: Option<PathBuf>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Listing {
    pub transaction: Option<String>,
    pub entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    pub name: Data,
    /// `file`, `directory`, `link` or `other`.
    pub kind: String,
}
