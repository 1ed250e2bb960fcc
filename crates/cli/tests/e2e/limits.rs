//! Every limit is met by something, and the result names the one that was met.

use std::time::Duration;

use crate::testkit::{World, finish, is_root};

/// Takes and keeps memory in small steps.
const HOG: &str = "import sys\nkept = []\nwhile len(kept) < 600:\n    kept.append(bytearray(b'x') * (1 << 20))\nprint('kept', len(kept))\n";

/// S000-41: what holds when nothing was asked for, as the record of a run has it and as the kernel tells a command.
#[test]
fn default_limits_are_those_of_document_000() {
    let world = World::new();
    let done = world.sh("ulimit -n; ulimit -f; ulimit -t; ulimit -c").expect(0);
    assert_eq!(done.text(), format!("256\n{}\n3600\n0\n", (100 << 20) / 512));
    let limits = &world.records()[0]["event"]["limits"];
    assert_eq!(limits["memory_bytes"], 4096_u64 << 20);
    assert_eq!((&limits["processes"], &limits["cpu_seconds"]), (&50.into(), &3600.into()));
    assert_eq!((&limits["open_files"], &limits["file_size_bytes"]), (&256.into(), &(100 << 20).into()));
}

/// S000-41, S002-34, S003-35, S004-4
#[test]
fn memory_limit_is_named() {
    let world = World::new();
    world.write("hog.py", HOG);
    let control = finish(world.host("python3").arg("hog.py"), b"").expect(0);
    assert_eq!(control.text(), "kept 600\n");
    let object = world.json(&["--memory", "150m"], &["python3", "hog.py"]);
    assert!(!object["stdout"].as_str().unwrap().contains("kept"), "{object}");
    if has_cgroup(&object, "memory") {
        assert_eq!(object["outcome"]["limit_hit"], "memory", "{object}");
        assert_eq!(object["exit_code"], 137, "{object}");
        world.run(&["--memory", "150m"], &["python3", "hog.py"]).expect(137).says("--memory");
    } else {
        assert!(object["stderr"].as_str().unwrap().contains("MemoryError"), "{object}");
    }
}

fn has_cgroup(object: &serde_json::Value, controller: &str) -> bool {
    let by = object["posture"]["controls"]["limits"]["by"].as_str().unwrap();
    assert!(!is_root() || by.contains("cgroup"), "root has control groups here, {controller} included: {by}");
    by.contains("cgroup")
}

/// S000-41, S002-34, S004-4
#[test]
fn process_limit_is_named() {
    let world = World::new();
    let script = "i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); done; echo all-60-started";
    let object = world.json(&["--pids", "20"], &["bash", "-c", script]);
    assert!(!object["stdout"].as_str().unwrap().contains("all-60") || is_root_rlimit(&object), "{object}");
    if has_cgroup(&object, "pids") {
        assert_eq!(object["outcome"]["limit_hit"], "processes", "{object}");
    }
    let object = world.json(&["--pids", "100"], &["bash", "-c", &script.replace("sleep 5", "sleep 0.2")]);
    assert!(object["stdout"].as_str().unwrap().contains("all-60"), "{object}");
    assert_eq!(object["outcome"]["limit_hit"], serde_json::Value::Null, "{object}");
}

fn is_root_rlimit(object: &serde_json::Value) -> bool {
    // The kernel does not count RLIMIT_NPROC for the superuser of the machine; the posture would say so.
    is_root() && !has_cgroup(object, "pids")
}

/// S000-46: the number of processes is bounded while it runs and the machine is as before afterwards.
#[test]
fn fork_bomb_is_bounded() {
    let world = World::new();
    let mark = crate::testkit::marker(&world);
    let bomb = format!(
        "import os, time\nm = '{mark}'\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        time.sleep(0.01)\n"
    );
    world.write("bomb.py", bomb);
    let done = world.run(&["--pids", "30", "--timeout", "2s"], &["python3", "bomb.py", &mark]);
    assert_eq!(done.code, Some(124), "{}", done.err);
    assert!(done.took < Duration::from_secs(60), "{:?}", done.took);
    assert_eq!(crate::testkit::processes_with(&mark), Vec::<String>::new());
    world.sh("echo still works").expect(0);
}

