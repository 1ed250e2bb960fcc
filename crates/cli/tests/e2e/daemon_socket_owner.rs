//! Whose socket it is, and who is at the other end of it.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use ringfence_api::{ExecRequest, SessionInfo};
use rustix::process::Signal;

use crate::approvals::configure;
use crate::daemon_fixture::{ASK, Served, exec, raw, stdout};
use crate::test_timeouts::{ended, mortal};
use crate::testkit::{Done, World, eventually, finish, is_root, send};

const HEALTH: &[u8] = b"GET /v1/health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

fn listener(world: &World, mode: u32) -> (PathBuf, UnixListener) {
    let socket = world.beside("h").join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(mode)).unwrap();
    (socket, listener)
}

/// As whoever starts services does.
fn handed_over(world: &World, listener: &UnixListener) -> Child {
    let mut command = world.host("sh");
    command.env("XDG_RUNTIME_DIR", world.beside("r"));
    command.args(["-c", "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$RINGFENCE\" serve"]);
    let listener: OwnedFd = listener.try_clone().unwrap().into();
    let child = command.stdin(Stdio::from(listener)).stderr(Stdio::null()).spawn().unwrap();
    mortal(&child);
    child
}

fn by_hand(world: &World, socket: &Path) -> Done {
    finish(world.ringfence().args(["serve", "--socket"]).arg(socket), b"")
}

/// Whoever is started by hand takes no socket that is served or kept for a daemon, and its doors stay.
#[test]
fn a_socket_of_the_service_manager_is_not_taken_by_hand() {
    let world = World::new();
    let (socket, listener) = listener(&world, 0o600);
    let inode = fs::metadata(&socket).unwrap().ino();
    by_hand(&world, &socket).expect(125).says("another daemon serves");
    let mut child = handed_over(&world, &listener);
    assert_eq!(raw(&socket, HEALTH).0, 200);
    let doors = socket.with_extension("sessions");
    assert!(doors.is_dir(), "its doors are beside its socket");
    fs::write(doors.join("mark"), "").unwrap();
    by_hand(&world, &socket).expect(125).says("another daemon serves");
    // Also where whoever listened does not any more: the lock is the daemon's.
    fs::rename(&socket, socket.with_extension("aside")).unwrap();
    by_hand(&world, &socket).expect(125).says("another daemon serves");
    fs::rename(socket.with_extension("aside"), &socket).unwrap();
    assert_eq!(fs::metadata(&socket).unwrap().ino(), inode);
    assert!(doors.join("mark").exists());
    assert_eq!(raw(&socket, HEALTH).0, 200);
    send(&child, Signal::TERM);
    assert!(ended("the daemon, told to end", &mut child).success());
    // The control: what nobody serves is taken.
    drop(listener);
    // A child that another test has just forked holds a copy of the listener until it execs.
    eventually("no process listens", || UnixStream::connect(&socket).is_err());
    let mut command = world.ringfence();
    command.args(["serve", "--socket"]).arg(&socket).stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    mortal(&child);
    eventually("it serves", || raw_or_none(&socket) == 200);
    send(&child, Signal::TERM);
    assert!(ended("the daemon, told to end", &mut child).success());
}

fn raw_or_none(socket: &Path) -> u16 {
    if UnixStream::connect(socket).is_err() {
        return 0;
    }
    raw(socket, HEALTH).0
}

/// A socket that others can use is not served.
#[test]
fn a_socket_that_others_can_use_is_not_served() {
    let world = World::new();
    let (_socket, listener) = listener(&world, 0o666);
    let mut child = handed_over(&world, &listener);
    assert_eq!(ended("the daemon", &mut child).code(), Some(125));
}

/// What stands for a fence, connects while the daemon sleeps, and is gone when it looks: another has its number by then.
const RACE: &str = r#"
import ctypes, errno, os, signal, socket, struct, subprocess, sys, time
path = sys.argv[1]
env = dict(os.environ)
daemon = subprocess.Popen([env['RINGFENCE'], 'serve', '--socket', path], stderr=subprocess.DEVNULL)
for _ in range(6000):
    try:
        # A socket is there before it listens.
        with socket.socket(socket.AF_UNIX) as s: s.connect(path)
        break
    except OSError: time.sleep(0.02)
def ask(s):
    s.sendall(b'GET /v1/whoami HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n')
    answer = b''
    while True:
        part = s.recv(4096)
        if not part: break
        answer += part
    return answer.split(b' ')[1].decode()
