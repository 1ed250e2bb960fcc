//! Adding to an operator's file without touching what a person wrote in it.

use std::path::Path;

use ringfence_types::ByteString;
use toml_edit::{Array, DocumentMut, Item, Table, Value};

use super::file::read;
use super::format::Top;
use super::problem::{FileProblems, PolicyError};
use super::source_text::PolicySourceText;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyWriteError {
    #[error("the file has mistakes, so nothing is added to it:\n{0}")]
    Policy(PolicyError),
    #[error("`{0}` is written inline, and an entry cannot be added to it")]
    Inline(String),
    #[error("`{0}` cannot be written in a policy file")]
    Unwritable(String),
    #[error("`{0}` is not a digest")]
    Digest(String),
}

impl PolicyWriteError {
    /// The one thing that would make it work.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Policy(_) => "correct the file first",
            Self::Inline(_) => "write it as `[table]` or `[[list]]`",
            Self::Unwritable(_) => "write it by hand",
            Self::Digest(_) => "give `sha256:` and 64 hexadecimal digits",
        }
    }
}

/// `text` with a digest among those that are approved for a workspace. The same text where it is already.
pub fn with_approved(text: &str, workspace: &Path, digest: &str) -> Result<String, PolicyWriteError> {
    let top = read_top(text)?;
    let workspace = utf8(workspace)?;
    let hex = digest.strip_prefix("sha256:").unwrap_or_default();
    if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(PolicyWriteError::Digest(ByteString::from(digest).display()));
    }
    let sections =
        top.workspaces.iter().flat_map(|named| &named.0).filter(|(path, _)| path.value == workspace);
    let mut approved = sections.flat_map(|(_, table)| &table.approved_digests).flat_map(|list| &list.items);
    if approved.any(|known| known.value.0 == digest.to_ascii_lowercase()) {
        return Ok(text.to_owned());
    }
    let mut document = parse(text)?;
    let section = section(&mut document, workspace)?;
    match section.entry("approved_digests").or_insert_with(|| Item::Value(Value::Array(Array::new()))) {
        Item::Value(Value::Array(list)) => list.push(digest),
        Item::Value(single) => {
            let before = single.clone();
            *single = Value::Array(Array::from_iter([before, digest.into()]));
        }
        _ => return Err(PolicyWriteError::Inline("approved_digests".to_owned())),
    }
    Ok(document.to_string())
}

fn read_top(text: &str) -> Result<Top, PolicyWriteError> {
    let source =
        PolicySourceText::new(Path::new("config.toml"), text.as_bytes()).map_err(PolicyWriteError::Policy)?;
    let mut problems = FileProblems::new(&source);
    let top = read(&mut problems);
    problems.finish().map_err(PolicyWriteError::Policy)?;
    Ok(top.unwrap_or_default())
}

/// What was read once is read again by a parser that keeps comments; both have the same grammar.
fn parse(text: &str) -> Result<DocumentMut, PolicyWriteError> {
    text.parse().map_err(|error: toml_edit::TomlError| PolicyWriteError::Inline(error.message().to_owned()))
}

fn utf8(path: &Path) -> Result<&str, PolicyWriteError> {
    let plain = |text: &&str| ByteString::from(*text).display() == **text;
    path.to_str().filter(plain).ok_or_else(|| PolicyWriteError::Unwritable(ByteString::from(path).display()))
}

/// `[workspaces."/path"]`, made where there is none.
fn section<'d>(document: &'d mut DocumentMut, path: &str) -> Result<&'d mut Table, PolicyWriteError> {
    let inline = || PolicyWriteError::Inline("workspaces".to_owned());
    let workspaces = document.entry("workspaces").or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    let workspaces = workspaces.as_table_mut().ok_or_else(inline)?;
    let section = workspaces.entry(path).or_insert_with(|| Item::Table(Table::new()));
    section.as_table_mut().ok_or_else(inline)
}
