use std::fs;

use ringfence_types::Principal;

/// The owner of this process as an operator, without a name or a terminal.
pub fn local_operator() -> Principal {
    Principal::Operator { uid: rustix::process::geteuid().as_raw(), name: None, node: node(), terminal: None }
}

/// The user that runs process `pid` (or `self`), with account name and terminal.
pub fn operator_of(uid: u32, pid: &str) -> Principal {
    Principal::Operator { uid, name: name_of(uid), node: node(), terminal: terminal_of(pid) }
}

fn node() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The name of the controlling terminal, such as `/dev/pts/3`.
fn terminal_of(pid: &str) -> Option<String> {
    const PSEUDO: u64 = 136;
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The process name may contain any byte; only numbers follow it.
    let (_, fields) = text.rsplit_once(')')?;
    let number: u64 = fields.split_whitespace().nth(4)?.parse().ok()?;
    let (major, minor) = (number >> 8 & 0xfff, number & 0xff | number >> 12 & 0xfff00);
    match major {
        _ if number == 0 => None,
        4 => Some(format!("/dev/tty{minor}")),
        PSEUDO..=143 => Some(format!("/dev/pts/{}", (major - PSEUDO) * 256 + minor)),
        _ => Some(format!("terminal {major}:{minor}")),
    }
}

fn name_of(uid: u32) -> Option<String> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let own = users.lines().find(|line| line.split(':').nth(2) == Some(&uid.to_string()))?;
    own.split(':').next().map(str::to_owned)
}
