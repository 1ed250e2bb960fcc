//! One suite over every store, and what only a store with a server can do wrong. The servers are real ones, started here.

#[cfg(test)]
mod access;
#[cfg(test)]
#[path = "../api/bounded.rs"]
mod bounded;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod columns;
#[cfg(test)]
mod events;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod forged;
#[cfg(test)]
mod forgery;
#[cfg(test)]
mod ledgers;
#[cfg(test)]
mod nodes;
#[cfg(test)]
mod suite;
#[cfg(test)]
mod tampering;

#[cfg(test)]
mod sqlite {
    use std::path::PathBuf;

    use ringfence_ledger::store::{self, ChainStore};
    use tempfile::TempDir;

    use crate::suite::{self, Place};

    struct File(TempDir);

    impl Place for File {
        fn open(&self) -> Box<dyn ChainStore> {
            store::sqlite(&self.0.path().join("state/ledger.db")).unwrap()
        }

        fn key(&self) -> PathBuf {
            self.0.path().join("state/ledger.key")
        }
    }

    #[test]
    fn sqlite_is_a_store() {
        suite::run(|| File(tempfile::tempdir().unwrap()));
    }
}

#[cfg(test)]
mod postgres {
    use std::path::PathBuf;

    use ringfence_ledger::store::{self, ChainStore};

    use crate::cluster::{Database, shared};
    use crate::suite::{self, Place};

    struct Node(Database<'static>);

    impl Place for Node {
        fn open(&self) -> Box<dyn ChainStore> {
            store::postgres(&self.0.node("one")).unwrap()
        }

        fn key(&self) -> PathBuf {
            self.0.state("one").join("node.key")
        }
    }

    #[test]
    fn postgres_is_a_store() {
        suite::run(|| Node(shared().database()));
    }
}
