//! What lands, how, and back.

use std::ffi::OsStr;
use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::FileType;

use super::bench::{Bench, ID, Upper, kinds, land, undo};
use crate::{ChangeKind, ChangeSide, LandingSelection, LayerState, UnlandableReason};

fn both(test: impl Fn(Bench)) {
    test(Bench::new());
    test(Bench::across());
}

/// One of everything.
fn host(host: &Upper) {
    host.file("same", "same")
        .file("edit", "old")
        .file("gone", "bye")
        .file("mode", "mode")
        .mode("mode", 0o644)
        .file("dir/kept", "kept")
        .file("dir/edit", "old")
        .file("tree/a/b/c", "c")
        .file("tree/d", "d")
        .file("again/old", "old")
        .file("again/both", "lower")
        .file("becomes-dir", "file")
        .file("becomes-file/x/y", "y")
        .link("link", "old-target")
        .link("link-to-file", "same");
}

fn upper(upper: &Upper) {
    upper
        .file("edit", "new content")
        .whiteout("gone")
        .file("mode", "mode")
        .mode("mode", 0o755)
        .directory("dir")
        .file("dir/edit", "new")
        .file("dir/made", "made")
        .whiteout("tree")
        .opaque("again")
        .file("again/both", "upper")
        .file("becomes-dir/inside", "x")
        .file("becomes-file", "now a file")
        .link("link", "new-target")
        .file("link-to-file", "a file now")
        .file("fresh/deep/er/file", "fresh")
        .directory("fresh/empty")
        .mode("fresh/empty", 0o700);
    let same = fs::metadata(upper.path.join("mode")).unwrap().modified().unwrap();
    fs::File::open(upper.path.join("edit")).unwrap().set_modified(same - Duration::from_secs(9)).unwrap();
}

#[test]
fn everything_lands_and_comes_back() {
    both(|bench| {
        host(&bench.host());
        let old = bench.tree();
        let mut layer = bench.layer(upper);
        let found = kinds(&layer);
        let of = |name: &str| found.iter().find(|(path, _)| path == name).map(|(_, kind)| *kind);
        assert_eq!(of("same"), None);
        assert_eq!(of("dir/kept"), None);
        assert_eq!(of("dir"), None);
        assert_eq!(of("edit"), Some(ChangeKind::Modified));
        assert_eq!(of("mode"), Some(ChangeKind::Metadata));
        assert_eq!(of("gone"), Some(ChangeKind::Deleted));
        assert_eq!(of("tree/a/b/c"), Some(ChangeKind::Deleted));
        assert_eq!(of("tree"), Some(ChangeKind::Deleted));
        assert_eq!(of("again/old"), Some(ChangeKind::Deleted));
        assert_eq!(of("again/both"), Some(ChangeKind::Modified));
        assert_eq!(of("becomes-dir"), Some(ChangeKind::Replaced));
        assert_eq!(of("becomes-file"), Some(ChangeKind::Replaced));
        assert_eq!(of("becomes-file/x/y"), Some(ChangeKind::Deleted));
        assert_eq!(of("link"), Some(ChangeKind::Modified));
        assert_eq!(of("link-to-file"), Some(ChangeKind::Replaced));
        assert_eq!(of("fresh/deep/er/file"), Some(ChangeKind::Created));
        // A root made by hand has the mode of its time.
        let report = land(&mut layer);
        assert_eq!(report.landed.len(), found.len());
        assert_eq!(layer.state(), LayerState::Landed);
        let new = bench.tree();
        let read = |name: &str| new.get(Path::new(name)).cloned().unwrap_or_default();
        assert!(read("edit").ends_with(" new content"), "{}", read("edit"));
        assert_eq!(read("mode"), "file 755 mode");
        assert_eq!(read("link"), "link new-target");
        assert!(read("becomes-dir").starts_with("directory"));
        assert!(read("becomes-file").ends_with("now a file"));
        assert_eq!(read("fresh/empty"), "directory 700");
        for gone in ["gone", "tree", "tree/a", "again/old", "becomes-file/x"] {
            assert_eq!(read(gone), "", "{gone}");
        }
        assert!(kinds(&layer).is_empty());
        let modified = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
        assert!(modified(&bench.root.join("edit")) < modified(&bench.root.join("mode")));
        let report = undo(&mut layer);
        assert_eq!(report.undone.len(), found.len());
        assert_eq!(bench.tree(), old);
        assert_eq!(layer.state(), LayerState::Undone);
        // What was undone waits again, and lands again.
        assert_eq!(kinds(&layer), found);
        land(&mut layer);
        assert_eq!(bench.tree(), new);
        undo(&mut layer);
        assert_eq!(bench.tree(), old);
        layer.discard().unwrap();
        assert!(!bench.layer_path().exists());
        assert_eq!(bench.tree(), old);
    });
}

