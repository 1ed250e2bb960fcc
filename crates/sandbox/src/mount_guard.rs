//! Keeps hidden and protected paths held while a session runs.
//!
//! Programs on the host replace files by renaming (git its configuration, editors nearly everything), and a mount goes
//! with the file it sits on. The guard looks at each held path many times a second and has a launcher mount again what
//! was replaced. A session whose repair fails is ended.
//!
//! WHY NOT inotify: closing a descriptor that has watches waits for a grace period of the kernel, which is longer than a
//! whole cold start.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringfence_launch::step::LaunchStep;
use ringfence_launch::wire::ControlMessage;
use ringfence_types::Backend;
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::control_socket;
use crate::launch_sequence::{self, Namespaces};
use crate::launcher::{self, LauncherProcess};
use crate::plan_compiler::{self, PathProtection};
use crate::sandbox::SandboxStartError;
use crate::survey::{RootView, SurveyedRoot};

/// How long a replaced file may stay open. A command that ends sooner is never looked at.
pub(crate) const ROUND: Duration = Duration::from_millis(25);

/// Looking must not cost more than a small part of a processor, however much there is to look at.
const PATHS_PER_ROUND: usize = 500;

/// Checks the held paths of one session: the relay of a foreground command calls [`MountGuard::check`] every [`ROUND`];
/// while commands run in the background, a thread does.
#[derive(Debug)]
pub(crate) struct MountGuard {
    watch: Arc<Mutex<GuardState>>,
    background: Option<GuardThread>,
}

#[derive(Debug)]
struct GuardThread {
    /// Dropped to end the thread.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MountGuard {
    /// `init` is killed when something can no longer be held.
    pub(crate) fn new(namespaces: Namespaces, init: OwnedFd, remembered: GuardedPaths) -> Self {
        let GuardedPaths { places, seen } = remembered;
        let watch =
            GuardState { namespaces, init, places, looked: Instant::now(), seen, rounds: 0, lost: None };
        Self { watch: Arc::new(Mutex::new(watch)), background: None }
    }

    /// One round, unless there has just been one: before a command and while it runs.
    pub(crate) fn check(&self) {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        if watch.looked.elapsed() >= ROUND {
            watch.check();
        }
    }

    /// What could not be held again, if that is why the session has ended.
    pub(crate) fn lost(&self) -> Option<PathBuf> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner).lost.clone()
    }

    /// From now on a thread looks, too.
    pub(crate) fn run(&mut self) -> std::io::Result<()> {
        if self.background.is_some() {
            return Ok(());
        }
        let (stop, stopped) = mpsc::channel();
        let watch = Arc::clone(&self.watch);
        let rounds = move || {
            while stopped.recv_timeout(ROUND) == Err(RecvTimeoutError::Timeout) {
                watch.lock().unwrap_or_else(PoisonError::into_inner).check();
            }
        };
        let thread = std::thread::Builder::new().name("ringfence-guard".to_owned()).spawn(rounds)?;
        self.background = Some(GuardThread { stop: Some(stop), thread: Some(thread) });
        Ok(())
    }
}

impl Drop for GuardThread {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it has nothing to say here: the session has ended.
            let _ended = thread.join();
        }
    }
}

/// What is to be held, as it was before anything was mounted on it: whatever comes later is a replacement.
#[derive(Debug, Default)]
pub(crate) struct GuardedPaths {
    places: Vec<GuardedPath>,
    seen: HashMap<usize, GuardedInode>,
}

impl GuardedPaths {
    pub(crate) fn of(roots: &[SurveyedRoot]) -> Self {
        let places = places(roots);
        let seen =
            places.iter().enumerate().filter_map(|(index, place)| Some((index, identity(place)?))).collect();
        Self { places, seen }
    }
}

/// Where a held path is, and how it is held.
#[derive(Debug)]
struct GuardedPath {
    root: PathBuf,
    path: PathBuf,
    held: PathProtection,
}

fn places(roots: &[SurveyedRoot]) -> Vec<GuardedPath> {
    let mut found = Vec::new();
    let mut replacements = 0;
    for root in roots {
        let mut hold = |path: &PathBuf, held: PathProtection| {
            found.push(GuardedPath { root: root.path.clone(), path: path.clone(), held });
        };
        root.protected.iter().for_each(|path| hold(path, PathProtection::Protected));
        root.held_links.iter().for_each(|path| hold(path, PathProtection::Protected));
        // Without its exceptions, if it comes to that: too little is open then, not too much.
        root.read_only.iter().for_each(|path| hold(path, PathProtection::Protected));
        root.held_places().for_each(|path| hold(path, PathProtection::Protected));
        let masked = match root.view {
            RootView::Direct => PathProtection::Masked,
            RootView::Layered => PathProtection::MaskedInLayer,
        };
        root.masks.iter().chain(&root.protected_links).for_each(|path| hold(path, masked));
        for (path, _) in &root.rewritten {
            hold(path, PathProtection::Replaced(replacements));
            replacements += 1;
        }
    }
    found
}

