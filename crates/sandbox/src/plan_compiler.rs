//! Turns a `SandboxSpec` and the survey of its roots into the plan that the launcher executes.
//!
//! The one place where it is decided what a sandbox looks like. The order of operations is the order of the file
//! system layers: read-only system, then devices and private places, then the roots, then what is pinned,
//! protected and masked inside them.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use ringfence_launch::plan::{
    Encoder, FileIdentity, HIDDEN_DIRECTORY, HIDDEN_FILE, MountAccess as PlanAccess, PlanOp,
};
use ringfence_types::{Access, Limits, NetMode};
use rustix::process::Resource;

use crate::cgroup::Cgroups;
use crate::etc_files::{self, EtcTarget};
use crate::host_sockets::Coverage;
use crate::landlock::{self, LandlockRights};
use crate::layer_view::{LayerMountPaths, LayeredRoots};
use crate::netns::{Netfilter, NetnsSetup};
use crate::seccomp;
use crate::spec::{HOME_INSIDE, HostView, SECRETS_INSIDE, SandboxSpec};
use crate::survey::{self, RootView, SurveyedRoot};
use crate::system_root::{self, SystemEntry};

/// Why a plan could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    #[error("the path `{}` contains a NUL byte", .0.display())]
    Nul(PathBuf),
    #[error("cannot look at the system directories")]
    System(#[source] io::Error),
    #[error("cannot look at the root `{}`", path.display())]
    Root { path: PathBuf, source: io::Error },
    #[error("there is nothing at `{}` that a file could be laid over", .0.display())]
    NothingThere(PathBuf),
}

/// What the plan needs to know about the kernel and the caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompileContext<'a> {
    pub(crate) landlock_abi: Option<u32>,
    pub(crate) cgroups: &'a Cgroups,
    /// Tasks of the caller that count against the same process limit: none in a user namespace of its own
    /// (Linux 5.14), all of the user's elsewhere.
    pub(crate) tasks_besides: u64,
    pub(crate) netfilter: Netfilter,
    /// Only where this launcher makes the tree.
    pub(crate) coverage: Option<&'a Coverage>,
    /// Likewise.
    pub(crate) layer: Option<&'a LayeredRoots>,
}

impl<'a> CompileContext<'a> {
    pub(crate) fn here(landlock_abi: Option<u32>, cgroups: &'a Cgroups) -> Self {
        let netfilter = Netfilter::Present;
        Self { landlock_abi, cgroups, tasks_besides: 0, netfilter, coverage: None, layer: None }
    }

    /// For a sandbox that shares the user namespace of its caller.
    pub(crate) fn shared(landlock_abi: Option<u32>, cgroups: &'a Cgroups) -> Self {
        let tasks_besides = system_root::tasks_of_caller();
        Self { tasks_besides, ..Self::here(landlock_abi, cgroups) }
    }
}

/// The plan of the `native` backend.
pub(crate) fn native(
    spec: &SandboxSpec,
    surveyed: &[SurveyedRoot],
    ground: &CompileContext<'_>,
) -> Result<Vec<u8>, PlanError> {
    let mut plan = PlanBuilder::with_room_for(spec);
    plan.push(&PlanOp::Hostname { name: c"ringfence" });
    own_network(&mut plan, spec, ground);
    match &spec.view {
        HostView::Constructed => {
            let (plain, direct) = (Coverage::default(), LayeredRoots::default());
            let (coverage, layer) = (ground.coverage.unwrap_or(&plain), ground.layer.unwrap_or(&direct));
            constructed(&mut plan, spec, surveyed, coverage, layer)?;
        }
        HostView::WholeMachine { hidden, frozen } => whole_machine(&mut plan, spec, hidden, frozen)?,
    }
    limits(&mut plan, &spec.limits, ground);
    if let Some(abi) = ground.landlock_abi {
        landlock_rules(&mut plan, spec, surveyed, landlock::rights(abi))?;
    }
    filter(&mut plan, ground);
    Ok(plan.encoder.finish())
}

fn filter(plan: &mut PlanBuilder, ground: &CompileContext<'_>) {
    plan.push(&PlanOp::Seccomp { program: seccomp::filter() });
    if !ground.cgroups.controls("memory") {
        plan.push(&PlanOp::Seccomp { program: seccomp::counted() });
    }
}

fn own_network(plan: &mut PlanBuilder, spec: &SandboxSpec, ground: &CompileContext<'_>) {
    match spec.net {
        NetMode::None => plan.push(&PlanOp::Loopback),
        NetMode::Filtered => {
            plan.push(&PlanOp::Loopback);
            NetnsSetup::new(ground.netfilter).operations().for_each(|op| plan.push(&op));
        }
        NetMode::Full => {}
    }
}

