//! How long landing and undo take: `cargo run --release -p ringfence-layer --example bench_layer [FILES] [DIRECTORY]`.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program for developers that prints what it measured"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ringfence_layer::{LandingSelection, LaterChanges, LayerStore};
use rustix::fs::{CWD, RenameFlags};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let files: usize = arguments.next().map_or(10_000, |count| count.parse().unwrap());
    let place = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    for (what, share) in
        [("changed", [1, 0, 0]), ("created", [0, 1, 0]), ("deleted", [0, 0, 1]), ("mixed", [2, 1, 1])]
    {
        measure(&place, files, what, share);
    }
    exchanges(&place, files);
}

/// So many entries are changed, created and deleted, in this proportion.
fn measure(place: &Path, files: usize, what: &str, share: [usize; 3]) {
    let dir = tempfile::tempdir_in(place).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let root = dir.path().canonicalize().unwrap().join("root");
    let sum: usize = share.iter().sum();
    let role = |number: usize| match number % sum {
        part if part < share[0] => "changed",
        part if part < share[0] + share[1] => "created",
        _ => "deleted",
    };
    for number in (0..files).filter(|number| role(*number) != "created") {
        write(&root, number, "old");
    }
    fs::create_dir_all(&root).unwrap();
    let store = LayerStore::open(&dir.path().join("layers")).unwrap();
    let mut layer = store.create("tx_bench").unwrap();
    let mount = layer.add_root(&root).unwrap();
    for number in 0..files {
        match role(number) {
            "deleted" => {
                let path = path(&mount.upper, number);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                let kind = rustix::fs::FileType::CharacterDevice;
                rustix::fs::mknodat(CWD, &path, kind, 0.into(), 0).unwrap();
            }
            _ => write(&mount.upper, number, "new"),
        }
    }
    let mut times = Vec::new();
    let mut start = Instant::now();
    let mut lap = |name: &str| {
        times.push(format!("{name} {:.1} ms", start.elapsed().as_secs_f64() * 1000.0));
        start = Instant::now();
    };
    layer.close_view().unwrap();
    lap("close");
    let changes = layer.changes().unwrap().changes.len();
    lap("changes");
    let report = layer.land(&LandingSelection::All).unwrap();
    lap("land");
    assert_eq!(report.conflicts.len(), 0);
    layer.undo(LaterChanges::Refuse).unwrap();
    lap("undo");
    layer.discard().unwrap();
    lap("discard");
    println!("{changes} {what}: {}", times.join(", "));
}

/// What landing cannot be faster than.
fn exchanges(place: &Path, files: usize) {
    let dir = tempfile::tempdir_in(place).unwrap();
    for number in 0..files {
        write(&dir.path().join("a"), number, "old");
        write(&dir.path().join("b"), number, "new");
    }
    let start = Instant::now();
    for number in 0..files {
        let (one, other) = (path(&dir.path().join("a"), number), path(&dir.path().join("b"), number));
        rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
    }
    println!("{files} exchanges alone: {:.1} ms", start.elapsed().as_secs_f64() * 1000.0);
}

fn path(top: &Path, number: usize) -> PathBuf {
    top.join(format!("d{}/f{number}", number / 100))
}

fn write(top: &Path, number: usize, text: &str) {
    let path = path(top, number);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text} {number} ").repeat(128)).unwrap();
}
