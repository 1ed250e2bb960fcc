//! Uppers that overlayfs itself makes, as in a view of a call: in a user and mount namespace of an own child process.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::bench::{Bench, Listing, land, listing, undo};
use crate::{Layer, LayerMount};

/// Runs a script of the shell in a view of the root.
fn in_view(mount: &LayerMount, script: &str) {
    let set_up = r#"mount -t overlay ringfence-test -o "lowerdir=$1,upperdir=$2,workdir=$3,userxattr,volatile,uuid=off" "$1" \
        && cd "$1" && eval "$4""#;
    let output = Command::new("unshare")
        .args(["-Urm", "sh", "-c", set_up, "sh"])
        .args([&mount.root, &mount.upper, &mount.work])
        .arg(script)
        .stdin(Stdio::null())
        .output()
        .expect("a test needs unshare(1)");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {text}");
}

fn directly(root: &Path, script: &str) {
    let status = Command::new("sh")
        .args(["-c", script])
        .current_dir(root)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{script}");
}

fn view(bench: &Bench, script: &str) -> Layer {
    let mut layer = bench.store.create(super::bench::ID).unwrap();
    let mount = layer.add_root(&bench.root).unwrap();
    let before = bench.tree();
    in_view(&mount, script);
    assert_eq!(bench.tree(), before, "the root never changes but by landing");
    layer.close_view().unwrap();
    layer
}

fn agrees(make: &str, script: &str) {
    let direct = tempfile::tempdir().unwrap();
    directly(direct.path(), make);
    directly(direct.path(), script);
    for bench in [Bench::new(), Bench::across()] {
        directly(&bench.root, make);
        let old = bench.tree();
        let mut layer = view(&bench, script);
        let report = land(&mut layer);
        assert_eq!(report.refused, Vec::new());
        assert_eq!(bench.tree(), listing(direct.path()), "{script}");
        no_marks(&bench.root, &bench.tree());
        undo(&mut layer);
        assert_eq!(bench.tree(), old, "{script}");
        layer.discard().unwrap();
    }
}

/// Nothing of overlayfs is left on the host.
fn no_marks(root: &Path, tree: &Listing) {
    for name in tree.keys() {
        let mut list = [0_u8; 4096];
        let length = rustix::fs::llistxattr(root.join(name), &mut list[..]).unwrap();
        let text = String::from_utf8_lossy(&list[..length]).into_owned();
        assert!(!text.contains("overlay"), "{}: {text}", name.display());
    }
}

#[test]
fn a_view_lands_as_if_there_had_been_none() {
    let make = "umask 022; mkdir -p src/deep .hooks; echo 1 >src/a; echo 2 >src/deep/b; echo 3 >c; ln -s c link; \
        printf x >.hooks/h; chmod 644 .hooks/h; mkdir gone; echo 4 >gone/d; echo 5 >swap";
    let script = "umask 022; echo more >>src/a; rm src/deep/b; echo new >src/deep/n; chmod 755 .hooks/h; rm -r gone; \
        mkdir gone; echo other >gone/e; rm swap; mkdir swap; echo in >swap/in; ln -sfn src link; mv c moved; \
        mkdir -p x/y/z; mv x renamed; mkfifo f; rm f; ln moved second; rm src/deep/n; rmdir src/deep; touch src/deep";
    agrees(make, script);
}

/// While the host makes something beside it, too: that does not look as if the host had removed what was renamed.
#[test]
fn what_is_renamed_into_a_new_directory_lands() {
    let bench = Bench::new();
    bench.host().file("a", "1").file("d/b", "1");
    let mut layer = bench.store.create(super::bench::ID).unwrap();
    let mount = layer.add_root(&bench.root).unwrap();
    in_view(&mount, "mkdir -p new/deep && mv a new/ && mv d/b new/deep/");
    std::thread::sleep(std::time::Duration::from_millis(20));
    bench.host().file("host", "host");
    layer.close_view().unwrap();
    land(&mut layer);
    assert_eq!(bench.host().read("new/deep/b").unwrap(), "1");
    assert_eq!(bench.host().read("new/a").unwrap(), "1");
    assert!(!bench.root.join("a").exists() && bench.root.join("host").exists());
}