/// The plan of the `landlock` backend: the host's tree as it is, confined by Landlock and seccomp alone.
pub(crate) fn landlock_only(spec: &SandboxSpec, ground: &CompileContext<'_>) -> Result<Vec<u8>, PlanError> {
    let mut plan = PlanBuilder::default();
    limits(&mut plan, &spec.limits, ground);
    if let Some(abi) = ground.landlock_abi {
        host_rules(&mut plan, spec, landlock::rights(abi))?;
    }
    plan.push(&PlanOp::Seccomp { program: seccomp::filter() });
    // Whether or not a control group counts: System V segments are the host's here, and stay when the call has ended.
    plan.push(&PlanOp::Seccomp { program: seccomp::counted() });
    if spec.net == NetMode::None {
        plan.push(&PlanOp::Seccomp { program: seccomp::no_inet() });
    }
    Ok(plan.encoder.finish())
}

/// Limits, no_new_privs and the filter: what is left where an outer boundary is declared. And a domain, without which a command
/// ends who counts it, and reads the environment of its caller.
pub(crate) fn filter_only(spec: &SandboxSpec, ground: &CompileContext<'_>) -> Vec<u8> {
    let mut plan = PlanBuilder::default();
    limits(&mut plan, &spec.limits, ground);
    if let Some(LandlockRights { fs, net, scoped }) = ground.landlock_abi.and_then(landlock::signals_alone) {
        plan.push(&PlanOp::LandlockRuleset { fs, net, scoped });
        plan.push(&PlanOp::LandlockAllow { path: c"/", access: fs });
    }
    filter(&mut plan, ground);
    plan.encoder.finish()
}

/// Limits alone, and where it was not given away too a cover over the sensitive roots: the backend `none`.
pub(crate) fn bare(spec: &SandboxSpec, ground: &CompileContext<'_>) -> Result<Vec<u8>, PlanError> {
    let mut plan = PlanBuilder::default();
    if let HostView::WholeMachine { hidden, frozen } = &spec.view
        && !hidden.is_empty()
    {
        plan.push(&PlanOp::WholeMachine);
        hide_stores(&mut plan, spec, hidden, frozen)?;
    }
    limits(&mut plan, &spec.limits, ground);
    Ok(plan.encoder.finish())
}

/// The plan for a sandbox whose namespaces and mounts `bubblewrap` has made.
pub(crate) fn seal_only(
    spec: &SandboxSpec,
    surveyed: &[SurveyedRoot],
    ground: &CompileContext<'_>,
) -> Result<Vec<u8>, PlanError> {
    let mut plan = PlanBuilder::with_room_for(spec);
    if spec.net == NetMode::Filtered {
        plan.push(&PlanOp::NetNamespace);
    }
    // Into the tmpfs that the program around us has mounted there.
    for secret in &spec.secrets {
        plan.push(&PlanOp::File { path: &c_string(&secret.path())?, mode: 0o400, content: &secret.content });
    }
    // That program follows links, which a command of another session can make above a root at any time.
    for mount in root_mounts(spec, surveyed).iter().filter(|mount| mount.kind == MountKind::Root) {
        plan.push(&PlanOp::Expect { path: &c_string(&mount.path)?, identity: identity(&mount.path)? });
    }
    limits(&mut plan, &spec.limits, ground);
    if let Some(abi) = ground.landlock_abi {
        landlock_rules(&mut plan, spec, surveyed, landlock::rights(abi))?;
    }
    filter(&mut plan, ground);
    Ok(plan.encoder.finish())
}

/// The plan for the network of a sandbox whose namespaces another program has made, loopback included.
pub(crate) fn outfit(netfilter: Netfilter) -> Vec<u8> {
    let mut plan = PlanBuilder::default();
    NetnsSetup::new(netfilter).operations().for_each(|op| plan.push(&op));
    plan.encoder.finish()
}

/// What goes into a plan for PID 1 of a container: the image is there and the roots are bound, but nothing in them is
/// held yet.
pub(crate) fn container(
    spec: &SandboxSpec,
    surveyed: &[SurveyedRoot],
    ground: &CompileContext<'_>,
) -> Result<Vec<u8>, PlanError> {
    let mut plan = PlanBuilder::with_room_for(spec);
    own_network(&mut plan, spec, ground);
    plan.push(&PlanOp::WholeMachine);
    if !spec.secrets.is_empty() {
        let target = c_string(relative(Path::new(SECRETS_INSIDE)))?;
        plan.push(&PlanOp::Tmpfs { target: &target, bytes: 16 << 20, mode: 0o700 });
    }
    for secret in &spec.secrets {
        let path = c_string(relative(&secret.path()))?;
        plan.push(&PlanOp::File { path: &path, mode: 0o400, content: &secret.content });
    }
    // The door of a session may be below /run: then the rest of it is only closed, not hidden.
    let (hidden, closed) = if spec.shown.iter().any(|shown| shown.starts_with("/run")) {
        (&[c"/sys"][..], &[c"dev", c"proc", c"run"][..])
    } else {
        (&[c"/run", c"/sys"][..], &[c"dev", c"proc"][..])
    };
    for target in closed {
        plan.push(&PlanOp::ReadOnly { target });
    }
    plan.root_of(&spec.home, Path::new(HOME_INSIDE), PlanAccess::Write)?;
    for mount in root_mounts(spec, surveyed) {
        plan.root_of(&mount.path, &mount.path, mount.access)?;
    }
    system_masks(&mut plan, &[("proc", system_root::PROC_HIDDEN)])?;
    let mut replacements = 0;
    for root in surveyed {
        inside_root(&mut plan, root, &mut replacements)?;
    }
    for path in hidden {
        plan.push(&PlanOp::Hide { path });
    }
    limits(&mut plan, &spec.limits, ground);
    if let Some(abi) = ground.landlock_abi {
        landlock_rules(&mut plan, spec, surveyed, landlock::rights(abi))?;
    }
    filter(&mut plan, ground);
    Ok(plan.encoder.finish())
}

