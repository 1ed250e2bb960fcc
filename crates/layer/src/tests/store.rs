//! The store: names, locks, lists, limits.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Duration;

use super::bench::{Bench, ID, land, undo};
use crate::journal::PhaseJournal;
use crate::landing::LandingDirection;
use crate::transfer::directory_of;
use crate::{LayerError, LayerState, LayerStore, PruneLimits};

#[test]
fn names_are_words() {
    let bench = Bench::new();
    for id in ["", ".", "..", "a/b", "../x", ".journals", "a b", "ü", &"x".repeat(101)] {
        assert!(matches!(bench.store.create(id), Err(LayerError::BadId { .. })), "{id}");
        assert!(matches!(bench.store.open_layer(id), Err(LayerError::BadId { .. })), "{id}");
    }
    assert!(matches!(bench.store.open_layer("tx_none"), Err(LayerError::Unknown { .. })));
    drop(bench.store.create("tx_one").unwrap());
    assert!(matches!(bench.store.create("tx_one"), Err(LayerError::Exists { .. })));
}

#[test]
fn a_layer_has_one_process() {
    let bench = Bench::new();
    let layer = bench.store.create("tx_one").unwrap();
    assert!(matches!(bench.store.open_layer("tx_one"), Err(LayerError::InUse { .. })));
    assert!(bench.store.list().unwrap()[0].in_use);
    drop(layer);
    assert!(!bench.store.list().unwrap()[0].in_use);
    bench.store.open_layer("tx_one").unwrap();
}

/// The disk of a project can be gone for good while a landing is cut off.
#[test]
fn a_layer_without_its_root_can_be_discarded_after_an_interrupted_landing() {
    let bench = Bench::new();
    let layer = bench.layer(|upper| {
        upper.file("new", "new");
    });
    drop(layer);
    let place = directory_of(&bench.store.path().join(ID), 1);
    fs::create_dir_all(place).unwrap();
    drop(PhaseJournal::begin(bench.store.path(), ID, 1, LandingDirection::Land).unwrap());
    assert!(matches!(bench.store.open_to_discard(ID), Err(LayerError::Interrupted { .. })), "the control");
    fs::remove_dir_all(&bench.root).unwrap();
    assert!(bench.store.recover()[0].is_err());
    assert!(matches!(bench.store.open_layer(ID), Err(LayerError::Interrupted { .. })));
    bench.store.open_to_discard(ID).unwrap().discard().unwrap();
    assert!(bench.store.recover().is_empty());
    assert!(matches!(bench.store.open_layer(ID), Err(LayerError::Unknown { .. })));
}

#[test]
fn a_store_that_others_can_enter_is_refused() {
    let bench = Bench::new();
    let place = bench.state.path().join("open");
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(LayerStore::open(&place), Err(LayerError::NotPrivate { .. })));
    fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).unwrap();
    LayerStore::open(&place).unwrap();
    symlink(&place, bench.state.path().join("link")).unwrap();
    assert!(matches!(LayerStore::open(&bench.state.path().join("link")), Err(LayerError::NotPrivate { .. })));
}

