//! What a test program that does not end is doing, told before it is ended.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

/// Its processes with what each waits for, and its threads: they bear the names of their tests.
pub(crate) fn describe(root: u32) -> String {
    let processes = processes();
    let mut text = String::new();
    let mut left = vec![(root, 0)];
    while let Some((pid, depth)) = left.pop() {
        let Some(process) = processes.get(&pid) else { continue };
        _ = writeln!(text, "{:indent$}{pid} {}", "", process.line, indent = depth * 2);
        for (thread, name) in threads(pid) {
            let waits = read(&format!("{pid}/task/{thread}/wchan"));
            let call = read(&format!("{pid}/task/{thread}/syscall"));
            _ = writeln!(text, "{:indent$}- {name}: {waits} {call}", "", indent = depth * 2 + 2);
        }
        left.extend(
            processes.iter().filter(|(_, child)| child.parent == pid).map(|(pid, _)| (*pid, depth + 1)),
        );
    }
    text
}

struct Process {
    parent: u32,
    line: String,
}

fn processes() -> BTreeMap<u32, Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, process(pid)?))).collect()
}

fn process(pid: u32) -> Option<Process> {
    let stat = read(&format!("{pid}/stat"));
    // The name may have spaces and brackets in it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let arguments: String = read(&format!("{pid}/cmdline")).replace('\0', " ").chars().take(300).collect();
    Some(Process { parent, line: format!("{state} {}", arguments.escape_debug()) })
}

fn threads(pid: u32) -> Vec<(u32, String)> {
    let entries = fs::read_dir(PathBuf::from(format!("/proc/{pid}/task"))).into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.map(|id: u32| (id, read(&format!("{pid}/task/{id}/comm")))).collect()
}

/// What cannot be read any more is told as nothing.
fn read(path: &str) -> String {
    let bytes = fs::read(PathBuf::from("/proc").join(path)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_shown_with_its_children() {
        let mut child = Command::new("sh").args(["-c", "sleep 98.7; true"]).spawn().unwrap();
        let seen = (0..500).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            Some(describe(child.id())).filter(|text| text.contains("S sleep 98.7"))
        });
        for (pid, _) in processes().iter().filter(|(_, process)| process.parent == child.id()) {
            rustix::process::kill_process(
                rustix::process::Pid::from_raw(pid.cast_signed()).unwrap(),
                rustix::process::Signal::KILL,
            )
            .unwrap();
        }
        child.wait().unwrap();
        assert!(seen.is_some_and(|text| text.contains("- sh: ") && text.contains("- sleep: ")));
    }
}
