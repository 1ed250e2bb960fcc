//! The file tree as a command inside the fence sees it.
//!
//! Most paths mean the same inside and outside. Two kinds do not: the home inside is a directory below the
//! state directory, and some directories are private to the sandbox. Their content is unknown here, and a
//! host file with the same name says nothing about it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use ringfence_authz::Policy;
use ringfence_sandbox::HOME_INSIDE;
use ringfence_types::{Access, Backend, Profile, Root};

use crate::session::HostSetup;

/// Directories that are private to every sandbox.
const PRIVATE: [&str; 7] = ["/tmp", "/var/tmp", "/dev", "/proc", "/sys", "/run", "/.ringfence"];
/// Their content depends on the process that looks, also without a constructed tree.
const OF_PROCESS: [&str; 2] = ["/dev", "/proc"];
/// Files in the home that bash, dash, ksh and zsh read at start or end, and files that system-wide startup
/// files read in turn.
const START_FILES: [&str; 16] = [
    ".profile",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bashrc",
    ".bash_aliases",
    ".bashrc.d",
    ".zshenv",
    ".zprofile",
    ".zshrc",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".mkshrc",
    ".inputrc",
    ".i18n",
];
/// The kernel's limit.
const LINKS: usize = 40;

/// The tree of a command: constructed, or the host's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inside {
    own: Option<ConstructedTree>,
    /// The host directory that is the home of commands, if known.
    home: Option<PathBuf>,
}

#[derive(Clone, Debug)]
struct ConstructedTree {
    /// The host directory that is the home inside.
    home: PathBuf,
    /// Shown at its own path, even below a private directory.
    shown: Vec<PathBuf>,
}

/// Result of resolving a path.
enum ResolvedPath {
    /// Every link was followed; the path inside.
    Path(PathBuf),
    /// Leads into a directory that cannot be inspected from here.
    Unseen(PathBuf),
}

impl Inside {
    pub(crate) fn of(setup: &HostSetup, policy: &Policy, roots: &[Root], home: &Path) -> Self {
        let has_own_tree = match policy.backend {
            None | Some(Backend::Native | Backend::Bubblewrap | Backend::Container) => true,
            Some(_) => false,
        };
        let home = Some(home.to_owned());
        if policy.profile == Profile::Danger || !has_own_tree {
            return Self { own: None, home };
        }
        let open = roots.iter().filter(|root| root.access != Access::None);
        let toolchains = setup.toolchains.iter().flat_map(|toolchain| toolchain.roots.iter().cloned());
        let shown = open.map(|root| root.path.as_path().to_owned()).chain(toolchains).collect();
        let own = home.clone().map(|home| ConstructedTree { home, shown });
        Self { own, home }
    }

    /// A file in the home that a shell would run, by its name inside. Also if its existence is unknown.
    pub(super) fn start_file(&self) -> Option<PathBuf> {
        let home = self.home.as_deref()?;
        let is_there = |name: &&&str| match fs::symlink_metadata(home.join(name)) {
            Ok(_) => true,
            Err(error) => {
                error.kind() != io::ErrorKind::NotFound && error.kind() != io::ErrorKind::NotADirectory
            }
        };
        START_FILES.iter().find(is_there).map(|name| Path::new("~").join(name))
    }

    /// The directory of python's packages in the home, from which `.pth` files and `usercustomize` run at every start.
    pub(super) fn python_start(&self) -> Option<PathBuf> {
        const LIBRARIES: &str = ".local/lib";
        let named = Path::new("~").join(LIBRARIES);
        let listed = match fs::read_dir(self.home.as_deref()?.join(LIBRARIES)) {
            Ok(listed) => listed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(_) => return Some(named),
        };
        let names = listed.filter_map(Result::ok).map(|entry| entry.file_name());
        let mut of_python = names.filter(|name| name.as_encoded_bytes().starts_with(b"python"));
        of_python.next().map(|name| named.join(name))
    }

    /// Resolves an absolute path with all links as inside; the result is a path inside. A path through a
    /// private directory is resolved as far as it is known.
    pub(super) fn real(&self, path: &Path) -> PathBuf {
        match self.reached(path) {
            ResolvedPath::Path(path) | ResolvedPath::Unseen(path) => path,
        }
    }

