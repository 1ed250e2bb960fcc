//! System calls that no safe crate offers, as the attempts need them.
//!
//! INVARIANT: each function is safe to call with any argument its type admits: pointers never come from the
//! caller, and a call that could harm the machine is made with arguments the kernel must refuse.
#![expect(unsafe_code, reason = "raw system calls; every other file of this crate is safe code")]

use std::ffi::{CStr, c_int, c_long, c_ulong, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::io::{Errno, Result};

/// What a number that the kernel took means: the call was carried out, or refused.
fn check(returned: c_long) -> Result<c_long> {
    if returned == -1 { Err(last_errno()) } else { Ok(returned) }
}

fn last_errno() -> Errno {
    io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

fn to_fd(returned: c_long) -> Result<OwnedFd> {
    let raw = RawFd::try_from(returned).or(Err(Errno::BADF))?;
    // SAFETY: the kernel has just returned this number as a new descriptor, and nothing else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

macro_rules! integers {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) = $nr:expr $(, $value:expr)*) => {
        $(#[$doc])*
        pub(crate) fn $name($($arg: $type),*) -> Result<c_long> {
            // SAFETY: every argument is an integer, a null pointer or a C string literal; the kernel writes no
            // memory of this process for this call.
            check(unsafe { libc::syscall($nr $(, $value)*) })
        }
    };
}

// KERNEL: the sixth argument travels on the stack of the C function, where a narrower integer would leave half
// of the register undefined; so zeros and ones are as wide as a register.
const NULL: c_long = 0;
const ONE: c_long = 1;
const NO_FD: c_long = -1;

integers!(/** Leaves namespaces; `flags` may have bits the kernel does not know. */
    unshare(flags: u64) = libc::SYS_unshare, flags);
integers!(/** Asks for a namespace switch. */
    setns(fd: RawFd, kind: c_int) = libc::SYS_setns, fd, kind);
integers!(/** The whole 64-bit register reaches the kernel, which looks at the low half. */
    personality(persona: u64) = libc::SYS_personality, persona);
#[cfg(target_arch = "x86_64")]
integers!(/** Asks for access to every I/O port. */
    iopl(level: c_int) = libc::SYS_iopl, level);
integers!(/** On no ring at all. */
    io_uring_enter() = libc::SYS_io_uring_enter, NO_FD, NULL, NULL, NULL, NULL, NULL);
integers!(/** On no ring at all. */
    io_uring_register() = libc::SYS_io_uring_register, NO_FD, 0, NULL, 0);
integers!(/** KEYCTL_GET_KEYRING_ID of the session keyring, without creating one. */
    keyctl_session_keyring() = libc::SYS_keyctl, 0, -3_i64, 0);
integers!(/** Compares two processes' memory. */
    kcmp_vm(a: c_int, b: c_int) = libc::SYS_kcmp, a, b, 1, 0, 0);
integers!(/** An invalid magic number: the kernel checks the capability first and then refuses. */
    reboot_invalid() = libc::SYS_reboot, 0, 0, 0, NULL);
integers!(/** Too many segments, unknown flags and no such architecture: nothing can be loaded or unloaded. */
    kexec_load_invalid() = libc::SYS_kexec_load, NULL, 0xffff_i64, NULL, 0x00ff_00f0_i64);
integers!(/** An empty image: nothing can be loaded. */
    init_module_invalid() = libc::SYS_init_module, NULL, 0, NULL);
integers!(/** No file: nothing can be loaded. */
    finit_module_invalid() = libc::SYS_finit_module, NO_FD, NULL, 0);
integers!(/** An impossible length: the name cannot change. */
    sethostname_invalid() = libc::SYS_sethostname, NULL, -1_i64);
integers!(/** An impossible length: the name cannot change. */
    setdomainname_invalid() = libc::SYS_setdomainname, NULL, -1_i64);
integers!(/** SYSLOG_ACTION_SIZE_BUFFER: asks for the size of the kernel log. */
    syslog_size() = libc::SYS_syslog, 10, NULL, 0);
integers!(/** A group that watches for content decisions. */
    fanotify_init_content() = libc::SYS_fanotify_init, 0x4_u32, 0_u32);
integers!(/** No descriptor: nothing can move. */
    move_mount_invalid() = libc::SYS_move_mount, NO_FD, c"".as_ptr(), NO_FD, c"".as_ptr(), 0x4 | 0x40);
integers!(/** No descriptor: nothing can be mounted. */
    fsmount_invalid() = libc::SYS_fsmount, NO_FD, 0, 0);
integers!(/** A null attribute of size zero: nothing can change. */
    mount_setattr_invalid() = libc::SYS_mount_setattr, NO_FD, c"".as_ptr(), 0, NULL, 0);
integers!(/** Asks for tracing by the parent. */
    ptrace_traceme() = libc::SYS_ptrace, 0, 0, 0, 0);
integers!(/** PTRACE_SEIZE: attaches without stopping; ends with this process. */
    ptrace_seize(pid: c_int) = libc::SYS_ptrace, 0x4206, pid, 0, 0);
integers!(/** The owner of a descriptor gets its SIGIO. */
    set_owner(fd: RawFd, pid: c_int) = libc::SYS_fcntl, fd, libc::F_SETOWN, pid);
integers!(/** From now on readiness of `fd` raises SIGIO at its owner. */
    set_async(fd: RawFd) = libc::SYS_fcntl, fd, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK);
integers!(/** Signals one thread. */
    tgkill(pid: c_int, signal: c_int) = libc::SYS_tgkill, pid, pid, signal);
integers!(/** A call number of the x32 interface: getpid. */
    x32_getpid() = 0x4000_0000_i64 + 39);

macro_rules! new_fd {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) = $nr:expr $(, $value:expr)*) => {
        $(#[$doc])*
        pub(crate) fn $name($($arg: $type),*) -> Result<OwnedFd> {
            // SAFETY: every argument is an integer, a null pointer or a C string literal; the kernel writes
            // no memory of this process for this call.
            to_fd(check(unsafe { libc::syscall($nr $(, $value)*) })?)
        }
    };
}

new_fd!(/** `domain` and `kind` fill whole 64-bit registers. */
    socket(domain: u64, kind: u64, protocol: u64) = libc::SYS_socket, domain, kind, protocol);
new_fd!(/** Handles faults of this process from user space. */
    userfaultfd() = libc::SYS_userfaultfd, libc::O_CLOEXEC | 1);
new_fd!(/** A file system context for a tmpfs that is never mounted. */
    fsopen_tmpfs() = libc::SYS_fsopen, c"tmpfs".as_ptr(), 1);
new_fd!(/** A handle on the root mount, not detached, not cloned. */
    open_tree_root() = libc::SYS_open_tree, libc::AT_FDCWD, c"/".as_ptr(), libc::O_CLOEXEC);

/// A ring of one entry.
pub(crate) fn io_uring_setup() -> Result<OwnedFd> {
    let mut params = [0_u32; 30];
    // SAFETY: `params` is 120 bytes, the size of `struct io_uring_params`, zeroed, and outlives the call.
    to_fd(check(unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) })?)
}

