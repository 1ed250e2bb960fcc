//! What of the machine and of the workspace can be read and written.

use std::fs;
use std::os::unix::fs::symlink;

use crate::testkit::{LANDLOCK, World, finish, is_root, names};

const SECRET: &str = "hidden-content-4711";

/// S000-1, S000-58: files, commands and environment at once.
#[test]
fn run_confines_files_commands_and_environment() {
    let world = World::new();
    let outside = world.beside("outside");
    fs::write(outside.join("file"), "out").unwrap();
    fs::write(world.home.join(".netrc"), "login").unwrap();
    let script = format!(
        "cat {0}/file; echo x >{0}/new; ls {0}; cat {1}/.netrc; ls {1}; echo x >inside; cat inside; exit 0",
        outside.display(),
        world.home.display()
    );
    let control = finish(world.host("sh").args(["-c", &script]), b"").expect(0);
    assert!(control.text().contains("out") && control.text().contains("login"));
    assert!(outside.join("new").exists());
    fs::remove_file(outside.join("new")).unwrap();
    for backend in ["native", "bubblewrap"] {
        let done = world.sh_with(&["--backend", backend], &script).expect(0);
        assert_eq!(done.text(), "x\n", "{backend}: {}", done.err);
        assert!(!outside.join("new").exists());
    }
    let done = world.sh_with(LANDLOCK, &script).expect(0);
    assert_eq!(done.text(), "x\n", "landlock: {}", done.err);
    assert!(!outside.join("new").exists());
}

#[test]
fn the_system_is_there_to_read_and_the_rest_is_not_there() {
    let world = World::new();
    let script = "for p in /run /root /boot /srv /mnt /media /sys /var/lib /var/log /etc/shadow /etc/ssh /etc/machine-id; do \
                  [ -e $p ] && echo visible $p; done; \
                  for p in / /usr /usr/bin /etc /dev /proc/sys/kernel; do (echo x >$p/ringfence-test) 2>/dev/null && echo wrote $p; done; \
                  [ -x /usr/bin/env ] && [ -r /etc/ld.so.cache ] && echo runtime; ls -A ~ | head -3; exit 0";
    let done = world.sh(script).expect(0);
    assert_eq!(done.text(), "runtime\n", "{}", done.err);
    assert!(!std::path::Path::new("/usr/ringfence-test").exists());
}

/// S002-16, S003-3, S003-34
#[test]
fn roots_have_read_write_or_no_access() {
    let world = World::new();
    let [read, write, none] = ["read", "write", "none"].map(|name| {
        let path = world.beside(name);
        fs::write(path.join("file"), format!("{name}-content\n")).unwrap();
        path
    });
    let script = format!(
        "for d in {} {} {}; do cat $d/file; echo new >$d/new; rm -f $d/file; done; exit 0",
        read.display(),
        write.display(),
        none.display()
    );
    for backend in ["native", "bubblewrap"] {
        for path in [&read, &write] {
            fs::write(
                path.join("file"),
                format!("{}-content\n", path.file_name().unwrap().to_str().unwrap()),
            )
            .unwrap();
            let _ = fs::remove_file(path.join("new"));
        }
        let flags =
            ["--backend", backend, "--read", read.to_str().unwrap(), "--write", write.to_str().unwrap()];
        let done = world.sh_with(&flags, &script).expect(0);
        assert_eq!(done.text(), "read-content\nwrite-content\n", "{backend}");
        assert_eq!(names(&read), ["file"], "{backend}");
        assert_eq!(names(&write), ["new"], "{backend}");
        assert_eq!(names(&none), ["file"], "{backend}");
    }
}

/// S000-52
#[test]
fn other_workspace_is_absent() {
    let world = World::new();
    let other = world.beside("other");
    fs::write(other.join("file"), "theirs").unwrap();
    let script = format!("cat {}/file; ls {}; ls ..; exit 0", other.display(), other.display());
    let done = world.sh(&script).expect(0);
    assert!(!done.text().contains("theirs") && !done.text().contains("other"), "{}", done.text());
}

