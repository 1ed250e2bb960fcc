//! The profile as a Rust table, for the code that shows it.

use super::profile::{SeccompProfile, Syscall, SyscallCase, SyscallGroup};

/// An expression of type `&[ProfileEntry]`.
pub(crate) fn render(profile: &SeccompProfile) -> String {
    let lines: String = profile.groups.iter().map(group).collect();
    format!("&[\n{lines}]\n")
}

fn group(group: &SyscallGroup) -> String {
    group
        .syscalls
        .iter()
        .flat_map(|call| call.cases.iter().map(|case| entry(&group.title, call, case)))
        .collect()
}

fn entry(group: &str, call: &Syscall, case: &SyscallCase) -> String {
    format!(
        "ProfileEntry {{ group: {group:?}, syscall: {:?}, x86_64: {:?}, aarch64: {:?}, condition: {:?}, action: {:?}, reason: {:?} }},\n",
        call.name,
        call.numbers.x86_64,
        call.numbers.aarch64,
        condition(case),
        case.action.name(),
        case.reason,
    )
}

/// The tests of a case in words; empty when the case always holds.
pub(crate) fn condition(case: &SyscallCase) -> String {
    case.when.iter().map(|test| test.text.as_str()).collect::<Vec<_>>().join(" and ")
}
