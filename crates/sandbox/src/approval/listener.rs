//! Answers what the kernel asks about the files of one approved command.

use std::ffi::{CString, c_int};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::calls::{FileUse, PathArgument, file_use};
use super::{ApprovedFile, ApprovedFiles, normal};
use crate::sys::{self, GivenDescriptor, Notification, NotificationAnswer};

/// The longest path that the kernel takes, with its zero.
const LONGEST_PATH: usize = 4096;

/// Programs that execute what is in a file that they open. A name may have a version behind it.
const INTERPRETERS: [&str; 41] = [
    "ash",
    "awk",
    "bash",
    "bun",
    "busybox",
    "cmake",
    "dash",
    "deno",
    "elixir",
    "escript",
    "expect",
    "fish",
    "gawk",
    "gmake",
    "guile",
    "java",
    "julia",
    "ksh",
    "lua",
    "luajit",
    "make",
    "mawk",
    "mksh",
    "node",
    "nodejs",
    "osascript",
    "perl",
    "php",
    "pwsh",
    "pypy",
    "python",
    "R",
    "Rscript",
    "ruby",
    "sh",
    "tclsh",
    "ts-node",
    "uv",
    "wish",
    "yash",
    "zsh",
];

enum FileAnswer<'a> {
    /// The call goes on as it is.
    Continue,
    Refuse(Errno),
    Give {
        file: &'a ApprovedFile,
        flags: u32,
    },
}

struct FileListener<'a> {
    socket: OwnedFd,
    approved: &'a ApprovedFiles,
    /// Whether each file was changed by the command itself. It then means the changed one.
    changed: Vec<bool>,
    memory: MemoryAccess,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MemoryAccess {
    Unknown,
    /// The memory of some process of the command was read, so one that cannot be read hides by itself.
    Proven,
}

pub(crate) fn serve(socket: OwnedFd, approved: &ApprovedFiles) {
    let changed = vec![false; approved.files.len()];
    let mut listener = FileListener { socket, approved, changed, memory: MemoryAccess::Unknown };
    while listener.wait() {
        listener.turn();
    }
}

impl<'a> FileListener<'a> {
    /// `false` once no process is left that could ask.
    fn wait(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        match rustix::event::poll(&mut fds, None) {
            Err(Errno::INTR) => true,
            Err(_) => false,
            Ok(_) => fds.iter().all(|fd| fd.revents().contains(PollFlags::IN)),
        }
    }

    fn turn(&mut self) {
        // A process that has ended does not wait for an answer.
        let Ok(asked) = sys::notification(self.socket.as_fd()) else { return };
        let answer = self.judge(&asked);
        let socket = self.socket.as_fd();
        let done = match answer {
            FileAnswer::Continue => sys::answer_notification(socket, &asked, NotificationAnswer::Continue),
            FileAnswer::Refuse(errno) => {
                sys::answer_notification(socket, &asked, NotificationAnswer::Errno(errno))
            }
            FileAnswer::Give { file, flags } => self.give(&asked, file, flags),
        };
        if let Err(errno) = done {
            tracing::debug!(%errno, pid = asked.pid, "cannot answer about an approved file");
        }
    }

    fn give(&self, asked: &Notification, file: &ApprovedFile, flags: u32) -> Result<(), Errno> {
        let socket = self.socket.as_fd();
        let Ok(copy) = file.reopen() else {
            return sys::answer_notification(socket, asked, NotificationAnswer::Errno(Errno::NFILE));
        };
        let given = GivenDescriptor { fd: copy.as_fd(), flags: flags & open_flag(libc::O_CLOEXEC) };
        match sys::give_descriptor(socket, asked, given) {
            Err(Errno::NOENT) => Err(Errno::NOENT),
            Err(errno) => sys::answer_notification(socket, asked, NotificationAnswer::Errno(errno)),
            Ok(()) => Ok(()),
        }
    }