fn world_with_secrets() -> World {
    let world = World::new();
    for path in [
        ".env",
        "sub/.env.production",
        "keys/id_rsa",
        "deep/a/b/server.key",
        "my secret.txt",
        ".aws/credentials",
    ] {
        world.write(path, SECRET);
    }
    world.write("sub/.env.example", "EXAMPLE=1\n");
    world.write("keys/id_rsa.pub", "ssh-ed25519 AAAA\n");
    world.write("plain", "plain\n");
    world
}

/// F15: by every way a program has to a file.
#[test]
fn hidden_files_are_hidden_by_every_route() {
    let world = world_with_secrets();
    world.git(&world.workspace, &["init", "-q", "."]);
    fs::hard_link(world.workspace.join(".env"), world.workspace.join("hard")).unwrap();
    symlink(".env", world.workspace.join("soft")).unwrap();
    let routes = [
        "cat .env sub/.env.production keys/id_rsa deep/a/b/server.key 'my secret.txt' .aws/credentials",
        "cat soft",
        "cat /proc/self/cwd/.env",
        "cat /proc/self/root$PWD/.env",
        "cat sub/../.env",
        "cp -r . /tmp/copy; cat /tmp/copy/.env /tmp/copy/keys/id_rsa",
        "tar cf /tmp/all.tar .; grep -a hidden-content /tmp/all.tar",
        "grep -r hidden-content .",
        "find . -type f -exec cat {} +",
        "ln .env other; cat other; ln keys/id_rsa /tmp/key; cat /tmp/key",
        "ln -s .env other2; cat other2",
        "mv .env moved; cat moved",
        "mv keys keys2; cat keys2/id_rsa; mv keys2 keys",
        "git add -f .env; git show :.env",
        "git hash-object -w .env; git diff --no-index /dev/null .env",
        "python3 -c \"print(open('.env').read())\"",
        "dd if=.env bs=1 count=100",
        "exec 3<.env; cat <&3",
    ];
    let script = routes.join("\n");
    for backend in ["native", "bubblewrap"] {
        let done = world.sh_with(&["--backend", backend], &script);
        assert!(!done.text().contains(SECRET), "{backend}: {}\n{}", done.text(), done.err);
        let open =
            world.sh_with(&["--backend", backend], "cat plain sub/.env.example keys/id_rsa.pub").expect(0);
        assert_eq!(open.text(), "plain\nEXAMPLE=1\nssh-ed25519 AAAA\n", "{backend}");
    }
    let control = finish(world.host("sh").args(["-c", "cat .env; cat /proc/self/cwd/.env"]), b"");
    assert_eq!(control.text().matches(SECRET).count(), 2);
    for path in [".env", "keys/id_rsa", "sub/.env.production"] {
        assert_eq!(world.read(path).as_deref(), Some(SECRET), "{path} is as it was");
    }
}

/// A second name of a hidden file is the same file.
#[test]
fn a_hard_link_to_a_hidden_file_does_not_show_it() {
    let world = World::new();
    world.write(".env", SECRET);
    fs::hard_link(world.workspace.join(".env"), world.workspace.join("innocent.txt")).unwrap();
    let done = world.sh("cat innocent.txt");
    assert!(!done.text().contains(SECRET), "the other name of a hidden file shows it");
}

#[test]
fn hidden_files_cannot_be_written_or_removed() {
    let world = world_with_secrets();
    world.sh("echo x >.env; rm -f .env; true >keys/id_rsa; rm -rf keys; chmod 777 .env; truncate -s0 .env; exit 0").expect(0);
    for path in [".env", "keys/id_rsa"] {
        assert_eq!(world.read(path).as_deref(), Some(SECRET), "{path}");
    }
}