#[test]
fn digests_modes_and_times_are_those_of_both_sides() {
    let bench = Bench::new();
    bench.host().file("a", "old").mode("a", 0o640);
    let layer = bench.layer(|upper| {
        upper.file("a", "newer").mode("a", 0o600);
    });
    let change = layer.changes().unwrap().changes.remove(0);
    let (before, after) = (change.before.clone().unwrap(), change.after.clone().unwrap());
    assert_eq!((before.mode, before.bytes), (0o640, 3));
    assert_eq!((after.mode, after.bytes), (0o600, 5));
    assert_eq!(before.digest.unwrap(), crate::digest::digest(b"old"));
    assert_eq!(after.digest.unwrap(), crate::digest::digest(b"newer"));
    let content = |side| layer.content(&change, side, 2).unwrap().unwrap();
    assert_eq!((content(ChangeSide::Before).bytes, content(ChangeSide::Before).total), (b"ol".to_vec(), 3));
    assert_eq!((content(ChangeSide::After).bytes, content(ChangeSide::After).total), (b"ne".to_vec(), 5));
}

#[test]
fn contents_of_landed_changes_are_there_until_they_are_undone() {
    both(|bench| {
        bench.host().file("a", "old").link("l", "was");
        let mut layer = bench.layer(|upper| {
            upper.file("a", "new").link("l", "is");
        });
        land(&mut layer);
        drop(layer);
        let layer = bench.store.open_layer(ID).unwrap();
        for change in layer.landed().unwrap() {
            let content = |side| layer.content(&change, side, 100).unwrap().unwrap().bytes;
            let pair = (content(ChangeSide::Before), content(ChangeSide::After));
            match change.path.display().as_str() {
                "a" => assert_eq!(pair, (b"old".to_vec(), b"new".to_vec())),
                _ => assert_eq!(pair, (b"was".to_vec(), b"is".to_vec())),
            }
        }
    });
}

#[test]
fn a_selection_lands_and_the_rest_waits() {
    both(|bench| {
        bench.host().file("a", "a").file("b", "b");
        let old = bench.tree();
        let mut layer = bench.layer(|upper| {
            upper.file("a", "A").file("b", "B").file("new/x", "X").file("new/y", "Y");
        });
        let changes = layer.changes().unwrap();
        let picked = changes.below(&[&bench.root.join("new/x"), &bench.root.join("a")]);
        let names: Vec<String> = picked.iter().map(|change| change.path.display()).collect();
        assert_eq!(names, ["a", "new", "new/x"]);
        let report = layer.land(&LandingSelection::Only(picked)).unwrap();
        assert_eq!(report.landed.len(), 3);
        assert_eq!(layer.state(), LayerState::Pending);
        let waiting: Vec<String> = kinds(&layer).into_iter().map(|(name, _)| name).collect();
        assert_eq!(waiting, ["b", "new/y"]);
        land(&mut layer);
        assert_eq!(layer.state(), LayerState::Landed);
        assert_eq!(bench.host().read("new/y").unwrap(), "Y");
        assert_eq!(layer.landed().unwrap().len(), 5);
        assert_eq!(undo(&mut layer).undone.len(), 5);
        assert_eq!(bench.tree(), old);
    });
}

