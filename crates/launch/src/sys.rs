//! The only file of the launcher that is `unsafe`: the entry point, the system call instruction, the memory
//! functions that the compiler calls by name, and one thin function per system call.
//!
//! INVARIANT: no function here keeps a pointer after the system call it was passed to returns, except `map`,
//! whose mapping is never unmapped.
#![expect(unsafe_code, reason = "system calls and the entry point cannot be written without it")]

use core::ffi::{CStr, c_char};

use libc::{c_int, c_long, c_uint};

/// A kernel error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

pub(crate) type Result<T> = core::result::Result<T, Errno>;

// ---------------------------------------------------------------------------------------------------------------
// Entry and exit

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "xor %ebp, %ebp",
    "and $-16, %rsp",
    "call {entry}",
    "ud2",
    entry = sym entry,
    options(att_syntax)
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(".globl _start", "_start:", "mov x29, #0", "mov x30, #0", "bl {entry}", "brk #1", entry = sym entry);

extern "C" fn entry() -> ! {
    exit(crate::launch())
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    exit(125)
}

pub(crate) fn exit(code: i32) -> ! {
    loop {
        // SAFETY: exit_group takes an integer and does not return.
        let _ = unsafe { raw(libc::SYS_exit_group, [code as usize, 0, 0, 0, 0, 0]) };
    }
}

// ---------------------------------------------------------------------------------------------------------------
// The memory functions that compiled code calls by name. Nothing else provides them: there is no C library.

/// # Safety
/// As memcpy(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    let mut index = 0;
    while index < length {
        // SAFETY: the caller promises `length` readable and writable bytes. Volatile keeps the compiler from
        // turning this loop into a call to memcpy.
        unsafe { to.add(index).write_volatile(from.add(index).read()) };
        index += 1;
    }
    to
}

/// # Safety
/// As memmove(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    if (to as usize) <= (from as usize) {
        // SAFETY: copying upwards never overwrites a source byte that is still to be read.
        return unsafe { memcpy(to, from, length) };
    }
    let mut index = length;
    while index > 0 {
        index -= 1;
        // SAFETY: as in memcpy, and downwards for the overlapping case.
        unsafe { to.add(index).write_volatile(from.add(index).read()) };
    }
    to
}

/// # Safety
/// As memset(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, length: usize) -> *mut u8 {
    let mut index = 0;
    while index < length {
        // SAFETY: the caller promises `length` writable bytes; volatile as in memcpy.
        unsafe { to.add(index).write_volatile(value as u8) };
        index += 1;
    }
    to
}

/// # Safety
/// As memcmp(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, length: usize) -> i32 {
    let mut index = 0;
    while index < length {
        // SAFETY: the caller promises `length` readable bytes on both sides; volatile as in memcpy.
        let (x, y) = unsafe { (a.add(index).read_volatile(), b.add(index).read_volatile()) };
        if x != y {
            return i32::from(x) - i32::from(y);
        }
        index += 1;
    }
    0
}

/// # Safety
/// As bcmp(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, length: usize) -> i32 {
    // SAFETY: the same contract.
    unsafe { memcmp(a, b, length) }
}

/// # Safety
/// As strlen(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const c_char) -> usize {
    let mut length = 0;
    // SAFETY: the caller promises a NUL-terminated string; volatile as in memcpy.
    while unsafe { text.add(length).read_volatile() } != 0 {
        length += 1;
    }
    length
}

// ---------------------------------------------------------------------------------------------------------------
// The system call

/// # Safety
/// Every argument that is a pointer must be valid for what the call does with it.
#[cfg(target_arch = "x86_64")]
unsafe fn raw(number: c_long, a: [usize; 6]) -> Result<usize> {
    let answer: isize;
    // SAFETY: the caller vouches for the pointers; rcx and r11 are the registers the instruction destroys.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    decode(answer)
}

/// # Safety
/// Every argument that is a pointer must be valid for what the call does with it.
#[cfg(target_arch = "aarch64")]
unsafe fn raw(number: c_long, a: [usize; 6]) -> Result<usize> {
    let answer: isize;
    // SAFETY: the caller vouches for the pointers; the kernel preserves every register but x0.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a[0] as isize => answer,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5],
            options(nostack)
        );
    }
    decode(answer)
}

fn decode(answer: isize) -> Result<usize> {
    if (-4095..0).contains(&answer) { Err(Errno(-answer as i32)) } else { Ok(answer as usize) }
}

fn text(value: &CStr) -> usize {
    value.as_ptr() as usize
}