    /// Like [`Self::real`], only if the whole path is known.
    pub(super) fn seen(&self, path: &Path) -> Option<PathBuf> {
        match self.reached(path) {
            ResolvedPath::Path(path) => Some(path),
            ResolvedPath::Unseen(_) => None,
        }
    }

    /// The host path of a path inside. An error if it is unknown.
    pub(super) fn host(&self, path: &Path) -> io::Result<PathBuf> {
        self.seen(path).and_then(|path| self.host_of(&path)).ok_or_else(unseen)
    }

    /// The host path of the name itself, without following a final link.
    pub(super) fn host_name(&self, path: &Path) -> io::Result<PathBuf> {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => Ok(self.host(parent)?.join(name)),
            _ => self.host(path),
        }
    }

    /// Whether a command could have put arbitrary files there, outside every root.
    pub(super) fn is_private(&self, path: &Path) -> bool {
        let is_home = |own: &ConstructedTree| path.starts_with(HOME_INSIDE) && !own.is_shown(path);
        self.own.as_ref().is_some_and(is_home) || !self.is_visible(path)
    }

    /// Whether the content of a resolved path is known here.
    fn is_visible(&self, path: &Path) -> bool {
        self.host_of(path).is_some() || self.is_above_shown(path)
    }

    fn is_above_shown(&self, path: &Path) -> bool {
        self.own.as_ref().is_some_and(|own| own.is_above_shown(path))
    }

    /// The host path of a resolved path; `None` if it is private.
    fn host_of(&self, path: &Path) -> Option<PathBuf> {
        match &self.own {
            Some(own) => own.host(path),
            None => (!is_in(&OF_PROCESS, path)).then(|| path.to_owned()),
        }
    }

    /// Follows a path component by component: `..` is the parent of the reached directory, not of the text.
    /// After the first missing component only the text remains.
    fn reached(&self, path: &Path) -> ResolvedPath {
        let mut reached = PathBuf::from("/");
        let mut ahead = reversed(path);
        let mut links = 0;
        while let Some(name) = ahead.pop() {
            if name == ".." {
                reached.pop();
                continue;
            }
            reached.push(name);
            let Some(host) = self.host_of(&reached) else {
                if self.is_above_shown(&reached) {
                    continue;
                }
                return self.rest(reached, ahead);
            };
            match fs::read_link(&host) {
                Ok(target) if links < LINKS => {
                    links += 1;
                    reached.pop();
                    if target.is_absolute() {
                        reached = PathBuf::from("/");
                    }
                    ahead.extend(reversed(&target));
                }
                // Not a link.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                _ => return self.rest(reached, ahead),
            }
        }
        self.rest(reached, Vec::new())
    }

    /// The rest of a path behind a missing or private component. A `..` in it depends on links that exist
    /// when the command runs.
    fn rest(&self, mut reached: PathBuf, ahead: Vec<OsString>) -> ResolvedPath {
        if ahead.iter().any(|name| name == "..") {
            return ResolvedPath::Unseen(reached);
        }
        reached.extend(ahead.into_iter().rev());
        if self.is_visible(&reached) { ResolvedPath::Path(reached) } else { ResolvedPath::Unseen(reached) }
    }
}

impl ConstructedTree {
    /// The host path of a resolved path; `None` if it is private.
    fn host(&self, path: &Path) -> Option<PathBuf> {
        if self.is_shown(path) {
            return Some(path.to_owned());
        }
        if let Ok(below) = path.strip_prefix(HOME_INSIDE) {
            return Some(self.home.join(below));
        }
        (!is_in(&PRIVATE, path)).then(|| path.to_owned())
    }

    fn is_shown(&self, path: &Path) -> bool {
        self.shown.iter().any(|root| path.starts_with(root))
    }

    /// A directory that exists only as a parent of a root.
    fn is_above_shown(&self, path: &Path) -> bool {
        self.shown.iter().any(|root| root.starts_with(path))
    }
}

fn is_in(places: &[&str], path: &Path) -> bool {
    places.iter().any(|place| path.starts_with(place))
}

