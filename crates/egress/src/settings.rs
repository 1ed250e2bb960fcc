use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::inspection::HttpSettings;

/// What a session's proxy allows itself and its clients. The defaults are for one coding agent on one machine.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub names: NameServers,
    pub limits: Limits,
    pub times: Times,
    pub http: HttpSettings,
}

/// Whom to ask for addresses.
#[derive(Clone, Debug)]
pub enum NameServers {
    /// What these files say, as they change: by default those of the system.
    Files { resolv_conf: PathBuf, hosts: PathBuf },
    /// These alone, without `/etc/hosts`.
    Only(Vec<SocketAddr>),
}

impl Default for NameServers {
    fn default() -> Self {
        Self::Files { resolv_conf: "/etc/resolv.conf".into(), hosts: "/etc/hosts".into() }
    }
}

/// What is above a limit is refused, and the refusal names the limit.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections from inside at the same time, whatever they are for.
    pub connections: usize,
    /// Flows at the same time.
    pub flows: usize,
    /// Of these, requests that are looked at, each of which takes memory for it.
    pub requests: usize,
    pub flows_per_second: u32,
    /// Flows that wait for a decision at the same time.
    pub deciding: usize,
    pub flow: Budget,
    pub session: Budget,
    /// Of bodies that are held because they are signed, all together.
    pub signed_bytes: usize,
    pub queries_per_second: u32,
    /// Names that have an address inside at the same time.
    pub names: usize,
}

/// Bytes from inside (up) and to the inside (down).
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    pub up: u64,
    pub down: u64,
}

/// How long anything may take.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// For a whole request head or greeting; also between two requests.
    pub head: Duration,
    /// How long a client may be silent before its first byte.
    pub silence: Duration,
    /// How long to wait for the first byte of a protocol in which the server may speak first.
    pub first_byte: Duration,
    pub decision: Duration,
    pub resolve: Duration,
    pub connect: Duration,
    /// A tunnel through which nothing moves.
    pub idle: Duration,
}

const GIB: u64 = 1 << 30;

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 8192,
            flows: 8192,
            requests: 512,
            flows_per_second: 500,
            deciding: 256,
            flow: Budget { up: 4 * GIB, down: 32 * GIB },
            session: Budget { up: 16 * GIB, down: 256 * GIB },
            signed_bytes: 64 << 20,
            queries_per_second: 200,
            names: 4096,
        }
    }
}

impl Default for Times {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(15),
            silence: Duration::from_secs(300),
            first_byte: Duration::from_millis(150),
            decision: Duration::from_secs(15 * 60),
            resolve: Duration::from_secs(10),
            connect: Duration::from_secs(20),
            idle: Duration::from_secs(3600),
        }
    }
}
