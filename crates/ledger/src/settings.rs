//! What is not in the chain itself: `ledger.toml`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence_types::{Bytes, units};
use serde::Deserialize;

use crate::anchor::Anchor;

const WRITABLE_BY_OTHERS: u32 = 0o022;

/// How long an anchor command may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How a ledger is kept.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Where checkpoints are kept besides; `None`: only in the chain.
    pub anchor: Option<Anchor>,
    /// `None`: a file in the state directory.
    pub server: Option<Server>,
}

/// A database that several nodes share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub url: String,
    /// The name of this node.
    pub node: String,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    #[error("cannot read `{}`", shown(path))]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}` can be changed by others", shown(path))]
    NotOurs { path: PathBuf },
    #[error("`{}` is not what it should be", shown(path))]
    Syntax { path: PathBuf, source: toml::de::Error },
    #[error("`{}`: {problem}", shown(path))]
    Wrong { path: PathBuf, problem: &'static str },
}

impl SettingsError {
    /// The one thing that would change the answer.
    pub fn hint(&self) -> String {
        match self {
            Self::NotOurs { path } => format!("chown it to yourself and chmod go-w '{}'", shown(path)),
            _ => "docs/ledger.md, \"Anchors\", has an example".to_owned(),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    anchor_file: Option<PathBuf>,
    anchor_command: Option<Vec<String>>,
    anchor_timeout: Option<String>,
    store: Option<String>,
    node: Option<String>,
}

impl Settings {
    /// What the file at `path` says. A file that is not there says nothing.
    pub fn load(path: &Path) -> Result<Self, SettingsError> {
        let failed = |source| SettingsError::Read { path: path.to_owned(), source };
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            other => other.map_err(failed)?,
        };
        let found = fs::metadata(path).map_err(failed)?;
        let is_ours = found.uid() == rustix::process::geteuid().as_raw() || found.uid() == 0;
        if !is_ours || found.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err(SettingsError::NotOurs { path: path.to_owned() });
        }
        let stored: Stored = toml::from_str(&text)
            .map_err(|source| SettingsError::Syntax { path: path.to_owned(), source })?;
        let wrong = |problem| SettingsError::Wrong { path: path.to_owned(), problem };
        let server = stored.server().map_err(wrong)?;
        let anchor = stored.anchor().map_err(wrong)?;
        Ok(Self { anchor, server })
    }
}

impl Stored {
    /// Whether the address is one is said by whoever connects.
    fn server(&self) -> Result<Option<Server>, &'static str> {
        match (&self.store, &self.node) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err("`node` is the name of this node in `store`, and there is no `store`"),
            (Some(url), node) => {
                let own = || rustix::system::uname().nodename().to_string_lossy().into_owned();
                Ok(Some(Server { url: url.clone(), node: node.clone().unwrap_or_else(own) }))
            }
        }
    }

    fn anchor(self) -> Result<Option<Anchor>, &'static str> {
        let timeout = match self.anchor_timeout.as_deref().map(str::parse::<units::Duration>) {
            None => TIMEOUT,
            Some(Ok(units::Duration(milliseconds))) => Duration::from_millis(milliseconds),
            Some(Err(_)) => return Err("`anchor_timeout` is a time like `10s`"),
        };
        match (self.anchor_file, self.anchor_command) {
            (None, None) => Ok(None),
            (Some(path), None) if path.is_absolute() => Ok(Some(Anchor::File(path))),
            (Some(_), None) => Err("`anchor_file` is an absolute path"),
            (None, Some(argv)) if argv.first().is_some_and(|program| Path::new(program).is_absolute()) => {
                let argv = argv.into_iter().map(OsString::from).collect();
                Ok(Some(Anchor::Command { argv, timeout }))
            }
            (None, Some(_)) => {
                Err("`anchor_command` is a list that begins with the absolute path of a program")
            }
            (Some(_), Some(_)) => Err("`anchor_file` and `anchor_command` exclude each other"),
        }
    }
}

fn shown(path: &Path) -> String {
    Bytes::from(path).display()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn settings_are_read_or_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.toml");
        assert!(Settings::load(&path).unwrap().anchor.is_none());
        let load = |text: &str| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            Settings::load(&path).map(|settings| settings.anchor)
        };
        assert_eq!(load("anchor_file = '/x/y'").unwrap(), Some(Anchor::File("/x/y".into())));
        let argv = vec!["/bin/a".into(), "b".into()];
        let timeout = Duration::from_secs(2);
        let command = load("anchor_command = ['/bin/a', 'b']\nanchor_timeout = '2s'").unwrap();
        assert_eq!(command, Some(Anchor::Command { argv, timeout }));
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
        assert!(matches!(Settings::load(&path), Err(SettingsError::NotOurs { .. })));
    }
}