def connected():
    s = socket.socket(socket.AF_UNIX); s.settimeout(100); s.connect(path); return s
with connected() as s:
    try:
        os.close(struct.unpack('i', s.getsockopt(socket.SOL_SOCKET, 77, 4))[0])
        print('by process')
    except OSError as error:
        assert error.errno == errno.ENOPROTOOPT, error
        print('by number')
print('owner', ask(connected()))
libc = ctypes.CDLL(None)
def fence():
    libc.prctl(38, 1, 0, 0, 0)
    code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))
    program = struct.pack('HxxxxxxP', 1, ctypes.addressof(code))
    assert libc.prctl(22, 2, program, 0, 0) == 0
def fenced_child(hold):
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        fence()
        s = connected()
        socket.send_fds(theirs, [b'x'], [s.fileno()])
        if hold: time.sleep(1000)
        os._exit(0)
    _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    s = socket.socket(fileno=fds[0]); s.settimeout(100)
    return child, s
child, s = fenced_child(True)
print('fenced', ask(s))
os.kill(child, signal.SIGKILL); os.waitpid(child, 0)
daemon.send_signal(signal.SIGSTOP)
os.waitid(os.P_PID, daemon.pid, os.WSTOPPED)
child, s = fenced_child(False)
os.waitpid(child, 0)
with open('/proc/sys/kernel/ns_last_pid', 'w') as f: f.write(str(child - 1))
other = subprocess.Popen(['sleep', '1000'])
print('same', other.pid == child)
daemon.send_signal(signal.SIGCONT)
print('raced', ask(s))
other.kill(); other.wait()
daemon.terminate(); daemon.wait()
"#;

/// Who was fenced when they connected is no owner when their number is somebody else's.
#[test]
fn a_number_that_is_used_again_makes_nobody_an_owner() {
    let world = World::new();
    // In namespaces of its own, where numbers can be chosen.
    let own = if is_root() {
        &["--mount-proc"][..]
    } else {
        &["--user", "--map-current-user", "--keep-caps", "--mount-proc"]
    };
    let mut command = world.host("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount"]).args(own);
    command.args(["python3", "-c", RACE]).arg(world.beside("p").join("s"));
    let done = finish(&mut command, b"").expect(0);
    let said = done.text();
    let said: Vec<&str> = said.lines().collect();
    // KERNEL: before 6.5 the kernel knows a number alone, as the documentation says: the other one is asked about.
    let raced = if said.first() == Some(&"by number") { "raced 200" } else { "raced 401" };
    assert_eq!(
        said.get(1..),
        Some(&["owner 200", "fenced 401", "same True", raced][..]),
        "{said:?} {}",
        done.err
    );
}

