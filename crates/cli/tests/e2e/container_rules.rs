//! One set of rules under every backend: what is judged does not depend on what contains it, and what the kernel holds is what the
//! backend says it holds.

use std::fs;
use std::path::Path;

use crate::podman::{Flags, Podman};
use crate::testkit::{Done, LANDLOCK, World};

const RULES: &str = "[[command]]\ndeny = \"touch forbidden\"\nreason = \"not that one\"\n\
    [[path]]\ndeny = \"closed.txt\"\n[[path]]\ndeny = \"frozen/\"\noperation = \"write\"\n";

const NONE: &[&str] =
    &["--backend", "none", "--danger", "--allow-sensitive-roots", "--danger-required-controls", "limits,env"];

/// Who holds rules about files against a command that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Files {
    Held,
    /// Its posture says so, and it has to be asked for twice.
    Open,
}

struct Case<'c> {
    backend: &'static str,
    flags: Vec<&'c str>,
    files: Files,
}

fn cases(container: &Flags) -> Vec<Case<'_>> {
    let case = |backend, flags: &[&'static str], files| Case { backend, flags: flags.to_vec(), files };
    vec![
        case("native", &["--backend", "native"], Files::Held),
        case("bubblewrap", &["--backend", "bubblewrap"], Files::Held),
        Case { backend: "container", flags: container.with(&[]), files: Files::Held },
        case("landlock", LANDLOCK, Files::Open),
        case("none", NONE, Files::Open),
    ]
}

/// What a command did is in the workspace.
struct Tried<'t> {
    world: &'t World,
    flags: Vec<&'t str>,
}

impl Tried<'_> {
    fn run(&self, command: &[&str]) -> Done {
        self.world.run(&self.flags, command)
    }

    /// Whether it is there; it is gone afterwards.
    fn made(&self, name: &str) -> bool {
        fs::remove_file(self.world.workspace.join(name)).is_ok()
    }
}

/// S004-1, S004-15, S003-38, C-22: rules about commands and files hold under every backend; without the rule each is done.
#[test]
fn the_same_rules_hold_under_every_backend() {
    let podman = Podman::start();
    let (world, container) = podman.world();
    world.write("closed.txt", "closed");
    world.write("frozen/old", "old");
    let [open, ruled] = ["open.toml", "ruled.toml"].map(|name| world.home.join(name));
    fs::write(&open, "").unwrap();
    fs::write(&ruled, RULES).unwrap();
    for case in cases(&container) {
        let under = |policy: &'static str| {
            let path: &Path = if policy == "open" { &open } else { &ruled };
            let flags = [&case.flags[..], &["--policy", path.to_str().unwrap()]].concat();
            Tried { world: &world, flags }
        };
        without_rules_it_is_done(&under("open"), case.backend);
        rules_about_commands_hold(&under("ruled"), case.backend);
        rules_about_files_hold(&under("ruled"), &case);
    }
    rules_hold_for_file_calls(&world);
    podman.nothing_stays();
}

fn without_rules_it_is_done(tried: &Tried<'_>, backend: &str) {
    tried.run(&["touch", "forbidden"]).expect(0);
    assert!(tried.made("forbidden"), "{backend}: the control");
    assert_eq!(tried.run(&["cat", "closed.txt"]).expect(0).text(), "closed", "{backend}: the control");
    tried.run(&["sh", "-c", "echo x >frozen/new"]).expect(0);
    assert!(tried.made("frozen/new"), "{backend}: the control");
}

