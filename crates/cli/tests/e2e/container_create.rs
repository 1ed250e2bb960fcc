//! What a container is made with: the workspace and its parts, and its share of the processor.

use std::fs;
use std::io::Read as _;
use std::process::Stdio;

use rustix::process::Signal;

use crate::podman::Podman;
use crate::test_timeouts::Patient;
use crate::testkit::{World, collect, finish, is_root, names, send};

/// S003-5, S003-34: a workspace and its parts are read-only, writable or closed, whatever is around them.
#[test]
fn a_workspace_and_its_parts_are_read_only_or_writable() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    world.write("part/file", "seen\n");
    let script = ["sh", "-c", "cat part/file; echo x >part/new; true"];
    let under = |world: &World, access: &str| {
        let policy = world.home.join("policy.toml");
        fs::write(&policy, access).unwrap();
        let flags = flags.with(&["--policy", policy.to_str().unwrap()]);
        let text = world.run(&flags, &script).expect(0).text();
        let made = fs::remove_file(world.workspace.join("part/new")).is_ok();
        (text, made)
    };
    let part = |access: &str| format!("[[root]]\npath = \"part\"\naccess = \"{access}\"\n");
    assert_eq!(under(&world, ""), ("seen\n".to_owned(), true));
    assert_eq!(under(&world, "workspace_access = \"read\"\n"), ("seen\n".to_owned(), false));
    assert_eq!(under(&world, &part("read")), ("seen\n".to_owned(), false));
    assert_eq!(under(&world, &part("none")), (String::new(), false));
    // A part that is written in a root that is not, by access or by rules: the rest of it is closed all the same.
    let beside = "echo x >beside; mkdir d; echo x >part/held/new; echo x >part/new";
    fs::create_dir(world.workspace.join("part/held")).unwrap();
    let closed = "[[root]]\npath = \"part/held\"\naccess = \"read\"\n";
    let rules = "[[path]]\nallow = \"part/\"\noperation = \"write\"\n[[path]]\ndeny = \"**\"\noperation = \"write\"\n";
    for text in
        [format!("workspace_access = \"read\"\n{}{closed}", part("write")), format!("{rules}{closed}")]
    {
        let policy = world.home.join("policy.toml");
        fs::write(&policy, &text).unwrap();
        world.run(&flags.with(&["--policy", policy.to_str().unwrap()]), &["sh", "-c", beside]).expect(0);
        assert!(fs::remove_file(world.workspace.join("part/new")).is_ok(), "{text}");
        for held in ["beside", "d", "part/held/new"] {
            assert!(!world.workspace.join(held).exists(), "{held}: {text}");
        }
    }
    finish(world.host("sh").args(["-c", beside]), b"").expect(0);
    assert!(world.workspace.join("part/held/new").exists(), "the control");
}

/// S003-5, S003-34: with `none` the container is made without the workspace; the home of it is there, and what was named.
#[test]
fn a_container_is_made_without_a_closed_workspace() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    world.write("file", "seen\n");
    world.write("docs/page", "page\n");
    let workspace = world.workspace.to_str().unwrap();
    let script = format!(
        "pwd; cat {workspace}/file; cat {workspace}/docs/page; ls -A {workspace}; echo x >{workspace}/new; echo kept >kept; exit 0"
    );
    let control = finish(world.host("sh").args(["-c", &script]).current_dir(world.beside("control")), b"");
    assert!(control.text().contains("seen\npage\n") && world.workspace.join("new").exists(), "the control");
    fs::remove_file(world.workspace.join("new")).unwrap();
    let before = names(&world.workspace);
    let none = flags.with(&["--workspace-access", "none"]);
    assert_eq!(world.run(&none, &["sh", "-c", &script]).expect(0).text(), "/home/ringfence\n");
    assert_eq!(names(&world.workspace), before);
    assert_eq!(world.run(&none, &["cat", "kept"]).expect(0).text(), "kept\n");
    let docs = format!("{workspace}/docs");
    let shown =
        world.run(&flags.with(&["--workspace-access", "none", "--read", &docs]), &["sh", "-c", &script]);
    assert_eq!(shown.expect(0).text(), "/home/ringfence\npage\ndocs\n");
    podman.nothing_stays();
}

/// S003-35, S004-4: a share of the processor is the control group's, as the kernel has it; where there is none, nothing runs.
#[test]
fn a_container_has_its_share_of_the_processor() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    if !is_root() {
        let object = world.json(&flags.with(&["--cpus", "0.2"]), &["sh", "-c", "echo ran >ran"]);
        // A control group for it is root's to make.
        assert_eq!((&object["ended"], &object["exit_code"]), (&"refused".into(), &126.into()), "{object}");
        let message = object["refusal"]["message"].as_str().unwrap();
        assert!(message.contains("share of the processor (needs a cpu control group)"), "{object}");
        podman.nothing_stays();
        world.run(&flags.with(&[]), &["true"]).expect(0);
        assert_eq!(world.read("ran"), None);
        return;
    }
    let share = |more: &[&str]| {
        let mut command = world.ringfence();
        let script = ["--", "sh", "-c", "echo started; sleep 1000"];
        command.arg("run").args(flags.with(&[])).args(more).args(script);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Patient(child.stdout.as_mut().unwrap()).read_exact(&mut [0; 8]).unwrap();
        let told = podman.podman(&["inspect", "--format", "{{.State.Pid}}", &podman.containers()[0]]);
        let share = share_of(told.expect(0).text().trim());
        send(&child, Signal::TERM);
        assert_eq!(collect(child).code, Some(143));
        podman.nothing_stays();
        share
    };
    assert_eq!(share(&["--cpus", "0.2"]), "20000 of 100000");
    assert!(!share(&[]).starts_with("20000 "), "the control");
}

/// Microseconds that the process may use in a period, as the kernel has it.
fn share_of(pid: &str) -> String {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let fields = groups.lines().map(|line| line.splitn(3, ':').collect::<Vec<_>>());
    let old = fields.clone().find(|fields| fields[1].split(',').any(|name| name == "cpu"));
    match old {
        Some(fields) => {
            let read =
                |name: &str| fs::read_to_string(format!("/sys/fs/cgroup/{}{}/{name}", fields[1], fields[2]));
            let [quota, period] = ["cpu.cfs_quota_us", "cpu.cfs_period_us"].map(|name| read(name).unwrap());
            format!("{} of {}", quota.trim(), period.trim())
        }
        None => {
            let group = fields.map(|fields| fields[2].to_owned()).next().unwrap();
            fs::read_to_string(format!("/sys/fs/cgroup{group}/cpu.max")).unwrap().trim().replace(' ', " of ")
        }
    }
}