/// Which object is at a path. The time of birth tells one inode from the next that has its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GuardedInode {
    device: (u32, u32),
    inode: u64,
    born: i64,
    born_ns: u32,
}

#[derive(Debug)]
struct GuardState {
    namespaces: Namespaces,
    init: OwnedFd,
    places: Vec<GuardedPath>,
    looked: Instant,
    seen: HashMap<usize, GuardedInode>,
    rounds: usize,
    /// What could not be held again: the reason why the session has ended.
    lost: Option<PathBuf>,
}

impl GuardState {
    fn check(&mut self) {
        self.rounds += 1;
        self.looked = Instant::now();
        let pace = self.places.len() / PATHS_PER_ROUND + 1;
        if !self.rounds.is_multiple_of(pace) {
            return;
        }
        for index in self.replaced() {
            let Some(place) = self.places.get(index) else { continue };
            if self.remount(place).is_err() {
                // Not held any more: nothing inside may go on.
                self.lost = Some(place.root.join(&place.path));
                let _gone = rustix::process::pidfd_send_signal(&self.init, Signal::KILL);
                return;
            }
        }
    }

    /// What is there and is not what was there.
    fn replaced(&mut self) -> Vec<usize> {
        let mut found = Vec::new();
        for (index, place) in self.places.iter().enumerate() {
            if let Some(now) = identity(place)
                && self.seen.insert(index, now) != Some(now)
            {
                found.push(index);
            }
        }
        found
    }

    /// Sends a launcher in. That the path is gone again by then is no failure: there is nothing to hold.
    fn remount(&self, place: &GuardedPath) -> Result<(), SandboxStartError> {
        let failed = |errno: Errno| SandboxStartError::Spawn(errno.into());
        let plan = plan_compiler::repair(&place.root, &place.path, place.held)?;
        let memory = control_socket::sealed("ringfence-repair", &plan).map_err(failed)?;
        let LauncherProcess { control, outer: _launcher } =
            launcher::spawn().map_err(SandboxStartError::Spawn)?;
        let fds = [self.namespaces.user.as_fd(), self.namespaces.mount.as_fd(), memory.as_fd()];
        control.send(ControlMessage::Repair { length: plan.len() as u64 }, &fds).map_err(failed)?;
        match launch_sequence::expect(&control, Backend::Native) {
            Ok((ControlMessage::Repaired, _)) => Ok(()),
            Ok(_) => Err(SandboxStartError::NoReport { backend: Backend::Native }),
            Err(SandboxStartError::Step {
                step: LaunchStep::Protect | LaunchStep::Masks,
                errno: Errno::NOENT,
                ..
            }) if identity(place).is_none() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn identity(place: &GuardedPath) -> Option<GuardedInode> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let found = rustix::fs::statx(rustix::fs::CWD, place.root.join(&place.path), flags, wanted).ok()?;
    let born = found.stx_btime;
    Some(GuardedInode {
        device: (found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        born: born.tv_sec,
        born_ns: born.tv_nsec,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_what_was_replaced_is_mounted_again() {
        let root = tempfile::tempdir().unwrap();
        let names: Vec<PathBuf> =
            (0..PATHS_PER_ROUND + 100).map(|number| PathBuf::from(format!("{number}.key"))).collect();
        names.iter().for_each(|name| fs::write(root.path().join(name), "x").unwrap());
        let surveyed = SurveyedRoot { path: root.path().to_owned(), masks: names, ..SurveyedRoot::default() };
        let GuardedPaths { places, seen } = GuardedPaths::of(&[surveyed]);
        let null = || OwnedFd::from(fs::File::open("/dev/null").unwrap());
        let namespaces = Namespaces { user: null(), mount: null() };
        let looked = Instant::now();
        let mut watch = GuardState { namespaces, init: null(), places, looked, seen, rounds: 0, lost: None };
        assert_eq!(watch.replaced(), Vec::<usize>::new());
        fs::write(root.path().join("new"), "y").unwrap();
        fs::rename(root.path().join("new"), root.path().join("7.key")).unwrap();
        fs::remove_file(root.path().join("9.key")).unwrap();
        assert_eq!(watch.replaced(), [7]);
        fs::write(root.path().join("9.key"), "z").unwrap();
        assert_eq!(watch.replaced(), [9]);
        assert_eq!(watch.replaced(), Vec::<usize>::new());
    }
}
