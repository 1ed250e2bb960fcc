//! Settings of the proxy: name servers, limits, byte budgets and timeouts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::inspection_settings::HttpSettings;

/// Limits and timeouts of a session's proxy. The defaults suit one coding agent on one machine.
#[derive(Clone, Debug, Default)]
pub struct ProxySettings {
    pub names: NameServers,
    pub limits: ProxyLimits,
    pub times: ProxyTimeouts,
    pub http: HttpSettings,
}

/// Source of name resolution.
#[derive(Clone, Debug)]
pub enum NameServers {
    /// These files, read again when they change. Default: those of the system.
    Files { resolv_conf: PathBuf, hosts: PathBuf },
    /// These alone, without `/etc/hosts`.
    Only(Vec<SocketAddr>),
}

impl Default for NameServers {
    fn default() -> Self {
        Self::Files { resolv_conf: "/etc/resolv.conf".into(), hosts: "/etc/hosts".into() }
    }
}

/// Limits. A refusal names the limit that was exceeded.
#[derive(Clone, Copy, Debug)]
pub struct ProxyLimits {
    /// Concurrent connections from inside.
    pub connections: usize,
    /// Concurrent flows.
    pub flows: usize,
    /// Concurrent scanned requests, which need memory.
    pub requests: usize,
    pub flows_per_second: u32,
    /// Concurrent flows that wait for a decision.
    pub deciding: usize,
    pub flow: ByteBudget,
    pub session: ByteBudget,
    /// Total bytes of buffered signed bodies.
    pub signed_bytes: usize,
    pub queries_per_second: u32,
    /// Names that have synthetic addresses at the same time.
    pub names: usize,
}

/// Bytes from inside (up) and to the inside (down).
#[derive(Clone, Copy, Debug)]
pub struct ByteBudget {
    pub up: u64,
    pub down: u64,
}

/// Timeouts.
#[derive(Clone, Copy, Debug)]
pub struct ProxyTimeouts {
    /// For a whole request head or client hello; also between two requests.
    pub head: Duration,
    /// Before the first byte of a client.
    pub silence: Duration,
    /// Wait for a client's first byte on ports where the server may speak first.
    pub first_byte: Duration,
    pub decision: Duration,
    pub resolve: Duration,
    pub connect: Duration,
    /// Idle timeout of a tunnel.
    pub idle: Duration,
}

const GIB: u64 = 1 << 30;

impl Default for ProxyLimits {
    fn default() -> Self {
        Self {
            connections: 8192,
            flows: 8192,
            requests: 512,
            flows_per_second: 500,
            deciding: 256,
            flow: ByteBudget { up: 4 * GIB, down: 32 * GIB },
            session: ByteBudget { up: 16 * GIB, down: 256 * GIB },
            signed_bytes: 64 << 20,
            queries_per_second: 200,
            names: 4096,
        }
    }
}

impl Default for ProxyTimeouts {
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
