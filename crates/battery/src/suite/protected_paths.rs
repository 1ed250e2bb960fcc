//! Attempts to write, create or replace files that the host runs or obeys later.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use ringfence_types::Control::FsWrite;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};

use crate::arena::Arena;
use crate::attempt::{Attempt, AttemptBody, BASE, WorldProp};
use crate::evidence::AttemptLog;
use crate::judge::{self, MARK};
use crate::world::PROTECTED;

const EXISTING: Attempt = Attempt {
    controls: &[FsWrite],
    props: &[WorldProp::Protected],
    judge: judge::protected_changed,
    from: "F4",
    ..BASE
};

const ABSENT: Attempt = Attempt {
    controls: &[FsWrite],
    judge: judge::protected_appeared,
    from: "F5, B-C2, B-S3, CVE-2026-25725",
    ..BASE
};

pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt {
        id: "F4-write",
        title: "write to each protected file",
        body: AttemptBody::Code(|arena, log| each(arena, log, |path| fs::write(path, MARK))),
        ..EXISTING
    },
    Attempt {
        id: "F4-remove",
        title: "delete each protected file",
        body: AttemptBody::Code(|arena, log| each(arena, log, fs::remove_file)),
        ..EXISTING
    },
    Attempt {
        id: "F4-replace",
        title: "rename an own file over each protected file",
        body: AttemptBody::Code(|arena, log| {
            let own = arena.inside("own");
            each(arena, log, |path| fs::write(&own, MARK).and_then(|()| fs::rename(&own, path)));
        }),
        ..EXISTING
    },
    Attempt {
        id: "F4-replace-by-link",
        title: "rename a symlink over each protected file",
        from: "F4, F10, B-S5",
        body: AttemptBody::Code(|arena, log| {
            let own = arena.inside("own");
            each(arena, log, |path| symlink("notes/readme.md", &own).and_then(|()| fs::rename(&own, path)));
        }),
        ..EXISTING
    },
    Attempt {
        id: "F4-chmod",
        title: "make each protected file executable",
        body: AttemptBody::Code(|arena, log| {
            each(arena, log, |path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)));
        }),
        ..EXISTING
    },
    Attempt {
        id: "F4-hard-link-write",
        title: "hard link each protected file to an open name and write there",
        from: "F4, F14",
        body: AttemptBody::Code(|arena, log| {
            let own = arena.inside("own");
            each(arena, log, |path| {
                let _ = fs::remove_file(&own);
                fs::hard_link(path, &own).and_then(|()| fs::write(&own, MARK))
            });
        }),
        ..EXISTING
    },
    Attempt {
        id: "F4-truncate",
        title: "truncate each protected file by opening it only for reading",
        from: "F4, F27",
        body: AttemptBody::Code(|arena, log| {
            each(arena, log, |path| {
                Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::TRUNC, Mode::empty()).map(drop)?)
            });
        }),
        ..EXISTING
    },
    Attempt {
        id: "F4-reopen",
        title: "open each protected file for reading and again, through /proc/self/fd, for writing",
        from: "F4, F15",
        body: AttemptBody::Code(|arena, log| each(arena, log, reopen)),
        ..EXISTING
    },
    Attempt {
        id: "F14-protected-alias",
        title: "write to a second name of .git/config that existed before",
        from: "F4, F14, B-C39",
        props: &[WorldProp::ProtectedAlias],
        body: AttemptBody::Code(|arena, log| {
            log.step("write", fs::write(arena.inside("settings.txt"), MARK));
        }),
        judge: |world, _| judge::marked(world, &[".git/config"]),
        ..EXISTING
    },
    Attempt {
        id: "F11-protected-directories",
        title: "rename each protected directory and make a new one",
        from: "F4, F11",
        body: AttemptBody::Code(|arena, log| {
            each_directory(arena, log, |path| {
                fs::rename(path, path.with_extension("aside"))?;
                fs::create_dir(path)?;
                fs::write(path.join("planted"), MARK)
            });
        }),
        judge: |world, _| judge::planted(world, &DIRECTORIES),
        ..EXISTING
    },
    Attempt {
        id: "F19-spellings",
        title: "write to each protected file under another spelling",
        from: "F19",
        body: AttemptBody::Code(|arena, log| {
            each(arena, log, |path| fs::write(odd_spelling(path), MARK));
        }),
        ..EXISTING
    },
    Attempt {
        id: "F13-exchange",
        title: "exchange each protected file with an own one, atomically",
        from: "F13",
        excuse: judge::not_in_kernel,
        body: AttemptBody::Code(|arena, log| {
            let own = arena.inside("own");
            each(arena, log, |path| {
                fs::write(&own, MARK)?;
                Ok(rustix::fs::renameat_with(CWD, &own, CWD, path, RenameFlags::EXCHANGE)?)
            });
        }),
        ..EXISTING
    },
    Attempt {
        id: "F5-create",
        title: "create each protected file where there is none",
        body: AttemptBody::Code(|arena, log| each_absent(arena, log, |path| fs::write(path, MARK))),
        ..ABSENT
    },
    Attempt {
        id: "F5-rename-in",
        title: "rename an own file to each absent protected path",
        body: AttemptBody::Code(|arena, log| {
            let own = arena.inside("own");
            each_absent(arena, log, |path| fs::write(&own, MARK).and_then(|()| fs::rename(&own, path)));
        }),
        ..ABSENT
    },
    Attempt {
        id: "F5-hard-link",
        title: "hard link an own file to each absent protected path",
        body: AttemptBody::Code(|arena, log| {
            let own = arena.inside("notes/readme.md");
            each_absent(arena, log, |path| fs::hard_link(&own, path));
        }),
        ..ABSENT
    },
    Attempt {
        id: "F5-symlink",
        title: "make a symlink at each absent protected path",
        body: AttemptBody::Code(|arena, log| {
            let own = arena.inside("notes/readme.md");
            each_absent(arena, log, |path| symlink(&own, path));
        }),
        ..ABSENT
    },
    Attempt {
        id: "F5-unnamed",
        title: "give an unnamed file each absent protected path as its name",
        body: AttemptBody::Code(|arena, log| {
            each_absent(arena, log, |path| name_unnamed(&arena.inside("notes"), path))
        }),
        excuse: judge::not_in_kernel,
        ..ABSENT
    },
    Attempt {
        id: "F5-directory-rename",
        title: "rename an own directory into the place of an absent protected one",
        body: AttemptBody::Code(|arena, log| {
            let own = arena.inside("own");
            each_directory(arena, log, |path| own_directory(&own).and_then(|()| fs::rename(&own, path)));
        }),
        judge: |world, _| judge::planted(world, &DIRECTORIES),
        ..ABSENT
    },
    Attempt {
        id: "F5-directory-symlink",
        title: "make a symlink to an own directory in the place of an absent protected one",
        body: AttemptBody::Code(|arena, log| {
            let own = arena.inside("own");
            each_directory(arena, log, |path| own_directory(&own).and_then(|()| symlink(&own, path)));
        }),
        judge: |world, _| judge::planted(world, &DIRECTORIES),
        ..ABSENT
    },
    Attempt {
        id: "F5-git-init",
        title: "make a repository with a hook where there is none",
        from: "F5, 5.3 codex",
        props: &[WorldProp::NoRepository],
        body: AttemptBody::Code(|arena, log| {
            for path in NEW_REPOSITORY {
                let path = arena.inside(path);
                let parent = path.parent().map_or(Ok(()), fs::create_dir_all);
                log.step("write", parent.and_then(|()| fs::write(path, MARK)));
            }
        }),
        judge: |world, _| judge::marked(world, &NEW_REPOSITORY),
        ..ABSENT
    },
    Attempt {
        id: "F20-fifo",
        title: "make a fifo at each absent protected path",
        from: "F20",
        body: AttemptBody::Code(|arena, log| {
            each_absent(arena, log, |path| {
                Ok(rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0)?)
            });
        }),
        ..ABSENT
    },
    Attempt {
        id: "F20-socket",
        title: "bind a socket at each absent protected path",
        from: "F20",
        body: AttemptBody::Code(|arena, log| {
            each_absent(arena, log, |path| UnixListener::bind(path).map(drop));
        }),
        ..ABSENT
    },
    Attempt {
        id: "F20-device",
        title: "make device nodes in the workspace",
        from: "F20, 2.6",
        unfit: judge::needs_root,
        body: AttemptBody::Code(|arena, log| {
            let zero = rustix::fs::makedev(1, 5);
            let (char_dev, block) = (arena.inside("char"), arena.inside("block"));
            log.step("char", rustix::fs::mknodat(CWD, char_dev, FileType::CharacterDevice, Mode::RWXU, zero));
            let unassigned = rustix::fs::makedev(7, 250);
            log.step("block", rustix::fs::mknodat(CWD, block, FileType::BlockDevice, Mode::RWXU, unassigned));
        }),
        judge: |world, _| judge::planted(world, &["char", "block"]),
        ..ABSENT
    },
];

