//! The attempts, by subject. Ids are stable: ledgers and documents cite them.

mod environment;
mod git;
mod lifetimes;
mod limits;
mod machine;
mod network;
mod outside;
mod processes;
mod protected_paths;
mod proxy;
mod secrets;
mod sockets;
mod syscalls;

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::attempt::Attempt;

pub fn attempts() -> impl Iterator<Item = &'static Attempt> {
    // Slow attempts first, so that they do not run alone at the end.
    [
        limits::ATTEMPTS,
        lifetimes::ATTEMPTS,
        outside::ATTEMPTS,
        secrets::ATTEMPTS,
        protected_paths::ATTEMPTS,
        git::ATTEMPTS,
        machine::ATTEMPTS,
        network::ATTEMPTS,
        proxy::ATTEMPTS,
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
