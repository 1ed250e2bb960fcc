//! The process is killed after each single step that changes a file system.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::bench::{Bench, ID, Listing, Upper, land, undo};
use crate::{
    LandingDirection, LandingRecoveryOutcome, LandingSelection, LaterChanges, LayerError, LayerStore,
    UndoOutcome, fault,
};

/// What the process that is killed does, at which point it ends, and the store.
const ORDER: &str = "RINGFENCE_LAYER_CRASH";

/// The least number of places at which landings and undos are killed in all.
const POINTS: u64 = 300;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verb {
    Land,
    Undo,
    Close,
}

impl Verb {
    fn word(self) -> &'static str {
        match self {
            Self::Land => "land",
            Self::Undo => "undo",
            Self::Close => "close",
        }
    }
}

fn host(host: &Upper) {
    for number in 0..6 {
        host.file(format!("edit-{number}"), "old");
    }
    host.file("gone", "old").file("tree/a/b", "old").file("again/old", "old").file("becomes-dir", "old");
    host.file("becomes-file/x", "old").link("link", "old").file("locked/x", "old").mode("locked", 0o555);
    host.file("ro", "old").mode("ro", 0o400);
}

fn upper(upper: &Upper) {
    for number in 0..6 {
        upper.file(format!("edit-{number}"), "new").attribute(
            &format!("edit-{number}"),
            "user.overlay.origin",
            "",
        );
    }
    upper.whiteout("gone").whiteout("tree").opaque("again").file("again/new", "new");
    upper.file("becomes-dir/in", "new").file("becomes-file", "new").link("link", "new");
    upper.file("locked/y", "new").mode("locked", 0o555).file("fresh/d/f", "new").file("fresh/e", "new");
    upper.file("ro", "new").mode("ro", 0o400).attribute_or_root("ro");
    upper.file("escaped", "new").attribute("escaped", "user.overlay.overlay.x", "1");
}

impl Upper {
    /// A file that its owner may not write can have no new attribute, unless the owner is root.
    fn attribute_or_root(&self, name: &str) -> &Self {
        if rustix::process::geteuid().is_root() {
            self.attribute(name, "user.overlay.origin", "");
        }
        self
    }
}

/// In the process that is killed. In any other there is no order, and nothing to do.
#[test]
fn the_process_that_is_killed() {
    #[expect(clippy::disallowed_methods, reason = "the order of the test that started this process")]
    let Ok(order) = std::env::var(ORDER) else { return };
    let mut words = order.splitn(3, ' ');
    let (verb, point, store) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
    let store = LayerStore::open(Path::new(store)).unwrap();
    let mut layer = store.open_layer(ID).unwrap();
    fault::arm(point.parse().unwrap());
    match verb {
        "land" => drop(layer.land(&LandingSelection::All).unwrap()),
        "close" => layer.close_view().unwrap(),
        _ => {
            let outcome = layer.undo(LaterChanges::Refuse).unwrap();
            assert!(matches!(outcome, UndoOutcome::Undone(_)));
        }
    }
    println!("reached {}", fault::reached());
}

/// Whether the process was killed. If not, it reached its end.
fn killed(bench: &Bench, verb: Verb, point: u64) -> bool {
    let order = format!("{} {point} {}", verb.word(), bench.store.path().display());
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::crash::the_process_that_is_killed", "--nocapture"])
        .env(ORDER, order)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    match output.status.signal() {
        Some(signal) => {
            assert_eq!(signal, 9);
            true
        }
        None => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("reached "), "{text}");
            false
        }
    }
}

/// Each entry is that of one side; where one was a directory and the other is not, neither may be there for the time of the
/// landing only if the other side has nothing there.
fn is_old_or_new(seen: &Listing, old: &Listing, new: &Listing) {
    for (path, text) in seen {
        let ours = path.to_string_lossy().contains(".ringfence-");
        let known = [old.get(path), new.get(path)].contains(&Some(text));
        // Permissions of directories are set last.
        let directory = text.starts_with("directory");
        assert!(ours || known || directory, "{}: {text}", path.display());
    }
    for (path, text) in old {
        let kept = new.contains_key(path) && !text.starts_with("directory");
        assert!(!kept || seen.contains_key(path), "{} is missing", path.display());
    }
}

fn clean(bench: &Bench) {
    let names = bench.tree().into_keys();
    let ours: Vec<_> = names.filter(|name| name.to_string_lossy().contains(".ringfence")).collect();
    assert_eq!(ours, Vec::<std::path::PathBuf>::new());
    let journals = fs::read_dir(bench.store.path().join(".journals")).unwrap();
    assert_eq!(
        journals.filter(|entry| entry.as_ref().unwrap().path().extension().unwrap() == "json").count(),
        0
    );
}

struct Sides {
    old: Listing,
    new: Listing,
}

fn sides(make: fn() -> Bench) -> Sides {
    let bench = make();
    host(&bench.host());
    let old = bench.tree();
    let mut layer = bench.layer(upper);
    land(&mut layer);
    let new = bench.tree();
    undo(&mut layer);
    assert_eq!(bench.tree(), old);
    unlock(&bench);
    Sides { old, new }
}

/// So that the directory can be removed.
fn unlock(bench: &Bench) {
    bench.host().mode("locked", 0o755);
}