/// The components of a path, last first.
fn reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    });
    names.collect()
}

fn unseen() -> io::Error {
    io::Error::other("what is there inside cannot be seen from here")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Bench {
        dir: tempfile::TempDir,
        inside: Inside,
    }

    impl Bench {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().canonicalize().unwrap();
            for name in ["w", "home", "other"] {
                fs::create_dir(path.join(name)).unwrap();
            }
            let own = ConstructedTree { home: path.join("home"), shown: vec![path.join("w")] };
            Self { dir, inside: Inside { own: Some(own), home: Some(path.join("home")) } }
        }

        fn path(&self, path: &str) -> PathBuf {
            self.dir.path().canonicalize().unwrap().join(path)
        }
    }

    #[test]
    fn the_home_inside_is_the_kept_one() {
        let bench = Bench::new();
        fs::write(bench.path("home/c"), "x").unwrap();
        symlink("/home/ringfence/c", bench.path("w/link")).unwrap();
        assert_eq!(bench.inside.host(Path::new("/home/ringfence/c")).unwrap(), bench.path("home/c"));
        assert_eq!(bench.inside.host(&bench.path("w/link")).unwrap(), bench.path("home/c"));
        assert_eq!(bench.inside.real(&bench.path("w/link")), Path::new("/home/ringfence/c"));
        assert_eq!(bench.inside.host_name(&bench.path("w/link")).unwrap(), bench.path("w/link"));
        assert!(bench.inside.is_private(Path::new("/home/ringfence/c")));
        assert!(!bench.inside.is_private(&bench.path("w/link")));
    }

    #[test]
    fn private_places_are_not_looked_at() {
        let bench = Bench::new();
        // On the host the link leads back into the root; inside it leads to whatever a command put there.
        symlink(bench.path("w"), bench.path("other/back")).unwrap();
        symlink(bench.path("other/back"), bench.path("w/link")).unwrap();
        let is_private = ["/tmp", "/var/tmp"].iter().any(|place| bench.path("w").starts_with(place));
        assert!(is_private, "the temporary directory is private inside");
        for path in [
            bench.path("other/back"),
            bench.path("w/link"),
            bench.path("w/../other/x"),
            PathBuf::from("/proc/self/cwd/x"),
            PathBuf::from("/dev/fd/3"),
        ] {
            assert!(bench.inside.host(&path).is_err(), "{path:?}");
        }
        for up in [
            "/proc/self/cwd/../../../usr/bin/ls",
            "/tmp/x/../../usr/bin/ls",
            "/home/ringfence/x/../../../usr/bin/ls",
        ] {
            let up = Path::new(up);
            assert!(bench.inside.seen(up).is_none() && bench.inside.host(up).is_err(), "{up:?}");
            assert!(bench.inside.is_private(&bench.inside.real(up)), "{up:?}");
        }
        let whole = Inside::default();
        assert!(whole.seen(Path::new("/proc/self/cwd/usr/bin/ls")).is_none());
        assert!(whole.seen(Path::new("/dev/fd/3/../../usr/bin/ls")).is_none());
        assert!(whole.seen(Path::new("/usr/missing/../bin/ls")).is_none());
        assert_eq!(bench.inside.host(&bench.path("w/new/file")).unwrap(), bench.path("w/new/file"));
        assert_eq!(Inside::default().host(&bench.path("other/x")).unwrap(), bench.path("other/x"));
    }

    #[test]
    fn what_a_shell_would_run_of_the_home_is_found() {
        let bench = Bench::new();
        fs::write(bench.path("home/.cargo"), "x").unwrap();
        assert_eq!(bench.inside.start_file(), None);
        symlink("nowhere", bench.path("home/.zshenv")).unwrap();
        assert_eq!(bench.inside.start_file(), Some(PathBuf::from("~/.zshenv")));
    }

    #[test]
    fn links_in_circles_end() {
        let bench = Bench::new();
        symlink("loop", bench.path("w/loop")).unwrap();
        assert!(bench.inside.real(&bench.path("w/loop/x")).starts_with(bench.path("w")));
    }
}