/// A file descriptor as the kernel wants it: negative numbers (`AT_FDCWD`) keep their sign.
fn descriptor(fd: i32) -> usize {
    fd as isize as usize
}

// ---------------------------------------------------------------------------------------------------------------
// Files and descriptors

pub(crate) fn close(fd: i32) {
    // SAFETY: no pointers. An error means that the descriptor is gone already.
    let _ = unsafe { raw(libc::SYS_close, [descriptor(fd), 0, 0, 0, 0, 0]) };
}

pub(crate) fn close_range(first: u32, last: u32) -> Result<()> {
    if first > last {
        return Ok(());
    }
    // SAFETY: no pointers.
    unsafe { raw(libc::SYS_close_range, [first as usize, last as usize, 0, 0, 0, 0]) }.map(drop)
}

pub(crate) fn dup3(from: i32, to: i32) -> Result<()> {
    // SAFETY: no pointers.
    unsafe { raw(libc::SYS_dup3, [descriptor(from), descriptor(to), 0, 0, 0, 0]) }.map(drop)
}

/// A duplicate with the lowest number that is at least `least`.
pub(crate) fn duplicate_above(fd: i32, least: i32) -> Result<i32> {
    // SAFETY: no pointers for F_DUPFD_CLOEXEC.
    unsafe { raw(libc::SYS_fcntl, [descriptor(fd), libc::F_DUPFD_CLOEXEC as usize, least as usize, 0, 0, 0]) }
        .map(|new| new as i32)
}

pub(crate) fn open(directory: i32, path: &CStr, flags: c_int, mode: u32) -> Result<i32> {
    // SAFETY: `path` is a C string that outlives the call.
    unsafe { raw(libc::SYS_openat, [descriptor(directory), text(path), flags as usize, mode as usize, 0, 0]) }
        .map(|fd| fd as i32)
}

/// `O_PATH` beneath `directory`, refusing every symbolic link on the way; the last component may be one.
pub(crate) fn open_beneath(directory: i32, path: &CStr) -> Result<i32> {
    const BENEATH: u64 = 0x08;
    open_without_links(directory, path, BENEATH)
}

/// `O_PATH` at an absolute path, refusing every symbolic link on the way.
pub(crate) fn open_absolute(path: &CStr) -> Result<i32> {
    open_without_links(libc::AT_FDCWD, path, 0)
}

fn open_without_links(directory: i32, path: &CStr, resolve: u64) -> Result<i32> {
    #[repr(C)]
    struct OpenHow {
        flags: u64,
        mode: u64,
        resolve: u64,
    }
    const NO_MAGICLINKS: u64 = 0x02;
    const NO_SYMLINKS: u64 = 0x04;
    let how = OpenHow {
        flags: (libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC) as u64,
        mode: 0,
        resolve: resolve | NO_MAGICLINKS | NO_SYMLINKS,
    };
    let size = size_of::<OpenHow>();
    // SAFETY: `path` and `how` outlive the call and `size` is the size of `how`.
    unsafe {
        raw(libc::SYS_openat2, [descriptor(directory), text(path), &raw const how as usize, size, 0, 0])
    }
    .map(|fd| fd as i32)
}

pub(crate) fn read(fd: i32, buffer: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes into the exclusive borrow.
    unsafe { raw(libc::SYS_read, [descriptor(fd), buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0]) }
}

pub(crate) fn write(fd: i32, buffer: &[u8]) -> Result<usize> {
    // SAFETY: the kernel reads `buffer.len()` bytes of the borrow.
    unsafe { raw(libc::SYS_write, [descriptor(fd), buffer.as_ptr() as usize, buffer.len(), 0, 0, 0]) }
}

pub(crate) fn directory_entries(fd: i32, buffer: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes into the exclusive borrow.
    unsafe {
        raw(libc::SYS_getdents64, [descriptor(fd), buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0])
    }
}

pub(crate) fn make_directory(path: &CStr, mode: u32) -> Result<()> {
    // SAFETY: `path` outlives the call.
    unsafe { raw(libc::SYS_mkdirat, [descriptor(libc::AT_FDCWD), text(path), mode as usize, 0, 0, 0]) }
        .map(drop)
}

pub(crate) fn symlink(target: &CStr, path: &CStr) -> Result<()> {
    // SAFETY: both strings outlive the call.
    unsafe { raw(libc::SYS_symlinkat, [text(target), descriptor(libc::AT_FDCWD), text(path), 0, 0, 0]) }
        .map(drop)
}

