//! Built-in tools, by the names that policy uses (`docs/tools.md`).

use std::fmt;

/// A tool that clients are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BuiltinTool {
    Exec,
    ReadFile,
    WriteFile,
    EditFile,
    ListDir,
    Search,
    Fetch,
    Jobs,
    Explain,
    PermissionPrompt,
}

impl BuiltinTool {
    /// In the order of the tool list.
    pub const ALL: [Self; 10] = [
        Self::Exec,
        Self::ReadFile,
        Self::WriteFile,
        Self::EditFile,
        Self::ListDir,
        Self::Search,
        Self::Fetch,
        Self::Jobs,
        Self::Explain,
        Self::PermissionPrompt,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::ReadFile => "read_file",
            Self::WriteFile => "write_file",
            Self::EditFile => "edit_file",
            Self::ListDir => "list_dir",
            Self::Search => "search",
            Self::Fetch => "fetch",
            Self::Jobs => "jobs",
            Self::Explain => "explain",
            Self::PermissionPrompt => "permission_prompt",
        }
    }

    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.word() == word)
    }

    /// Whether policy evaluates the tool by name first. Such a tool consists of other calls, and the pipeline evaluates only those.
    pub fn is_judged_by_name(self) -> bool {
        match self {
            Self::EditFile | Self::Search | Self::Explain | Self::Jobs => true,
            Self::Exec
            | Self::ReadFile
            | Self::WriteFile
            | Self::ListDir
            | Self::Fetch
            // Evaluates tools of another program and has no effect itself.
            | Self::PermissionPrompt => false,
        }
    }
}

impl fmt::Display for BuiltinTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools;

    #[test]
    fn what_is_offered_is_what_there_is() {
        let words = BuiltinTool::ALL.map(BuiltinTool::word);
        assert_eq!(tools::all().iter().map(|tool| tool.name.as_ref()).collect::<Vec<_>>(), words);
        for word in words {
            assert_eq!(BuiltinTool::of_word(word).map(BuiltinTool::word), Some(word));
        }
        assert_eq!(BuiltinTool::of_word("EXEC"), None);
    }
}
