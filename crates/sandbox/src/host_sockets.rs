//! Unix sockets of the host in the directories that every sandbox shows read-only: the system and the toolchains.
//!
//! KERNEL: a read-only mount does not keep a socket from being connected to, and before Landlock ABI 9 no unprivileged
//! rule does. An overlay does: its sockets are other objects than those of the layer below. The directories are shown
//! through overlays wherever one can be mounted. Elsewhere the sockets that the kernel lists at the start are masked,
//! and the posture names the directory.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use ringfence_types::Backend;
use rustix::io::Errno;

use crate::spec::{HostView, SandboxSpec};
use crate::system_root::{self, SystemEntry};

/// Whether overlays are to be mounted. Found out by trying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlays {
    Used,
    Unused,
}

/// What a kernel without overlays, a file system that cannot be a layer, or a policy of the machine answers.
pub(crate) fn is_lasting(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::INVAL
            | Errno::NODEV
            | Errno::PERM
            | Errno::ACCESS
            | Errno::OPNOTSUPP
            | Errno::NOSYS
            | Errno::LOOP
    )
}

/// How the directories of the host that a sandbox shows are kept from serving it sockets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage {
    overlaid: Vec<PathBuf>,
    open: Vec<PathBuf>,
    masks: Vec<PathBuf>,
}

impl Coverage {
    pub(crate) fn look(spec: &SandboxSpec, overlays: Overlays) -> std::io::Result<Self> {
        if !matches!(spec.view, HostView::Constructed) {
            return Ok(Self::default());
        }
        let mount_points = mount_points_of_host();
        let overlays = if spec.backend == Backend::Native { overlays } else { Overlays::Unused };
        let can = |directory: &PathBuf| {
            overlays == Overlays::Used && !mount_points.iter().any(|point| is_below(point, directory))
        };
        let (overlaid, open): (Vec<PathBuf>, Vec<PathBuf>) = directories(spec)?.into_iter().partition(can);
        let mut masks = if open.is_empty() { Vec::new() } else { bound_sockets(&open) };
        // The survey covers those in roots.
        masks.retain(|socket| !spec.open_roots().any(|root| socket.starts_with(root)));
        Ok(Self { overlaid, open, masks })
    }

    pub(crate) fn is_overlaid(&self, directory: &Path) -> bool {
        self.overlaid.iter().any(|known| known == directory)
    }

    pub(crate) fn overlaid(&self) -> &[PathBuf] {
        &self.overlaid
    }

    /// Directories that are bound as they are.
    pub(crate) fn open(&self) -> &[PathBuf] {
        &self.open
    }

    /// Sockets in them that were there at the start.
    pub(crate) fn masks(&self) -> &[PathBuf] {
        &self.masks
    }
}

fn directories(spec: &SandboxSpec) -> std::io::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = spec.toolchains.iter().filter(|path| path.is_dir()).cloned().collect();
    for entry in system_root::entries(Path::new("/"))? {
        if let SystemEntry::Directory(path) = entry {
            found.push(Path::new("/").join(path));
        }
    }
    Ok(found)
}

/// KERNEL: what is under a mount of the host must not be seen by who may not unmount it, so a directory with mounts in
/// it cannot be a layer.
fn is_below(point: &Path, directory: &Path) -> bool {
    point != directory && point.starts_with(directory)
}

/// Where something is mounted on this machine.
pub(crate) fn mount_points_of_host() -> Vec<PathBuf> {
    mount_points(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

/// The fifth field of each line of `/proc/self/mountinfo`.
fn mount_points(mounts: &str) -> Vec<PathBuf> {
    mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(unescaped).collect()
}

/// The kernel writes a space, a tab, a line feed and a backslash as three octal digits.
fn unescaped(field: &str) -> PathBuf {
    let coded = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    PathBuf::from(coded.iter().fold(field.to_owned(), |text, (code, plain)| text.replace(code, plain)))
}

/// Sockets of this network namespace that are bound to an absolute path in one of `directories`.
fn bound_sockets(directories: &[PathBuf]) -> Vec<PathBuf> {
    let table = fs::read("/proc/net/unix").unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    let bound = table.lines().filter_map(bound_path).filter_map(|path| Path::new(path).canonicalize().ok());
    let mut found: Vec<PathBuf> = bound
        .filter(|path| directories.iter().any(|directory| path.starts_with(directory)))
        .filter(|path| fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()))
        .collect();
    found.sort();
    found.dedup();
    found
}

/// The eighth field, up to the end of the line; an abstract name begins with `@`.
fn bound_path(line: &str) -> Option<&str> {
    let start = line.find(" /")?;
    line.get(start + 1..)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_directory_with_a_mount_in_it_is_no_layer() {
        let mounts = "29 1 254:0 / / rw - ext4 /dev/vda rw\n\
                      31 29 0:27 / /usr/lib/wsl\\040drivers ro - 9p drivers ro\n\
                      32 29 0:28 / /opt rw - ext4 /dev/vdb rw\n";
        let points = mount_points(mounts);
        assert_eq!(points[1], Path::new("/usr/lib/wsl drivers"));
        let holds = |directory: &str| points.iter().any(|point| is_below(point, Path::new(directory)));
        assert!(holds("/usr") && !holds("/opt") && !holds("/usr/lib/wsl drivers"));
    }

    #[test]
    fn bound_sockets_are_found_by_their_paths() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let _serving = UnixListener::bind(place.join("a socket")).unwrap();
        fs::write(place.join("file"), "").unwrap();
        assert_eq!(bound_sockets(std::slice::from_ref(&place)), [place.join("a socket")]);
        assert!(bound_sockets(&[place.join("elsewhere")]).is_empty());
        assert_eq!(bound_path("0000: 00000002 00000000 00010000 0001 01 1234 @/tmp/abstract"), None);
    }
}
