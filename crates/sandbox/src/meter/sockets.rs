//! How many sockets a session has, those included that no process has open: connections that wait for a listener, sockets on their
//! way through another, closed ones whose data waits to be read.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// All that can be told from the network namespace of `init`. A namespace of the session has no other sockets in it.
pub(super) fn number(init: u32, open: &BTreeSet<u64>) -> u64 {
    match of_namespace(init) {
        Some(number) if !is_shared(init) => number,
        _ => (open.len() as u64).saturating_add(waiting(init, open)),
    }
}

/// KERNEL: the files below `net` belong to the namespace, so one namespace has one number of the file, and no right over the
/// process is needed to compare.
fn is_shared(init: u32) -> bool {
    let file = |pid: &str| fs::metadata(format!("/proc/{pid}/net/sockstat")).ok().map(|file| file.ino());
    file(&init.to_string()) == file("self")
}

/// `sockets: used N`
fn of_namespace(init: u32) -> Option<u64> {
    let about = fs::read_to_string(format!("/proc/{init}/net/sockstat")).ok()?;
    about.lines().find_map(|line| line.strip_prefix("sockets: used ")?.trim().parse().ok())
}

/// Connections to Unix listeners of the session that were not accepted yet: they have the name of the listener and no inode.
fn waiting(init: u32, open: &BTreeSet<u64>) -> u64 {
    if open.is_empty() {
        return 0;
    }
    let table = fs::read(format!("/proc/{init}/net/unix")).unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    let sockets: Vec<UnixSocket<'_>> = table.lines().filter_map(UnixSocket::of).collect();
    let names: BTreeSet<&str> =
        sockets.iter().filter(|socket| open.contains(&socket.inode)).map(|socket| socket.name).collect();
    sockets.iter().filter(|socket| socket.inode == 0 && names.contains(socket.name)).count() as u64
}

/// One with a name.
struct UnixSocket<'a> {
    inode: u64,
    name: &'a str,
}

impl<'a> UnixSocket<'a> {
    /// The last two of eight fields; the inode is padded with spaces.
    fn of(line: &'a str) -> Option<Self> {
        let mut rest = line;
        for _ in 0..6 {
            rest = rest.trim_start().split_once(' ')?.1;
        }
        let (inode, name) = rest.trim_start().split_once(' ')?;
        Some(Self { inode: inode.parse().ok()?, name })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn connections_that_wait_count() {
        let place = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(place.path().join("a listener")).unwrap();
        let link = fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap();
        let inode = link.to_str().unwrap().trim_matches(|sign: char| !sign.is_ascii_digit()).parse().unwrap();
        let (own, open) = (std::process::id(), BTreeSet::from([inode]));
        assert!(is_shared(own) && of_namespace(own).is_some());
        let connections: Vec<UnixStream> =
            (0..3).map(|_| UnixStream::connect(place.path().join("a listener")).unwrap()).collect();
        drop(connections);
        assert_eq!(number(own, &open), 1 + 3);
        let accepted = listener.accept().unwrap();
        assert_eq!((waiting(own, &open), waiting(own, &BTreeSet::new())), (2, 0));
        drop(accepted);
    }
}
