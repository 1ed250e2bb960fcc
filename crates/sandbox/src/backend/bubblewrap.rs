//! Bubblewrap as the maker of namespaces and mounts, for machines where only it may make user namespaces (AppArmor
//! on Ubuntu). Our launcher runs inside it and adds Landlock, seccomp and the control socket.
//!
//! The launcher is not PID 1 here (bubblewrap's own init is), so the commands it starts are kept from signalling it
//! by a Landlock scope, and `--die-with-parent` ends the namespace with us.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ringfence_launch::plan::MountAccess as PlanAccess;
use ringfence_types::{Backend, ByteString, Control, NetMode};
use rustix::fs::{CWD, FileType, Mode};
use tempfile::TempDir;
use zeroize::Zeroizing;

use super::native::WorkspaceState;
use crate::cgroup::Cgroups;
use crate::control_socket::ControlSocket;
use crate::etc_files::{self, EtcTarget};
use crate::host_sockets::{Coverage, Overlays};
use crate::landlock;
use crate::launch_sequence::{self, OuterProcess, PendingLaunch};
use crate::launcher::{self, LauncherProcess};
use crate::lease;
use crate::netns;
use crate::plan_compiler::{self, CompileContext};
use crate::posture::{self, PostureEvidence};
use crate::sandbox::{Sandbox, SandboxStartError, UnsupportedFeature};
use crate::spec::{HOME_INSIDE, HostView, SECRETS_INSIDE, SandboxSpec};
use crate::survey::{SurveyRules, SurveyedRoot};
use crate::system_root::{self, SystemEntry};

/// Names of scratch directories begin with this and the process they belong to.
const SCRATCH: &str = "bubblewrap-";

/// Never looked up on a PATH that a workspace could be on.
const PROGRAMS: [&str; 2] = ["/usr/bin/bwrap", "/usr/local/bin/bwrap"];

pub(crate) fn start(spec: &SandboxSpec, rules: &dyn SurveyRules) -> Result<Sandbox, SandboxStartError> {
    let program = program()?;
    if matches!(spec.view, HostView::WholeMachine { .. }) {
        return Err(unsupported(
            UnsupportedFeature::WholeMachine,
            "it does not do profile `danger`".to_owned(),
        ));
    }
    let surroundings = WorkspaceState::look(spec, rules)?;
    if let Some(link) = surroundings.survey.roots.iter().find_map(|root| {
        let mut links = root.protected_links.iter().chain(&root.held_links);
        links.next().map(|link| root.path.join(link))
    }) {
        let link = ByteString::from(link).display();
        return Err(unsupported(
            UnsupportedFeature::HeldLink,
            format!("it cannot hold the symbolic link `{link}`, only what it points at"),
        ));
    }
    sweep_scratch(&spec.registry);
    let scratch = BwrapScratch::make(spec, &surroundings.survey.roots).map_err(SandboxStartError::Spawn)?;
    let coverage = Coverage::look(spec, Overlays::Unused).map_err(SandboxStartError::Spawn)?;
    let arguments = arguments(spec, &surroundings.survey.roots, &coverage, &scratch)?;
    let launcher = spawn(program, &arguments).map_err(SandboxStartError::Spawn)?;
    let launching = PendingLaunch::begin(launcher, spec.backend, 0, Cgroups::create(&spec.limits))?;
    let landlock_abi = landlock::abi();
    let ground = CompileContext::here(landlock_abi, launching.cgroups());
    let plan = Zeroizing::new(plan_compiler::seal_only(spec, &surroundings.survey.roots, &ground)?);
    let mut sealed = launching.finish(&plan)?;
    if let Some(net) = &sealed.net_namespace {
        let outfit =
            |netfilter| launch_sequence::outfit(net, &plan_compiler::outfit(netfilter), spec.backend);
        sealed.doors = Some(netns::with_or_without_netfilter(outfit)?);
    }
    let evidence = PostureEvidence {
        spec,
        achieved: sealed.achieved,
        landlock_abi,
        cgroups: &sealed.cgroups,
        doors: sealed.doors.as_ref(),
        coverage: &coverage,
    };
    let mut posture = posture::posture(&evidence);
    if scratch.devices == DeviceNodes::OfHost && rustix::process::geteuid().is_root() {
        posture.controls.entry(Control::FsWrite).and_modify(|level| {
            *level = posture::without(level, "mode, owner and times of the device files of the host");
        });
    }
    Sandbox::new(sealed, posture, surroundings)
}