/// How a path in a root is held.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PathProtection {
    Protected,
    Masked,
    /// Masked in a copy-on-write view.
    MaskedInLayer,
    /// By the redacted copy with this number.
    Replaced(usize),
}

/// Mounts one path of a running sandbox again.
pub(crate) fn repair(root: &Path, path: &Path, held: PathProtection) -> Result<Vec<u8>, PlanError> {
    let mut plan = PlanBuilder::default();
    plan.push(&PlanOp::Beneath { target: &c_string(relative(root))? });
    let path = c_string(path)?;
    match held {
        PathProtection::Protected => plan.push(&PlanOp::Protect { path: &path }),
        PathProtection::Masked => plan.push(&PlanOp::Mask { path: &path }),
        PathProtection::MaskedInLayer => plan.push(&PlanOp::MaskVisible { path: &path }),
        PathProtection::Replaced(number) => {
            plan.push(&PlanOp::Replace { path: &path, source: &c_string(&replacement(number))? });
        }
    }
    Ok(plan.encoder.finish())
}

#[derive(Default)]
struct PlanBuilder {
    encoder: Encoder,
    made: BTreeSet<PathBuf>,
}

impl PlanBuilder {
    /// A buffer that grows leaves copies of its content behind, so one that will hold secrets starts large.
    fn with_room_for(spec: &SandboxSpec) -> Self {
        const REST: usize = 256 * 1024;
        let secrets: usize = spec.secrets.iter().map(|secret| secret.content.len()).sum();
        let mut draft = Self::default();
        if secrets > 0 {
            draft.encoder.reserve(secrets + REST);
        }
        draft
    }

    fn push(&mut self, op: &PlanOp<'_>) {
        self.encoder.push(op);
    }

    /// The directories above `relative`, each once.
    fn parents(&mut self, relative: &Path) -> Result<(), PlanError> {
        let mut ancestors: Vec<&Path> = relative.ancestors().skip(1).collect();
        ancestors.reverse();
        for ancestor in ancestors {
            self.directory(ancestor, 0o755)?;
        }
        Ok(())
    }

    fn directory(&mut self, relative: &Path, mode: u64) -> Result<(), PlanError> {
        if relative.as_os_str().is_empty() || !self.made.insert(relative.to_owned()) {
            return Ok(());
        }
        let path = c_string(relative)?;
        self.push(&PlanOp::Directory { path: &path, mode });
        Ok(())
    }

    /// Never above what the caller has: a lower limit is only stricter, and asking for more would fail.
    fn limit(&mut self, resource: Resource, soft: u64, hard: u64) {
        let most = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let number = u64::from(number_of(resource));
        self.push(&PlanOp::Rlimit { resource: number, soft: soft.min(most), hard: hard.min(most) });
    }

    fn root(&mut self, path: &Path, target: &Path, access: PlanAccess) -> Result<(), PlanError> {
        let identity = identity(path)?;
        let (source, target) = (c_string(path)?, c_string(target)?);
        self.push(&PlanOp::Root { source: &source, target: &target, access, identity });
        Ok(())
    }

    fn layered_root(&mut self, path: &Path, directories: &LayerMountPaths) -> Result<(), PlanError> {
        let identity = identity(path)?;
        let (source, target) = (c_string(path)?, c_string(relative(path))?);
        let (upper, work) = (c_string(&directories.upper)?, c_string(&directories.work)?);
        self.push(&PlanOp::LayeredRoot {
            source: &source,
            target: &target,
            identity,
            upper: &upper,
            work: &work,
        });
        Ok(())
    }

    /// Binds again what is at `inside` already, if it is what `path` is outside.
    fn root_of(&mut self, path: &Path, inside: &Path, access: PlanAccess) -> Result<(), PlanError> {
        let identity = identity(path)?;
        let (source, target) = (c_string(inside)?, c_string(relative(inside))?);
        self.push(&PlanOp::Root { source: &source, target: &target, access, identity });
        Ok(())
    }

