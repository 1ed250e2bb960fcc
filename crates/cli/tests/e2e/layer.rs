//! `ringfence try`, `changes`, `commit`, `discard`, `undo`: nothing changes on the host before it is committed, and then
//! exactly that.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::approval::session;
use crate::approvals::{CONFIRM, Watcher, configure, events};
use crate::terminal::Terminal;
use crate::testkit::{Done, World, collect, contains, eventually, finish};

/// Content, permissions and kind of everything below a directory: `Err` is the target of a link.
pub(crate) type Tree = BTreeMap<PathBuf, (u32, Result<Vec<u8>, PathBuf>)>;

pub(crate) fn tree(root: &Path) -> Tree {
    let mut found = vec![root.to_owned()];
    let mut all = BTreeMap::new();
    while let Some(path) = found.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = match () {
            () if metadata.is_symlink() => Err(fs::read_link(&path).unwrap()),
            () if metadata.is_file() => Ok(fs::read(&path).unwrap()),
            () => Ok(Vec::new()),
        };
        if metadata.is_dir() {
            found.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        all.insert(path.strip_prefix(root).unwrap().to_owned(), (metadata.permissions().mode(), content));
    }
    all
}

impl World {
    pub(crate) fn layers(&self, arguments: &[&str]) -> Done {
        finish(self.ringfence().args(arguments), b"")
    }

    pub(crate) fn try_sh(&self, script: &str) -> Done {
        self.layers(&["try", "--", "sh", "-c", script])
    }

    /// Tries a script that must succeed, and gives the id of the layer.
    #[track_caller]
    pub(crate) fn tried(&self, script: &str) -> String {
        let before = tree(&self.workspace);
        let result = self.layers(&["try", "--json", "--", "sh", "-c", script]).expect(0).json();
        assert_eq!(result["exit_code"], 0, "{result}");
        assert_eq!(tree(&self.workspace), before, "trying changes nothing");
        result["layer"]["id"].as_str().unwrap_or_else(|| panic!("nothing waits: {result}")).to_owned()
    }

    pub(crate) fn changes_of(&self, id: &str) -> Value {
        self.layers(&["changes", id, "--json"]).expect(0).json()
    }

    fn layer_directories(&self) -> usize {
        fs::read_dir(self.state.join("ringfence/layers")).map_or(0, |entries| {
            entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("tx_")).count()
        })
    }
}