/// S000-41
#[test]
fn cpu_time_limit_is_named() {
    let world = World::new();
    let object = world.json(&["--cpu-time", "1s"], &["sh", "-c", "while :; do :; done"]);
    assert_eq!(object["outcome"]["limit_hit"], "cpu-time", "{object}");
    assert_eq!(object["exit_code"], 152, "{object}");
}

/// S000-41
#[test]
fn file_size_limit_is_enforced() {
    let world = World::new();
    let object = world.json(&["--file-size", "1m"], &["sh", "-c", "exec head -c 3000000 /dev/zero >big"]);
    assert_eq!(object["outcome"]["limit_hit"], "file-size", "{object}");
    assert_eq!(std::fs::metadata(world.workspace.join("big")).unwrap().len(), 1 << 20);
    world.sh_with(&["--file-size", "4m"], "head -c 3000000 /dev/zero >big").expect(0);
}

/// S000-41
#[test]
fn open_files_limit_is_enforced() {
    let world = World::new();
    world.write("open.py", "n = 0\nkept = []\ntry:\n    while n < 500:\n        kept.append(open('/dev/null')); n += 1\nexcept OSError as e:\n    print(e.errno)\nprint(n)\n");
    let done = world.run(&["--max-open-files", "64"], &["python3", "open.py"]).expect(0);
    let lines: Vec<u32> = done.text().lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(lines[0], 24, "EMFILE");
    assert!((40..64).contains(&lines[1]), "{lines:?}");
    assert_eq!(world.run(&["--max-open-files", "1000"], &["python3", "open.py"]).expect(0).text(), "500\n");
    world.run(&["--max-open-files", "16"], &["true"]).expect(0);
}

#[test]
fn the_private_tmp_has_its_size() {
    let world = World::new();
    let done = world
        .sh_with(&["--tmp-size", "2m"], "head -c 5000000 /dev/zero >/tmp/big; echo $?; stat -c %s /tmp/big");
    assert!(done.err.contains("No space left"), "{}", done.err);
    assert!(done.text().ends_with("2097152\n"), "{}", done.text());
    world.sh_with(&["--tmp-size", "8m"], "head -c 5000000 /dev/zero >/tmp/big").expect(0);
    let name = format!("/tmp/{}", crate::testkit::marker(&world));
    world.sh(&format!("echo x >{name} && cat {name}")).expect(0);
    assert!(!std::path::Path::new(&name).exists(), "the host's /tmp is another one");
    world.sh(&format!("cat {name}")).expect(1);
}

/// S004-4: where there is a control group, a busy loop gets its share and no more; where there is none, nothing runs.
#[test]
fn cpu_share_is_limited() {
    let world = World::new();
    let script = "import time, os\nstart = time.monotonic()\nwhile time.monotonic() - start < 2: pass\nt = os.times()\nprint((t.user + t.system) / (time.monotonic() - start))\n";
    world.write("busy.py", script);
    let object = world.json(&["--cpus", "0.2"], &["python3", "busy.py"]);
    if object["ended"] == "refused" {
        assert!(!crate::testkit::is_root(), "root can make a control group here: {object}");
        let message = object["refusal"]["message"].as_str().unwrap();
        assert!(message.contains("share of the processor"), "{object}");
    } else {
        let share: f64 = object["stdout"].as_str().unwrap().trim().parse().unwrap();
        assert!(share > 0.0 && share < 0.6, "{share} of a core instead of a fifth: {object}");
    }
}

/// The workspace and the home together. Measured, so that a command is ended shortly after it was too much.
#[test]
fn the_disk_that_a_session_takes_has_a_limit() {
    let world = World::new();
    let fill = "i=0; while [ $i -lt 200 ]; do head -c 1000000 /dev/zero >DIR/f$i; i=$((i+1)); sleep 0.02; done; echo all";
    for place in ["~", "."] {
        let script = fill.replace("DIR", place);
        let done = world.sh_with(&["--disk", "20m"], &script).says("disk limit").says("--disk");
        assert_ne!(done.text(), "all\n", "{place}");
        let held = || world.sh("du -sk . ~ | awk '{ s += $1 } END { print s }'").expect(0).text();
        let kilobytes: u64 = held().trim().parse().unwrap();
        assert!((20_000..150_000).contains(&kilobytes), "{place}: {kilobytes}");
        // What is too much can be removed, but not added to.
        world.sh_with(&["--disk", "20m"], &format!("sleep 0.6; rm {place}/f*; sleep 0.6")).expect(0);
    }
    assert_eq!(
        world.sh(&fill.replace("DIR", ".").replace("200", "40")).expect(0).text(),
        "all\n",
        "the control"
    );
    world.file(&["write", "new"], b"x").expect(0);
    let policy = world.home.join(".config/ringfence");
    std::fs::create_dir_all(&policy).unwrap();
    std::fs::write(policy.join("config.toml"), "[limits]\ndisk = \"20m\"\n").unwrap();
    world.file(&["write", "newer"], b"x").expect(126).says("limits.disk");
}

