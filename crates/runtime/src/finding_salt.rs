//! The salt of secret fingerprints, which only tell whether two findings are the same secret.
//!
//! Without the salt an attacker could guess a short secret from its fingerprint. It never leaves the state
//! directory.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};

#[derive(Debug)]
pub(crate) struct StateSalt([u8; 32]);

impl StateSalt {
    /// Loads the salt of a state directory, and makes it if it is missing.
    pub(crate) fn load(state_dir: &Path) -> io::Result<Self> {
        let path = state_dir.join("salt");
        match read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make(&path)?;
                read(&path)
            }
            read => read,
        }
    }

    pub(crate) fn of_scanner(&self) -> ringfence_scan::FingerprintSalt {
        ringfence_scan::FingerprintSalt::new(self.0)
    }
}

fn read(path: &Path) -> io::Result<StateSalt> {
    let mut salt = [0; 32];
    File::open(path)?.read_exact(&mut salt)?;
    Ok(StateSalt(salt))
}

/// Makes the salt atomically. If several processes make one, the first wins.
fn make(path: &Path) -> io::Result<()> {
    let mut salt = [0; 32];
    getrandom::fill(&mut salt).map_err(io::Error::other)?;
    let draft = path.with_added_extension(format!("{}.new", std::process::id()));
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(&salt)?;
    file.sync_all()?;
    let renamed = renameat_with(CWD, &draft, CWD, path, RenameFlags::NOREPLACE);
    if renamed.is_err() {
        let _gone = fs::remove_file(&draft);
    }
    match renamed {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_state_directory_has_one_salt_and_another_has_another() {
        let [one, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let of = |place: &tempfile::TempDir| StateSalt::load(place.path()).unwrap().0;
        assert_eq!(of(&one), of(&one));
        assert_ne!(of(&one), of(&other));
        let mode = fs::metadata(one.path().join("salt")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
