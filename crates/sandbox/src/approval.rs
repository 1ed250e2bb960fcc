//! Files that an approval is bound to, and the command that was approved with them.
//!
//! Between the last check of a file and the time when a command opens it, another process can put another file in its place.
//! So the bytes that were checked are kept in a sealed copy, and the kernel asks here about each file that the command opens
//! (`SECCOMP_RET_USER_NOTIF`): an interpreter that opens an approved file gets a descriptor of the copy.
//!
//! Mounting the copy over the file would not do. A rename of any directory above it moves the mount away, and a rename over the
//! file from another mount namespace removes the mount (docs/adr/0059-approved-files.md).

mod calls;
mod listener;

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use ringfence_types::ByteString;
use rustix::fs::{MemfdFlags, OFlags};
use rustix::io::Errno;

use crate::control_socket;
use crate::spec::SandboxCommand;

pub(crate) use calls::filter;
pub(crate) use listener::serve;

/// The files of one approved command, as they were when they were checked.
#[derive(Debug, Default)]
pub struct ApprovedFiles {
    files: Vec<ApprovedFile>,
    /// A directory that was renamed is still the one that the command was approved in.
    directories: Vec<KnownDirectory>,
}

#[derive(Debug)]
pub(crate) struct ApprovedFile {
    /// The name in the command, and the name without links.
    names: Vec<PathBuf>,
    content: OwnedFd,
    length: u64,
    place: FilePlace,
}

/// Who can change the file that a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePlace {
    /// Commands can, in a writable root.
    Writable,
    /// No command can. Only the name is in a writable root, as a link.
    ReadOnly,
}

#[derive(Debug)]
struct KnownDirectory {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// The program that an approved command begins with.
#[derive(Debug)]
pub(crate) enum ApprovedProgram<'a> {
    /// With what execve(2) would be called with.
    Copy { file: &'a ApprovedFile, name: ByteString },
    /// It cannot be replaced where it is. Programs look for what belongs to them beside the file that runs.
    InPlace(ByteString),
}

impl<'a> ApprovedProgram<'a> {
    fn new(file: &'a ApprovedFile, name: ByteString) -> Self {
        match (file.place, file.names.last()) {
            (FilePlace::ReadOnly, Some(real)) => Self::InPlace(ByteString::from(real.as_path())),
            _ => Self::Copy { file, name },
        }
    }

    pub(crate) fn name(&self) -> &ByteString {
        match self {
            Self::Copy { name, .. } | Self::InPlace(name) => name,
        }
    }

    pub(crate) fn copy(&self) -> Option<BorrowedFd<'a>> {
        match self {
            Self::Copy { file, .. } => Some(file.content.as_fd()),
            Self::InPlace(_) => None,
        }
    }

    /// How long the copy is, where there is one.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Copy { file, .. } => file.length,
            Self::InPlace(_) => 0,
        }
    }
}

impl ApprovedFiles {
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Keeps `bytes` as what is at `path`, which is absolute.
    pub fn add(&mut self, path: &Path, place: FilePlace, bytes: &[u8]) -> io::Result<()> {
        let named = normal(path);
        let mut names = vec![named.clone()];
        names.extend(fs::canonicalize(path).ok().filter(|real| *real != named));
        names.iter().filter_map(|name| name.parent()).for_each(|parent| self.remember(parent));
        let label = named.file_name().unwrap_or_default().to_string_lossy();
        let content = sealed(&label, bytes)?;
        self.files.push(ApprovedFile { names, content, length: bytes.len() as u64, place });
        Ok(())
    }

    /// Remembers which directory has this name now.
    pub fn remember(&mut self, directory: &Path) {
        let Ok(metadata) = fs::metadata(directory) else { return };
        let (device, inode) = (metadata.dev(), metadata.ino());
        self.directories.push(KnownDirectory { path: normal(directory), device, inode });
    }

    /// The copy of the program that `command` begins with, where that program was approved.
    pub(crate) fn program(&self, command: &SandboxCommand) -> Option<ApprovedProgram<'_>> {
        let name = command.argv.first()?;
        if name.as_slice().contains(&b'/') {
            let file = self.at(&normal(&command.cwd.join(name.as_path())))?;
            return Some(ApprovedProgram::new(file, name.clone()));
        }
        let path = command.env.iter().find(|(key, _)| key.as_slice() == b"PATH").map(|(_, value)| value)?;
        let directories = std::env::split_paths(path.as_path().as_os_str());
        directories.filter(|directory| directory.is_absolute()).find_map(|directory| {
            let place = directory.join(name.as_path());
            let behind_link = || self.at(&fs::canonicalize(&place).ok()?);
            let file = self.at(&normal(&place)).or_else(behind_link)?;
            Some(ApprovedProgram::new(file, ByteString::from(place.as_path())))
        })
    }

    fn at(&self, path: &Path) -> Option<&ApprovedFile> {
        self.files.iter().find(|file| file.is_named(path))
    }

    /// The name that a directory had when the command was approved; the one that it has now where it was not known.
    fn name_of(&self, directory: &Path) -> io::Result<PathBuf> {
        let metadata = fs::metadata(directory)?;
        let same = |known: &&KnownDirectory| known.device == metadata.dev() && known.inode == metadata.ino();
        match self.directories.iter().find(same) {
            Some(known) => Ok(known.path.clone()),
            None => fs::read_link(directory),
        }
    }
}

