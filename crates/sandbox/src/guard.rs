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
use std::thread::JoinHandle;
use std::time::Duration;

use ringfence_launch::step::Step;
use ringfence_launch::wire::Message;
use ringfence_types::Backend;
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::compile::{self, Held};
use crate::control::{self, Control};
use crate::launcher;
use crate::launching::{self, Namespaces, Outer};
use crate::session::StartError;
use crate::survey::SurveyedRoot;

/// How long a replaced file may stay open. A command that ends sooner is never looked at.
const ROUND: Duration = Duration::from_millis(25);

/// Looking must not cost more than a small part of a processor, however much there is to look at.
const PATHS_PER_ROUND: usize = 500;

/// A watching thread. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Dropped to end the thread.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Guard {
    /// Watches `roots`; `init` is killed when something can no longer be held.
    pub(crate) fn start(
        namespaces: Namespaces,
        init: OwnedFd,
        roots: &[SurveyedRoot],
    ) -> std::io::Result<Self> {
        let places = places(roots);
        let (stop, stopped) = mpsc::channel();
        let watch = Watch { namespaces, init, places, seen: HashMap::new() };
        let thread = std::thread::Builder::new()
            .name("ringfence-guard".to_owned())
            .spawn(move || watch.run(&stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it has nothing to say here: the session is over.
            let _ended = thread.join();
        }
    }
}

/// Where a held path is, and how it is held.
#[derive(Debug)]
struct Place {
    root: PathBuf,
    path: PathBuf,
    held: Held,
}

fn places(roots: &[SurveyedRoot]) -> Vec<Place> {
    let mut found = Vec::new();
    let mut replacements = 0;
    for root in roots {
        let mut hold = |path: &PathBuf, held: Held| {
            found.push(Place { root: root.path.clone(), path: path.clone(), held });
        };
        root.protected.iter().for_each(|path| hold(path, Held::Protected));
        root.absent.iter().for_each(|absent| hold(&absent.path, Held::Protected));
        root.masks.iter().chain(&root.protected_links).for_each(|path| hold(path, Held::Masked));
        for (path, _) in &root.rewritten {
            hold(path, Held::Replaced(replacements));
            replacements += 1;
        }
    }
    found
}

/// Which object is at a path. The time of birth tells one inode from the next that has its number.
type Identity = (u32, u32, u64, i64, u32);

struct Watch {
    namespaces: Namespaces,
    init: OwnedFd,
    places: Vec<Place>,
    seen: HashMap<usize, Identity>,
}

impl Watch {
    fn run(mut self, stopped: &mpsc::Receiver<()>) {
        self.remember();
        let rounds = u32::try_from(self.places.len() / PATHS_PER_ROUND).unwrap_or(u32::MAX).saturating_add(1);
        while stopped.recv_timeout(ROUND.saturating_mul(rounds)) == Err(RecvTimeoutError::Timeout) {
            for index in self.replaced() {
                if self.places.get(index).is_some_and(|place| self.repair(place).is_err()) {
                    // Not held any more: nothing inside may go on.
                    let _gone = rustix::process::pidfd_send_signal(&self.init, Signal::KILL);
                    return;
                }
            }
        }
    }

    fn remember(&mut self) {
        let seen =
            self.places.iter().enumerate().filter_map(|(index, place)| Some((index, identity(place)?)));
        self.seen = seen.collect();
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
    fn repair(&self, place: &Place) -> Result<(), StartError> {
        let failed = |errno: Errno| StartError::Spawn(errno.into());
        let plan = compile::repair(&place.root, &place.path, place.held)?;
        let memory = control::sealed("ringfence-repair", &plan).map_err(failed)?;
        let (control, theirs) = Control::pair().map_err(failed)?;
        let _launcher = Outer::new(launcher::spawn(theirs).map_err(StartError::Spawn)?);
        let fds = [self.namespaces.user.as_fd(), self.namespaces.mount.as_fd(), memory.as_fd()];
        control.send(Message::Repair { length: plan.len() as u64 }, &fds).map_err(failed)?;
        match launching::expect(&control, Backend::Native) {
            Ok((Message::Repaired, _)) => Ok(()),
            Ok(_) => Err(StartError::NoReport { backend: Backend::Native }),
            Err(StartError::Step { step: Step::Protect | Step::Masks, errno: Errno::NOENT, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn identity(place: &Place) -> Option<Identity> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let found = rustix::fs::statx(rustix::fs::CWD, place.root.join(&place.path), flags, wanted).ok()?;
    let born = found.stx_btime;
    Some((found.stx_dev_major, found.stx_dev_minor, found.stx_ino, born.tv_sec, born.tv_nsec))
}
