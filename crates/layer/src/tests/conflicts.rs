//! The host changes something meanwhile: both versions are kept, and it is told.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::bench::{Bench, ID, Upper, kinds, land, listing};
use crate::{
    ConflictReason, LandingConflict, LandingSelection, LaterChanges, Layer, LayerError, LayerState,
    UndoOutcome,
};

fn told(conflicts: &[LandingConflict]) -> Vec<(String, ConflictReason)> {
    conflicts.iter().map(|conflict| (conflict.path.display(), conflict.reason)).collect()
}

/// Past the time of the opening of the view, whatever the clock of the file system is.
fn later() {
    std::thread::sleep(Duration::from_millis(20));
}

#[test]
fn host_edits_while_the_view_is_open_are_kept() {
    for bench in [Bench::new(), Bench::across()] {
        bench.host().file("edited", "1").file("replaced", "1").file("removed", "1").file("fine", "1");
        bench.host().file("dir/known", "1").file("both-delete", "1").file("touched-dir/a", "1");
        let mut layer = bench.layer(|upper| {
            for name in ["edited", "replaced", "removed", "fine"] {
                upper.file(name, "layer").attribute(name, "user.overlay.origin", "");
            }
            upper.whiteout("dir").whiteout("both-delete").file("made-by-both", "layer");
            later();
            bench.host().file("edited", "host").file("new-name", "host").file("made-by-both", "host");
            fs::rename(bench.root.join("new-name"), bench.root.join("replaced")).unwrap();
            fs::remove_file(bench.root.join("removed")).unwrap();
            fs::remove_file(bench.root.join("both-delete")).unwrap();
            bench.host().file("dir/unknown", "host");
        });
        let report = layer.land(&LandingSelection::All).unwrap();
        let mut conflicts = told(&report.conflicts);
        conflicts.sort();
        let changed = ConflictReason::ChangedOnHost;
        let expected = [
            ("dir", changed),
            ("dir/unknown", changed),
            ("edited", changed),
            ("made-by-both", changed),
            ("removed", ConflictReason::RemovedOnHost),
            ("replaced", changed),
        ];
        assert_eq!(conflicts, expected.map(|(name, reason)| (name.to_owned(), reason)));
        let read = |name: &str| bench.host().read(name);
        for name in ["edited", "replaced", "made-by-both", "dir/unknown"] {
            assert_eq!(read(name).unwrap(), "host", "{name}");
        }
        assert_eq!((read("removed"), read("dir/known")), (None, None));
        assert_eq!(read("fine").unwrap(), "layer");
        // The layer keeps its own.
        assert_eq!(layer.state(), LayerState::Pending);
        let waiting: Vec<String> = kinds(&layer).into_iter().map(|(name, _)| name).collect();
        assert_eq!(waiting, ["dir", "dir/unknown", "edited", "made-by-both", "removed", "replaced"]);
    }
}

#[test]
fn host_edits_while_the_layer_waits_are_kept() {
    for bench in [Bench::new(), Bench::across()] {
        bench.host().file("a", "1").file("b", "1").file("c", "1").file("d/e", "1");
        let layer = bench.layer(|upper| {
            upper
                .file("a", "layer")
                .file("b", "layer")
                .whiteout("c")
                .file("new", "layer")
                .file("d/f", "layer");
        });
        drop(layer);
        bench.host().file("a", "host").file("c", "host").file("new", "host");
        fs::remove_dir_all(bench.root.join("d")).unwrap();
        let mut layer = bench.store.open_layer(ID).unwrap();
        let report = layer.land(&LandingSelection::All).unwrap();
        let expected = [
            ("a", ConflictReason::ChangedOnHost),
            ("c", ConflictReason::ChangedOnHost),
            ("d", ConflictReason::RemovedOnHost),
            ("new", ConflictReason::CreatedOnHost),
            ("d/f", ConflictReason::RemovedOnHost),
        ];
        assert_eq!(told(&report.conflicts), expected.map(|(name, reason)| (name.to_owned(), reason)));
        let names: Vec<String> = report.landed.iter().map(|change| change.path.display()).collect();
        assert_eq!(names, ["b"]);
        assert_eq!(bench.host().read("a").unwrap(), "host");
        assert_eq!(bench.host().read("c").unwrap(), "host");
        assert_eq!(bench.host().read("new").unwrap(), "host");
        assert!(!bench.root.join("d").exists());
    }
}

