//! Address of a server: `postgres://USER@HOST:PORT/DATABASE?…`. Holds no secret, so it can be shown.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use ringfence_types::ByteString;
use url::form_urlencoded;

const DEFAULT_PORT: u16 = 5432;

/// A database on a server. Written as for `psql`, without a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresAddress {
    pub(crate) host: ServerHost,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) database: String,
    pub(crate) channel: ConnectionSecurity,
    /// In the format of `~/.pgpass`.
    pub(crate) passfile: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerHost {
    /// The directory of a Unix socket.
    Socket(PathBuf),
    Name(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionSecurity {
    /// No encryption. Allowed only for a Unix socket or the loopback interface, where no third party can listen.
    Plain,
    /// TLS with a certificate for the host name from one of these authorities. `None`: the system's.
    Tls { authorities: Option<PathBuf> },
}

/// No variant quotes text that may be a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresAddressError {
    #[error("the address of the store is no URL")]
    NotAUrl,
    #[error("the address of the store begins with `{}:`", shown(scheme))]
    Scheme { scheme: String },
    #[error("there is a password in the address of the store")]
    Password,
    #[error("the address of the store does not say which {0}")]
    Missing(&'static str),
    #[error("the address of the store has a parameter `{}` that means nothing here", shown(name))]
    Parameter { name: String },
    #[error("the address of the store says `{}` twice", shown(name))]
    Twice { name: String },
    #[error("the address of the store has `sslmode={}`", shown(mode))]
    Mode { mode: String },
    #[error("the address of the store has `port={}`", shown(port))]
    Port { port: String },
    #[error(
        "`{}` is neither a Unix socket nor this machine, and its address says `sslmode=disable`",
        shown(host)
    )]
    Exposed { host: String },
    #[error("`{}` is no absolute path", shown(path))]
    Relative { path: String },
    #[error("the address of the store is not UTF-8")]
    Encoding,
}

impl PostgresAddressError {
    /// The next step for the operator.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotAUrl | Self::Scheme { .. } | Self::Missing(_) => Some(
                "write `postgres://USER@HOST/DATABASE` or `postgres://USER@/DATABASE?host=/run/postgresql`",
            ),
            Self::Password => Some(
                "every user can read the arguments of a process: put a line `HOST:PORT:DATABASE:USER:PASSWORD` into a file of mode 0600 and add `?passfile=FILE`",
            ),
            Self::Parameter { .. } => {
                Some("there are: host, port, user, dbname, passfile, sslmode, sslrootcert")
            }
            Self::Mode { .. } => Some("there are: `disable` (socket or loopback only) and `verify-full`"),
            Self::Exposed { .. } => {
                Some("use `sslmode=verify-full`, with `sslrootcert=FILE` for an authority of your own")
            }
            Self::Twice { .. } | Self::Port { .. } | Self::Relative { .. } | Self::Encoding => None,
        }
    }
}

impl FromStr for PostgresAddress {
    type Err = PostgresAddressError;

    fn from_str(text: &str) -> Result<Self, PostgresAddressError> {
        let (scheme, rest) = text.split_once("://").ok_or(PostgresAddressError::NotAUrl)?;
        if !matches!(scheme, "postgres" | "postgresql") {
            return Err(PostgresAddressError::Scheme { scheme: scheme.to_owned() });
        }
        AddressParts::of(rest)?.address()
    }
}

impl fmt::Display for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, user, database, .. } = self;
        let (user, database) = (shown(user), shown(database));
        match host {
            ServerHost::Socket(directory) => {
                write!(
                    f,
                    "postgres://{user}@/{database}?host={}&port={port}",
                    ByteString::from(directory.as_path()).display()
                )
            }
            ServerHost::Name(name) => write!(f, "postgres://{user}@{}:{port}/{database}", shown(name)),
        }
    }
}

/// What the address says, as text.
#[derive(Default)]
struct AddressParts {
    host: Option<String>,
    port: Option<String>,
    user: Option<String>,
    dbname: Option<String>,
    passfile: Option<String>,
    sslmode: Option<String>,
    sslrootcert: Option<String>,
}

