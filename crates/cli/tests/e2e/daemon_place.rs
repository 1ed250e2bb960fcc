//! Whose socket it is, and who is at the other end of it.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::Signal;

use crate::patience::{ended, mortal};
use crate::served::raw;
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
    let doors = socket.with_file_name("doors");
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
    let mut command = world.ringfence();
    command.args(["serve", "--socket"]).arg(&socket).stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    mortal(&child);
    eventually("it serves", || raw_or_none(&socket) == 200);
    send(&child, Signal::TERM);
    assert!(ended("the daemon, told to end", &mut child).success());
}

fn raw_or_none(socket: &Path) -> u16 {
    if std::os::unix::net::UnixStream::connect(socket).is_err() {
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
    if os.path.exists(path): break
    time.sleep(0.02)
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
