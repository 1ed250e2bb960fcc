//! One function per step, in the order in which they run. See `LaunchStep`.

use core::ffi::CStr;

use ringfence_launch::plan::{FileIdentity, HIDDEN_DIRECTORY, HIDDEN_FILE, MountAccess, Plan, PlanOp};
use ringfence_launch::step::LaunchStep;

use crate::sys::{self, Errno, MountRecursion, NO_DEVICES, NO_EXECUTE, NO_SETUID, READ_ONLY};
use crate::{LaunchFailure, descendants, is_init, network};

/// Closes everything except the control socket (standard input) and the control groups.
pub(crate) fn close_inherited(keep: &[i32]) -> Result<(), LaunchFailure> {
    let failed = LaunchFailure::at(LaunchStep::CloseFds);
    let mut next = 1_u32;
    let mut last_kept = -1;
    // The kernel returns descriptors in ascending order, so `keep` is sorted; any other order is refused.
    for fd in keep {
        if *fd <= last_kept {
            return Err(failed(Errno(libc::EBADF)));
        }
        let number = *fd as u32;
        sys::close_range(next, number.saturating_sub(1)).map_err(&failed)?;
        next = number + 1;
        last_kept = *fd;
    }
    sys::close_range(next, u32::MAX).map_err(&failed)?;
    sys::default_signals();
    sys::block_signals(0).map_err(&failed)?;
    sys::set_umask(0);
    Ok(())
}

pub(crate) fn enter_cgroups(groups: &[i32]) -> Result<(), LaunchFailure> {
    for fd in groups {
        sys::write(*fd, b"0").map_err(LaunchFailure::at(LaunchStep::Cgroup))?;
        sys::close(*fd);
    }
    Ok(())
}

pub(crate) fn enter_namespaces(namespaces: u64, uid: u64, gid: u64) -> Result<(), LaunchFailure> {
    // A separate session: signals to the caller's process group do not reach the sandbox. PID 1 of a container already leads one.
    if !is_init() {
        sys::set_session().map_err(LaunchFailure::at(LaunchStep::Namespaces))?;
    }
    let (outside_uid, outside_gid) = sys::own_ids();
    if namespaces == 0 {
        return Ok(());
    }
    sys::unshare(namespaces).map_err(LaunchFailure::at(LaunchStep::Namespaces))?;
    if namespaces & libc::CLONE_NEWUSER as u64 != 0 {
        map_ids(&mapping(uid, outside_uid), &mapping(gid, outside_gid))
            .map_err(LaunchFailure::at(LaunchStep::IdMaps))?;
        forbid_nested().map_err(LaunchFailure::at(LaunchStep::NoNestedNamespaces))?;
    }
    Ok(())
}

/// Maps one user and one group, those of this process: files written inside belong to them outside, and every other id is unmapped.
fn map_ids(user: &FixedText, group: &FixedText) -> Result<(), Errno> {
    write_file(c"/proc/self/setgroups", b"deny")?;
    write_file(c"/proc/self/uid_map", user.as_c_str()?.to_bytes())?;
    write_file(c"/proc/self/gid_map", group.as_c_str()?.to_bytes())
}

fn mapping(inside: u64, outside: u64) -> FixedText {
    let mut line = FixedText::default();
    line.decimal(inside);
    line.text(b" ");
    line.decimal(outside);
    line.text(b" 1");
    line
}

/// KERNEL: the limits belong to this user namespace; without capabilities nothing inside can raise them again. The
/// other two leave half of the user's machine-wide allowance to the host.
fn forbid_nested() -> Result<(), Errno> {
    write_file(c"/proc/sys/user/max_user_namespaces", b"0")?;
    write_file(c"/proc/sys/user/max_inotify_instances", b"64")?;
    let mut watches = FixedText::default();
    watches.decimal(machine_watches().unwrap_or(FEW_WATCHES) / 2);
    write_file(c"/proc/sys/user/max_inotify_watches", watches.as_c_str()?.to_bytes())
}

/// What the kernel gives to each user of a small machine.
const FEW_WATCHES: u64 = 8192;