#[test]
fn the_same_change_on_both_sides_is_no_conflict() {
    let bench = Bench::new();
    bench.host().file("a", "1");
    let mut layer = bench.layer(|upper| {
        upper.file("a", "same");
        later();
        bench.host().file("a", "same");
        let modified = fs::metadata(bench.root.join("a")).unwrap().modified().unwrap();
        fs::File::open(upper.at("a")).unwrap().set_modified(modified).unwrap();
    });
    assert_eq!(kinds(&layer), []);
    land(&mut layer);
}

#[test]
fn what_was_selected_is_what_lands() {
    let bench = Bench::new();
    bench.host().file("a", "1").file("b", "1").file("c", "1");
    let mut layer = bench.layer(|upper| {
        upper.file("a", "2").file("b", "2").file("c", "2");
    });
    let seen = layer.changes().unwrap().changes;
    // An upper that is still written, and a host that was.
    let upper = Upper { path: bench.layer_path().join("roots/0/upper") };
    upper.file("a", "other");
    bench.host().file("b", "host");
    let report = layer.land(&LandingSelection::Only(seen)).unwrap();
    let expected = [("a", ConflictReason::NotAsSelected), ("b", ConflictReason::ChangedOnHost)];
    assert_eq!(told(&report.conflicts), expected.map(|(name, reason)| (name.to_owned(), reason)));
    let read = |name: &str| bench.host().read(name).unwrap();
    assert_eq!((read("a"), read("b"), read("c")), ("1".into(), "host".into(), "2".into()));
    // Nothing of a selection is dropped silently.
    let landed = report.landed;
    let report = layer.land(&LandingSelection::Only(landed)).unwrap();
    assert_eq!(told(&report.conflicts), [("c".to_owned(), ConflictReason::NotAsSelected)]);
}

/// Also where it has the same names and contents.
#[test]
fn another_directory_at_the_path_of_a_root_gets_nothing() {
    let bench = Bench::new();
    bench.host().file("a", "old");
    let mut layer = bench.layer(|upper| {
        upper.file("a", "new");
    });
    assert_eq!((layer.replaced_root(), layer.roots_elsewhere().unwrap()), (None, Vec::new()));
    let moved = bench.project.path().join("moved");
    fs::rename(&bench.root, &moved).unwrap();
    fs::create_dir(&bench.root).unwrap();
    bench.host().file("a", "old");
    assert_eq!(layer.replaced_root().as_ref(), Some(&bench.root));
    assert!(matches!(layer.land(&LandingSelection::All), Err(LayerError::RootReplaced { .. })));
    assert_eq!(bench.host().read("a").unwrap(), "old");
    fs::remove_dir_all(&bench.root).unwrap();
    fs::rename(&moved, &bench.root).unwrap();
    super::bench::land(&mut layer);
    assert_eq!(bench.host().read("a").unwrap(), "new");
    fs::rename(&bench.root, &moved).unwrap();
    fs::create_dir(&bench.root).unwrap();
    assert!(matches!(layer.undo(LaterChanges::SetAside), Err(LayerError::RootReplaced { .. })));
    assert_eq!(fs::read_dir(&bench.root).unwrap().count(), 0);
}

#[test]
fn a_root_on_another_file_system_is_told() {
    let bench = Bench::across();
    let layer = bench.layer(|_| {});
    assert_eq!(layer.roots_elsewhere().unwrap(), std::slice::from_ref(&bench.root));
}

/// The exchange moves the file itself into the layer, and the host has another name of it.
#[test]
fn a_before_image_that_was_written_through_another_name_is_told() {
    let bench = Bench::new();
    bench.host().file("a", "old").file("b", "old");
    fs::hard_link(bench.root.join("a"), bench.root.join("alias")).unwrap();
    let mut layer = bench.layer(|upper| {
        upper.file("a", "new").file("b", "new");
    });
    super::bench::land(&mut layer);
    bench.host().file("alias", "evil");
    let UndoOutcome::Refused(found) = layer.undo(LaterChanges::Refuse).unwrap() else { panic!("undone") };
    let reasons: Vec<_> = found.iter().map(|conflict| (conflict.path.display(), conflict.reason)).collect();
    assert_eq!(reasons, [("a".to_owned(), ConflictReason::KeptChanged)]);
    assert_eq!((bench.host().read("a"), bench.host().read("b")), (Some("new".into()), Some("new".into())));
    // A person who wants it all the same gets what there is.
    assert!(matches!(layer.undo(LaterChanges::SetAside).unwrap(), UndoOutcome::Undone(_)));
    assert_eq!((bench.host().read("a"), bench.host().read("b")), (Some("evil".into()), Some("old".into())));
}

