//! Outcomes of calls.

use serde::{Deserialize, Serialize};

use crate::LimitName;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ExitReason {
    Code {
        code: i32,
    },
    Signal {
        signal: i32,
    },
    /// The time limit was reached and the process tree was killed.
    TimedOut,
    /// The program does not exist or may not be executed: the kernel's errno from execve.
    NotExecuted {
        errno: i32,
    },
}

impl ExitReason {
    /// The exit code of `ringfence run` (docs/errors.md).
    pub fn code(self) -> u8 {
        const ENOENT: i32 = 2;
        match self {
            Self::Code { code } => code.to_le_bytes()[0],
            Self::Signal { signal } => 128_u8.wrapping_add(signal.to_le_bytes()[0]),
            Self::TimedOut => 124,
            Self::NotExecuted { errno: ENOENT } => 127,
            Self::NotExecuted { .. } => 126,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// Summary of one output stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSummary {
    pub bytes: u64,
    /// Bytes that were dropped at the limit.
    pub dropped: u64,
    /// SHA-256 of the delivered bytes.
    pub sha256: String,
}

/// The outcome of one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub exit: ExitReason,
    pub limit_hit: Option<LimitName>,
    pub duration_ms: u64,
    pub stdout: StreamSummary,
    pub stderr: StreamSummary,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_of_run() {
        assert_eq!(ExitReason::Code { code: 42 }.code(), 42);
        assert_eq!(ExitReason::Signal { signal: 15 }.code(), 143);
        assert_eq!(ExitReason::TimedOut.code(), 124);
        assert_eq!(ExitReason::NotExecuted { errno: 2 }.code(), 127);
        assert_eq!(ExitReason::NotExecuted { errno: 13 }.code(), 126);
    }
}