/// What is written into a view is nowhere else: the layer counts as well.
#[test]
fn the_disk_that_a_layer_takes_has_a_limit() {
    let world = World::new();
    let fill = "i=0; while [ $i -lt 100 ]; do head -c 1000000 /dev/zero >f$i; i=$((i+1)); sleep 0.02; done; echo all";
    let attempt = |options: &[&str]| world.layers(&[&["try"], options, &["--", "sh", "-c", fill]].concat());
    let done = attempt(&["--disk", "20m"]).says("disk limit");
    assert_ne!(done.text(), "all\n");
    assert_eq!(attempt(&[]).expect(0).text(), "all\n", "the control");
}

/// Commands that are over before the first look, one after the other, in a session each.
#[test]
fn many_short_commands_do_not_take_more_disk_than_one() {
    let world = World::new();
    let quota = ["--disk", "20m"];
    let fill = |name: &str| format!("head -c 15000000 /dev/zero >{name}");
    let size = || finish(world.host("du").args(["-sk", "."]), b"").expect(0).text();
    let kilobytes = || size().split_whitespace().next().unwrap().parse::<u64>().unwrap();
    world.sh_with(&quota, &fill("one")).expect(0);
    world.sh_with(&quota, &fill("two")).says("disk limit");
    assert!(kilobytes() > 20_000, "it was faster than the first look");
    // What is too much can be removed: one more command may try.
    world.sh_with(&quota, "cat one >/dev/null").expect(0);
    world.sh_with(&quota, &fill("three")).says("disk limit");
    for name in ["four", "five", "six"] {
        world.sh_with(&quota, &fill(name)).expect(126).says("limits.disk");
    }
    assert!(kilobytes() < 60_000, "{}", size());
    std::fs::remove_file(world.workspace.join("two")).unwrap();
    std::fs::remove_file(world.workspace.join("three")).unwrap();
    world.sh_with(&quota, "rm one").expect(0);
    for name in ["four", "five", "six"] {
        world.sh(&fill(name)).expect(0);
    }
    assert!(kilobytes() > 40_000, "the control");
}

/// A directory that its owner may write and not list, or that is deeper than a path can say, hides nothing.
#[test]
fn disk_space_that_is_hard_to_look_at_counts() {
    let deep = "import os\nfor _ in range(60):\n    os.mkdir('d' * 200)\n    os.chdir('d' * 200)\nopen('f', 'wb').write(b'x' * 30000000)\n";
    for script in [
        "mkdir d; chmod 300 d; head -c 30000000 /dev/zero >d/f",
        "mkdir d; head -c 30000000 /dev/zero >d/f; chmod 000 d",
        "mkdir -p d/e; head -c 30000000 /dev/zero >d/e/f; chmod 600 d/e; chmod 100 d",
        "python3 -c \"$DEEP\"",
    ] {
        let world = World::new();
        let variable = format!("DEEP={deep}");
        let quota = ["--disk", "20m", "--env", &variable];
        world.sh_with(&quota, "mkdir ready; chmod 300 ready").expect(0);
        world.sh_with(&quota, script).says("disk limit");
        world.sh_with(&quota, "head -c 30000000 /dev/zero >ready/f").says("disk limit");
        let without = World::new();
        let done = without.sh_with(&["--env", &variable], script).expect(0);
        assert!(!done.err.contains("disk limit"), "the control: {}", done.err);
        for world in [&world, &without] {
            world.host("chmod").args(["-R", "u+rwx", "."]).output().unwrap();
            world.host("find").args([".", "-delete"]).output().unwrap();
        }
    }
}
