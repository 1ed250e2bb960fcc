use std::fs;
use std::path::{Path, PathBuf};

/// Features of the machine that decide whether an attempt applies.
#[derive(Clone, Debug)]
pub(super) struct HostFeatures {
    pub(super) root: bool,
    /// The battery itself already runs under a system call filter.
    pub(super) outer_filter: bool,
    pub(super) families: Vec<(String, u64)>,
    pub(super) pid_namespace: u64,
    pub(super) real_interface: bool,
    tools: Vec<&'static str>,
}

const TOOLS: &[&str] = &["sh", "bash", "cat", "cp", "git", "grep", "ln", "mv", "tar"];

impl HostFeatures {
    pub(super) fn look() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            root: rustix::process::geteuid().is_root(),
            outer_filter: field(&status, "Seccomp:").is_some_and(|mode| mode != "0"),
            families: families(&fs::read_to_string("/proc/net/protocols").unwrap_or_default()),
            pid_namespace: pid_namespace(),
            real_interface: interfaces().iter().any(|name| name != "lo"),
            tools: TOOLS.iter().copied().filter(|tool| locate(tool).is_some()).collect(),
        }
    }

    pub(super) fn lacks(&self, tools: &[&str]) -> Option<String> {
        let missing = tools.iter().find(|tool| !self.tools.contains(tool))?;
        Some(format!("`{missing}` is not installed"))
    }
}

/// The inode of this process's pid namespace; 0 if `/proc` does not tell.
pub(super) fn pid_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

pub(super) fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

pub(super) fn interfaces() -> Vec<String> {
    let table = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    table.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim().to_owned()).collect()
}

fn locate(tool: &str) -> Option<PathBuf> {
    ["/bin", "/usr/bin", "/usr/local/bin"]
        .iter()
        .map(|dir| Path::new(dir).join(tool))
        .find(|path| path.exists())
}

// KERNEL: a `socket` call for a family that is not registered makes the kernel load a module for it.
fn families(protocols: &str) -> Vec<(String, u64)> {
    const KNOWN: &[(&str, u64)] = &[
        ("ALG", 38),
        ("AF_VSOCK", 40),
        ("BLUETOOTH", 31),
        ("KCM", 41),
        ("KEY", 15),
        ("PACKET", 17),
        ("RDS", 21),
        ("SMC", 43),
        ("TIPC", 30),
        ("XDP", 44),
    ];
    let listed = |name: &str| protocols.lines().any(|line| line.split_whitespace().next() == Some(name));
    KNOWN
        .iter()
        .filter(|(name, _)| listed(name))
        .map(|(name, family)| ((*name).to_owned(), *family))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_registered_families_are_tried() {
        let table = "protocol size\nPACKET 1 2\nUNIX 3 4\nAF_VSOCK 5\n";
        let found: Vec<u64> = families(table).into_iter().map(|(_, family)| family).collect();
        assert_eq!(found, [40, 17]);
    }

    #[test]
    fn status_fields_are_found() {
        assert_eq!(field("Name:\tx\nSeccomp:\t2\n", "Seccomp:"), Some("2"));
    }
}