    fn mount_point(&mut self, path: &Path) -> Result<(), PlanError> {
        let target = relative(path);
        self.parents(target)?;
        if path.is_dir() { self.directory(target, 0o755) } else { self.file(target, 0o644, b"") }
    }

    fn file(&mut self, relative: &Path, mode: u64, content: &[u8]) -> Result<(), PlanError> {
        self.parents(relative)?;
        if !self.made.insert(relative.to_owned()) {
            return Ok(());
        }
        let path = c_string(relative)?;
        self.push(&PlanOp::File { path: &path, mode, content });
        Ok(())
    }
}

/// Of the object at a path without links: another one is not what was surveyed.
fn identity(path: &Path) -> Result<FileIdentity, PlanError> {
    let found = survey::handle_unlinked(path).and_then(rustix::fs::fstat);
    let found = found.map_err(|errno| PlanError::Root { path: path.to_owned(), source: errno.into() })?;
    Ok(FileIdentity { device: found.st_dev, inode: found.st_ino })
}

fn constructed(
    plan: &mut PlanBuilder,
    spec: &SandboxSpec,
    surveyed: &[SurveyedRoot],
    coverage: &Coverage,
    layer: &LayeredRoots,
) -> Result<(), PlanError> {
    plan.push(&PlanOp::Stage);
    skeleton(plan, spec, surveyed, coverage)?;
    plan.push(&PlanOp::Seal);
    devices(plan, &spec.limits)?;
    if works_in_var_tmp(spec) {
        plan.push(&PlanOp::Tmpfs { target: c"var/tmp", bytes: spec.limits.tmp_bytes, mode: 0o1777 });
    }
    system_overlays(plan, spec, coverage)?;
    roots(plan, spec, surveyed, coverage, layer)?;
    lay_over(plan, spec)?;
    masks_in_system(plan, spec.closed_in_system().chain(coverage.masks().iter().map(PathBuf::as_path)))?;
    system_masks(plan, &[("etc", system_root::ETC_HIDDEN), ("proc", system_root::PROC_HIDDEN)])?;
    let mut replacements = 0;
    for root in surveyed {
        inside_root(plan, root, &mut replacements)?;
    }
    plan.push(&PlanOp::Pivot);
    Ok(())
}

fn skeleton(
    plan: &mut PlanBuilder,
    spec: &SandboxSpec,
    surveyed: &[SurveyedRoot],
    coverage: &Coverage,
) -> Result<(), PlanError> {
    for directory in [".ringfence", "dev", "etc", "proc", "tmp", "var", "home"] {
        plan.directory(Path::new(directory), 0o755)?;
    }
    plan.file(Path::new(as_str(HIDDEN_FILE)), 0, b"")?;
    plan.directory(Path::new(as_str(HIDDEN_DIRECTORY)), 0)?;
    if works_in_var_tmp(spec) {
        plan.directory(Path::new("var/tmp"), 0o755)?;
    } else {
        plan.push(&PlanOp::Symlink { path: c"var/tmp", target: c"/tmp" });
    }
    system_entries(plan, spec, coverage)?;
    own_files(plan, spec)?;
    secret_files(plan, spec)?;
    mount_points(plan, spec, surveyed)?;
    replaced_files(plan, surveyed)
}

fn system_entries(plan: &mut PlanBuilder, spec: &SandboxSpec, coverage: &Coverage) -> Result<(), PlanError> {
    for entry in system_root::entries(Path::new("/")).map_err(PlanError::System)? {
        match entry {
            SystemEntry::Link(path, target) => {
                let (path, target) = (c_string(&path)?, c_text(&target)?);
                plan.push(&PlanOp::Symlink { path: &path, target: &target });
            }
            SystemEntry::Directory(path) => {
                plan.parents(&path)?;
                plan.directory(&path, 0o755)?;
                if !coverage.is_overlaid(&Path::new("/").join(&path)) {
                    bind(plan, &path)?;
                }
            }
            SystemEntry::File(path) if spec.files.iter().any(|file| relative(&file.path) == path) => {}
            SystemEntry::File(path) => {
                plan.file(&path, 0o644, b"")?;
                bind(plan, &path)?;
            }
        }
    }
    Ok(())
}

/// Toolchains are mounted among the roots: one may lie inside the other.
fn system_overlays(plan: &mut PlanBuilder, spec: &SandboxSpec, coverage: &Coverage) -> Result<(), PlanError> {
    for path in coverage.overlaid().iter().filter(|path| !spec.toolchains.contains(path)) {
        plan.root(path, relative(path), PlanAccess::System)?;
    }
    Ok(())
}

fn bind(plan: &mut PlanBuilder, relative: &Path) -> Result<(), PlanError> {
    let source = c_string(&Path::new("/").join(relative))?;
    let target = c_string(relative)?;
    plan.push(&PlanOp::Bind { source: &source, target: &target });
    Ok(())
}

