//! The files of /etc that are ours, and where they go.

use std::path::{Path, PathBuf};

use ringfence_types::NetMode;

use crate::netns;
use crate::plan_compiler::PlanError;
use crate::spec::{HOME_INSIDE, SandboxSpec, SkeletonFile};
use crate::system_root;

/// Who is there, what names mean, and what the caller lays in.
pub(crate) fn files(spec: &SandboxSpec) -> Vec<SkeletonFile> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let (passwd, group) = system_root::accounts(uid, gid, HOME_INSIDE);
    let etc = |name: &str, content: Vec<u8>| SkeletonFile { path: Path::new("/etc").join(name), content };
    let mut files = vec![
        etc("passwd", passwd.into_bytes()),
        etc("group", group.into_bytes()),
        etc("hosts", b"127.0.0.1 localhost\n::1 localhost\n127.0.1.1 ringfence\n".to_vec()),
        etc("hostname", b"ringfence\n".to_vec()),
        etc("nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n".to_vec()),
    ];
    match spec.net {
        NetMode::None => {}
        NetMode::Filtered => files.push(etc("resolv.conf", netns::RESOLV_CONF.to_vec())),
        // A copy: the original is often a link into /run, which is never visible.
        NetMode::Full => {
            files.push(etc("resolv.conf", std::fs::read("/etc/resolv.conf").unwrap_or_default()));
        }
    }
    files.extend(spec.files.iter().cloned());
    files
}

/// Where a file of ours goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EtcTarget {
    /// Into a directory that is ours.
    Free,
    /// Over this file, which is in a directory of the host: nothing may be made there.
    Over(PathBuf),
}

/// The file that is covered is the one that the path leads to: what else leads there shows the new content too.
pub(crate) fn place(path: &Path) -> Result<EtcTarget, PlanError> {
    if !system_root::is_in_system_directory(path) {
        return Ok(EtcTarget::Free);
    }
    let nothing = || PlanError::NothingThere(path.to_owned());
    let found = path.canonicalize().map_err(|_missing| nothing())?;
    let covers = found.is_file() && system_root::is_in_system_directory(&found);
    covers.then_some(EtcTarget::Over(found)).ok_or_else(nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_made_in_a_directory_of_the_host() {
        assert_eq!(place(Path::new("/etc/gitconfig")).unwrap(), EtcTarget::Free);
        assert_eq!(place(Path::new("/etc/ringfence/ca.pem")).unwrap(), EtcTarget::Free);
        assert_eq!(place(Path::new("/etc/os-release")).unwrap(), EtcTarget::Free, "a file of its own");
        let there = Path::new("/usr/bin/env").canonicalize().unwrap();
        assert_eq!(place(Path::new("/usr/bin/env")).unwrap(), EtcTarget::Over(there));
        for nothing in ["/usr/share/nothing-here", "/etc/ssl/nothing-here", "/etc/ssl/certs", "/usr/bin"] {
            assert!(matches!(place(Path::new(nothing)), Err(PlanError::NothingThere(_))), "{nothing}");
        }
    }
}
