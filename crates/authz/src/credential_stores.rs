//! The credential stores of a home directory (S001-18). They stay closed even where everything else is open.

use std::path::{Path, PathBuf};

/// Below the home directory, verbatim from document 001.
pub const IN_HOME: &[&str] =
    &[".ssh", ".aws", ".gnupg", ".kube", ".config/gcloud", ".config/gh", ".docker", ".pypirc", ".npmrc"];

pub fn roots(home: &Path) -> impl Iterator<Item = PathBuf> {
    IN_HOME.iter().map(move |name| home.join(name))
}

/// The sensitive root that `path` is, or is inside of.
pub fn around(home: &Path, path: &Path) -> Option<PathBuf> {
    roots(home).find(|root| path.starts_with(root))
}