/// A directory above becomes a link to a place outside of the root.
#[test]
fn a_link_above_an_entry_is_not_followed() {
    for bench in [Bench::new(), Bench::across()] {
        bench.host().file("d/sub/a", "1").file("d/sub/gone", "1");
        let outside = bench.project.path().join("outside");
        fs::create_dir_all(outside.join("sub")).unwrap();
        fs::write(outside.join("sub/a"), "1").unwrap();
        fs::write(outside.join("sub/gone"), "1").unwrap();
        let mut layer = bench.layer(|upper| {
            upper.file("d/sub/a", "layer").whiteout("d/sub/gone").file("d/sub/new", "layer");
        });
        fs::rename(bench.root.join("d"), bench.root.join("away")).unwrap();
        symlink(&outside, bench.root.join("d")).unwrap();
        // Control: by path, the work would be done outside.
        assert!(bench.root.join("d/sub/a").exists());
        let old = listing(&outside);
        let report = layer.land(&LandingSelection::All).unwrap();
        assert_eq!(report.landed, Vec::new());
        assert!(!report.conflicts.is_empty());
        assert_eq!(listing(&outside), old);
        assert_eq!(fs::read(bench.root.join("away/sub/a")).unwrap(), b"1");
    }
}

/// The same, again and again, while the layer lands.
#[test]
fn a_link_that_comes_and_goes_is_not_followed() {
    let bench = Bench::new();
    for number in 0..300 {
        bench.host().file(format!("d/{number}"), "old");
    }
    let outside = bench.project.path().join("outside");
    fs::create_dir(&outside).unwrap();
    for number in 0..300 {
        fs::write(outside.join(number.to_string()), "outside").unwrap();
    }
    let (real, link) = (bench.root.join("d"), bench.project.path().join("link"));
    symlink(&outside, &link).unwrap();
    let mut layer = bench.layer(|upper| {
        for number in 0..300 {
            upper.file(format!("d/{number}"), "layer");
        }
    });
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let exchange = rustix::fs::RenameFlags::EXCHANGE;
            let cwd = rustix::fs::CWD;
            while !stop.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(cwd, &real, cwd, &link, exchange).unwrap();
                rustix::fs::renameat_with(cwd, &real, cwd, &link, exchange).unwrap();
            }
        });
        let landed = layer.land(&LandingSelection::All);
        stop.store(true, Ordering::Relaxed);
        landed.unwrap();
    });
    for entry in fs::read_dir(&outside).unwrap() {
        assert_eq!(fs::read(entry.unwrap().path()).unwrap(), b"outside");
    }
    assert_eq!(fs::read_dir(&real).unwrap().count(), 300);
}

/// Every file of a directory, wherever it is, by content.
fn contents(top: &Path) -> String {
    listing(top).into_values().collect::<Vec<_>>().join("\n")
}

/// The host writes while the layer lands: each version that the host wrote last is on the host, or in the layer.
#[test]
fn edits_during_a_landing_are_never_lost() {
    for bench in [Bench::new(), Bench::across()] {
        let count = 200;
        for number in 0..count {
            bench.host().file(number.to_string(), "base");
        }
        let mut layer = bench.layer(|upper| {
            for number in 0..count {
                match number % 3 {
                    0 => upper.whiteout(&number.to_string()),
                    _ => upper.file(number.to_string(), "layer"),
                };
            }
        });
        let stop = AtomicBool::new(false);
        let last = std::thread::scope(|scope| {
            let editor = scope.spawn(|| {
                let mut last = vec![String::new(); count];
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    for (number, last) in last.iter_mut().enumerate() {
                        let text = format!("<edit-{number}-{round}>");
                        let (path, fresh) = (bench.root.join(number.to_string()), bench.root.join("fresh"));
                        if number % 2 == 0 {
                            fs::write(&fresh, &text).unwrap();
                            fs::rename(&fresh, &path).unwrap();
                        } else {
                            fs::write(&path, &text).unwrap();
                        }
                        *last = text;
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                }
                last
            });
            std::thread::sleep(Duration::from_millis(5));
            let landed = layer.land(&LandingSelection::All);
            stop.store(true, Ordering::Relaxed);
            landed.unwrap();
            editor.join().unwrap()
        });
        let all = contents(bench.state.path()) + &contents(&bench.root);
        for text in last.iter().filter(|text| !text.is_empty()) {
            assert!(all.contains(text), "{text} is lost");
        }
        let left = listing(&bench.root);
        assert!(left.keys().all(|name| !name.to_string_lossy().contains("ringfence")), "{left:?}");
    }
}

