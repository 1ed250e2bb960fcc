//! A connection to the server: opened on demand, with timeouts for everything, and reopened after a loss.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::join;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Row, SimpleQueryMessage, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::postgres::address::{ConnectionSecurity, PostgresAddress, ServerHost};
use crate::postgres::error::{ConnectError, ConnectionFault};
use crate::postgres::pgpass;
use crate::store::StoreFault;

const CONNECT: Duration = Duration::from_secs(5);

/// Longer than the statement timeout of the server, so that the server's error arrives first.
const ANSWER: Duration = Duration::from_secs(12);
const PAUSE: Duration = Duration::from_millis(50);
const KEEPALIVE: Duration = Duration::from_secs(10);

const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Names resolve in `pg_catalog` only, so a role that can create functions in another schema cannot get them called. WHY NOT `jit`:
/// it compiles for longer than these statements run.
const SETTINGS: &str = "
    SET search_path = pg_catalog;
    SET statement_timeout = '10s';
    SET lock_timeout = '5s';
    SET idle_in_transaction_session_timeout = '15s';
    SET client_min_messages = 'warning';
    SET default_transaction_isolation = 'read committed';
    SET jit = off;
    SELECT set_config('synchronous_commit',
        CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false);
    SELECT current_setting('server_version_num') AS version_number, current_setting('server_version') AS version,
        current_setting('synchronous_commit') AS synchronous_commit, current_setting('fsync') AS fsync,
        current_setting('full_page_writes') AS full_page_writes, current_setting('server_encoding') AS encoding,
        current_setting('transaction_read_only') AS read_only;
";

const OLDEST: u32 = 150_000;

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionPurpose {
    Append,
    Read,
}

pub(crate) struct PostgresConnection {
    pub(crate) address: PostgresAddress,
    purpose: ConnectionPurpose,
    /// Never waited for: see [`Drop`].
    runtime: Option<Runtime>,
    live: Option<OpenConnection>,
    pub(crate) transaction: TransactionState,
    /// Deadline for an unreachable server.
    pub(crate) until: Option<Instant>,
}

struct OpenConnection {
    client: Client,
    statements: HashMap<String, Statement>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransactionState {
    None,
    Open,
    /// The connection was lost inside a transaction.
    Lost,
}

pub(crate) type Parameters<'a> = [&'a (dyn ToSql + Sync)];

impl fmt::Debug for PostgresConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("address", &self.address.to_string()).finish_non_exhaustive()
    }
}

