//! What was approved is what runs: a file that is replaced after the last check, while the command starts, is not executed.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::inotify;

use crate::approval::session;
use crate::approvals::configure;
use crate::terminal::Terminal;
use crate::testkit::{World, collect, script};

/// Far more than Ringfence looks at a file before it starts a command.
const MOST_LOOKS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(60);

struct Case {
    /// The arguments of `run` that are asked about.
    asked: &'static str,
    /// Low risks take one key.
    yes: &'static [u8],
    file: &'static str,
    /// With the word that it writes as `WORD`.
    content: &'static str,
}

impl Case {
    fn command(&self) -> &'static str {
        self.asked.split_once("-- ").unwrap().1
    }
}

const CASES: [Case; 4] = [
    Case {
        asked: "--profile workspace -- sh job.sh",
        yes: b"o",
        file: "job.sh",
        content: "#!/bin/sh\necho WORD >ran\n",
    },
    Case {
        asked: "--profile guarded -- python3 job.py",
        yes: b"yes\r",
        file: "job.py",
        content: "open('ran', 'w').write('WORD\\n')\n",
    },
    Case {
        asked: "--profile guarded -- ./tool",
        yes: b"yes\r",
        file: "tool",
        content: "#!/bin/sh\necho WORD >ran\n",
    },
    // A command of the list writes to the script, and leaves its content.
    Case {
        asked: "--profile guarded -- sh -c 'chmod +x job.py && python3 job.py'",
        yes: b"yes\r",
        file: "job.py",
        content: "open('ran', 'w').write('WORD\\n')\n",
    },
];

/// Waits until `file` was read `looks` times to its end and closed, and renames another file over it at once. It does not
/// once the command runs and no look is left to count.
fn swap_after(looks: usize, workspace: &Path, file: &str) -> thread::JoinHandle<bool> {
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
    // The kernel merges an event with an identical one before it that nobody has read yet. Between two closes of one
    // look after the other there is always an open, so no close is lost on a busy machine.
    let flags = inotify::WatchFlags::OPEN | inotify::WatchFlags::CLOSE_NOWRITE;
    inotify::add_watch(&watch, workspace.join(file), flags).unwrap();
    let (from, to, ran) = (workspace.join("evil"), workspace.join(file), workspace.join("ran"));
    thread::spawn(move || {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = 0;
        while Instant::now() < deadline {
            // Asked before the events are counted: every look that came before the command is among them.
            let has_run = ran.exists();
            seen += closed(&watch);
            if seen >= looks {
                fs::rename(from, to).unwrap();
                return true;
            }
            if has_run {
                return false;
            }
        }
        false
    })
}

fn closed(watch: &OwnedFd) -> usize {
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(watch, &mut buffer);
    let next = || events.next().ok().map(|event| event.events());
    std::iter::from_fn(next).filter(|flags| flags.contains(inotify::ReadFlags::CLOSE_NOWRITE)).count()
}

/// A question that comes again is answered with no.
fn deny_what_is_asked_again(case: &Case, terminal: &Terminal, child: &mut Child) {
    let deadline = Instant::now() + PATIENCE;
    let mut asked = 1;
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "{}", terminal.seen());
        let seen = terminal.seen();
        if seen.matches("ringfence asks").count() > asked && seen.ends_with(" > ") {
            asked += 1;
            terminal.type_in(if case.yes == b"o" { b"d" } else { b"no\r" });
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn place(world: &World, case: &Case, name: &str, word: &str) {
    script(&world.workspace.join(name), &case.content.replace("WORD", word));
}

/// Says yes and swaps after so many more looks at the file. What ran, and whether the swap happened.
fn attempt(world: &World, case: &Case, looks: usize) -> (Option<String>, bool) {
    place(world, case, case.file, "good");
    place(world, case, "evil", "evil");
    let _none = fs::remove_file(world.workspace.join("ran"));
    let terminal = Terminal::new(60, 100);
    let run = format!("exec \"$RINGFENCE\" run {}", case.asked);
    let mut child = session(world, &terminal, &run);
    terminal.wait_for_question(1);
    let swapper = swap_after(looks, &world.workspace, case.file);
    terminal.type_in(case.yes);
    deny_what_is_asked_again(case, &terminal, &mut child);
    drop(collect(child));
    (world.read("ran"), swapper.join().unwrap())
}

/// Each look at the file after the yes is followed by a swap in one of the attempts, the last look included.
#[test]
fn a_script_that_is_swapped_right_after_any_look_at_it_does_not_run() {
    for case in &CASES {
        let world = World::new();
        configure(&world, "[[command]]\nask = \"sh\"\n");
        let mut good_after_swap = 0;
        for looks in 1..=MOST_LOOKS {
            let (ran, swapped) = attempt(&world, case, looks);
            assert_ne!(ran.as_deref(), Some("evil\n"), "{}: swapped after look {looks}", case.asked);
            good_after_swap += usize::from(swapped && ran.is_some());
            if !swapped {
                assert_eq!(ran.as_deref(), Some("good\n"), "control: {} runs without a swap", case.asked);
                break;
            }
        }
        assert!(good_after_swap > 0, "{}: no swap came after the last look", case.asked);
    }
}

/// The same swap where nothing is bound: the other script runs.
#[test]
fn a_script_that_nobody_approved_is_whatever_has_its_name() {
    for case in &CASES {
        let world = World::new();
        place(&world, case, case.file, "good");
        place(&world, case, "evil", "evil");
        let started = world.workspace.join("started");
        let wait = format!("touch started; while test -e evil; do sleep 0.01; done; {}", case.command());
        let swapper = {
            let (from, to) = (world.workspace.join("evil"), world.workspace.join(case.file));
            thread::spawn(move || {
                crate::testkit::eventually("the command", || started.exists());
                fs::rename(from, to).unwrap();
            })
        };
        world.sh(&wait).expect(0);
        swapper.join().unwrap();
        assert_eq!(world.read("ran").as_deref(), Some("evil\n"), "control: {}", case.asked);
    }
}