fn unsupported(what: UnsupportedFeature, reason: String) -> SandboxStartError {
    SandboxStartError::Unsupported { backend: Backend::Bubblewrap, what, reason }
}

fn unavailable(reason: String) -> SandboxStartError {
    SandboxStartError::Unavailable { backend: Backend::Bubblewrap, reason }
}

/// The first of [`PROGRAMS`] that root owns and that only root can write: another user could have replaced any other.
fn program() -> Result<&'static str, SandboxStartError> {
    let trusted = |path: &str| {
        fs::metadata(path).is_ok_and(|file| file.is_file() && file.uid() == 0 && file.mode() & 0o022 == 0)
    };
    PROGRAMS
        .into_iter()
        .find(|path| trusted(path))
        .ok_or_else(|| unavailable("bubblewrap is not installed (package `bubblewrap`)".to_owned()))
}

/// The launcher travels as standard output: the one other descriptor that a plain spawn can pass on.
fn spawn(program: &str, arguments: &[OsString]) -> io::Result<LauncherProcess> {
    let image = launcher::image().and_then(OwnedFd::try_clone)?;
    let (control, theirs) = ControlSocket::pair()?;
    let child = Command::new(program)
        .args(arguments)
        .args(["--", "/proc/self/fd/1"])
        .env_clear()
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::from(image))
        .stderr(Stdio::piped())
        .spawn()?;
    Ok(LauncherProcess { control, outer: OuterProcess::new(child) })
}

/// What bubblewrap said before it gave up.
pub(crate) fn complaint(child: &mut Child) -> Option<String> {
    let mut text = String::new();
    child.stderr.take()?.take(4096).read_to_string(&mut text).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| ByteString::from(text).display())
}

/// Files that are mounted into the sandbox. They only have to exist until bubblewrap has mounted them.
struct BwrapScratch {
    directory: TempDir,
    devices: DeviceNodes,
    #[expect(dead_code, reason = "held for its lock")]
    lease: OwnedFd,
}

/// Whose device files a sandbox has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeviceNodes {
    /// Copies, mounted over those of the host.
    Own,
    OfHost,
}

/// What bubblewrap's `--dev` binds from the host.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

impl BwrapScratch {
    fn make(spec: &SandboxSpec, surveyed: &[SurveyedRoot]) -> io::Result<Self> {
        fs::create_dir_all(&spec.registry)?;
        let (directory, lease) = lease::make(SCRATCH, &spec.registry)?;
        let mut scratch = Self { directory, devices: DeviceNodes::OfHost, lease };
        fs::write(scratch.hidden_file(), "")?;
        fs::set_permissions(scratch.hidden_file(), fs::Permissions::from_mode(0o000))?;
        fs::create_dir(scratch.hidden_directory())?;
        fs::set_permissions(scratch.hidden_directory(), fs::Permissions::from_mode(0o000))?;
        // What stays is that the nodes are the host's, which the posture says.
        match scratch.copy_devices() {
            Ok(()) => scratch.devices = DeviceNodes::Own,
            Err(error) => tracing::debug!(error = %error, "cannot create device files"),
        }
        for (number, file) in etc_files::files(spec).into_iter().enumerate() {
            fs::write(scratch.file(number), file.content)?;
        }
        for (number, (_, content)) in surveyed.iter().flat_map(|root| &root.rewritten).enumerate() {
            fs::write(scratch.replacement(number), content)?;
        }
        Ok(scratch)
    }

    /// WHY copies: bubblewrap binds the nodes writable, root inside owns them, and its `--remount-ro` closes devices. Only
    /// root can make them, and only root needs them.
    fn copy_devices(&self) -> io::Result<()> {
        for name in DEVICES {
            let number = fs::metadata(Path::new("/dev").join(name))?.rdev();
            let mode = Mode::from_raw_mode(0o666);
            rustix::fs::mknodat(CWD, self.device(name), FileType::CharacterDevice, mode, number)?;
            fs::set_permissions(self.device(name), fs::Permissions::from_mode(0o666))?;
        }
        // Where the file system of the state has no devices, this one cannot be opened.
        fs::File::options().write(true).open(self.device("null")).map(drop)
    }

    fn device(&self, name: &str) -> PathBuf {
        self.directory.path().join(format!("device-{name}"))
    }

    fn hidden_file(&self) -> PathBuf {
        self.directory.path().join("hidden-file")
    }

    fn hidden_directory(&self) -> PathBuf {
        self.directory.path().join("hidden-directory")
    }

