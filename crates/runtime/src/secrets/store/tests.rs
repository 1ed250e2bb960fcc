use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::thread;

use ringfence_types::{Delivery, SecretClass};
use tempfile::TempDir;
use zeroize::Zeroizing;

use super::*;

struct World {
    root: TempDir,
}

impl World {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    fn store(&self) -> SecretStore {
        SecretStore::new(self.root.path())
    }

    fn with(values: &[(&str, &str)]) -> Self {
        let world = Self::new();
        world
            .store()
            .add(values.iter().map(|(name, value)| secret(name, value)).collect())
            .unwrap()
            .make()
            .unwrap();
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.path(name)).unwrap().permissions().mode() & 0o7777
    }
}

fn value(text: &str) -> SecretValue {
    SecretValue::new(Zeroizing::new(text.as_bytes().to_vec())).unwrap()
}

fn name(text: &str) -> SecretName {
    text.parse().unwrap()
}

fn secret(name: &str, text: &str) -> NewSecret {
    NewSecret {
        name: name.parse().unwrap(),
        class: SecretClass::Tool,
        scope: SecretScope::default(),
        deliver: None,
        variable: None,
        hosts: Vec::new(),
        credential_locations: Vec::new(),
        value: value(text),
    }
}

fn at(workspace: &str) -> SecretScope {
    SecretScope { workspace: Some(ByteString::from(workspace)), agent: None }
}

fn read(store: &SecretStore) -> Vec<(String, String)> {
    let secrets = store.read().unwrap();
    let text = |value: &SecretValue| String::from_utf8(value.as_slice().to_vec()).unwrap();
    secrets.values().map(|(meta, value)| (meta.name.to_string(), text(value))).collect()
}

#[test]
fn where_there_is_no_store_nothing_is_made_or_opened() {
    let world = World::new();
    assert!(world.store().read().unwrap().is_empty());
    assert_eq!(fs::read_dir(world.root.path()).unwrap().count(), 0);
}