pub(crate) fn change_directory(path: &CStr) -> Result<()> {
    // SAFETY: `path` outlives the call.
    unsafe { raw(libc::SYS_chdir, [text(path), 0, 0, 0, 0, 0]) }.map(drop)
}

/// What is behind an `O_PATH` descriptor.
pub(crate) struct Object {
    pub(crate) directory: bool,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

pub(crate) fn look_at(fd: i32) -> Result<Object> {
    // SAFETY: an all-zero `stat` is a valid value of a C struct of integers.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    let empty = c"";
    // SAFETY: `stat` and the empty path outlive the call, which fills exactly one `struct stat`.
    unsafe {
        raw(
            libc::SYS_newfstatat,
            [descriptor(fd), text(empty), &raw mut stat as usize, libc::AT_EMPTY_PATH as usize, 0, 0],
        )
    }?;
    let directory = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
    Ok(Object { directory, device: stat.st_dev, inode: stat.st_ino })
}

/// Whether a file system has no room left; one that cannot be asked counts as roomy.
pub(crate) fn is_full(path: &CStr) -> bool {
    // SAFETY: an all-zero `statfs` is a valid value of a C struct of integers.
    let mut found: libc::statfs = unsafe { core::mem::zeroed() };
    // SAFETY: `path` and `found` outlive the call, which fills exactly one `struct statfs`.
    let answer = unsafe { raw(libc::SYS_statfs, [text(path), &raw mut found as usize, 0, 0, 0, 0]) };
    answer.is_ok() && found.f_blocks > 0 && found.f_bavail == 0
}

/// Maps a whole file read-only, for good.
pub(crate) fn map(fd: i32, length: usize) -> Result<&'static [u8]> {
    let address = map_memory(length, libc::PROT_READ, libc::MAP_PRIVATE, fd)?;
    // SAFETY: the kernel gave `length` readable bytes at `address`; the file is a sealed memfd that can neither
    // shrink nor change, and the mapping is never removed.
    Ok(unsafe { core::slice::from_raw_parts(address as *const u8, length) })
}

/// Zeroed words, for good.
pub(crate) fn allocate_words(count: usize) -> Result<&'static mut [usize]> {
    let size = count.checked_mul(size_of::<usize>()).ok_or(Errno(libc::ENOMEM))?;
    let address =
        map_memory(size, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
    // SAFETY: a fresh private anonymous mapping of `count` words, page aligned, zeroed, owned by nobody else.
    Ok(unsafe { core::slice::from_raw_parts_mut(address as *mut usize, count) })
}

fn map_memory(length: usize, protection: c_int, flags: c_int, fd: i32) -> Result<usize> {
    // SAFETY: address 0 lets the kernel choose, so no existing mapping is touched.
    unsafe { raw(libc::SYS_mmap, [0, length, protection as usize, flags as usize, descriptor(fd), 0]) }
}

// ---------------------------------------------------------------------------------------------------------------
// Mounts

pub(crate) fn mount(source: &CStr, target: &CStr, kind: &CStr, flags: u64, data: &CStr) -> Result<()> {
    // SAFETY: all strings outlive the call.
    unsafe { raw(libc::SYS_mount, [text(source), text(target), text(kind), flags as usize, text(data), 0]) }
        .map(drop)
}

pub(crate) fn pivot_root(new: &CStr, old: &CStr) -> Result<()> {
    // SAFETY: both strings outlive the call.
    unsafe { raw(libc::SYS_pivot_root, [text(new), text(old), 0, 0, 0, 0]) }.map(drop)
}

pub(crate) fn detach(path: &CStr) -> Result<()> {
    // SAFETY: `path` outlives the call.
    unsafe { raw(libc::SYS_umount2, [text(path), libc::MNT_DETACH as usize, 0, 0, 0, 0]) }.map(drop)
}

/// A detached copy of the mount tree at a descriptor.
pub(crate) fn clone_tree(fd: i32) -> Result<i32> {
    const OPEN_TREE_CLONE: c_int = 1;
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC | libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: the empty path outlives the call.
    unsafe { raw(libc::SYS_open_tree, [descriptor(fd), text(c""), flags as usize, 0, 0, 0]) }
        .map(|fd| fd as i32)
}

/// Attaches a detached tree on top of the object behind `target`.
pub(crate) fn attach_tree(tree: i32, target: i32) -> Result<()> {
    const FROM_EMPTY: usize = 0x04;
    const TO_EMPTY: usize = 0x40;
    // SAFETY: the empty paths outlive the call.
    unsafe {
        raw(
            libc::SYS_move_mount,
            [descriptor(tree), text(c""), descriptor(target), text(c""), FROM_EMPTY | TO_EMPTY, 0],
        )
    }
    .map(drop)
}