/// A software event that counts this process's own clock, user space only.
pub(crate) fn perf_event_open() -> Result<OwnedFd> {
    let mut attr = [0_u64; 16];
    attr[0] = 1 | (128 << 32);
    attr[5] = (1 << 5) | (1 << 6);
    // SAFETY: `attr` is 128 bytes, as its size field says (type 1, size 128), and outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), 0, -1, -1, 8) };
    to_fd(check(fd)?)
}

/// A map of one element.
pub(crate) fn bpf_map_create() -> Result<OwnedFd> {
    let mut attr = [0_u32; 18];
    attr[..4].copy_from_slice(&[2, 4, 4, 1]);
    // SAFETY: `attr` is 72 bytes, as the last argument says, and outlives the call.
    to_fd(check(unsafe { libc::syscall(libc::SYS_bpf, 0, attr.as_ptr(), 72) })?)
}

/// A key of this process's own, gone with it.
pub(crate) fn add_key() -> Result<c_long> {
    const PROCESS_KEYRING: c_long = -2;
    let payload = b"x";
    // SAFETY: two C string literals and one byte of payload, as the length says; all outlive the call.
    check(unsafe {
        let (kind, name) = (c"user".as_ptr(), c"ringfence".as_ptr());
        libc::syscall(libc::SYS_add_key, kind, name, payload.as_ptr(), 1, PROCESS_KEYRING)
    })
}

