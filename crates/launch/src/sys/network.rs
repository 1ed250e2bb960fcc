//! The network of the sandbox.

use core::ffi::c_char;

use libc::c_int;

use super::files::close;
use super::{Errno, SysResult, descriptor, ioctl, raw};

/// Brings the loopback interface up.
pub(crate) fn loopback_up() -> SysResult<()> {
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

pub(super) fn socket(family: c_int, kind: c_int, protocol: u64) -> SysResult<i32> {
    let kind = (kind | libc::SOCK_CLOEXEC) as usize;
    // SAFETY: no pointers.
    unsafe { raw(libc::SYS_socket, [family as usize, kind, protocol as usize, 0, 0, 0]) }.map(|fd| fd as i32)
}

/// A netlink socket; what is written to it goes to the kernel.
pub(crate) fn netlink_socket(protocol: u64) -> SysResult<i32> {
    socket(libc::AF_NETLINK, libc::SOCK_RAW, protocol)
}

/// Receives one datagram, or its beginning, without waiting.
pub(crate) fn read_now(socket: i32, buffer: &mut [u8]) -> SysResult<usize> {
    let (address, length) = (buffer.as_mut_ptr() as usize, buffer.len());
    // SAFETY: the kernel writes at most `buffer.len()` bytes into the exclusive borrow; no address is asked for.
    unsafe {
        raw(libc::SYS_recvfrom, [descriptor(socket), address, length, libc::MSG_DONTWAIT as usize, 0, 0])
    }
}

/// A socket of the given type that is bound to `address` and, if it is a stream, listens.
pub(crate) fn bound_socket(kind: u64, address: &[u8]) -> SysResult<i32> {
    let family = address.first_chunk::<2>().map(|family| c_int::from(u16::from_ne_bytes(*family)));
    let socket = socket(family.ok_or(Errno(libc::EINVAL))?, kind as c_int, 0)?;
    bind_and_listen(socket, family, kind, address).inspect_err(|_| close(socket))?;
    Ok(socket)
}

fn bind_and_listen(socket: i32, family: Option<c_int>, kind: u64, address: &[u8]) -> SysResult<()> {
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

fn both_families(socket: i32) -> SysResult<()> {
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