fn refused(layer: &mut Layer) -> Vec<(String, ConflictReason)> {
    match layer.undo(LaterChanges::Refuse).unwrap() {
        UndoOutcome::Refused(conflicts) => told(&conflicts),
        UndoOutcome::Undone(report) => panic!("undone: {report:?}"),
    }
}

#[test]
fn undo_refuses_what_changed_later_and_sets_it_aside_when_told() {
    for bench in [Bench::new(), Bench::across()] {
        bench.host().file("edited", "old").file("fine", "old").file("gone", "old").file("removed", "old");
        let old = bench.tree();
        let mut layer = bench.layer(|upper| {
            upper.file("edited", "layer").file("fine", "layer").whiteout("gone").file("removed", "layer");
            upper.file("made/x", "layer");
        });
        land(&mut layer);
        bench.host().file("edited", "later").file("gone", "later").file("made/later", "later");
        fs::remove_file(bench.root.join("removed")).unwrap();
        let tree = bench.tree();
        let expected = [
            ("made/later", ConflictReason::CreatedOnHost),
            ("removed", ConflictReason::RemovedOnHost),
            ("edited", ConflictReason::ChangedOnHost),
            ("gone", ConflictReason::CreatedOnHost),
        ];
        let mut found = refused(&mut layer);
        found.sort();
        let mut expected = expected.map(|(name, reason)| (name.to_owned(), reason));
        expected.sort();
        assert_eq!(found, expected);
        assert_eq!(bench.tree(), tree, "nothing is undone");
        assert_eq!(layer.state(), LayerState::Landed);
        let UndoOutcome::Undone(report) = layer.undo(LaterChanges::SetAside).unwrap() else {
            panic!("refused");
        };
        assert_eq!(told(&report.conflicts), [("made".to_owned(), ConflictReason::NotEmpty)]);
        let mut expected = old.clone();
        expected.insert("made".into(), bench.tree()[Path::new("made")].clone());
        expected.insert("made/later".into(), bench.tree()[Path::new("made/later")].clone());
        assert_eq!(bench.tree(), expected);
        let mut aside: Vec<(String, String)> = report
            .set_aside
            .iter()
            .map(|entry| (entry.path.display(), fs::read_to_string(&entry.kept).unwrap()))
            .collect();
        aside.sort();
        assert_eq!(
            aside,
            [("edited", "later"), ("gone", "later")].map(|(a, b)| (a.to_owned(), b.to_owned()))
        );
    }
}

#[test]
fn undo_accepts_what_has_the_same_content() {
    let bench = Bench::new();
    bench.host().file("a", "old");
    let old = bench.tree();
    let mut layer = bench.layer(|upper| {
        upper.file("a", "layer").file("made", "layer");
    });
    land(&mut layer);
    // An editor that saved it unchanged, by a rename; and the user removed what was made.
    bench.host().file("fresh", "layer");
    fs::rename(bench.root.join("fresh"), bench.root.join("a")).unwrap();
    fs::remove_file(bench.root.join("made")).unwrap();
    super::bench::undo(&mut layer);
    assert_eq!(bench.tree(), old);
}

#[test]
fn a_root_that_is_gone_is_an_error_and_nothing_is_lost() {
    let bench = Bench::new();
    bench.host().file("a", "old");
    let mut layer = bench.layer(|upper| {
        upper.file("a", "layer");
    });
    fs::rename(&bench.root, bench.project.path().join("away")).unwrap();
    assert!(layer.land(&LandingSelection::All).is_err());
    fs::rename(bench.project.path().join("away"), &bench.root).unwrap();
    land(&mut layer);
    assert_eq!(bench.host().read("a").unwrap(), "layer");
}

#[test]
fn two_layers_over_one_root_land_one_after_the_other() {
    let bench = Bench::new();
    bench.host().file("a", "old").file("b", "old");
    let mut layers: Vec<Layer> = ["tx_1", "tx_2"]
        .iter()
        .map(|id| {
            let mut layer = bench.store.create(id).unwrap();
            let upper = Upper { path: layer.add_root(&bench.root).unwrap().upper };
            upper.file("a", id).file(format!("only-{id}"), id);
            layer
        })
        .collect();
    layers.iter_mut().for_each(|layer| layer.close_view().unwrap());
    let reports: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = layers
            .iter_mut()
            .map(|layer| scope.spawn(|| layer.land(&LandingSelection::All).unwrap()))
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let conflicts: Vec<_> = reports.iter().flat_map(|report| told(&report.conflicts)).collect();
    assert_eq!(conflicts, [("a".to_owned(), ConflictReason::ChangedOnHost)]);
    assert!(bench.root.join("only-tx_1").exists() && bench.root.join("only-tx_2").exists());
}