#[test]
fn what_would_run_with_other_rights_or_is_no_file_never_lands() {
    let bench = Bench::new();
    bench.host().file("was-file", "old").file("dir/inside", "x").node("pipe", FileType::Fifo);
    let old = bench.tree();
    let mut layer = bench.layer(|upper| {
        upper.node("fifo", FileType::Fifo).node("socket", FileType::Socket).file("setuid", "x");
        upper.mode("setuid", 0o4755).file("setgid", "x").mode("setgid", 0o2755);
        upper.node("was-file", FileType::Fifo).node("dir", FileType::Fifo).file("pipe", "now a file");
        upper.file("meta", "").attribute("meta", "user.overlay.metacopy", "");
        upper.directory("moved").attribute("moved", "user.overlay.redirect", "/etc").file("moved/in", "x");
    });
    let changes = layer.changes().unwrap();
    assert_eq!(changes.changes, Vec::new());
    let refused: Vec<(String, UnlandableReason)> =
        changes.refused.iter().map(|entry| (entry.path.display(), entry.reason)).collect();
    let expected = [
        ("dir", UnlandableReason::Fifo),
        ("fifo", UnlandableReason::Fifo),
        ("meta", UnlandableReason::UnknownOverlay),
        ("moved", UnlandableReason::UnknownOverlay),
        ("pipe", UnlandableReason::HostSpecial),
        ("setgid", UnlandableReason::Privileged),
        ("setuid", UnlandableReason::Privileged),
        ("socket", UnlandableReason::Socket),
        ("was-file", UnlandableReason::Fifo),
    ];
    assert_eq!(refused, expected.map(|(name, reason)| (name.to_owned(), reason)));
    let report = layer.land(&LandingSelection::All).unwrap();
    assert_eq!((report.landed.len(), report.refused.len()), (0, expected.len()));
    assert_eq!(bench.tree(), old);
}

#[test]
fn names_of_any_bytes_land() {
    both(|bench| {
        let mut names: Vec<Vec<u8>> =
            (1..=255_u8).filter(|byte| *byte != b'/' && *byte != b'.').map(|byte| vec![byte]).collect();
        names.extend([b"...".to_vec(), b"a\nb \xff\xfe".to_vec(), vec![b'x'; 255], "é".as_bytes().to_vec()]);
        for name in &names {
            bench.host().file(OsStr::from_bytes(name), "old");
        }
        let old = bench.tree();
        let mut layer = bench.layer(|upper| {
            for name in &names {
                upper.file(OsStr::from_bytes(name), "new");
                upper.file(Path::new("below").join(OsStr::from_bytes(name)), "made");
            }
        });
        assert_eq!(land(&mut layer).landed.len(), names.len() * 2 + 1);
        drop(layer);
        for name in &names {
            assert_eq!(fs::read(bench.root.join(OsStr::from_bytes(name))).unwrap(), b"new");
        }
        let mut layer = bench.store.open_layer(ID).unwrap();
        undo(&mut layer);
        assert_eq!(bench.tree(), old);
    });
}

#[test]
fn a_name_can_change_its_case() {
    both(|bench| {
        bench.host().file("Readme", "text");
        let mut layer = bench.layer(|upper| {
            upper.whiteout("Readme").file("readme", "text");
        });
        land(&mut layer);
        assert_eq!(bench.tree().keys().collect::<Vec<_>>(), [Path::new("readme")]);
        undo(&mut layer);
        assert_eq!(bench.tree().keys().collect::<Vec<_>>(), [Path::new("Readme")]);
    });
}

#[test]
fn deep_trees_land_and_deeper_ones_are_refused() {
    both(|bench| {
        let deep: String = vec!["d"; 300].join("/");
        let mut layer = bench.layer(|upper| {
            upper.file(format!("{deep}/file"), "deep");
            let mut at = fs::File::open(upper.path.join(&deep)).unwrap();
            for _ in 0..20 {
                let name = "e".repeat(200);
                rustix::fs::mkdirat(&at, &name, 0o755.into()).unwrap();
                let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
                at = fs::File::from(rustix::fs::openat(&at, &name, flags, 0.into()).unwrap());
            }
        });
        let changes = layer.changes().unwrap();
        assert_eq!(changes.refused.len(), 1);
        assert_eq!(changes.refused[0].reason, UnlandableReason::PathTooLong);
        land(&mut layer);
        assert_eq!(fs::read(bench.root.join(&deep).join("file")).unwrap(), b"deep");
        undo(&mut layer);
        assert!(bench.tree().is_empty());
        layer.discard().unwrap();
    });
}

