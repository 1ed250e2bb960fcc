//! Passwords from a file in the format of `~/.pgpass`: one line per server, `HOST:PORT:DATABASE:USER:PASSWORD`.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ringfence_types::ByteString;
use zeroize::Zeroizing;

use crate::postgres::address::{PostgresAddress, ServerHost};

/// More than the size of a password file.
const LONGEST: u64 = 64 * 1024;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PgpassError {
    #[error("cannot read the password file `{}`", shown(path))]
    Read { path: PathBuf, source: io::Error },
    #[error("the password file `{}` can be read by others (mode {mode:04o})", shown(path))]
    Exposed { path: PathBuf, mode: u32 },
    #[error("the password file `{}` is not a regular file", shown(path))]
    NotAFile { path: PathBuf },
    #[error("the password file `{}` has no line for this server, database and user", shown(path))]
    NoLine { path: PathBuf },
}

impl PgpassError {
    /// The next step for the operator.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Exposed { path, .. } => Some(format!("chmod 600 '{}'", shown(path))),
            Self::NoLine { .. } => Some("a line is `HOST:PORT:DATABASE:USER:PASSWORD`; `*` stands for any; a Unix socket is its directory or `localhost`".to_owned()),
            Self::Read { .. } | Self::NotAFile { .. } => None,
        }
    }
}

/// Wiped from memory on drop.
pub(crate) type Password = Zeroizing<Vec<u8>>;

pub(crate) fn read(path: &Path, address: &PostgresAddress) -> Result<Password, PgpassError> {
    let failed = |source| PgpassError::Read { path: path.to_owned(), source };
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(PgpassError::NotAFile { path: path.to_owned() });
    }
    if found.mode() & 0o077 != 0 {
        return Err(PgpassError::Exposed { path: path.to_owned(), mode: found.mode() & 0o7777 });
    }
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(LONGEST).read_to_end(&mut bytes).map_err(failed)?;
    find(&bytes, address).ok_or_else(|| PgpassError::NoLine { path: path.to_owned() })
}

fn find(bytes: &[u8], address: &PostgresAddress) -> Option<Password> {
    bytes.split(|byte| *byte == b'\n').find_map(|line| password_of(line, address))
}

fn password_of(line: &[u8], address: &PostgresAddress) -> Option<Password> {
    if line.starts_with(b"#") {
        return None;
    }
    let mut fields = PgpassFields { rest: line };
    let hosts: Vec<Vec<u8>> = match &address.host {
        ServerHost::Name(name) => vec![name.clone().into_bytes()],
        ServerHost::Socket(directory) => {
            vec![directory.as_os_str().as_encoded_bytes().to_vec(), b"localhost".to_vec()]
        }
    };
    let is_meant = [
        hosts,
        vec![address.port.to_string().into_bytes()],
        vec![address.database.clone().into_bytes()],
        vec![address.user.clone().into_bytes()],
    ]
    .iter()
    .all(|wanted| fields.next().is_some_and(|field| *field == *b"*" || wanted.contains(&field)));
    let password = fields.next().filter(|_| is_meant)?;
    let end = password.iter().rposition(|byte| *byte != b'\r').map_or(0, |at| at.saturating_add(1));
    Some(Zeroizing::new(password.get(..end)?.to_vec()))
}

/// Fields separated by colons; a backslash escapes the next byte.
struct PgpassFields<'a> {
    rest: &'a [u8],
}

impl Iterator for PgpassFields<'_> {
    type Item = Zeroizing<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let mut field = Zeroizing::new(Vec::new());
        let mut bytes = self.rest.iter();
        loop {
            match bytes.next() {
                None | Some(b':') => break,
                Some(b'\\') => field.extend(bytes.next()),
                Some(byte) => field.push(*byte),
            }
        }
        self.rest = bytes.as_slice();
        Some(field)
    }
}

fn shown(path: &Path) -> String {
    ByteString::from(path).display()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn address(url: &str) -> PostgresAddress {
        url.parse().unwrap()
    }

    fn found(lines: &str, url: &str) -> Option<String> {
        find(lines.as_bytes(), &address(url)).map(|password| String::from_utf8(password.to_vec()).unwrap())
    }

    #[test]
    fn the_first_line_that_fits_counts() {
        let lines = "# db.example:5432:d:me:no\nother:*:*:*:no\ndb.example:6000:*:*:no\n\
            db.example:5432:d:me:a\\:b\\\\c\r\n*:*:*:*:any\n";
        assert_eq!(found(lines, "postgres://me@db.example/d").as_deref(), Some("a:b\\c"));
        assert_eq!(found(lines, "postgres://you@db.example/d").as_deref(), Some("any"));
        assert_eq!(found("localhost:*:*:me:s\n", "postgres://me@/d?host=/run/x").as_deref(), Some("s"));
        assert_eq!(found("/run/x:*:*:me:s\n", "postgres://me@/d?host=/run/x").as_deref(), Some("s"));
        assert_eq!(found("db.example:5432:d\n\n:", "postgres://me@db.example/d"), None);
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("passwords");
        fs::write(&path, "*:*:*:*:s\n").unwrap();
        let address = address("postgres://me@localhost/d");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(read(&path, &address), Err(PgpassError::Exposed { mode: 0o640, .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(*read(&path, &address).unwrap(), b"s");
        assert!(matches!(read(directory.path(), &address), Err(PgpassError::NotAFile { .. })));
    }
}
