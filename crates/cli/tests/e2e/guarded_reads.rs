//! What a listed command may read, by what it prints.

use crate::testkit::World;

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
