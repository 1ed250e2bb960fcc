use std::path::{Path, PathBuf};

use ringfence_types::ByteString;
use serde::{Deserialize, Serialize};

/// The paths and ids of an [`super::world::AttackWorld`] that an attempt is told.
///
/// INVARIANT: it contains no secret. An attempt that prints a secret must have read it from its place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Arena {
    pub(super) workspace: ByteString,
    pub(super) outside: ByteString,
    /// The home of the user who runs the battery; only listed, never changed.
    pub(super) home: Option<ByteString>,
    /// Ringfence's state directory.
    pub(super) state: ByteString,
    /// Part of every name made outside the world's own directory.
    pub(super) nonce: String,
    pub(super) ports: Ports,
    pub(super) victim: Option<Victim>,
    pub(super) ipc: Option<Ipc>,
    /// A descriptor on `outside`, open and not close-on-exec in the process that started the command.
    pub(super) inherited: Option<i32>,
    /// `/proc/self/ns/pid` of the host.
    pub(super) host_pid_namespace: u64,
    /// Address families that the kernel has already loaded, so that a test loads no module.
    pub(super) families: Vec<(String, u64)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ports {
    pub(super) tcp: u16,
    pub(super) tcp6: Option<u16>,
    pub(super) udp: u16,
    pub(super) udp6: Option<u16>,
    /// Free on the host when the world was made.
    pub(super) unused: u16,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Victim {
    pub(super) pid: i32,
    /// Address of its secret in its memory.
    pub(super) address: usize,
    pub(super) len: usize,
    /// Its descriptor on a file with a secret.
    pub(super) fd: i32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ipc {
    pub(super) shm: i32,
    pub(super) sem: i32,
    pub(super) msg: i32,
}

impl Arena {
    pub(super) fn inside(&self, name: &str) -> PathBuf {
        self.workspace.as_path().join(name)
    }

    pub(super) fn beyond(&self, name: &str) -> PathBuf {
        self.outside.as_path().join(name)
    }

    pub(super) fn secret(&self) -> PathBuf {
        self.inside(".env")
    }

    pub(super) fn target(&self) -> PathBuf {
        self.beyond("target.txt")
    }

    /// A path in a directory that all processes of the machine share.
    pub(super) fn shared(&self, directory: &str, what: &str) -> PathBuf {
        Path::new(directory).join(format!("ringfence-{what}-{}", self.nonce))
    }

    pub(super) fn abstract_name(&self, what: &str) -> String {
        format!("ringfence-{what}-{}", self.nonce)
    }
}
