//! The directory that a container sees as `/.ringfence`: the launcher, the control socket, and what masks are made of.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringfence_types::{Access, Backend, BindMount, NetMode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tempfile::TempDir;

use super::{ContainerTemplate, ids_inside};
use crate::launcher;
use crate::lease;
use crate::netns;
use crate::relay;
use crate::sandbox::SandboxStartError;
use crate::spec::{HOME_INSIDE, SandboxSpec, SkeletonFile};
use crate::survey::SurveyedRoot;
use crate::system_root;

/// Names of scratch directories begin with this.
const PREFIX: &str = "container-";

/// The launcher, inside.
pub(super) const LAUNCHER: &str = "/.ringfence/launch";

#[derive(Debug)]
pub(super) struct ContainerScratch {
    directory: TempDir,
    #[expect(dead_code, reason = "held for its lock")]
    lease: OwnedFd,
    /// Until PID 1 has connected.
    listener: Option<OwnedFd>,
}

impl ContainerScratch {
    pub(super) fn make(template: &ContainerTemplate) -> io::Result<Self> {
        fs::create_dir_all(&template.registry)?;
        sweep(&template.registry);
        let (directory, lease) = lease::make(PREFIX, &template.registry)?;
        let at = |name: &str| directory.path().join(name);
        fs::write(at("launch"), launcher::bytes())?;
        fs::set_permissions(at("launch"), fs::Permissions::from_mode(0o555))?;
        fs::write(at("hidden-file"), "")?;
        fs::set_permissions(at("hidden-file"), fs::Permissions::from_mode(0o000))?;
        for name in ["hidden-directory", "secrets"] {
            fs::create_dir(at(name))?;
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o000))?;
        }
        let listener = listen(directory.path())?;
        let scratch = Self { directory, lease, listener: Some(listener) };
        scratch.lay(&template.etc)?;
        Ok(scratch)
    }

    /// Brings the files up to what holds now. They are bound by now, so they stay the same files.
    pub(super) fn furnish(&self, spec: &SandboxSpec, surveyed: &[SurveyedRoot]) -> io::Result<()> {
        for (number, (_, content)) in surveyed.iter().flat_map(|root| &root.rewritten).enumerate() {
            fs::write(self.directory.path().join(format!("replacement-{number}")), content)?;
        }
        self.lay(&etc(spec))
    }

    fn lay(&self, etc: &[SkeletonFile]) -> io::Result<()> {
        for (number, file) in etc.iter().enumerate() {
            fs::write(self.directory.path().join(format!("etc-{number}")), &file.content)?;
        }
        Ok(())
    }

    /// Random: an engine has one container of a name.
    pub(super) fn name(&self) -> String {
        let own = self.directory.path().file_name().unwrap_or_default().to_string_lossy();
        own.trim_start_matches(PREFIX).to_owned()
    }

    /// What every container of ours has bound besides the roots.
    pub(super) fn bound(&self, template: &ContainerTemplate) -> Vec<BindMount> {
        let here = self.directory.path();
        let read = |source: PathBuf, target: &Path| BindMount {
            source,
            target: target.to_owned(),
            access: Access::Read,
        };
        let mut bound = vec![
            read(here.to_owned(), Path::new("/.ringfence")),
            BindMount { source: template.home.clone(), target: HOME_INSIDE.into(), access: Access::Write },
        ];
        let etc = template.etc.iter().enumerate();
        bound.extend(etc.map(|(number, file)| read(here.join(format!("etc-{number}")), &file.path)));
        bound
    }

    /// Waits until PID 1 of the container connects. The socket accepts this one connection and is then removed. `runs`
    /// says whether PID 1 may still connect.
    pub(super) fn connected(&mut self, runs: impl Fn() -> bool) -> Result<OwnedFd, SandboxStartError> {
        const PATIENCE: Duration = Duration::from_secs(120);
        const LOOK: Duration = Duration::from_millis(500);
        let nobody = SandboxStartError::NoReport { backend: Backend::Container };
        let failed = |errno: Errno| SandboxStartError::Spawn(errno.into());
        let Some(listener) = self.listener.take() else { return Err(nobody) };
        let deadline = Instant::now() + PATIENCE;
        while !relay::readable_within(listener.as_fd(), LOOK).map_err(failed)? {
            if !runs() || Instant::now() > deadline {
                return Err(nobody);
            }
        }
        let socket = rustix::net::accept_with(&listener, SocketFlags::CLOEXEC).map_err(failed)?;
        fs::remove_file(self.directory.path().join("control")).map_err(SandboxStartError::Spawn)?;
        Ok(socket)
    }
}

impl Drop for ContainerScratch {
    fn drop(&mut self) {
        // Removing the rest would look into them first, which only root may.
        for name in ["hidden-directory", "secrets"] {
            let _gone = fs::remove_dir(self.directory.path().join(name));
        }
    }
}

/// The socket by a short name: a state directory may be deeper than an address is long.
fn listen(directory: &Path) -> io::Result<OwnedFd> {
    let place = fs::File::open(directory)?;
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}/control", place.as_raw_fd()))?;
    let flags = SocketFlags::CLOEXEC;
    let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::bind(&listener, &address)?;
    rustix::net::listen(&listener, 1)?;
    Ok(listener)
}

/// Who is there, and what the caller lays in. Everything else of /etc is the image's.
pub(super) fn etc(spec: &SandboxSpec) -> Vec<SkeletonFile> {
    let (uid, gid) = ids_inside();
    let (passwd, group) = system_root::accounts(uid, gid, HOME_INSIDE);
    let own = |path: &str, content: String| SkeletonFile { path: path.into(), content: content.into_bytes() };
    let mut files = vec![own("/etc/passwd", passwd), own("/etc/group", group)];
    if spec.net == NetMode::Filtered {
        files.push(SkeletonFile { path: "/etc/resolv.conf".into(), content: netns::RESOLV_CONF.to_vec() });
    }
    files.extend(spec.files.iter().cloned());
    files
}

/// Removes the scratch directories of processes that are gone.
fn sweep(registry: &Path) {
    lease::sweep(PREFIX, registry, |scratch| {
        for closed in ["hidden-directory", "secrets"] {
            let _opened = fs::set_permissions(scratch.join(closed), fs::Permissions::from_mode(0o700));
        }
        // What cannot be removed stays for the next time.
        let _removed = fs::remove_dir_all(scratch);
    });
}
