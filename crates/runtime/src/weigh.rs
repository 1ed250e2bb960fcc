//! How much is about to be held in memory for whoever asked, for those who have many to answer.

use std::{fmt, io};

/// Asked before a file is read as a whole, by the thread that reads it. It may wait until there is room.
pub trait Weigher: fmt::Debug + Send + Sync {
    fn weigh(&self, bytes: u64) -> io::Result<()>;
}
