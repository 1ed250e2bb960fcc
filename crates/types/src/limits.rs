use serde::{Deserialize, Serialize};

use crate::UnknownWord;
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

/// What one session may use. Every field is always enforced by something; the posture says by what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
// Records of earlier versions have fewer fields.
#[serde(default)]
pub struct Limits {
    pub memory_bytes: u64,
    pub processes: u64,
    /// Thousandths of a core; `None` is every core of the machine.
    pub millicpus: Option<u64>,
    pub cpu_seconds: u64,
    pub open_files: u64,
    pub file_size_bytes: u64,
    pub tmp_bytes: u64,
    /// All that the writable roots and the home hold together; `None`: as much as there is room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// `None`: as long as it takes.
    pub wall_ms: Option<u64>,
    /// Captured output per stream; what goes beyond is dropped and the result says so.
    pub output_bytes: u64,
    /// Flows of the filtered network at once, and new ones in a second.
    pub flows: u64,
    pub flows_per_second: u64,
    /// Bytes that leave and that come in through the filtered network.
    pub up_bytes: u64,
    pub down_bytes: u64,
}

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

impl Default for Limits {
    /// The `session_limits` of document 000 (S000-41); the rest is ours.
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
            flows: 8192,
            flows_per_second: 500,
            up_bytes: 16 * GIB,
            down_bytes: 256 * GIB,
        }
    }
}