impl AddressParts {
    /// `[USER@][HOST][:PORT][/DATABASE][?NAME=VALUE&…]`. WHY NOT the parser for web addresses: it knows no user without a
    /// host, which is how a socket is written.
    fn of(text: &str) -> Result<Self, PostgresAddressError> {
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        let (user, server) = authority.rsplit_once('@').unwrap_or(("", authority));
        if user.contains(':') {
            return Err(PostgresAddressError::Password);
        }
        let (host, port) = match server.rsplit_once(':') {
            // The colons of `[::1]` are its own.
            Some((host, port)) if !port.contains(']') => (host, port),
            _ => (server, ""),
        };
        let mut parts = Self::default();
        for (name, value) in [("user", user), ("host", host), ("port", port), ("dbname", database)] {
            parts.put(name, decoded(value)?)?;
        }
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            parts.put(&name, value.into_owned())?;
        }
        Ok(parts)
    }

    fn put(&mut self, name: &str, value: String) -> Result<(), PostgresAddressError> {
        let slot = match name {
            "host" => &mut self.host,
            "port" => &mut self.port,
            "user" => &mut self.user,
            "dbname" => &mut self.dbname,
            "passfile" => &mut self.passfile,
            "sslmode" => &mut self.sslmode,
            "sslrootcert" => &mut self.sslrootcert,
            "password" => return Err(PostgresAddressError::Password),
            _ => return Err(PostgresAddressError::Parameter { name: name.to_owned() }),
        };
        if value.is_empty() {
            return Ok(());
        }
        if slot.is_some() {
            return Err(PostgresAddressError::Twice { name: name.to_owned() });
        }
        *slot = Some(value);
        Ok(())
    }

    fn address(self) -> Result<PostgresAddress, PostgresAddressError> {
        let host = self.host.ok_or(PostgresAddressError::Missing("host"))?;
        let channel = channel(&host, self.sslmode.as_deref(), self.sslrootcert)?;
        let port = match self.port {
            None => DEFAULT_PORT,
            Some(port) => port.parse().map_err(|_not_a_port| PostgresAddressError::Port { port })?,
        };
        Ok(PostgresAddress {
            host: if host.starts_with('/') {
                ServerHost::Socket(host.into())
            } else {
                ServerHost::Name(host)
            },
            port,
            user: self.user.ok_or(PostgresAddressError::Missing("user"))?,
            database: self.dbname.ok_or(PostgresAddressError::Missing("database"))?,
            channel,
            passfile: self.passfile.map(absolute).transpose()?,
        })
    }
}

/// WHY NOT `require` as libpq defines it: encryption without authentication does not protect from a man in the middle.
fn channel(
    host: &str,
    mode: Option<&str>,
    authorities: Option<String>,
) -> Result<ConnectionSecurity, PostgresAddressError> {
    let is_here = is_here(host);
    match mode {
        None | Some("disable") if is_here => Ok(ConnectionSecurity::Plain),
        Some("disable") => Err(PostgresAddressError::Exposed { host: host.to_owned() }),
        None | Some("require" | "verify-full") if !host.starts_with('/') => {
            Ok(ConnectionSecurity::Tls { authorities: authorities.map(absolute).transpose()? })
        }
        mode => Err(PostgresAddressError::Mode { mode: mode.unwrap_or_default().to_owned() }),
    }
}

