//! What waits is dropped, and what landed can be taken back all the same.

use std::fs;
use std::time::Duration;

use rustix::fs::FileType;

use super::bench::{Bench, ID, kinds, undo};
use crate::{LandingSelection, LaterChanges, Layer, LayerState, PruneLimits, UndoOutcome};

fn land_only(bench: &Bench, layer: &mut Layer, name: &str) {
    let picked = layer.changes().unwrap().below(&[&bench.root.join(name)]);
    assert_eq!(layer.land(&LandingSelection::Only(picked)).unwrap().conflicts, []);
}

#[test]
fn what_landed_can_be_undone_after_the_rest_was_dropped() {
    for bench in [Bench::new(), Bench::across()] {
        bench.host().file("a", "a").file("b", "b").file("gone", "x").file("d/x", "x").mode("d", 0o755);
        bench.host().file("tree/in/it", "x");
        let old = bench.tree();
        let mut layer = bench.layer(|upper| {
            upper.file("a", "A").file("b", "B").whiteout("gone").whiteout("tree").file("d/x", "X");
            upper.mode("d", 0o711).file("new/x", "X").file("new/y", "Y").link("link", "a");
            upper.file("other/deep/z", "Z").node("new/fifo", FileType::Fifo);
        });
        land_only(&bench, &mut layer, "a");
        land_only(&bench, &mut layer, "new/x");
        let landed = bench.tree();
        assert_eq!(
            layer.count_waiting().unwrap(),
            layer.changes().unwrap().changes.len() + 1,
            "the FIFO too"
        );
        assert_eq!(layer.state(), LayerState::Pending);
        layer.drop_waiting().unwrap();
        assert_eq!((layer.state(), kinds(&layer)), (LayerState::Landed, Vec::new()));
        assert_eq!(layer.count_waiting().unwrap(), 0);
        assert_eq!(layer.changes().unwrap().refused, []);
        assert_eq!(bench.tree(), landed, "the host keeps what it has");
        drop(layer);
        let mut layer = bench.store.open_layer(ID).unwrap();
        undo(&mut layer);
        assert_eq!(bench.tree(), old);
        let waits: Vec<String> = kinds(&layer).into_iter().map(|(name, _)| name).collect();
        assert_eq!(waits, ["a", "new", "new/x"], "what was taken back waits again");
    }
}

/// Directories of the upper get the permissions that the host's have, and the owner can still work in them.
#[test]
fn dropped_permissions_do_not_wait() {
    let bench = Bench::new();
    bench.host().file("ro/x", "old").file("ro/y", "old").mode("ro", 0o555);
    let old = bench.tree();
    let mut layer = bench.layer(|upper| {
        upper.file("ro/x", "new").file("ro/y", "new").mode("ro", 0o500);
    });
    land_only(&bench, &mut layer, "ro/x");
    layer.drop_waiting().unwrap();
    assert_eq!(kinds(&layer), []);
    undo(&mut layer);
    assert_eq!(bench.tree(), old);
    assert_eq!(kinds(&layer).len(), 1);
    bench.host().mode("ro", 0o755);
}

/// After a forced undo, edits of the host are in the layer alone.
#[test]
fn a_layer_that_set_something_aside_says_so_and_is_not_pruned() {
    let bench = Bench::new();
    bench.host().file("a", "old");
    let mut layer = bench.layer(|upper| {
        upper.file("a", "new");
    });
    super::bench::land(&mut layer);
    assert_eq!(layer.set_aside().unwrap(), None);
    bench.host().file("a", "by hand");
    assert!(matches!(layer.undo(LaterChanges::SetAside).unwrap(), UndoOutcome::Undone(_)));
    let aside = layer.set_aside().unwrap().unwrap();
    let kept = fs::read_dir(&aside).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::read_to_string(kept).unwrap(), "by hand");
    super::bench::land(&mut layer);
    drop(layer);
    let now = Some(Duration::ZERO);
    let limits = PruneLimits { landed_age: now, pending_age: now, bytes: Some(0) };
    assert_eq!(bench.store.prune(&limits).unwrap().removed, Vec::<String>::new());
    fs::remove_dir_all(aside).unwrap();
    assert_eq!(bench.store.prune(&limits).unwrap().removed, [ID], "the control");
}
