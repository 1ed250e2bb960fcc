//! The attempts, by subject. Ids are stable: ledgers and documents cite them.

mod doors;
mod environment;
mod git;
mod lifetimes;
mod limits;
mod machine;
mod network;
mod outside;
mod processes;
mod protected;
mod secrets;
mod sockets;
mod syscalls;

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::attempt::Attempt;

pub fn attempts() -> impl Iterator<Item = &'static Attempt> {
    // The slow ones first, so that the last worker is not left alone with one.
    [
        limits::ATTEMPTS,
        lifetimes::ATTEMPTS,
        outside::ATTEMPTS,
        secrets::ATTEMPTS,
        protected::ATTEMPTS,
        git::ATTEMPTS,
        machine::ATTEMPTS,
        network::ATTEMPTS,
        doors::ATTEMPTS,
        sockets::ATTEMPTS,
        syscalls::ATTEMPTS,
        processes::ATTEMPTS,
        environment::ATTEMPTS,
    ]
    .into_iter()
    .flatten()
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_unique_and_every_attempt_names_a_control_and_a_source() {
        let ids: BTreeSet<_> = attempts().map(|attempt| attempt.id).collect();
        assert_eq!(ids.len(), attempts().count());
        for attempt in attempts() {
            assert!(!attempt.controls.is_empty() && !attempt.from.is_empty(), "{}", attempt.id);
            assert!(attempt.id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{}", attempt.id);
        }
    }

    #[test]
    fn there_are_enough_of_them() {
        assert!(attempts().count() >= 60, "{}", attempts().count());
    }
}
