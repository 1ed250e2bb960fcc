//! Ringfence at a terminal: the command gets one of its own, and the caller's comes back as it was.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::test_timeouts::{PATIENCE, comes_true};
use crate::testkit::{World, collect, eventually, send};

/// A terminal with somebody reading what appears on it.
pub(crate) struct Terminal {
    master: File,
    slave: OwnedFd,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    pub(crate) fn new(rows: u16, columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap().into();
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&slave, size).unwrap();
        let master = File::from(master);
        let seen = Arc::new(Mutex::new(Vec::new()));
        watch(master.try_clone().unwrap(), Arc::clone(&seen));
        Self { master, slave, seen }
    }

    pub(crate) fn end(&self) -> Stdio {
        self.slave.try_clone().unwrap().into()
    }

    pub(crate) fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) {
        let shown = comes_true(|| self.seen().contains(text));
        assert!(shown, "not on the terminal after {PATIENCE:?}: `{text}`, but:\n{}", self.seen());
    }

    /// Until so many questions were asked and the last one can be answered: what is typed before that is dropped.
    pub(crate) fn wait_for_question(&self, number: usize) {
        eventually("a question on the terminal", || {
            let seen = self.seen();
            seen.matches("ringfence asks").count() == number && seen.ends_with(" > ")
        });
    }

    pub(crate) fn type_in(&self, keys: &[u8]) {
        (&self.master).write_all(keys).unwrap();
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.slave, size).unwrap();
    }

    pub(crate) fn mode(&self) -> Termios {
        tcgetattr(&self.slave).unwrap()
    }

    fn run(&self, world: &World, script: &str) -> Child {
        let mut command = world.ringfence();
        command
            .args(["run", "--", "sh", "-c", script])
            .stdin(self.end())
            .stdout(self.end())
            .stderr(self.end());
        command.spawn().unwrap()
    }
}

fn watch(mut master: File, seen: Arc<Mutex<Vec<u8>>>) {
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        // A terminal whose other end is closed answers EIO.
        while let Ok(length @ 1..) = master.read(&mut buffer) {
            seen.lock().unwrap().extend_from_slice(&buffer[..length]);
        }
    });
}

#[test]
fn the_command_has_a_terminal_of_its_own() {
    let world = World::new();
    let terminal = Terminal::new(37, 91);
    let before = terminal.mode();
    let script = "tty; stty size; for n in 0 1 2; do test -t $n && echo \"fd $n is a tty\"; done; echo CI=[$CI]; exit 7";
    collect(terminal.run(&world, script)).expect(7);
    for expected in ["/dev/pts/", "37 91", "fd 0 is a tty", "fd 1 is a tty", "fd 2 is a tty", "CI=[]"] {
        terminal.wait_for(expected);
    }
    let after = terminal.mode();
    assert_eq!((before.local_modes, before.input_modes), (after.local_modes, after.input_modes));
    assert_eq!(before.output_modes, after.output_modes);
    assert!(after.local_modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
}

#[test]
fn keys_reach_the_command_and_control_c_interrupts_it() {
    let world = World::new();
    let terminal = Terminal::new(24, 80);
    let child = terminal.run(&world, "read line; echo \"got <$line>\"; echo ready; exec sleep 600");
    terminal.type_in(b"hello\r");
    terminal.wait_for("got <hello>");
    terminal.wait_for("ready");
    assert!(!terminal.mode().local_modes.contains(LocalModes::ISIG), "raw while the command runs");
    terminal.type_in(b"\x03");
    collect(child).expect(130);
    assert!(terminal.mode().local_modes.contains(LocalModes::ISIG), "and back afterwards");
}

#[test]
fn end_of_input_and_resizing_work_as_at_any_terminal() {
    let world = World::new();
    let terminal = Terminal::new(24, 80);
    let wait = "while [ ! -e go ]; do sleep 0.05; done";
    let child = terminal.run(&world, &format!("trap 'stty size' WINCH; echo start; {wait}; cat; echo over"));
    terminal.wait_for("start");
    terminal.resize(50, 132);
    send(&child, rustix::process::Signal::WINCH);
    terminal.wait_for("50 132");
    world.write("go", "");
    terminal.type_in(b"text\r\x04");
    collect(child).expect(0);
    terminal.wait_for("over");
}

#[test]
fn redirected_output_is_no_terminal_even_when_the_input_is() {
    let world = World::new();
    let terminal = Terminal::new(24, 80);
    let script =
        "test -t 0 && echo in; test -t 1 || echo no-out; test -t 2 && echo err >&2; printf 'a\\nb\\n'";
    let mut command = world.ringfence();
    command
        .args(["run", "--", "sh", "-c", script])
        .stdin(terminal.end())
        .stdout(Stdio::piped())
        .stderr(terminal.end());
    let done = collect(command.spawn().unwrap()).expect(0);
    assert_eq!(done.text(), "in\nno-out\na\nb\n", "no carriage returns in a file");
    terminal.wait_for("err");
}

/// The caller's terminal is not the command's: nothing can be typed into it from inside (CVE-2017-5226).
#[test]
fn the_callers_terminal_is_out_of_reach() {
    let world = World::new();
    let terminal = Terminal::new(24, 80);
    let attempt = "import fcntl, termios\nfor c in b'echo pwned\\n':\n    fcntl.ioctl(0, termios.TIOCSTI, bytes([c]))\n";
    world.write("attempt.py", attempt);
    let child = terminal.run(&world, "python3 attempt.py; echo finished");
    terminal.wait_for("finished");
    collect(child).expect(0);
    let left = rustix::io::ioctl_fionread(&terminal.slave).unwrap();
    assert_eq!(left, 0, "something was typed into the caller's terminal: {}", terminal.seen());
}
