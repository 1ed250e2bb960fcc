//! A machine as a table: what the judge would find on a Debian host with a workspace `/w` full of traps.

use std::path::{Component, Path, PathBuf};

use ringfence_authz::{HostEntry, HostFacts, PathKind};
use ringfence_types::EntryKind;

pub(crate) const WORKSPACE: &str = "/w";
pub(crate) const HOME: &str = "/home/u";

#[derive(Debug)]
pub(crate) struct Machine;

impl HostFacts for Machine {
    fn program(&self, name: &[u8], cwd: &Path) -> Option<PathBuf> {
        let name = std::str::from_utf8(name).ok().filter(|name| !name.contains('\0'))?;
        if name.contains('/') {
            let real = real_path(&cwd.join(name));
            return is_program(&real).then_some(real);
        }
        ["/usr/local/bin", "/usr/bin", "/usr/sbin"]
            .iter()
            .map(|directory| real_path(&Path::new(directory).join(name)))
            .find(|real| is_program(real))
    }

    fn real_path(&self, path: &Path) -> PathBuf {
        real_path(path)
    }

    fn kind(&self, path: &Path) -> PathKind {
        let real = real_path(path);
        let is = |list: &[&str]| list.iter().any(|known| Path::new(known) == real);
        if is(DIRECTORIES) || DIRECTORIES.iter().any(|known| Path::new(known).starts_with(&real)) {
            PathKind::Directory
        } else if is(FILES) || is_program(&real) {
            PathKind::File
        } else if is(DEVICES) {
            PathKind::Other
        } else {
            PathKind::Missing
        }
    }

    fn entries(&self, dir: &Path, most: usize) -> Option<Vec<HostEntry>> {
        let real = real_path(dir);
        let mut entries: Vec<HostEntry> = Vec::new();
        let links = LINKS.iter().map(|(link, _)| (*link, EntryKind::Link));
        let files = FILES.iter().chain(PROGRAMS).map(|file| (*file, EntryKind::File));
        let directories = DIRECTORIES.iter().map(|directory| (*directory, EntryKind::Directory));
        for (path, kind) in links.chain(files).chain(directories) {
            let Ok(below) = Path::new(path).strip_prefix(&real) else { continue };
            let mut parts = below.components();
            let Some(Component::Normal(name)) = parts.next() else { continue };
            let kind = if parts.next().is_some() { EntryKind::Directory } else { kind };
            if !entries.iter().any(|known| known.name == name) {
                entries.push(HostEntry { name: name.to_owned(), kind });
            }
        }
        (entries.len() <= most).then_some(entries)
    }

    fn git_programs(&self, dir: &Path) -> Vec<String> {
        let hostile = real_path(dir).starts_with("/w/hostile");
        let settings: &[&str] = if hostile { &["core.fsmonitor", "diff.z.command"] } else { &[] };
        settings.iter().map(|name| (*name).to_owned()).collect()
    }
}

/// As the kernel walks: links first, then `..`. It does not look at what is longer than a path can be.
fn real_path(path: &Path) -> PathBuf {
    if path.as_os_str().len() > 4096 {
        return path.to_owned();
    }
    let mut left: Vec<Component<'_>> = path.components().rev().collect();
    let mut real = PathBuf::from("/");
    let mut links = 0;
    while let Some(component) = left.pop() {
        match component {
            Component::ParentDir => {
                real.pop();
            }
            Component::Normal(name) => real.push(name),
            Component::RootDir => real = PathBuf::from("/"),
            Component::CurDir | Component::Prefix(_) => {}
        }
        let link = LINKS.iter().find(|(from, _)| Path::new(from) == real);
        if let (Some((_, to)), true) = (link, links < 40) {
            links += 1;
            real.pop();
            left.extend(Path::new(to).components().rev());
        }
    }
    real
}

fn is_program(real: &Path) -> bool {
    let name = real.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let system =
        real.parent() == Some(Path::new("/usr/bin")) && SYSTEM.split_whitespace().any(|known| known == name);
    system || PROGRAMS.iter().any(|known| Path::new(known) == real)
}