    fn file(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("file-{number}"))
    }

    fn replacement(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("replacement-{number}"))
    }
}

impl Drop for BwrapScratch {
    fn drop(&mut self) {
        // Removing the rest would look into it first, which only root may.
        let _gone = fs::remove_dir(self.hidden_directory());
    }
}

/// Removes the scratch directories of processes that are gone.
pub(crate) fn sweep_scratch(registry: &Path) {
    lease::sweep(SCRATCH, registry, |scratch| {
        let hidden = scratch.join("hidden-directory");
        // What cannot be removed stays for the next time.
        let _opened = fs::set_permissions(hidden, fs::Permissions::from_mode(0o700));
        let _removed = fs::remove_dir_all(scratch);
    });
}

#[derive(Default)]
struct BwrapArgs(Vec<OsString>);

impl BwrapArgs {
    fn option(&mut self, name: &str) {
        self.0.push(name.into());
    }

    fn option_with(&mut self, name: &str, value: impl Into<OsString>) {
        self.0.extend([name.into(), value.into()]);
    }

    fn mount(&mut self, kind: &str, source: impl Into<OsString>, target: impl Into<OsString>) {
        self.0.extend([kind.into(), source.into(), target.into()]);
    }
}

fn arguments(
    spec: &SandboxSpec,
    surveyed: &[SurveyedRoot],
    coverage: &Coverage,
    scratch: &BwrapScratch,
) -> Result<Vec<OsString>, SandboxStartError> {
    let mut out = BwrapArgs::default();
    namespaces(&mut out, spec);
    system_mounts(&mut out, spec, scratch)?;
    roots(&mut out, spec, surveyed);
    for socket in coverage.masks() {
        out.mount("--ro-bind", scratch.hidden_file(), socket);
    }
    let mut replacements = 0;
    for root in surveyed {
        inside_root(&mut out, root, scratch, &mut replacements);
    }
    out.option_with("--remount-ro", "/");
    Ok(out.0)
}

fn namespaces(out: &mut BwrapArgs, spec: &SandboxSpec) {
    for kind in ["user", "pid", "ipc", "uts", "cgroup"] {
        out.option(&format!("--unshare-{kind}"));
    }
    if spec.net != NetMode::Full {
        out.option("--unshare-net");
    }
    for option in ["--disable-userns", "--die-with-parent", "--new-session"] {
        out.option(option);
    }
    out.option_with("--uid", rustix::process::geteuid().as_raw().to_string());
    out.option_with("--gid", rustix::process::getegid().as_raw().to_string());
    out.option_with("--hostname", "ringfence");
    out.option_with("--cap-drop", "ALL");
}

fn system_mounts(
    out: &mut BwrapArgs,
    spec: &SandboxSpec,
    scratch: &BwrapScratch,
) -> Result<(), SandboxStartError> {
    let absolute = |path: &Path| Path::new("/").join(path);
    for entry in system_root::entries(Path::new("/")).map_err(SandboxStartError::Spawn)? {
        match entry {
            SystemEntry::Link(path, target) => out.mount("--symlink", target, absolute(&path)),
            SystemEntry::Directory(path) | SystemEntry::File(path) => {
                out.mount("--ro-bind", absolute(&path), absolute(&path))
            }
        }
    }
    for hidden in
        system_root::ETC_HIDDEN.iter().map(|path| Path::new("/etc").join(path)).filter(|path| path.is_dir())
    {
        out.mount("--ro-bind", scratch.hidden_directory(), hidden);
    }
    for (number, file) in etc_files::files(spec).into_iter().enumerate() {
        let target = match etc_files::place(&file.path)? {
            EtcTarget::Free => file.path,
            EtcTarget::Over(path) => path,
        };
        out.mount("--ro-bind", scratch.file(number), target);
    }
    out.option_with("--proc", "/proc");
    out.option_with("--remount-ro", "/proc");
    for hidden in system_root::PROC_HIDDEN.iter().map(|name| Path::new("/proc").join(name)) {
        if hidden.exists() {
            out.mount("--ro-bind", scratch.hidden_file(), hidden);
        }
    }
    out.option_with("--dev", "/dev");
    if scratch.devices == DeviceNodes::Own {
        for name in DEVICES {
            out.mount("--dev-bind", scratch.device(name), Path::new("/dev").join(name));
        }
    }
    let bytes = spec.limits.tmp_bytes.to_string();
    let var_tmp = plan_compiler::works_in_var_tmp(spec).then_some("/var/tmp");
    for place in ["/tmp", "/dev/shm"].into_iter().chain(var_tmp) {
        out.option_with("--size", bytes.clone());
        out.option_with("--tmpfs", place);
    }
    if var_tmp.is_none() {
        out.mount("--symlink", "/tmp", "/var/tmp");
    }
    if !spec.secrets.is_empty() {
        // Our launcher fills it from the plan: what is an argument of bubblewrap, everybody can read.
        out.option_with("--perms", "0700");
        out.option_with("--size", (16_u64 << 20).to_string());
        out.option_with("--tmpfs", SECRETS_INSIDE);
    }
    Ok(())
}

