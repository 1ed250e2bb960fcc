//! Adding to an operator's file without touching what a person wrote in it.

use std::path::Path;

use ringfence_types::{Bytes, Decision};
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, Value};

use super::file::read;
use super::format::{Body, CommandTable, Commands, Top};
use super::problem::{PolicyError, Problems};
use super::text::Source;
use super::words::split;
use crate::command::{CommandPattern, CommandRule};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    #[error("the file has mistakes, so nothing is added to it:\n{0}")]
    Policy(PolicyError),
    #[error("`{0}` is written inline, and an entry cannot be added to it")]
    Inline(String),
    #[error("the file already says the opposite about `{0}`")]
    Opposite(String),
    #[error("`{0}` cannot be written in a policy file")]
    Unwritable(String),
    #[error("`{0}` is not a digest")]
    Digest(String),
}

impl WriteError {
    /// The one thing that would make it work.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Policy(_) => "correct the file first",
            Self::Inline(_) => "write it as `[table]` or `[[list]]`",
            Self::Opposite(_) => "remove the entry that is there",
            Self::Unwritable(_) => "write the rule by hand",
            Self::Digest(_) => "give `sha256:` and 64 hexadecimal digits",
        }
    }
}

/// `text` with a rule about a command: for one workspace, or for all. The same text where it says so already.
///
/// The caller loads the result, with everything that the file names, before it replaces the file.
pub fn with_rule(text: &str, workspace: Option<&Path>, rule: &CommandRule) -> Result<String, WriteError> {
    let top = read_top(text)?;
    let workspace = workspace.map(utf8).transpose()?;
    let words = words(rule)?;
    if let Some(existing) = same_command(&top, workspace, rule, words) {
        return if existing == rule.decision {
            Ok(text.to_owned())
        } else {
            Err(WriteError::Opposite(words.join(" ")))
        };
    }
    let mut document = parse(text)?;
    let section = match workspace {
        Some(path) => section(&mut document, path)?,
        None => document.as_table_mut(),
    };
    let list = section.entry("command").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    let Item::ArrayOfTables(list) = list else { return Err(WriteError::Inline("command".to_owned())) };
    list.push(entry(rule, words)?);
    Ok(document.to_string())
}

/// `text` with a digest among those that are approved for a workspace. The same text where it is already.
pub fn with_approved(text: &str, workspace: &Path, digest: &str) -> Result<String, WriteError> {
    let top = read_top(text)?;
    let workspace = utf8(workspace)?;
    let hex = digest.strip_prefix("sha256:").unwrap_or_default();
    if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(WriteError::Digest(Bytes::from(digest).display()));
    }
    let sections =
        top.workspaces.iter().flat_map(|named| &named.0).filter(|(path, _)| path.value == workspace);
    let mut approved = sections.flat_map(|(_, table)| &table.approved).flat_map(|list| &list.items);
    if approved.any(|known| known.value.0 == digest.to_ascii_lowercase()) {
        return Ok(text.to_owned());
    }
    let mut document = parse(text)?;
    let section = section(&mut document, workspace)?;
    match section.entry("approved").or_insert_with(|| Item::Value(Value::Array(Array::new()))) {
        Item::Value(Value::Array(list)) => list.push(digest),
        Item::Value(single) => {
            let before = single.clone();
            *single = Value::Array(Array::from_iter([before, digest.into()]));
        }
        _ => return Err(WriteError::Inline("approved".to_owned())),
    }
    Ok(document.to_string())
}

fn read_top(text: &str) -> Result<Top, WriteError> {
    let source = Source::new(Path::new("config.toml"), text.as_bytes()).map_err(WriteError::Policy)?;
    let mut problems = Problems::new(&source);
    let top = read(&mut problems);
    problems.finish().map_err(WriteError::Policy)?;
    Ok(top.unwrap_or_default())
}

