//! One entry of the host and one slot, exchanged.
//!
//! INVARIANT: the host never has a moment without either version, and what came out of the exchange is looked at: if it is not
//! what was there before, it goes back. An entry is in the host, in its slot or set aside, and never gone.

use std::fs::File;

use rustix::fs::{OFlags, RenameFlags};
use rustix::io::Errno;

use crate::beneath::is_empty;
use crate::copy::EntryPlace;
use crate::landing::ConflictReason;
use crate::stamp::Stamp;
use crate::{digest, fault};

#[derive(Debug)]
pub(crate) enum SwapError {
    Conflict(ConflictReason),
    NoExchange,
    Failed(Errno),
}

impl From<Errno> for SwapError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::Conflict(ConflictReason::RemovedOnHost),
            Errno::EXIST => Self::Conflict(ConflictReason::CreatedOnHost),
            Errno::NOTDIR | Errno::LOOP => Self::Conflict(ConflictReason::ParentReplaced),
            Errno::NOTEMPTY => Self::Conflict(ConflictReason::NotEmpty),
            Errno::BUSY | Errno::XDEV => Self::Conflict(ConflictReason::MountPoint),
            // KERNEL: some network and user-space file systems.
            Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP => Self::NoExchange,
            errno => Self::Failed(errno),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Swap<'a> {
    /// Or why there is no such directory any more: what was done in it before is done.
    pub(crate) host: Result<EntryPlace<'a>, Errno>,
    pub(crate) slot: EntryPlace<'a>,
    /// What is in the slot before.
    pub(crate) incoming: Option<&'a Stamp>,
    /// What the host has before.
    pub(crate) outgoing: Option<&'a Stamp>,
}

