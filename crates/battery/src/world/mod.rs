//! The world of one attempt: a workspace with secrets and a repository, a directory outside it, listeners,
//! and what else the attempt needs. It is made for one run and removed afterwards.

mod files;
mod ipc;
mod listeners;
mod shared_files;
mod victim;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use ringfence_types::ByteString;

use super::arena::Arena;
use super::attempt::{Attempt, WorldProp};
use super::host::HostFeatures;
pub(super) use files::{DirectoryState, FileState, PROTECTED};

pub(super) use ipc::HostQueues;
pub(super) use listeners::{HostListener, Listeners, SocketLocation};
use shared_files::SharedFiles;
pub(super) use victim::{VICTIM, VICTIM_VARIABLE, VictimProcess};

/// What all worlds of one battery share.
#[derive(Debug)]
pub(super) struct SharedWorld {
    /// Short: names of Unix sockets below it must fit in 108 bytes.
    pub(super) base: PathBuf,
    /// A copy of the program, on the same file system as the worlds.
    pub(super) program: PathBuf,
    pub(super) home: Option<PathBuf>,
    pub(super) state: Option<PathBuf>,
    pub(super) host: HostFeatures,
}

#[derive(Debug)]
pub struct AttackWorld {
    root: PathBuf,
    token: String,
    pub(super) arena: Arena,
    pub(super) listeners: Listeners,
    pub(super) victim: Option<VictimProcess>,
    _queues: Option<HostQueues>,
    _shared: Option<SharedFiles>,
    _inherited: Option<OwnedFd>,
    before: DirectoryState,
    over: AtomicBool,
}

impl AttackWorld {
    pub(super) fn build(ground: &SharedWorld, name: &str, attempt: &Attempt) -> io::Result<Self> {
        let root = ground.base.join(name);
        let (token, nonce) = (random_hex()?, random_hex()?);
        let built = Self::furnish(ground, &root, attempt, token, nonce);
        if built.is_err() {
            let _ = fs::remove_dir_all(&root);
        }
        built
    }

    fn furnish(
        ground: &SharedWorld,
        root: &Path,
        attempt: &Attempt,
        token: String,
        nonce: String,
    ) -> io::Result<Self> {
        let (workspace, outside) = (root.join("workspace"), root.join("outside"));
        let wants = |prop| attempt.props.contains(&prop);
        files::lay_out(root, &token, &ground.program)?;
        files::add_props(&workspace, &token, attempt.props)?;
        if wants(WorldProp::SetUser) {
            files::set_user_program(&workspace, &ground.program)?;
        }
        let listeners = Listeners::open(&workspace, &outside, &nonce)?;
        let victim = wants(WorldProp::Victim)
            .then(|| VictimProcess::start(&ground.program, root, &token))
            .transpose()?;
        let queues =
            wants(WorldProp::Ipc).then(|| HostQueues::make(&nonce, &secret("ipc", &token))).transpose()?;
        let shared = wants(WorldProp::Shared)
            .then(|| SharedFiles::make(&nonce, &secret("shared", &token)))
            .transpose()?;
        let inherited = wants(WorldProp::Inherited).then(|| files::inheritable(&outside)).transpose()?;
        let arena = Arena {
            workspace: ByteString::from(workspace),
            outside: ByteString::from(outside.clone()),
            home: ground.home.clone().map(ByteString::from),
            state: ByteString::from(ground.state.clone().unwrap_or_else(|| root.join("state"))),
            nonce,
            ports: listeners.ports()?,
            victim: victim.as_ref().map(|victim| victim.described.clone()),
            ipc: queues.as_ref().map(|queues| queues.ids.clone()),
            inherited: inherited.as_ref().map(AsRawFd::as_raw_fd),
            host_pid_namespace: ground.host.pid_namespace,
            families: ground.host.families.clone(),
        };
        let before = DirectoryState::of(&outside);
        Ok(Self {
            root: root.to_path_buf(),
            token,
            arena,
            listeners,
            victim,
            _queues: queues,
            _shared: shared,
            _inherited: inherited,
            before,
            over: AtomicBool::new(false),
        })
    }

    pub(super) fn workspace(&self) -> &Path {
        self.arena.workspace.as_path()
    }

    /// A directory for the output of a run, outside the attempt's directories.
    pub(super) fn scratch(&self) -> &Path {
        &self.root
    }

    /// The secret of this place.
    pub(super) fn secret(&self, place: &str) -> String {
        secret(place, &self.token)
    }

    pub(super) fn outside_changed(&self) -> bool {
        DirectoryState::of(self.arena.outside.as_path()) != self.before
    }

    /// Variables of the caller, as a user of agents has them.
    pub(super) fn caller_env(&self) -> Vec<(OsString, OsString)> {
        const NAMES: &[&str] =
            &["DEPLOY_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "GIT_SSH_COMMAND", "PYTHONSTARTUP"];
        let value = |name: &&str| self.secret(&format!("env-{name}"));
        NAMES.iter().map(|name| (OsString::from(name), OsString::from(value(name)))).collect()
    }

    pub(super) fn finish(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

impl Drop for AttackWorld {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn secret(place: &str, token: &str) -> String {
    format!("{place}-secret-{token}")
}

fn random_hex() -> io::Result<String> {
    let mut bytes = [0_u8; 8];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(ringfence_types::hex(bytes))
}
