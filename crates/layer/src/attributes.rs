//! Extended attributes: those of overlayfs in an upper, and those that belong to an entry.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// With `userxattr`, and as real root without it.
const OVERLAY: [&[u8]; 2] = [b"user.overlay.", b"trusted.overlay."];
/// KERNEL: what a program inside sets as `user.overlay.x` is stored as `user.overlay.overlay.x`.
const ESCAPED: &[u8] = b"user.overlay.overlay.";
/// File capabilities: as dangerous as a set-user-id bit.
const CAPABILITIES: &[u8] = b"security.capability";
/// KERNEL: neither a list of names nor a value is longer.
const LONGEST: usize = 64 * 1024;

/// What overlayfs wrote on an entry of an upper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OverlayMarks {
    /// Nothing of the directory below is visible.
    pub(crate) opaque: bool,
    /// The entry was copied up.
    pub(crate) origin: bool,
    /// An attribute that the options of the view exclude: the entry does not have its own content.
    pub(crate) foreign: bool,
    pub(crate) privileged: bool,
}

impl OverlayMarks {
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        let mut marks = Self::default();
        for name in names(fd)? {
            if name == CAPABILITIES {
                marks.privileged = true;
            } else if name.starts_with(ESCAPED) {
                // It stays in the layer.
            } else if let Some(mark) = overlay_suffix(&name) {
                match mark {
                    // KERNEL: "x" says that the directory has whiteouts of another form.
                    b"opaque" => match value(fd, &name)?.as_deref() {
                        Some(b"y") => marks.opaque = true,
                        _ => marks.foreign = true,
                    },
                    b"origin" => marks.origin = true,
                    b"impure" | b"uuid" | b"nlink" | b"protattr" => {}
                    _ => marks.foreign = true,
                }
            }
        }
        Ok(marks)
    }
}

/// The attributes that land: those that belong to the entry. ATTACK: an attribute of overlayfs that a program inside made would
/// act in a later overlay that the host mounts over what landed, and hide or redirect its entries.
pub(crate) fn visible(fd: BorrowedFd<'_>) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Errno> {
    let mut found = BTreeMap::new();
    for name in names(fd)? {
        let lands = name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_");
        if lands
            && overlay_suffix(&name).is_none()
            && let Some(value) = value(fd, &name)?
        {
            found.insert(name, value);
        }
    }
    Ok(found)
}

pub(crate) fn set(fd: BorrowedFd<'_>, attributes: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<(), Errno> {
    for (name, value) in attributes {
        match rustix::fs::fsetxattr(fd, name.as_slice(), value, XattrFlags::empty()) {
            // The file system has none, or no room for them: the content counts.
            Ok(()) | Err(Errno::NOTSUP | Errno::PERM) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Removes what overlayfs wrote on a file.
pub(crate) fn strip(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    for name in names(fd)? {
        if overlay_suffix(&name).is_some() {
            match rustix::fs::fremovexattr(fd, name.as_slice()) {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(())
}

pub(crate) fn remove_opaque(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    for prefix in OVERLAY {
        match rustix::fs::fremovexattr(fd, [prefix, b"opaque"].concat().as_slice()) {
            Ok(()) | Err(Errno::NODATA | Errno::NOTSUP | Errno::PERM) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn overlay_suffix(name: &[u8]) -> Option<&[u8]> {
    OVERLAY.iter().find_map(|prefix| name.strip_prefix(*prefix))
}

fn names(fd: BorrowedFd<'_>) -> Result<Vec<Vec<u8>>, Errno> {
    let mut small = [0_u8; 1024];
    let listed = match rustix::fs::flistxattr(fd, &mut small[..]) {
        Ok(length) => small.get(..length).map(<[u8]>::to_vec),
        Err(Errno::RANGE) => {
            let mut large = vec![0_u8; LONGEST];
            let length = rustix::fs::flistxattr(fd, &mut large[..])?;
            large.truncate(length);
            Some(large)
        }
        Err(Errno::NOTSUP) => None,
        Err(errno) => return Err(errno),
    };
    let listed = listed.unwrap_or_default();
    Ok(listed.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
}

/// `None`: it is gone.
fn value(fd: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    let mut value = vec![0_u8; LONGEST];
    match rustix::fs::fgetxattr(fd, name, &mut value[..]) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        Err(Errno::NODATA) => Ok(None),
        Err(errno) => Err(errno),
    }
}