/// Looks for a key that does not exist.
pub(crate) fn request_key() -> Result<c_long> {
    // SAFETY: two C string literals and null pointers; nothing is written.
    check(unsafe {
        let (kind, name) = (c"user".as_ptr(), c"ringfence-absent".as_ptr());
        libc::syscall(libc::SYS_request_key, kind, name, NULL, 0)
    })
}

/// A tick length that the kernel must refuse once it has checked the capability.
pub(crate) fn adjtimex_invalid() -> Result<c_long> {
    const ADJ_TICK: u32 = 0x4000;
    let mut timex = [0_u32; 64];
    timex[0] = ADJ_TICK;
    // SAFETY: `timex` is 256 bytes, more than the 208 of `struct timex`, zeroed (so the tick is 0), and
    // outlives the call.
    check(unsafe { libc::syscall(libc::SYS_adjtimex, timex.as_mut_ptr()) })
}

/// Mounts `kind` (or, without one, changes what is at `target` by `flags`).
pub(crate) fn mount(source: &CStr, target: &CStr, kind: Option<&CStr>, flags: c_ulong) -> Result<c_long> {
    let kind = kind.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: C strings that outlive the call, and null data.
    check(unsafe { libc::syscall(libc::SYS_mount, source.as_ptr(), target.as_ptr(), kind, flags, NULL) })
}

pub(crate) fn umount_detach(target: &CStr) -> Result<c_long> {
    // SAFETY: one C string that outlives the call.
    check(unsafe { libc::syscall(libc::SYS_umount2, target.as_ptr(), libc::MNT_DETACH) })
}

pub(crate) fn pivot_root(new: &CStr, old: &CStr) -> Result<c_long> {
    // SAFETY: two C strings that outlive the call.
    check(unsafe { libc::syscall(libc::SYS_pivot_root, new.as_ptr(), old.as_ptr()) })
}

/// Asks to unload a module that does not exist.
pub(crate) fn delete_module_absent() -> Result<c_long> {
    // SAFETY: one C string literal.
    check(unsafe { libc::syscall(libc::SYS_delete_module, c"ringfence_absent".as_ptr(), libc::O_NONBLOCK) })
}

/// Asks for process accounting into a directory that does not exist; accounting stays as it is.
pub(crate) fn acct_absent() -> Result<c_long> {
    // SAFETY: one C string literal.
    check(unsafe { libc::syscall(libc::SYS_acct, c"/ringfence-absent/acct".as_ptr()) })
}

/// Asks for a swap file that does not exist.
pub(crate) fn swapon_absent() -> Result<c_long> {
    // SAFETY: one C string literal.
    check(unsafe { libc::syscall(libc::SYS_swapon, c"/ringfence-absent/swap".as_ptr(), 0) })
}

/// Asks for the quota of a device that does not exist.
pub(crate) fn quotactl_absent() -> Result<c_long> {
    const Q_SYNC_USER: c_long = 0x8000_0100;
    // SAFETY: one C string literal and a null pointer.
    check(unsafe {
        libc::syscall(libc::SYS_quotactl, Q_SYNC_USER, c"/ringfence-absent/dev".as_ptr(), 0, NULL)
    })
}

/// Sends SIGTERM to every process but this one and process 1 of the pid namespace. Refused with `EXDEV` where that
/// is, or may be, the namespace with this inode: the host's.
pub(crate) fn terminate_everyone_but_host(host_namespace: u64) -> Result<c_long> {
    use std::os::unix::fs::MetadataExt as _;
    let own = std::fs::metadata("/proc/self/ns/pid").or(Err(Errno::XDEV))?.ino();
    if host_namespace == 0 || own == host_namespace {
        return Err(Errno::XDEV);
    }
    // SAFETY: integers only.
    check(unsafe { libc::syscall(libc::SYS_kill, -1, libc::SIGTERM) })
}

