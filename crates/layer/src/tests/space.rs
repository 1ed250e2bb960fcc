//! A file system that is full. Each test has a small one of its own, in a mount namespace of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::bench::{Bench, land, undo};
use crate::{LandingSelection, LayerError, LayerState};

const PLACE: &str = "RINGFENCE_LAYER_SMALL";

/// Runs one of the tests below with a file system of one megabyte.
fn with_small_file_system(test: &str) {
    let place = tempfile::tempdir().unwrap();
    let script =
        "mount -t tmpfs -o size=1m,mode=700 ringfence-test \"$1\" && exec \"$2\" --exact \"$3\" --nocapture";
    let output = Command::new("unshare")
        .args(["-Urm", "sh", "-c", script, "sh"])
        .arg(place.path())
        .arg(std::env::current_exe().unwrap())
        .arg(format!("tests::space::{test}"))
        .env(PLACE, place.path())
        .stdin(Stdio::null())
        .output()
        .expect("a test needs unshare(1)");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("ENOSPC was seen"), "{text}");
}

/// `None`: this is not the process with the small file system.
fn small() -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "the order of the test that started this process")]
    std::env::var_os(PLACE).map(PathBuf::from)
}

fn is_full(error: &LayerError) -> bool {
    let full =
        matches!(error, LayerError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull);
    if full {
        println!("ENOSPC was seen");
    }
    full
}

fn fill(directory: &Path) -> PathBuf {
    let path = directory.join("filler");
    let _full = fs::write(&path, vec![7_u8; 2 << 20]);
    assert!(fs::metadata(&path).unwrap().len() < 1 << 20);
    path
}

#[test]
fn a_root_without_room_stays_as_it_is() {
    with_small_file_system("a_root_without_room");
}

#[test]
fn a_root_without_room() {
    let Some(small) = small() else { return };
    let bench = Bench::between(&std::env::temp_dir(), &small);
    bench.host().file("a", "old").file("b", "old");
    let old = bench.tree();
    let mut layer = bench.layer(|upper| {
        upper.file("a", "new").file("b", vec![b'x'; 700 << 10]).file("new/c", vec![b'y'; 700 << 10]);
    });
    let error = layer.land(&LandingSelection::All).unwrap_err();
    assert!(is_full(&error), "{error:?}");
    assert_eq!(bench.tree(), old);
    assert!(bench.store.recover().is_empty());
    // What fits lands.
    let changes = layer.changes().unwrap().below(&[&bench.root.join("a"), &bench.root.join("b")]);
    layer.land(&LandingSelection::Only(changes)).unwrap();
    assert_eq!(bench.host().read("a").unwrap(), "new");
    assert_eq!(layer.state(), LayerState::Pending);
}

#[test]
fn a_store_without_room_loses_nothing() {
    with_small_file_system("a_store_without_room");
}

#[test]
fn a_store_without_room() {
    let Some(small) = small() else { return };
    for root in [std::env::temp_dir(), small.clone()] {
        let bench = Bench::between(&small, &root);
        bench.host().file("a", "old").file("b/c", "old").file("d", "old");
        let old = bench.tree();
        let mut layer = bench.layer(|upper| {
            upper.file("a", "new").whiteout("b").file("d", "new").file("e/f", "new");
        });
        let filler = fill(&small);
        let error = layer.land(&LandingSelection::All).unwrap_err();
        assert!(is_full(&error), "{error:?}");
        assert_eq!(bench.tree(), old);
        fs::remove_file(&filler).unwrap();
        for recovery in bench.store.recover() {
            recovery.unwrap();
        }
        land(&mut layer);
        let new = bench.tree();
        assert_eq!(bench.host().read("e/f").unwrap(), "new");
        let filler = fill(&small);
        assert!(is_full(&layer.undo(crate::LaterChanges::Refuse).unwrap_err()));
        assert_eq!(bench.tree(), new);
        fs::remove_file(&filler).unwrap();
        undo(&mut layer);
        assert_eq!(bench.tree(), old);
    }
}
