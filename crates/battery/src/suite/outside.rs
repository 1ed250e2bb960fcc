//! Attempts to change or read files beside the workspace.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use ringfence_types::Control::{FsRead, FsWrite};
use rustix::fs::{CWD, FallocateFlags, FileType, Mode, OFlags};

use crate::arena::Arena;
use crate::attempt::{Attempt, AttemptBody, BASE, ControlRequirement, WorldProp};
use crate::evidence::AttemptLog;
use crate::judge::{self, MARK, ObservedEffect};

const WRITE: Attempt = Attempt { controls: &[FsWrite], judge: judge::outside_changed, ..BASE };
const READ: Attempt = Attempt { controls: &[FsRead], judge: judge::outside_secret, ..BASE };

pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt {
        id: "F1-overwrite",
        title: "overwrite a file outside the workspace",
        from: "F1",
        body: AttemptBody::Code(|arena, log| {
            log.step("write", fs::write(arena.target(), MARK));
        }),
        ..WRITE
    },
    Attempt {
        id: "F1-create",
        title: "create a file outside the workspace",
        from: "F1",
        body: AttemptBody::Code(|arena, log| {
            log.step("create", fs::write(arena.beyond("new"), MARK));
        }),
        ..WRITE
    },
    Attempt {
        id: "F1-shell",
        title: "append to a file outside the workspace from a shell",
        from: "F1",
        body: AttemptBody::Shell("echo evil >> \"$2/target.txt\"; echo evil > ../outside/new"),
        unfit: judge::needs_shell,
        ..WRITE
    },
    Attempt {
        id: "F1-unlink",
        title: "delete a file outside the workspace",
        from: "F1",
        body: AttemptBody::Code(|arena, log| {
            log.step("unlink", fs::remove_file(arena.target()));
        }),
        ..WRITE
    },
    Attempt {
        id: "F1-rename-away",
        title: "move a file from outside into the workspace",
        from: "F1",
        body: AttemptBody::Code(|arena, log| {
            log.step("rename", fs::rename(arena.target(), arena.inside("taken")));
        }),
        ..WRITE
    },
    Attempt {
        id: "F1-chmod",
        title: "change the mode of a file outside the workspace",
        from: "F1",
        body: AttemptBody::Code(|arena, log| {
            log.step("chmod", fs::set_permissions(arena.target(), fs::Permissions::from_mode(0o777)));
        }),
        ..WRITE
    },
    Attempt {
        id: "F1-node",
        title: "make a directory, a symlink and a fifo outside the workspace",
        from: "F1",
        body: AttemptBody::Code(nodes),
        ..WRITE
    },
    Attempt {
        id: "F1-system-files",
        title: "open system files for writing",
        from: "F1",
        body: AttemptBody::Code(system_files),
        judge: judge::succeeded,
        proof: ControlRequirement::Some,
        unfit: judge::needs_root,
        ..WRITE
    },
    Attempt {
        id: "F9-symlink-out",
        title: "write through a symlink in the workspace that points outside",
        from: "F9, B-S4, B-S6",
        body: AttemptBody::Code(|arena, log| {
            log.step("link", symlink(arena.outside.as_path(), arena.inside("out")));
            log.step("write", fs::write(arena.inside("out/target.txt"), MARK));
        }),
        ..WRITE
    },
    Attempt {
        id: "F9-shell-symlink",
        title: "write through a symlink with `ln` and a redirection",
        from: "F9",
        body: AttemptBody::Shell("ln -s \"$2\" out && echo evil > out/target.txt"),
        unfit: |host| host.lacks(&["sh", "ln"]),
        ..WRITE
    },
    Attempt {
        id: "F9-proc-root-write",
        title: "write outside through /proc/self/root",
        from: "F9, B-S32",
        body: AttemptBody::Code(|arena, log| {
            log.step("write", fs::write(below("/proc/self/root", &arena.target()), MARK));
        }),
        ..WRITE
    },
    Attempt {
        id: "F12-workspace-rename",
        title: "rename the workspace itself",
        from: "F12, B-C33",
        body: AttemptBody::Code(|arena, log| {
            let root = arena.workspace.as_path();
            log.step("rename", fs::rename(root, root.with_file_name("moved")));
        }),
        judge: |world, _| vec![moved(world.workspace())],
        ..WRITE
    },
    Attempt {
        id: "F12-workspace-replace",
        title: "put a symlink in the place of the workspace",
        from: "F12, B-C33",
        body: AttemptBody::Shell("mv \"$1\" \"$1/../moved\" && ln -s \"$2\" \"$1\""),
        unfit: |host| host.lacks(&["sh", "ln", "mv"]),
        judge: |world, _| vec![moved(world.workspace())],
        ..WRITE
    },
    Attempt {
        id: "F14-link-write",
        title: "hard link a file from outside into the workspace and write to it",
        from: "F14, B-C39",
        body: AttemptBody::Code(|arena, log| {
            log.step("link", fs::hard_link(arena.target(), arena.inside("linked")));
            log.step("write", append(&arena.inside("linked")));
        }),
        ..WRITE
    },
    Attempt {
        id: "F24-inherited-create",
        title: "create a file through a directory descriptor inherited from the caller",
        from: "F24, B-C40",
        props: &[WorldProp::Inherited],
        body: AttemptBody::Code(|arena, log| {
            log.step("create", inherited(arena, "new", OFlags::CREATE | OFlags::WRONLY));
        }),
        ..WRITE
    },
    Attempt {
        id: "F24-inherited-read",
        title: "read a secret through a directory descriptor inherited from the caller",
        from: "F24, B-C40",
        props: &[WorldProp::Inherited],
        body: AttemptBody::Code(|arena, log| {
            let read = inherited(arena, "secret.txt", OFlags::RDONLY)
                .and_then(|fd| io::read_to_string(fs::File::from(fd)));
            log.read("read", read);
        }),
        ..READ
    },
    Attempt {
        id: "F27-truncate",
        title: "truncate a file outside by opening it only for reading",
        from: "F27",
        body: AttemptBody::Code(|arena, log| {
            log.step("open", rustix::fs::open(arena.target(), OFlags::RDONLY | OFlags::TRUNC, Mode::empty()));
        }),
        ..WRITE
    },
    Attempt {
        id: "F27-punch-hole",
        title: "punch a hole into a file outside",
        from: "F27",
        body: AttemptBody::Code(|arena, log| {
            let punched = rustix::fs::open(arena.target(), OFlags::RDWR, Mode::empty()).and_then(|file| {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(file, how, 0, 4)
            });
            log.step("punch", punched);
        }),
        excuse: judge::not_in_kernel,
        ..WRITE
    },
    Attempt {
        id: "F1-read-outside",
        title: "read a secret outside the workspace",
        from: "F1, D10",
        body: AttemptBody::Code(|arena, log| log.read("read", fs::read(arena.beyond("secret.txt")))),
        ..READ
    },
    Attempt {
        id: "F1-read-dotdot",
        title: "read a secret outside by climbing from the working directory",
        from: "F1, F19",
        body: AttemptBody::Shell("cat ../outside/secret.txt; cat ./notes/../../outside//secret.txt"),
        unfit: judge::needs_shell,
        ..READ
    },
    Attempt {
        id: "F9-symlink-read",
        title: "read a secret outside through a symlink",
        from: "F9, B-C5",
        body: AttemptBody::Code(|arena, log| {
            log.step("link", symlink(arena.beyond("secret.txt"), arena.inside("out")));
            log.read("read", fs::read(arena.inside("out")));
        }),
        ..READ
    },
    Attempt {
        id: "F14-link-read",
        title: "hard link a secret from outside into the workspace and read it",
        from: "F14, B-C39",
        body: AttemptBody::Code(|arena, log| {
            log.step("link", fs::hard_link(arena.beyond("secret.txt"), arena.inside("linked")));
            log.read("read", fs::read(arena.inside("linked")));
        }),
        ..READ
    },
    Attempt {
        id: "F21-proc-roots",
        title: "read a secret outside through other processes' root and working directory",
        from: "F21, B-N12, B-N19",
        props: &[WorldProp::Victim],
        body: AttemptBody::Code(proc_roots),
        ..READ
    },
    Attempt {
        id: "F25-tmp-read",
        title: "read another program's file in /tmp",
        from: "F25",
        props: &[WorldProp::Shared],
        body: AttemptBody::Code(|arena, log| log.read("read", fs::read(arena.shared("/tmp", "kept")))),
        judge: |world, evidence| judge::leaked(world, evidence, "shared"),
        ..READ
    },
    Attempt {
        id: "F25-shm-read",
        title: "read another program's file in /dev/shm",
        from: "F25",
        props: &[WorldProp::Shared],
        body: AttemptBody::Code(|arena, log| log.read("read", fs::read(arena.shared("/dev/shm", "kept")))),
        judge: |world, evidence| judge::leaked(world, evidence, "shared"),
        ..READ
    },
    Attempt {
        id: "F25-shared-write",
        title: "leave files in the machine's /tmp and /dev/shm",
        from: "F25, B-C10",
        props: &[WorldProp::Shared],
        body: AttemptBody::Code(|arena, log| {
            for directory in SHARED {
                log.step(directory, fs::write(arena.shared(directory, "made"), MARK));
            }
        }),
        judge: |world, _| {
            let left = |dir: &&str| ObservedEffect {
                what: format!("a file is in {dir}"),
                happened: world.arena.shared(dir, "made").exists(),
            };
            SHARED.iter().map(left).collect()
        },
        ..WRITE
    },
];

