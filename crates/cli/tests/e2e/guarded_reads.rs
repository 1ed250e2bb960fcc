//! What a listed command may read, by what it prints.

use std::os::unix::fs::symlink;

use crate::approvals::configure;
use crate::testkit::{World, finish};

const SECRET: &str = "of-the-person-5a1f";

/// A repository that tracks what must not be read.
fn world() -> World {
    let world = World::new();
    world.repository();
    for path in ["secrets/db.key", "conf/.env"] {
        world.write(path, format!("{SECRET}\n"));
    }
    world.write("src/lib.rs", "fn main() {}\n");
    world.git(&world.workspace, &["add", "-f", "."]);
    world.git(&world.workspace, &["commit", "-q", "-m", "second"]);
    world
}

fn prints(world: &World, profile: &str, command: &[&str]) -> bool {
    let done = world.run(&["--profile", profile], command);
    done.text().contains(SECRET) || done.err.contains(SECRET)
}

#[test]
fn git_prints_no_tracked_file_that_must_not_be_read() {
    let world = world();
    let blob = world.git(&world.workspace, &["rev-parse", "HEAD:conf/.env"]);
    let attempts: &[&[&str]] = &[
        &["git", "log", "-p", "--", "secrets"],
        &["git", "log", "-p"],
        &["git", "log", "-1", "-U1", "--", "conf"],
        &["git", "grep", "person", "HEAD", "--", "secrets"],
        &["git", "grep", "--cached", "person"],
        &["git", "show", "HEAD:conf/.env"],
        &["git", "show", "HEAD"],
        &["git", "show", blob.trim()],
        &["git", "diff", "HEAD~1", "HEAD", "--", "conf"],
        &["git", "diff", "HEAD~1", "HEAD"],
        // What excludes them means something else then.
        &["env", "GIT_LITERAL_PATHSPECS=1", "git", "log", "-p", "--", ".", ":!secrets", ":!conf"],
    ];
    for command in attempts {
        assert!(!prints(&world, "guarded", command), "{command:?}");
        assert!(prints(&world, "workspace", command), "the control: {command:?}");
    }
    for command in [
        &["git", "log", "-p", "--", "src"][..],
        &["git", "log", "--stat"],
        &["git", "show", "HEAD:src/lib.rs"],
        &["git", "diff", "HEAD~1", "--", ".", ":!secrets", ":!conf"],
        &["git", "status"],
    ] {
        world.run(&["--profile", "guarded"], command).expect(0);
    }
}

