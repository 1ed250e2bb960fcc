//! The file tree as a command inside the fence sees it.
//!
//! Most paths mean the same inside and outside. Two kinds do not: the home inside is a directory of the state directory, and
//! some places are private to the sandbox. What is in those is not known here, and a file of the host with the same name says
//! nothing about it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ringfence_authz::Policy;
use ringfence_sandbox::HOME_INSIDE;
use ringfence_types::{Access, Backend, Profile, Root};

use super::{folded, reversed};
use crate::session::Setup;

/// Places of which every sandbox has its own.
const PRIVATE: [&str; 7] = ["/tmp", "/var/tmp", "/dev", "/proc", "/sys", "/run", "/.ringfence"];
/// As the kernel has it.
const LINKS: usize = 40;

/// What a command sees. Without a tree of its own it sees the host's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inside {
    own: Option<Constructed>,
}

#[derive(Clone, Debug)]
struct Constructed {
    /// The directory of the host that is the home inside.
    home: PathBuf,
    /// What is shown at its own path, whatever it lies in.
    shown: Vec<PathBuf>,
}

/// Where a path leads to.
enum Reached {
    /// Every link was followed. By its name inside.
    Path(PathBuf),
    /// Into a place that cannot be looked into from here.
    Unseen(PathBuf),
}

impl Inside {
    pub(crate) fn of(setup: &Setup, policy: &Policy, roots: &[Root], home: &Path) -> Self {
        let has_own_tree = match policy.backend {
            None | Some(Backend::Native | Backend::Bubblewrap | Backend::Container) => true,
            Some(_) => false,
        };
        if policy.profile == Profile::Danger || !has_own_tree {
            return Self::default();
        }
        let open = roots.iter().filter(|root| root.access != Access::None);
        let toolchains = setup.toolchains.iter().flat_map(|toolchain| toolchain.roots.iter().cloned());
        let shown = open.map(|root| root.path.as_path().to_owned()).chain(toolchains).collect();
        Self { own: Some(Constructed { home: home.to_owned(), shown }) }
    }

    /// Where an absolute path leads when every link is followed as inside; by its name inside.
    pub(super) fn real(&self, path: &Path) -> PathBuf {
        match self.own.as_ref().map(|own| own.reached(path)) {
            Some(Reached::Path(path) | Reached::Unseen(path)) => path,
            None => path.to_owned(),
        }
    }

    /// Where on the host the thing is that a path means inside. An error where that cannot be told.
    pub(super) fn host(&self, path: &Path) -> io::Result<PathBuf> {
        let Some(own) = &self.own else { return Ok(path.to_owned()) };
        match own.reached(path) {
            Reached::Path(path) => own.host(&path).ok_or_else(unseen),
            Reached::Unseen(_) => Err(unseen()),
        }
    }

    /// The same of the name itself, not of what it may lead to.
    pub(super) fn host_name(&self, path: &Path) -> io::Result<PathBuf> {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => Ok(self.host(parent)?.join(name)),
            _ => self.host(path),
        }
    }

    /// Whether a command could have put anything it likes there, outside of every root.
    pub(super) fn is_private(&self, path: &Path) -> bool {
        self.own.as_ref().is_some_and(|own| {
            let is_home = path.starts_with(HOME_INSIDE) && !own.is_shown(path);
            is_home || (own.host(path).is_none() && !own.is_above_shown(path))
        })
    }
}

impl Constructed {
    /// The name on the host of a path without links; `None` for what is private.
    fn host(&self, path: &Path) -> Option<PathBuf> {
        if self.is_shown(path) {
            return Some(path.to_owned());
        }
        if let Ok(below) = path.strip_prefix(HOME_INSIDE) {
            return Some(self.home.join(below));
        }
        (!PRIVATE.iter().any(|private| path.starts_with(private))).then(|| path.to_owned())
    }

    fn is_shown(&self, path: &Path) -> bool {
        self.shown.iter().any(|root| path.starts_with(root))
    }

    /// A directory that is there so that a root can be.
    fn is_above_shown(&self, path: &Path) -> bool {
        self.shown.iter().any(|root| root.starts_with(path))
    }

    fn reached(&self, path: &Path) -> Reached {
        let mut reached = PathBuf::from("/");
        let mut ahead = reversed(path);
        let mut links = 0;
        while let Some(name) = ahead.pop() {
            if name == ".." {
                reached.pop();
                continue;
            }
            reached.push(name);
            let Some(host) = self.host(&reached) else {
                if self.is_above_shown(&reached) {
                    continue;
                }
                // `..` behind a place that cannot be seen leads wherever a link in it leads.
                if ahead.iter().any(|name| name == "..") {
                    return Reached::Unseen(reached);
                }
                return Reached::Unseen(ahead.into_iter().rev().fold(reached, folded));
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
                _ => return self.missing(ahead.into_iter().rev().fold(reached, folded)),
            }
        }
        self.missing(reached)
    }

    fn missing(&self, path: PathBuf) -> Reached {
        if self.host(&path).is_some() || self.is_above_shown(&path) {
            Reached::Path(path)
        } else {
            Reached::Unseen(path)
        }
    }
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
            let own = Constructed { home: path.join("home"), shown: vec![path.join("w")] };
            Self { dir, inside: Inside { own: Some(own) } }
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
        // On the host it leads back into the root; inside it is whatever a command has put there.
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
        let up = Path::new("/proc/self/cwd/../../../usr/bin/ls");
        assert!(bench.inside.host(up).is_err() && bench.inside.is_private(&bench.inside.real(up)));
        assert_eq!(bench.inside.host(&bench.path("w/new/file")).unwrap(), bench.path("w/new/file"));
        assert_eq!(Inside::default().host(&bench.path("other/x")).unwrap(), bench.path("other/x"));
    }

    #[test]
    fn links_in_circles_end() {
        let bench = Bench::new();
        symlink("loop", bench.path("w/loop")).unwrap();
        assert!(bench.inside.real(&bench.path("w/loop/x")).starts_with(bench.path("w")));
    }
}
