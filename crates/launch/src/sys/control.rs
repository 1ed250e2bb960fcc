//! The control socket.

use core::ffi::{CStr, c_char};

use libc::c_int;

use super::files::{close, dup3};
use super::network::socket;
use super::{Errno, SysResult, descriptor, raw};

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
pub(crate) fn connect(path: &CStr, target: i32) -> SysResult<()> {
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };
    if path.count_bytes() >= address.sun_path.len() {
        return Err(Errno(libc::ENAMETOOLONG));
    }
    for (slot, byte) in address.sun_path.iter_mut().zip(path.to_bytes()) {
        *slot = *byte as c_char;
    }
    let socket = socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0)?;
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
pub(crate) fn send(socket: i32, bytes: &[u8], fd: Option<i32>) -> SysResult<()> {
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
pub(crate) fn receive(socket: i32, bytes: &mut [u8], fds: &mut [i32; MAX_FDS]) -> SysResult<(usize, usize)> {
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