pub(crate) const LINKS: &[(&str, &str)] = &[
    ("/bin", "usr/bin"),
    ("/sbin", "usr/sbin"),
    ("/lib64", "usr/lib64"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/fd", "/proc/self/fd"),
    ("/proc/self", "4242"),
    ("/proc/4242/root", "/"),
    ("/proc/4242/cwd", "/w"),
    ("/proc/1/root", "/"),
    ("/usr/bin/sh", "dash"),
    ("/usr/bin/rbash", "bash"),
    ("/usr/bin/python", "python3.11"),
    ("/usr/bin/python3", "python3.11"),
    ("/usr/bin/awk", "mawk"),
    ("/usr/bin/nc", "nc.openbsd"),
    ("/usr/bin/netcat", "nc.openbsd"),
    ("/usr/bin/vi", "vim.basic"),
    ("/usr/bin/vim", "vim.basic"),
    ("/usr/bin/pager", "less"),
    ("/w/link-to-shadow", "/etc/shadow"),
    ("/w/link-to-env", ".env"),
    ("/w/link-in", "src/main.rs"),
    ("/w/link-home", "/home/u/.ssh"),
    ("/w/link-sub", "sub/deep"),
    ("/w/linkdir", "/etc"),
    ("/w/linkdeep", "/etc/ssl"),
    ("/w/dangling", "/etc/newfile"),
    ("/w/mygit", "/usr/bin/git"),
    ("/w/tools/ls", "/usr/bin/rm"),
    ("/w/tools/git", "/usr/bin/git"),
    ("/w/sub/deep/link-up", "/w/sub"),
];

pub(crate) const DIRECTORIES: &[&str] = &[
    "/etc/ssl",
    "/home/u/.ssh",
    "/proc/4242/fd",
    "/proc/1",
    "/tmp",
    "/w/.git/hooks",
    "/w/.github/workflows",
    "/w/bin",
    "/w/docs",
    "/w/hostile/.git",
    "/w/hostile/inner",
    "/w/src",
    "/w/sub/deep",
    "/w/tests",
    "/w/tools",
    "/w2",
    "/usr/lib64",
    "/usr/sbin",
    "/usr/local/bin",
];

pub(crate) const FILES: &[&str] = &[
    "/etc/passwd",
    "/etc/shadow",
    "/home/u/.npmrc",
    "/home/u/.ssh/id_rsa",
    "/proc/4242/environ",
    "/proc/4242/fd/0",
    "/proc/4242/fd/1",
    "/proc/4242/fd/2",
    "/tmp/x",
    "/w/-n",
    "/w/..foo",
    "/w/.env",
    "/w/.env.example",
    "/w/.env.local",
    "/w/.git/HEAD",
    "/w/.git/config",
    "/w/.github/workflows/ci.yml",
    "/w/CLAUDE.md",
    "/w/Cargo.toml",
    "/w/Makefile",
    "/w/README.md",
    "/w/a",
    "/w/b",
    "/w/credentials.json",
    "/w/docs/guide.md",
    "/w/docs/secret-management.md",
    "/w/f",
    "/w/hostile/.git/config",
    "/w/hostile/f",
    "/w/id_rsa",
    "/w/package.json",
    "/w/password.txt",
    "/w/secrets.txt",
    "/w/server.key",
    "/w/certs/server.pem",
    "/w/server.pem",
    "/w/src/lib.rs",
    "/w/src/main.rs",
    "/w/src/password_reset.rs",
    "/w/src/x.rs",
    "/w/sub/.env",
    "/w/sub/.env.example",
    "/w/sub/file.txt",
    "/w/tests/a.rs",
    "/w/x",
    "/w2/x",
];

const DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/sda", "/dev/mem", "/dev/kmsg", "/dev/pts/0"];

/// Programs outside the system's directory, most of them an agent's.
pub(crate) const PROGRAMS: &[&str] = &[
    "/home/u/bin/git",
    "/opt/x/git",
    "/tmp/bash",
    "/tmp/git",
    "/tmp/ws/git",
    "/tmp/x",
    "/usr/lib/git-core/git-push",
    "/usr/lib/git-core/git-status",
    "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
    "/usr/lib64/ld-linux-x86-64.so.2",
    "/usr/sbin/chroot",
    "/var/tmp/ls",
    "/w/bash",
    "/w/bin/git",
    "/w/bin/ls",
    "/w/bin/python",
    "/w/bin/sh",
    "/w/cat",
    "/w/evil.sh",
    "/w/git",
    "/w/ls",
    "/w/python",
    "/w/script.sh",
];

/// What `/usr/bin` has.
const SYSTEM: &str = "
    [ 7z apt apt-get at awk base64 basename bash bat batch bc brew bun bundle busybox bzip2 camp cargo cat chattr chgrp chmod
    chown chrt cmake cmp code column comm convert cp cpio crontab csh csplit ctags curl cut dash date dd deno df diff dig
    dir dirname docker doas dpkg du ed egrep emacs entr env ex expand expect fakeroot false fd fest ffmpeg fgrep file find
    firejail fish flock fmt fold free ftp gawk gcc gdb getent gh git go gpg gradle grep gs gzip head hexdump host hostname
    http hyperfine id info install ionice ip java join jq julia just kill killall ksh less ln locale locate ls ltrace lua
    lynx make man mawk mkdir mkfifo mknod mktemp more mount mv mvn mysql nano nc.openbsd ncat nice ninja nl nmap node nohup
    npm npx nsenter od openssl pandoc parallel passwd paste patch perf perl php ping pip pip3 pkexec pkill pnpm podman
    poetry printenv printf proot ps psql pwd pwsh python3.11 rclone readlink realpath redis-cli rename rev rg rm rmdir rsync
    ruby runuser rustc scp screen script sed seq setarch setfacl setpriv setsid sftp sha256sum shred shuf sleep socat sort
    split sqlite3 ssh ssh-agent sshfs stat stdbuf strace strings su sudo systemctl systemd-run tac tail tar taskset tclsh
    tcsh tee telnet terraform test time timeout tmux top touch toybox tr tree true truncate umount uname uniq unlink unshare
    unzip uptime uv valgrind vim.basic watch wc wget whereis which who whoami xargs xdg-open xsltproc xxd yarn yes zcat
    zgrep zip zsh";