pub(crate) const READ_ONLY: u64 = 0x1;
pub(crate) const NO_SETUID: u64 = 0x2;
pub(crate) const NO_DEVICES: u64 = 0x4;
pub(crate) const NO_EXECUTE: u64 = 0x8;

#[derive(Clone, Copy)]
pub(crate) enum Reach {
    One,
    Recursive,
}

/// Adds mount attributes to the mount at `path` relative to `directory` (empty path: the descriptor itself).
pub(crate) fn set_attributes(directory: i32, path: &CStr, attributes: u64, reach: Reach) -> Result<()> {
    #[repr(C)]
    struct MountAttr {
        set: u64,
        clear: u64,
        propagation: u64,
        userns_fd: u64,
    }
    let request = MountAttr { set: attributes, clear: 0, propagation: 0, userns_fd: 0 };
    let recursive = match reach {
        Reach::One => 0,
        Reach::Recursive => libc::AT_RECURSIVE,
    };
    let flags = recursive | libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: `path` and `request` outlive the call and the size is that of `request`.
    unsafe {
        raw(
            libc::SYS_mount_setattr,
            [
                descriptor(directory),
                text(path),
                flags as usize,
                &raw const request as usize,
                size_of::<MountAttr>(),
                0,
            ],
        )
    }
    .map(drop)
}

// ---------------------------------------------------------------------------------------------------------------
// Namespaces, identity, limits

pub(crate) fn unshare(flags: u64) -> Result<()> {
    // SAFETY: no pointers; the process is single-threaded, so nothing else shares what is unshared.
    unsafe { raw(libc::SYS_unshare, [flags as usize, 0, 0, 0, 0, 0]) }.map(drop)
}

pub(crate) fn enter_namespace(fd: i32, kind: c_int) -> Result<()> {
    // SAFETY: no pointers; the process is single-threaded.
    unsafe { raw(libc::SYS_setns, [descriptor(fd), kind as usize, 0, 0, 0, 0]) }.map(drop)
}

pub(crate) fn set_hostname(name: &CStr) -> Result<()> {
    // SAFETY: the kernel reads `len` bytes of a string that outlives the call.
    unsafe { raw(libc::SYS_sethostname, [text(name), name.count_bytes(), 0, 0, 0, 0]) }.map(drop)
}

/// Brings the loopback interface up.
pub(crate) fn loopback_up() -> Result<()> {
    let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    // SAFETY: an all-zero `ifreq` is a valid value of a C struct of integers and unions of integers.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *slot = *byte as c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    // SAFETY: `request` outlives the call and SIOCSIFFLAGS reads one `ifreq`.
    let answer = unsafe { ioctl(socket, libc::SIOCSIFFLAGS as usize, &raw const request as usize) };
    close(socket);
    answer.map(drop)
}

fn socket(family: c_int, kind: c_int, protocol: u64) -> Result<i32> {
    let kind = (kind | libc::SOCK_CLOEXEC) as usize;
    // SAFETY: no pointers.
    unsafe { raw(libc::SYS_socket, [family as usize, kind, protocol as usize, 0, 0, 0]) }.map(|fd| fd as i32)
}

/// A netlink socket; what is written to it goes to the kernel.
pub(crate) fn netlink_socket(protocol: u64) -> Result<i32> {
    socket(libc::AF_NETLINK, libc::SOCK_RAW, protocol)
}

/// Receives one datagram, or its beginning, without waiting.
pub(crate) fn read_now(socket: i32, buffer: &mut [u8]) -> Result<usize> {
    let (address, length) = (buffer.as_mut_ptr() as usize, buffer.len());
    // SAFETY: the kernel writes at most `buffer.len()` bytes into the exclusive borrow; no address is asked for.
    unsafe {
        raw(libc::SYS_recvfrom, [descriptor(socket), address, length, libc::MSG_DONTWAIT as usize, 0, 0])
    }
}

/// A socket of the given type that is bound to `address` and, if it is a stream, listens.
pub(crate) fn bound_socket(kind: u64, address: &[u8]) -> Result<i32> {
    let family = address.first_chunk::<2>().map(|family| c_int::from(u16::from_ne_bytes(*family)));
    let socket = socket(family.ok_or(Errno(libc::EINVAL))?, kind as c_int, 0)?;
    bind_and_listen(socket, family, (kind, address)).inspect_err(|_| close(socket))?;
    Ok(socket)
}

