//! What looking for secrets adds to a command that prints much: the example `bench_relay` of `ringfence-sandbox` with and without
//! the scanner in the same relay.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::Effort;
use super::arena::Arena;
use super::measure::{Contender, Probe, interleave, named};
use super::report::{Bound, Report};
use crate::Result;

const TEXT: &str = "text";
/// Text that people and programs wrote, besides our own.
const DOCUMENTS: &str = "/usr/share/doc";
/// From the fastest way to print a file to a program that makes each line by itself.
const COMMANDS: &[(&str, &[&str])] = &[
    ("cat", &["/bin/cat", TEXT]),
    ("sed", &["/bin/sed", "-e", "s/the/THE/", TEXT]),
    ("python3", &["/usr/bin/python3", "-c", PRINT]),
];
const PRINT: &str = "import sys\nfor number, line in enumerate(open('text', errors='replace')):\n    sys.stdout.write(f'{line.rstrip()} {number}\\n')";

pub(super) fn run(arena: &Arena, report: &mut Report) -> Result<()> {
    let program = arena.example("ringfence-sandbox", "bench_relay")?;
    let directory = arena.path("relay");
    fs::create_dir(&directory)?;
    let bytes = if arena.effort == Effort::Full { 1_000_000_000 } else { 50_000_000 };
    write_text(arena, &directory.join(TEXT), bytes)?;
    let place = directory.to_str().ok_or("a path that is not text")?;
    for (name, command) in COMMANDS {
        let contender = |mode: &str| {
            let arguments: Vec<&str> = [mode, place].into_iter().chain(command.iter().copied()).collect();
            let invocation = arena.invocation(&program, &arguments, &directory);
            Contender { name: format!("{name}, {mode}"), probe: Probe::Reports(invocation) }
        };
        let times = interleave(&[contender("bare"), contender("scanned")], arena.effort.rounds(5))?;
        let [bare, scanned] = ["bare", "scanned"].map(|mode| format!("{name}, {mode}"));
        report.table(&format!("{bytes} bytes through the relay: {name}"), &times, &[&bare]);
        let ratio = named(&times, &scanned)?.median() / named(&times, &bare)?.median();
        report.target(&format!("{name} with the scanner / without"), ratio, Bound::AtMost(1.05), "x");
    }
    Ok(())
}

/// Real text, over and over; longer than anything that the scanner could know again.
fn write_text(arena: &Arena, path: &Path, bytes: usize) -> Result<()> {
    let mut text = Vec::new();
    for root in [arena.root.join("crates"), arena.root.join("docs"), PathBuf::from(DOCUMENTS)] {
        collect(&root, &mut text)?;
    }
    let mut file = File::create(path)?;
    let mut left = bytes;
    while left > 0 {
        let part = text.get(..left.min(text.len())).filter(|part| !part.is_empty());
        let part = part.ok_or("there is no text")?;
        file.write_all(part)?;
        left -= part.len();
    }
    Ok(())
}

fn collect(directory: &Path, text: &mut Vec<u8>) -> Result<()> {
    let mut entries: Vec<_> = fs::read_dir(directory)?.collect::<std::io::Result<_>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            collect(&entry.path(), text)?;
        } else if kind.is_file() {
            // Compressed files are no text.
            text.extend(fs::read(entry.path())?.into_iter().take_while(|byte| *byte != 0));
        }
    }
    Ok(())
}
