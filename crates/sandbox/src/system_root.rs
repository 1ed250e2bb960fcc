//! The system runtime that a sandbox sees: what a dynamic program needs to start, and nothing that identifies the
//! machine's people or holds its keys.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Directories of programs and libraries. On a merged-/usr system most are links, which are made again. Of /nix and /gnu
/// what holds programs: beside it are the sockets of their daemons.
pub(crate) const SYSTEM_DIRECTORIES: &[&str] = &[
    "usr",
    "bin",
    "sbin",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "opt",
    "nix/store",
    "nix/var/nix/profiles",
    "gnu/store",
];

/// Whether what is at this canonical path is part of the read-only system, and so the same inside.
pub fn is_system(path: &Path) -> bool {
    let below = path.strip_prefix("/").unwrap_or(path);
    SYSTEM_DIRECTORIES.iter().any(|directory| below.starts_with(directory))
}

/// Of /etc: how names, time zones, certificates, shared libraries and tool defaults are found. Everything else,
/// and above all what only root may read, is absent rather than denied.
const ETC: &[&str] = &[
    "alternatives",
    "bash.bashrc",
    "debian_version",
    "fonts",
    "inputrc",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "maven",
    "mime.types",
    "os-release",
    "perl",
    "php",
    "pki",
    "profile",
    "profile.d",
    "protocols",
    "python3",
    "python3.11",
    "python3.12",
    "python3.13",
    "R",
    "services",
    "shells",
    "ssl",
    "terminfo",
    "timezone",
    "xdg",
];

/// Whether something of this comes from the host's /etc: all of it, one of its entries, or what is in one and not hidden anyway.
pub(crate) fn is_of_etc(path: &Path) -> bool {
    let Ok(below) = path.strip_prefix("/etc") else { return false };
    let is_hidden = ETC_HIDDEN.iter().any(|hidden| below.starts_with(hidden));
    let is_listed = |name: &std::ffi::OsStr| ETC.iter().any(|entry| name == *entry);
    !is_hidden && below.components().next().is_none_or(|first| is_listed(first.as_os_str()))
}

/// Whether this path is inside a directory that comes from the host whole.
pub(crate) fn is_in_system_directory(path: &Path) -> bool {
    let in_etc = |below: &Path| {
        let mut parts = below.components();
        let listed = parts.next().is_some_and(|name| ETC.iter().any(|entry| name.as_os_str() == *entry));
        listed && parts.next().is_some()
    };
    is_system(path) || path.strip_prefix("/etc").is_ok_and(in_etc)
}

/// Relative to /etc, below the entries of `ETC`: private key stores of some distributions.
pub(crate) const ETC_HIDDEN: &[&str] = &["ssl/private", "pki/tls/private", "pki/nssdb"];

/// Relative to /proc: what the kernel shows to root alone about the whole machine.
pub(crate) const PROC_HIDDEN: &[&str] =
    &["kpagecgroup", "kpagecount", "kpageflags", "slabinfo", "timer_list", "vmallocinfo"];

/// How one entry of the system gets into the new root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SystemEntry {
    Directory(PathBuf),
    File(PathBuf),
    Link(PathBuf, PathBuf),
}

/// What of the system exists on this machine, relative to `/`.
pub(crate) fn entries(host: &Path) -> io::Result<Vec<SystemEntry>> {
    let mut found = Vec::with_capacity(48);
    for name in SYSTEM_DIRECTORIES {
        found.extend(entry(host, Path::new(name))?);
    }
    for name in ETC {
        found.extend(entry(host, &Path::new("etc").join(name))?);
    }
    Ok(found)
}

