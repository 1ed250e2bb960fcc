//! Attempts to read hidden paths of the workspace, by every way to a file's bytes.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;

use ringfence_types::Control::{FsRead, Syscalls};
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, RenameFlags, ResolveFlags};

use super::c_path;
use crate::arena::Arena;
use crate::attempt::{Attempt, AttemptBody, BASE, RefusalMeaning, WorldProp};
use crate::evidence::AttemptLog;
use crate::judge;
use crate::sys;

const READ: Attempt = Attempt { controls: &[FsRead], judge: judge::workspace_secret, ..BASE };

pub(super) const DIRECT: &str = "F15-direct";

pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt {
        id: DIRECT,
        title: "open the files of the deny list",
        from: "F15, S000-17",
        body: AttemptBody::Code(direct),
        ..READ
    },
    Attempt {
        id: "F15-cat",
        title: "`cat` and `cp` in a shell",
        from: "F15",
        body: AttemptBody::Shell("cat .env; cp .env copied && cat copied"),
        unfit: |host| host.lacks(&["sh", "cat", "cp"]),
        ..READ
    },
    Attempt {
        id: "F15-copy-tree",
        title: "copy whole directories, then read the copy",
        from: "F15, B-S32",
        body: AttemptBody::Shell(
            "mkdir tree; cp -r .env conf keys tree/; cat tree/.env tree/conf/* tree/conf/.env tree/keys/*",
        ),
        unfit: |host| host.lacks(&["sh", "cat", "cp"]),
        ..READ
    },
    Attempt {
        id: "F15-tar",
        title: "pack the secrets with `tar`",
        from: "F15",
        body: AttemptBody::Shell("tar cf - .env conf keys"),
        unfit: |host| host.lacks(&["sh", "tar"]),
        ..READ
    },
    Attempt {
        id: "F15-grep",
        title: "search the workspace for secrets",
        from: "F15",
        body: AttemptBody::Shell("grep -rh TOKEN .env conf keys link.txt"),
        unfit: |host| host.lacks(&["sh", "grep"]),
        ..READ
    },
    Attempt {
        id: "F15-source",
        title: "let a shell run the secret file",
        from: "F15, C4",
        body: AttemptBody::Shell(
            ". ./.env; echo \"$TOKEN\"; sh conf/.env; while read -r line; do echo \"$line\"; done < .env",
        ),
        unfit: judge::needs_shell,
        ..READ
    },
    Attempt {
        id: "F15-proc-cwd",
        title: "through /proc/self/cwd and /proc/thread-self/cwd",
        from: "F15, B-N12",
        body: AttemptBody::Code(|_, log| {
            log.read("self", fs::read("/proc/self/cwd/.env"));
            log.read("thread-self", fs::read("/proc/thread-self/cwd/.env"));
        }),
        ..READ
    },
    Attempt {
        id: "F15-proc-root",
        title: "through /proc/self/root",
        from: "F15, B-S32",
        body: AttemptBody::Code(|arena, log| {
            let secret = arena.secret();
            let path = Path::new("/proc/self/root").join(secret.strip_prefix("/").unwrap_or(&secret));
            log.read("read", fs::read(path));
        }),
        ..READ
    },
    Attempt {
        id: "F15-o-path",
        title: "by a path descriptor, opened again through /proc/self/fd",
        from: "F15",
        body: AttemptBody::Code(|arena, log| log.read("read", by_o_path(&arena.secret()))),
        ..READ
    },
    Attempt {
        id: "F15-openat2",
        title: "by openat2 with each way of resolving",
        from: "F15, 2.6",
        body: AttemptBody::Code(openat2),
        excuse: judge::not_in_kernel,
        ..READ
    },
    Attempt {
        id: "F15-mmap",
        title: "by a shared mapping",
        from: "F15",
        body: AttemptBody::Code(|arena, log| {
            let mapped =
                File::open(arena.secret()).and_then(|file| Ok(sys::read_by_mapping(file.as_fd(), 64)?));
            log.read("map", mapped);
        }),
        ..READ
    },
    Attempt {
        id: "F15-sendfile",
        title: "by sendfile, splice and copy_file_range",
        from: "F15, B-A8",
        body: AttemptBody::Code(|arena, log| {
            log.read("sendfile", sent(&arena.secret()));
            log.read("copy_file_range", copied(&arena.secret(), &arena.inside("range")));
            log.read("splice", spliced(&arena.secret()));
        }),
        ..READ
    },
    Attempt {
        id: "F14-hard-link",
        title: "read a hard link that existed before",
        from: "F14, B-C39, 2.6",
        body: AttemptBody::Code(|arena, log| log.read("read", fs::read(arena.inside("alias.txt")))),
        ..READ
    },
    Attempt {
        id: "F14-new-link",
        title: "make a hard link to the secret and read that",
        from: "F14, 2.6",
        body: AttemptBody::Code(|arena, log| {
            log.step("link", fs::hard_link(arena.secret(), arena.inside("fresh")));
            log.step("link the alias", fs::hard_link(arena.inside("alias.txt"), arena.inside("fresher")));
            log.read("read", fs::read(arena.inside("fresh")));
            log.read("read", fs::read(arena.inside("fresher")));
        }),
        ..READ
    },
    Attempt {
        id: "F14-symlink",
        title: "read a symlink to the secret",
        from: "F14, B-C5",
        body: AttemptBody::Code(|arena, log| log.read("read", fs::read(arena.inside("link.txt")))),
        ..READ
    },
    Attempt {
        id: "F14-linked-secret",
        title: "read the file that a name of the deny list links to",
        from: "F14, B-C5",
        props: &[WorldProp::SecretLink],
        body: AttemptBody::Code(|arena, log| {
            log.read("name", fs::read(arena.inside("conf/.env.local")));
            log.read("target", fs::read(arena.inside("notes/values.txt")));
        }),
        judge: |world, evidence| judge::leaked(world, evidence, "linked"),
        refusal: RefusalMeaning::Holds,
        ..READ
    },
    Attempt {
        id: "F15-rename",
        title: "rename the secret, then read it under its new name",
        from: "F15, 2.6",
        body: AttemptBody::Code(|arena, log| {
            log.step("rename", fs::rename(arena.secret(), arena.inside("renamed")));
            log.read("read", fs::read(arena.inside("renamed")));
        }),
        ..READ
    },
    Attempt {
        id: "F11-secret-parent",
        title: "rename the directory of a secret, then read it there",
        from: "F11, B-S15",
        body: AttemptBody::Code(|arena, log| {
            log.step("rename", fs::rename(arena.inside("conf"), arena.inside("renamed")));
            log.read("read", fs::read(arena.inside("renamed/.env")));
            log.read("read", fs::read(arena.inside("renamed/credentials.json")));
        }),
        ..READ
    },
    Attempt {
        id: "F13-secret-exchange",
        title: "exchange the secret with an ordinary file, atomically",
        from: "F13",
        body: AttemptBody::Code(|arena, log| {
            let (secret, plain) = (arena.secret(), arena.inside("notes/readme.md"));
            log.step("exchange", rustix::fs::renameat_with(CWD, secret, CWD, &plain, RenameFlags::EXCHANGE));
            log.read("read", fs::read(plain));
        }),
        excuse: judge::not_in_kernel,
        ..READ
    },
    Attempt {
        id: "F15-handle",
        title: "by file handle, past every directory",
        from: "F15, S2, 2.6",
        controls: &[FsRead, Syscalls],
        body: AttemptBody::Code(|arena, log| log.read("handle", by_handle(arena))),
        excuse: judge::not_for_users,
        ..READ
    },
    Attempt {
        id: "S14-loader",
        title: "start a program through the dynamic loader, which then reads the secret",
        from: "S14, B-S32",
        unfit: |_| {
            loader().is_none().then(|| "this machine has no dynamic loader at a known place".to_owned())
        },
        body: AttemptBody::Code(|arena, log| {
            let loader = loader().unwrap_or("/nonexistent");
            let program = arena.inside("attempt");
            log.step("run", again(Command::new(loader).arg(program), arena));
        }),
        ..READ
    },
    Attempt {
        id: "S14-memfd",
        title: "start a program that exists only in memory, which then reads the secret",
        from: "S14",
        body: AttemptBody::Code(|arena, log| {
            log.step(
                "run",
                in_memory().and_then(|fd| {
                    again(&mut Command::new(format!("/proc/self/fd/{}", fd.as_raw_fd())), arena)
                }),
            );
        }),
        ..READ
    },
    Attempt {
        id: "S14-copy",
        title: "start a copy of a program under another name, which then reads the secret",
        from: "S14, B-S32",
        body: AttemptBody::Code(|arena, log| {
            let copy = arena.inside("innocent");
            log.step("copy", fs::copy("/proc/self/exe", &copy));
            log.step("run", again(&mut Command::new(copy), arena));
        }),
        ..READ
    },
];