/// One of everything that can change.
pub(crate) fn prepare(world: &World) {
    world.write("a", "1\n2\n3\n");
    world.write("gone", "gone\n");
    world.write("kept", "kept\n");
    world.write("old/deep/x", "x\n");
    world.write("becomes/a-file", "x");
    world.write("mode", "mode\n");
    symlink("a", world.workspace.join("link")).unwrap();
    for (path, mode) in [("a", 0o750), ("mode", 0o644), ("old", 0o755), ("gone", 0o600)] {
        fs::set_permissions(world.workspace.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Changes, makes and removes files, directories and links.
pub(crate) const SCRIPT: &str = "set -e; umask 022
printf '1\\ntwo\\n3\\n' >a
rm gone
rm -r old
mkdir -p new/deep
printf 'fresh\\n' >new/deep/b
printf '#!/bin/sh\\n' >new/run; chmod 755 new/run
ln -sfn kept link
ln -s nowhere new/dangling
chmod 600 mode
rm -r becomes; printf file >becomes
: >\"$(printf 'odd\\nname \\342\\202\\254')\"
mkdir empty";

#[test]
fn trying_changes_nothing_and_committing_lands_exactly_that() {
    let (world, control) = (World::new(), World::new());
    prepare(&world);
    prepare(&control);
    control.sh(SCRIPT).expect(0);
    let before = tree(&world.workspace);
    let done = world.try_sh(&format!("{SCRIPT}\ncat new/deep/b; exit 3")).expect(3);
    assert_eq!(done.text(), "fresh\n", "the command sees its own changes");
    assert_eq!(tree(&world.workspace), before, "and nobody else does");
    for part in
        ["created", "deleted", "ringfence changes tx_", "ringfence commit tx_", "ringfence discard tx_"]
    {
        assert!(done.err.contains(part), "{}", done.err);
    }
    let shown = world.layers(&["changes"]).expect(0);
    assert!(
        shown.text().contains("new/deep/b (new)") && shown.text().contains("gone (gone)"),
        "{}",
        shown.text()
    );
    assert_eq!(tree(&world.workspace), before);
    let done = world.layers(&["commit"]).expect(0);
    assert!(done.text().contains("committed"), "{}", done.text());
    assert_eq!(tree(&world.workspace), tree(&control.workspace), "as if it had run there");
    let again = world.layers(&["commit"]).expect(125);
    assert!(again.err.contains("no changes wait") && again.err.contains("ringfence try"), "{}", again.err);
    world.ledger_tool(&["verify"]).expect(0);
}

/// The diff is one: git takes it.
#[test]
fn git_applies_the_patch() {
    let (world, other) = (World::new(), World::new());
    for world in [&world, &other] {
        world.repository();
        world.write("sub/a", "1\n2\n3\n");
        world.write("gone", "gone\n");
    }
    let id = world.tried("printf '1\\ntwo\\n3\\n' >sub/a; rm gone; mkdir new; echo x >new/b; printf '#!/bin/sh\\n' >run; chmod 755 run");
    let patch = world.layers(&["changes", &id, "--patch"]).expect(0);
    finish(other.host("git").args(["apply", "-"]), &patch.out).expect(0);
    world.layers(&["commit", &id]).expect(0);
    for path in ["sub/a", "gone", "new/b", "run"] {
        assert_eq!(other.read(path), world.read(path), "{path}");
    }
}

#[test]
fn a_command_that_changes_nothing_leaves_no_layer() {
    let world = World::new();
    prepare(&world);
    let done = world.try_sh("cat a; exit 7").expect(7);
    assert!(done.err.contains("nothing changed"), "{}", done.err);
    assert_eq!(world.layer_directories(), 0);
    let result = world.layers(&["try", "--json", "--", "true"]).expect(0).json();
    assert_eq!(result.get("layer"), None, "{result}");
}

#[test]
fn some_paths_land_and_the_rest_waits() {
    let world = World::new();
    prepare(&world);
    let before = tree(&world.workspace);
    let id = world.tried(SCRIPT);
    let done = world.layers(&["commit", &id, "new/deep", "a"]).expect(0);
    assert!(done.err.contains(&format!("ringfence undo {id}")), "{}", done.err);
    assert_eq!(world.read("a").as_deref(), Some("1\ntwo\n3\n"));
    assert_eq!(world.read("new/deep/b").as_deref(), Some("fresh\n"));
    assert!(!world.workspace.join("new/run").exists() && world.workspace.join("gone").exists());
    let waits = world.changes_of(&id);
    let paths: Vec<&str> =
        waits["changes"].as_array().unwrap().iter().filter_map(|change| change["path"].as_str()).collect();
    assert!(paths.iter().any(|path| path.ends_with("/gone")), "{paths:?}");
    assert!(!paths.iter().any(|path| path.ends_with("/a")), "{paths:?}");
    world.layers(&["commit", &id, "--except", "gone", "--except", "old"]).expect(0);
    assert!(world.workspace.join("gone").exists() && world.workspace.join("old/deep/x").exists());
    assert!(world.workspace.join("new/run").exists());
    let none = world.layers(&["commit", &id, "nowhere"]).expect(126);
    assert!(none.err.contains("nothing in") && none.err.contains("landing.nothing"), "{}", none.err);
    world.layers(&["undo", &id]).expect(0);
    assert_eq!(tree(&world.workspace), before, "both landings are taken back");
}

#[test]
fn what_is_discarded_is_gone() {
    let world = World::new();
    prepare(&world);
    let before = tree(&world.workspace);
    let id = world.tried(SCRIPT);
    assert_eq!(world.layer_directories(), 1);
    let done = world.layers(&["discard"]).expect(0);
    assert!(done.text().contains(&id), "{}", done.text());
    assert_eq!((tree(&world.workspace), world.layer_directories()), (before, 0));
    let gone = world.layers(&["commit", &id]).expect(125);
    assert!(gone.err.contains("is no layer") && gone.err.contains("changes --all"), "{}", gone.err);
    let records = world.records();
    assert_eq!(events(&records, "layer-discarded")[0]["layer"], id.as_str());
}

#[test]
fn what_landed_of_a_part_can_be_taken_back_after_the_rest_is_discarded() {
    let world = World::new();
    prepare(&world);
    let before = tree(&world.workspace);
    let id = world.tried(SCRIPT);
    world.layers(&["commit", &id, "a", "new/deep"]).expect(0);
    let landed = tree(&world.workspace);
    let done = world.layers(&["discard"]).expect(0);
    assert!(done.err.contains(&format!("ringfence undo {id}")), "{}", done.err);
    assert_eq!(tree(&world.workspace), landed);
    assert_eq!(world.changes_of(&id)["changes"].as_array().unwrap().len(), 0, "nothing waits any more");
    world.layers(&["undo"]).expect(0);
    assert_eq!(tree(&world.workspace), before);
}

#[test]
fn what_is_kept_aside_is_discarded_only_with_force() {
    let world = World::new();
    prepare(&world);
    let id = world.tried("echo landed >a");
    world.layers(&["commit"]).expect(0);
    world.write("a", "by hand\n");
    let done = world.layers(&["undo", "--force"]).expect(0);
    let kept =
        done.err.rsplit("kept as `").next().and_then(|rest| rest.split('`').next()).unwrap().to_owned();
    let refused = world.layers(&["discard", &id]).expect(125);
    let directory = Path::new(&kept).parent().unwrap().display().to_string();
    for part in [directory.as_str(), &format!("ringfence discard {id} --force")] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
    assert_eq!(fs::read_to_string(&kept).unwrap(), "by hand\n");
    world.layers(&["discard", &id, "--force"]).expect(0);
    assert!(!Path::new(&kept).exists());
    assert_eq!(world.layer_directories(), 0);
}

/// The layer that landed last, not the one that was made last.
#[test]
fn undo_without_an_id_takes_back_what_landed_last() {
    let world = World::new();
    prepare(&world);
    let (older, newer) = (world.tried("echo older >a"), world.tried("echo newer >kept"));
    world.layers(&["commit", &newer]).expect(0);
    world.layers(&["commit", &older]).expect(0);
    let done = world.layers(&["undo"]).expect(0);
    assert!(done.text().contains(&older), "{}", done.text());
    let done = world.layers(&["undo"]).expect(0);
    assert!(done.text().contains(&newer), "{}", done.text());
    let none = world.layers(&["undo"]).expect(125);
    assert!(none.err.contains("nothing has landed"), "{}", none.err);
}

#[test]
fn undo_brings_back_bytes_permissions_links_and_deletions() {
    let world = World::new();
    prepare(&world);
    let before = tree(&world.workspace);
    let id = world.tried(SCRIPT);
    world.layers(&["commit"]).expect(0);
    assert_ne!(tree(&world.workspace), before, "the control: it had landed");
    let done = world.layers(&["undo"]).expect(0);
    assert!(done.text().contains(&id), "{}", done.text());
    assert_eq!(tree(&world.workspace), before);
    let twice = world.layers(&["undo", &id]).expect(125);
    assert!(twice.err.contains("no change of") && twice.err.contains("ringfence commit"), "{}", twice.err);
    // What was taken back waits again.
    world.layers(&["commit", &id]).expect(0);
    assert_eq!(world.read("a").as_deref(), Some("1\ntwo\n3\n"));
    let records = world.records();
    let actions: Vec<&str> =
        events(&records, "changes-landed").iter().filter_map(|event| event["action"].as_str()).collect();
    assert_eq!(actions, ["commit", "undo", "commit"]);
}

#[test]
fn undo_is_refused_where_something_changed_since_and_force_keeps_it_aside() {
    let world = World::new();
    prepare(&world);
    let id = world.tried("echo landed >a; rm gone");
    world.layers(&["commit"]).expect(0);
    world.write("a", "by hand\n");
    let refused = world.layers(&["undo", &id]).expect(126);
    for part in ["landing.conflict", "/a`", &format!("ringfence undo {id} --force")] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
    assert_eq!(world.read("a").as_deref(), Some("by hand\n"));
    assert!(!world.workspace.join("gone").exists(), "nothing was taken back");
    let done = world.layers(&["undo", &id, "--force"]).expect(0);
    assert_eq!(world.read("a").as_deref(), Some("1\n2\n3\n"));
    assert!(world.workspace.join("gone").exists());
    let kept = done.err.rsplit("kept as `").next().and_then(|rest| rest.split('`').next()).unwrap();
    assert_eq!(fs::read_to_string(kept).unwrap(), "by hand\n", "{}", done.err);
}

/// Three ways: the base, what the host has now, what the layer has.
#[test]
fn what_the_host_changed_meanwhile_is_kept_and_the_rest_lands() {
    let world = World::new();
    prepare(&world);
    let id = world.tried("echo inside >a; echo inside >kept; echo inside >made; rm gone");
    world.write("a", "by hand\n");
    world.write("made", "by hand\n");
    fs::remove_file(world.workspace.join("gone")).unwrap();
    let done = world.layers(&["commit"]).expect(126);
    for part in ["landing.conflict", "/a`: it was changed on the host", "/made`: ", "both versions are kept"]
    {
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }
    assert_eq!(world.read("a").as_deref(), Some("by hand\n"));
    assert_eq!(world.read("made").as_deref(), Some("by hand\n"));
    assert_eq!(world.read("kept").as_deref(), Some("inside\n"), "the rest lands");
    let patch = world.layers(&["changes", &id, "--patch"]).expect(0).text();
    assert!(patch.contains("-by hand\n+inside\n"), "the layer still has its own: {patch}");
    let records = world.records();
    let landed = events(&records, "changes-landed");
    let unlanded = landed[0]["unlanded"].as_array().unwrap();
    assert!(unlanded.iter().any(|entry| entry["path"].as_str().unwrap().ends_with("/a")), "{unlanded:?}");
}

const HOOK: &str = "printf '#!/bin/sh\\ntouch ran-on-the-host\\n' >.git/hooks/pre-commit; chmod 755 .git/hooks/pre-commit; git config alias.x '!touch pwned'; echo work >work";

/// `ringfence commit`, answered by a watching operator.
fn answered(world: &World, watcher: &Watcher, keys: &[u8]) -> Done {
    let count = || watcher.terminal.seen().matches(CONFIRM).count();
    let before = count();
    std::thread::scope(|scope| {
        let done = scope.spawn(|| world.layers(&["commit"]));
        eventually("the question is shown", || count() > before);
        watcher.terminal.type_in(keys);
        done.join().unwrap()
    })
}

/// It works in the view, and lands only after a yes.
#[test]
fn protected_paths_land_only_after_an_approval() {
    let world = World::new();
    world.repository();
    let config = world.read(".git/config");
    let done = world.try_sh(&format!("{HOOK}; git x; test -e pwned && git config --get alias.x")).expect(0);
    assert!(done.text().contains("!touch pwned"), "the control: it is writable inside: {}", done.err);
    assert!(
        done.err.contains("are protected: ") && done.err.contains(".git/hooks/pre-commit"),
        "{}",
        done.err
    );
    assert_eq!(world.read(".git/config"), config);
    let refused = world.layers(&["commit"]).expect(126);
    assert!(refused.err.contains("landing.protected") && refused.err.contains("--except"), "{}", refused.err);
    assert!(!world.workspace.join("work").exists(), "all or nothing");
    world.layers(&["commit", "--except", ".git"]).expect(0);
    assert_eq!(world.read("work").as_deref(), Some("work\n"));
    assert_eq!((world.read(".git/config"), world.read(".git/hooks/pre-commit")), (config, None));
    // The whole prompt at once, with the diff.
    let watcher = Watcher::at(&world, Terminal::new(120, 160));
    let denied = answered(&world, &watcher, b"no\r").expect(126);
    assert!(denied.err.contains("approval.denied"), "{}", denied.err);
    assert_eq!(world.read(".git/hooks/pre-commit"), None);
    answered(&world, &watcher, b"yes\r").expect(0);
    let shown = watcher.terminal.seen();
    for part in [
        "of a layer land in the workspace?",
        ".git/hooks/pre-commit",
        "+touch ran-on-the-host",
        "landing.protected",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(world.read(".git/hooks/pre-commit").unwrap().contains("ran-on-the-host"));
    assert!(world.read(".git/config").unwrap().contains("touch pwned"), "approved is not taken away again");
}

#[test]
fn where_approvals_are_off_protected_and_hidden_paths_are_refused() {
    let world = World::new();
    world.repository();
    configure(&world, "approval = \"never\"\n");
    let id = world.tried(HOOK);
    let refused = world.layers(&["commit", &id]).expect(126);
    assert!(
        refused.err.contains("landing.protected") && refused.err.contains("approvals are off"),
        "{}",
        refused.err
    );
    let hidden = world.tried("echo KEY=1 >.env");
    let refused = world.layers(&["commit", &hidden]).expect(126);
    assert!(refused.err.contains("landing.hidden"), "{}", refused.err);
    assert!(!world.workspace.join("work").exists() && !world.workspace.join(".env").exists());
    world.layers(&["commit", &id, "work"]).expect(0);
}

/// A bare repository is one whatever it is called.
#[test]
fn hooks_of_a_repository_with_another_name_are_protected_too() {
    let world = World::new();
    let id = world
        .tried("git init -q --bare store; rm -f store/hooks/*; echo '#!/bin/sh' >store/hooks/post-update");
    let judged = world.changes_of(&id);
    let rule = |end: &str| {
        let changes = judged["changes"].as_array().unwrap();
        let change = changes.iter().find(|change| change["path"].as_str().unwrap().ends_with(end)).unwrap();
        change["rule"].as_str().unwrap().to_owned()
    };
    assert_eq!(rule("store/hooks/post-update"), "landing.protected");
    assert_eq!(rule("store/config"), "landing.protected");
    assert_eq!(rule("store/HEAD"), "path.open");
}

fn token() -> String {
    format!("{}{}", concat!("gh", "p_"), "A1b2C3".repeat(6))
}

#[test]
fn a_secret_that_would_land_needs_a_yes() {
    let world = World::new();
    world.write("input", format!("key = {}\n", token()));
    let id = world.tried("cp input copy; echo fine >other");
    let refused = world.layers(&["commit", &id]).expect(126);
    assert!(refused.err.contains("secrets.introduced") && refused.err.contains("copy:1"), "{}", refused.err);
    assert!(!world.workspace.join("copy").exists() && !world.workspace.join("other").exists());
    world.layers(&["commit", &id, "--except", "copy"]).expect(0);
    assert_eq!(world.read("other").as_deref(), Some("fine\n"));
}

/// S001-2: who changed what, with what it was before and what it is now.
#[test]
fn the_ledger_has_every_landed_path_with_digests_and_the_intent_first() {
    let world = World::new();
    prepare(&world);
    let id = world.tried("printf 'new\\n' >a; printf b >b; rm gone");
    world.layers(&["commit"]).expect(0);
    let records = world.records();
    let kinds: Vec<&str> = records.iter().filter_map(|record| record["event"]["kind"].as_str()).collect();
    let tail: Vec<&str> = kinds.iter().rev().take(3).rev().copied().collect();
    assert_eq!(tail, ["call-intended", "changes-landed", "call-settled"]);
    let intents = events(&records, "call-intended");
    let landing = &intents.last().unwrap()["call"];
    assert_eq!((landing["kind"].as_str(), landing["layer"].as_str()), (Some("land"), Some(id.as_str())));
    let entry = |end: &str| {
        let entries = landing["entries"].as_array().unwrap();
        entries.iter().find(|entry| entry["path"].as_str().unwrap().ends_with(end)).unwrap()
    };
    let digest = |text: &str| sha256(text.as_bytes());
    assert_eq!(entry("/a")["before"]["sha256"], digest("1\n2\n3\n").as_str());
    assert_eq!(entry("/a")["after"]["sha256"], digest("new\n").as_str());
    assert_eq!(
        (&entry("/b")["before"], &entry("/b")["after"]["sha256"]),
        (&Value::Null, &digest("b").into())
    );
    assert_eq!(entry("/gone")["after"], Value::Null);
    let transaction = intents.last().unwrap()["transaction"].as_str().unwrap();
    let shown = world.ledger_tool(&["show", transaction]).expect(0).text();
    assert!(shown.contains(&digest("new\n")), "{shown}");
    world.ledger_tool(&["verify"]).expect(0);
}

fn sha256(bytes: &[u8]) -> String {
    let done =
        finish(std::process::Command::new("sha256sum").env_clear().env("PATH", "/usr/bin:/bin"), bytes);
    done.text().split(' ').next().unwrap().to_owned()
}

#[test]
fn two_layers_of_one_workspace_know_nothing_of_each_other() {
    let world = World::new();
    prepare(&world);
    let first = world.tried("echo first >a; echo first >one");
    let second = world.tried("test ! -e one && echo second >a; echo second >two");
    let listed = world.layers(&["changes", "--all", "--json"]).expect(0).json();
    let ids: Vec<&str> =
        listed["layers"].as_array().unwrap().iter().filter_map(|layer| layer["id"].as_str()).collect();
    assert_eq!(ids, [second.as_str(), &first], "the newest first");
    let several = world.layers(&["commit", "tx_"]).expect(125);
    assert!(several.err.contains(&first) && several.err.contains(&second), "{}", several.err);
    world.layers(&["commit", &first]).expect(0);
    let conflict = world.layers(&["commit", &second]).expect(126);
    assert!(conflict.err.contains("landing.conflict"), "{}", conflict.err);
    assert_eq!(
        (world.read("a").as_deref(), world.read("two").as_deref()),
        (Some("first\n"), Some("second\n"))
    );
    // A second one that depends on what landed first: the first cannot be taken back below it.
    world.layers(&["discard", &second]).expect(0);
    let third = world.tried("echo third >a");
    world.layers(&["commit", &third]).expect(0);
    world.layers(&["undo", &first]).expect(126);
    world.layers(&["undo", &third]).expect(0);
    world.layers(&["undo", &first]).expect(0);
    assert_eq!(world.read("a").as_deref(), Some("1\n2\n3\n"));
}

#[test]
fn what_never_lands_is_told_and_the_rest_lands() {
    let world = World::new();
    prepare(&world);
    let done = world.try_sh("mkfifo pipe; cp /bin/true tool; chmod 4755 tool; echo fine >fine").expect(0);
    assert!(done.err.contains("left out for good") && done.err.contains("pipe"), "{}", done.err);
    let done = world.layers(&["commit"]).expect(0);
    assert_eq!(world.read("fine").as_deref(), Some("fine\n"), "{}", done.err);
    let found = |name: &str| fs::symlink_metadata(world.workspace.join(name)).ok();
    assert!(found("pipe").is_none_or(|found| !found.file_type().is_fifo()));
    assert!(found("tool").is_none_or(|found| found.permissions().mode() & 0o6000 == 0));
}

#[test]
fn ids_and_paths_that_mean_nothing_are_errors_with_a_next_step() {
    let world = World::new();
    prepare(&world);
    for command in ["commit", "discard", "undo", "changes"] {
        let nothing = world.layers(&[command]).expect(125);
        assert!(nothing.err.contains("  hint: "), "{command}: {}", nothing.err);
        for id in ["tx_../../../../etc", "tx_0", "tx_\u{1b}[2J", "tx_ffffffffffffffffffffffff"] {
            let garbage = world.layers(&[command, id]).expect(125);
            assert!(
                garbage.err.contains("is no layer") && garbage.err.contains("  hint: "),
                "{}",
                garbage.err
            );
            assert!(!garbage.err.contains('\u{1b}'), "{:?}", garbage.err);
        }
    }
    let id = world.tried("echo x >a");
    world.layers(&["commit", &id, "/etc/passwd"]).expect(126);
    world.layers(&["commit", &id, "../../etc"]).expect(126);
    assert_eq!(world.read("a").as_deref(), Some("1\n2\n3\n"));
    // An empty beginning is no beginning.
    world.layers(&["discard", ""]).expect(125);
    world.layers(&["commit", id.get(..10).unwrap()]).expect(0);
}

#[test]
fn a_workspace_that_moved_or_is_gone_is_an_error_with_a_next_step() {
    let world = World::new();
    prepare(&world);
    let id = world.tried("echo x >a");
    let (here, there) = (&world.workspace, world.beside("there").join("w"));
    fs::rename(here, &there).unwrap();
    let from = world.beside("elsewhere");
    let at = |arguments: &[&str]| finish(world.ringfence().args(arguments).current_dir(&from), b"");
    for command in ["commit", "changes"] {
        let gone = at(&[command, &id]).expect(126);
        assert!(gone.err.contains("is not there any more"), "{}", gone.err);
        assert!(gone.err.contains(&format!("ringfence discard {id}")), "{}", gone.err);
    }
    fs::rename(&there, here).unwrap();
    at(&["commit", &id]).expect(0);
    assert_eq!(world.read("a").as_deref(), Some("x\n"), "by its id from anywhere");
    let other = world.tried("echo y >a");
    fs::rename(here, &there).unwrap();
    at(&["discard", &other]).expect(0);
    fs::rename(&there, here).unwrap();
}

/// INVARIANT of `changes`: names and contents come from an agent.
/// The operator's policy of today counts, not the one that the command ran under.
#[test]
fn a_root_that_policy_has_narrowed_since_gets_nothing() {
    let world = World::new();
    let extra = fs::canonicalize(world.root.path()).unwrap().join("extra");
    fs::create_dir(&extra).unwrap();
    let place = extra.display();
    let allow = |access: &str| {
        configure(&world, &format!("[[root]]\npath = \"{place}\"\naccess = \"{access}\"\n"));
    };
    allow("write");
    let id = world.tried(&format!("echo inside >{place}/made"));
    assert!(!extra.join("made").exists());
    allow("read");
    world.layers(&["commit", &id]).expect(126);
    assert!(!extra.join("made").exists());
    allow("write");
    world.layers(&["commit", &id]).expect(0);
    assert_eq!(fs::read_to_string(extra.join("made")).unwrap(), "inside\n", "the control");
}

#[test]
fn another_directory_at_the_path_of_the_workspace_gets_nothing() {
    let world = World::new();
    prepare(&world);
    let id = world.tried("echo inside >a");
    let moved = world.workspace.with_file_name("moved");
    fs::rename(&world.workspace, &moved).unwrap();
    fs::create_dir(&world.workspace).unwrap();
    world.write("a", "1\n2\n3\n");
    let refused = world.layers(&["commit", &id]).expect(126);
    assert!(refused.err.contains("landing.workspace") && refused.err.contains("another"), "{}", refused.err);
    assert_eq!(world.read("a").as_deref(), Some("1\n2\n3\n"));
    fs::remove_dir_all(&world.workspace).unwrap();
    fs::rename(&moved, &world.workspace).unwrap();
    world.layers(&["commit", &id]).expect(0);
    assert_eq!(world.read("a").as_deref(), Some("inside\n"), "the control");
}

/// A name that a session may write is no other name of a hook that a person approved.
#[test]
fn names_of_one_file_land_as_files_of_their_own() {
    let world = World::new();
    prepare(&world);
    world.tried("echo work >notes; ln notes other");
    world.layers(&["commit"]).expect(0);
    world.write("notes", "later\n");
    assert_eq!(world.read("other").as_deref(), Some("work\n"));
}

#[test]
fn nothing_of_a_layer_acts_upon_the_terminal() {
    let world = World::new();
    let id = world.tried("printf '\\033[2J\\033]0;x\\007 \\342\\200\\256\\n' >\"$(printf 'a\\033[2Jb')\"");
    for arguments in [&["changes", &id][..], &["changes", &id, "--patch"], &["changes", &id, "--json"]] {
        let done = world.layers(arguments).expect(0);
        for text in [done.text(), done.err.clone()] {
            assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{arguments:?}: {text:?}");
        }
    }
    let done = world.try_sh("echo x >\"$(printf 'a\\033[2Jb')\"").expect(0);
    assert!(!done.err.contains('\u{1b}'), "{:?}", done.err);
}

#[test]
fn other_backends_refuse_to_try() {
    let world = World::new();
    prepare(&world);
    let before = tree(&world.workspace);
    let weaker = ["--backend", "landlock", "--danger", "--danger-required-controls", "limits,env"];
    let mut arguments = vec!["try"];
    arguments.extend(weaker);
    arguments.extend(["--", "sh", "-c", "echo x >a"]);
    let done = world.layers(&arguments).expect(126);
    assert!(done.err.contains("layer.unsupported") && done.err.contains("native"), "{}", done.err);
    assert_eq!((tree(&world.workspace), world.layer_directories()), (before, 0));
    let refused = world.layers(&["try", "--profile", "review", "--", "true"]).expect(126);
    assert!(refused.err.contains("profile.review"), "{}", refused.err);
}

/// An agent does not commit its own changes.
#[test]
fn what_runs_in_a_session_commits_nothing() {
    let world = World::new();
    prepare(&world);
    let id = world.tried("echo x >a");
    for command in ["commit", "discard", "undo"] {
        let done = finish(world.ringfence().args([command, &id]).env("RINGFENCE_SESSION_ID", "ses_x"), b"")
            .expect(126);
        assert!(done.err.contains("approval.from-session"), "{}", done.err);
    }
    assert_eq!(world.read("a").as_deref(), Some("1\n2\n3\n"));
    let reach = world.sh("ls -la / /run /var 2>/dev/null; find / -name 'tx_*' 2>/dev/null | head");
    assert!(!contains(&reach.out, id.as_bytes()), "no layer is in reach of a command");
}

/// At a terminal the person is asked, and keys from before the question are no answer.
#[test]
fn at_a_terminal_the_person_is_asked() {
    let world = World::new();
    prepare(&world);
    let terminal = Terminal::new(40, 120);
    let run = "exec \"$RINGFENCE\" try -- sh -c 'echo tried >a' </dev/tty >/dev/tty 2>&1";
    let child = session(&world, &terminal, run);
    terminal.wait_for("[L]ater? ");
    terminal.type_in(b"d\r");
    terminal.wait_for("+tried");
    terminal.type_in(b"c\r");
    terminal.wait_for("committed: 1 change landed");
    collect(child).expect(0);
    assert_eq!(world.read("a").as_deref(), Some("tried\n"));
    let again = session(&world, &terminal, &run.replace("tried", "again"));
    eventually("asked again", || terminal.seen().matches("[L]ater? ").count() > 2);
    terminal.type_in(b"\r");
    collect(again).expect(0);
    assert_eq!(world.read("a").as_deref(), Some("tried\n"), "no answer is a no");
    world.layers(&["discard"]).expect(0);
}
