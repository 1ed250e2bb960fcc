//! Input of each tool. An unknown field is an error, and no parameter switches a check off.

use std::path::PathBuf;

use ringfence_api::CallSignal;
use ringfence_types::CallCeiling;
use rmcp::model::CallToolResult;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::result::malformed;

/// Parses the arguments of a call, or returns an error result.
pub fn read<T: DeserializeOwned>(arguments: &Value) -> Result<T, CallToolResult> {
    T::deserialize(arguments).map_err(|error| malformed(&format!("the arguments make no sense: {error}")))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecInput {
    pub command: String,
    pub cwd: Option<PathBuf>,
    pub description: Option<String>,
    pub ceiling: Option<CallCeiling>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadInput {
    pub path: PathBuf,
    pub first_line: Option<usize>,
    pub lines: Option<usize>,
}

impl ReadInput {
    /// The selected lines.
    pub fn part_of(&self, all: &str) -> String {
        let first = self.first_line.unwrap_or(1).saturating_sub(1);
        all.split_inclusive('\n').skip(first).take(self.lines.unwrap_or(usize::MAX)).collect()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteFileInput {
    pub path: PathBuf,
    pub content: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EditInput {
    pub path: PathBuf,
    pub old_text: String,
    pub new_text: String,
    #[serde(default)]
    pub all: bool,
}

/// Largest file that an edit may produce, equal to the largest that can be read.
const MOST: usize = 25 << 20;

impl EditInput {
    /// Applies the edit and returns the new content with the number of replacements.
    pub fn applied(&self, before: &str) -> Result<(String, usize), CallToolResult> {
        if self.old_text.is_empty() {
            return Err(malformed("`old_text` is empty"));
        }
        let count = before.matches(&self.old_text).count();
        match count {
            0 => Err(malformed("`old_text` is not in the file")),
            2.. if !self.all => {
                Err(malformed(&format!("`old_text` is {count} times in the file; say more, or `all`")))
            }
            _ if self.length(before, count).is_none_or(|length| length > MOST) => {
                Err(malformed(&format!("the file would have more than {MOST} bytes")))
            }
            _ => Ok((before.replace(&self.old_text, &self.new_text), count)),
        }
    }

    /// Length of the result, computed before the edit: many small replacements can exceed memory.
    fn length(&self, before: &str, count: usize) -> Option<usize> {
        let without = before.len() - count * self.old_text.len();
        self.new_text.len().checked_mul(count)?.checked_add(without)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListInput {
    pub path: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchInput {
    pub pattern: String,
    pub path: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FetchInput {
    pub url: String,
    pub method: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, tag = "action", rename_all = "snake_case")]
pub enum JobsInput {
    Start { command: String, cwd: Option<PathBuf>, description: Option<String> },
    List {},
    Logs { id: String },
    Signal { id: String, signal: CallSignal },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum ExplainInput {
    Command(String),
    Read(PathBuf),
    Write(PathBuf),
    Url(String),
    Tool(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_is_not_longer_than_a_file_may_be() {
        let edit = |new: &str| EditInput {
            path: PathBuf::from("a"),
            old_text: "a".to_owned(),
            new_text: new.to_owned(),
            all: true,
        };
        assert_eq!(edit("bc").applied("aXa").unwrap(), ("bcXbc".to_owned(), 2));
        let (many, long) = ("a".repeat(1 << 20), "b".repeat(1 << 20));
        assert_eq!(edit(&long).length(&many, 1 << 20), Some(1 << 40));
        assert!(edit(&long).applied(&many).is_err());
    }
}
