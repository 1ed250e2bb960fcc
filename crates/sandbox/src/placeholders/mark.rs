//! How a session knows a placeholder that another one has made, whose registry it cannot read: by its time of change.
//!
//! The seconds are always the same. The nanoseconds are a digest of what only this one inode has: its number and the time of its
//! birth, which no program can set. So neither a file of a user that has the same seconds, nor a copy of a placeholder, nor one
//! from an archive is taken for a placeholder. The first change of it ends the mark.
//!
//! A command inside can compute a mark for a file that it may write. Such a file is its own to remove. What it may not
//! change, it cannot mark: the time of a file is changed through the same read-only mount.
//!
//! A file system that keeps no nanoseconds keeps no mark: there, only the session that made a placeholder removes it.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Statx, StatxFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

/// "RFNB" as a number.
const SECONDS: i64 = 0x5246_4e42;

const NANOSECONDS: u64 = 1_000_000_000;

/// Marks what is at `name`.
pub(super) fn set(parent: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    let found = look(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    rustix::fs::utimensat(parent, name, &times(&found), AtFlags::SYMLINK_NOFOLLOW)
}

/// Whether what is at `name` is marked.
pub(super) fn is_on(parent: &OwnedFd, name: &OsStr) -> bool {
    look(parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| is_marked(&found))
}

/// A session surveys the placeholder of another as a directory that exists, and may hold names in it. That is not the
/// change by which a placeholder stops being one.
pub(super) fn keeping<T>(directory: &OwnedFd, change: impl FnOnce() -> T) -> T {
    let before = look(directory, OsStr::new(""), AtFlags::EMPTY_PATH).ok().filter(is_marked);
    let done = change();
    if let Some(before) = before {
        let _unmarked = rustix::fs::futimens(directory, &times(&before));
    }
    done
}

fn look(parent: impl AsFd, name: &OsStr, flags: AtFlags) -> Result<Statx, Errno> {
    let wanted = StatxFlags::INO | StatxFlags::BTIME | StatxFlags::MTIME;
    rustix::fs::statx(parent, name, flags, wanted)
}

fn is_marked(found: &Statx) -> bool {
    found.stx_mtime.tv_sec == SECONDS && i64::from(found.stx_mtime.tv_nsec) == nanoseconds(found)
}

fn times(found: &Statx) -> Timestamps {
    let untouched = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let marked = Timespec { tv_sec: SECONDS, tv_nsec: nanoseconds(found) };
    Timestamps { last_access: untouched, last_modification: marked }
}

/// Never zero, which is what remains where nanoseconds are not kept.
fn nanoseconds(found: &Statx) -> i64 {
    let mut digest = Sha256::new();
    digest.update(b"ringfence placeholder");
    digest.update(found.stx_ino.to_le_bytes());
    if StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME) {
        digest.update(found.stx_btime.tv_sec.to_le_bytes());
        digest.update(found.stx_btime.tv_nsec.to_le_bytes());
    }
    let first = digest.finalize().iter().take(8).fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
    i64::try_from(first % (NANOSECONDS - 1) + 1).unwrap_or(1)
}
