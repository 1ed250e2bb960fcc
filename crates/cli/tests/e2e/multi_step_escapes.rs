//! Ways out that need more than one call, a second sandbox or a hostile workspace. Each was one once.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::testkit::{World, collect, eventually, finish, marker, processes_with};

#[test]
fn a_directory_made_unlistable_hides_what_is_in_it() {
    let world = World::new();
    world.write("conf/.env", "SECRET=leak-a");
    world.sh("chmod 311 conf");
    let second = world.sh("cat conf/.env; chmod 755 conf; cat conf/.env; ls conf");
    assert!(!second.text().contains("leak-a"), "{}", second.text());
    fs::set_permissions(world.workspace.join("conf"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn hidden_files_cannot_be_carried_to_where_no_rule_looks() {
    let world = World::new();
    world.write("conf/.aws/credentials", "leak-b");
    world.write("conf/dot/.env", "leak-c");
    world.write("real/prod", "leak-d");
    symlink("real/prod", world.workspace.join(".env")).unwrap();
    let moves =
        "mv conf/.aws conf/x; mkdir -p foo/.git/refs; mv conf/dot foo/.git/refs/; rm .env; mv real r2";
    world.sh(moves);
    let second =
        world.sh("grep -r leak . 2>/dev/null; cat real/prod r2/prod conf/x/credentials 2>/dev/null; true");
    assert!(!second.text().contains("leak-"), "{}", second.text());
}

#[test]
fn no_root_opens_the_home_a_credential_store_or_our_own_state() {
    let world = World::new();
    let home = world.home.clone();
    fs::create_dir_all(home.join(".ssh")).unwrap();
    fs::create_dir_all(home.join(".config/gcloud")).unwrap();
    fs::write(home.join(".ssh/key"), "leak-key").unwrap();
    let elsewhere = world.beside("elsewhere");
    symlink(&home, elsewhere.join("home")).unwrap();
    for root in [
        home.clone(),
        home.join(".ssh"),
        home.join(".config"),
        elsewhere.join("home/.ssh"),
        world.state.clone(),
        world.state.parent().unwrap().to_owned(),
    ] {
        for flag in ["--read", "--write"] {
            let root = root.to_str().unwrap();
            let done = world.run(&[flag, root], &["sh", "-c", "cat ~/.ssh/key; touch ran"]).expect(126);
            assert!(!done.text().contains("leak-key"), "{flag} {root}");
            assert_eq!(world.read("ran"), None, "{flag} {root}");
        }
    }
    let mut linked = world.ringfence();
    linked.env("HOME", elsewhere.join("home"));
    let key = home.join(".ssh");
    let done =
        finish(linked.args(["run", "--read", key.to_str().unwrap(), "--", "cat"]).arg(key.join("key")), b"");
    done.expect(126);
}

#[test]
fn a_command_that_stops_its_own_leader_ends_before_its_timeout() {
    let world = World::new();
    let mark = marker(&world);
    let started = Instant::now();
    world
        .sh_with(&["--timeout", "90s"], &format!("kill -STOP $PPID; sh -c 'sleep 1000; : {mark}'"))
        .expect(125);
    assert!(started.elapsed() < Duration::from_secs(80), "{:?}", started.elapsed());
    assert_eq!(processes_with(&mark), Vec::<String>::new());
}

#[test]
fn a_full_signal_queue_does_not_outlive_the_timeout() {
    let world = World::new();
    let script = "import os, signal, time\n\
                  signal.pthread_sigmask(signal.SIG_BLOCK, range(34, 64))\n\
                  import ctypes\n\
                  libc = ctypes.CDLL(None)\n\
                  n = 0\n\
                  while n < 200000 and libc.sigqueue(os.getpid(), 40, None) == 0: n += 1\n\
                  open('queued', 'w').write(str(n))\n\
                  signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
                  time.sleep(1000)\n";
    world.write("fill.py", script);
    let started = Instant::now();
    world.sh_with(&["--timeout", "2s"], "/usr/bin/python3 fill.py").expect(124);
    assert!(started.elapsed() < Duration::from_secs(100), "{:?}", started.elapsed());
    let queued: u64 = world.read("queued").unwrap().parse().unwrap();
    assert!(queued <= 1024, "{queued} signals of the user's allowance were taken");
}

#[test]
fn output_that_cannot_be_written_is_a_failure_and_not_a_crash() {
    let world = World::new();
    for arguments in [&["run", "--json", "--", "true"][..], &["ledger", "tail"], &["doctor"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = world.ringfence();
        command.args(arguments).stdin(Stdio::null()).stdout(full).stderr(Stdio::piped());
        let done = collect(command.spawn().unwrap());
        assert_eq!(done.code, Some(125), "{arguments:?}: {}", done.err);
    }
}

#[test]
fn danger_hides_the_stores_also_in_the_next_call() {
    let world = World::new();
    fs::create_dir_all(world.home.join(".config/gcloud")).unwrap();
    fs::write(world.home.join(".config/gcloud/token"), "leak-token").unwrap();
    let flags = ["--danger", "--profile", "danger"];
    let (config, moved) = (world.home.join(".config"), world.home.join(".moved"));
    let script = format!("cat {0}/gcloud/token; mv {0} {1}", config.display(), moved.display());
    let first = world.sh_with(&flags, &script);
    let second = world
        .sh_with(&flags, &format!("cat {}/gcloud/token {}/gcloud/token", config.display(), moved.display()));
    assert!(!first.text().contains("leak-token") && !second.text().contains("leak-token"));
    assert!(config.is_dir(), "the parent of a hidden store was moved away");
}

/// What steers the next run cannot be put there by this one, whether or not it was there before.
#[test]
fn danger_puts_nothing_into_our_state_or_configuration() {
    let world = World::new();
    let (state, config) = (world.state.join("ringfence"), world.home.join(".config/ringfence"));
    let targets = [
        config.join("config.toml"),
        state.join("ledger.aside"),
        state.join("made-up"),
        state.join("approvals/a"),
        state.join("proposals/journals/tx.json"),
        state.join("homes/made-up"),
    ];
    let script = targets.iter().fold(String::new(), |script, path| {
        let (path, parent) = (path.display(), path.parent().unwrap().display());
        format!("{script}mkdir -p '{parent}'; echo evil > '{path}'\n")
    });
    let script = format!(
        "{script}mv '{0}' '{0}.moved'; echo mine > \"$HOME/kept\" && cat \"$HOME/kept\"",
        state.display()
    );
    for flags in [&["--danger", "--profile", "danger"][..], &["--danger", "--backend", "none"]] {
        let done = world.sh_with(flags, &script).expect(0);
        assert_eq!(done.text(), "mine\n", "its own home is writable: {}", done.err);
        let made: Vec<_> = targets.iter().filter(|path| path.exists()).collect();
        assert!(made.is_empty() && state.is_dir(), "{flags:?}: {made:?}");
    }
    let open = ["--danger", "--allow-sensitive-roots", "--profile", "danger"];
    let control = script.lines().take(targets.len()).collect::<Vec<_>>().join("\n");
    world.sh_with(&open, &control);
    assert!(targets.iter().all(|path| path.exists()), "control: nothing else stands in the way");
}

#[test]
fn backend_none_still_hides_the_stores_until_they_are_given_away_too() {
    let world = World::new();
    fs::create_dir_all(world.home.join(".ssh")).unwrap();
    fs::write(world.home.join(".ssh/key"), "leak-key").unwrap();
    let read = format!("cat {}/.ssh/key; echo ran", world.home.display());
    let covered = world.sh_with(&["--danger", "--backend", "none"], &read).text();
    assert!(covered.contains("ran") && !covered.contains("leak-key"), "{covered}");
    let open = world.sh_with(&["--danger", "--allow-sensitive-roots", "--backend", "none"], &read).text();
    assert!(open.contains("leak-key"), "{open}");
}

/// git and editors replace files by renaming, and a mount goes with the file it sits on.
#[test]
fn what_the_host_replaces_during_a_session_is_held_again() {
    let world = World::new();
    world.repository();
    world.write(".env", "OLD=1");
    let script = "echo up > up; while [ ! -e go ]; do sleep 0.05; done; sleep 0.5; \
                  echo evil >> .git/config; cat .env; echo evil > .git/hooks/pre-commit; echo over";
    let child = world
        .ringfence()
        .args(["run", "--", "sh", "-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("the command is up", || world.read("up").is_some());
    let workspace = world.workspace.clone();
    world.git(&workspace, &["config", "user.nickname", "from-the-host"]);
    world.write("new-env", "leak-new=1");
    fs::rename(workspace.join("new-env"), workspace.join(".env")).unwrap();
    fs::rename(workspace.join(".git/hooks"), workspace.join(".git/hooks.old")).unwrap();
    fs::create_dir(workspace.join(".git/hooks")).unwrap();
    world.write("go", "");
    let done = collect(child);
    assert!(done.text().contains("over"), "{}", done.text());
    let config = world.read(".git/config").unwrap();
    assert!(config.contains("from-the-host") && !config.contains("evil"), "{config}");
    assert!(!done.text().contains("leak-new"), "{}", done.text());
    assert_eq!(world.read(".git/hooks/pre-commit"), None);
}

/// A repository and its linked worktree are two workspaces with one git directory: when one session ends, the other
/// must not lose what holds its protected names.
#[test]
fn sessions_that_share_a_git_directory_hold_it_together() {
    let world = World::new();
    world.repository();
    let tree = world.beside("trees").join("linked");
    world.git(&world.workspace.clone(), &["worktree", "add", "-q", tree.to_str().unwrap()]);
    let start = |directory: &Path, script: &str| {
        let mut command = world.ringfence();
        command.current_dir(directory).args(["run", "--", "sh", "-c", script]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let wait = |name: &str| format!("echo up > {name}.up; while [ ! -e {name}.go ]; do sleep 0.02; done; ");
    let first = start(&world.workspace, &wait("first"));
    eventually("the first session is up", || world.read("first.up").is_some());
    let common = world.workspace.join(".git");
    let attack = format!(
        "echo ../evil > {0}/commondir; mkdir -p {0}/hooks; echo evil > {0}/hooks/pre-commit",
        common.display()
    );
    let second = start(&tree, &format!("{} {attack}", wait("second")));
    eventually("the second session is up", || tree.join("second.up").exists());
    world.write("first.go", "");
    collect(first);
    fs::write(tree.join("second.go"), "").unwrap();
    collect(second);
    assert!(!common.join("commondir").exists(), "{:?}", fs::read_to_string(common.join("commondir")));
    assert!(!common.join("hooks/pre-commit").exists());
    assert!(world.git(&world.workspace.clone(), &["status", "--short"]).contains("first"));
}

#[test]
fn a_directory_that_cannot_be_entered_does_not_blind_the_next_call() {
    let world = World::new();
    world.write("d/e/.env", "leak-1");
    world.write("p/q/.vscode/tasks.json", "{}");
    world.write("h/.env", "leak-2");
    fs::hard_link(world.workspace.join("h/.env"), world.workspace.join("other")).unwrap();
    world.sh("chmod 400 d h p; true");
    let second = world.sh("chmod 700 d h p; cat d/e/.env other; echo evil > p/q/.vscode/tasks.json; true");
    for directory in ["d", "h", "p"] {
        fs::set_permissions(world.workspace.join(directory), fs::Permissions::from_mode(0o755)).unwrap();
    }
    assert!(!second.text().contains("leak-1"), "{}", second.text());
    assert_eq!(world.read("p/q/.vscode/tasks.json").as_deref(), Some("{}"));
}

#[test]
fn every_link_on_the_way_to_a_hidden_file_is_held() {
    let world = World::new();
    world.write("c/y", "leak-chain");
    world.write("realdir/k", "leak-through");
    for (target, link) in [("y", "c/x"), ("x", "c/.env"), ("realdir", "dl"), ("dl/k", ".env.prod")] {
        symlink(target, world.workspace.join(link)).unwrap();
    }
    world.sh("rm c/x c/.env dl .env.prod; mv c c2; true");
    let second = world.sh("cat c/y c2/y realdir/k; true");
    assert!(!second.text().contains("leak-"), "{}", second.text());
}

#[test]
fn lower_limits_of_the_caller_are_kept_and_nothing_else_changes() {
    let world = World::new();
    for limits in ["ulimit -c 0", "ulimit -n 128", "ulimit -t 100", "ulimit -i 200"] {
        let script = format!("{limits}; exec $RINGFENCE run -- sh -c 'echo works'");
        let done = finish(world.host("/bin/bash").args(["-c", &script]), b"");
        assert_eq!(done.text(), "works\n", "{limits}: {}", done.err);
    }
}

#[test]
fn a_workspace_that_is_a_credential_directory_hides_what_such_a_directory_holds() {
    let world = World::new();
    let kube = world.workspace.join(".kube");
    fs::create_dir(&kube).unwrap();
    fs::write(kube.join("config"), "leak-kube").unwrap();
    let mut command = world.ringfence();
    command.args(["run", "--workspace"]).arg(&kube).args(["--", "cat", "config"]);
    let inside = finish(&mut command, b"");
    assert!(!inside.text().contains("leak-kube"), "{}", inside.text());
    let mut command = world.ringfence();
    command.args(["file", "read", "--workspace"]).arg(&kube).arg("config");
    assert!(!finish(&mut command, b"").text().contains("leak-kube"));
}

/// D11, CVE-2026-32048: inside the fence Ringfence is a program as any other, whatever flags it is given.
#[test]
fn d11_a_fence_inside_the_fence_gives_nothing_back() {
    const BARE: &str = "--danger --backend none --allow-sensitive-roots --danger-required-controls env";
    let world = World::new();
    crate::testkit::copy_binary(world.workspace.join("rf"));
    let outside = world.beside("outside").join("made");
    let attempt = |flags: &str, made: &Path| format!("./rf run {flags} -- touch {}", made.display());
    for flags in ["", "--backend landlock --danger-required-controls env", "--danger --profile danger", BARE]
    {
        let done = world.sh(&attempt(flags, &outside));
        assert!(done.code != Some(0) && !done.err.is_empty(), "{flags}: {}", done.err);
        assert!(!outside.exists(), "{flags}");
    }
    // It runs there, and what it runs is where it was.
    world.sh(&attempt(BARE, &world.workspace.join("inside"))).expect(0);
    assert!(world.workspace.join("inside").exists());
    let mut control = world.host("sh");
    finish(control.args(["-c", &attempt(BARE, &outside)]).current_dir(&world.workspace), b"").expect(0);
    assert!(outside.exists(), "the control: without the fence around it");
}
