use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

const PLAIN: &[u8] = b"nobody reads this without the key";

struct Kept {
    state: tempfile::TempDir,
    vault: ContentVault,
    transaction: TransactionId,
    file: PatchedFile,
}

impl Kept {
    fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let vault = ContentVault::new(state.path());
        let transaction = TransactionId::random().unwrap();
        let file = PatchedFile {
            path: ByteString::from("a/b"),
            base: None,
            result: Some(sha256(PLAIN)),
            bytes: PLAIN.len() as u64,
            secrets: Vec::new(),
        };
        let sides = FileVersions { base: None, result: Some(Zeroizing::new(PLAIN.to_vec())) };
        vault.keep(&transaction, &[(file.clone(), sides)]).unwrap();
        Self { state, vault, transaction, file }
    }

    fn open(&self) -> Result<Option<SecretContent>, ContentVaultError> {
        self.vault.open(&self.transaction, 0, &self.file, FileSide::Result)
    }

    fn blob(&self) -> PathBuf {
        self.vault.contents(&self.transaction).join("0.result")
    }

    fn everything(&self) -> Vec<PathBuf> {
        let mut found = vec![self.state.path().join("proposals")];
        let mut at = 0;
        while let Some(path) = found.get(at).cloned() {
            if path.is_dir() {
                found.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            }
            at += 1;
        }
        found
    }
}

#[test]
fn what_is_kept_is_read_back() {
    let kept = Kept::new();
    assert_eq!(kept.open().unwrap().unwrap().as_slice(), PLAIN);
    assert!(kept.vault.open(&kept.transaction, 0, &kept.file, FileSide::Base).unwrap().is_none());
}

#[test]
fn nothing_of_it_is_readable_and_nothing_is_open_to_others() {
    let kept = Kept::new();
    for path in kept.everything() {
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
        if path.is_file() {
            let bytes = fs::read(&path).unwrap();
            assert!(!bytes.windows(6).any(|window| PLAIN.windows(6).any(|plain| plain == window)));
        }
    }
    let again = Kept::new();
    assert_ne!(fs::read(kept.blob()).unwrap(), fs::read(again.blob()).unwrap(), "another key, another nonce");
}

#[test]
fn every_changed_byte_is_noticed() {
    let kept = Kept::new();
    let sealed = fs::read(kept.blob()).unwrap();
    for index in 0..sealed.len() {
        let mut damaged = sealed.clone();
        damaged[index] ^= 1;
        fs::write(kept.blob(), damaged).unwrap();
        assert!(matches!(kept.open(), Err(ContentVaultError::Tampered { .. })), "byte {index}");
    }
    for length in 0..sealed.len() {
        fs::write(kept.blob(), &sealed[..length]).unwrap();
        assert!(matches!(kept.open(), Err(ContentVaultError::Tampered { .. })), "cut to {length}");
    }
    fs::write(kept.blob(), &sealed).unwrap();
    assert!(kept.open().is_ok(), "the control: unchanged it is read");
}

/// With the right key, but another path or digest.
#[test]
fn a_content_cannot_take_the_place_of_another() {
    let kept = Kept::new();
    let elsewhere = PatchedFile { path: ByteString::from("a/c"), ..kept.file.clone() };
    let moved = kept.vault.open(&kept.transaction, 0, &elsewhere, FileSide::Result);
    assert!(matches!(moved, Err(ContentVaultError::Tampered { .. })));
    let other = TransactionId::random().unwrap();
    fs::create_dir(kept.vault.contents(&other)).unwrap();
    fs::copy(kept.blob(), kept.vault.contents(&other).join("0.result")).unwrap();
    let copied = kept.vault.open(&other, 0, &kept.file, FileSide::Result);
    assert!(matches!(copied, Err(ContentVaultError::Tampered { .. })));
    let wrong = PatchedFile { result: Some(sha256(b"x")), ..kept.file.clone() };
    let digest = kept.vault.open(&kept.transaction, 0, &wrong, FileSide::Result);
    assert!(matches!(digest, Err(ContentVaultError::Tampered { .. })));
}

#[test]
fn without_the_key_there_is_no_content() {
    let kept = Kept::new();
    let key = kept.state.path().join("proposals/key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(kept.open(), Err(ContentVaultError::NotPrivate { .. })));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&key, [7; 31]).unwrap();
    assert!(matches!(kept.open(), Err(ContentVaultError::NoKey { .. })));
    fs::write(&key, [7; 32]).unwrap();
    assert!(matches!(kept.open(), Err(ContentVaultError::Tampered { .. })));
    fs::remove_file(&key).unwrap();
    assert!(matches!(kept.open(), Err(ContentVaultError::NoKey { .. })));
    assert!(!key.exists(), "reading makes no key");
}

#[test]
fn age_ends_it() {
    let kept = Kept::new();
    kept.vault.purge();
    assert!(kept.open().is_ok());
    let directory = File::open(kept.vault.contents(&kept.transaction)).unwrap();
    directory.set_modified(SystemTime::now() - KEPT - Duration::from_secs(60)).unwrap();
    assert!(matches!(kept.open(), Err(ContentVaultError::Expired)));
    directory.lock().unwrap();
    kept.vault.purge();
    assert!(kept.blob().exists(), "somebody works on it");
    directory.unlock().unwrap();
    kept.vault.purge();
    assert!(matches!(kept.open(), Err(ContentVaultError::Gone)));
}

#[test]
fn many_first_uses_at_once_share_one_key() {
    let state = tempfile::tempdir().unwrap();
    let keys: BTreeSet<String> = std::thread::scope(|scope| {
        let key = || sha256(ContentVault::new(state.path()).key(MissingKeyPolicy::Make).unwrap().as_slice());
        let uses: Vec<_> = (0..8).map(|_| scope.spawn(key)).collect();
        uses.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(keys.len(), 1);
}