/// What names a file of a commit, and prints others as well, or begins its paths at another directory.
#[test]
fn git_prints_no_tracked_file_by_another_name() {
    let world = world();
    world.write("services/api/.env", format!("{SECRET}\n"));
    world.write("services/api/main.rs", "fn main() {}\n");
    world.write("id_rsa", format!("{SECRET}\n"));
    world.write(".kube/config", format!("{SECRET}\n"));
    world.git(&world.workspace, &["add", "-f", "."]);
    world.git(&world.workspace, &["commit", "-q", "-m", "third"]);
    let tree = world.git(&world.workspace, &["rev-parse", "HEAD:services"]);
    let empty = world.git(&world.workspace, &["hash-object", "-t", "tree", "-w", "/dev/null"]);
    let (tree, empty) = (tree.trim(), empty.trim());
    let attempts: &[&[&str]] = &[
        &["git", "show", "HEAD:readme", "--all"],
        &["git", "show", "--branches", "HEAD:readme"],
        &["git", "show", "--glob=refs/heads/*", "HEAD:readme"],
        &["git", "show", "HEAD@{now:::::::::}:id_rsa"],
        &["git", "show", "HEAD@{now:::::::::}:.kube/config"],
        &["git", "diff", empty, "HEAD:services", "--", "api"],
        &["git", "diff", empty, tree, "--", "api"],
        &[
            "git",
            "diff",
            empty,
            "HEAD:conf",
            "--",
            ".",
            ":!conf",
            ":!services",
            ":!secrets",
            ":!id_rsa",
            ":!.kube",
        ],
        &["git", "diff", empty, "HEAD:.kube", "--", "config"],
        &["git", "grep", "person", "HEAD:services", "--", "api"],
        &["git", "grep", "person", tree, "--", "api"],
    ];
    for command in attempts {
        assert!(!prints(&world, "guarded", command), "{command:?}");
        assert!(prints(&world, "workspace", command), "the control: {command:?}");
    }
    // Yes or no for any guess tells the whole content in the end.
    let (start, _) = SECRET.split_at(4);
    let (guess, ignored) = (format!("-G^{start}"), format!("-I^{start}"));
    for command in [
        &["git", "log", "--oneline", &guess][..],
        &["git", "diff", "--name-only", &guess, "HEAD~2", "HEAD"],
        &["git", "diff", "--stat", &ignored, "HEAD~2", "HEAD"],
    ] {
        world.run(&["--profile", "guarded"], command).expect(126);
    }
    for command in [
        &["git", "show", "HEAD:services/api/main.rs"][..],
        &["git", "show", "--format=%h", "HEAD:readme"],
        &["git", "log", "--oneline", "-Gmain", "--", "src"],
        &["git", "diff", "HEAD:src", "HEAD~1:src", "--", "lib.rs"],
        &["git", "grep", "main", "HEAD", "--", "src"],
    ] {
        world.run(&["--profile", "guarded"], command).expect(0);
    }
}

/// A file that is named by its digest has no path, and one that is followed has another name: a path limits neither.
#[test]
fn git_prints_no_tracked_file_beside_the_paths_it_is_limited_to() {
    let world = world();
    let lines: String = (0..20).map(|number| format!("line {number}\n")).collect();
    world.write("app/.env", format!("{SECRET}\n{lines}"));
    world.git(&world.workspace, &["add", "-f", "."]);
    world.git(&world.workspace, &["commit", "-q", "-m", "third"]);
    world.write("app/sample.txt", lines);
    world.git(&world.workspace, &["add", "-f", "."]);
    world.git(&world.workspace, &["commit", "-q", "-m", "fourth"]);
    let id = |name: &str| world.git(&world.workspace, &["rev-parse", "--short", name]).trim().to_owned();
    let (blob, tree) = (id("HEAD:conf/.env"), id("HEAD:conf"));
    let (peeled, described) = (format!("{blob}^{{}}"), format!("v1-0-g{blob}"));
    let listed = format!("{tree}:.env");
    let attempts: &[&[&str]] = &[
        &["git", "show", &blob, "--", "src"],
        &["git", "show", &blob, "--", ".", ":!conf", ":!secrets", ":!app"],
        &["git", "show", &peeled, "--", "src"],
        &["git", "show", &described, "--", "src"],
        &["git", "show", &listed, "--", "src"],
        &["git", "diff", &blob, "readme"],
        &["git", "grep", "-e", "person", &blob, "--", "src"],
        &["git", "log", "-p", "--follow", "-C", "-C", "--find-copies-harder", "--", "app/sample.txt"],
    ];
    for command in attempts {
        assert!(!prints(&world, "guarded", command), "{command:?}");
        assert!(prints(&world, "workspace", command), "the control: {command:?}");
    }
    let commit = format!("{}^{{commit}}", id("HEAD"));
    for command in
        [&["git", "show", &commit, "--", "src"][..], &["git", "log", "-p", &id("HEAD"), "--", "src"]]
    {
        world.run(&["--profile", "guarded"], command).expect(0);
    }
}