#[test]
fn a_root_is_no_link() {
    let bench = Bench::new();
    symlink(&bench.root, bench.project.path().join("link")).unwrap();
    let mut layer = bench.store.create("tx_one").unwrap();
    assert!(layer.add_root(&bench.project.path().join("link")).is_err());
    assert!(layer.add_root(&bench.project.path().join("missing")).is_err());
    assert_eq!(layer.roots(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn the_newest_layer_is_listed_first() {
    let bench = Bench::new();
    for id in ["tx_b", "tx_a", "tx_c"] {
        let mut layer = bench.store.create(id).unwrap();
        layer.add_root(&bench.root).unwrap();
    }
    fs::create_dir(bench.store.path().join("no-record")).unwrap();
    let list = bench.store.list().unwrap();
    let ids: Vec<&str> = list.iter().map(|summary| summary.id.as_str()).collect();
    assert_eq!(ids, ["tx_c", "tx_a", "tx_b"]);
    assert_eq!(list[0].roots, std::slice::from_ref(&bench.root));
    assert_eq!(list[0].state, LayerState::Open);
}

#[test]
fn old_and_large_layers_are_pruned_and_waiting_ones_stay() {
    let bench = Bench::new();
    bench.host().file("a", "x".repeat(1000));
    for id in ["tx_1", "tx_2", "tx_wait"] {
        let mut layer = bench.store.create(id).unwrap();
        let mount = layer.add_root(&bench.root).unwrap();
        fs::write(mount.upper.join("a"), id.repeat(1000)).unwrap();
        layer.close_view().unwrap();
        if id != "tx_wait" {
            land(&mut layer);
        }
    }
    let nothing = bench.store.prune(&PruneLimits::default()).unwrap();
    assert_eq!(nothing.removed, Vec::<String>::new());
    let day = Some(Duration::from_secs(86_400));
    let young = PruneLimits { landed_age: day, pending_age: day, bytes: Some(1 << 30) };
    assert_eq!(bench.store.prune(&young).unwrap().removed, Vec::<String>::new());
    let open = bench.store.open_layer("tx_1").unwrap();
    let small = PruneLimits { bytes: Some(0), ..PruneLimits::default() };
    assert_eq!(bench.store.prune(&small).unwrap().removed, ["tx_2"]);
    drop(open);
    assert_eq!(bench.store.prune(&small).unwrap().removed, ["tx_1"]);
    let old = PruneLimits { pending_age: Some(Duration::ZERO), ..PruneLimits::default() };
    assert_eq!(bench.store.prune(&old).unwrap().removed, ["tx_wait"]);
    assert_eq!(fs::read_dir(bench.store.path()).unwrap().count(), 2, "journals and the lock");
}

/// Gives the records of a layer other times, as if they had been written then.
fn set_times(bench: &Bench, id: &str, times: &[(&str, i64)]) {
    let path = bench.store.path().join(id).join("layer.json");
    let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for (name, seconds) in times {
        record[name] = serde_json::json!({ "seconds": seconds, "nanos": 0 });
    }
    fs::write(&path, record.to_string()).unwrap();
}

fn landed(bench: &Bench, id: &str) -> crate::Layer {
    let mut layer = bench.store.create(id).unwrap();
    let mount = layer.add_root(&bench.root).unwrap();
    fs::write(mount.upper.join(id), "text").unwrap();
    layer.close_view().unwrap();
    land(&mut layer);
    layer
}

#[test]
fn what_was_undone_waits_and_is_not_pruned() {
    let bench = Bench::new();
    let mut layer = landed(&bench, "tx_undone");
    undo(&mut layer);
    drop(layer);
    drop(landed(&bench, "tx_landed"));
    set_times(&bench, "tx_undone", &[("created", 1), ("landed", 2)]);
    set_times(&bench, "tx_landed", &[("created", 1), ("landed", 2)]);
    let limits = PruneLimits { landed_age: Some(Duration::from_secs(60)), pending_age: None, bytes: Some(0) };
    assert_eq!(bench.store.prune(&limits).unwrap().removed, ["tx_landed"], "the control");
    let mut layer = bench.store.open_layer("tx_undone").unwrap();
    assert_eq!(land(&mut layer).landed.len(), 1);
}

/// A layer that waited for long and landed yesterday can be undone.
#[test]
fn the_age_of_a_landed_layer_counts_from_its_last_landing() {
    let bench = Bench::new();
    drop(landed(&bench, "tx_waited"));
    drop(landed(&bench, "tx_old"));
    set_times(&bench, "tx_waited", &[("created", 1)]);
    set_times(&bench, "tx_old", &[("landed", 1)]);
    let old = PruneLimits { landed_age: Some(Duration::from_secs(60)), ..PruneLimits::default() };
    assert_eq!(bench.store.prune(&old).unwrap().removed, ["tx_old"]);
    drop(landed(&bench, "tx_next"));
    set_times(&bench, "tx_next", &[("landed", 5)]);
    let list = bench.store.list().unwrap();
    let total: u64 = list.iter().map(|summary| summary.bytes).sum();
    let small = PruneLimits { bytes: Some(total - 1), ..PruneLimits::default() };
    assert_eq!(bench.store.prune(&small).unwrap().removed, ["tx_next"], "it landed first");
}

#[test]
fn a_record_without_the_time_of_its_landing_counts_from_its_making() {
    let bench = Bench::new();
    drop(landed(&bench, "tx_one"));
    set_times(&bench, "tx_one", &[("created", 9)]);
    let path = bench.store.path().join("tx_one/layer.json");
    let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    record.as_object_mut().unwrap().remove("landed").unwrap();
    fs::write(&path, record.to_string()).unwrap();
    let found = bench.store.list().unwrap().remove(0);
    assert_eq!(found.landed, Some(found.created));
    let old = PruneLimits { landed_age: Some(Duration::from_secs(60)), ..PruneLimits::default() };
    assert_eq!(bench.store.prune(&old).unwrap().removed, ["tx_one"]);
}

#[test]
fn a_record_of_another_version_is_refused() {
    let bench = Bench::new();
    drop(bench.store.create("tx_one").unwrap());
    let path = bench.store.path().join("tx_one/layer.json");
    let text = fs::read_to_string(&path).unwrap().replace("\"version\":1", "\"version\":2");
    fs::write(&path, text).unwrap();
    assert!(matches!(bench.store.open_layer("tx_one"), Err(LayerError::Unreadable { .. })));
}
