//! The profile as a page of documentation.

use super::entries::condition;
use super::profile::{
    BuildArch, KnownNumbers, LeftOpen, SeccompProfile, Syscall, SyscallCase, SyscallNumbers,
};

pub(crate) fn render(profile: &SeccompProfile) -> String {
    let groups: String = profile
        .groups
        .iter()
        .map(|group| format!("\n### {}\n\n{}", group.title, table(&group.syscalls)))
        .collect();
    let left_open: String = profile.left_open.iter().map(left_open).collect();
    format!(
        "{INTRODUCTION}{}\n## Closed calls\n{groups}{NO_INET}{}{COUNTED}{}{LEFT_OPEN}{left_open}",
        known(&profile.known),
        table(&profile.no_inet),
        table(&profile.counted),
    )
}

const INTRODUCTION: &str = "\
<!-- Generated from crates/sandbox/profiles/seccomp.toml: change that file, not this one. -->

# The seccomp filter

Every command in the fence, in every backend except `none`, runs under one BPF program that the kernel runs before each
system call. It is the third control behind mounts and Landlock: it closes the calls that could undo the other two, and
the parts of the kernel that tools do not need. It is the same for every network mode.

## Design

- The filter is data: `crates/sandbox/profiles/seccomp.toml` has one line per call, with the reason. The build compiles
  it to BPF for x86_64 and aarch64; starting a sandbox only copies the bytes. A malformed profile fails the build.
- The first instructions check the architecture. A call by a foreign one (i386 through `int 0x80` on x86_64, 32-bit arm
  on aarch64) kills the process, because its numbers mean other calls.
- Then a balanced tree over call numbers finds the range, in about eight comparisons. Arguments are read only there.
  For a call that is always allowed no argument is read, so Linux 5.11 and later cache the answer and skip the filter.
- Known calls are open by default, so that ordinary tools work. An unknown number answers ENOSYS. So a call that a
  later kernel adds stays closed until it has been reviewed, and x32 calls (x86_64 numbers with bit 30 set) do not exist.
- Arguments are compared as the kernel reads them: the low 32 bits of an int, so that high bits change
  nothing, and both halves of 64 bits.
- A refused call gets an errno, not a signal: programs report it or fall back. ENOSYS is used where programs take it as
  \"older kernel\" and fall back (`clone3`, `io_uring`), EINVAL where that makes them copy in another way, EPERM otherwise.
  IGNORED means that the call succeeds and does nothing.

## What does not work inside

Debuggers, `strace` and the leak check of AddressSanitizer (no `ptrace`), `perf`, nested containers and other sandboxes
that need namespaces (browsers need `--no-sandbox`), programs that turn off their own address randomisation,
`ping` by raw sockets, MPTCP, and 32-bit programs on x86_64.

## Known numbers

";

const NO_INET: &str = "
## Added when the network is `none` without a network namespace

";

const COUNTED: &str = "
## Added without a memory control group

Ringfence counts the memory of a session itself there. These calls would hide memory from the count. So a server that
insists on `sendfile` needs it turned off there (nginx: `sendfile off`).

";

const LEFT_OPEN: &str = "
## Left open on purpose

| call | x86_64 | aarch64 | why |
|---|---|---|---|
";

fn known(known: &KnownNumbers) -> String {
    let line = |arch| {
        let ranges = known.ranges(arch).iter().map(|(first, last)| format!("{first}–{last}"));
        format!("- {arch}: {}\n", ranges.collect::<Vec<_>>().join(", "))
    };
    BuildArch::ALL.into_iter().map(line).collect()
}

fn table(syscalls: &[Syscall]) -> String {
    let rows: String = syscalls.iter().map(rows).collect();
    format!("| call | x86_64 | aarch64 | when | answer | why |\n|---|---|---|---|---|---|\n{rows}")
}

fn rows(call: &Syscall) -> String {
    let row = |case: &SyscallCase| {
        let when =
            Some(condition(case)).filter(|when| !when.is_empty()).unwrap_or_else(|| "always".to_owned());
        format!(
            "| `{}` | {} | {when} | {} | {} |\n",
            call.name,
            numbers(call.numbers),
            case.action.name(),
            case.reason
        )
    };
    call.cases.iter().map(row).collect()
}

fn left_open(call: &LeftOpen) -> String {
    format!("| `{}` | {} | {} |\n", call.name, numbers(call.numbers), call.reason)
}

fn numbers(numbers: SyscallNumbers) -> String {
    let cell = |number: Option<u32>| number.map_or_else(|| "–".to_owned(), |number| number.to_string());
    format!("{} | {}", cell(numbers.x86_64), cell(numbers.aarch64))
}