impl ApprovedFile {
    fn is_named(&self, path: &Path) -> bool {
        self.names.iter().any(|name| name == path)
    }

    fn is_beneath(&self, path: &Path) -> bool {
        self.names.iter().any(|name| name.starts_with(path))
    }

    /// A descriptor with an offset of its own.
    fn reopen(&self) -> io::Result<File> {
        File::open(format!("/proc/self/fd/{}", self.content.as_raw_fd()))
    }

    /// Whether the same bytes are at `path` now.
    fn is_still_at(&self, path: &Path) -> io::Result<bool> {
        // A FIFO in its place must not make us wait.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let file = File::options().read(true).custom_flags(flags).open(path)?;
        if !file.metadata()?.is_file() {
            return Ok(false);
        }
        let mut now = Vec::new();
        file.take(self.length.saturating_add(1)).read_to_end(&mut now)?;
        let mut approved = vec![0; usize::try_from(self.length).unwrap_or_default()];
        self.reopen()?.read_exact_at(&mut approved, 0)?;
        Ok(now == approved)
    }
}

/// KERNEL: before 6.3 there is no flag that says that the copy may be executed, and it may.
fn sealed(label: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    const EXECUTABLE: MemfdFlags = MemfdFlags::from_bits_retain(0x10);
    // The kernel takes 249 bytes.
    let label = label.get(..label.floor_char_boundary(64)).unwrap_or_default();
    let sealed = match control_socket::sealed_with(EXECUTABLE, label, bytes) {
        Err(Errno::INVAL) => control_socket::sealed(label, bytes),
        answer => answer,
    };
    Ok(sealed?)
}

/// Without `.` and `..`, by the name alone.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(normal.pop()),
            other => normal.push(other),
        }
    }
    normal
}

/// Starts to answer what the kernel asks about the files of one command, until all of its processes have ended.
pub(crate) fn begin(listener: OwnedFd, approved: Arc<ApprovedFiles>) -> io::Result<()> {
    let work = move || serve(listener, &approved);
    std::thread::Builder::new().name("approved-files".to_owned()).spawn(work).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(argv: &[&str], cwd: &Path, path: &str) -> SandboxCommand {
        SandboxCommand {
            argv: argv.iter().map(|word| ByteString::from(*word)).collect(),
            env: vec![(ByteString::from("PATH"), ByteString::from(path))],
            cwd: cwd.to_owned(),
            approved: None,
        }
    }

    #[test]
    fn the_program_of_a_command_is_found_by_name_by_path_and_through_links() {
        let place = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(place.path()).unwrap();
        fs::create_dir(root.join("bin")).unwrap();
        fs::write(root.join("bin/tool"), "approved").unwrap();
        std::os::unix::fs::symlink("bin/tool", root.join("link")).unwrap();
        let mut approved = ApprovedFiles::default();
        approved.add(&root.join("./link"), FilePlace::Writable, b"approved").unwrap();
        let bin = root.join("bin").to_str().unwrap().to_owned();
        for argv in ["./link", "bin/../bin/tool", "tool"] {
            assert!(approved.program(&command(&[argv], &root, &bin)).is_some(), "{argv}");
        }
        for argv in ["./other", "other", "bin/other"] {
            assert!(approved.program(&command(&[argv], &root, &bin)).is_none(), "{argv}");
        }
        let file = approved.at(&root.join("bin/tool")).unwrap();
        assert!(file.is_still_at(&root.join("link")).unwrap());
        fs::write(root.join("bin/tool"), "approved and more").unwrap();
        assert!(!file.is_still_at(&root.join("link")).unwrap());
    }

    #[test]
    fn a_directory_keeps_the_name_that_it_was_approved_with() {
        let place = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(place.path()).unwrap();
        fs::create_dir(root.join("a")).unwrap();
        let mut approved = ApprovedFiles::default();
        approved.remember(&root.join("a"));
        fs::rename(root.join("a"), root.join("b")).unwrap();
        assert_eq!(approved.name_of(&root.join("b")).unwrap(), root.join("a"));
    }
}
