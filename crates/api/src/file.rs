//! Methods about files of a workspace.

use std::path::PathBuf;

use ringfence_types::{EntryKind, SessionId};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{CallDetails, TextOrBase64};

/// Maximum size of a file that is sent out of a session.
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
    pub content: TextOrBase64,
    #[serde(skip)]
    pub details: CallDetails,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteFile {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub path: PathBuf,
    #[serde(deserialize_with = "crate::schema::named")]
    pub content: TextOrBase64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WriteResult {
    pub transaction: Option<String>,
    pub bytes: u64,
    #[serde(skip)]
    pub details: CallDetails,
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
pub struct DirectoryListing {
    pub transaction: Option<String>,
    pub entries: Vec<DirectoryEntry>,
    #[serde(skip)]
    pub details: CallDetails,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectoryEntry {
    pub name: TextOrBase64,
    #[schemars(schema_with = "kinds")]
    pub kind: EntryKind,
}

fn kinds(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": EntryKind::ALL.map(EntryKind::word) })
}

/// What is at a path, through links.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatFile {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub path: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileInfo {
    pub transaction: Option<String>,
    #[schemars(schema_with = "kinds")]
    pub kind: EntryKind,
    pub bytes: u64,
    /// The permissions, as a number.
    pub mode: u32,
    /// Seconds since 1970.
    pub modified: i64,
}

/// Move a regular file. What is there may be replaced where it may be written.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveFile {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub path: PathBuf,
    pub to: PathBuf,
}

/// Remove a file, a link or an empty directory.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveFile {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub path: PathBuf,
}

/// That it was done, and where it is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileChangeResult {
    pub transaction: Option<String>,
}

/// Make a file of the bytes of the body, or replace all of it. Over HTTP alone: `file.write` is for everybody.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UploadFile {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub path: PathBuf,
}

/// A file as the bytes of the answer. Over HTTP alone: `file.read` is for everybody.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DownloadFile {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub path: PathBuf,
}

/// A file for a person or program outside, as it is or not at all: one with a secret in it is refused, not cleaned.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendFile {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub path: PathBuf,
}

/// What may leave.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Attachment {
    pub transaction: Option<String>,
    pub name: TextOrBase64,
    pub bytes: u64,
    /// Of the content, in hexadecimal.
    pub sha256: String,
    pub content: TextOrBase64,
}