/// A hanging name lookup must not block the drop.
impl Drop for PostgresConnection {
    fn drop(&mut self) {
        self.live = None;
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl PostgresConnection {
    pub(crate) fn new(address: PostgresAddress, purpose: ConnectionPurpose) -> Result<Self, ConnectError> {
        // A runtime on the caller's thread: the connection makes progress only during a call.
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| ConnectError::Runtime(StoreFault::new(error)))?;
        Ok(Self {
            address,
            purpose,
            runtime: Some(runtime),
            live: None,
            transaction: TransactionState::None,
            until: None,
        })
    }

    /// Another connection to the same server.
    pub(crate) fn again(&self, purpose: ConnectionPurpose) -> Result<Self, ConnectError> {
        Self::new(self.address.clone(), purpose)
    }

    pub(crate) fn connect(&mut self) -> Result<(), ConnectError> {
        if self.live.as_ref().is_some_and(|live| !live.client.is_closed()) {
            return Ok(());
        }
        self.live = None;
        loop {
            match self.open().map_err(|trouble| trouble.into_connect(self.address.to_string())) {
                Ok(client) => {
                    self.live = Some(OpenConnection { client, statements: HashMap::new() });
                    return Ok(());
                }
                Err(error) if error.is_passing() && self.has_patience() => thread::sleep(PAUSE),
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn has_patience(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }

    fn open(&self) -> Result<Client, ConnectionFault> {
        let config = self.config().map_err(ConnectionFault::Connect)?;
        match &self.address.channel {
            ConnectionSecurity::Plain => self.wait(CONNECT, async {
                let (client, connection) = config.connect(NoTls).await?;
                drop(tokio::spawn(connection));
                self.settle(client).await
            }),
            ConnectionSecurity::Tls { authorities } => {
                let tls = tls(authorities.as_deref()).map_err(ConnectionFault::Connect)?;
                self.wait(CONNECT, async {
                    let (client, connection) = config.connect(tls).await?;
                    drop(tokio::spawn(connection));
                    self.settle(client).await
                })
            }
        }
    }

    fn config(&self) -> Result<Config, ConnectError> {
        let mut config = Config::new();
        match &self.address.host {
            ServerHost::Socket(directory) => config.host_path(directory),
            ServerHost::Name(name) => config.host(name.trim_start_matches('[').trim_end_matches(']')),
        };
        config
            .port(self.address.port)
            .user(&self.address.user)
            .dbname(&self.address.database)
            .application_name("ringfence")
            .connect_timeout(CONNECT)
            .keepalives_idle(KEEPALIVE)
            .keepalives_interval(KEEPALIVE)
            .keepalives_retries(3)
            .tcp_user_timeout(ANSWER)
            .ssl_mode(match self.address.channel {
                ConnectionSecurity::Plain => SslMode::Disable,
                ConnectionSecurity::Tls { .. } => SslMode::Require,
            });
        if let Some(path) = &self.address.passfile {
            let password = pgpass::read(path, &self.address).map_err(ConnectError::password)?;
            config.password(password.as_slice());
        }
        Ok(config)
    }

    async fn settle(&self, client: Client) -> Result<Client, ConnectionFault> {
        let said = client.simple_query(SETTINGS).await?;
        let row = said.iter().rev().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let value = |name: &str| row.and_then(|row| row.get(name)).unwrap_or_default().to_owned();
        self.check(&value).map_err(ConnectionFault::Connect)?;
        Ok(client)
    }

    fn check(&self, value: &dyn Fn(&str) -> String) -> Result<(), ConnectError> {
        if value("version_number").parse::<u32>().unwrap_or(0) < OLDEST {
            return Err(ConnectError::TooOld { found: value("version") });
        }
        if value("encoding") != "UTF8" {
            return Err(ConnectError::Encoding { found: value("encoding") });
        }
        if self.purpose == ConnectionPurpose::Read {
            return Ok(());
        }
        for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
            let value = value(setting);
            if !matches!(value.as_str(), "on" | "remote_apply") {
                return Err(ConnectError::NotDurable { setting, value });
            }
        }
        if value("read_only") == "on" { Err(ConnectError::ReadOnly) } else { Ok(()) }
    }

    /// Runs a statement and returns its rows. Outside a transaction it is retried once on a new connection, so it must be
    /// idempotent.
    pub(crate) fn read(
        &mut self,
        sql: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, ConnectionFault> {
        let is_fresh = self.live.is_none();
        match self.once(sql, parameters) {
            Err(trouble) if trouble.is_lost() && !is_fresh && self.transaction == TransactionState::None => {
                self.once(sql, parameters)
            }
            other => other,
        }
    }

    /// Runs a statement once.
    pub(crate) fn once(
        &mut self,
        sql: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, ConnectionFault> {
        let statement = self.prepare(sql)?;
        let answer = self.with(async |client| Ok(client.query(&statement, parameters).await?));
        self.notice(answer)
    }

    /// Runs `before`, which must take no parameters, and a statement in one round trip.
    pub(crate) fn after(
        &mut self,
        before: &str,
        sql: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, ConnectionFault> {
        let statement = self.prepare(sql)?;
        self.transaction = TransactionState::Open;
        let answer = self.with(async |client| {
            let (before, rows) =
                join(client.batch_execute(before), client.query(&statement, parameters)).await;
            before?;
            Ok(rows?)
        });
        self.notice(answer)
    }

    /// Runs a statement and commits in one round trip.
    pub(crate) fn commit_with(
        &mut self,
        sql: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, ConnectionFault> {
        let statement = self.prepare(sql)?;
        let answer = self.with(async |client| {
            let (rows, end) =
                join(client.query(&statement, parameters), client.batch_execute("COMMIT")).await;
            let rows = rows?;
            end?;
            Ok(rows)
        });
        let answer = self.notice(answer);
        if self.transaction == TransactionState::Open {
            self.transaction = TransactionState::None;
        }
        answer
    }

    pub(crate) fn batch(&mut self, sql: &str) -> Result<(), ConnectionFault> {
        if self.transaction == TransactionState::None {
            self.connect().map_err(ConnectionFault::Connect)?;
        }
        let answer = self.with(async |client| Ok(client.batch_execute(sql).await?));
        self.notice(answer)
    }

    /// Begins a transaction with the statement `first`.
    pub(crate) fn begin(&mut self, first: &str) -> Result<(), ConnectionFault> {
        self.begin_with(&format!("BEGIN; {first}"))
    }

    /// Begins a transaction with the given statement.
    pub(crate) fn begin_with(&mut self, sql: &str) -> Result<(), ConnectionFault> {
        let is_fresh = self.live.is_none();
        let begun = match self.batch(sql) {
            Err(trouble) if trouble.is_lost() && !is_fresh => self.batch(sql),
            other => other,
        };
        // A failure after `BEGIN` needs a rollback.
        self.transaction = TransactionState::Open;
        if begun.is_err() {
            self.roll_back();
        }
        begun
    }

    pub(crate) fn commit(&mut self) -> Result<(), ConnectionFault> {
        if self.transaction == TransactionState::Lost {
            return Err(ConnectionFault::Silent);
        }
        self.batch("COMMIT")?;
        self.transaction = TransactionState::None;
        Ok(())
    }

    /// Rolls back any open transaction.
    pub(crate) fn roll_back(&mut self) {
        if self.transaction == TransactionState::Open && self.batch("ROLLBACK").is_err() {
            // A connection in an unknown state is not used again.
            self.live = None;
        }
        self.transaction = TransactionState::None;
    }

    fn prepare(&mut self, sql: &str) -> Result<Statement, ConnectionFault> {
        if self.transaction == TransactionState::None {
            self.connect().map_err(ConnectionFault::Connect)?;
        }
        if let Some(statement) = self.live.as_ref().and_then(|live| live.statements.get(sql)) {
            return Ok(statement.clone());
        }
        let prepared = self.with(async |client| Ok(client.prepare(sql).await?));
        let prepared = match self.notice(prepared) {
            // No statement was sent, so none is in doubt.
            Err(trouble) if trouble.is_lost() && self.transaction == TransactionState::None => {
                self.connect().map_err(ConnectionFault::Connect)?;
                let prepared = self.with(async |client| Ok(client.prepare(sql).await?));
                self.notice(prepared)?
            }
            other => other?,
        };
        if let Some(live) = &mut self.live {
            live.statements.insert(sql.to_owned(), prepared.clone());
        }
        Ok(prepared)
    }

    fn with<T>(
        &self,
        work: impl AsyncFnOnce(&Client) -> Result<T, ConnectionFault>,
    ) -> Result<T, ConnectionFault> {
        let Some(live) = &self.live else { return Err(ConnectionFault::Silent) };
        self.wait(ANSWER, work(&live.client))
    }

    fn wait<T>(
        &self,
        most: Duration,
        work: impl Future<Output = Result<T, ConnectionFault>>,
    ) -> Result<T, ConnectionFault> {
        let Some(runtime) = &self.runtime else { return Err(ConnectionFault::Silent) };
        runtime.block_on(async { timeout(most, work).await.unwrap_or(Err(ConnectionFault::Silent)) })
    }

    fn notice<T>(&mut self, answer: Result<T, ConnectionFault>) -> Result<T, ConnectionFault> {
        if answer.as_ref().is_err_and(ConnectionFault::is_lost) {
            self.live = None;
            if self.transaction == TransactionState::Open {
                self.transaction = TransactionState::Lost;
            }
        }
        answer
    }
}

fn tls(authorities: Option<&Path>) -> Result<MakeRustlsConnect, ConnectError> {
    let path = authorities.unwrap_or(Path::new(SYSTEM_AUTHORITIES));
    let failed = |source| ConnectError::Authorities { path: path.to_owned(), source };
    let text = fs::read(path).map_err(|error| failed(StoreFault::new(error)))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| failed(StoreFault::new(error)))?;
        // The system's list may contain certificates that the library rejects. Without any, nothing is trusted.
        let _taken = roots.add(certificate);
    }
    if roots.is_empty() {
        return Err(failed(StoreFault::new(NoTrustAnchors)));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(StoreFault::new(error)))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

#[derive(Debug, thiserror::Error)]
#[error("there is no certificate in it")]
struct NoTrustAnchors;
