//! The system calls that name files, and the filter that asks about them.

use std::ffi::c_long;

/// Where in the arguments of a call a path is.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathArgument {
    /// The directory that a relative path begins at; `None` is the working directory.
    pub(super) directory: Option<usize>,
    pub(super) path: usize,
}

/// What a call does with the files that it names.
#[derive(Clone, Copy, Debug)]
pub(super) enum FileUse {
    /// With the number of the argument that has the flags.
    Open(PathArgument, usize),
    /// openat2(2): the flags are in memory, at the third argument.
    OpenHow(PathArgument),
    Change(&'static [PathArgument]),
    Execute(PathArgument),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FileCallNumber {
    number: c_long,
    pub(super) file_use: FileUse,
}

const fn at(directory: usize, path: usize) -> PathArgument {
    PathArgument { directory: Some(directory), path }
}

const fn here(path: usize) -> PathArgument {
    PathArgument { directory: None, path }
}

const fn call(number: c_long, file_use: FileUse) -> FileCallNumber {
    FileCallNumber { number, file_use }
}

const EVERYWHERE: [FileCallNumber; 8] = [
    call(libc::SYS_openat, FileUse::Open(at(0, 1), 2)),
    call(libc::SYS_openat2, FileUse::OpenHow(at(0, 1))),
    call(libc::SYS_truncate, FileUse::Change(&[here(0)])),
    call(libc::SYS_renameat, FileUse::Change(&[at(0, 1), at(2, 3)])),
    call(libc::SYS_renameat2, FileUse::Change(&[at(0, 1), at(2, 3)])),
    call(libc::SYS_unlinkat, FileUse::Change(&[at(0, 1)])),
    call(libc::SYS_execve, FileUse::Execute(here(0))),
    call(libc::SYS_execveat, FileUse::Execute(at(0, 1))),
];

/// Newer architectures do not have these any more.
#[cfg(target_arch = "x86_64")]
const OLD: [FileCallNumber; 4] = [
    call(libc::SYS_open, FileUse::Open(here(0), 1)),
    call(libc::SYS_creat, FileUse::Change(&[here(0)])),
    call(libc::SYS_rename, FileUse::Change(&[here(0), here(1)])),
    call(libc::SYS_unlink, FileUse::Change(&[here(0)])),
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: [FileCallNumber; 0] = [];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

pub(super) fn file_use(number: i32) -> Option<FileUse> {
    let known = EVERYWHERE.iter().chain(&OLD);
    known.copied().find(|call| call.number == c_long::from(number)).map(|call| call.file_use)
}

/// An array of `struct sock_filter`: asks about these calls and lets all others through, which the filter of the sandbox
/// decides about.
pub(crate) fn filter() -> Vec<u8> {
    const LOAD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const NUMBER: u32 = 0;
    const ARCHITECTURE_OFFSET: u32 = 4;
    const ALLOW: u32 = 0x7fff_0000;
    const ASK: u32 = 0x7fc0_0000;
    let calls: Vec<u32> =
        EVERYWHERE.iter().chain(&OLD).filter_map(|call| u32::try_from(call.number).ok()).collect();
    let mut program = Vec::new();
    let mut push = |code: u16, jumps: [u8; 2], value: u32| {
        program.extend(code.to_le_bytes());
        program.extend(jumps);
        program.extend(value.to_le_bytes());
    };
    let count = u8::try_from(calls.len()).unwrap_or_default();
    push(LOAD, [0, 0], ARCHITECTURE_OFFSET);
    push(JUMP_IF_EQUAL, [0, count + 1], ARCHITECTURE);
    push(LOAD, [0, 0], NUMBER);
    for (to_ask, number) in (1..=count).rev().zip(calls) {
        push(JUMP_IF_EQUAL, [to_ask, 0], number);
    }
    push(RETURN, [0, 0], ALLOW);
    push(RETURN, [0, 0], ASK);
    program
}