/// Kills at one point, and looks at what is there then and after the next start. Whether it was killed.
fn kill_at(make: fn() -> Bench, verb: Verb, point: u64, sides: &Sides) -> bool {
    let bench = make();
    host(&bench.host());
    let mut layer = bench.layer(upper);
    if verb == Verb::Undo {
        land(&mut layer);
    }
    drop(layer);
    if !killed(&bench, verb, point) {
        let expected = if verb == Verb::Land { &sides.new } else { &sides.old };
        assert_eq!(bench.tree(), *expected);
        unlock(&bench);
        return false;
    }
    is_old_or_new(&bench.tree(), &sides.old, &sides.new);
    let interrupted = matches!(bench.store.open_layer(ID), Err(LayerError::Interrupted { .. }));
    let recovered = bench.store.recover();
    assert_eq!(recovered.len(), usize::from(interrupted), "{recovered:?}");
    let (before, after) = match verb {
        Verb::Land => (&sides.old, &sides.new),
        Verb::Undo | Verb::Close => (&sides.new, &sides.old),
    };
    let mut completed = bench.tree() == *after;
    for recovery in recovered {
        let recovery = recovery.unwrap();
        let direction = if verb == Verb::Land { LandingDirection::Land } else { LandingDirection::Undo };
        assert_eq!((recovery.layer.as_str(), recovery.direction), (ID, direction));
        assert_eq!(recovery.report.conflicts, Vec::new());
        completed = recovery.outcome == LandingRecoveryOutcome::Completed;
    }
    assert_eq!(bench.tree(), if completed { after.clone() } else { before.clone() });
    clean(&bench);
    assert!(bench.store.recover().is_empty());
    // Nothing is lost: from either side the other one can be reached.
    let mut layer = bench.store.open_layer(ID).unwrap();
    for _ in 0..2 {
        if bench.tree() == sides.old {
            land(&mut layer);
            assert_eq!(bench.tree(), sides.new);
        } else {
            undo(&mut layer);
            assert_eq!(bench.tree(), sides.old);
        }
    }
    clean(&bench);
    unlock(&bench);
    true
}

fn kill_everywhere(make: fn() -> Bench, verb: Verb) -> u64 {
    let sides = sides(make);
    let mut point = 0;
    loop {
        point += 1;
        if !kill_at(make, verb, point, &sides) {
            return point - 1;
        }
    }
}

/// Both on one file system.
#[test]
fn a_landing_that_is_killed_leaves_old_or_new() {
    assert!(kill_everywhere(Bench::new, Verb::Land) >= POINTS / 4);
}

#[test]
fn an_undo_that_is_killed_leaves_old_or_new() {
    assert!(kill_everywhere(Bench::new, Verb::Undo) >= POINTS / 4);
}

#[test]
fn a_landing_across_file_systems_that_is_killed_leaves_old_or_new() {
    assert!(kill_everywhere(Bench::across, Verb::Land) >= POINTS / 4);
}

#[test]
fn an_undo_across_file_systems_that_is_killed_leaves_old_or_new() {
    assert!(kill_everywhere(Bench::across, Verb::Undo) >= POINTS / 4);
}

/// The view is being closed: nothing of the host is touched, and closing it again is enough.
#[test]
fn closing_a_view_can_be_killed_and_repeated() {
    let sides = sides(Bench::new);
    let mut point = 0;
    loop {
        point += 1;
        let bench = Bench::new();
        host(&bench.host());
        let mut layer = bench.store.create(ID).unwrap();
        upper(&Upper { path: layer.add_root(&bench.root).unwrap().upper });
        drop(layer);
        let was_killed = killed(&bench, Verb::Close, point);
        assert_eq!(bench.tree(), sides.old);
        let mut layer = bench.store.open_layer(ID).unwrap();
        layer.close_view().unwrap();
        land(&mut layer);
        assert_eq!(bench.tree(), sides.new);
        unlock(&bench);
        if !was_killed {
            break;
        }
    }
    assert!(point > 5, "{point}");
}

/// The recovery is killed, too.
#[test]
fn a_recovery_that_is_killed_is_repeated() {
    let sides = sides(Bench::new);
    for first in (10..80).step_by(7) {
        let bench = Bench::new();
        host(&bench.host());
        drop(bench.layer(upper));
        assert!(killed(&bench, Verb::Land, first));
        for second in 1..6 {
            recover_killed(&bench, second * 5);
        }
        let completed = bench
            .store
            .recover()
            .iter()
            .all(|recovery| recovery.as_ref().unwrap().outcome == LandingRecoveryOutcome::Completed);
        let tree = bench.tree();
        assert!(tree == sides.new || (tree == sides.old), "{first}: {completed}");
        clean(&bench);
        unlock(&bench);
    }
}

fn recover_killed(bench: &Bench, point: u64) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::crash::the_recovery_that_is_killed", "--nocapture"])
        .env(ORDER, format!("recover {point} {}", bench.store.path().display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success() || status.signal() == Some(9), "{status}");
}

/// In the process that is killed.
#[test]
fn the_recovery_that_is_killed() {
    #[expect(clippy::disallowed_methods, reason = "the order of the test that started this process")]
    let Ok(order) = std::env::var(ORDER) else { return };
    let mut words = order.splitn(3, ' ').skip(1);
    let (point, store) = (words.next().unwrap(), words.next().unwrap());
    let store = LayerStore::open(Path::new(store)).unwrap();
    fault::arm(point.parse().unwrap());
    for recovery in store.recover() {
        recovery.unwrap();
    }
}