fn machine_watches() -> Option<u64> {
    let path = c"/proc/sys/fs/inotify/max_user_watches";
    let fd = sys::open(libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_CLOEXEC, 0).ok()?;
    let mut content = [0_u8; 32];
    let length = sys::read(fd, &mut content);
    sys::close(fd);
    let digits = content.get(..length.ok()?)?.trim_ascii();
    descendants::number(digits).and_then(|number| u64::try_from(number).ok())
}

pub(crate) fn write_file(path: &CStr, content: &[u8]) -> Result<(), Errno> {
    let fd = sys::open(libc::AT_FDCWD, path, libc::O_WRONLY | libc::O_CLOEXEC, 0)?;
    let answer = sys::write(fd, content);
    sys::close(fd);
    answer.map(drop)
}

// PRIVILEGE: all capabilities over the new namespaces (or none at all, where none were made).
/// Applies every operation of the plan up to and including the switch of the root.
pub(crate) fn build_root(plan: &Plan<'_>) -> Result<(), LaunchFailure> {
    let mut builder = RootBuilder { beneath: -1, hidden: [-1; 2] };
    let mut operations = plan.operations();
    let mut index = 0;
    while let Ok(Some(op)) = operations.next_op() {
        builder.apply(&op).map_err(|errno| LaunchFailure {
            step: op.step(),
            operation: index,
            errno: errno.0,
        })?;
        index += 1;
    }
    Ok(())
}

struct RootBuilder {
    /// Root beneath which relative operations resolve.
    beneath: i32,
    /// The hidden file and directory, opened once: there may be thousands of masks.
    hidden: [i32; 2],
}

impl RootBuilder {
    fn apply(&mut self, op: &PlanOp<'_>) -> Result<(), Errno> {
        match *op {
            PlanOp::Hostname { name } => sys::set_hostname(name),
            PlanOp::Loopback => sys::loopback_up().map(|()| network::small_buffers()),
            PlanOp::Netlink { protocol, messages } => network::send(protocol, messages),
            PlanOp::NetNamespace => network::offer(),
            PlanOp::Door { kind, address } => network::open_door(kind, address),
            PlanOp::Stage => stage(),
            PlanOp::WholeMachine => own_mounts().and_then(|()| sys::change_directory(c"/")),
            PlanOp::Directory { path, mode } => sys::make_directory(path, mode as u32),
            PlanOp::Symlink { path, target } => sys::symlink(target, path),
            PlanOp::File { path, mode, content } => make_file(path, mode as u32, content),
            PlanOp::Bind { source, target } => bind(source, target),
            PlanOp::Seal => sys::set_attributes(
                libc::AT_FDCWD,
                c".",
                READ_ONLY | NO_SETUID | NO_DEVICES,
                MountRecursion::Recursive,
            ),
            PlanOp::Tmpfs { target, bytes, mode } => tmpfs(target, bytes, mode),
            PlanOp::Device { source, target } => device(source, target),
            PlanOp::Proc { target } => proc(target),
            PlanOp::Devpts { target } => devpts(target),
            PlanOp::ReadOnly { target } => {
                sys::set_attributes(libc::AT_FDCWD, target, READ_ONLY, MountRecursion::One)
            }
            PlanOp::Root { source, target, access, identity } => root(source, target, access, identity),
            PlanOp::LayeredRoot { source, target, identity, upper, work } => {
                layered_root(source, target, identity, [upper, work])
            }
            PlanOp::Expect { path, identity } => expect(path, identity),
            PlanOp::Beneath { target } => self.enter(target),
            PlanOp::Pin { path } => self.rebind(path, 0, MountRecursion::One),
            PlanOp::Protect { path } => self.rebind(path, READ_ONLY, MountRecursion::Recursive),
            PlanOp::Freeze { path } => self.rebind(path, READ_ONLY, MountRecursion::One),
            PlanOp::Replace { path, source } => self.cover(path, source),
            PlanOp::Mask { path } => self.mask(sys::open_beneath(self.beneath, path)?),
            PlanOp::MaskVisible { path } => match sys::open_beneath(self.beneath, path) {
                Err(Errno(libc::ENOENT)) => Ok(()),
                object => self.mask(object?),
            },
            PlanOp::Hide { path } => hide(path),
            PlanOp::Pivot => pivot(),
            // Applied by `seal`, after the root is in place.
            PlanOp::Rlimit { .. }
            | PlanOp::LandlockRuleset { .. }
            | PlanOp::LandlockAllow { .. }
            | PlanOp::Seccomp { .. } => Ok(()),
        }
    }