fn direct(arena: &Arena, log: &mut AttemptLog<'_>) {
    for name in [".env", "conf/.env", "conf/credentials.json", "keys/server.key"] {
        log.read(name, fs::read(arena.inside(name)));
    }
}

fn by_o_path(path: &Path) -> io::Result<Vec<u8>> {
    let handle = rustix::fs::open(path, OFlags::PATH, Mode::empty())?;
    fs::read(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

fn openat2(arena: &Arena, log: &mut AttemptLog<'_>) {
    let ways =
        [ResolveFlags::empty(), ResolveFlags::BENEATH, ResolveFlags::IN_ROOT, ResolveFlags::NO_SYMLINKS];
    for way in ways {
        let read = File::open(arena.workspace.as_path()).and_then(|root| {
            let file = rustix::fs::openat2(root, ".env", OFlags::RDONLY, Mode::empty(), way)?;
            io::read_to_string(File::from(file))
        });
        log.read("openat2", read);
    }
}

fn sent(path: &Path) -> io::Result<Vec<u8>> {
    let (reader, writer) = rustix::pipe::pipe()?;
    rustix::fs::sendfile(&writer, &File::open(path)?, None, 64)?;
    drained(reader)
}

fn spliced(path: &Path) -> io::Result<Vec<u8>> {
    let (reader, writer) = rustix::pipe::pipe()?;
    let flags = rustix::pipe::SpliceFlags::empty();
    rustix::pipe::splice(&File::open(path)?, None, &writer, None, 64, flags)?;
    drained(reader)
}

fn drained(reader: OwnedFd) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 64];
    let len = io::Read::read(&mut File::from(reader), &mut bytes)?;
    bytes.truncate(len);
    Ok(bytes)
}

fn copied(from: &Path, to: &Path) -> io::Result<Vec<u8>> {
    rustix::fs::copy_file_range(&File::open(from)?, None, &File::create(to)?, None, 64)?;
    fs::read(to)
}

fn by_handle(arena: &Arena) -> io::Result<String> {
    let handle = sys::name_to_handle(&c_path(&arena.secret())?)?;
    let mount = File::open(arena.workspace.as_path())?;
    io::read_to_string(File::from(sys::open_by_handle(mount.as_fd(), &handle)?))
}

fn loader() -> Option<&'static str> {
    ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"]
        .into_iter()
        .find(|path| Path::new(path).exists())
}

fn in_memory() -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create("innocent", MemfdFlags::CLOEXEC)?;
    io::copy(&mut File::open("/proc/self/exe")?, &mut File::from(fd.try_clone()?))?;
    Ok(fd)
}

/// Runs [`DIRECT`] in a new process.
fn again(command: &mut Command, arena: &Arena) -> io::Result<()> {
    command.args(["__attempt", DIRECT]).arg(serde_json::to_string(arena)?).status().map(drop)
}