fn rules_about_commands_hold(tried: &Tried<'_>, backend: &str) {
    let shell = [
        "touch forbidden",
        "true && touch forbidden",
        "cd . ; 'to'uch \"forbidden\"",
        "echo $(touch forbidden)",
    ];
    let plain = [vec!["touch", "forbidden"], vec!["env", "touch", "forbidden"]];
    for command in plain.into_iter().chain(shell.map(|script| vec!["sh", "-c", script])) {
        tried.run(&command).expect(126).says("not that one").says("ruled.toml:2:8");
        assert!(!tried.made("forbidden"), "{backend}: {command:?}");
    }
    let object = tried.world.json(&tried.flags, &["touch", "allowed"]);
    assert_eq!(
        (&object["exit_code"], &object["posture"]["backend"]),
        (&0.into(), &backend.into()),
        "{object}"
    );
    assert!(tried.made("allowed"), "{backend}");
}

/// What the backend says of itself is what happens.
fn rules_about_files_hold(tried: &Tried<'_>, case: &Case<'_>) {
    let shown = tried.run(&["cat", "closed.txt"]).text();
    tried.run(&["sh", "-c", "echo x >frozen/new"]);
    let got_through = (shown == "closed", tried.made("frozen/new"));
    let open = case.files == Files::Open;
    assert_eq!(got_through, (open, open), "{}", case.backend);
    let object = tried.world.json(&tried.flags, &["true"]);
    for control in ["fs-read", "fs-write"] {
        let enforced = object["posture"]["controls"][control]["level"] == "enforced";
        assert_eq!(enforced, !open, "{}: {control}", case.backend);
    }
}

/// Calls that are about a file are judged before there is a sandbox, whatever the operator's file says of it.
fn rules_hold_for_file_calls(world: &World) {
    let policy = world.home.join("file.toml");
    for backend in ["native", "bubblewrap", "landlock"] {
        fs::write(&policy, format!("backend = \"{backend}\"\n{RULES}")).unwrap();
        let file = |words: &[&str], input: &[u8]| {
            let words = [&words[..1], &["--policy", policy.to_str().unwrap()], &words[1..]].concat();
            world.file(&words, input)
        };
        let read = file(&["read", "closed.txt"], b"").expect(126).says("a rule about files denies it");
        assert_eq!(read.text(), "", "{backend}");
        file(&["write", "frozen/new"], b"x").expect(126);
        assert_eq!(world.read("frozen/new"), None, "{backend}");
        assert_eq!(file(&["read", "frozen/old"], b"").expect(0).text(), "old", "the control");
        file(&["write", "fresh"], b"x").expect(0);
        assert_eq!(world.read("fresh").as_deref(), Some("x"), "the control");
        fs::remove_file(world.workspace.join("fresh")).unwrap();
    }
}

/// What strict profiles refuse though it begins with something that they allow; `true` where it is done without them.
const LONGER: [(&[&str], bool); 9] = [
    (&["catalogue", "readme"], false),
    (&["./cat", "readme"], false),
    (&["cat-and-touch", "readme"], false),
    (&["sh", "-c", "cat readme; touch made"], true),
    (&["sh", "-c", "cat readme && touch made"], true),
    (&["sh", "-c", "cat readme\ntouch made"], true),
    (&["sh", "-c", "cat readme $(touch made)"], true),
    (&["git", "status-and-touch"], false),
    (&["find", ".", "-name", "readme", "-exec", "touch", "made", ";"], true),
];

/// Document 004's system compared the beginning of a command with its list.
#[test]
fn commands_in_images_are_matched_by_parts() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    world.write("readme", "read\n");
    let made = || fs::remove_file(world.workspace.join("made")).is_ok();
    for profile in ["strict", "air-gapped"] {
        let strict = flags.with(&["--profile", profile]);
        for (command, _) in LONGER {
            world.run(&strict, command).expect(126);
            assert!(!made(), "{profile}: {command:?}");
        }
        assert_eq!(world.run(&strict, &["cat", "readme"]).expect(0).text(), "read\n", "the control");
    }
    for (command, _) in LONGER.iter().filter(|(_, done)| *done) {
        world.run(&flags.with(&[]), command);
        assert!(made(), "the control: {command:?}");
    }
    podman.nothing_stays();
}