/// Git enters submodules for a search if a setting says so.
#[test]
fn git_prints_no_tracked_file_of_a_submodule() {
    let world = World::new();
    world.repository();
    let sub = world.workspace.join("sub");
    world.git(&world.workspace, &["init", "-q", "sub"]);
    world.write("sub/conf/.env", format!("{SECRET}\n"));
    world.git(&sub, &["add", "-f", "."]);
    world.git(&sub, &["commit", "-q", "-m", "first"]);
    world.write(".gitmodules", "[submodule \"sub\"]\n\tpath = sub\n\turl = ./sub\n");
    world.git(&world.workspace, &["add", "sub", ".gitmodules"]);
    world.git(&world.workspace, &["commit", "-q", "-m", "second"]);
    world.git(&world.workspace, &["config", "submodule.recurse", "true"]);
    world.git(&world.workspace, &["config", "submodule.active", "."]);
    for command in [&["git", "grep", "person", "HEAD"][..], &["git", "grep", "--cached", "person"]] {
        assert!(!prints(&world, "guarded", command), "{command:?}");
        assert!(prints(&world, "workspace", command), "the control: {command:?}");
    }
}

/// The rules of a root beside the workspace are those of the workspace. Where the index does not say what is tracked, a person is
/// asked.
#[test]
fn git_prints_no_tracked_file_of_another_root_or_without_an_index() {
    let world = world();
    let other = world.beside("other");
    world.git(&other, &["init", "-q"]);
    for (name, content) in [("conf/.env", SECRET), ("lib.rs", "fn main() {}")] {
        std::fs::create_dir_all(other.join("conf")).unwrap();
        std::fs::write(other.join(name), format!("{content}\n")).unwrap();
    }
    world.git(&other, &["add", "-f", "."]);
    world.git(&other, &["commit", "-q", "-m", "first"]);
    let git = |profile: &str, access: &str, rest: &[&str]| {
        let path = other.to_str().unwrap();
        let command = [&["git", "-C", path], rest].concat();
        world.run(&["--profile", profile, access, path], &command)
    };
    for access in ["--read", "--write"] {
        for rest in
            [&["log", "-p"][..], &["log", "-p", "--", "conf"], &["show", "HEAD"], &["log", "-p", "--", "."]]
        {
            git("guarded", access, rest).expect(126);
            assert!(git("workspace", access, rest).text().contains(SECRET), "the control: {rest:?}");
        }
        for rest in [&["log", "-p", "--", "lib.rs"][..], &["show", "HEAD", "--", ".", ":!conf"], &["status"]]
        {
            git("guarded", access, rest).expect(0);
        }
    }
    std::fs::remove_file(world.workspace.join(".git/index")).unwrap();
    for command in [&["git", "log", "-p"][..], &["git", "show", "HEAD"]] {
        world.run(&["--profile", "guarded"], command).expect(126).says("git.content");
        assert!(prints(&world, "workspace", command), "the control: {command:?}");
    }
    // A repository without commits has no index either, and nothing to print.
    let new = World::new();
    new.git(&new.workspace, &["init", "-q"]);
    new.run(&["--profile", "guarded"], &["git", "diff"]).expect(0);
}

#[test]
fn a_name_that_sounds_secret_and_a_device_without_end_are_questions() {
    let world = World::new();
    for name in ["my.secret", "app.password", "backup-secrets.tar.gz"] {
        world.write(name, format!("{SECRET}\n"));
        assert!(!prints(&world, "guarded", &["cat", name]), "{name}");
        world.run(&["--profile", "guarded"], &["cat", name]).expect(126).says("path.named-secret");
    }
    world.write("plain.txt", format!("{SECRET}\n"));
    assert!(prints(&world, "guarded", &["cat", "plain.txt"]), "the control");
    for device in ["/dev/zero", "/dev/tty", "/dev/full"] {
        let flags = ["--profile", "guarded", "--timeout", "5s"];
        world.run(&flags, &["wc", "-c", device]).expect(126).says("path.device");
    }
    world.run(&["--profile", "guarded"], &["wc", "-c", "/dev/null"]).expect(0);
}