    fn enter(&mut self, target: &CStr) -> Result<(), Errno> {
        if self.beneath >= 0 {
            sys::close(self.beneath);
        }
        self.beneath = sys::open_beneath(libc::AT_FDCWD, target)?;
        Ok(())
    }

    /// Mounts an object on itself: it can then be neither renamed nor unlinked, and with `READ_ONLY` not written.
    ///
    /// Source and target are the same descriptor, so there is nothing to swap between check and use.
    fn rebind(&self, path: &CStr, attributes: u64, reach: MountRecursion) -> Result<(), Errno> {
        let object = sys::open_beneath(self.beneath, path)?;
        let answer = rebind_descriptor(object, attributes, reach);
        sys::close(object);
        answer
    }

    fn cover(&self, path: &CStr, source: &CStr) -> Result<(), Errno> {
        let object = sys::open_beneath(self.beneath, path)?;
        let answer = cover_descriptor(object, source);
        sys::close(object);
        answer
    }

    /// Closes the descriptor.
    fn mask(&mut self, object: i32) -> Result<(), Errno> {
        let answer = sys::look_at(object)
            .and_then(|found| self.hidden(&found))
            .and_then(|hidden| cover_with(object, hidden));
        sys::close(object);
        answer
    }

    fn hidden(&mut self, like: &sys::OpenObject) -> Result<i32, Errno> {
        let [file_slot, directory_slot] = &mut self.hidden;
        let (slot, path) =
            if like.directory { (directory_slot, HIDDEN_DIRECTORY) } else { (file_slot, HIDDEN_FILE) };
        if *slot < 0 {
            *slot = sys::open(libc::AT_FDCWD, path, libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC, 0)?;
        }
        Ok(*slot)
    }
}

fn rebind_descriptor(object: i32, attributes: u64, reach: MountRecursion) -> Result<(), Errno> {
    let tree = sys::clone_tree(object)?;
    let answer = match attributes {
        0 => Ok(()),
        wanted => sys::set_attributes(tree, c"", wanted, reach),
    }
    .and_then(|()| sys::attach_tree(tree, object));
    sys::close(tree);
    answer
}

/// Mounts a file or directory of the (sealed, hence read-only) skeleton over `object`.
fn cover_descriptor(object: i32, source: &CStr) -> Result<(), Errno> {
    let source = sys::open(libc::AT_FDCWD, source, libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC, 0)?;
    let answer = cover_with(object, source);
    sys::close(source);
    answer
}

fn cover_with(object: i32, source: i32) -> Result<(), Errno> {
    let tree = sys::clone_tree(source)?;
    let answer = sys::attach_tree(tree, object);
    sys::close(tree);
    answer
}

/// WHY /sys: the new root needs a mount point on the host's tree that no source of a bind can lie beneath.
fn stage() -> Result<(), Errno> {
    own_mounts()?;
    sys::mount(c"ringfence", c"/sys", c"tmpfs", libc::MS_NOSUID | libc::MS_NODEV, c"mode=755,size=16m")?;
    sys::change_directory(c"/sys")
}

/// Makes mount propagation private in both directions.
fn own_mounts() -> Result<(), Errno> {
    sys::mount(c"none", c"/", c"", libc::MS_REC | libc::MS_PRIVATE, c"")
}

fn make_file(path: &CStr, mode: u32, content: &[u8]) -> Result<(), Errno> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    let fd = sys::open(libc::AT_FDCWD, path, flags, mode)?;
    let answer = write_all(fd, content);
    sys::close(fd);
    answer
}

fn write_all(fd: i32, mut content: &[u8]) -> Result<(), Errno> {
    while !content.is_empty() {
        let written = sys::write(fd, content)?;
        content = content.get(written..).unwrap_or_default();
    }
    Ok(())
}

fn bind(source: &CStr, target: &CStr) -> Result<(), Errno> {
    sys::mount(source, target, c"", libc::MS_BIND | libc::MS_REC, c"")
}

fn tmpfs(target: &CStr, bytes: u64, mode: u64) -> Result<(), Errno> {
    let mut options = FixedText::default();
    options.text(b"mode=");
    options.octal(mode);
    options.text(b",size=");
    options.decimal(bytes);
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    sys::mount(c"tmpfs", target, c"tmpfs", flags, options.as_c_str()?)
}