/// Makes a process by `clone` in new namespaces, which ends at once, and waits for it. Refused with `EINVAL` for
/// flags other than those of namespaces and the upper half of the register.
pub(crate) fn clone_and_wait(flags: u64) -> Result<()> {
    let flags = namespace_flags(flags)? | libc::SIGCHLD as u64;
    // SAFETY: no CLONE_VM (only namespace flags pass) and a null stack: the child has its own copy of everything,
    // and all it does is the one system call `_exit`.
    let pid = unsafe {
        let pid = libc::syscall(libc::SYS_clone, flags, NULL, NULL, NULL, NULL);
        if pid == 0 {
            libc::_exit(0);
        }
        check(pid)?
    };
    reap(pid)
}

/// The same by `clone3`.
pub(crate) fn clone3_and_wait(flags: u64) -> Result<()> {
    let mut args = [0_u64; 11];
    args[0] = namespace_flags(flags)?;
    args[4] = libc::SIGCHLD as u64;
    // SAFETY: `args` is 88 bytes, as the length says, with no CLONE_VM (only namespace flags pass) and no stack:
    // the child has its own copy of everything, and all it does is the one system call `_exit`.
    let pid = unsafe {
        let pid = libc::syscall(libc::SYS_clone3, args.as_ptr(), 88);
        if pid == 0 {
            libc::_exit(0);
        }
        check(pid)?
    };
    reap(pid)
}

fn namespace_flags(flags: u64) -> Result<u64> {
    const UPPER_HALF: u64 = 0xffff_ffff << 32;
    const NAMESPACES: u64 = 0x7e02_0000;
    if flags & !(UPPER_HALF | NAMESPACES) == 0 { Ok(flags) } else { Err(Errno::INVAL) }
}

fn reap(pid: c_long) -> Result<()> {
    // SAFETY: a null status pointer; the kernel writes nothing.
    check(unsafe { libc::syscall(libc::SYS_wait4, pid, NULL, 0, NULL) }).map(drop)
}

/// Runs `body` in a forked process, which ends with the code it returns; gives that process's pid.
///
/// Refused with `EBUSY` when this process has more than one thread.
pub(crate) fn fork(body: impl FnOnce() -> u8) -> Result<c_int> {
    let threads = std::fs::read_dir("/proc/self/task").or(Err(Errno::NOENT))?.count();
    if threads != 1 {
        return Err(Errno::BUSY);
    }
    // SAFETY: this is the only thread, so no lock of the allocator or of std is held by another one and the
    // child may run any code. It leaves by `_exit`, so nothing of the parent's is unwound or flushed twice.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = body();
        // SAFETY: ends the process; takes an integer.
        unsafe { libc::_exit(c_int::from(code)) }
    }
    check(c_long::from(pid)).map(|_| pid)
}

/// Waits for a child of `fork`: its exit code, or `None` when a signal ended it.
pub(crate) fn wait(pid: c_int) -> Result<Option<u8>> {
    let mut status: c_int = 0;
    // SAFETY: `status` is a live integer that the kernel fills.
    check(unsafe { libc::syscall(libc::SYS_wait4, pid, &raw mut status, 0, NULL) })?;
    let code = libc::WEXITSTATUS(status).to_le_bytes()[0];
    Ok(libc::WIFEXITED(status).then_some(code))
}

/// `getpid` by the 32-bit entry of the kernel. Where that is not built in, the process dies of a fault.
#[cfg(target_arch = "x86_64")]
pub(crate) fn i386_getpid() -> Result<c_long> {
    i386(20, 0, 0, 0)
}

/// `socket` by the 32-bit entry of the kernel.
#[cfg(target_arch = "x86_64")]
pub(crate) fn i386_socket(domain: u32, kind: u32, protocol: u32) -> Result<OwnedFd> {
    to_fd(i386(359, domain, kind, protocol)?)
}