fn own_files(plan: &mut PlanBuilder, spec: &SandboxSpec) -> Result<(), PlanError> {
    for (number, file) in etc_files::files(spec).into_iter().enumerate() {
        match etc_files::place(&file.path)? {
            EtcTarget::Free => plan.file(relative(&file.path), 0o644, &file.content)?,
            EtcTarget::Over(_) => plan.file(&own_file(number), 0o444, &file.content)?,
        }
    }
    Ok(())
}

fn own_file(number: usize) -> PathBuf {
    PathBuf::from(format!(".ringfence/file-{number}"))
}

/// What lies in a directory of the host is covered once that directory is sealed: nothing is written there.
fn lay_over(plan: &mut PlanBuilder, spec: &SandboxSpec) -> Result<(), PlanError> {
    plan.push(&PlanOp::Beneath { target: c"." });
    for (number, file) in etc_files::files(spec).into_iter().enumerate() {
        if let EtcTarget::Over(path) = etc_files::place(&file.path)? {
            let (path, source) = (c_string(relative(&path))?, c_string(&own_file(number))?);
            plan.push(&PlanOp::Replace { path: &path, source: &source });
        }
    }
    Ok(())
}

fn secret_files(plan: &mut PlanBuilder, spec: &SandboxSpec) -> Result<(), PlanError> {
    if !spec.secrets.is_empty() {
        plan.directory(relative(Path::new(SECRETS_INSIDE)), 0o700)?;
    }
    for secret in &spec.secrets {
        plan.file(relative(&secret.path()), 0o400, &secret.content)?;
    }
    Ok(())
}

/// Below these a private tmpfs is mounted after the seal, so their mount points are made then.
const PRIVATE: [&str; 3] = ["tmp", "dev/shm", "var/tmp"];

/// /var/tmp is /tmp, unless there is a root below it: a link cannot hold a mount point.
pub(crate) fn works_in_var_tmp(spec: &SandboxSpec) -> bool {
    let mut paths = spec.roots.iter().map(|root| root.path.as_path()).chain(spec.besides());
    paths.any(|path| path.starts_with("/var/tmp"))
}

fn is_private(relative: &Path) -> bool {
    PRIVATE.iter().any(|private| relative.starts_with(private))
}

/// Whether the path exists already because a system directory above it is bound.
fn in_system(relative: &Path) -> bool {
    relative.components().count() > 1
        && system_root::SYSTEM_DIRECTORIES.iter().any(|directory| relative.starts_with(directory))
}

fn mount_points(
    plan: &mut PlanBuilder,
    spec: &SandboxSpec,
    surveyed: &[SurveyedRoot],
) -> Result<(), PlanError> {
    let paths = spec.open_roots().chain(spec.besides());
    for path in paths.chain(surveyed.iter().map(|root| root.path.as_path())) {
        let target = relative(path);
        if is_private(target) || in_system(target) || beneath_another_root(path, spec, surveyed) {
            continue;
        }
        plan.mount_point(path)?;
    }
    plan.directory(relative(Path::new(HOME_INSIDE)), 0o755)
}

/// A root inside another one has its mount point there.
fn beneath_another_root(path: &Path, spec: &SandboxSpec, surveyed: &[SurveyedRoot]) -> bool {
    spec.open_roots()
        .chain(surveyed.iter().map(|root| root.path.as_path()))
        .any(|other| other != path && path.starts_with(other))
}

/// Redacted copies of files that hold credentials; each replaces its original in the workspace.
fn replaced_files(plan: &mut PlanBuilder, surveyed: &[SurveyedRoot]) -> Result<(), PlanError> {
    for (number, (_, content)) in surveyed.iter().flat_map(|root| &root.rewritten).enumerate() {
        plan.file(&replacement(number), 0o444, content)?;
    }
    Ok(())
}

fn replacement(number: usize) -> PathBuf {
    PathBuf::from(format!(".ringfence/replacement-{number}"))
}

fn devices(plan: &mut PlanBuilder, limits: &Limits) -> Result<(), PlanError> {
    plan.push(&PlanOp::Tmpfs { target: c"tmp", bytes: limits.tmp_bytes, mode: 0o1777 });
    plan.push(&PlanOp::Tmpfs { target: c"dev", bytes: 64 * 1024, mode: 0o755 });
    for (source, target) in DEVICES {
        plan.push(&PlanOp::Device { source, target });
    }
    plan.directory(Path::new("dev/pts"), 0o755)?;
    plan.push(&PlanOp::Devpts { target: c"dev/pts" });
    plan.directory(Path::new("dev/shm"), 0o755)?;
    plan.push(&PlanOp::Tmpfs { target: c"dev/shm", bytes: limits.tmp_bytes, mode: 0o1777 });
    for (path, target) in DEVICE_LINKS {
        plan.push(&PlanOp::Symlink { path, target });
    }
    plan.push(&PlanOp::ReadOnly { target: c"dev" });
    plan.push(&PlanOp::Proc { target: c"proc" });
    Ok(())
}

