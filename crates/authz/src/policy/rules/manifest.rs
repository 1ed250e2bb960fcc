//! What a program says about itself: the output of its `__manifest` (S000-22), version 2.

use serde::Deserialize;

/// Names commands that agents may use. One that is missing was hidden on purpose and is not for them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Manifest {
    pub(super) version: u32,
    /// The program.
    pub(super) cli: String,
    pub(super) commands: Vec<ManifestCommand>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct ManifestCommand {
    /// Its subcommands, separated by spaces, without the program.
    pub(super) path: String,
    pub(super) agent_allowed: bool,
    #[serde(default)]
    pub(super) reason: String,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ManifestError {
    #[error("the manifest is not readable: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the manifest has version {0}, and only version 2 is known")]
    Version(u32),
    #[error("the manifest has {0} bytes, and the most is {max}", max = super::super::text::MAX_BYTES)]
    TooLarge(usize),
    #[error("the manifest names a command that is no words: `{0}`")]
    Path(String),
}

impl Manifest {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.len() > super::super::text::MAX_BYTES {
            return Err(ManifestError::TooLarge(bytes.len()));
        }
        let manifest: Self = serde_json::from_slice(bytes)?;
        if manifest.version != 2 {
            return Err(ManifestError::Version(manifest.version));
        }
        let wrong = manifest.commands.iter().map(|command| &command.path).find(|path| !is_words(path));
        match wrong.or_else(|| Some(&manifest.cli).filter(|cli| !is_words(cli) || cli.contains(' '))) {
            Some(path) => Err(ManifestError::Path(super::super::read::shorten(path))),
            None => Ok(manifest),
        }
    }

    /// Whether there are commands below this one, so that its next word would be one of them.
    pub(super) fn is_group(&self, path: &str) -> bool {
        self.commands
            .iter()
            .any(|other| other.path.strip_prefix(path).is_some_and(|rest| rest.starts_with(' ')))
    }
}

/// Plain words, none of which could be an option.
fn is_words(path: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:+-".contains(&byte);
    path.split(' ').all(|word| !word.is_empty() && !word.starts_with('-') && word.bytes().all(plain))
}