#[cfg(target_arch = "x86_64")]
fn i386(number: u32, a: u32, b: u32, c: u32) -> Result<c_long> {
    let returned: u32;
    // SAFETY: both callers pass integers only. rbx, which the compiler reserves, is put back; the entry code
    // may clear r8 to r11, which are declared as overwritten.
    unsafe {
        std::arch::asm!(
            "xchg rbx, {a}", "int 0x80", "xchg rbx, {a}",
            a = inout(reg) u64::from(a) => _,
            inlateout("eax") number => returned,
            in("ecx") b, in("edx") c,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    match i32::from_ne_bytes(returned.to_ne_bytes()) {
        errno @ -4095..=-1 => Err(Errno::from_raw_os_error(-errno)),
        value => Ok(c_long::from(value)),
    }
}

/// How an argument of 32 bits fills its register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegisterUpperHalf {
    Clear,
    /// The kernel ignores it; a filter that compares the whole register is fooled.
    Set,
}

/// TIOCSTI: pushes one space into a terminal's input.
pub(crate) fn type_into(terminal: BorrowedFd<'_>, half: RegisterUpperHalf) -> Result<c_long> {
    terminal_request(terminal, 0x5412, half)
}

/// TIOCLINUX with a sub-code that no kernel has.
pub(crate) fn ask_console(terminal: BorrowedFd<'_>, half: RegisterUpperHalf) -> Result<c_long> {
    terminal_request(terminal, 0x541c, half)
}

fn terminal_request(terminal: BorrowedFd<'_>, request: u64, half: RegisterUpperHalf) -> Result<c_long> {
    let request = if half == RegisterUpperHalf::Set { request | 1 << 32 } else { request };
    let byte = b' ';
    // SAFETY: both callers' requests read one byte, which outlives the call (TIOCLINUX reads its sub-code from it
    // and refuses 32).
    check(unsafe { libc::syscall(libc::SYS_ioctl, terminal.as_raw_fd(), request, &raw const byte) })
}

/// Reads another process's memory.
pub(crate) fn process_vm_readv(pid: c_int, address: usize, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0_u8; len];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: len };
    // SAFETY: `local` covers exactly `bytes`; the remote address is looked up by the kernel in the other
    // process and is never followed here.
    check(unsafe {
        libc::syscall(libc::SYS_process_vm_readv, pid, &raw const local, ONE, &raw const remote, ONE, NULL)
    })?;
    Ok(bytes)
}

/// Writes another process's memory. Refused with `EINVAL` for this process itself.
pub(crate) fn process_vm_writev(pid: c_int, address: usize, bytes: &[u8]) -> Result<c_long> {
    if u32::try_from(pid) == Ok(std::process::id()) {
        return Err(Errno::INVAL);
    }
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: bytes.len() };
    // SAFETY: the kernel only reads `local`, which covers exactly `bytes`; what it writes is in another
    // process.
    check(unsafe {
        libc::syscall(libc::SYS_process_vm_writev, pid, &raw const local, ONE, &raw const remote, ONE, NULL)
    })
}

/// The bytes of a file through a shared mapping, at most one page.
pub(crate) fn read_by_mapping(fd: BorrowedFd<'_>, len: usize) -> Result<Vec<u8>> {
    let len = len.min(4096);
    if rustix::fs::fstat(fd)?.st_size == 0 {
        return Err(Errno::NODATA);
    }
    // SAFETY: a fresh read-only mapping at an address the kernel picks, checked before use.
    let map =
        unsafe { libc::mmap(ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
    if map == libc::MAP_FAILED {
        return Err(last_errno());
    }
    // SAFETY: the mapping is 4096 bytes and `len` is not more; the file is not empty, so its first page is there;
    // the copy ends before the unmapping. A process that empties the file meanwhile ends this one by SIGBUS.
    unsafe {
        let bytes = std::slice::from_raw_parts(map.cast::<u8>(), len).to_vec();
        libc::munmap(map, 4096);
        Ok(bytes)
    }
}

/// A file's handle, as `open_by_handle` takes it.
pub(crate) fn name_to_handle(path: &CStr) -> Result<Vec<u8>> {
    const ROOM: u32 = 128;
    let mut handle = vec![0_u64; 17];
    if let Some(first) = handle.first_mut() {
        *first = u64::from(ROOM);
    }
    let mut mount_id: c_int = 0;
    // SAFETY: `handle` is 136 bytes: the 8 of the header, whose first field says that 128 follow, and those.
    // It is aligned for the header, and both outlive the call.
    check(unsafe {
        let place = handle.as_mut_ptr();
        libc::syscall(libc::SYS_name_to_handle_at, libc::AT_FDCWD, path.as_ptr(), place, &raw mut mount_id, 0)
    })?;
    Ok(handle.into_iter().flat_map(u64::to_ne_bytes).collect())
}

/// Opens a file by its handle, read-only, past every directory.
pub(crate) fn open_by_handle(mount: BorrowedFd<'_>, handle: &[u8]) -> Result<OwnedFd> {
    let mut aligned = [0_u64; 17];
    for (slot, chunk) in aligned.iter_mut().zip(handle.chunks_exact(8)) {
        *slot = u64::from_ne_bytes(chunk.try_into().or(Err(Errno::INVAL))?);
    }
    if u32::try_from(aligned[0] & 0xffff_ffff).is_ok_and(|len| len > 128) {
        return Err(Errno::INVAL);
    }
    // SAFETY: the length in the header was checked to be at most the 128 bytes that follow it.
    to_fd(check(unsafe {
        let place = aligned.as_ptr();
        libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), place, libc::O_RDONLY)
    })?)
}

