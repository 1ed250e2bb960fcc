//! The object stores of a repository: git reads objects from every store that one names, and from every pack.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use rustix::fs::{FileType, Mode, OFlags};

use super::{Examiner, Open, Reason, names};
use crate::survey::normalized;

impl Examiner<'_> {
    /// The store of a repository and those that it names, which name others in turn.
    pub(super) fn object_stores(&mut self, git: &Open) {
        let mut ahead: Vec<Open> = self.step(git, "objects", Reason::Shortcut).into_iter().collect();
        while let Some(store) = ahead.pop().filter(|_| self.has_room()) {
            if !self.stores.insert((store.ground, store.relative.clone())) {
                continue;
            }
            self.kept += store.relative.as_os_str().len();
            self.pack_indexes(&store);
            let places: Vec<_> =
                self.alternates(&store).iter().filter_map(|path| self.scene.inside(path)).collect();
            ahead.extend(
                places.iter().filter_map(|(ground, relative)| Open::at(self.scene, *ground, relative)),
            );
        }
    }

    /// The other stores that one names. Git runs in their repositories, and a checkout prints what is in them.
    fn alternates(&mut self, objects: &Open) -> Vec<PathBuf> {
        const FILE: &str = "alternates";
        let Some(info) = self.step(objects, "info", Reason::Shortcut) else { return Vec::new() };
        let Some(kind) = info.kind(FILE) else { return Vec::new() };
        self.only_name(&info, FILE);
        // Git takes a line in quotes for a path with escapes.
        let is_plain = |line: &[u8]| !line.starts_with(b"\"") && !line.iter().any(u8::is_ascii_control);
        let content = info.read(FILE).filter(|_| kind == FileType::RegularFile);
        let lines = |content: Vec<u8>| {
            let lines = content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            let path = |line: &[u8]| objects.absolute.join(OsStr::from_bytes(line));
            lines.map(|line| is_plain(line).then(|| path(line))).collect::<Option<Vec<PathBuf>>>()
        };
        let paths = content.and_then(lines);
        // Older versions of git take `..` for the name before it, also where that is a link.
        let leads_out = |path: &PathBuf| {
            self.is_over() || self.scene.leads_out(path) || self.scene.leads_out(&normalized(path))
        };
        if paths.as_ref().is_none_or(|paths| paths.iter().any(leads_out)) {
            self.note(info.entry(FILE, Reason::Alternates));
        }
        let both = |path: PathBuf| [normalized(&path), path];
        paths.unwrap_or_default().into_iter().flat_map(both).collect()
    }

    /// Git opens each pack that an index of several packs names, and `git multi-pack-index expire` removes some.
    fn pack_indexes(&mut self, objects: &Open) {
        const ONE: &str = "multi-pack-index";
        let Some(packs) = self.step(objects, "pack", Reason::Shortcut) else { return };
        self.pack_index(&packs, ONE.as_ref());
        let Some(layers) = self.step(&packs, format!("{ONE}.d"), Reason::Shortcut) else { return };
        match names(&layers.fd) {
            Some(found) => {
                let layer = |name: &&OsString| name.as_bytes().ends_with(b".midx");
                found.iter().filter(layer).for_each(|name| self.pack_index(&layers, name));
            }
            None => self.note(packs.entry(format!("{ONE}.d"), Reason::Names)),
        }
    }

    fn pack_index(&mut self, directory: &Open, name: &OsStr) {
        let is_index = directory.kind(name) == Some(FileType::RegularFile);
        if is_index && !is_plain_pack_index(directory, name).unwrap_or(false) {
            self.note(directory.entry(name, Reason::Names));
        }
    }

    /// Where refs are in tables, a list names their files. Git opens each, and removes those that it has joined.
    pub(super) fn reference_tables(&mut self, git: &Open) {
        if let Some(tables) = self.step(git, "reftable", Reason::Shortcut) {
            let plain = |content: &[u8]| content.split(|byte| *byte == b'\n').all(is_file_name);
            self.state_file(&tables, "tables.list", Reason::Names, plain);
        }
    }
}

/// Whether the packs that an index of several packs names lie beside it. `None`: it is none that can be read.
fn is_plain_pack_index(directory: &Open, name: &OsStr) -> Option<bool> {
    const HEADER: usize = 12;
    const ENTRY: usize = 12;
    const MOST_NAMES: u64 = 16 * 1024 * 1024;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(&directory.fd, name, flags, Mode::empty()).ok()?);
    let mut header = [0; HEADER];
    file.read_exact_at(&mut header, 0).ok()?;
    // Git reads no further either.
    if !header.starts_with(b"MIDX") {
        return Some(true);
    }
    let count = usize::from(*header.get(6)?);
    let mut table = vec![0; (count + 1) * ENTRY];
    file.read_exact_at(&mut table, HEADER as u64).ok()?;
    let chunks: Vec<(&[u8], u64)> = table.chunks(ENTRY).map(chunk).collect::<Option<_>>()?;
    for (begin, end) in chunks.iter().zip(chunks.iter().skip(1)).filter(|(begin, _)| begin.0 == b"PNAM") {
        let length = end.1.checked_sub(begin.1).filter(|length| *length <= MOST_NAMES)?;
        let mut packs = vec![0; usize::try_from(length).ok()?];
        file.read_exact_at(&mut packs, begin.1).ok()?;
        if !packs.split(|byte| *byte == 0).all(is_file_name) {
            return Some(false);
        }
    }
    Some(true)
}

/// The name of a part of the file, and where it begins.
fn chunk(entry: &[u8]) -> Option<(&[u8], u64)> {
    let (name, begin) = entry.split_at_checked(4)?;
    Some((name, u64::from_be_bytes(begin.try_into().ok()?)))
}

fn is_file_name(name: &[u8]) -> bool {
    !name.contains(&b'/') && name != b".."
}