fn bind_and_listen(socket: i32, family: Option<c_int>, (kind, address): (u64, &[u8])) -> Result<()> {
    const BACKLOG: usize = 4096;
    if family == Some(libc::AF_INET6) {
        both_families(socket)?;
    }
    // SAFETY: the kernel reads `address.len()` bytes of the borrow.
    unsafe { raw(libc::SYS_bind, [descriptor(socket), address.as_ptr() as usize, address.len(), 0, 0, 0]) }?;
    if kind == libc::SOCK_STREAM as u64 {
        // SAFETY: no pointers.
        unsafe { raw(libc::SYS_listen, [descriptor(socket), BACKLOG, 0, 0, 0, 0]) }?;
    }
    Ok(())
}

fn both_families(socket: i32) -> Result<()> {
    let off: c_int = 0;
    let (level, option) = (libc::IPPROTO_IPV6 as usize, libc::IPV6_V6ONLY as usize);
    // SAFETY: the kernel reads one int that outlives the call.
    unsafe {
        raw(
            libc::SYS_setsockopt,
            [descriptor(socket), level, option, &raw const off as usize, size_of::<c_int>(), 0],
        )
    }
    .map(drop)
}

/// The user namespace that a namespace belongs to.
pub(crate) fn owner_of(namespace: i32) -> Result<i32> {
    const NS_GET_USERNS: usize = 0xb701;
    // SAFETY: NS_GET_USERNS takes no argument.
    unsafe { ioctl(namespace, NS_GET_USERNS, 0) }.map(|fd| fd as i32)
}

/// # Safety
/// `argument` must be what the request expects.
unsafe fn ioctl(fd: i32, request: usize, argument: usize) -> Result<usize> {
    // SAFETY: passed on.
    unsafe { raw(libc::SYS_ioctl, [descriptor(fd), request, argument, 0, 0, 0]) }
}

pub(crate) fn set_limit(resource: u64, soft: u64, hard: u64) -> Result<()> {
    let limit = libc::rlimit64 { rlim_cur: soft, rlim_max: hard };
    // SAFETY: `limit` outlives the call; pid 0 is this process; the old value is not asked for.
    unsafe { raw(libc::SYS_prlimit64, [0, resource as usize, &raw const limit as usize, 0, 0, 0]) }.map(drop)
}