/// Settings with a login and states are hidden like other logins; what holds none is ordinary.
#[test]
fn a_registry_login_and_a_state_are_not_printed() {
    let world = World::new();
    world.write("plain.txt", format!("{SECRET}\n"));
    world.write(".npmrc", format!("//npm.example.org/:_authToken={SECRET}\n"));
    world.write("terraform.tfstate", format!("{{ \"password\": \"{SECRET}\" }}\n"));
    world.write(".hg/hgrc", format!("[auth]\nx.password = {SECRET}\n"));
    // What is taken for a secret is redacted in the output, so what tells is whether a line is found.
    let finds = |profile: &str, command: &[&str]| world.run(&["--profile", profile], command).code == Some(0);
    for name in [".npmrc", "terraform.tfstate", ".hg/hgrc"] {
        assert!(!finds("guarded", &["grep", "-c", "person", name]), "{name}");
    }
    for name in [".npmrc", "terraform.tfstate"] {
        assert!(!finds("guarded", &["grep", "-rc", "person", "--include", name, "."]), "{name}");
        assert!(!finds("workspace", &["grep", "-c", "person", name]), "{name}");
    }
    assert!(finds("guarded", &["grep", "-c", "person", "plain.txt"]), "the control");
    world.write(".npmrc", format!("registry=https://npm.example.org/\n; {SECRET}\n"));
    assert!(
        finds("guarded", &["grep", "-c", "person", ".npmrc"]),
        "the control: without a login it is visible"
    );
}

/// With `-c` and `-s` together dash runs the text and then its input.
#[test]
fn a_shell_with_a_text_runs_nothing_from_its_input() {
    let world = World::new();
    let attacks: [&[&str]; 3] =
        [&["sh", "-sc", "ls"], &["dash", "-c", "-s", "ls"], &["sh", "-c", "echo 'touch ran' | sh -cs ls"]];
    let run = |profile: &str, command: &[&str]| {
        let mut ringfence = world.ringfence();
        ringfence.args(["run", "--profile", profile, "--"]).args(command);
        let code = finish(&mut ringfence, b"touch ran\n").code;
        (code, std::fs::remove_file(world.workspace.join("ran")).is_ok())
    };
    for command in attacks {
        assert_eq!(run("guarded", command), (Some(126), false), "{command:?}");
        assert_eq!(run("workspace", command), (Some(0), true), "the control: {command:?}");
    }
    assert_eq!(run("guarded", &["sh", "-ec", "cat"]), (Some(0), false), "the control: input is only read");
}

/// What a command comes to by a wildcard, or in a search that follows links, is judged like a name.
#[test]
fn a_wildcard_and_a_search_do_not_read_through_links_that_lead_out() {
    let world = World::new();
    configure(&world, "approval = \"never\"\n");
    world.write("sub/own.txt", "own\n");
    symlink("/proc/self/environ", world.workspace.join("sub/link")).unwrap();
    symlink("own.txt", world.workspace.join("sub/near")).unwrap();
    symlink("/proc/self", world.workspace.join("process")).unwrap();
    let read = |profile: &str, command: &str| {
        world.run(&["--profile", profile], &["sh", "-c", command]).text().contains("RINGFENCE_SESSION_ID")
    };
    for command in [
        "cat sub/l*",
        "cat sub/[l]ink",
        "head -c 4000 sub/l*",
        "cat */link",
        "cat proc*/environ",
        "env cat -- sub/l?nk",
        "grep -Ra RINGFENCE_SESSION_ID sub",
    ] {
        for profile in ["guarded", "strict"] {
            assert!(!read(profile, command), "{profile}: {command}");
        }
        assert!(read("workspace", command), "the control: {command}");
    }
    for command in ["cat sub/n*", "cat sub/*.txt", "grep -r own sub", "ls sub/*.txt", "echo *"] {
        world.run(&["--profile", "guarded"], &["sh", "-c", command]).expect(0);
    }
    std::fs::remove_file(world.workspace.join("sub/link")).unwrap();
    let found = world.run(&["--profile", "guarded"], &["grep", "-R", "own", "sub"]).expect(0);
    assert!(found.text().contains("near"), "{}", found.text());
}