/// What was read once is read again by a parser that keeps comments; both have the same grammar.
fn parse(text: &str) -> Result<DocumentMut, WriteError> {
    text.parse().map_err(|error: toml_edit::TomlError| WriteError::Inline(error.message().to_owned()))
}

fn utf8(path: &Path) -> Result<&str, WriteError> {
    let plain = |text: &&str| Bytes::from(*text).display() == **text;
    path.to_str().filter(plain).ok_or_else(|| WriteError::Unwritable(Bytes::from(path).display()))
}

/// `[workspaces."/path"]`, made where there is none.
fn section<'d>(document: &'d mut DocumentMut, path: &str) -> Result<&'d mut Table, WriteError> {
    let inline = || WriteError::Inline("workspaces".to_owned());
    let workspaces = document.entry("workspaces").or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    let workspaces = workspaces.as_table_mut().ok_or_else(inline)?;
    let section = workspaces.entry(path).or_insert_with(|| Item::Table(Table::new()));
    section.as_table_mut().ok_or_else(inline)
}

fn words(rule: &CommandRule) -> Result<&[String], WriteError> {
    match &rule.pattern {
        CommandPattern::Words(words) | CommandPattern::Exact(words) if !words.is_empty() => Ok(words),
        CommandPattern::Words(_) | CommandPattern::Exact(_) => Err(WriteError::Unwritable(String::new())),
    }
}

/// The decision of an entry about the same command.
fn same_command(
    top: &Top,
    workspace: Option<&str>,
    rule: &CommandRule,
    words: &[String],
) -> Option<Decision> {
    let body: &Body = match workspace {
        None => &top.body,
        Some(path) => {
            let named = top.workspaces.iter().flat_map(|named| &named.0);
            &named.into_iter().find(|(name, _)| name.value == path)?.1.body
        }
    };
    let exact = matches!(rule.pattern, CommandPattern::Exact(_));
    let same_place = |table: &&CommandTable| {
        table.exact.as_ref().is_some_and(|exact| exact.value) == exact
            && table.here.as_ref().map(|here| Path::new(&here.value)) == rule.here.as_deref()
    };
    let lists = |table: &Option<Commands>| {
        table.as_ref().is_some_and(|list| list.items.iter().any(|item| item.value == words))
    };
    body.command.iter().flatten().filter(same_place).find_map(|table| {
        let kinds =
            [(&table.deny, Decision::Deny), (&table.ask, Decision::Ask), (&table.allow, Decision::Allow)];
        kinds.into_iter().find(|(list, _)| lists(list)).map(|(_, decision)| decision)
    })
}

fn entry(rule: &CommandRule, words: &[String]) -> Result<Table, WriteError> {
    let key = match rule.decision {
        Decision::Allow => "allow",
        Decision::Ask => "ask",
        Decision::Deny => "deny",
    };
    let mut table = Table::new();
    table.insert(key, Item::Value(command(words)?));
    if matches!(rule.pattern, CommandPattern::Exact(_)) {
        table.insert("exact", toml_edit::value(true));
    }
    if let Some(here) = &rule.here {
        table.insert("here", toml_edit::value(utf8(here)?));
    }
    if let Some(reason) = &rule.source.reason {
        table.insert("reason", toml_edit::value(Bytes::from(reason.as_str()).display()));
    }
    Ok(table)
}

/// As one would type it where that is unmistakable, word by word otherwise.
fn command(words: &[String]) -> Result<Value, WriteError> {
    let unwritable = || WriteError::Unwritable(Bytes::from(words.join(" ").as_str()).display());
    if words.iter().any(|word| word.is_empty() || Bytes::from(word.as_str()).display() != *word) {
        return Err(unwritable());
    }
    let typed = words.join(" ");
    if split(&typed).is_ok_and(|read| read == words) {
        return Ok(typed.into());
    }
    Ok(Value::Array(Array::from_iter([Value::Array(Array::from_iter(words.iter().map(String::as_str)))])))
}