/// What is no socket is somebody's, and stays; what a daemon that was killed left is taken.
#[test]
fn a_file_in_the_place_of_the_socket_stays() {
    let world = World::new();
    let place = world.beside("f");
    let (file, link) = (place.join("file"), place.join("link"));
    fs::write(&file, "mine").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for path in [&file, &link] {
        by_hand(&world, path).expect(125).says("is there, and is no socket");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    assert!(link.is_symlink());
    // The control.
    let left = place.join("left");
    drop(UnixListener::bind(&left).unwrap());
    let served = Served::at(world, left, &[]);
    assert!(served.sessions().is_empty());
}

/// Doors are beside the socket that they belong to: another daemon in the same directory has its own.
#[test]
fn two_daemons_in_one_directory_leave_each_other_the_doors() {
    let first = Served::new();
    let session = first.session();
    let knocks = |served: &Served, session: &SessionInfo| {
        let asked = format!("{ASK} ask GET \"$S\"");
        stdout(&served.sh(session, &asked))
    };
    assert_eq!(knocks(&first, &session), "200\n", "control");
    let second = Served::at(World::new(), first.socket.with_file_name("other.sock"), &[]);
    let other = second.session();
    assert_eq!(knocks(&second, &other), "200\n");
    assert_eq!(knocks(&first, &session), "200\n", "its door is still there");
    drop(second);
    assert_eq!(knocks(&first, &session), "200\n");
    // A place whose doors would be too long is told before anybody needs one.
    let long = first.world.beside("l").join("s".repeat(200));
    by_hand(&first.world, &long).expect(125).says("too long for a socket");
    let mut check = first.world.ringfence();
    finish(check.args(["serve", "--check", "--socket"]).arg(&long), b"")
        .expect(125)
        .says("too long for a socket");
}

/// Whatever a daemon starts has neither the socket that was handed to it nor its name.
#[test]
fn what_was_handed_over_is_not_handed_on() {
    let world = World::new();
    let (socket, listener) = listener(&world, 0o600);
    let (programs, told) = (world.beside("programs"), world.beside("told"));
    let script = format!(
        "#!/bin/sh\n{{ readlink /proc/self/fd/3; env; }} >{0}/new 2>&1; mv {0}/new {0}/all\n",
        told.display()
    );
    let program = programs.join("notify-send");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    configure(&world, "profile = \"guarded\"\n[approvals]\nnotify = [\"desktop\"]\n");
    let mut command = world.host("sh");
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display());
    command.env("PATH", path).env("XDG_RUNTIME_DIR", world.beside("r"));
    let daemon = "exec \"$RINGFENCE\" serve --drain-timeout 10ms";
    // The control is this shell: it has both.
    let script = format!(
        "exec 3<&0 0</dev/null; export LISTEN_FDS=1 LISTEN_FDNAMES=x LISTEN_PID=$$; readlink /proc/self/fd/3 >{}/had; {daemon}",
        told.display()
    );
    let handed: OwnedFd = listener.into();
    let child =
        command.args(["-c", &script]).stdin(Stdio::from(handed)).stderr(Stdio::null()).spawn().unwrap();
    mortal(&child);
    drop(command);
    assert_eq!(raw(&socket, HEALTH).0, 200);
    let served = Served { world, child, socket };
    let session = served.session();
    let argv = ["mkdir", "made"].map(str::to_owned).to_vec();
    served.client().call(&ExecRequest { background: true, argv, ..exec(&session, "") }).unwrap();
    eventually("somebody was told", || told.join("all").exists());
    let has = fs::read_to_string(told.join("all")).unwrap();
    let had = fs::read_to_string(told.join("had")).unwrap();
    assert!(had.starts_with("socket:["), "{had}");
    assert!(!has.contains(had.trim_end()) && !has.contains("LISTEN_"), "{has}");
    assert!(has.contains("XDG_RUNTIME_DIR="), "it has the rest: {has}");
}

/// Every file below, with what is in it. Of databases only that they are there: who closes one last moves what it holds from one of
/// its files to the other.
fn below(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.to_string_lossy().into_owned();
            if name.ends_with("-wal") || name.ends_with("-shm") {
                continue;
            }
            let is_plain = !path.is_dir() && !name.ends_with(".db");
            let content = if is_plain { fs::read(&path).unwrap_or_default() } else { Vec::new() };
            if path.is_dir() {
                open.push(path.clone());
            }
            found.insert(path, content);
        }
    }
    found
}

/// Whether a process has its working directory there, as the sweeper of a daemon that has ended.
fn works_in(directory: &Path) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut places = processes.filter_map(|process| fs::read_link(process.path().join("cwd")).ok());
    places.any(|place| place.starts_with(directory))
}

/// `--check` looks, and leaves everything as it was: where nothing is, and where a daemon has been.
#[test]
fn a_check_writes_nothing() {
    let world = World::new();
    configure(&world, "[daemon]\nlisten = \"127.0.0.1:0\"\ntls = \"generated\"\n");
    let check = |world: &World, socket: &Path| {
        finish(world.ringfence().args(["serve", "--check", "--socket"]).arg(socket), b"").expect(0);
    };
    let socket = world.beside("c").join("deep/d.sock");
    check(&world, &socket);
    assert!(below(&world.state).is_empty(), "{:?}", below(&world.state).keys());
    assert!(!socket.parent().unwrap().exists());
    configure(&world, "");
    let served = Served::at(world, socket, &[]);
    drop(served.session());
    let (world, socket) = served.over();
    eventually("what cleans up after it has ended", || !works_in(&world.state));
    configure(&world, "[daemon]\nlisten = \"127.0.0.1:0\"\ntls = \"generated\"\n");
    // Whoever looks at the ledger is in it.
    let records = || world.all_records().iter().filter(|one| one["event"]["kind"] != "ledger-read").count();
    let (before, written) = (below(&world.state), records());
    let beside = below(socket.parent().unwrap());
    assert!(before.len() > 1);
    check(&world, &socket);
    let after = below(&world.state);
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    assert!(before == after, "the same names, and another content");
    assert_eq!(records(), written);
    assert_eq!(beside, below(socket.parent().unwrap()));
}