fn entry(host: &Path, relative: &Path) -> io::Result<Option<SystemEntry>> {
    let path = host.join(relative);
    let metadata = match fs::symlink_metadata(&path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if metadata.is_symlink() {
        return linked(&path, relative);
    }
    Ok(match (metadata.is_dir(), metadata.is_file()) {
        (true, _) => Some(SystemEntry::Directory(relative.to_owned())),
        (_, true) => Some(SystemEntry::File(relative.to_owned())),
        _ => None,
    })
}

/// A link into the visible system is made again; one that leads elsewhere is left out.
fn linked(path: &Path, relative: &Path) -> io::Result<Option<SystemEntry>> {
    let target = fs::read_link(path)?;
    let absolute =
        relative.parent().map(|parent| Path::new("/").join(parent).join(&target)).unwrap_or_default();
    Ok(stays_visible(&absolute).then(|| SystemEntry::Link(relative.to_owned(), target)))
}

fn stays_visible(target: &Path) -> bool {
    let mut real = PathBuf::new();
    for part in target.components() {
        match part {
            std::path::Component::Normal(name) => real.push(name),
            std::path::Component::ParentDir => {
                real.pop();
            }
            _ => {}
        }
    }
    real.starts_with("etc") || SYSTEM_DIRECTORIES.iter().any(|directory| real.starts_with(directory))
}

/// The `passwd` and `group` files of a sandbox: `root`, the caller, `nobody`.
pub(crate) fn accounts(uid: u32, gid: u32, home: &str) -> (String, String) {
    let name = account_name(Path::new("/etc/passwd"), uid).unwrap_or_else(|| "agent".to_owned());
    let group = account_name(Path::new("/etc/group"), gid).unwrap_or_else(|| name.clone());
    let mut passwd = String::new();
    let mut groups = String::new();
    if uid != 0 {
        passwd.push_str("root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n");
    }
    if gid != 0 {
        groups.push_str("root:x:0:\n");
    }
    passwd.push_str(&format!("{name}:x:{uid}:{gid}:{name}:{home}:/bin/sh\n"));
    passwd.push_str("nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n");
    groups.push_str(&format!("{group}:x:{gid}:\nnogroup:x:65534:\n"));
    (passwd, groups)
}

/// How many tasks (threads included) the calling user has on this machine now.
pub(crate) fn tasks_of_caller() -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let uid = rustix::process::geteuid().as_raw();
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let own =
        processes.flatten().filter(|entry| entry.metadata().is_ok_and(|metadata| metadata.uid() == uid));
    own.map(|entry| fs::read_dir(entry.path().join("task")).map_or(0, |tasks| tasks.count() as u64)).sum()
}

fn account_name(file: &Path, id: u32) -> Option<String> {
    let content = fs::read(file).ok()?;
    content.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let name = fields.next()?;
        let found = std::str::from_utf8(fields.nth(1)?).ok()?.parse::<u32>().ok()?;
        (found == id).then(|| String::from_utf8_lossy(name).into_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_into_the_visible_system_are_kept() {
        assert!(stays_visible(Path::new("/etc/../usr/share/zoneinfo/UTC")));
        assert!(stays_visible(Path::new("/usr/lib/os-release")));
        assert!(!stays_visible(Path::new("/run/systemd/resolve/resolv.conf")));
        assert!(!stays_visible(Path::new("/etc/../root/.ssh")));
    }

    #[test]
    fn nothing_of_etc_that_holds_secrets_is_listed() {
        for secret in ["shadow", "gshadow", "sudoers", "ssh", "krb5.keytab", "machine-id", "passwd", "npmrc"]
        {
            assert!(!ETC.contains(&secret), "{secret}");
        }
    }

    #[test]
    fn accounts_name_the_caller_once() {
        let (passwd, _) = accounts(0, 0, "/home/ringfence");
        assert_eq!(passwd.lines().filter(|line| line.contains(":0:0:")).count(), 1);
        let (passwd, group) = accounts(4_000_000, 4_000_000, "/home/ringfence");
        assert!(passwd.contains("agent:x:4000000:4000000:"));
        assert!(group.contains(":x:4000000:"));
    }
}