/// One datagram by `sendmmsg` to a Unix socket name (a path, or NUL and an abstract name).
pub(crate) fn sendmmsg_unix(socket: BorrowedFd<'_>, name: &[u8], bytes: &[u8]) -> Result<c_long> {
    // SAFETY: all-zero is a valid value of these plain C structures.
    let (mut address, mut message): (libc::sockaddr_un, libc::mmsghdr) = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    if name.len() >= address.sun_path.len() {
        return Err(Errno::NAMETOOLONG);
    }
    for (slot, byte) in address.sun_path.iter_mut().zip(name) {
        *slot = libc::c_char::from_ne_bytes([*byte]);
    }
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    message.msg_hdr.msg_name = (&raw mut address).cast();
    message.msg_hdr.msg_namelen = u32::try_from(2 + name.len()).or(Err(Errno::NAMETOOLONG))?;
    message.msg_hdr.msg_iov = &raw mut part;
    message.msg_hdr.msg_iovlen = 1;
    // SAFETY: one message whose name, length and single part describe live values of this function.
    check(unsafe { libc::syscall(libc::SYS_sendmmsg, socket.as_raw_fd(), &raw mut message, 1, 0) })
}

/// A System V shared memory segment with `bytes` in it.
pub(crate) fn shm_make(bytes: &[u8]) -> Result<c_int> {
    // SAFETY: integers only.
    let id = unsafe { libc::shmget(libc::IPC_PRIVATE, 4096, 0o600 | libc::IPC_CREAT) };
    check(c_long::from(id))?;
    let written = shm_with(id, 0, |place| {
        // SAFETY: the segment has 4096 bytes, is attached for writing, and nothing else knows it yet.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len().min(4096)) }
    });
    written.map(|()| id).inspect_err(|_| shm_remove(id))
}

/// The first bytes of a System V shared memory segment of at least a page.
pub(crate) fn shm_read(id: c_int, len: usize) -> Result<Vec<u8>> {
    shm_with(id, libc::SHM_RDONLY, |place| {
        // SAFETY: a segment is whole pages, so 4096 bytes are there; they are copied before the detaching.
        unsafe { std::slice::from_raw_parts(place, len.min(4096)).to_vec() }
    })
}

fn shm_with<T>(id: c_int, flags: c_int, body: impl FnOnce(*mut u8) -> T) -> Result<T> {
    // SAFETY: attached at an address the kernel picks, checked before use.
    let place = unsafe { libc::shmat(id, ptr::null(), flags) };
    if place.addr() == usize::MAX {
        return Err(last_errno());
    }
    let value = body(place.cast());
    // SAFETY: `place` was attached above and `body` kept no pointer into it (its result owns its bytes).
    unsafe { libc::shmdt(place) };
    Ok(value)
}

pub(crate) fn shm_remove(id: c_int) {
    // SAFETY: removal takes no buffer.
    unsafe { libc::shmctl(id, libc::IPC_RMID, ptr::null_mut()) };
}

