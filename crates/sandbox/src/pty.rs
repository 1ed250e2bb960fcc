//! A terminal of our own: a fence has another, and bytes are copied between them.

use std::os::fd::OwnedFd;

use rustix::fs::OFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::{OptionalActions, Winsize};

/// Both ends. Raw: what is typed is not echoed twice.
#[derive(Debug)]
pub struct Pty {
    pub master: OwnedFd,
    pub slave: OwnedFd,
}

impl Pty {
    pub fn open(rows: u16, columns: u16) -> rustix::io::Result<Self> {
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        rustix::pty::grantpt(&master)?;
        rustix::pty::unlockpt(&master)?;
        let name = rustix::pty::ptsname(&master, Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let slave = rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty())?;
        let mut raw = rustix::termios::tcgetattr(&slave)?;
        raw.make_raw();
        rustix::termios::tcsetattr(&slave, OptionalActions::Now, &raw)?;
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&master, size)?;
        Ok(Self { master, slave })
    }
}
