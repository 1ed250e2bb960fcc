//! The network of a sandbox: what the plan says about it, carried out without understanding it.

use ringfence_launch::wire::Message;

use crate::sys::{self, Errno};
use crate::{CONTROL, init};

/// Sends a row of netlink messages and looks at every answer.
///
/// KERNEL: the messages are carried out before the send returns, so all answers are there then. An error answers
/// unasked; the last message asks for an acknowledgement.
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

pub(crate) fn offer() -> Result<(), Errno> {
    init::hand_over(c"/proc/self/ns/net", &Message::NetNamespace)
}

/// A socket belongs to the namespace it was made in, whoever holds it.
pub(crate) fn open_door(kind: u64, address: &[u8]) -> Result<(), Errno> {
    let socket = sys::bound_socket(kind, address)?;
    let sent = sys::send(CONTROL, &Message::Door.encode(), Some(socket));
    sys::close(socket);
    sent
}