pub(crate) fn prctl(option: c_int, a: usize, b: usize) -> Result<usize> {
    // SAFETY: only options whose arguments are integers are used in this program.
    unsafe { raw(libc::SYS_prctl, [option as usize, a, b, 0, 0, 0]) }
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
pub(crate) fn clear_capabilities() -> Result<()> {
    let header = CapHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let data = [CapData::default(); 2];
    // SAFETY: version 3 reads a header and two data words; both outlive the call.
    unsafe { raw(libc::SYS_capset, [&raw const header as usize, data.as_ptr() as usize, 0, 0, 0, 0]) }
        .map(drop)
}

pub(crate) fn capabilities_empty() -> Result<bool> {
    let header = CapHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let mut data = [CapData { effective: 1, permitted: 1, inheritable: 1 }; 2];
    // SAFETY: version 3 writes two data words into the exclusive borrow.
    unsafe { raw(libc::SYS_capget, [&raw const header as usize, data.as_mut_ptr() as usize, 0, 0, 0, 0]) }?;
    Ok(data.iter().all(|word| word.effective | word.permitted | word.inheritable == 0))
}

// ---------------------------------------------------------------------------------------------------------------
// Landlock and seccomp

#[repr(C)]
struct RulesetAttr {
    fs: u64,
    net: u64,
    scoped: u64,
}

/// Creates a ruleset. Fields that an older kernel does not know are left off its end while they are zero.
pub(crate) fn landlock_create(fs: u64, net: u64, scoped: u64) -> Result<i32> {
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

pub(crate) fn landlock_allow(ruleset: i32, beneath: i32, access: u64) -> Result<()> {
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

pub(crate) fn landlock_enforce(ruleset: i32) -> Result<()> {
    // SAFETY: no pointers.
    unsafe { raw(libc::SYS_landlock_restrict_self, [descriptor(ruleset), 0, 0, 0, 0, 0]) }.map(drop)
}

/// Installs a filter: `program` is an array of `struct sock_filter`.
pub(crate) fn seccomp_filter(program: &[u8]) -> Result<()> {
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
    unsafe { raw(libc::SYS_seccomp, [SET_MODE_FILTER, 0, &raw const request as usize, 0, 0, 0]) }.map(drop)
}

// ---------------------------------------------------------------------------------------------------------------
// Processes and signals

pub(crate) enum Forked {
    Parent(i32),
    Child,
}

pub(crate) fn fork() -> Result<Forked> {
    // SAFETY: no new stack and no shared memory: the child continues on a copy of this one. The process is
    // single-threaded and has no C library whose locks could be held.
    unsafe { raw(libc::SYS_clone, [libc::SIGCHLD as usize, 0, 0, 0, 0, 0]) }.map(forked)
}

/// Forks PID 1 of the new namespace as a sibling, so that the parent of this process is its parent, and returns
/// a pidfd for it.
pub(crate) fn fork_sibling() -> Result<(Forked, i32)> {
    let mut pidfd: c_int = -1;
    let flags = libc::CLONE_PARENT | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: as in `fork`; the kernel writes one int to `pidfd` in the parent's memory before it returns.
    let answer = unsafe { raw(libc::SYS_clone, [flags as usize, 0, &raw mut pidfd as usize, 0, 0, 0]) }?;
    // SAFETY: reads the int that the kernel wrote behind the compiler's back.
    let pidfd = unsafe { (&raw const pidfd).read_volatile() };
    Ok((forked(answer), pidfd))
}

fn forked(answer: usize) -> Forked {
    match answer {
        0 => Forked::Child,
        pid => Forked::Parent(pid as i32),
    }
}

/// Executes; `arguments` and `environment` are NULL-terminated arrays of C strings built by `command.rs`.
pub(crate) fn execute(path: &CStr, arguments: &[usize], environment: &[usize]) -> Errno {
    if arguments.last() != Some(&0) || environment.last() != Some(&0) {
        return Errno(libc::EINVAL);
    }
    // SAFETY: both arrays end in NULL (checked) and hold addresses of C strings in a mapping that is never
    // removed; on success this program is gone.
    match unsafe {
        raw(
            libc::SYS_execve,
            [text(path), arguments.as_ptr() as usize, environment.as_ptr() as usize, 0, 0, 0],
        )
    } {
        Ok(_) => Errno(libc::EINVAL),
        Err(errno) => errno,
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) pid: i32,
    pub(crate) status: i32,
    pub(crate) user_us: u64,
    pub(crate) system_us: u64,
    pub(crate) max_rss_kib: u64,
}

/// Reaps one child that has ended; `None` when none has, `ECHILD` when there are none.
pub(crate) fn reap() -> Result<Option<Ended>> {
    let mut status: c_int = 0;
    // SAFETY: an all-zero `rusage` is a valid value of a C struct of integers.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes one int and one rusage, both of which outlive the call.
    let pid = unsafe {
        raw(
            libc::SYS_wait4,
            [
                usize::MAX,
                &raw mut status as usize,
                (libc::WNOHANG | libc::__WALL) as usize,
                &raw mut usage as usize,
                0,
                0,
            ],
        )
    }?;
    if pid == 0 {
        return Ok(None);
    }
    Ok(Some(Ended {
        pid: pid as i32,
        status,
        user_us: microseconds(usage.ru_utime),
        system_us: microseconds(usage.ru_stime),
        max_rss_kib: usage.ru_maxrss as u64,
    }))
}

fn microseconds(time: libc::timeval) -> u64 {
    (time.tv_sec as u64).wrapping_mul(1_000_000).wrapping_add(time.tv_usec as u64)
}

pub(crate) fn kill(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: no pointers.
    unsafe { raw(libc::SYS_kill, [descriptor(pid), signal as usize, 0, 0, 0, 0]) }.map(drop)
}

pub(crate) fn own_pid() -> i32 {
    // SAFETY: no pointers; getpid cannot fail.
    unsafe { raw(libc::SYS_getpid, [0; 6]) }.map_or(0, |pid| pid as i32)
}

/// The effective user and group of this process.
pub(crate) fn own_ids() -> (u64, u64) {
    // SAFETY: no pointers; geteuid and getegid cannot fail.
    let [uid, gid] = [libc::SYS_geteuid, libc::SYS_getegid].map(|call| unsafe { raw(call, [0; 6]) });
    (uid.map_or(0, |id| id as u64), gid.map_or(0, |id| id as u64))
}

pub(crate) fn parent_pid() -> i32 {
    // SAFETY: no pointers; getppid cannot fail.
    unsafe { raw(libc::SYS_getppid, [0; 6]) }.map_or(0, |pid| pid as i32)
}

pub(crate) fn open_pidfd(pid: i32) -> Result<i32> {
    // SAFETY: no pointers.
    unsafe { raw(libc::SYS_pidfd_open, [descriptor(pid), 0, 0, 0, 0, 0]) }.map(|fd| fd as i32)
}

pub(crate) fn set_session() -> Result<()> {
    // SAFETY: no pointers.
    unsafe { raw(libc::SYS_setsid, [0; 6]) }.map(drop)
}

pub(crate) fn set_umask(mask: u32) {
    // SAFETY: no pointers; umask cannot fail.
    let _ = unsafe { raw(libc::SYS_umask, [mask as usize, 0, 0, 0, 0, 0]) };
}

const SIGNAL_SET_SIZE: usize = 8;

pub(crate) fn block_signals(set: u64) -> Result<()> {
    let set = &raw const set as usize;
    // SAFETY: the kernel reads eight bytes of `set`.
    unsafe { raw(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, set, 0, SIGNAL_SET_SIZE, 0, 0]) }
        .map(drop)
}

/// Default action for every signal, so that nothing ignored by a caller is ignored by a command.
pub(crate) fn default_signals() {
    let default = [0_u64; 4];
    for signal in 1..=64_usize {
        // SAFETY: an all-zero `struct sigaction` means SIG_DFL; SIGKILL and SIGSTOP answer EINVAL, which is fine.
        let _ = unsafe {
            raw(libc::SYS_rt_sigaction, [signal, default.as_ptr() as usize, 0, SIGNAL_SET_SIZE, 0, 0])
        };
    }
}

pub(crate) struct Received {
    pub(crate) signal: i32,
    pub(crate) sender: i32,
}

/// Waits for one of the blocked signals in `set`.
pub(crate) fn wait_signal(set: u64) -> Result<Received> {
    // SAFETY: an all-zero `siginfo_t` is a valid value of a C struct of integers.
    let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
    let set = &raw const set as usize;
    // SAFETY: the kernel reads eight bytes of `set` and writes one siginfo.
    let signal =
        unsafe { raw(libc::SYS_rt_sigtimedwait, [set, &raw mut info as usize, 0, SIGNAL_SET_SIZE, 0, 0]) }?;
    // SAFETY: for signals sent by kill(2) and for SIGCHLD the kernel fills the pid; for others it stays zero.
    let sender = unsafe { info.si_pid() };
    Ok(Received { signal: signal as i32, sender })
}

/// A descriptor that becomes readable when one of `set` is pending.
pub(crate) fn signal_descriptor(set: u64) -> Result<i32> {
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: the kernel reads eight bytes of `set`.
    unsafe {
        raw(libc::SYS_signalfd4, [usize::MAX, &raw const set as usize, SIGNAL_SET_SIZE, flags as usize, 0, 0])
    }
    .map(|fd| fd as i32)
}

/// Waits until one of two descriptors is readable or closed.
pub(crate) fn wait_readable(first: i32, second: i32) -> Result<(bool, bool)> {
    let mut fds = [
        libc::pollfd { fd: first, events: libc::POLLIN, revents: 0 },
        libc::pollfd { fd: second, events: libc::POLLIN, revents: 0 },
    ];
    // SAFETY: the kernel reads and writes two pollfds; no timeout, no signal mask.
    unsafe { raw(libc::SYS_ppoll, [fds.as_mut_ptr() as usize, 2, 0, 0, 0, 0]) }?;
    let [a, b] = fds;
    Ok((a.revents != 0, b.revents != 0))
}

// ---------------------------------------------------------------------------------------------------------------
// Terminals

/// Opens a fresh terminal and returns (master, slave).
pub(crate) fn open_terminal(rows: u16, columns: u16) -> Result<(i32, i32)> {
    let master = open(libc::AT_FDCWD, c"/dev/ptmx", libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC, 0)?;
    let unlocked: c_int = 0;
    // SAFETY: TIOCSPTLCK reads one int that outlives the call.
    unsafe { ioctl(master, libc::TIOCSPTLCK as usize, &raw const unlocked as usize) }?;
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCSWINSZ reads one winsize that outlives the call.
    unsafe { ioctl(master, libc::TIOCSWINSZ as usize, &raw const size as usize) }?;
    const TIOCGPTPEER: usize = 0x5441;
    let flags = (libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC) as usize;
    // SAFETY: TIOCGPTPEER takes open flags by value.
    let slave = unsafe { ioctl(master, TIOCGPTPEER, flags) }?;
    Ok((master, slave as i32))
}

pub(crate) fn control_terminal(fd: i32) -> Result<()> {
    // SAFETY: TIOCSCTTY takes an integer by value.
    unsafe { ioctl(fd, libc::TIOCSCTTY as usize, 0) }.map(drop)
}

// ---------------------------------------------------------------------------------------------------------------
// The control socket

/// The most descriptors one message carries.
pub(crate) const MAX_FDS: usize = 5;
const CONTROL_SIZE: usize = 16 + MAX_FDS * size_of::<c_int>() + 4;

#[repr(C, align(8))]
struct Ancillary([u8; CONTROL_SIZE]);

fn header(buffer: &mut libc::iovec, control: &mut Ancillary, length: usize) -> libc::msghdr {
    // SAFETY: an all-zero `msghdr` is a valid value of a C struct of integers and pointers.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = buffer;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = length;
    header
}

/// Makes `target` a connection to the packet socket at `path`.
pub(crate) fn connect(path: &CStr, target: i32) -> Result<()> {
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };
    if path.count_bytes() >= address.sun_path.len() {
        return Err(Errno(libc::ENAMETOOLONG));
    }
    for (slot, byte) in address.sun_path.iter_mut().zip(path.to_bytes()) {
        *slot = *byte as c_char;
    }
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let socket =
        unsafe { raw(libc::SYS_socket, [libc::AF_UNIX as usize, kind as usize, 0, 0, 0, 0]) }? as i32;
    let size = size_of::<libc::sockaddr_un>();
    // SAFETY: `address` outlives the call and `size` is its size.
    unsafe { raw(libc::SYS_connect, [descriptor(socket), &raw const address as usize, size, 0, 0, 0]) }?;
    let answer = if socket == target { Ok(()) } else { dup3(socket, target) };
    if socket != target {
        close(socket);
    }
    answer
}

/// Sends one packet, with at most one descriptor.
pub(crate) fn send(socket: i32, bytes: &[u8], fd: Option<i32>) -> Result<()> {
    let mut buffer = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Ancillary([0; CONTROL_SIZE]);
    let length = match fd {
        None => 0,
        Some(fd) => write_descriptor(&mut control, fd),
    };
    let header = header(&mut buffer, &mut control, length);
    let flags = libc::MSG_NOSIGNAL as usize;
    // SAFETY: the header points at `bytes` (only read by sendmsg) and `control`, which both outlive the call.
    unsafe { raw(libc::SYS_sendmsg, [descriptor(socket), &raw const header as usize, flags, 0, 0, 0]) }
        .map(drop)
}

fn write_descriptor(control: &mut Ancillary, fd: i32) -> usize {
    let length: usize = 16 + 4;
    let header = length.to_ne_bytes().into_iter().chain(libc::SOL_SOCKET.to_ne_bytes());
    let bytes = header.chain(libc::SCM_RIGHTS.to_ne_bytes()).chain(fd.to_ne_bytes());
    for (slot, byte) in control.0.iter_mut().zip(bytes) {
        *slot = byte;
    }
    length.next_multiple_of(8)
}

/// Receives one packet and its descriptors; zero bytes is the end.
pub(crate) fn receive(socket: i32, bytes: &mut [u8], fds: &mut [i32; MAX_FDS]) -> Result<(usize, usize)> {
    let mut buffer = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = Ancillary([0; CONTROL_SIZE]);
    let mut header = header(&mut buffer, &mut control, CONTROL_SIZE);
    let flags = libc::MSG_CMSG_CLOEXEC as usize;
    // SAFETY: the kernel writes into `bytes` and `control` within the lengths given and updates the header.
    let length =
        unsafe { raw(libc::SYS_recvmsg, [descriptor(socket), &raw mut header as usize, flags, 0, 0, 0]) }?;
    if header.msg_flags & (libc::MSG_CTRUNC | libc::MSG_TRUNC) != 0 {
        return Err(Errno(libc::EMSGSIZE));
    }
    Ok((length, read_descriptors(&control, header.msg_controllen, fds)))
}

fn read_descriptors(control: &Ancillary, length: usize, fds: &mut [i32; MAX_FDS]) -> usize {
    if length < 20 {
        return 0;
    }
    let Some((size, rest)) = control.0.split_first_chunk::<8>() else { return 0 };
    let count = (usize::from_ne_bytes(*size).saturating_sub(16) / 4).min(MAX_FDS);
    let descriptors = rest.get(8..).unwrap_or_default().as_chunks::<4>().0;
    for (slot, word) in fds.iter_mut().zip(descriptors).take(count) {
        *slot = i32::from_ne_bytes(*word);
    }
    count
}

pub(crate) const ALL_SIGNALS: u64 = u64::MAX;

pub(crate) const fn signal_bit(signal: c_int) -> u64 {
    1 << (signal as c_uint - 1)
}
