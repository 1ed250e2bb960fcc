//! The profile as a Rust table, for the code that shows it.

use super::profile::{Case, Group, Profile, Syscall};

/// An expression of type `&[Entry]`.
pub(crate) fn render(profile: &Profile) -> String {
    let lines: String = profile.groups.iter().map(group).collect();
    format!("&[\n{lines}]\n")
}

fn group(group: &Group) -> String {
    group
        .syscalls
        .iter()
        .flat_map(|call| call.cases.iter().map(|case| entry(&group.title, call, case)))
        .collect()
}

fn entry(group: &str, call: &Syscall, case: &Case) -> String {
    format!(
        "Entry {{ group: {group:?}, syscall: {:?}, x86_64: {:?}, aarch64: {:?}, condition: {:?}, action: {:?}, reason: {:?} }},\n",
        call.name,
        call.numbers.x86_64,
        call.numbers.aarch64,
        condition(case),
        case.action.name(),
        case.reason,
    )
}

/// The tests of a case in words; empty when the case always holds.
pub(crate) fn condition(case: &Case) -> String {
    case.when.iter().map(|test| test.text.as_str()).collect::<Vec<_>>().join(" and ")
}
