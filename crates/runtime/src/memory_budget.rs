//! The memory budget for calls that read whole files, for processes that serve many clients.

use std::{fmt, io};

/// Consulted by the reading thread before it reads a whole file. It may block until memory is available.
pub trait MemoryBudget: fmt::Debug + Send + Sync {
    fn weigh(&self, bytes: u64) -> io::Result<()>;
}
