//! Namespaces, limits and capabilities.

use core::ffi::CStr;

use libc::c_int;

use super::{SysResult, descriptor, ioctl, raw, text};

pub(crate) fn unshare(flags: u64) -> SysResult<()> {
    // SAFETY: no pointers; the process is single-threaded, so nothing else shares what is unshared.
    unsafe { raw(libc::SYS_unshare, [flags as usize, 0, 0, 0, 0, 0]) }.map(drop)
}

pub(crate) fn enter_namespace(fd: i32, kind: c_int) -> SysResult<()> {
    // SAFETY: no pointers; the process is single-threaded.
    unsafe { raw(libc::SYS_setns, [descriptor(fd), kind as usize, 0, 0, 0, 0]) }.map(drop)
}

pub(crate) fn set_hostname(name: &CStr) -> SysResult<()> {
    // SAFETY: the kernel reads `len` bytes of a string that outlives the call.
    unsafe { raw(libc::SYS_sethostname, [text(name), name.count_bytes(), 0, 0, 0, 0]) }.map(drop)
}

/// The user namespace that a namespace belongs to.
pub(crate) fn owner_of(namespace: i32) -> SysResult<i32> {
    const NS_GET_USERNS: usize = 0xb701;
    // SAFETY: NS_GET_USERNS takes no argument.
    unsafe { ioctl(namespace, NS_GET_USERNS, 0) }.map(|fd| fd as i32)
}

pub(crate) fn set_limit(resource: u64, soft: u64, hard: u64) -> SysResult<()> {
    let limit = libc::rlimit64 { rlim_cur: soft, rlim_max: hard };
    // SAFETY: `limit` outlives the call; pid 0 is this process; the old value is not asked for.
    unsafe { raw(libc::SYS_prlimit64, [0, resource as usize, &raw const limit as usize, 0, 0, 0]) }.map(drop)
}

/// Options of prctl(2) that take and answer integers, and no address.
#[derive(Clone, Copy)]
#[repr(i32)]
pub(crate) enum PrctlOption {
    SetDumpable = libc::PR_SET_DUMPABLE,
    SetSubreaper = libc::PR_SET_CHILD_SUBREAPER,
    SetParentDeathSignal = libc::PR_SET_PDEATHSIG,
    SetNoNewPrivileges = libc::PR_SET_NO_NEW_PRIVS,
    NoNewPrivileges = libc::PR_GET_NO_NEW_PRIVS,
    SeccompMode = libc::PR_GET_SECCOMP,
    Ambient = libc::PR_CAP_AMBIENT,
    DropBounding = libc::PR_CAPBSET_DROP,
    Bounding = libc::PR_CAPBSET_READ,
}

pub(crate) fn prctl(attribute: PrctlOption, argument: usize) -> SysResult<usize> {
    // SAFETY: no pointers: `PrctlOption` has no option that takes one.
    unsafe { raw(libc::SYS_prctl, [attribute as usize, argument, 0, 0, 0, 0]) }
}

/// The name of this process in /proc, which only this process can change.
pub(crate) fn set_name(name: &[u8; 16]) -> SysResult<()> {
    // SAFETY: the kernel reads at most 16 bytes of an array that outlives the call.
    unsafe { raw(libc::SYS_prctl, [libc::PR_SET_NAME as usize, name.as_ptr() as usize, 0, 0, 0, 0]) }
        .map(drop)
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// Empties the effective, permitted and inheritable sets.
pub(crate) fn clear_capabilities() -> SysResult<()> {
    let header = CapHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let data = [CapData::default(); 2];
    // SAFETY: version 3 reads a header and two data words; both outlive the call.
    unsafe { raw(libc::SYS_capset, [&raw const header as usize, data.as_ptr() as usize, 0, 0, 0, 0]) }
        .map(drop)
}

pub(crate) fn capabilities_empty() -> SysResult<bool> {
    let header = CapHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let mut data = [CapData { effective: 1, permitted: 1, inheritable: 1 }; 2];
    // SAFETY: version 3 writes two data words into the exclusive borrow.
    unsafe { raw(libc::SYS_capget, [&raw const header as usize, data.as_mut_ptr() as usize, 0, 0, 0, 0]) }?;
    Ok(data.iter().all(|word| word.effective | word.permitted | word.inheritable == 0))
}
