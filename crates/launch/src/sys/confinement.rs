//! Landlock and seccomp.

use super::{Errno, SysResult, descriptor, raw};

#[repr(C)]
struct RulesetAttr {
    fs: u64,
    net: u64,
    scoped: u64,
}

/// Creates a ruleset. Trailing fields that an older kernel does not know are omitted while they are zero.
pub(crate) fn landlock_create(fs: u64, net: u64, scoped: u64) -> SysResult<i32> {
    let attributes = RulesetAttr { fs, net, scoped };
    let size = match (net, scoped) {
        (0, 0) => 8,
        (_, 0) => 16,
        _ => size_of::<RulesetAttr>(),
    };
    // SAFETY: the kernel reads `size` bytes of `attributes`, which is at least that long.
    unsafe { raw(libc::SYS_landlock_create_ruleset, [&raw const attributes as usize, size, 0, 0, 0, 0]) }
        .map(|fd| fd as i32)
}

pub(crate) fn landlock_allow(ruleset: i32, beneath: i32, access: u64) -> SysResult<()> {
    #[repr(C, packed)]
    struct PathBeneath {
        access: u64,
        parent: i32,
    }
    const RULE_PATH_BENEATH: usize = 1;
    let rule = PathBeneath { access, parent: beneath };
    // SAFETY: `rule` has the kernel's packed layout and outlives the call.
    unsafe {
        raw(
            libc::SYS_landlock_add_rule,
            [descriptor(ruleset), RULE_PATH_BENEATH, &raw const rule as usize, 0, 0, 0],
        )
    }
    .map(drop)
}

pub(crate) fn landlock_enforce(ruleset: i32) -> SysResult<()> {
    // SAFETY: no pointers.
    unsafe { raw(libc::SYS_landlock_restrict_self, [descriptor(ruleset), 0, 0, 0, 0, 0]) }.map(drop)
}

/// Installs a filter: `program` is an array of `struct sock_filter`.
pub(crate) fn seccomp_filter(program: &[u8]) -> SysResult<()> {
    install_filter(program, 0).map(drop)
}

/// Installs a filter with user notification and returns its listener.
///
/// KERNEL: since 5.19 a received notification waits through every signal but a fatal one. Before that, a program that signals
/// itself constantly repeats its notifications.
pub(crate) fn seccomp_listener(program: &[u8]) -> SysResult<i32> {
    const NEW_LISTENER: usize = 8;
    const WAIT_KILLABLE_RECV: usize = 32;
    let installed = match install_filter(program, NEW_LISTENER | WAIT_KILLABLE_RECV) {
        Err(Errno(libc::EINVAL)) => install_filter(program, NEW_LISTENER),
        answer => answer,
    };
    installed.map(|fd| fd as i32)
}

fn install_filter(program: &[u8], flags: usize) -> SysResult<usize> {
    #[repr(C)]
    struct Program {
        length: u16,
        filter: *const u8,
    }
    const SET_MODE_FILTER: usize = 1;
    let count = program.len() / size_of::<libc::sock_filter>();
    let length = u16::try_from(count).map_err(|_too_long| Errno(libc::EINVAL))?;
    let request = Program { length, filter: program.as_ptr() };
    // SAFETY: the kernel copies `length` instructions of 8 bytes, all inside `program`, with any alignment.
    unsafe { raw(libc::SYS_seccomp, [SET_MODE_FILTER, flags, &raw const request as usize, 0, 0, 0]) }
}