fn device(source: &CStr, target: &CStr) -> Result<(), Errno> {
    make_file(target, 0o600, b"")?;
    bind_device(source, target)
}

/// KERNEL: a device can be opened for writing on a read-only mount. Mode, owner, times and extended attributes cannot be
/// changed there: the node is the host's own, and root inside is its owner.
fn bind_device(source: &CStr, target: &CStr) -> Result<(), Errno> {
    sys::mount(source, target, c"", libc::MS_BIND, c"")?;
    let attributes = READ_ONLY | NO_SETUID | NO_EXECUTE;
    sys::set_attributes(libc::AT_FDCWD, target, attributes, MountRecursion::One)
}

/// Read-only, so that processes inside cannot tune the kernel, even as root (docs/threat-model.md).
fn proc(target: &CStr) -> Result<(), Errno> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_RDONLY;
    sys::mount(c"proc", target, c"proc", flags, c"")
}

fn devpts(target: &CStr) -> Result<(), Errno> {
    let flags = libc::MS_NOSUID | libc::MS_NOEXEC;
    sys::mount(c"devpts", target, c"devpts", flags, c"newinstance,ptmxmode=0666,mode=0600,max=64")
}

/// Mounts exactly the evaluated object: opened without following links, compared, and mounted by descriptor.
fn root(source: &CStr, target: &CStr, access: MountAccess, identity: FileIdentity) -> Result<(), Errno> {
    let object = sys::open_absolute(source)?;
    let answer = judged(object, identity).and_then(|()| match access {
        MountAccess::System => overlay(object, target),
        MountAccess::Read | MountAccess::Write => attach_root(object, target, access),
    });
    sys::close(object);
    answer
}

fn expect(path: &CStr, identity: FileIdentity) -> Result<(), Errno> {
    let object = sys::open_absolute(path)?;
    let answer = judged(object, identity);
    sys::close(object);
    answer
}

fn judged(object: i32, identity: FileIdentity) -> Result<(), Errno> {
    let found = sys::look_at(object)?;
    let same = found.device == identity.device && found.inode == identity.inode;
    if same { Ok(()) } else { Err(Errno(libc::ESTALE)) }
}

/// The lower layer is the empty directory used for masks: a read-only overlay needs two layers.
fn overlay(object: i32, target: &CStr) -> Result<(), Errno> {
    let empty = sys::open_beneath(libc::AT_FDCWD, HIDDEN_DIRECTORY)?;
    let answer = sys::open_beneath(libc::AT_FDCWD, target).and_then(|place| {
        let answer = mount_overlay([object, empty], place);
        sys::close(place);
        answer
    });
    sys::close(empty);
    answer
}

/// Uses descriptors: a path could contain special characters of mount options, or be swapped for a link.
fn mount_overlay([upper, lower]: [i32; 2], place: i32) -> Result<(), Errno> {
    let mut layers = FixedText::default();
    layers.text(b"lowerdir=");
    layers.descriptor(upper);
    layers.text(b":");
    layers.descriptor(lower);
    let mut target = FixedText::default();
    target.descriptor(place);
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_RDONLY;
    sys::mount(c"ringfence", target.as_c_str()?, c"overlay", flags, layers.as_c_str()?)
}

/// Mounts a copy-on-write view of exactly the evaluated object. No path inside leads to the directories of the layer: the kernel
/// keeps private copies of their mounts.
fn layered_root(
    source: &CStr,
    target: &CStr,
    identity: FileIdentity,
    [upper, work]: [&CStr; 2],
) -> Result<(), Errno> {
    with_open(sys::open_absolute(source), |lower| {
        judged(lower, identity)?;
        if !sys::look_at(lower)?.directory {
            return Err(Errno(libc::ENOTDIR));
        }
        with_open(sys::open_absolute(upper), |upper| {
            with_open(sys::open_absolute(work), |work| {
                with_open(sys::open_beneath(libc::AT_FDCWD, target), |place| {
                    mount_layer(LayerDescriptors { lower, upper, work }, place)
                })
            })
        })
    })
}