fn is_here(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.starts_with('/') || host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn absolute(path: String) -> Result<PathBuf, PostgresAddressError> {
    if path.starts_with('/') { Ok(path.into()) } else { Err(PostgresAddressError::Relative { path }) }
}

fn decoded(text: &str) -> Result<String, PostgresAddressError> {
    // A plus sign means a space only in a query.
    let text = text.replace('+', "%2B");
    let value = form_urlencoded::parse(text.as_bytes()).next().map(|(name, _)| name.into_owned());
    match value {
        None => Ok(String::new()),
        Some(value) if value.contains(char::REPLACEMENT_CHARACTER) => Err(PostgresAddressError::Encoding),
        Some(value) => Ok(value),
    }
}

fn shown(text: &str) -> String {
    ByteString::from(text).display()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<PostgresAddress, PostgresAddressError> {
        text.parse()
    }

    #[test]
    fn sockets_and_hosts_are_told_apart() {
        let socket = parse("postgres://me@/ledger?host=/run/postgresql").unwrap();
        assert_eq!(socket.host, ServerHost::Socket("/run/postgresql".into()));
        assert_eq!((socket.port, socket.user.as_str(), socket.database.as_str()), (5432, "me", "ledger"));
        assert_eq!(socket.channel, ConnectionSecurity::Plain);
        assert_eq!(parse("postgresql://me@%2Frun%2Fpostgresql/ledger").unwrap(), socket);
        let host = parse("postgres://me@db.example:6000/ledger").unwrap();
        assert_eq!((host.host, host.port), (ServerHost::Name("db.example".to_owned()), 6000));
    }

    #[test]
    fn nothing_leaves_the_machine_without_tls() {
        for here in ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"] {
            assert_eq!(
                parse(&format!("postgres://me@{here}/d")).unwrap().channel,
                ConnectionSecurity::Plain,
                "{here}"
            );
        }
        for away in ["db.example", "192.0.2.1", "localhost.example", "0.0.0.0", "[::]"] {
            let url = format!("postgres://me@{away}/d");
            assert_eq!(parse(&url).unwrap().channel, ConnectionSecurity::Tls { authorities: None }, "{away}");
            let refused = parse(&format!("{url}?sslmode=disable"));
            assert!(matches!(refused, Err(PostgresAddressError::Exposed { .. })), "{away}");
            for weak in ["allow", "prefer", "verify-ca", "Require"] {
                let refused = parse(&format!("{url}?sslmode={weak}"));
                assert!(matches!(refused, Err(PostgresAddressError::Mode { .. })), "{away} {weak}");
            }
        }
        let own = parse("postgres://me@db.example/d?sslmode=require&sslrootcert=/etc/own.pem").unwrap();
        assert_eq!(own.channel, ConnectionSecurity::Tls { authorities: Some("/etc/own.pem".into()) });
    }

    #[test]
    fn a_password_is_refused_and_never_repeated() {
        let secret = "hunter2";
        for url in [
            format!("postgres://me:{secret}@db.example/d"),
            format!("postgres://me@db.example/d?password={secret}"),
            format!("postgres://me:{secret}@db.example:99999999/d"),
            format!("mysql://me:{secret}@db.example/d"),
            format!("postgres://me@db.example/d?{secret}x=1&password={secret}"),
        ] {
            let error = parse(&url).unwrap_err();
            let said = format!("{error:?} {error} {:?}", error.hint());
            assert!(!said.contains(&format!("{secret}@")) && !said.contains("=hunter2"), "{said}");
        }
        assert_eq!(parse("postgres://me:x@h/d"), Err(PostgresAddressError::Password));
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for (url, expected) in [
            ("postgres://me@/d", PostgresAddressError::Missing("host")),
            ("postgres://localhost/d", PostgresAddressError::Missing("user")),
            ("postgres://me@localhost", PostgresAddressError::Missing("database")),
            (
                "postgres://me@localhost/d?options=-c",
                PostgresAddressError::Parameter { name: "options".to_owned() },
            ),
            ("postgres://me@localhost/d?user=you", PostgresAddressError::Twice { name: "user".to_owned() }),
            ("postgres://me@localhost/d?port=x", PostgresAddressError::Port { port: "x".to_owned() }),
            (
                "postgres://me@localhost/d?passfile=here",
                PostgresAddressError::Relative { path: "here".to_owned() },
            ),
            (
                "postgres://me@/d?host=/run&sslmode=verify-full",
                PostgresAddressError::Mode { mode: "verify-full".to_owned() },
            ),
        ] {
            assert_eq!(parse(url).unwrap_err(), expected, "{url}");
        }
    }

    #[test]
    fn an_address_is_shown_as_it_was_given() {
        for url in
            ["postgres://me@db.example:6000/ledger", "postgres://me@/ledger?host=/run/postgresql&port=5432"]
        {
            assert_eq!(parse(url).unwrap().to_string(), url);
        }
    }
}
