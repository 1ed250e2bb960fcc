//! The network of a sandbox: sends the plan's netlink messages and opens its listeners, without interpreting them.

use core::ffi::CStr;

use ringfence_launch::wire::ControlMessage;

use crate::sys::{self, Errno};
use crate::{CONTROL, descendants, init, steps};

/// Sends netlink messages and checks every answer.
///
/// KERNEL: the messages are processed before the send returns, so all answers are available then. Errors are answered always; the
/// last message requests an acknowledgement.
pub(crate) fn send(protocol: u64, messages: &[u8]) -> Result<(), Errno> {
    let socket = sys::netlink_socket(protocol)?;
    let answer = sys::write(socket, messages).and_then(|_| read_answers(socket));
    sys::close(socket);
    answer
}

fn read_answers(socket: i32) -> Result<(), Errno> {
    let mut acknowledged = false;
    loop {
        let mut bytes = [0_u8; ANSWER];
        match sys::read_now(socket, &mut bytes) {
            Ok(length) if length >= ANSWER => check(&bytes)?,
            Ok(_) => return Err(Errno(libc::EPROTO)),
            Err(Errno(libc::EAGAIN)) if acknowledged => return Ok(()),
            Err(errno) => return Err(errno),
        }
        acknowledged = true;
    }
}

/// A netlink header and the error number of an `NLMSG_ERROR`.
const ANSWER: usize = 20;

fn check(answer: &[u8; ANSWER]) -> Result<(), Errno> {
    let [_, _, _, _, kind_low, kind_high, .., a, b, c, d] = *answer;
    let kind = u16::from_ne_bytes([kind_low, kind_high]);
    match (i32::from(kind), i32::from_ne_bytes([a, b, c, d])) {
        (libc::NLMSG_ERROR, 0) => Ok(()),
        (libc::NLMSG_ERROR, negative) => Err(Errno(-negative)),
        _ => Err(Errno(libc::EPROTO)),
    }
}

/// The most that a TCP socket keeps on each side, and how much it starts with: what other sockets have.
const BUFFERS: [(&CStr, &[u8]); 2] = [
    (c"/proc/sys/net/ipv4/tcp_rmem", b"4096 131072 212992"),
    (c"/proc/sys/net/ipv4/tcp_wmem", b"4096 16384 212992"),
];

/// KERNEL: the memory of TCP is one pool of the whole machine, outside most control groups, and one socket can take tens of
/// MiB of it. The limits belong to the network namespace.
pub(crate) fn small_buffers() {
    for (path, limits) in BUFFERS {
        // Where they stay as they were, the report says so.
        let _as_they_were = steps::write_file(path, limits);
    }
}

/// The most that a TCP socket of this network namespace keeps, both sides together.
pub(crate) fn socket_bytes() -> Option<u64> {
    BUFFERS.iter().try_fold(0_u64, |sum, (path, _)| Some(sum + largest(path)?))
}

/// The last of three numbers.
fn largest(path: &CStr) -> Option<u64> {
    let fd = sys::open(libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_CLOEXEC, 0).ok()?;
    let mut content = [0_u8; 64];
    let length = sys::read(fd, &mut content);
    sys::close(fd);
    let numbers = content.get(..length.ok()?)?.trim_ascii();
    let last = numbers.rsplit(|byte| byte.is_ascii_whitespace()).next()?;
    descendants::number(last).and_then(|number| u64::try_from(number).ok())
}

pub(crate) fn offer() -> Result<(), Errno> {
    init::hand_over(c"/proc/self/ns/net", &ControlMessage::NetNamespace)
}

/// Opens a listener. A socket belongs to the namespace it was created in, whichever process holds it.
pub(crate) fn open_door(kind: u64, address: &[u8]) -> Result<(), Errno> {
    let socket = sys::bound_socket(kind, address)?;
    let sent = sys::send(CONTROL, &ControlMessage::Door.encode(), Some(socket));
    sys::close(socket);
    sent
}