const DEVICES: [(&CStr, &CStr); 6] = [
    (c"/dev/null", c"dev/null"),
    (c"/dev/zero", c"dev/zero"),
    (c"/dev/full", c"dev/full"),
    (c"/dev/random", c"dev/random"),
    (c"/dev/urandom", c"dev/urandom"),
    (c"/dev/tty", c"dev/tty"),
];

const DEVICE_LINKS: [(&CStr, &CStr); 5] = [
    (c"dev/fd", c"/proc/self/fd"),
    (c"dev/stdin", c"/proc/self/fd/0"),
    (c"dev/stdout", c"/proc/self/fd/1"),
    (c"dev/stderr", c"/proc/self/fd/2"),
    (c"dev/ptmx", c"pts/ptmx"),
];

fn roots(
    plan: &mut PlanBuilder,
    spec: &SandboxSpec,
    surveyed: &[SurveyedRoot],
    coverage: &Coverage,
    layer: &LayeredRoots,
) -> Result<(), PlanError> {
    plan.root(&spec.home, relative(Path::new(HOME_INSIDE)), PlanAccess::Write)?;
    for mount in root_mounts(spec, surveyed) {
        let is_inside = || beneath_another_root(&mount.path, spec, surveyed);
        if mount.kind == MountKind::Root && is_private(relative(&mount.path)) && !is_inside() {
            plan.mount_point(&mount.path)?;
        }
        let overlaid = spec.toolchains.contains(&mount.path) && coverage.is_overlaid(&mount.path);
        let access = if overlaid { PlanAccess::System } else { mount.access };
        match layer.of(&mount.path) {
            Some(directories) => plan.layered_root(&mount.path, directories)?,
            None => plan.root(&mount.path, relative(&mount.path), access)?,
        }
    }
    Ok(())
}

/// A directory or file of the host that is mounted at its own path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RootMount {
    pub(crate) path: PathBuf,
    pub(crate) access: PlanAccess,
    pub(crate) kind: MountKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MountKind {
    Root,
    /// Inside a root, where its mount point is.
    Part,
}

/// The roots, the toolchains, and the parts of roots that have another access than what is around them; outer before
/// inner, so that an inner one is not covered by an outer one.
pub(crate) fn root_mounts(spec: &SandboxSpec, surveyed: &[SurveyedRoot]) -> Vec<RootMount> {
    let known = |path: &Path| surveyed.iter().find(|root| root.path == path);
    let root = |path: &Path, access: Access| {
        let held = known(path).is_some_and(|root| root.held);
        let access = match access {
            Access::None => return None,
            Access::Write if !held => PlanAccess::Write,
            Access::Read | Access::Write => PlanAccess::Read,
        };
        Some(RootMount { path: path.to_owned(), access, kind: MountKind::Root })
    };
    let workspace = spec.roots.first().map_or(Access::Read, |root| root.access);
    let given =
        |path: &Path| spec.roots.iter().find(|known| known.path.as_path() == path).map(|root| root.access);
    let mut mounts: Vec<RootMount> =
        spec.roots.iter().filter_map(|given| root(given.path.as_path(), given.access)).collect();
    mounts.extend(spec.besides().filter_map(|path| root(path, Access::Read)));
    for found in surveyed {
        let access = given(&found.path).unwrap_or(workspace);
        // A root that was named has the access it was named with; only what git needs besides follows the workspace.
        mounts.extend(root(&found.path, access).filter(|_| given(&found.path).is_none()));
        if access == Access::Write {
            let part = |access| {
                move |path: &PathBuf| RootMount { path: found.path.join(path), access, kind: MountKind::Part }
            };
            mounts.extend(found.read_only.iter().map(part(PlanAccess::Read)));
            mounts.extend(found.open.iter().map(part(PlanAccess::Write)));
        }
    }
    mounts.sort_by_key(|mount| mount.path.components().count());
    mounts
}

/// What is closed in a directory of the system, which is mounted as a whole. It is read-only, so that nothing in it moves.
fn masks_in_system<'a>(
    plan: &mut PlanBuilder,
    paths: impl Iterator<Item = &'a Path>,
) -> Result<(), PlanError> {
    for path in paths {
        plan.push(&PlanOp::Beneath { target: c"." });
        plan.push(&PlanOp::Mask { path: &c_string(relative(path))? });
    }
    Ok(())
}

/// For a caller who is root: key stores below the visible part of /etc, and what of /proc only root may read.
fn system_masks(plan: &mut PlanBuilder, places: &[(&str, &[&str])]) -> Result<(), PlanError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    for (place, hidden) in places {
        plan.push(&PlanOp::Beneath { target: &c_string(Path::new(place))? });
        for path in hidden.iter().filter(|path| Path::new("/").join(place).join(path).exists()) {
            plan.push(&PlanOp::Mask { path: &c_string(Path::new(path))? });
        }
    }
    Ok(())
}

