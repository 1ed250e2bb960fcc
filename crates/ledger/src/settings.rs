//! Settings of the ledger: `ledger.toml`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence_types::{ByteString, ChainId, units};
use serde::Deserialize;

use crate::anchor::CheckpointAnchor;

const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Timeout of an anchor command.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of a ledger.
#[derive(Clone, Debug, Default)]
pub struct LedgerSettings {
    /// Anchor for checkpoints; `None`: the chain only.
    pub anchor: Option<CheckpointAnchor>,
    /// `None`: a file in the state directory.
    pub server: Option<LedgerServer>,
}

impl LedgerSettings {
    /// The chain that the anchor knows last.
    pub(crate) fn anchored_chain(&self) -> Option<ChainId> {
        let newest = self.anchor.as_ref()?.newest().ok()??;
        Some(newest.checkpoint.chain)
    }
}

/// A database that several nodes share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerServer {
    pub url: String,
    /// The name of this node.
    pub node: String,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerSettingsError {
    #[error("cannot read `{}`", shown(path))]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}` can be changed by others", shown(path))]
    NotOurs { path: PathBuf },
    #[error("`{}` is not what it should be", shown(path))]
    Syntax { path: PathBuf, source: toml::de::Error },
    #[error("`{}`: {problem}", shown(path))]
    Wrong { path: PathBuf, problem: &'static str },
}

impl LedgerSettingsError {
    /// The next step for the operator.
    pub fn hint(&self) -> String {
        match self {
            Self::NotOurs { path } => format!("chown it to yourself and chmod go-w '{}'", shown(path)),
            _ => "docs/ledger.md, \"Anchors\", has an example".to_owned(),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LedgerToml {
    anchor_file: Option<PathBuf>,
    anchor_command: Option<Vec<String>>,
    anchor_timeout: Option<String>,
    store: Option<String>,
    node: Option<String>,
}

impl LedgerSettings {
    /// Reads the file at `path`. A missing file means the defaults.
    pub fn load(path: &Path) -> Result<Self, LedgerSettingsError> {
        let failed = |source| LedgerSettingsError::Read { path: path.to_owned(), source };
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            other => other.map_err(failed)?,
        };
        let found = fs::metadata(path).map_err(failed)?;
        let is_ours = found.uid() == rustix::process::geteuid().as_raw() || found.uid() == 0;
        if !is_ours || found.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err(LedgerSettingsError::NotOurs { path: path.to_owned() });
        }
        let stored: LedgerToml = toml::from_str(&text)
            .map_err(|source| LedgerSettingsError::Syntax { path: path.to_owned(), source })?;
        let wrong = |problem| LedgerSettingsError::Wrong { path: path.to_owned(), problem };
        let server = stored.server().map_err(wrong)?;
        let anchor = stored.anchor().map_err(wrong)?;
        Ok(Self { anchor, server })
    }
}

impl LedgerToml {
    /// The address is validated when connecting.
    fn server(&self) -> Result<Option<LedgerServer>, &'static str> {
        match (&self.store, &self.node) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err("`node` is the name of this node in `store`, and there is no `store`"),
            (Some(url), node) => {
                let own = || rustix::system::uname().nodename().to_string_lossy().into_owned();
                Ok(Some(LedgerServer { url: url.clone(), node: node.clone().unwrap_or_else(own) }))
            }
        }
    }

    fn anchor(self) -> Result<Option<CheckpointAnchor>, &'static str> {
        let timeout = match self.anchor_timeout.as_deref().map(str::parse::<units::HumanDuration>) {
            None => TIMEOUT,
            Some(Ok(units::HumanDuration(milliseconds))) => Duration::from_millis(milliseconds),
            Some(Err(_)) => return Err("`anchor_timeout` is a time like `10s`"),
        };
        match (self.anchor_file, self.anchor_command) {
            (None, None) => Ok(None),
            (Some(path), None) if path.is_absolute() => Ok(Some(CheckpointAnchor::File(path))),
            (Some(_), None) => Err("`anchor_file` is an absolute path"),
            (None, Some(argv)) if argv.first().is_some_and(|program| Path::new(program).is_absolute()) => {
                let argv = argv.into_iter().map(OsString::from).collect();
                Ok(Some(CheckpointAnchor::Command { argv, timeout }))
            }
            (None, Some(_)) => {
                Err("`anchor_command` is a list that begins with the absolute path of a program")
            }
            (Some(_), Some(_)) => Err("`anchor_file` and `anchor_command` exclude each other"),
        }
    }
}

fn shown(path: &Path) -> String {
    ByteString::from(path).display()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn settings_are_read_or_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.toml");
        assert!(LedgerSettings::load(&path).unwrap().anchor.is_none());
        let load = |text: &str| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            LedgerSettings::load(&path).map(|settings| settings.anchor)
        };
        assert_eq!(load("anchor_file = '/x/y'").unwrap(), Some(CheckpointAnchor::File("/x/y".into())));
        let argv = vec!["/bin/a".into(), "b".into()];
        let timeout = Duration::from_secs(2);
        let command = load("anchor_command = ['/bin/a', 'b']\nanchor_timeout = '2s'").unwrap();
        assert_eq!(command, Some(CheckpointAnchor::Command { argv, timeout }));
        for bad in [
            "anchor_file = 'x'",
            "anchor_command = ['a']",
            "anchor_command = []",
            "anchor_file = '/x'\nanchor_command = ['/a']",
            "anchor_timeout = 'soon'",
            "anchor_fiel = '/x'",
            "anchor_file",
        ] {
            let error = load(bad).unwrap_err();
            assert!(!error.hint().is_empty(), "{bad}: {error}");
        }
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).unwrap();
        assert!(matches!(LedgerSettings::load(&path), Err(LedgerSettingsError::NotOurs { .. })));
    }
}
