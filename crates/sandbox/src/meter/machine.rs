//! What the machine as a whole has in memory that belongs to no one process.

use std::fs;

/// In memory and swapped out. What is swapped out and not shared counts as well: it cannot be told apart.
pub(super) fn shared() -> u64 {
    let about = about();
    let swapped = bytes(&about, "SwapTotal").saturating_sub(bytes(&about, "SwapFree"));
    bytes(&about, "Shmem").saturating_add(swapped)
}

/// What the kernel keeps for itself and cannot give back.
pub(super) fn kernel_objects() -> u64 {
    bytes(&about(), "SUnreclaim")
}

fn about() -> String {
    fs::read_to_string("/proc/meminfo").unwrap_or_default()
}

fn bytes(about: &str, name: &str) -> u64 {
    let line = about.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
    kib.saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_file_is_seen() {
        let before = shared();
        let file = rustix::fs::memfd_create("machine", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 256 << 20).unwrap();
        assert!(shared() > before + (128 << 20));
    }
}