fn inside_root(
    plan: &mut PlanBuilder,
    root: &SurveyedRoot,
    replacements: &mut usize,
) -> Result<(), PlanError> {
    let target = c_string(relative(&root.path))?;
    plan.push(&PlanOp::Beneath { target: &target });
    for pin in &root.pins {
        plan.push(&PlanOp::Pin { path: &c_string(pin)? });
    }
    for path in root.protected.iter().chain(&root.held_links).chain(root.held_places()) {
        if root.rewritten.iter().all(|(rewritten, _)| rewritten != path) {
            plan.push(&PlanOp::Protect { path: &c_string(path)? });
        }
    }
    for (path, _) in &root.rewritten {
        let source = c_string(&replacement(*replacements))?;
        plan.push(&PlanOp::Replace { path: &c_string(path)?, source: &source });
        *replacements += 1;
    }
    for path in root.protected_links.iter().chain(&root.masks) {
        let path = c_string(path)?;
        plan.push(&match root.view {
            RootView::Direct => PlanOp::Mask { path: &path },
            RootView::Layered => PlanOp::MaskVisible { path: &path },
        });
    }
    Ok(())
}

fn whole_machine(
    plan: &mut PlanBuilder,
    spec: &SandboxSpec,
    hidden: &[PathBuf],
    frozen: &[PathBuf],
) -> Result<(), PlanError> {
    plan.push(&PlanOp::WholeMachine);
    plan.push(&PlanOp::Proc { target: c"/proc" });
    hide_stores(plan, spec, hidden, frozen)?;
    plan.push(&PlanOp::Hide { path: c"/sys/fs/cgroup" });
    Ok(())
}

fn hide_stores(
    plan: &mut PlanBuilder,
    spec: &SandboxSpec,
    hidden: &[PathBuf],
    frozen: &[PathBuf],
) -> Result<(), PlanError> {
    // A store that could be moved away with its parent would be found under its new name by the next call.
    plan.push(&PlanOp::Beneath { target: c"." });
    let stores = hidden.iter().filter(|path| path.exists());
    let parents: BTreeSet<&Path> = stores.chain(frozen).flat_map(|path| path.ancestors().skip(1)).collect();
    for parent in parents.into_iter().filter(|parent| parent.parent().is_some()) {
        plan.push(&PlanOp::Pin { path: &c_string(relative(parent))? });
    }
    // Mounted by itself it stays writable.
    if frozen.iter().any(|path| spec.home.starts_with(path)) {
        plan.push(&PlanOp::Pin { path: &c_string(relative(&spec.home))? });
    }
    for path in frozen {
        plan.push(&PlanOp::Freeze { path: &c_string(relative(path))? });
    }
    for path in hidden.iter().filter(|path| path.exists()) {
        plan.push(&PlanOp::Hide { path: &c_string(path)? });
    }
    Ok(())
}

fn limits(plan: &mut PlanBuilder, limits: &Limits, ground: &CompileContext<'_>) {
    // The kernel kills at the hard limit without saying why; at the soft one it sends SIGXCPU first.
    plan.limit(Resource::Cpu, limits.cpu_seconds, limits.cpu_seconds.saturating_add(5));
    // One byte, not none: a crash handler that is a pipe is started for a limit of zero, and not for one.
    plan.limit(Resource::Core, 1, 1);
    plan.limit(Resource::Sigpending, 1024, 1024);
    plan.limit(Resource::Nofile, limits.open_files, limits.open_files);
    plan.limit(Resource::Fsize, limits.file_size_bytes, limits.file_size_bytes);
    if !ground.cgroups.controls("memory") {
        // Data, not address space: runtimes reserve far more than they use.
        plan.limit(Resource::Data, limits.memory_bytes, limits.memory_bytes);
    }
    if !ground.cgroups.controls("pids") {
        let besides = crate::cgroup::OWN_PROCESSES.saturating_add(ground.tasks_besides);
        let processes = limits.processes.saturating_add(besides);
        plan.limit(Resource::Nproc, processes, processes);
    }
}

/// Landlock over the constructed root: read everything that is there, write the writable places.
fn landlock_rules(
    plan: &mut PlanBuilder,
    spec: &SandboxSpec,
    surveyed: &[SurveyedRoot],
    rights: LandlockRights,
) -> Result<(), PlanError> {
    plan.push(&PlanOp::LandlockRuleset { fs: rights.fs, net: 0, scoped: rights.scoped });
    if matches!(spec.view, HostView::WholeMachine { .. }) {
        plan.push(&PlanOp::LandlockAllow { path: c"/", access: rights.fs });
        return Ok(());
    }
    plan.push(&PlanOp::LandlockAllow { path: c"/", access: rights.read() });
    plan.push(&PlanOp::LandlockAllow { path: c"/dev", access: rights.devices() });
    for path in [c"/tmp", c"/dev/shm", c"/var/tmp"] {
        plan.push(&PlanOp::LandlockAllow { path, access: rights.write() });
    }
    plan.push(&PlanOp::LandlockAllow { path: &c_string(Path::new(HOME_INSIDE))?, access: rights.write() });
    let writable = spec.writable_roots().map(|root| root.path.as_path());
    let is_named = |path: &Path| spec.roots.iter().any(|known| known.path.as_path() == path);
    let extra = surveyed.iter().map(|root| root.path.as_path()).filter(|path| !is_named(path));
    let workspace_writable = spec.roots.first().is_some_and(|root| root.access == Access::Write);
    for path in writable.chain(extra.filter(|_| workspace_writable)).collect::<BTreeSet<_>>() {
        plan.push(&PlanOp::LandlockAllow { path: &c_string(path)?, access: rights.write() });
    }
    reachable_sockets(plan, spec, rights)
}