/// A name decides what is hidden, so the directory that is part of the name must not change under it.
#[test]
fn a_renamed_directory_does_not_uncover_its_secrets_in_the_next_run() {
    let world = World::new();
    for path in [".aws/credentials", ".kube/config", "a/.docker/config.json", ".ssh/known"] {
        world.write(path, SECRET);
    }
    world.write("config/secrets.yaml", SECRET);
    world.write("keys/id_rsa", SECRET);
    world.git(&world.workspace, &["init", "-q", "."]);
    let script = "mv .aws aws; mv .kube kube; mv a/.docker a/docker; mv .ssh ssh; mv a b; \
                  mkdir target; mv config target/config; mv keys .git/keys; exit 0";
    world.sh(script).expect(0);
    let done = world.sh("grep -r hidden-content . ; exit 0").expect(0);
    assert_eq!(done.text(), "", "{}", done.text());
}

#[test]
fn two_hundred_hidden_files_are_hidden() {
    let world = World::new();
    for number in 0..200 {
        world.write(&format!("d{}/s{number}/.env", number % 7), SECRET);
    }
    let done = world.sh("grep -r hidden-content . | wc -l; find . -name .env | wc -l").expect(0);
    assert_eq!(done.text().split_whitespace().collect::<Vec<_>>(), ["0", "200"], "{}", done.err);
}

#[test]
fn a_large_workspace_works() {
    let world = World::new();
    for directory in 0..200 {
        let path = world.workspace.join(format!("d{directory}"));
        fs::create_dir(&path).unwrap();
        for file in 0..100 {
            fs::write(path.join(format!("f{file}")), "").unwrap();
        }
    }
    world.write("d199/.env", SECRET);
    let done = world.sh("find . -name 'f*' -type f | wc -l; cat d199/.env; exit 0").expect(0);
    assert_eq!(done.text().trim(), "20000", "{}", done.err);
}

/// S001-12, S001-17: the machine is open, the credential stores are not.
#[test]
fn danger_opens_the_machine_but_not_the_credentials() {
    let world = World::new();
    let outside = world.beside("outside");
    fs::create_dir_all(world.home.join(".ssh")).unwrap();
    fs::write(world.home.join(".ssh/id_rsa"), SECRET).unwrap();
    let script =
        format!("echo x >{}/made; cat {}/.ssh/id_rsa; exit 0", outside.display(), world.home.display());
    world.run(&["--profile", "danger"], &["sh", "-c", &script]).expect(126);
    assert!(!outside.join("made").exists());
    let done = world.sh_with(&["--profile", "danger", "--danger"], &script);
    if done.code == Some(126) {
        // The floor asks for more than this profile can give; what it lacks is named.
        assert!(done.err.contains("fs-"), "{}", done.err);
    }
    assert!(!done.text().contains(SECRET), "{}", done.text());
    assert!(outside.join("made").exists(), "{} {}", done.text(), done.err);
}

/// No set-user-id program gives anything back, and a caller who is root has no power inside.
#[test]
fn privileges_are_gone() {
    let world = World::new();
    let done = world
        .sh("grep -E '^(CapEff|CapPrm|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'")
        .expect(0);
    assert_eq!(
        done.text(),
        "CapPrm:0000000000000000\nCapEff:0000000000000000\nCapBnd:0000000000000000\nNoNewPrivs:1\nSeccomp:2\n"
    );
    let tries = "mount -t tmpfs x /mnt; unshare -U true && echo unshared; chroot / true && echo chrooted; hostname x && echo renamed; exit 0";
    assert_eq!(world.sh(tries).expect(0).text(), "");
    if is_root() {
        let foreign = world.write("foreign", "x");
        std::os::unix::fs::chown(&foreign, Some(12_345), Some(12_345)).unwrap();
        fs::set_permissions(&foreign, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        world.sh("cat foreign").expect(1);
    }
}