    fn judge(&mut self, asked: &Notification) -> FileAnswer<'a> {
        match file_use(asked.number) {
            None => FileAnswer::Continue,
            Some(FileUse::Open(path, flags)) => self.open(asked, path, low_half(argument(asked, flags))),
            Some(FileUse::OpenHow(path)) => match read_number(asked.pid, argument(asked, 2)) {
                Ok(flags) => self.open(asked, path, low_half(flags)),
                Err(_) => self.unreadable(),
            },
            Some(FileUse::Change(paths)) => {
                for path in paths {
                    if let Ok(path) = self.named(asked, *path) {
                        self.note(&path);
                    }
                }
                FileAnswer::Continue
            }
            Some(FileUse::Execute(path)) => self.execute(asked, path),
        }
    }

    fn open(&mut self, asked: &Notification, path: PathArgument, flags: u32) -> FileAnswer<'a> {
        let Ok(path) = self.named(asked, path) else { return self.unreadable() };
        let writes = flags & open_flag(libc::O_ACCMODE) != 0 || flags & open_flag(libc::O_TRUNC) != 0;
        if writes {
            self.note(&path);
            return FileAnswer::Continue;
        }
        let only_named = flags & open_flag(libc::O_PATH | libc::O_DIRECTORY) != 0;
        match self.unchanged(&path) {
            Some(file) if !only_named && is_interpreter(asked.pid) => FileAnswer::Give { file, flags },
            _ => FileAnswer::Continue,
        }
    }

    /// KERNEL: no descriptor can be given to execve(2), so the file is compared right before it.
    fn execute(&mut self, asked: &Notification, path: PathArgument) -> FileAnswer<'a> {
        // The launcher executes the copy, and no process can read the launcher.
        let Ok(path) = self.named(asked, path) else { return FileAnswer::Continue };
        match self.unchanged(&path) {
            Some(file) if !file.is_still_at(&path).unwrap_or(false) => FileAnswer::Refuse(Errno::ACCESS),
            _ => FileAnswer::Continue,
        }
    }

    /// No interpreter hides its memory, unless the machine forbids that memory is read at all.
    fn unreadable(&self) -> FileAnswer<'a> {
        match self.memory {
            MemoryAccess::Unknown => FileAnswer::Refuse(Errno::PERM),
            MemoryAccess::Proven => FileAnswer::Continue,
        }
    }

    fn note(&mut self, path: &Path) {
        for (file, changed) in self.approved.files.iter().zip(&mut self.changed) {
            *changed |= file.is_beneath(path);
        }
    }

    fn unchanged(&self, path: &Path) -> Option<&'a ApprovedFile> {
        let mut files = self.approved.files.iter().zip(&self.changed);
        files.find(|(file, changed)| !**changed && file.is_named(path)).map(|(file, _)| file)
    }

    /// The absolute name of a file that a call names.
    fn named(&mut self, asked: &Notification, place: PathArgument) -> io::Result<PathBuf> {
        let path = read_path(asked.pid, argument(asked, place.path))?;
        // The process may have ended, and another may have its number.
        sys::notification_is_valid(self.socket.as_fd(), asked)?;
        self.memory = MemoryAccess::Proven;
        if path.is_absolute() {
            return Ok(normal(&path));
        }
        let process = PathBuf::from(format!("/proc/{}", asked.pid));
        // The kernel looks at the low half of the register.
        let directory = place.directory.map(|index| argument(asked, index) as c_int);
        let base = match directory {
            None | Some(libc::AT_FDCWD) => process.join("cwd"),
            Some(fd) => process.join(format!("fd/{fd}")),
        };
        Ok(normal(&self.approved.name_of(&base)?.join(path)))
    }
}

fn argument(asked: &Notification, index: usize) -> u64 {
    asked.arguments.get(index).copied().unwrap_or_default()
}

fn low_half(value: u64) -> u32 {
    u32::try_from(value & u64::from(u32::MAX)).unwrap_or_default()
}

fn open_flag(flag: c_int) -> u32 {
    flag.cast_unsigned()
}

fn is_interpreter(pid: u32) -> bool {
    let Ok(program) = fs::read_link(format!("/proc/{pid}/exe")) else { return false };
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    // A copy in memory is called `/memfd:NAME (deleted)`, and so is a program that was removed.
    let name = name.trim_start_matches("memfd:").trim_end_matches(" (deleted)");
    let versionless = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || ".-".contains(letter));
    INTERPRETERS.contains(&name) || INTERPRETERS.contains(&versionless)
}

fn read_number(pid: u32, address: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open(format!("/proc/{pid}/mem"))?.read_exact_at(&mut bytes, address)?;
    Ok(u64::from_ne_bytes(bytes))
}

fn read_path(pid: u32, address: u64) -> io::Result<PathBuf> {
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut bytes = vec![0; LONGEST_PATH];
    // What follows the path may not be mapped.
    let length = memory.read_at(&mut bytes, address)?;
    bytes.truncate(length);
    let end = bytes.iter().position(|byte| *byte == 0).ok_or(io::ErrorKind::InvalidData)?;
    bytes.truncate(end);
    let text = CString::new(bytes)?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(text.into_bytes())))
}
