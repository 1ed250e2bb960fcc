//! One suite over every store.

#[cfg(test)]
mod suite;

#[cfg(test)]
mod sqlite {
    use std::path::PathBuf;

    use ringfence_ledger::store::{self, Store};
    use tempfile::TempDir;

    use crate::suite::{self, Place};

    struct File(TempDir);

    impl Place for File {
        fn open(&self) -> Box<dyn Store> {
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
