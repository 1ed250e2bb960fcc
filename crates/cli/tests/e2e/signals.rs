//! Signals to ringfence are meant for the command; when a call is over, all of it is over.

use std::fs;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::testkit::{World, collect, eventually, marker, processes_with, send};

fn start(world: &World, flags: &[&str], script: &str) -> Child {
    world
        .ringfence()
        .arg("run")
        .args(flags)
        .args(["--", "sh", "-c", script, &marker(world)])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A daemon (own session, parent gone) that writes a new number to `beat` many times a second.
fn daemon(world: &World) -> String {
    world.write(
        "daemon.sh",
        "trap '' TERM HUP INT; i=0; while :; do i=$((i+1)); echo $i >beat.new; mv beat.new beat; sleep 0.02; done",
    );
    let mark = marker(world);
    format!(
        "(setsid sh daemon.sh {mark} </dev/null >/dev/null 2>&1 &) ; while [ ! -s beat ]; do sleep 0.02; done; echo up >up; "
    )
}

fn wait_until_up(world: &World) {
    eventually("the daemon beats", || world.read("up").is_some());
}

/// By host state: nothing with the marker is a process any more, and the file does not change.
#[track_caller]
fn assert_all_dead(world: &World) {
    let mark = marker(world);
    eventually(&format!("everything of the call is gone: {:?}", processes_with(&mark)), || {
        processes_with(&mark).is_empty()
    });
    let before = world.read("beat");
    thread::sleep(Duration::from_millis(200));
    assert_eq!(world.read("beat"), before, "the heart still beats");
}

#[test]
fn signals_are_forwarded_to_the_command() {
    let world = World::new();
    for (signal, name, number) in [
        (Signal::TERM, "TERM", 15),
        (Signal::INT, "INT", 2),
        (Signal::HUP, "HUP", 1),
        (Signal::USR1, "USR1", 10),
    ] {
        let _ = fs::remove_file(world.workspace.join("up"));
        let script =
            format!("trap 'echo caught {name}; exit 9' {name}; echo up >up; while :; do sleep 0.05; done");
        let child = start(&world, &[], &script);
        wait_until_up(&world);
        send(&child, signal);
        assert_eq!(collect(child).expect(9).text(), format!("caught {name}\n"));
        fs::remove_file(world.workspace.join("up")).unwrap();
        let child = start(&world, &[], "echo up >up; exec sleep 600");
        wait_until_up(&world);
        send(&child, signal);
        collect(child).expect(128 + number);
    }
}

/// S000-38, S7: what the command left running ends with it.
#[test]
fn daemonised_grandchild_dies_with_the_call() {
    let world = World::new();
    let done = collect(start(&world, &[], &format!("{} exit 4", daemon(&world))));
    done.expect(4);
    assert!(world.read("beat").is_some(), "it did run");
    assert_all_dead(&world);
}

/// The control: without ringfence the same daemon outlives its parents.
#[test]
fn without_ringfence_the_daemon_lives_on() {
    let world = World::new();
    let child = world
        .host("sh")
        .args(["-c", &daemon(&world)])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    collect(child).expect(0);
    let found = processes_with(&marker(&world));
    assert!(!found.is_empty(), "the daemon is not there");
    // Whoever was forked while the others were looked for is found the next time.
    eventually("what was started is gone", || {
        let left = processes_with(&marker(&world));
        for line in &left {
            let pid: i32 = line.split(':').next().unwrap().parse().unwrap();
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            let _gone = rustix::process::kill_process(pid, Signal::KILL);
        }
        left.is_empty()
    });
    assert_all_dead(&world);
}

/// S000-26, S000-40, S002-27, S003-35: first asked, then killed, daemons included.
#[test]
fn timeout_kills_the_whole_tree() {
    let world = World::new();
    let script = format!("trap 'echo asked >asked' TERM; {} while :; do sleep 0.05; done", daemon(&world));
    let begun = Instant::now();
    let child = start(&world, &["--timeout", "1500ms"], &script);
    wait_until_up(&world);
    collect(child).expect(124);
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert_eq!(world.read("asked").as_deref(), Some("asked\n"), "the polite signal came first");
    assert_all_dead(&world);
}

#[test]
fn a_command_that_heeds_the_polite_signal_is_not_killed() {
    let world = World::new();
    let script = "trap 'echo bye; exit 0' TERM; echo up >up; while :; do sleep 0.05; done";
    let done = collect(start(&world, &["--timeout", "500ms"], script)).expect(124);
    assert_eq!(done.text(), "bye\n");
}

#[test]
fn two_interrupts_end_what_one_does_not() {
    let world = World::new();
    let script = format!("trap 'echo once >once' INT; {} while :; do sleep 0.05; done", daemon(&world));
    let child = start(&world, &[], &script);
    wait_until_up(&world);
    send(&child, Signal::INT);
    eventually("the first is the command's to handle", || world.read("once").is_some());
    send(&child, Signal::INT);
    collect(child).expect(137);
    assert_all_dead(&world);
}

/// Whatever kills the supervisor, nothing inside outlives it.
#[test]
fn nothing_outlives_a_killed_supervisor() {
    let world = World::new();
    for backend in ["native", "bubblewrap"] {
        for left in ["up", "beat"] {
            let _ = fs::remove_file(world.workspace.join(left));
        }
        let script = format!("{} while :; do sleep 0.05; done", daemon(&world));
        let child = start(&world, &["--backend", backend], &script);
        wait_until_up(&world);
        assert!(processes_with(&marker(&world)).len() >= 3, "seen from the host while it runs");
        send(&child, Signal::KILL);
        assert_eq!(collect(child).signal, Some(9));
        assert_all_dead(&world);
    }
}

/// S000-39: one killed session does not touch the other, though they share a workspace (S000-49).
#[test]
fn killed_session_leaves_the_other_alive() {
    let world = World::new();
    let wait = "while [ ! -e finish ]; do sleep 0.02; done; cat word";
    let survivor = start(&world, &[], &format!("echo up >up; {wait}"));
    let victim = start(&world, &[], "echo shared >word; exec sleep 600");
    eventually("both run", || {
        world.read("up").is_some() && world.read("word").as_deref() == Some("shared\n")
    });
    send(&victim, Signal::KILL);
    collect(victim);
    world.write("finish", "");
    assert_eq!(collect(survivor).expect(0).text(), "shared\n");
    assert_all_dead(&world);
}

/// S000-37: an own session and group, with no process of the host in sight.
#[test]
fn command_has_its_own_session() {
    let world = World::new();
    let done = world.sh(
        "ps -o sid= -p $$ 2>/dev/null || cut -d' ' -f6 /proc/$$/stat; echo $$; ls /proc | grep -c '^[0-9]'",
    );
    let done = done.expect(0);
    let numbers: Vec<u32> = done.text().split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_eq!(numbers[0], numbers[1], "the command leads its session");
    assert!(numbers[2] < 12, "only the sandbox's own processes are visible: {numbers:?}");
}

/// The parent of the command is its leader, which alone knows how the command ended.
#[test]
fn a_command_that_stops_its_leader_ends_with_it() {
    let world = World::new();
    let script = "kill -STOP $PPID; exit 0";
    for backend in ["native", "bubblewrap"] {
        let done = world.sh_with(&["--backend", backend, "--timeout", "40s"], script);
        assert!(done.took < Duration::from_secs(20), "{backend}: {:?} {}", done.took, done.err);
        assert_ne!(done.code, Some(124), "{backend}");
    }
    world.sh("kill -0 $PPID").expect(0);
}

fn parent_of(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Without a PID namespace nothing but the leader is left to end a command.
#[test]
fn a_supervisor_that_dies_with_its_stand_in_leaves_nothing() {
    let world = World::new();
    let script = format!("echo up >up; sleep 1000; : {}", marker(&world));
    let mut child = start(&world, crate::testkit::LANDLOCK, &script);
    wait_until_up(&world);
    let shells = processes_with(&format!("sleep 1000; : {}", marker(&world)));
    let pids: Vec<u32> = shells.iter().map(|line| line.split(':').next().unwrap().parse().unwrap()).collect();
    let shell = *pids.iter().find(|pid| **pid != child.id()).unwrap();
    let leader = parent_of(shell);
    let stand_in = parent_of(leader);
    assert_eq!(parent_of(stand_in), child.id());
    let stand_in = rustix::process::Pid::from_raw(stand_in.cast_signed()).unwrap();
    // Stopped first, so that neither sees the end of the other.
    for signal in [Signal::STOP, Signal::KILL] {
        send(&child, signal);
        rustix::process::kill_process(stand_in, signal).unwrap();
    }
    let _status = child.wait().unwrap();
    assert_all_dead(&world);
}
