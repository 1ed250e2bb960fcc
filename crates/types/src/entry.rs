//! Entries of directories.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What an entry of a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    Directory,
    File,
    Link,
    /// A socket, a pipe or a device.
    Other,
}

impl EntryKind {
    pub const ALL: [Self; 4] = [Self::Directory, Self::File, Self::Link, Self::Other];

    pub fn word(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::File => "file",
            Self::Link => "link",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for EntryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_its_word() {
        for kind in EntryKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.word());
        }
    }
}