fn reachable_sockets(
    plan: &mut PlanBuilder,
    spec: &SandboxSpec,
    rights: LandlockRights,
) -> Result<(), PlanError> {
    for path in &spec.shown {
        plan.push(&PlanOp::LandlockAllow { path: &c_string(path)?, access: rights.reach() });
    }
    Ok(())
}

/// Landlock over the host's own tree: nothing is readable that is not named.
fn host_rules(plan: &mut PlanBuilder, spec: &SandboxSpec, rights: LandlockRights) -> Result<(), PlanError> {
    let net = if spec.net == NetMode::None { rights.net } else { 0 };
    plan.push(&PlanOp::LandlockRuleset { fs: rights.fs, net, scoped: rights.scoped });
    let file_rights = rights.read() & !landlock_directory_only();
    for entry in system_root::entries(Path::new("/")).map_err(PlanError::System)? {
        let (path, access) = match &entry {
            SystemEntry::Directory(path) => (path, rights.read()),
            SystemEntry::File(path) => (path, file_rights),
            SystemEntry::Link(..) => continue,
        };
        plan.push(&PlanOp::LandlockAllow { path: &c_string(&Path::new("/").join(path))?, access });
    }
    for name in ["passwd", "group", "hosts", "nsswitch.conf", "hostname"] {
        let path = Path::new("/etc").join(name);
        if path.exists() {
            plan.push(&PlanOp::LandlockAllow { path: &c_string(&path)?, access: file_rights });
        }
    }
    plan.push(&PlanOp::LandlockAllow { path: c"/proc", access: rights.read() });
    host_devices(plan, rights)?;
    plan.push(&PlanOp::LandlockAllow { path: &c_string(&spec.home)?, access: rights.write() });
    for path in &spec.toolchains {
        plan.push(&PlanOp::LandlockAllow { path: &c_string(path)?, access: rights.read() });
    }
    reachable_sockets(plan, spec, rights)?;
    for root in &spec.roots {
        let access = match (root.access, root.path.as_path().is_dir()) {
            (Access::None, _) => continue,
            (Access::Read, true) => rights.read(),
            (Access::Read, false) => file_rights,
            (Access::Write, true) => rights.write(),
            (Access::Write, false) => rights.write() & !landlock_directory_only(),
        };
        plan.push(&PlanOp::LandlockAllow { path: &c_string(root.path.as_path())?, access });
    }
    Ok(())
}

fn host_devices(plan: &mut PlanBuilder, rights: LandlockRights) -> Result<(), PlanError> {
    let access = rights.devices() & !landlock_directory_only();
    for (source, _) in DEVICES {
        plan.push(&PlanOp::LandlockAllow { path: source, access });
    }
    plan.push(&PlanOp::LandlockAllow { path: c"/dev/ptmx", access });
    plan.push(&PlanOp::LandlockAllow { path: c"/dev/pts", access: rights.devices() });
    Ok(())
}

/// Rights that the kernel refuses on anything but a directory.
fn landlock_directory_only() -> u64 {
    const READ_DIR: u64 = 1 << 3;
    const REMOVE_AND_MAKE: u64 = 0b1_1111_1111 << 4;
    const REFER: u64 = 1 << 13;
    READ_DIR | REMOVE_AND_MAKE | REFER
}

/// The kernel's number of a resource that this crate limits.
fn number_of(resource: Resource) -> libc::__rlimit_resource_t {
    match resource {
        Resource::Cpu => libc::RLIMIT_CPU,
        Resource::Core => libc::RLIMIT_CORE,
        Resource::Sigpending => libc::RLIMIT_SIGPENDING,
        Resource::Nofile => libc::RLIMIT_NOFILE,
        Resource::Fsize => libc::RLIMIT_FSIZE,
        Resource::Nproc => libc::RLIMIT_NPROC,
        _ => libc::RLIMIT_DATA,
    }
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn c_string(path: &Path) -> Result<CString, PlanError> {
    c_text(path)
}

/// What a link says may lead upwards.
fn c_text(path: &Path) -> Result<CString, PlanError> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_nul| PlanError::Nul(path.to_owned()))
}

fn as_str(text: &CStr) -> &str {
    text.to_str().unwrap_or_default()
}
