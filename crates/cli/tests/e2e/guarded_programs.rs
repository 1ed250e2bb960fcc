//! Which program runs where commands are listed: what ran shows in the workspace.

use std::fs;

use crate::approvals::configure;
use crate::testkit::{World, finish, script};

const LISTED: [&str; 3] = ["guarded", "strict", "air-gapped"];

fn ran(world: &World) -> bool {
    fs::remove_file(world.workspace.join("ran")).is_ok()
}

/// `usr/bin/ls` of the workspace by a path that is the system's `ls` where `..` is cut out of the text.
#[test]
fn a_path_behind_a_place_that_cannot_be_seen_is_a_question() {
    let world = World::new();
    let dir = world.workspace.join("a/b");
    for program in ["usr/bin/ls", "bin/ls"] {
        let file = world.write(program, "");
        script(&file, &format!("#!/bin/sh\ntouch {}\n", world.workspace.join("ran").display()));
    }
    fs::create_dir_all(&dir).unwrap();
    let run = |profile: &str, program: &str| {
        let mut command = world.ringfence();
        command.args(["run", "--profile", profile, "--workspace"]).arg(&world.workspace);
        finish(command.args(["--", program]).current_dir(&dir), b"")
    };
    for program in [
        "/proc/self/cwd/../../usr/bin/ls",
        "/proc/thread-self/cwd/../../bin/ls",
        "/dev/fd/../cwd/../../usr/bin/ls",
        "../../usr/bin/ls",
    ] {
        for profile in LISTED {
            run(profile, program).expect(126);
            assert!(!ran(&world), "{profile}: {program}");
        }
        run("workspace", program).expect(0);
        assert!(ran(&world), "the control: {program}");
    }
    for profile in LISTED {
        run(profile, "/usr/bin/../bin/ls").expect(0);
    }
}

/// What one command left in the home, the next shell would run.
#[test]
fn a_login_shell_does_not_run_what_an_earlier_command_left_in_the_home() {
    let world = World::new();
    configure(&world, "approval = \"never\"\n");
    let login = ["sh", "-lc", "ls"];
    for profile in ["guarded", "strict"] {
        world.run(&["--profile", profile], &login).expect(0);
    }
    let plant = format!("echo 'touch {}' >~/.profile", world.workspace.join("ran").display());
    world.run(&["--profile", "workspace"], &["sh", "-c", &plant]).expect(0);
    for profile in LISTED {
        for argv in [&login[..], &["bash", "--login", "-c", "ls"], &["nice", "sh", "-l", "-c", "ls"]] {
            world.run(&["--profile", profile], argv).expect(126);
            assert!(!ran(&world), "{profile}: {argv:?}");
        }
    }
    world.run(&["--profile", "guarded"], &login).expect(126).says("guarded.start-file").says(".profile");
    world.run(&["--profile", "guarded"], &["sh", "-c", "ls"]).expect(0);
    assert!(!ran(&world));
    world.run(&["--profile", "workspace"], &login).expect(0);
    assert!(ran(&world), "the control");
}

/// The one program of python that runs without a question starts with the packages of the home.
#[test]
fn the_listed_python_program_does_not_run_what_an_earlier_command_left_in_the_home() {
    const LIST: &str = "import os; print('\\n'.join(sorted(os.listdir('.'))))";
    let world = World::new();
    configure(&world, "approval = \"never\"\n");
    let tools = world.home.join(".config/ringfence/agents/coder/tools/bin");
    std::fs::create_dir_all(&tools).unwrap();
    std::os::unix::fs::symlink("/usr/bin/python3", tools.join("python")).unwrap();
    let list = |profile| world.run(&["--agent", "coder", "--profile", profile], &["python", "-c", LIST]);
    list("guarded").expect(0);
    let packages = "python3 -c 'import site; print(site.getusersitepackages())'";
    let plant = format!(
        "mkdir -p $({packages}) && echo 'import os; os.system(\"touch {}\")' >$({packages})/x.pth",
        world.workspace.join("ran").display()
    );
    world.run(&["--agent", "coder", "--profile", "workspace"], &["sh", "-c", &plant]).expect(0);
    let _planting = ran(&world);
    for profile in ["guarded", "strict"] {
        list(profile).expect(126).says("guarded.start-file").says(".local/lib/python");
        assert!(!ran(&world), "{profile}");
    }
    list("workspace").expect(0);
    assert!(ran(&world), "the control");
}

/// gpg obeys files of the home, so that a repository must not make a listed git start it.
#[test]
fn a_repository_does_not_make_a_listed_git_run_gpg() {
    let world = World::new();
    world.repository();
    configure(&world, "approval = \"never\"\n");
    let git = |args: &[&str]| {
        let argv: Vec<&str> = std::iter::once("git").chain(args.iter().copied()).collect();
        world.run(&["--profile", "guarded"], &argv)
    };
    for (key, value) in [("format.pretty", "%h %G?"), ("pretty.mine", "%+GS"), ("branch.sort", "signature")] {
        git(&["log", "-1"]).expect(0);
        world.git(&world.workspace, &["config", key, value]);
        git(&["log", "-1"]).expect(126).says("git.config");
        world.git(&world.workspace, &["config", "--unset", key]);
    }
    for args in [
        &["log", "-1", "--format=%G?"][..],
        &["log", "-1", "--pretty=%-GK"],
        &["log", "-1", "--show-signature"],
        &["branch", "--format=%(signature)"],
        &["branch", "--sort=signature"],
        &["for-each-ref", "--format=%(signature)"],
    ] {
        git(args).expect(126);
    }
    git(&["log", "-1", "--format=%h GPG"]).expect(0);
}
