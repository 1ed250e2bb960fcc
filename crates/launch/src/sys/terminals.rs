//! Terminals.

use libc::c_int;

use super::files::open;
use super::{SysResult, ioctl};

/// Opens a fresh terminal and returns (master, slave).
pub(crate) fn open_terminal(rows: u16, columns: u16) -> SysResult<(i32, i32)> {
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

pub(crate) fn control_terminal(fd: i32) -> SysResult<()> {
    // SAFETY: TIOCSCTTY takes an integer by value.
    unsafe { ioctl(fd, libc::TIOCSCTTY as usize, 0) }.map(drop)
}