/// Closes the descriptor, whatever is done with it.
fn with_open(opened: Result<i32, Errno>, work: impl FnOnce(i32) -> Result<(), Errno>) -> Result<(), Errno> {
    let fd = opened?;
    let answer = work(fd);
    sys::close(fd);
    answer
}

#[derive(Clone, Copy)]
struct LayerDescriptors {
    lower: i32,
    upper: i32,
    work: i32,
}

/// KERNEL: `userxattr` is what a user namespace may have. `volatile` leaves out an fsync for each file that is copied up; who lands
/// the layer makes it durable. `uuid=off` leaves no attribute on the upper directory.
fn mount_layer(layer: LayerDescriptors, place: i32) -> Result<(), Errno> {
    let mut options = FixedText::default();
    options.text(b"lowerdir=");
    options.descriptor(layer.lower);
    options.text(b",upperdir=");
    options.descriptor(layer.upper);
    options.text(b",workdir=");
    options.descriptor(layer.work);
    options.text(b",userxattr,volatile,uuid=off");
    let mut target = FixedText::default();
    target.descriptor(place);
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    sys::mount(c"ringfence", target.as_c_str()?, c"overlay", flags, options.as_c_str()?)
}

fn attach_root(object: i32, target: &CStr, access: MountAccess) -> Result<(), Errno> {
    let attributes = match access {
        MountAccess::Read | MountAccess::System => READ_ONLY | NO_SETUID | NO_DEVICES,
        MountAccess::Write => NO_SETUID | NO_DEVICES,
    };
    let tree = sys::clone_tree(object)?;
    let answer = sys::set_attributes(tree, c"", attributes, MountRecursion::Recursive)
        .and_then(|()| opened(tree, access))
        .and_then(|()| attach(tree, target));
    sys::close(tree);
    answer
}

/// In a container a part is bound from its surroundings, which may just have been made read-only. Mounts that the host made
/// read-only stay so.
fn opened(tree: i32, access: MountAccess) -> Result<(), Errno> {
    match access {
        MountAccess::Read | MountAccess::System => Ok(()),
        MountAccess::Write => match sys::allow_writing(tree) {
            Err(Errno(libc::EPERM)) => Ok(()),
            answer => answer,
        },
    }
}

fn attach(tree: i32, target: &CStr) -> Result<(), Errno> {
    let place = sys::open_beneath(libc::AT_FDCWD, target)?;
    let answer = sys::attach_tree(tree, place);
    sys::close(place);
    answer
}

fn hide(path: &CStr) -> Result<(), Errno> {
    let object = sys::open(libc::AT_FDCWD, path, libc::O_PATH | libc::O_CLOEXEC, 0)?;
    let found = sys::look_at(object);
    sys::close(object);
    if found?.directory {
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_RDONLY;
        sys::mount(c"tmpfs", path, c"tmpfs", flags, c"mode=0,size=4k")
    } else {
        bind_device(c"/dev/null", path)
    }
}

fn pivot() -> Result<(), Errno> {
    sys::pivot_root(c".", c".")?;
    sys::detach(c".")?;
    sys::change_directory(c"/")
}

/// A short text without an allocator.
struct FixedText {
    bytes: [u8; 160],
    length: usize,
}

impl Default for FixedText {
    fn default() -> Self {
        Self { bytes: [0; 160], length: 0 }
    }
}

impl FixedText {
    fn text(&mut self, text: &[u8]) {
        for byte in text {
            self.byte(*byte);
        }
    }

    fn descriptor(&mut self, fd: i32) {
        self.text(b"/proc/self/fd/");
        self.decimal(fd as u64);
    }

    fn octal(&mut self, value: u64) {
        if value >= 8 {
            self.octal(value / 8);
        }
        self.byte(b'0' + (value % 8) as u8);
    }

    fn decimal(&mut self, value: u64) {
        if value >= 10 {
            self.decimal(value / 10);
        }
        self.byte(b'0' + (value % 10) as u8);
    }

    fn byte(&mut self, byte: u8) {
        if let Some(slot) = self.bytes.get_mut(self.length) {
            *slot = byte;
            self.length += 1;
        }
    }

    /// Fails when the buffer was too small: the NUL is then missing.
    fn as_c_str(&self) -> Result<&CStr, Errno> {
        CStr::from_bytes_until_nul(&self.bytes).map_err(|_no_nul| Errno(libc::EINVAL))
    }
}
