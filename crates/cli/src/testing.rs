//! Shared helpers of this crate's tests.
#![expect(clippy::disallowed_methods, reason = "a test that starts itself again says so in a variable")]

pub(crate) fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}