fn roots(out: &mut BwrapArgs, spec: &SandboxSpec, surveyed: &[SurveyedRoot]) {
    out.mount("--bind", spec.home.clone(), HOME_INSIDE);
    for mount in plan_compiler::root_mounts(spec, surveyed) {
        let kind = match mount.access {
            PlanAccess::Read | PlanAccess::System => "--ro-bind",
            PlanAccess::Write => "--bind",
        };
        out.mount(kind, &mount.path, &mount.path);
    }
}

fn inside_root(out: &mut BwrapArgs, root: &SurveyedRoot, scratch: &BwrapScratch, replacements: &mut usize) {
    let absolute = |path: &PathBuf| root.path.join(path);
    for pin in root.pins.iter().map(absolute) {
        out.mount("--bind", &pin, &pin);
    }
    for path in root.protected.iter().chain(root.held_places()).map(absolute) {
        out.mount("--ro-bind", &path, &path);
    }
    for (path, _) in &root.rewritten {
        out.mount("--ro-bind", scratch.replacement(*replacements), absolute(path));
        *replacements += 1;
    }
    for path in root.masks.iter().chain(&root.protected_links).map(absolute) {
        let hidden = if path.is_dir() { scratch.hidden_directory() } else { scratch.hidden_file() };
        out.mount("--ro-bind", hidden, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::{AbsentName, PlaceholderKind};
    use ringfence_types::{Access, ByteString, Limits, Root};

    /// S002-24: bubblewrap applies its options in order and later ones win, so what is narrower must come later.
    #[test]
    fn bubblewrap_arguments_protect_after_they_bind() {
        let world = tempfile::tempdir().unwrap();
        let workspace = world.path().join("w");
        let spec = SandboxSpec {
            backend: Backend::Bubblewrap,
            roots: vec![Root { path: ByteString::from(workspace.as_path()), access: Access::Write }],
            view: HostView::Constructed,
            toolchains: Vec::new(),
            shown: Vec::new(),
            home: world.path().join("home"),
            net: NetMode::None,
            limits: Limits::default(),
            files: Vec::new(),
            secrets: Vec::new(),
            registry: world.path().join("registry"),
            sweeper: None,
            container: None,
            layer: None,
        };
        let surveyed = SurveyedRoot {
            path: workspace.clone(),
            masks: vec![PathBuf::from(".env")],
            protected: vec![PathBuf::from(".git/config")],
            absent: vec![AbsentName {
                path: PathBuf::from(".claude"),
                placeholder: PlaceholderKind::Directory,
            }],
            pins: vec![PathBuf::from(".git")],
            ..SurveyedRoot::default()
        };
        let scratch = BwrapScratch::make(&spec, std::slice::from_ref(&surveyed)).unwrap();
        let arguments = arguments(&spec, &[surveyed], &Coverage::default(), &scratch).unwrap();
        let position = |kind: &str, path: &Path| {
            arguments.windows(3).position(|three| three[0] == kind && three[2] == path).unwrap()
        };
        let bound = position("--bind", &workspace);
        let pinned = position("--bind", &workspace.join(".git"));
        let protected = position("--ro-bind", &workspace.join(".git/config"));
        let masked = position("--ro-bind", &workspace.join(".env"));
        assert!(bound < pinned && pinned < protected && bound < masked);
        assert!(bound < position("--ro-bind", &workspace.join(".claude")));
        for needed in [
            "--unshare-user",
            "--unshare-pid",
            "--unshare-net",
            "--disable-userns",
            "--die-with-parent",
            "--new-session",
        ] {
            assert!(arguments.iter().any(|argument| argument == needed), "{needed}");
        }
        assert!(!arguments.iter().any(|argument| argument == "/run" || argument == "--share-net"));
    }
}
