//! What can fail.

use std::io;
use std::path::PathBuf;

use ringfence_types::ByteString;

#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    #[error("cannot {action} `{}`", ByteString::from(path.as_path()).display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("`{}` is not a directory that is yours alone", ByteString::from(path.as_path()).display())]
    NotPrivate { path: PathBuf },
    #[error("`{}` is not the name of a layer", ByteString::from(id.as_str()).display())]
    BadId { id: String },
    #[error("the layer `{id}` exists already")]
    Exists { id: String },
    #[error("there is no layer `{id}`")]
    Unknown { id: String },
    #[error("another process works with the layer `{id}`")]
    InUse { id: String },
    /// A record that this version did not write.
    #[error("the record `{}` cannot be read", ByteString::from(path.as_path()).display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// The layer has a landing that [`crate::LayerStore::recover`] must end first.
    #[error("the last landing of the layer `{id}` was cut off")]
    Interrupted { id: String },
    #[error("the view of the layer `{id}` is still open")]
    ViewOpen { id: String },
    #[error("`{}` is not a root of the layer", ByteString::from(path.as_path()).display())]
    UnknownRoot { path: PathBuf },
    #[error("`{}` is another directory than the one that the layer is of", ByteString::from(path.as_path()).display())]
    RootReplaced { path: PathBuf },
    /// KERNEL: some network and user-space file systems have no RENAME_EXCHANGE.
    #[error("the file system of `{}` cannot exchange two files", ByteString::from(path.as_path()).display())]
    NoExchange { path: PathBuf },
}

impl LayerError {
    pub(crate) fn io(action: &'static str, path: &std::path::Path, source: impl Into<io::Error>) -> Self {
        Self::Io { action, path: path.to_owned(), source: source.into() }
    }
}
