//! The files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;

/// Every regular file below `root`, as paths relative to it, without build output and git's own files.
pub(crate) fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    collect(root, Path::new(""), &mut found)?;
    found.sort();
    Ok(found)
}

fn collect(root: &Path, below: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if is_foreign(&entry.file_name().to_string_lossy()) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            collect(root, &path, found)?;
        } else if kind.is_file() {
            found.push(path);
        }
    }
    Ok(())
}

/// `.git` is a file in a linked worktree.
fn is_foreign(name: &str) -> bool {
    name == ".git" || name == "target"
}