#[test]
fn attributes_of_overlayfs_stay_in_the_layer_and_all_others_land() {
    both(|bench| {
        bench.host().file("a", "old").attribute("a", "user.mine", "lower");
        let mut layer = bench.layer(|upper| {
            upper.file("a", "new").attribute("a", "user.overlay.origin", "").attribute("a", "user.mine", "1");
            // As a program inside set `user.overlay.own`.
            upper.file("b", "b").attribute("b", "user.overlay.overlay.own", "2");
            upper.directory("d").attribute("d", "user.overlay.impure", "y").attribute("d", "user.mine", "3");
            upper.file("d/x", "x");
            // As a program inside set `user.overlay.opaque`, which would act in an overlay of the host.
            upper.directory("e").attribute("e", "user.overlay.overlay.opaque", "y");
            upper.file("e/x", "x").attribute("e/x", "user.overlay.overlay.metacopy", "");
        });
        for _ in 0..2 {
            land(&mut layer);
            let host = bench.host();
            assert_eq!(host.attribute_of("a", "user.mine").unwrap(), "1");
            assert_eq!(host.attribute_of("a", "user.overlay.origin"), None);
            assert_eq!(host.attribute_of("b", "user.overlay.own"), None);
            assert_eq!(host.attribute_of("e", "user.overlay.opaque"), None);
            assert_eq!(host.attribute_of("e/x", "user.overlay.metacopy"), None);
            assert_eq!(host.attribute_of("b", "user.overlay.overlay.own"), None);
            assert_eq!(host.attribute_of("d", "user.mine").unwrap(), "3");
            assert_eq!(host.attribute_of("d", "user.overlay.impure"), None);
            undo(&mut layer);
            assert_eq!(bench.host().attribute_of("a", "user.mine").unwrap(), "lower");
        }
    });
}

#[test]
fn a_change_of_attributes_alone_is_a_change() {
    let bench = Bench::new();
    bench.host().file("a", "text").attribute("a", "user.mine", "1");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let age = |path: &Path| fs::File::open(path).unwrap().set_modified(time).unwrap();
    age(&bench.root.join("a"));
    let mut layer = bench.layer(|upper| {
        upper.file("a", "text").attribute("a", "user.mine", "2");
        age(&upper.at("a"));
    });
    assert_eq!(kinds(&layer), [("a".to_owned(), ChangeKind::Metadata)]);
    land(&mut layer);
    assert_eq!(bench.host().attribute_of("a", "user.mine").unwrap(), "2");
}

/// Who may write one name must not write the other one, which a person may have approved.
#[test]
fn names_of_one_file_land_as_files_of_their_own() {
    both(|bench| {
        bench.host().file("one", "old").directory("d");
        let old = bench.tree();
        let mut layer = bench.layer(|upper| {
            upper.file("one", "linked").directory("d");
            fs::hard_link(upper.at("one"), upper.at("d/two")).unwrap();
            fs::hard_link(upper.at("one"), upper.at("three")).unwrap();
        });
        let changes = layer.changes().unwrap();
        let one = changes.below(&[&bench.root.join("one")]);
        layer.land(&LandingSelection::Only(one)).unwrap();
        land(&mut layer);
        let links = |name: &str| fs::metadata(bench.root.join(name)).unwrap().nlink();
        assert_eq!(["one", "d/two", "three"].map(links), [1, 1, 1]);
        bench.host().file("one", "written later");
        assert_eq!(bench.host().read("d/two").unwrap(), "linked");
        assert_eq!(bench.host().read("three").unwrap(), "linked");
        bench.host().file("one", "linked");
        undo(&mut layer);
        assert_eq!(bench.tree(), old);
        land(&mut layer);
        assert_eq!(["one", "d/two", "three"].map(links), [1, 1, 1]);
    });
}

#[test]
fn holes_stay_holes() {
    both(|bench| {
        let mut layer = bench.layer(|upper| {
            let mut sparse = fs::File::create(upper.at("sparse")).unwrap();
            sparse.seek(SeekFrom::Start(64 << 20)).unwrap();
            sparse.write_all(b"end").unwrap();
        });
        land(&mut layer);
        let metadata = |name: &str| fs::metadata(bench.root.join(name)).unwrap();
        assert_eq!(metadata("sparse").len(), (64 << 20) + 3);
        assert!(metadata("sparse").blocks() * 512 < 1 << 20);
    });
}

