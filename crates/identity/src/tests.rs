//! Tests of the whole store, with a settable clock and an audit sink that keeps its lines.

mod devices;
mod operators;
mod room;
mod sessions;
mod time;
mod tokens;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use ringfence_types::{AllOrOnly, IdentityChange, Principal, Refusal, Rights, Scope, ScopeSet, Subtree};
use tempfile::TempDir;

use crate::clock::Clock;
use crate::{
    AuditSink, AuditWriteError, AuthError, Authority, Identities, IdentityError, KnownIdentity, LoginSource,
    MintedCredential, NewToken, SqliteIdentityStore, TokenLifetime,
};

#[derive(Debug)]
struct FakeClock(Mutex<(Timestamp, Duration)>);

impl FakeClock {
    fn pass(&self, seconds: u64) {
        let mut now = self.0.lock().unwrap();
        now.0 = now.0.checked_add(SignedDuration::from_secs(seconds.try_into().unwrap())).unwrap();
        now.1 += Duration::from_secs(seconds);
    }

    /// Sets the wall clock back.
    fn set_back(&self, seconds: i64) {
        let mut now = self.0.lock().unwrap();
        now.0 = now.0.checked_sub(SignedDuration::from_secs(seconds)).unwrap();
    }
}

impl Clock for FakeClock {
    fn wall(&self) -> Timestamp {
        self.0.lock().unwrap().0
    }

    fn since_boot(&self) -> Duration {
        self.0.lock().unwrap().1
    }
}

#[derive(Debug, Default)]
struct Notes {
    lines: Mutex<Vec<String>>,
    broken: AtomicBool,
    /// What was done and is not written.
    late: Mutex<Vec<String>>,
}

impl Notes {
    fn write(&self, line: String) -> Result<(), AuditWriteError> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(AuditWriteError("disk full".into()));
        }
        self.lines.lock().unwrap().push(line);
        Ok(())
    }

    fn last(&self) -> String {
        self.lines.lock().unwrap().last().cloned().unwrap_or_default()
    }

    fn count(&self) -> usize {
        self.lines.lock().unwrap().len()
    }
}

impl AuditSink for Notes {
    fn changed(&self, by: &Principal, changes: &[IdentityChange]) -> Result<(), AuditWriteError> {
        changes.iter().try_for_each(|change| self.write(format!("{change} by {by}")))
    }

    fn taken_away(&self, by: &Principal, changes: &[IdentityChange]) {
        self.late.lock().unwrap().extend(changes.iter().map(|change| format!("{change} by {by}")));
        let is_written = self.changed(by, changes).is_ok();
        if is_written {
            self.late.lock().unwrap().clear();
        }
    }

    fn authenticated(
        &self,
        who: &Principal,
        purpose: &str,
        no: Option<&Refusal>,
    ) -> Result<(), AuditWriteError> {
        let answer = no.map_or("may".to_owned(), |no| format!("may not ({})", no.rule));
        self.write(format!("{who} {answer} {purpose}"))
    }
}

struct World {
    directory: TempDir,
    clock: Arc<FakeClock>,
    notes: Arc<Notes>,
    identities: Identities,
}

const HERE: LoginSource = LoginSource::User(0);
const ELSEWHERE: LoginSource = LoginSource::Address(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let start = (Timestamp::from_second(2_000_000_000).unwrap(), Duration::from_secs(1000));
        let clock = Arc::new(FakeClock(Mutex::new(start)));
        let notes = Arc::new(Notes::default());
        let identities = opened(directory.path(), &clock, &notes);
        Self { directory, clock, notes, identities }
    }

    /// As another process sees it, or this one after a restart.
    fn reopened(&self) -> Identities {
        opened(self.directory.path(), &self.clock, &self.notes)
    }

    fn mint(&self, scopes: &[Scope], workspaces: Option<&[&str]>) -> MintedCredential {
        self.identities.mint(&root(), token(rights(scopes, workspaces))).unwrap()
    }

    fn known(&self, minted: &MintedCredential) -> KnownIdentity {
        self.authenticate(minted).unwrap()
    }

    fn authenticate(&self, minted: &MintedCredential) -> Result<KnownIdentity, IdentityError> {
        self.identities.authenticate(&minted.text.reveal(), &HERE)
    }
}

fn opened(directory: &Path, clock: &Arc<FakeClock>, notes: &Arc<Notes>) -> Identities {
    let store = SqliteIdentityStore::open(directory).unwrap();
    Identities::with(Box::new(store), "node", Arc::clone(notes) as Arc<dyn AuditSink>, Arc::clone(clock) as _)
}

fn root() -> Authority<'static> {
    Authority::Owner(Principal::Operator { uid: 7, name: None, node: "node".to_owned(), terminal: None })
}

fn rights(scopes: &[Scope], workspaces: Option<&[&str]>) -> Rights {
    let subtrees = workspaces
        .map(|paths| paths.iter().map(|path| Subtree::new(Path::new(path)).unwrap()).collect::<Vec<_>>());
    Rights { scopes: scopes.iter().copied().collect::<ScopeSet>(), workspaces: AllOrOnly::of(subtrees) }
}

fn token(rights: Rights) -> NewToken {
    NewToken { label: "ci".to_owned(), rights, lifetime: TokenLifetime::Unlimited, operator: None }
}

#[track_caller]
fn denied<T: std::fmt::Debug>(result: Result<T, IdentityError>) -> AuthError {
    match result.unwrap_err() {
        IdentityError::Denied(denied) => denied,
        other => panic!("{other:?}"),
    }
}