/// A System V semaphore with this value.
pub(crate) fn sem_make(value: c_int) -> Result<c_int> {
    // SAFETY: integers only; SETVAL takes its value as an integer.
    unsafe {
        let id = libc::semget(libc::IPC_PRIVATE, 1, 0o600 | libc::IPC_CREAT);
        check(c_long::from(id))?;
        check(c_long::from(libc::semctl(id, 0, libc::SETVAL, value)))?;
        Ok(id)
    }
}

pub(crate) fn sem_value(id: c_int) -> Result<c_long> {
    // SAFETY: GETVAL takes no argument.
    check(c_long::from(unsafe { libc::semctl(id, 0, libc::GETVAL) }))
}

pub(crate) fn sem_remove(id: c_int) {
    // SAFETY: IPC_RMID takes no argument.
    unsafe { libc::semctl(id, 0, libc::IPC_RMID) };
}

#[repr(C)]
struct QueueMessage {
    kind: c_long,
    text: [u8; 64],
}

/// A System V message queue with one message of at most 64 bytes.
pub(crate) fn msg_make(bytes: &[u8]) -> Result<c_int> {
    let mut message = QueueMessage { kind: 1, text: [0; 64] };
    for (slot, byte) in message.text.iter_mut().zip(bytes) {
        *slot = *byte;
    }
    // SAFETY: the message has the layout msgsnd expects and 64 bytes of text, as the length says.
    unsafe {
        let id = libc::msgget(libc::IPC_PRIVATE, 0o600 | libc::IPC_CREAT);
        check(c_long::from(id))?;
        check(c_long::from(libc::msgsnd(id, (&raw const message).cast(), 64, libc::IPC_NOWAIT)))?;
        Ok(id)
    }
}

pub(crate) fn msg_receive(id: c_int) -> Result<Vec<u8>> {
    let mut message = QueueMessage { kind: 0, text: [0; 64] };
    // SAFETY: room for 64 bytes of text, as the length says.
    let len = unsafe { libc::msgrcv(id, (&raw mut message).cast(), 64, 0, libc::IPC_NOWAIT) };
    let len = usize::try_from(check(len as c_long)?).unwrap_or_default();
    Ok(message.text.into_iter().take(len).collect())
}

pub(crate) fn msg_remove(id: c_int) {
    // SAFETY: removal takes no buffer.
    unsafe { libc::msgctl(id, libc::IPC_RMID, ptr::null_mut()) };
}

/// Opens a POSIX message queue (`name` without its slash), making it when `create` says so.
pub(crate) fn mq_open(name: &CStr, create: CreateQueue) -> Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let flags = if create == CreateQueue::Yes { flags | libc::O_CREAT | libc::O_EXCL } else { flags };
    // SAFETY: a C string that outlives the call; null attributes mean the defaults.
    to_fd(check(unsafe { libc::syscall(libc::SYS_mq_open, name.as_ptr(), flags, 0o600, NULL) })?)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CreateQueue {
    Yes,
    No,
}

pub(crate) fn mq_send(queue: BorrowedFd<'_>, bytes: &[u8]) -> Result<()> {
    // SAFETY: the pointer and the length are those of one live slice; a null time means not to wait.
    check(unsafe {
        libc::syscall(libc::SYS_mq_timedsend, queue.as_raw_fd(), bytes.as_ptr(), bytes.len(), 0, NULL)
    })
    .map(drop)
}

pub(crate) fn mq_receive(queue: BorrowedFd<'_>) -> Result<Vec<u8>> {
    let mut bytes = vec![0_u8; 65_536];
    // SAFETY: the pointer and the length are those of one live buffer; a null priority is allowed.
    let len = check(unsafe {
        let (place, room) = (bytes.as_mut_ptr(), bytes.len());
        libc::syscall(libc::SYS_mq_timedreceive, queue.as_raw_fd(), place, room, NULL, NULL)
    })?;
    bytes.truncate(usize::try_from(len).unwrap_or_default());
    Ok(bytes)
}

pub(crate) fn mq_unlink(name: &CStr) {
    // SAFETY: a C string that outlives the call.
    unsafe { libc::syscall(libc::SYS_mq_unlink, name.as_ptr()) };
}
