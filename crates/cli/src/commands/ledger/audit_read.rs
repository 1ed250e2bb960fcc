//! Records reads of the ledger in the ledger.

use std::fs;
use std::os::fd::AsFd as _;

use ringfence_ledger::{Event, LedgerReadKind};
use ringfence_types::{ByteString, Principal};

use super::LedgerSource;
use crate::error;
use crate::output::note;

/// Records a read. Best effort: an unwritable ledger can still be read, with a warning.
pub(super) fn reading(place: &LedgerSource, how: LedgerReadKind, records: usize) {
    let event = Event::LedgerRead { actor: principal(), operation: how, records: records as u64 };
    let written = place.ledger().map_err(|error| error::chain(&error));
    let written = written.and_then(|ledger| ledger.append(&event).map_err(|error| error::chain(&error)));
    if let Err(why) = written {
        note!("ringfence: warning: cannot record this read: {why}");
    }
}

/// The user of this process, by the kernel and not by the environment.
pub(super) fn principal() -> Principal {
    let uid = rustix::process::getuid().as_raw();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let terminal = rustix::termios::ttyname(std::io::stdin().as_fd(), Vec::new()).ok();
    Principal::Operator {
        uid,
        name: name_of(&users, uid),
        node: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        terminal: terminal.map(|name| ByteString::from(name.into_bytes()).display()),
    }
}

fn name_of(users: &str, uid: u32) -> Option<String> {
    let is_theirs = |line: &&str| line.split(':').nth(2).is_some_and(|field| field.parse() == Ok(uid));
    users.lines().find(is_theirs)?.split(':').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_the_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(name_of(users, 1000).as_deref(), Some("ada"));
        assert_eq!(name_of(users, 0).as_deref(), Some("root"));
        assert_eq!(name_of(users, 7), None);
    }
}
