//! The seccomp filters, compiled while the crate is built from `profiles/seccomp.toml`.
//!
//! A filter is an array of `struct sock_filter`, little endian, as `seccomp(SECCOMP_SET_MODE_FILTER)` takes it.

#[cfg(test)]
mod interpreter;
#[cfg(test)]
mod tests;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeccompArch {
    X86_64,
    Aarch64,
}

/// One line of the profile: what happens to a call, when, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfileEntry {
    pub group: &'static str,
    pub syscall: &'static str,
    pub x86_64: Option<u32>,
    pub aarch64: Option<u32>,
    /// The tests on arguments in words; empty when the line always holds.
    pub condition: &'static str,
    /// `ALLOW`, or the name of the errno that the caller gets.
    pub action: &'static str,
    pub reason: &'static str,
}

/// The filter that every fenced command runs under, whatever its network.
pub fn filter() -> &'static [u8] {
    filter_for(SeccompArch::TARGET)
}

pub fn filter_for(arch: SeccompArch) -> &'static [u8] {
    match arch {
        SeccompArch::X86_64 => include_bytes!(concat!(env!("OUT_DIR"), "/seccomp_x86_64.bin")),
        SeccompArch::Aarch64 => include_bytes!(concat!(env!("OUT_DIR"), "/seccomp_aarch64.bin")),
    }
}

/// Closes internet sockets; goes on top of [`filter`] where no network namespace can.
pub fn no_inet() -> &'static [u8] {
    no_inet_for(SeccompArch::TARGET)
}

pub fn no_inet_for(arch: SeccompArch) -> &'static [u8] {
    match arch {
        SeccompArch::X86_64 => include_bytes!(concat!(env!("OUT_DIR"), "/seccomp_no_inet_x86_64.bin")),
        SeccompArch::Aarch64 => include_bytes!(concat!(env!("OUT_DIR"), "/seccomp_no_inet_aarch64.bin")),
    }
}

/// Closes what would hide memory from the count; goes on top of [`filter`] where no control group counts it.
pub fn counted() -> &'static [u8] {
    counted_for(SeccompArch::TARGET)
}

pub fn counted_for(arch: SeccompArch) -> &'static [u8] {
    match arch {
        SeccompArch::X86_64 => include_bytes!(concat!(env!("OUT_DIR"), "/seccomp_counted_x86_64.bin")),
        SeccompArch::Aarch64 => include_bytes!(concat!(env!("OUT_DIR"), "/seccomp_counted_aarch64.bin")),
    }
}

/// The lines of [`filter`], in the order of the profile.
pub fn entries() -> &'static [ProfileEntry] {
    include!(concat!(env!("OUT_DIR"), "/seccomp_entries.rs"))
}

impl SeccompArch {
    #[cfg(target_arch = "x86_64")]
    pub const TARGET: Self = Self::X86_64;
    #[cfg(target_arch = "aarch64")]
    pub const TARGET: Self = Self::Aarch64;
}
