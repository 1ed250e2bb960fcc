//! Limits of a session.

use serde::{Deserialize, Serialize};

use crate::UnknownKeyword;
use crate::workspace::words;
use std::str::FromStr;

words! {
    /// A limit by name, as a result reports the one that was hit.
    LimitName("limit") {
        Memory = "memory",
        Processes = "processes",
        CpuTime = "cpu-time",
        OpenFiles = "open-files",
        FileSize = "file-size",
        TmpSize = "tmp-size",
        Disk = "disk",
        WallClock = "wall-clock",
        Output = "output",
    }
}

/// Limits of one session. Every limit is enforced; the posture says by which mechanism.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
// Records of earlier versions have fewer fields.
#[serde(default)]
pub struct Limits {
    pub memory_bytes: u64,
    pub processes: u64,
    /// Thousandths of a core; `None`: every core of the machine.
    pub millicpus: Option<u64>,
    pub cpu_seconds: u64,
    pub open_files: u64,
    pub file_size_bytes: u64,
    pub tmp_bytes: u64,
    /// Total size of the writable roots and the home; `None`: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// `None`: unlimited.
    pub wall_ms: Option<u64>,
    /// Captured output per stream. Excess is dropped, and the result says so.
    pub output_bytes: u64,
    /// Concurrent flows of the filtered network, and new ones per second.
    pub max_flows: u64,
    pub max_flow_rate: u64,
    /// Bytes sent and received through the filtered network.
    pub max_bytes_out: u64,
    pub max_bytes_in: u64,
}

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

impl Default for Limits {
    /// The `session_limits` of document 000 (S000-41), with further defaults.
    fn default() -> Self {
        Self {
            memory_bytes: 4096 * MIB,
            processes: 50,
            millicpus: None,
            cpu_seconds: 3600,
            open_files: 256,
            file_size_bytes: 100 * MIB,
            tmp_bytes: 1024 * MIB,
            disk_bytes: None,
            wall_ms: None,
            output_bytes: 64 * MIB,
            max_flows: 8192,
            max_flow_rate: 500,
            max_bytes_out: 16 * GIB,
            max_bytes_in: 256 * GIB,
        }
    }
}