#[test]
fn what_is_kept_comes_back_and_is_nowhere_in_the_clear() {
    let world = World::with(&[("ONE", "first-value"), ("two", "second-value")]);
    let expected = [("ONE", "first-value"), ("two", "second-value")];
    assert_eq!(read(&world.store()), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    for file in ["secrets/store", "secrets-key/key"] {
        let bytes = fs::read(world.path(file)).unwrap();
        for part in ["first-value", "second-value", "ONE", "two", "tool"] {
            assert!(memchr::memmem::find(&bytes, part.as_bytes()).is_none(), "{part} in {file}");
        }
        assert_eq!(world.mode(file), 0o600);
    }
    assert_eq!((world.mode("secrets"), world.mode("secrets-key")), (0o700, 0o700));
}

#[test]
fn the_same_value_is_never_written_the_same_way_twice() {
    let world = World::with(&[("ONE", "value-value")]);
    let before = fs::read(world.path("secrets/store")).unwrap();
    let changed = world.store().rotate(&name("ONE"), &SecretScope::default(), value("value-value")).unwrap();
    assert_eq!(fs::read(world.path("secrets/store")).unwrap(), before, "it is not made yet");
    assert!(changed.after().sha256.starts_with("sha256:") && changed.before() != changed.after());
    assert_eq!(changed.changed().len(), 1);
    changed.make().unwrap();
    assert_ne!(fs::read(world.path("secrets/store")).unwrap(), before);
}

#[test]
fn a_name_exists_once_in_a_scope() {
    let world = World::with(&[("ONE", "value-1")]);
    let store = world.store();
    assert!(matches!(store.add(vec![secret("ONE", "value-2")]), Err(SecretChangeError::Exists { .. })));
    store.add(vec![NewSecret { scope: at("/w"), ..secret("ONE", "value-3") }]).unwrap().make().unwrap();
    let twice = vec![secret("TWO", "value-4"), secret("TWO", "value-5")];
    assert!(matches!(store.add(twice), Err(SecretChangeError::Exists { .. })));
    assert_eq!(store.read().unwrap().list().count(), 2, "all or none");
}

#[test]
fn a_name_alone_means_the_only_one_or_the_one_for_everywhere() {
    let world = World::new();
    let store = world.store();
    store.add(vec![NewSecret { scope: at("/w"), ..secret("ONE", "value-1") }]).unwrap().make().unwrap();
    store.rotate(&name("ONE"), &SecretScope::default(), value("value-2")).unwrap().make().unwrap();
    store.add(vec![NewSecret { scope: at("/v"), ..secret("ONE", "value-3") }]).unwrap().make().unwrap();
    let ambiguous = store.remove(&name("ONE"), &SecretScope::default());
    assert!(matches!(ambiguous, Err(SecretChangeError::Ambiguous { .. })), "{ambiguous:?}");
    assert!(matches!(store.remove(&name("ONE"), &at("/x")), Err(SecretChangeError::Unknown { .. })));
    store.remove(&name("ONE"), &at("/v")).unwrap().make().unwrap();
    assert_eq!(read(&store), [("ONE".to_owned(), "value-2".to_owned())]);
}

#[test]
fn an_unknown_name_is_answered_with_the_nearest() {
    let world = World::with(&[("GITHUB_TOKEN", "value-1")]);
    let error = world.store().remove(&name("GITHUB_TOKN"), &SecretScope::default()).unwrap_err();
    assert!(error.to_string().contains("did you mean `GITHUB_TOKEN`"), "{error}");
}

#[test]
fn rotation_keeps_everything_but_the_value() {
    let world = World::with(&[("ONE", "value-1")]);
    let store = world.store();
    let before = store.read().unwrap().find(&name("ONE"), &SecretScope::default()).unwrap().clone();
    store.rotate(&name("ONE"), &SecretScope::default(), value("another-value")).unwrap().make().unwrap();
    let after = store.read().unwrap().find(&name("ONE"), &SecretScope::default()).unwrap().clone();
    assert_ne!(before.fingerprint, after.fingerprint);
    assert_eq!((before.created, before.variable.clone()), (after.created, after.variable.clone()));
    let env = NewSecret { deliver: Some(Delivery::Env), ..secret("TWO", "value-2") };
    store.add(vec![env]).unwrap().make().unwrap();
    let long = "x".repeat(40_000);
    assert!(
        store.rotate(&name("TWO"), &SecretScope::default(), value(&long)).is_err(),
        "too long for a variable"
    );
    assert!(read(&store).contains(&("TWO".to_owned(), "value-2".to_owned())), "and the old one stays");
}

#[test]
fn a_fingerprint_is_of_the_value_and_of_this_store_alone() {
    let (one, two) = (World::with(&[("A", "value-1"), ("B", "value-1")]), World::with(&[("A", "value-1")]));
    let prints = |world: &World| -> Vec<String> {
        world.store().read().unwrap().list().map(|meta| meta.fingerprint.clone()).collect()
    };
    let (first, second) = (prints(&one), prints(&two));
    assert_eq!(first[0], first[1]);
    assert_ne!(first[0], second[0], "another key");
}

#[test]
fn every_changed_byte_is_noticed() {
    let world = World::with(&[("ONE", "value-1")]);
    let path = world.path("secrets/store");
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(&path, &changed).unwrap();
        assert!(matches!(world.store().read(), Err(SecretStoreError::Seal { .. })), "byte {at}");
    }
    for length in [0, 1, 8, 31, 32, 47, 48, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(world.store().read().is_err(), "{length} bytes");
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(read(&world.store()).len(), 1, "and whole it opens");
}

#[test]
fn without_its_key_a_store_is_neither_opened_nor_replaced() {
    let world = World::with(&[("ONE", "value-1")]);
    let key = world.path("secrets-key/key");
    let right = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();
    assert!(matches!(world.store().read(), Err(SecretStoreError::NoKey { .. })));
    let error = world.store().add(vec![secret("TWO", "value-2")]).unwrap_err();
    assert!(
        matches!(&error, SecretChangeError::Store(SecretStoreError::NoKey { .. })) && error.hint().is_some()
    );
    assert!(!key.exists(), "no new key is made for an old store");
    for wrong in [vec![7; 32], vec![7; 31], vec![7; 33], Vec::new()] {
        fs::write(&key, &wrong).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(world.store().read().is_err());
    }
    fs::write(&key, right).unwrap();
    assert_eq!(read(&world.store()).len(), 1);
}

/// S003-26: names the exposed file and the fix.
#[test]
fn s003_26_what_others_could_reach_is_refused_with_the_fix() {
    let world = World::with(&[("ONE", "value-1")]);
    for (path, open, right) in [
        ("secrets", 0o750, 0o700),
        ("secrets", 0o701, 0o700),
        ("secrets/store", 0o640, 0o600),
        ("secrets/store", 0o602, 0o600),
        ("secrets-key", 0o755, 0o700),
        ("secrets-key/key", 0o644, 0o600),
    ] {
        fs::set_permissions(world.path(path), fs::Permissions::from_mode(open)).unwrap();
        let error = world.store().read().unwrap_err();
        assert!(
            error.hint().is_some_and(|hint| hint.contains(&format!("chmod {right:o} "))),
            "{path} {error:?}"
        );
        assert!(world.store().add(vec![secret("TWO", "value-2")]).is_err(), "{path}");
        fs::set_permissions(world.path(path), fs::Permissions::from_mode(right)).unwrap();
        assert_eq!(read(&world.store()).len(), 1, "{path}: after the fix");
    }
}

#[test]
fn links_and_other_things_in_place_of_a_file_are_refused() {
    for path in ["secrets", "secrets/store", "secrets-key", "secrets-key/key"] {
        let world = World::with(&[("ONE", "value-1")]);
        let (there, away) = (world.path(path), world.path("away"));
        fs::rename(&there, &away).unwrap();
        std::os::unix::fs::symlink(&away, &there).unwrap();
        let error = world.store().read().unwrap_err();
        assert!(
            matches!(error, SecretStoreError::Place(PrivateDirError::Symlink { .. })),
            "{path}: {error:?}"
        );
        fs::remove_file(&there).unwrap();
        fs::rename(&away, &there).unwrap();
        assert_eq!(read(&world.store()).len(), 1, "{path}: put back");
    }
    let world = World::with(&[("ONE", "value-1")]);
    fs::hard_link(world.path("secrets/store"), world.path("copy")).unwrap();
    assert!(matches!(world.store().read(), Err(SecretStoreError::Place(PrivateDirError::HardLinked { .. }))));
    fs::remove_file(world.path("copy")).unwrap();
    fs::remove_file(world.path("secrets/store")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        world.path("secrets/store"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    assert!(
        matches!(world.store().read(), Err(SecretStoreError::Place(PrivateDirError::Kind { .. }))),
        "and it does not hang"
    );
}

#[test]
fn changes_at_once_are_all_kept() {
    let world = World::new();
    thread::scope(|scope| {
        for writer in 0..8 {
            let store = world.store();
            scope.spawn(move || {
                for number in 0..10 {
                    store
                        .add(vec![secret(&format!("S{writer}-{number}"), "some-value")])
                        .unwrap()
                        .make()
                        .unwrap();
                    store.read().unwrap();
                }
            });
        }
    });
    assert_eq!(read(&world.store()).len(), 80);
    let left: Vec<_> =
        fs::read_dir(world.path("secrets")).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["store"]);
}

#[test]
fn what_a_killed_writer_left_is_swept_and_the_old_content_stays() {
    let world = World::with(&[("ONE", "value-1")]);
    fs::write(world.path("secrets/4711.new"), "half").unwrap();
    assert_eq!(read(&world.store()).len(), 1);
    world.store().add(vec![secret("TWO", "value-2")]).unwrap().make().unwrap();
    assert!(!world.path("secrets/4711.new").exists());
    assert_eq!(read(&world.store()).len(), 2);
}

#[test]
fn there_is_an_end_to_how_much_is_kept() {
    let world = World::new();
    let many = (0..=MAX_SECRETS).map(|number| secret(&format!("S{number}"), "some-value")).collect();
    assert!(matches!(world.store().add(many), Err(SecretChangeError::Full)));
    let large = "x".repeat(crate::secrets::MAX_VALUE);
    let large = (0..300).map(|number| secret(&format!("S{number}"), &large)).collect();
    assert!(matches!(world.store().add(large), Err(SecretChangeError::Full)));
    assert!(world.store().read().unwrap().is_empty());
}

#[test]
fn s003_25_no_value_is_in_what_is_shown() {
    let world = World::with(&[("ONE", "hunter2-hunter2")]);
    let secrets = world.store().read().unwrap();
    let shown = format!("{secrets:?} {:?}", secret("X", "hunter2-hunter2"));
    assert!(!shown.contains("hunter2") && shown.contains("ONE"), "{shown}");
}
