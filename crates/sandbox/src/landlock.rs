//! Which Landlock rights exist at which ABI, and which of them the roots of a sandbox get.

use crate::sys;

/// ABI 7 adds log flags only and ABI 8 thread synchronisation, which a single-threaded launcher does not need.
/// ABI 9 adds `RESOLVE_UNIX`.
pub const NEWEST_KNOWN_ABI: u32 = 9;

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
const RESOLVE_UNIX: u64 = 1 << 16;

const BIND_TCP: u64 = 1;
const CONNECT_TCP: u64 = 2;

const SCOPE_ABSTRACT_UNIX: u64 = 1;
const SCOPE_SIGNAL: u64 = 2;

/// The first ABI with scopes.
const SCOPES: u32 = 6;

/// The rights handled at one ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LandlockRights {
    pub(crate) fs: u64,
    pub(crate) net: u64,
    pub(crate) scoped: u64,
}

/// The ABI of the running kernel, capped at the newest this crate knows; `None` where Landlock is off.
pub fn abi() -> Option<u32> {
    sys::landlock_abi().filter(|abi| *abi > 0).map(|abi| abi.min(NEWEST_KNOWN_ABI))
}

pub(crate) fn rights(abi: u32) -> LandlockRights {
    let mut fs = (1 << 13) - 1;
    for (since, right) in [(2, REFER), (3, TRUNCATE), (5, IOCTL_DEV), (9, RESOLVE_UNIX)] {
        if abi >= since {
            fs |= right;
        }
    }
    LandlockRights {
        fs,
        net: if abi >= 4 { BIND_TCP | CONNECT_TCP } else { 0 },
        scoped: if abi >= SCOPES { SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL } else { 0 },
    }
}

/// A domain that denies nothing but signals and tracing out of it. `None`: this ABI has no scopes.
///
/// KERNEL: a process in any domain may not look into one outside of it (`/proc/PID/environ`), and every domain denies links and
/// renames between directories unless it handles that right.
pub(crate) fn signals_alone(abi: u32) -> Option<LandlockRights> {
    (abi >= SCOPES).then_some(LandlockRights { fs: REFER, net: 0, scoped: SCOPE_SIGNAL })
}

impl LandlockRights {
    pub(crate) fn read(self) -> u64 {
        (EXECUTE | READ_FILE | READ_DIR) & self.fs
    }

    /// Everything, for a root that may be written. Sockets that were not made inside stay out of reach where the
    /// kernel can tell (ABI 9): a socket of the own domain needs no rule.
    pub(crate) fn write(self) -> u64 {
        self.fs & !(RESOLVE_UNIX | IOCTL_DEV)
    }

    /// To read, and to connect to the sockets of the host that are there.
    pub(crate) fn reach(self) -> u64 {
        self.read() | RESOLVE_UNIX & self.fs
    }

    pub(crate) fn devices(self) -> u64 {
        (READ_FILE | READ_DIR | WRITE_FILE | IOCTL_DEV | TRUNCATE) & self.fs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_abi_handles_what_the_kernel_of_that_abi_knows() {
        let expected = [
            (1, (1 << 13) - 1, 0, 0),
            (2, (1 << 14) - 1, 0, 0),
            (3, (1 << 15) - 1, 0, 0),
            (4, (1 << 15) - 1, 3, 0),
            (5, (1 << 16) - 1, 3, 0),
            (6, (1 << 16) - 1, 3, 3),
            (7, (1 << 16) - 1, 3, 3),
            (8, (1 << 16) - 1, 3, 3),
            (9, (1 << 17) - 1, 3, 3),
        ];
        for (abi, fs, net, scoped) in expected {
            assert_eq!(rights(abi), LandlockRights { fs, net, scoped }, "ABI {abi}");
        }
        assert_eq!(expected.len() as u32, NEWEST_KNOWN_ABI);
    }

    #[test]
    fn read_never_writes() {
        for abi in 1..=NEWEST_KNOWN_ABI {
            assert_eq!(rights(abi).read() & (WRITE_FILE | TRUNCATE | REFER), 0);
        }
    }
}