fn each(arena: &Arena, log: &mut AttemptLog<'_>, act: impl Fn(PathBuf) -> io::Result<()>) {
    for path in PROTECTED {
        log.step(path, act(arena.inside(path)));
    }
}

fn each_absent(arena: &Arena, log: &mut AttemptLog<'_>, act: impl Fn(PathBuf) -> io::Result<()>) {
    for name in PROTECTED.iter().filter(|name| **name != ".git/config") {
        let path = arena.inside(name);
        let parent = path.parent().map_or(Ok(()), fs::create_dir_all);
        log.step(name, parent.and_then(|()| act(path)));
    }
}

/// The same file, with a doubled slash, a dot and a detour.
fn odd_spelling(path: PathBuf) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_owned();
    let parent = path.parent().unwrap_or(Path::new("/"));
    let parent_name = parent.file_name().unwrap_or_default();
    let mut odd = parent.join(".").join("..").join(parent_name).into_os_string();
    odd.push("//./");
    odd.push(name);
    odd.into()
}

fn name_unnamed(directory: &Path, path: PathBuf) -> io::Result<()> {
    let file = rustix::fs::open(directory, OFlags::TMPFILE | OFlags::WRONLY, Mode::RWXU)?;
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(CWD, link, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

const DIRECTORIES: [&str; 7] = [
    ".vscode/planted",
    ".idea/planted",
    ".claude/planted",
    ".codex/planted",
    ".agents/planted",
    ".cursor/planted",
    ".ringfence/planted",
];

const NEW_REPOSITORY: [&str; 2] = [".git/hooks/pre-commit", ".git/config"];

fn each_directory(arena: &Arena, log: &mut AttemptLog<'_>, act: impl Fn(&Path) -> io::Result<()>) {
    for name in DIRECTORIES {
        let planted = arena.inside(name);
        log.step(name, act(planted.parent().unwrap_or(&planted)));
    }
}

fn own_directory(own: &Path) -> io::Result<()> {
    fs::create_dir_all(own)?;
    fs::write(own.join("planted"), MARK)
}

fn reopen(path: PathBuf) -> io::Result<()> {
    let file = fs::File::open(path)?;
    fs::write(format!("/proc/self/fd/{}", file.as_raw_fd()), MARK)
}