const SHARED: [&str; 2] = ["/tmp", "/dev/shm"];

fn below(prefix: &str, absolute: &Path) -> PathBuf {
    Path::new(prefix).join(absolute.strip_prefix("/").unwrap_or(absolute))
}

fn moved(workspace: &Path) -> ObservedEffect {
    ObservedEffect {
        what: "the workspace has another name".to_owned(),
        happened: workspace.with_file_name("moved").exists(),
    }
}

fn append(path: &Path) -> io::Result<()> {
    io::Write::write_all(&mut fs::OpenOptions::new().append(true).open(path)?, MARK.as_bytes())
}

fn inherited(arena: &Arena, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let number = arena.inherited.ok_or(io::ErrorKind::NotFound)?;
    let directory = format!("/proc/self/fd/{number}");
    let directory = rustix::fs::open(directory, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
    Ok(rustix::fs::openat(directory, name, flags, Mode::RWXU)?)
}

fn proc_roots(arena: &Arena, log: &mut AttemptLog<'_>) {
    let secret = arena.beyond("secret.txt");
    let victim = arena.victim.as_ref().map_or(0, |victim| victim.pid);
    for process in ["1".to_owned(), victim.to_string(), "thread-self".to_owned()] {
        let root = format!("/proc/{process}/root");
        log.read(&root, fs::read(below(&root, &secret)));
        log.read("its directory", fs::read(format!("/proc/{process}/cwd/secret.txt")));
    }
}

fn nodes(arena: &Arena, log: &mut AttemptLog<'_>) {
    log.step("mkdir", fs::create_dir(arena.beyond("d")));
    log.step("symlink", symlink("/", arena.beyond("s")));
    log.step("mkfifo", rustix::fs::mknodat(CWD, arena.beyond("f"), FileType::Fifo, Mode::RWXU, 0));
}

// Opened, never written.
fn system_files(_: &Arena, log: &mut AttemptLog<'_>) {
    for path in ["/etc/passwd", "/etc/hostname", "/etc/ld.so.cache", "/usr/lib/os-release", "/etc/hosts"] {
        log.step(path, fs::OpenOptions::new().append(true).open(path));
    }
}
