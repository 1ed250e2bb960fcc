//! What the postures of the backends say that share the processes or the files of the host: `external`, `none`, profile `danger`.

use std::fs;

use crate::testkit::{World, finish, is_root, marker};

const EXTERNAL: &[&str] = &["--backend", "external", "--danger", "--danger-required-controls", "limits,env"];
const NONE: &[&str] = &["--backend", "none", "--danger", "--danger-required-controls", "env"];
/// Without the cover over the sensitive roots, and so without a user namespace.
const UNCOVERED: &[&str] =
    &["--backend", "none", "--danger", "--allow-sensitive-roots", "--danger-required-controls", "env"];
const DANGER: &[&str] = &["--profile", "danger", "--danger"];

/// Looks for a variable of its caller in all processes, and signals the ancestor of the given name. The signal does nothing.
const REACH: &str = "import os, sys
def about(pid, name):
    with open(f'/proc/{pid}/{name}', 'rb') as f: return f.read()
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        if sys.argv[1].encode() in about(pid, 'environ').split(b'='):
            print('environment')
            break
    except OSError: pass
pid = os.getppid()
while pid > 1:
    try:
        if about(pid, 'comm').strip() == sys.argv[2].encode():
            os.kill(pid, 18)
            print('signalled')
            break
        pid = int(about(pid, 'stat').rsplit(b')', 1)[1].split()[1])
    except OSError: break
";

/// A command that ends who counts it has no limits, and one that reads the variables of its caller has them.
#[test]
fn a_command_of_external_does_not_reach_its_caller() {
    let world = World::new();
    world.write("reach.py", REACH);
    let variable = format!("CALLER_{}", marker(&world).replace(|sign: char| !sign.is_alphanumeric(), "_"));
    let mut control = world.host("sh");
    let control = control.args(["-c", "python3 reach.py \"$1\" sh; true", "sh", &variable]);
    let control = finish(control.env(&variable, "a secret"), b"").expect(0);
    assert_eq!(control.text(), "environment\nsignalled\n");
    for (flags, may_reach) in [(EXTERNAL, false), (NONE, true), (UNCOVERED, true), (DANGER, false)] {
        let mut command = world.ringfence();
        command.args(["run", "--json"]).args(flags).args([
            "--",
            "python3",
            "reach.py",
            &variable,
            "ringfence",
        ]);
        let object = finish(command.env(&variable, "a secret"), b"").expect(0).json();
        let (output, controls) = (object["stdout"].as_str().unwrap(), &object["posture"]["controls"]);
        let has_scopes = object["posture"]["landlock_abi"].as_u64().is_some_and(|abi| abi >= 6);
        let said = |control: &str, part: &str| {
            controls[control]["missing"].as_str().is_some_and(|missing| missing.contains(part))
        };
        let reached = ["environment", "signalled"].map(|what| output.contains(what));
        // What is not said is not possible; a process without capabilities cannot look into one of root that has some.
        assert!(!reached[0] || said("env", "variables of the caller's processes"), "{flags:?}: {object}");
        assert!(!reached[1] || said("limits", "end or stop what counts"), "{flags:?}: {object}");
        if !may_reach && (has_scopes || flags == DANGER) {
            assert_eq!(output, "", "{flags:?}: {object}");
            assert_eq!(controls["env"]["level"], "enforced", "{flags:?}: {object}");
            assert!(!said("limits", "end or stop what counts"), "{flags:?}: {object}");
        }
        assert!(flags != UNCOVERED || (reached[0] || is_root()) && reached[1], "the attack works: {object}");
    }
}

/// Signals between its own processes, links and renames between directories are not what a domain of `external` is about.
#[test]
fn a_command_of_external_works_as_on_the_host() {
    let world = World::new();
    let outside = world.beside("outside");
    let script = "sleep 60 & kill $! && wait $!; [ $? = 143 ] && mkdir a b && echo x >a/f && ln a/f b/hard && mv -T a/f \"$1/f\" && \
                  (trap 'echo trapped' TERM; kill -TERM $(sh -c 'echo $PPID')) && cat \"$1/f\"";
    let outside_text = outside.to_str().unwrap();
    let control = finish(world.host("sh").args(["-c", script, "sh", outside_text]), b"").expect(0);
    assert_eq!(control.text(), "trapped\nx\n");
    fs::remove_dir_all(world.workspace.join("a")).unwrap();
    fs::remove_dir_all(world.workspace.join("b")).unwrap();
    assert_eq!(
        world.run(EXTERNAL, &["sh", "-c", script, "sh", outside_text]).expect(0).text(),
        "trapped\nx\n"
    );
}

/// Where root sees the files of its control groups, it can leave them.
#[test]
fn control_groups_that_root_can_leave_are_named() {
    let world = World::new();
    let script = "cat /proc/self/cgroup >before; echo 0 2>/dev/null >/sys/fs/cgroup/memory/tasks; cat /proc/self/cgroup >after; \
                  cmp -s before after || echo left";
    for flags in [EXTERNAL, NONE, &[]] {
        let object = world.json(flags, &["sh", "-c", script]);
        let missing = object["posture"]["controls"]["limits"]["missing"].as_str().unwrap();
        let said = missing.contains("leave its control groups");
        assert!(object["stdout"] != "left\n" || said, "{flags:?}: {object}");
        let by = object["posture"]["controls"]["limits"]["by"].as_str().unwrap();
        let has_memory = !by.contains("memory counted");
        assert_eq!(said, !flags.is_empty() && is_root() && has_memory, "{flags:?}: {object}");
    }
}

/// What `--disk` and `--memory` do not count of an open machine is in its posture.
#[test]
fn what_an_open_machine_leaves_uncounted_is_named() {
    let world = World::new();
    let outside = world.beside("outside");
    let script =
        "dd if=/dev/zero of=\"$1/large\" bs=1M count=30 2>/dev/null; sleep 1; stat -c %s \"$1/large\"";
    for flags in [DANGER, EXTERNAL, NONE] {
        let limited = [flags, &["--disk", "10m"]].concat();
        let object = world.json(&limited, &["sh", "-c", script, "sh", outside.to_str().unwrap()]);
        assert_eq!(object["stdout"], "31457280\n", "{flags:?}: {object}");
        let missing = object["posture"]["controls"]["limits"]["missing"].as_str().unwrap();
        assert!(missing.contains("`--disk` counts the roots and the home"), "{flags:?}: {object}");
        fs::remove_file(outside.join("large")).unwrap();
        let object = world.json(flags, &["true"]);
        let limits = &object["posture"]["controls"]["limits"];
        let is_counted = limits["by"].as_str().unwrap().contains("memory counted");
        let is_named = limits["missing"].as_str().unwrap().contains("/dev/shm");
        assert_eq!(is_named, is_counted || flags != DANGER, "{flags:?}: {object}");
    }
    let object = world.json(&["--disk", "10m"], &["true"]);
    let missing = object["posture"]["controls"]["limits"]["missing"].as_str().unwrap();
    assert!(!missing.contains("can write elsewhere"), "{object}");
}