#[test]
fn directories_that_their_owner_cannot_write_or_enter_land() {
    both(|bench| {
        bench.host().file("ro/old", "old").file("ro/gone", "x").file("all/ro/x", "x");
        bench.host().mode("ro", 0o555).mode("all/ro", 0o555);
        let old = bench.tree();
        let mut layer = bench.layer(|upper| {
            upper.file("ro/new", "new").file("ro/old", "changed").whiteout("ro/gone").mode("ro", 0o555);
            upper.whiteout("all");
            upper.file("shut/in/file", "x").mode("shut/in/file", 0).mode("shut/in", 0).mode("shut", 0o300);
        });
        land(&mut layer);
        let tree = bench.tree_as_root();
        let read = |name: &str| tree.get(Path::new(name)).cloned().unwrap_or_default();
        assert_eq!(read("ro"), "directory 555");
        assert!(read("ro/new").ends_with("new") && read("ro/gone").is_empty());
        assert_eq!(read("all"), "");
        assert_eq!(read("shut"), "directory 300");
        assert_eq!(read("shut/in"), "directory 0");
        assert!(read("shut/in/file").starts_with("file 0 "), "{}", read("shut/in/file"));
        undo(&mut layer);
        assert_eq!(bench.tree(), old);
        bench.host().mode("ro", 0o755).mode("all/ro", 0o755);
    });
}

#[test]
fn permissions_of_directories_land_last() {
    both(|bench| {
        bench.host().file("d/x", "x").mode("d", 0o755);
        let old = bench.tree();
        let mut layer = bench.layer(|upper| {
            upper.file("d/y", "y").mode("d", 0o555);
        });
        let found = kinds(&layer);
        assert_eq!(found, [("d".to_owned(), ChangeKind::Metadata), ("d/y".to_owned(), ChangeKind::Created)]);
        land(&mut layer);
        assert_eq!(bench.tree()[Path::new("d")], "directory 555");
        assert!(bench.root.join("d/y").exists());
        undo(&mut layer);
        assert_eq!(bench.tree(), old);
    });
}

#[test]
fn several_roots_land_as_one() {
    let bench = Bench::new();
    let other = Bench::across();
    bench.host().file("a", "old");
    other.host().file("b", "old");
    let mut layer = bench.store.create(ID).unwrap();
    for (root, name) in [(&bench.root, "a"), (&other.root, "b")] {
        let mount = layer.add_root(root).unwrap();
        Upper { path: mount.upper }.file(name, "new");
    }
    layer.close_view().unwrap();
    assert_eq!(layer.roots(), [bench.root.clone(), other.root.clone()]);
    land(&mut layer);
    assert_eq!((bench.host().read("a"), other.host().read("b")), (Some("new".into()), Some("new".into())));
    undo(&mut layer);
    assert_eq!((bench.host().read("a"), other.host().read("b")), (Some("old".into()), Some("old".into())));
}

#[test]
fn landing_nothing_writes_nothing() {
    let bench = Bench::new();
    bench.host().file("a", "a");
    let mut layer = bench.layer(|_| {});
    assert!(layer.changes().unwrap().is_empty());
    assert_eq!(land(&mut layer).landed, Vec::new());
    assert!(!bench.layer_path().join("landings").exists());
}

/// What the host makes later at a place that landed is its own.
#[test]
fn what_landed_hides_nothing_of_the_host() {
    let bench = Bench::new();
    bench.host().file("gone", "old").file("again/old", "old");
    let mut layer = bench.layer(|upper| {
        upper.whiteout("gone").opaque("again").file("again/new", "new").opaque("moved").file("moved/in", "x");
    });
    land(&mut layer);
    bench.host().file("gone", "host").file("again/host", "host").file("moved/host", "host");
    assert_eq!(kinds(&layer), []);
    assert_eq!(land(&mut layer).landed, Vec::new());
    assert_eq!(layer.state(), LayerState::Landed);
    assert_eq!(bench.host().read("again/new").unwrap(), "new");
}

/// A view of the same layer after a landing: what landed is no conflict, what comes on top lands too.
#[test]
fn a_layer_can_be_mounted_again() {
    both(|bench| {
        bench.host().file("a", "1").file("b", "b");
        let old = bench.tree();
        let mut layer = bench.layer(|upper| {
            upper.file("a", "2");
        });
        land(&mut layer);
        let mount = layer.add_root(&bench.root).unwrap();
        assert!(mount.work.ends_with("work.2"));
        assert!(matches!(layer.land(&LandingSelection::All), Err(crate::LayerError::ViewOpen { .. })));
        Upper { path: mount.upper }.file("a", "3").whiteout("b");
        layer.close_view().unwrap();
        land(&mut layer);
        assert_eq!((bench.host().read("a"), bench.host().read("b")), (Some("3".into()), None));
        undo(&mut layer);
        assert_eq!(bench.tree(), old);
    });
}