impl Swap<'_> {
    /// The slot tells: the host may have changed since.
    pub(crate) fn is_done(&self) -> Result<bool, Errno> {
        let slot = self.slot.stamp()?;
        Ok(match (self.incoming, self.outgoing) {
            (Some(incoming), Some(_)) => slot.is_some_and(|slot| !slot.is_same_inode(incoming)),
            (Some(_), None) => slot.is_none(),
            (None, Some(_)) => slot.is_some(),
            (None, None) => true,
        })
    }

    pub(crate) fn run(&self) -> Result<(), SwapError> {
        self.check()?;
        self.exchange()?;
        fault::point();
        self.verify()
    }

    /// Does it, or completes it where a dead process began.
    pub(crate) fn resume(&self) -> Result<(), SwapError> {
        if self.is_done()? { self.verify() } else { self.run() }
    }

    pub(crate) fn reversed(&self) -> Self {
        Self { incoming: self.outgoing, outgoing: self.incoming, ..*self }
    }

    fn check(&self) -> Result<(), SwapError> {
        let host = self.host?;
        let found = host.stamp()?;
        let conflict = |reason| Err(SwapError::Conflict(reason));
        match (self.outgoing, found) {
            (None, None) => Ok(()),
            (None, Some(_)) => conflict(ConflictReason::CreatedOnHost),
            (Some(_), None) => conflict(ConflictReason::RemovedOnHost),
            (Some(wanted), Some(found)) if !wanted.is_same_version(&found) => {
                conflict(ConflictReason::ChangedOnHost)
            }
            (Some(wanted), Some(_)) if wanted.is_directory() && !is_empty(host.directory, host.name)? => {
                conflict(ConflictReason::NotEmpty)
            }
            (Some(_), Some(_)) => Ok(()),
        }
    }

    fn exchange(&self) -> Result<(), Errno> {
        let host = self.host?;
        match (self.incoming, self.outgoing) {
            (Some(_), Some(_)) => rename(self.slot, host, RenameFlags::EXCHANGE),
            (Some(_), None) => rename(self.slot, host, RenameFlags::NOREPLACE),
            (None, Some(_)) => rename(host, self.slot, RenameFlags::NOREPLACE),
            (None, None) => Ok(()),
        }
    }

    /// Looks at what came out of the host.
    fn verify(&self) -> Result<(), SwapError> {
        let Some(wanted) = self.outgoing else { return Ok(()) };
        let Some(found) = self.slot.stamp()? else {
            return Err(SwapError::Conflict(ConflictReason::RemovedOnHost));
        };
        if !wanted.is_same_version(&found) || !self.has_digest(wanted)? {
            self.put_back()?;
            return Err(SwapError::Conflict(ConflictReason::ChangedOnHost));
        }
        if wanted.is_directory() && !is_empty(self.slot.directory, self.slot.name)? {
            self.put_back()?;
            return Err(SwapError::Conflict(ConflictReason::NotEmpty));
        }
        Ok(())
    }

    fn has_digest(&self, wanted: &Stamp) -> Result<bool, Errno> {
        let Some(digest) = &wanted.digest else { return Ok(true) };
        match self.slot.open(OFlags::RDONLY) {
            Ok(file) => Ok(digest::of_file(&mut File::from(file))? == *digest),
            // A link, or a file that its owner cannot read: their times have to do.
            Err(Errno::LOOP | Errno::ACCESS) => Ok(true),
            Err(errno) => Err(errno),
        }
    }

    /// What stays in the slot is set aside when the landing ends.
    fn put_back(&self) -> Result<(), Errno> {
        // Where its directory is gone, it stays in the slot.
        let Ok(host) = self.host else { return Ok(()) };
        let put = match self.incoming {
            Some(incoming) => {
                rename(self.slot, host, RenameFlags::EXCHANGE)?;
                fault::point();
                let back = self.slot.stamp()?.is_some_and(|slot| slot.is_same_inode(incoming));
                // The host replaced ours within that moment: what it put there is the newest, and stays.
                if back { Ok(()) } else { rename(self.slot, host, RenameFlags::EXCHANGE) }
            }
            None => rename(self.slot, host, RenameFlags::NOREPLACE),
        };
        fault::point();
        match put {
            Ok(()) | Err(Errno::EXIST | Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

fn rename(from: EntryPlace<'_>, to: EntryPlace<'_>, flags: RenameFlags) -> Result<(), Errno> {
    rustix::fs::renameat_with(from.directory, from.name, to.directory, to.name, flags)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::beneath::HeldTree;

    struct Bench {
        dir: tempfile::TempDir,
        tree: HeldTree,
    }

    impl Bench {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let tree = HeldTree::private(dir.path()).unwrap();
            Self { dir, tree }
        }

        fn write(&self, name: &str, text: &str) -> Stamp {
            fs::write(self.dir.path().join(name), text).unwrap();
            self.stamp(name)
        }

        fn stamp(&self, name: &str) -> Stamp {
            Stamp::of(&self.tree.stat(Path::new(name)).unwrap().unwrap())
        }

        fn read(&self, name: &str) -> Option<String> {
            fs::read_to_string(self.dir.path().join(name)).ok()
        }

        fn swap<'a>(&'a self, incoming: Option<&'a Stamp>, outgoing: Option<&'a Stamp>) -> Swap<'a> {
            let place = |name| EntryPlace { directory: self.tree.fd(), name: OsStr::new(name) };
            Swap { host: Ok(place("host")), slot: place("slot"), incoming, outgoing }
        }
    }

    #[test]
    fn an_exchange_can_be_reversed() {
        let bench = Bench::new();
        let (old, new) = (bench.write("host", "old"), bench.write("slot", "new"));
        let swap = bench.swap(Some(&new), Some(&old));
        assert!(!swap.is_done().unwrap());
        swap.run().unwrap();
        assert!(swap.is_done().unwrap());
        assert_eq!((bench.read("host"), bench.read("slot")), (Some("new".into()), Some("old".into())));
        swap.resume().unwrap();
        swap.reversed().run().unwrap();
        assert_eq!(bench.read("host").unwrap(), "old");
        assert!(!swap.is_done().unwrap());
    }

    #[test]
    fn what_the_host_changed_before_stays() {
        let bench = Bench::new();
        let (old, new) = (bench.write("host", "old"), bench.write("slot", "new"));
        bench.write("host", "edited");
        let result = bench.swap(Some(&new), Some(&old)).run();
        assert!(matches!(result, Err(SwapError::Conflict(ConflictReason::ChangedOnHost))), "{result:?}");
        assert_eq!((bench.read("host"), bench.read("slot")), (Some("edited".into()), Some("new".into())));
    }

    /// As if the host had changed it between the look and the exchange.
    #[test]
    fn what_came_out_is_put_back_if_it_is_another() {
        let bench = Bench::new();
        let (old, new) = (bench.write("host", "old"), bench.write("slot", "new"));
        let swap = bench.swap(Some(&new), Some(&old));
        bench.write("host", "edited");
        swap.exchange().unwrap();
        let result = swap.verify();
        assert!(matches!(result, Err(SwapError::Conflict(ConflictReason::ChangedOnHost))), "{result:?}");
        assert_eq!((bench.read("host"), bench.read("slot")), (Some("edited".into()), Some("new".into())));
    }

    #[test]
    fn a_version_with_the_same_times_is_told_by_its_digest() {
        let bench = Bench::new();
        let mut old = bench.write("host", "old");
        let new = bench.write("slot", "new");
        old.digest = Some(crate::digest::digest(b"what was there"));
        let result = bench.swap(Some(&new), Some(&old)).run();
        assert!(matches!(result, Err(SwapError::Conflict(ConflictReason::ChangedOnHost))), "{result:?}");
        assert_eq!(bench.read("host").unwrap(), "old");
    }

    #[test]
    fn a_directory_with_entries_goes_back() {
        let bench = Bench::new();
        fs::create_dir(bench.dir.path().join("host")).unwrap();
        let old = bench.stamp("host");
        let swap = bench.swap(None, Some(&old));
        fs::write(bench.dir.path().join("host/late"), "x").unwrap();
        swap.exchange().unwrap();
        let result = swap.verify();
        assert!(matches!(result, Err(SwapError::Conflict(ConflictReason::NotEmpty))), "{result:?}");
        assert_eq!(bench.read("host/late").unwrap(), "x");
    }

    #[test]
    fn what_the_host_made_anew_stays_and_the_old_version_is_in_the_slot() {
        let bench = Bench::new();
        let old = bench.write("host", "old");
        let swap = bench.swap(None, Some(&old));
        bench.write("host", "edited");
        swap.exchange().unwrap();
        bench.write("host", "newest");
        assert!(swap.verify().is_err());
        assert_eq!((bench.read("host"), bench.read("slot")), (Some("newest".into()), Some("edited".into())));
    }
}
