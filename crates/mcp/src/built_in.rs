//! The tools by their names, which are those of the policy (`docs/tools.md`).

use std::fmt;

/// A tool that clients are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BuiltIn {
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

impl BuiltIn {
    /// In the order in which they are offered.
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

    /// Whether it is to be judged by its name before anything is done: it is no call of the pipeline by this name, which would judge
    /// what it consists of, and not it.
    pub fn is_judged_by_name(self) -> bool {
        match self {
            Self::EditFile | Self::Search | Self::Explain | Self::Jobs => true,
            Self::Exec
            | Self::ReadFile
            | Self::WriteFile
            | Self::ListDir
            | Self::Fetch
            // It judges the tools of another program, and does nothing.
            | Self::PermissionPrompt => false,
        }
    }
}

impl fmt::Display for BuiltIn {
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
        let words = BuiltIn::ALL.map(BuiltIn::word);
        assert_eq!(tools::all().iter().map(|tool| tool.name.as_ref()).collect::<Vec<_>>(), words);
        for word in words {
            assert_eq!(BuiltIn::of_word(word).map(BuiltIn::word), Some(word));
        }
        assert_eq!(BuiltIn::of_word("EXEC"), None);
    }
}
