//! A root, a store and a layer whose upper is made by hand.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, XattrFlags};

use crate::{
    ChangeKind, LandingReport, LandingSelection, LaterChanges, Layer, LayerStore, UndoOutcome, UndoReport,
};

pub(super) const ID: &str = "tx_bench";

/// Another file system than that of the temporary directory.
pub(super) const OTHER_FILE_SYSTEM: &str = "/dev/shm";

pub(super) struct Bench {
    pub(super) state: tempfile::TempDir,
    pub(super) project: tempfile::TempDir,
    pub(super) store: LayerStore,
    pub(super) root: PathBuf,
}

impl Bench {
    /// Layer and root on one file system.
    pub(super) fn new() -> Self {
        Self::between(&std::env::temp_dir(), &std::env::temp_dir())
    }

    /// The root on another file system than the layer.
    pub(super) fn across() -> Self {
        let bench = Self::between(&std::env::temp_dir(), Path::new(OTHER_FILE_SYSTEM));
        let device = |path: &Path| fs::metadata(path).unwrap().dev();
        assert_ne!(device(bench.state.path()), device(&bench.root), "a test needs two file systems");
        bench
    }

    pub(super) fn between(state: &Path, project: &Path) -> Self {
        let make =
            |place: &Path| tempfile::Builder::new().prefix("ringfence-layer-").tempdir_in(place).unwrap();
        let (state, project) = (make(state), make(project));
        let store = LayerStore::open(&state.path().join("layers")).unwrap();
        let root = project.path().canonicalize().unwrap().join("root");
        fs::create_dir(&root).unwrap();
        Self { state, project, store, root }
    }

    /// A layer with this root; `write` makes the upper.
    pub(super) fn layer(&self, write: impl FnOnce(&Upper)) -> Layer {
        let mut layer = self.store.create(ID).unwrap();
        let mount = layer.add_root(&self.root).unwrap();
        write(&Upper { path: mount.upper });
        layer.close_view().unwrap();
        layer
    }

    pub(super) fn host(&self) -> Upper {
        Upper { path: self.root.clone() }
    }

    pub(super) fn tree(&self) -> Listing {
        listing(&self.root)
    }

    /// The tree with what is locked in it: locked entries are opened for the time of the look.
    pub(super) fn tree_as_root(&self) -> Listing {
        let mut modes = Vec::new();
        let mut pending = vec![self.root.clone()];
        while let Some(path) = pending.pop() {
            let metadata = fs::symlink_metadata(&path).unwrap();
            let (needed, mode) = (if metadata.is_dir() { 0o700 } else { 0o400 }, metadata.mode() & 0o7777);
            if !metadata.is_symlink() && mode & needed != needed {
                fs::set_permissions(&path, fs::Permissions::from_mode(mode | needed)).unwrap();
                modes.push((path.clone(), mode));
            }
            if metadata.is_dir() {
                pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        let mut found = listing(&self.root);
        for (path, mode) in modes.into_iter().rev() {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let text = found.get_mut(path.strip_prefix(&self.root).unwrap()).unwrap();
            let mut words: Vec<String> = text.splitn(3, ' ').map(str::to_owned).collect();
            words[1] = format!("{mode:o}");
            *text = words.join(" ");
        }
        found
    }

    pub(super) fn layer_path(&self) -> PathBuf {
        self.store.path().join(ID)
    }
}

/// A directory that a test writes in: an upper, or a root.
pub(super) struct Upper {
    pub(super) path: PathBuf,
}

impl Upper {
    pub(super) fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    pub(super) fn file(&self, name: impl AsRef<Path>, text: impl AsRef<[u8]>) -> &Self {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub(super) fn directory(&self, name: impl AsRef<Path>) -> &Self {
        fs::create_dir_all(self.at(name)).unwrap();
        self
    }

    pub(super) fn link(&self, name: &str, target: &str) -> &Self {
        symlink(target, self.at(name)).unwrap();
        self
    }

    pub(super) fn mode(&self, name: &str, mode: u32) -> &Self {
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(mode)).unwrap();
        self
    }

    pub(super) fn node(&self, name: &str, kind: FileType) -> &Self {
        rustix::fs::mknodat(CWD, self.at(name), kind, Mode::RUSR | Mode::WUSR, 0).unwrap();
        self
    }

    /// As overlayfs leaves a deleted entry.
    pub(super) fn whiteout(&self, name: &str) -> &Self {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
        self
    }

    /// As overlayfs leaves a directory that was removed and made again.
    pub(super) fn opaque(&self, name: &str) -> &Self {
        self.directory(name).attribute(name, "user.overlay.opaque", "y")
    }

    pub(super) fn attribute(&self, name: &str, attribute: &str, value: &str) -> &Self {
        rustix::fs::setxattr(self.at(name), attribute, value.as_bytes(), XattrFlags::empty()).unwrap();
        self
    }

    pub(super) fn attribute_of(&self, name: &str, attribute: &str) -> Option<String> {
        let mut value = [0_u8; 256];
        let length = rustix::fs::getxattr(self.at(name), attribute, &mut value[..]).ok()?;
        Some(String::from_utf8_lossy(&value[..length]).into_owned())
    }

    pub(super) fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.at(name)).ok()
    }
}

/// Each entry below a directory: its type, its permissions, its content.
pub(super) type Listing = BTreeMap<PathBuf, String>;

pub(super) fn listing(top: &Path) -> Listing {
    let mut found = Listing::new();
    let mut pending = vec![top.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let mode = metadata.mode() & 0o7777;
            let text = if metadata.is_dir() {
                pending.push(path.clone());
                format!("directory {mode:o}")
            } else if metadata.is_symlink() {
                format!("link {}", fs::read_link(&path).unwrap().as_os_str().as_bytes().escape_ascii())
            } else if metadata.is_file() {
                let content = fs::read(&path).map(|content| content.escape_ascii().to_string());
                format!("file {mode:o} {}", content.unwrap_or_else(|_| "unreadable".to_owned()))
            } else {
                format!("other {:o}", metadata.mode())
            };
            found.insert(path.strip_prefix(top).unwrap().to_owned(), text);
        }
    }
    found
}

pub(super) fn kinds(layer: &Layer) -> Vec<(String, ChangeKind)> {
    let changes = layer.changes().unwrap().changes.into_iter();
    changes.map(|change| (change.path.display(), change.kind)).collect()
}

/// Lands everything; nothing is in the way.
pub(super) fn land(layer: &mut Layer) -> LandingReport {
    let report = layer.land(&LandingSelection::All).unwrap();
    assert_eq!(report.conflicts, Vec::new());
    report
}

/// Undoes everything; nothing is in the way.
pub(super) fn undo(layer: &mut Layer) -> UndoReport {
    match layer.undo(LaterChanges::Refuse).unwrap() {
        UndoOutcome::Undone(report) => {
            assert_eq!(report.conflicts, Vec::new());
            report
        }
        UndoOutcome::Refused(conflicts) => panic!("refused: {conflicts:?}"),
    }
}