/// A directory that was changed inside and removed by the host.
#[test]
fn a_directory_that_the_host_removed_meanwhile_is_a_conflict() {
    let bench = Bench::new();
    bench.host().file("d/a", "1").file("d/b", "1");
    let mut layer = bench.store.create(super::bench::ID).unwrap();
    let mount = layer.add_root(&bench.root).unwrap();
    in_view(&mount, "echo 2 >>d/a; echo 3 >d/new");
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::remove_dir_all(bench.root.join("d")).unwrap();
    layer.close_view().unwrap();
    let report = layer.land(&crate::LandingSelection::All).unwrap();
    assert_eq!((report.landed.len(), report.conflicts.len()), (0, 3), "{report:?}");
    assert!(!bench.root.join("d").exists());
}

#[test]
fn git_works_in_a_view_and_its_work_lands() {
    let git = "git -c init.defaultBranch=main -c user.name=t -c user.email=t@example.org";
    let bench = Bench::new();
    directly(
        &bench.root,
        &format!("{git} init -q . && echo 1 >a && {git} add . && {git} commit -qm one >/dev/null"),
    );
    let script = format!(
        "git config --global --add safe.directory '*' && {git} checkout -q -b side && echo 2 >>a && mkdir d && echo 3 >d/b \
         && {git} add -A && {git} commit -qm two && {git} checkout -q main && {git} merge -q --no-edit side \
         && {git} gc -q && {git} branch -d side"
    );
    let home = tempfile::tempdir().unwrap();
    let script = format!("export HOME='{}'; {script}", home.path().display());
    let mut layer = view(&bench, &script);
    land(&mut layer);
    directly(
        &bench.root,
        &format!(
            "test -z \"$({git} --no-optional-locks status --porcelain)\" && {git} fsck --strict && test -f d/b"
        ),
    );
    undo(&mut layer);
    directly(&bench.root, &format!("{git} fsck --strict && test ! -e d"));
}

#[test]
fn a_file_that_the_host_removed_meanwhile_is_a_conflict() {
    let bench = Bench::new();
    bench.host().file("a", "1").file("b", "1");
    let mut layer = bench.store.create(super::bench::ID).unwrap();
    let mount = layer.add_root(&bench.root).unwrap();
    in_view(&mount, "echo 2 >>a");
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::remove_file(bench.root.join("a")).unwrap();
    layer.close_view().unwrap();
    let report = layer.land(&crate::LandingSelection::All).unwrap();
    assert_eq!(report.conflicts.len(), 1, "{report:?}");
    assert!(!bench.root.join("a").exists());
}

/// One step of a program that changes files. Steps that cannot be done are not done, in the view and without it.
fn step() -> impl Strategy<Value = String> {
    let name =
        prop::sample::select(vec!["a", "b", "d", "d/a", "d/e", "d/e/f", "g", "g/a", "g/h", "'s p'", "l"]);
    let verb = prop::sample::select(vec![
        "echo text >{1}",
        "echo more >>{1}",
        "rm -rf {1}",
        "rm -f {1}",
        "mkdir {1}",
        "mkdir -p {1}",
        "rmdir {1}",
        "mv {1} {2}",
        "mv -T {1} {2}",
        // Under a fresh name first: what a copy of a directory into itself comes to depends on the order of its entries.
        "cp -a {1} .copy && mv -T .copy {2}",
        "ln -sfn {1} {2}",
        "chmod 700 {1}",
        "chmod 751 {1}",
        "echo atomic >.new && mv -T .new {1}",
        "rm -rf {1} && mkdir {1} && echo again >{1}/a",
    ]);
    (verb, name.clone(), name).prop_map(|(verb, one, two)| {
        let step = verb.replace("{1}", one).replace("{2}", two);
        format!("({step}) 2>/dev/null || true")
    })
}

fn program(steps: &[String]) -> String {
    steps.iter().fold("umask 022".to_owned(), |mut text, step| {
        let _infallible = write!(text, "; {step}");
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// What a program does in a view and what it does without one is the same after the landing, and undo is exact.
    #[test]
    fn any_program_does_the_same_in_a_view(
        make in prop::collection::vec(step(), 0..12),
        work in prop::collection::vec(step(), 1..14),
    ) {
        agrees(&program(&make), &program(&work));
    }
}
