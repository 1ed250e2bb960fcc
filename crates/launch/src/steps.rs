//! One function per step, in the order in which they run. See `Step`.

use core::ffi::CStr;

use ringfence_launch::plan::{Access, HIDDEN_DIRECTORY, HIDDEN_FILE, Identity, Op, Plan};
use ringfence_launch::step::Step;

use crate::sys::{self, Errno, NO_DEVICES, NO_EXECUTE, NO_SETUID, READ_ONLY, Reach};
use crate::{Failure, is_init, network};

/// Closes everything but the control socket, which is standard input, and the control groups.
pub(crate) fn close_inherited(keep: &[i32]) -> Result<(), Failure> {
    let failed = Failure::at(Step::CloseFds);
    let mut next = 1_u32;
    let mut last_kept = -1;
    // The kernel hands out descriptors in ascending order, so `keep` is sorted; anything else is refused.
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

pub(crate) fn enter_cgroups(groups: &[i32]) -> Result<(), Failure> {
    for fd in groups {
        sys::write(*fd, b"0").map_err(Failure::at(Step::Cgroup))?;
        sys::close(*fd);
    }
    Ok(())
}

pub(crate) fn enter_namespaces(namespaces: u64, uid: u64, gid: u64) -> Result<(), Failure> {
    // A session of its own: a signal to the caller's process group does not reach the sandbox by itself. PID 1 of a
    // container leads one already.
    if !is_init() {
        sys::set_session().map_err(Failure::at(Step::Namespaces))?;
    }
    let outside = sys::own_ids();
    if namespaces == 0 {
        return Ok(());
    }
    sys::unshare(namespaces).map_err(Failure::at(Step::Namespaces))?;
    if namespaces & libc::CLONE_NEWUSER as u64 != 0 {
        map_ids((uid, gid), outside).map_err(Failure::at(Step::IdMaps))?;
        forbid_nested().map_err(Failure::at(Step::NoNestedNamespaces))?;
    }
    Ok(())
}

/// One user and one group, those of this process: what is written inside is theirs outside, every other id is nobody.
fn map_ids(inside: (u64, u64), outside: (u64, u64)) -> Result<(), Errno> {
    write_file(c"/proc/self/setgroups", b"deny")?;
    write_file(c"/proc/self/uid_map", mapping(inside.0, outside.0).as_c_str()?.to_bytes())?;
    write_file(c"/proc/self/gid_map", mapping(inside.1, outside.1).as_c_str()?.to_bytes())
}

fn mapping(inside: u64, outside: u64) -> Text {
    let mut line = Text::default();
    line.decimal(inside);
    line.text(b" ");
    line.decimal(outside);
    line.text(b" 1");
    line
}

/// KERNEL: the limits belong to this user namespace; without capabilities nothing inside can raise them again. The
/// second leaves half of the user's machine-wide allowance to the host.
fn forbid_nested() -> Result<(), Errno> {
    write_file(c"/proc/sys/user/max_user_namespaces", b"0")?;
    write_file(c"/proc/sys/user/max_inotify_instances", b"64")
}

fn write_file(path: &CStr, content: &[u8]) -> Result<(), Errno> {
    let fd = sys::open(libc::AT_FDCWD, path, libc::O_WRONLY | libc::O_CLOEXEC, 0)?;
    let answer = sys::write(fd, content);
    sys::close(fd);
    answer.map(drop)
}

// PRIVILEGE: all capabilities over the new namespaces (or none at all, where none were made).
/// Applies every operation of the plan up to and including the switch of the root.
pub(crate) fn build_root(plan: &Plan<'_>) -> Result<(), Failure> {
    let mut builder = Builder { beneath: -1, hidden: [-1; 2] };
    let mut operations = plan.operations();
    let mut index = 0;
    while let Ok(Some(op)) = operations.next_op() {
        builder.apply(&op).map_err(|errno| Failure { step: op.step(), operation: index, errno: errno.0 })?;
        index += 1;
    }
    Ok(())
}

struct Builder {
    /// The root that relative operations are resolved beneath.
    beneath: i32,
    /// The hidden file and the hidden directory, once they have been opened: there may be thousands to cover.
    hidden: [i32; 2],
}

impl Builder {
    fn apply(&mut self, op: &Op<'_>) -> Result<(), Errno> {
        match *op {
            Op::Hostname { name } => sys::set_hostname(name),
            Op::Loopback => sys::loopback_up(),
            Op::Netlink { protocol, messages } => network::send(protocol, messages),
            Op::NetNamespace => network::offer(),
            Op::Door { kind, address } => network::open_door(kind, address),
            Op::Stage => stage(),
            Op::WholeMachine => own_mounts().and_then(|()| sys::change_directory(c"/")),
            Op::Directory { path, mode } => sys::make_directory(path, mode as u32),
            Op::Symlink { path, target } => sys::symlink(target, path),
            Op::File { path, mode, content } => make_file(path, mode as u32, content),
            Op::Bind { source, target } => bind(source, target),
            Op::Seal => sys::set_attributes(
                libc::AT_FDCWD,
                c".",
                READ_ONLY | NO_SETUID | NO_DEVICES,
                Reach::Recursive,
            ),
            Op::Tmpfs { target, bytes, mode } => tmpfs(target, bytes, mode),
            Op::Device { source, target } => device(source, target),
            Op::Proc { target } => proc(target),
            Op::Devpts { target } => devpts(target),
            Op::ReadOnly { target } => sys::set_attributes(libc::AT_FDCWD, target, READ_ONLY, Reach::One),
            Op::Root { source, target, access, identity } => root(source, target, access, identity),
            Op::Beneath { target } => self.enter(target),
            Op::Pin { path } => self.rebind(path, 0, Reach::One),
            Op::Protect { path } => self.rebind(path, READ_ONLY, Reach::Recursive),
            Op::Freeze { path } => self.rebind(path, READ_ONLY, Reach::One),
            Op::Replace { path, source } => self.cover(path, source),
            Op::Mask { path } => self.mask(path),
            Op::Hide { path } => hide(path),
            Op::Pivot => pivot(),
            // Applied by `seal`, after the root is in place.
            Op::Rlimit { .. }
            | Op::LandlockRuleset { .. }
            | Op::LandlockAllow { .. }
            | Op::Seccomp { .. } => Ok(()),
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
    fn rebind(&self, path: &CStr, attributes: u64, reach: Reach) -> Result<(), Errno> {
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

    fn mask(&mut self, path: &CStr) -> Result<(), Errno> {
        let object = sys::open_beneath(self.beneath, path)?;
        let answer = sys::look_at(object)
            .and_then(|found| self.hidden(&found))
            .and_then(|hidden| cover_with(object, hidden));
        sys::close(object);
        answer
    }

    fn hidden(&mut self, like: &sys::Object) -> Result<i32, Errno> {
        let [file_slot, directory_slot] = &mut self.hidden;
        let (slot, path) =
            if like.directory { (directory_slot, HIDDEN_DIRECTORY) } else { (file_slot, HIDDEN_FILE) };
        if *slot < 0 {
            *slot = sys::open(libc::AT_FDCWD, path, libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC, 0)?;
        }
        Ok(*slot)
    }
}

fn rebind_descriptor(object: i32, attributes: u64, reach: Reach) -> Result<(), Errno> {
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

/// No mount made here reaches the host, and none made there later reaches us.
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
    let mut options = Text::default();
    options.text(b"mode=");
    options.octal(mode);
    options.text(b",size=");
    options.decimal(bytes);
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    sys::mount(c"tmpfs", target, c"tmpfs", flags, options.as_c_str()?)
}

fn device(source: &CStr, target: &CStr) -> Result<(), Errno> {
    make_file(target, 0o600, b"")?;
    sys::mount(source, target, c"", libc::MS_BIND, c"")?;
    sys::set_attributes(libc::AT_FDCWD, target, NO_SETUID | NO_EXECUTE, Reach::One)
}

/// Read-only: nothing inside tunes the kernel through it, also not as root (docs/threat-model.md).
fn proc(target: &CStr) -> Result<(), Errno> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_RDONLY;
    sys::mount(c"proc", target, c"proc", flags, c"")
}

fn devpts(target: &CStr) -> Result<(), Errno> {
    let flags = libc::MS_NOSUID | libc::MS_NOEXEC;
    sys::mount(c"devpts", target, c"devpts", flags, c"newinstance,ptmxmode=0666,mode=0600,max=64")
}

/// What is mounted is what was judged: opened without following a link, compared, and mounted by descriptor.
fn root(source: &CStr, target: &CStr, access: Access, identity: Identity) -> Result<(), Errno> {
    let object = sys::open_absolute(source)?;
    let answer = judged(object, identity).and_then(|()| match access {
        Access::System => overlay(object, target),
        Access::Read | Access::Write => attach_root(object, target, access),
    });
    sys::close(object);
    answer
}

fn judged(object: i32, identity: Identity) -> Result<(), Errno> {
    let found = sys::look_at(object)?;
    let same = found.device == identity.device && found.inode == identity.inode;
    if same { Ok(()) } else { Err(Errno(libc::ESTALE)) }
}

/// The layer below the directory is the empty one that hides directories: the kernel wants two where none is written.
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

/// By descriptors: a path could hold what is special in mount options, and could be swapped for a link.
fn mount_overlay([upper, lower]: [i32; 2], place: i32) -> Result<(), Errno> {
    let mut layers = Text::default();
    layers.text(b"lowerdir=");
    layers.descriptor(upper);
    layers.text(b":");
    layers.descriptor(lower);
    let mut target = Text::default();
    target.descriptor(place);
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_RDONLY;
    sys::mount(c"ringfence", target.as_c_str()?, c"overlay", flags, layers.as_c_str()?)
}

fn attach_root(object: i32, target: &CStr, access: Access) -> Result<(), Errno> {
    let attributes = match access {
        Access::Read | Access::System => READ_ONLY | NO_SETUID | NO_DEVICES,
        Access::Write => NO_SETUID | NO_DEVICES,
    };
    let tree = sys::clone_tree(object)?;
    let answer = sys::set_attributes(tree, c"", attributes, Reach::Recursive)
        .and_then(|()| opened(tree, access))
        .and_then(|()| attach(tree, target));
    sys::close(tree);
    answer
}

/// In a container a part is bound from what is around it, which we may have closed just before. What the host has closed stays so.
fn opened(tree: i32, access: Access) -> Result<(), Errno> {
    match access {
        Access::Read | Access::System => Ok(()),
        Access::Write => match sys::allow_writing(tree) {
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
        sys::mount(c"/dev/null", path, c"", libc::MS_BIND, c"")
    }
}

fn pivot() -> Result<(), Errno> {
    sys::pivot_root(c".", c".")?;
    sys::detach(c".")?;
    sys::change_directory(c"/")
}

/// A short text without an allocator.
struct Text {
    bytes: [u8; 64],
    length: usize,
}

impl Default for Text {
    fn default() -> Self {
        Self { bytes: [0; 64], length: 0 }
    }
}

impl Text {
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
