//! What a posture says is what attacks find: host sockets, memory that is used together, work between directories.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::testkit::{LANDLOCK, World, eventually, finish, is_root, marker};

/// Connects to each path and says which answered.
const KNOCK: &str = "import socket, sys
for path in sys.argv[1:]:
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(path)
        print('reached', path)
    except OSError as e:
        print('closed', e.errno)
";

/// A directory that the test made in a place that every sandbox shows, removed at the end.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

/// In a toolchain of the throwaway home, and for root in the machine's own directories.
fn places(world: &World) -> Vec<Place> {
    let mut directories = vec![world.home.join(".rustup")];
    if is_root() {
        directories.extend(["/opt", "/usr/local"].map(|directory| Path::new(directory).join(marker(world))));
    }
    directories.iter().for_each(|directory| fs::create_dir_all(directory).unwrap());
    directories.into_iter().map(Place).collect()
}

/// A program of the host that binds to a relative name, so that the kernel's list does not have the path.
struct Daemon(Child);

impl Daemon {
    fn below(directory: &Path) -> Self {
        let serve = "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.bind('relative.sock')\ns.listen(9)\n\
                     print('ready', flush=True)\nsys.stdin.read()\n";
        let mut child = Command::new("/usr/bin/python3")
            .args(["-c", serve])
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line)
            .unwrap();
        Self(child)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}

fn connections(listener: &UnixListener) -> usize {
    listener.set_nonblocking(true).unwrap();
    std::iter::from_fn(|| listener.accept().ok()).count()
}

fn level<'a>(object: &'a Value, control: &str) -> &'a str {
    object["posture"]["controls"][control]["level"].as_str().unwrap()
}

#[test]
fn host_sockets_in_the_system_are_out_of_reach() {
    let world = World::new();
    let places = places(&world);
    world.write("knock.py", KNOCK);
    let listeners: Vec<UnixListener> =
        places.iter().map(|place| UnixListener::bind(place.0.join("daemon.sock")).unwrap()).collect();
    let paths: Vec<String> =
        places.iter().map(|place| place.0.join("daemon.sock").to_str().unwrap().to_owned()).collect();
    let knock: Vec<&str> =
        ["python3", "knock.py"].into_iter().chain(paths.iter().map(String::as_str)).collect();
    let control = finish(world.host("python3").args(&knock[1..]), b"").expect(0);
    assert_eq!(control.text().matches("reached").count(), paths.len(), "{}", control.text());
    assert_eq!(listeners.iter().map(connections).sum::<usize>(), paths.len());
    for flags in [&["--backend", "native"][..], &["--net", "filtered"], &["--backend", "bubblewrap"]] {
        let object = world.json(flags, &knock);
        assert_eq!(object["stdout"].as_str().unwrap().matches("closed").count(), paths.len(), "{object}");
        assert_eq!(listeners.iter().map(connections).sum::<usize>(), 0, "{flags:?}");
    }
    let object = world.json(LANDLOCK, &knock);
    assert_eq!(level(&object, "ipc"), "absent", "{object}");
}

/// An overlay closes also what no list has: a socket with a relative name, and one that comes while a command runs.
#[test]
fn host_sockets_that_no_list_has_are_out_of_reach() {
    let world = World::new();
    let places = places(&world);
    world.write("knock.py", KNOCK);
    let daemons: Vec<Daemon> = places.iter().map(|place| Daemon::below(&place.0)).collect();
    let relative: Vec<String> =
        places.iter().map(|place| place.0.join("relative.sock").to_str().unwrap().to_owned()).collect();
    let later: Vec<String> =
        places.iter().map(|place| place.0.join("later.sock").to_str().unwrap().to_owned()).collect();
    let all: Vec<&str> = relative.iter().chain(&later).map(String::as_str).collect();
    let script = "touch started; while [ ! -e go ]; do sleep 0.02; done; exec python3 knock.py \"$@\"";
    let mut command = world.ringfence();
    command.args(["run", "--", "sh", "-c", script, "sh"]).args(&all);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("it has started", || world.workspace.join("started").exists());
    let listeners: Vec<UnixListener> = later.iter().map(|path| UnixListener::bind(path).unwrap()).collect();
    let control = finish(world.host("python3").arg("knock.py").args(&all), b"").expect(0);
    assert_eq!(control.text().matches("reached").count(), all.len(), "{}", control.text());
    assert_eq!(listeners.iter().map(connections).sum::<usize>(), later.len());
    world.write("go", "");
    let done = crate::testkit::collect(child).expect(0);
    assert_eq!(done.text().matches("closed").count(), all.len(), "{}", done.text());
    assert_eq!(listeners.iter().map(connections).sum::<usize>(), 0);
    // A list that lacks the path is all that bubblewrap has, and its posture does not call that enforced.
    let object = world.json(&["--backend", "bubblewrap"], &["python3", "knock.py", &relative[0]]);
    let reached = object["stdout"].as_str().unwrap().contains("reached");
    assert!(!reached || level(&object, "ipc") == "partial", "{object}");
    drop(daemons);
}

/// Before Landlock ABI 9 nothing closes a socket that the host puts into a root while a command runs. The posture says so.
#[test]
fn a_socket_that_comes_into_a_root_later_is_named_in_the_posture() {
    let world = World::new();
    world.write("knock.py", KNOCK);
    let path = world.workspace.join("later.sock");
    let script = "touch started; while [ ! -e go ]; do sleep 0.02; done; exec python3 knock.py later.sock";
    for backend in ["native", "bubblewrap"] {
        let mut command = world.ringfence();
        command.args(["run", "--json", "--backend", backend, "--", "sh", "-c", script]);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        eventually("it has started", || world.workspace.join("started").exists());
        let listener = UnixListener::bind(&path).unwrap();
        world.write("go", "");
        let object = crate::testkit::collect(child).json();
        let reached = connections(&listener) > 0;
        assert_eq!(level(&object, "ipc") == "enforced", !reached, "{object}");
        for name in ["started", "go", "later.sock"] {
            fs::remove_file(world.workspace.join(name)).unwrap();
        }
    }
}

/// Each keeps less than the limit; together they keep more. The last argument is how long they keep it: whoever counts may be slow
/// on a busy machine.
const TOGETHER: &str = "import array, ctypes, mmap, os, socket, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
MIB = 1 << 20
def private():
    return bytearray(b'x') * (200 * MIB)
def shared():
    m = mmap.mmap(-1, 200 * MIB)
    for i in range(0, 200 * MIB, 4096): m[i] = 1
    return m
def unmapped():
    kept = []
    for i in range(4):
        fd = os.memfd_create('m')
        os.write(fd, b'x' * (50 * MIB))
        kept.append(fd)
    return kept
def in_tmp():
    for i in range(4):
        with open('/dev/shm/%s-%d-%d' % (sys.argv[2], os.getpid(), i), 'wb') as f: f.write(b'x' * (50 * MIB))
def given_back():
    m = mmap.mmap(-1, 200 * MIB)
    for at in range(0, 200 * MIB, 10 * MIB):
        for i in range(at, at + 10 * MIB, 4096): m[i] = 1
        m.madvise(mmap.MADV_DONTNEED)
    return m
def of_a_thread(hold):
    def work():
        kept = hold()
        os.write(w, b'k')
        time.sleep(600)
        os._exit(0)
    threading.Thread(target=work).start()
    time.sleep(0.2)
    libc.syscall(60, 0)
def dead_main():
    of_a_thread(private)
def own_files():
    def hold():
        libc.unshare(0x400)
        return unmapped()
    of_a_thread(hold)
def not_dumpable():
    libc.prctl(4, 0, 0, 0, 0)
    return unmapped()
def in_transit():
    a, b = socket.socketpair()
    for fd in unmapped():
        a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))])
        os.close(fd)
    return a, b
def in_segments():
    libc.shmat.restype = ctypes.c_void_p
    ids = []
    for i in range(4):
        id = libc.shmget(0, ctypes.c_size_t(50 * MIB), 0o600)
        if id < 0: raise OSError(ctypes.get_errno(), 'shmget')
        at = libc.shmat(id, None, 0)
        ctypes.memset(at, 1, 50 * MIB)
        libc.shmdt(ctypes.c_void_p(at))
        ids.append(id)
    os.write(w, b'k')
    time.sleep(2)
    for id in ids: libc.shmctl(id, 0, None)
    time.sleep(600)
kind = {
    'private': private, 'shared': shared, 'unmapped': unmapped, 'in-tmp': in_tmp, 'given-back': given_back, 'dead-main': dead_main,
    'own-files': own_files, 'not-dumpable': not_dumpable, 'in-transit': in_transit, 'in-segments': in_segments,
}[sys.argv[1]]
children = []
for n in range(2):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        kept = kind()
        os.write(w, b'k')
        time.sleep(600)
        os._exit(0)
    os.close(w)
    children.append((pid, r))
held = sum(os.read(r, 1) == b'k' for pid, r in children)
dead, end = set(), time.monotonic() + int(sys.argv[3])
def look():
    dead.update(pid for pid, r in children if pid not in dead and os.waitpid(pid, os.WNOHANG) != (0, 0))
    return dead
while not look() and time.monotonic() < end: time.sleep(0.05)
if sys.argv[1] == 'in-segments': time.sleep(2)
alive = len(children) - len(look())
for pid, r in children:
    try: os.kill(pid, 9)
    except ProcessLookupError: pass
print('together', held, alive)
";

/// How long a command waits for its end, in seconds.
const PATIENT: &str = "60";

#[test]
fn memory_that_is_used_together_counts_together() {
    let world = World::new();
    world.write("together.py", TOGETHER);
    let mark = marker(&world);
    for kind in [
        "private",
        "shared",
        "unmapped",
        "in-tmp",
        "given-back",
        "dead-main",
        "own-files",
        "not-dumpable",
        "in-transit",
        "in-segments",
    ] {
        let control = finish(world.host("python3").args(["together.py", kind, &mark, "1"]), b"").expect(0);
        assert_eq!(control.text(), "together 2 2\n", "{kind}");
        for entry in fs::read_dir("/dev/shm").unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&mark) {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        let flags = ["--memory", "300m", "--file-size", "200m", "--tmp-size", "1g"];
        let object = world.json(&flags, &["python3", "together.py", kind, &mark, PATIENT]);
        assert!(!object["stdout"].as_str().unwrap().contains("together 2 2"), "{kind}: {object}");
        if kind == "in-segments" && object["outcome"]["limit_hit"].is_null() {
            // Where no control group counts them, there are only small ones.
            assert!(object["stderr"].as_str().unwrap().contains("shmget"), "{kind}: {object}");
            continue;
        }
        assert_eq!(object["outcome"]["limit_hit"], "memory", "{kind}: {object}");
        // What cannot be seen counts as far as the whole machine has it, with what other tests have.
        let wide = world.json(
            &["--memory", "3g", "--file-size", "200m", "--tmp-size", "1g"],
            &["python3", "together.py", kind, &mark, "1"],
        );
        assert_eq!(wide["stdout"], "together 2 2\n", "{kind}: {wide}");
    }
}

/// Pages that processes share count once: what a fork has not written takes no more memory.
#[test]
fn memory_that_is_shared_by_a_fork_counts_once() {
    let world = World::new();
    let script = "import os, time\nkept = bytearray(b'x') * (200 << 20)\n\
                  pids = []\nfor n in range(4):\n    pid = os.fork()\n    if pid == 0:\n        time.sleep(0.8); os._exit(0)\n    pids.append(pid)\n\
                  print(sum(os.waitpid(pid, 0)[1] for pid in pids))\n";
    world.write("forks.py", script);
    let object = world.json(&["--memory", "400m"], &["python3", "forks.py"]);
    assert_eq!(object["stdout"], "0\n", "{object}");
    assert_eq!(object["outcome"]["limit_hit"], Value::Null, "{object}");
}

/// Where the kernel does not count memory for all processes, the posture does not call limits enforced.
#[test]
fn limits_are_enforced_only_where_the_kernel_counts_memory() {
    let world = World::new();
    let object = world.json(&[], &["true"]);
    let limits = &object["posture"]["controls"]["limits"];
    let counted = limits["by"].as_str().unwrap().contains("counted");
    // No control group counts file locks.
    assert_eq!((&limits["level"], &limits["gap"]), (&"partial".into(), &"bounded".into()), "{object}");
    let missing = limits["missing"].as_str().unwrap();
    assert!(missing.contains("file locks"), "{object}");
    assert_eq!(missing.contains("memory control group"), counted, "{object}");
}

/// The attempts of item 17: each backend moves and links between directories of the workspace as the host does.
#[test]
fn links_and_renames_between_directories_work_in_every_backend() {
    let world = World::new();
    let script = "rm -rf a b && mkdir a b && echo x >a/f && ln a/f b/hard && mv -T a/f b/f && \
                  perl -e 'exit(rename(\"b/f\", \"a/g\") ? 0 : 1)' && [ \"$(stat -c %i a/g)\" = \"$(stat -c %i b/hard)\" ] && echo same";
    let control = finish(world.host("sh").args(["-c", script]), b"").expect(0);
    assert_eq!(control.text(), "same\n");
    for flags in [&["--backend", "native"][..], &["--backend", "bubblewrap"], LANDLOCK] {
        assert_eq!(world.sh_with(flags, script).expect(0).text(), "same\n", "{flags:?}");
    }
}

/// A right to move between directories is none to take a file out of, or into, where it may not be written.
#[test]
fn landlock_moves_nothing_across_the_border_of_a_root() {
    let world = World::new();
    let outside = world.beside("outside");
    fs::write(outside.join("f"), "secret").unwrap();
    let script = "ln \"$1/f\" stolen; mv -T \"$1/f\" taken; echo x >own; mv -T own \"$1/planted\"; ln own \"$1/linked\"; true";
    let outside_text = outside.to_str().unwrap();
    world.run(LANDLOCK, &["sh", "-c", script, "sh", outside_text]).expect(0);
    assert_eq!(fs::read_to_string(outside.join("f")).unwrap(), "secret");
    assert!(["planted", "linked"].iter().all(|name| !outside.join(name).exists()));
    assert!(["stolen", "taken"].iter().all(|name| !world.workspace.join(name).exists()));
    finish(world.host("sh").args(["-c", script, "sh", outside_text]), b"").expect(0);
    assert!(outside.join("planted").exists() || outside.join("linked").exists(), "the control");
}

/// Asks for each request on the directory it is in, and says what the kernel answered.
const REQUESTS: &str = "import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
here = os.open('.', os.O_RDONLY)
buffer = ctypes.create_string_buffer(8192)
for request in sys.argv[1:]:
    answer = libc.ioctl(here, ctypes.c_ulong(int(request, 16)), buffer)
    print(request, ctypes.get_errno() if answer < 0 else 0)
";

/// A snapshot has no masks, and a file handle has no path: requests that make or open them are refused by the filter,
/// whatever file system a workspace is on.
#[test]
fn file_systems_are_not_asked_for_files_by_number() {
    let world = World::new();
    world.write("requests.py", REQUESTS);
    // Snapshot, subvolume, search of the tree, path by number, send; XFS and ext4: handle, open by handle, exchange.
    let requests = [
        "50009401", "50009417", "5000940e", "50009418", "d0009411", "c0709411", "d0009412", "40489426",
        "c038586a", "4038586b", "c028660f", "6611",
    ];
    let arguments: Vec<&str> = ["python3", "requests.py"].into_iter().chain(requests).collect();
    let control = finish(world.host("python3").args(&arguments[1..]), b"").expect(0).text();
    assert!(control.lines().any(|line| !line.ends_with(" 1")), "{control}");
    for flags in [&["--backend", "native"][..], &["--backend", "bubblewrap"], LANDLOCK] {
        let inside = world.run(flags, &arguments).expect(0).text();
        assert_eq!(inside.lines().filter(|line| line.ends_with(" 1")).count(), requests.len(), "{inside}");
    }
}

/// With such a flag a directory can ignore letter case: `.GIT` would be `.git` for the host.
#[test]
fn flags_of_files_cannot_be_changed() {
    const NODUMP: u32 = 0x40;
    let world = World::new();
    let script = "import array, fcntl, os, sys
file = os.open('flagged', os.O_RDONLY | os.O_CREAT)
flags = array.array('i', [0])
fcntl.ioctl(file, 0x80086601, flags)
if len(sys.argv) > 1:
    flags[0] |= int(sys.argv[1])
    fcntl.ioctl(file, 0x40086602, flags)
print(flags[0])
";
    world.write("flags.py", script);
    let flags = |done: crate::testkit::Done| done.expect(0).text().trim().parse::<u32>().unwrap();
    let read = || flags(finish(world.host("python3").arg("flags.py"), b""));
    assert_eq!(read() & NODUMP, 0);
    for backend in [&["--backend", "native"][..], LANDLOCK] {
        world.run(backend, &["python3", "flags.py", "64"]).expect(1);
        assert_eq!(read() & NODUMP, 0, "{backend:?}");
        world.run(backend, &["python3", "flags.py"]).expect(0);
    }
    finish(world.host("python3").args(["flags.py", "64"]), b"").expect(0);
    assert_eq!(read() & NODUMP, NODUMP, "the control");
}

/// Makes a /dev of its own in a mount namespace of its own and runs the rest there: the machine's own nodes stay as they are.
const OWN_DEV: &str = r#"set -e
dev=$1; shift
mkdir "$dev"; mount -t tmpfs -o mode=755 own "$dev"
make() { mknod -m 666 "$dev/$1" c "$2" "$3"; }
make null 1 3; make zero 1 5; make full 1 7; make random 1 8; make urandom 1 9; make tty 5 0
mkdir "$dev/pts" "$dev/shm"; mount --bind /dev/pts "$dev/pts"
ln -s pts/ptmx "$dev/ptmx"; ln -s /proc/self/fd "$dev/fd"
mount --rbind "$dev" /dev
for node in null zero full random urandom tty; do touch -d @1000000000 /dev/$node; done
"$@" </dev/null
for node in null zero full random urandom tty; do stat -c '%n %a %u %Y' /dev/$node; done
"#;

/// Uses each node, and then tries all that can be done to one by its owner.
const NODES: &str = "import os, pty
os.write(os.open('/dev/null', os.O_WRONLY), b'x')
assert os.read(os.open('/dev/zero', os.O_RDWR), 2) == bytes(2)
try: os.write(os.open('/dev/full', os.O_WRONLY), b'x')
except OSError as e: assert e.errno == 28
assert len(os.read(os.open('/dev/urandom', os.O_RDONLY), 4)) == 4
pid, master = pty.fork()
if pid == 0:
    os.write(os.open('/dev/tty', os.O_RDWR), b'terminal')
    os._exit(0)
assert b'terminal' in os.read(master, 99)
print('all work', file=open('worked', 'w'))
for name in ('null', 'zero', 'full', 'random', 'urandom', 'tty'):
    path = '/dev/' + name
    for change in (lambda: os.chmod(path, 0), lambda: os.utime(path, (1, 1)), lambda: os.chown(path, 65534, -1)):
        try: change()
        except OSError: pass
";

/// Root inside is the owner of the host's device files: their mode, owner and times stay, and they can be used.
#[test]
fn device_files_of_the_host_stay_as_they_are() {
    if !is_root() {
        return;
    }
    let world = World::new();
    world.write("nodes.py", NODES);
    let inside = |name: &str, command: &[&str]| {
        let dev = world.root.path().join(name);
        let mut around = world.host("unshare");
        around.args(["-m", "--propagation", "private", "sh", "-c", OWN_DEV, "sh"]).arg(dev).args(command);
        finish(&mut around, b"").expect(0).text()
    };
    let binary = crate::testkit::binary();
    // Who writes to a terminal changes its time.
    let is_as_before =
        |line: &&str| line.ends_with(" 666 0 1000000000") || line.starts_with("/dev/tty 666 0 ");
    let untouched = |said: &str| said.lines().filter(is_as_before).count();
    for backend in ["native", "bubblewrap"] {
        let run = [binary.to_str().unwrap(), "run", "--backend", backend, "--", "python3", "nodes.py"];
        let said = inside(backend, &run);
        assert_eq!(untouched(&said), 6, "{backend}: {said}");
        assert_eq!(world.read("worked").as_deref(), Some("all work\n"), "{backend}");
        fs::remove_file(world.workspace.join("worked")).unwrap();
        let object = world.json(&["--backend", backend], &["true"]);
        assert_eq!(level(&object, "fs-write"), "enforced", "{object}");
    }
    let said = inside("control", &["python3", "-c", "import os; os.chmod('/dev/full', 0)"]);
    assert_eq!(untouched(&said), 5, "the control: {said}");
}

/// What the kernel tells root about its own memory and timers.
#[test]
fn memory_layout_of_the_kernel_is_hidden_from_root() {
    let world = World::new();
    let script = "cat /proc/slabinfo /proc/vmallocinfo /proc/timer_list 2>&1 | grep -vc 'Permission denied'";
    for backend in ["native", "bubblewrap"] {
        let said = world.sh_with(&["--backend", backend], script).text();
        assert_eq!(said, "0\n", "{backend}");
    }
    let control = finish(world.host("sh").args(["-c", script]), b"").text();
    assert!(!is_root() || control != "0\n", "the control");
}

/// Holds many locks in few processes: as a process, or in files that are on their way through a socket.
const LOCKS: &str = "import array, fcntl, os, socket, struct, sys, time
kind, files, locks, keep = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
children = []
for n in range(2):
    r, w = os.pipe()
    if os.fork() == 0:
        try:
            a, b = socket.socketpair()
            kept = []
            for f in range(files):
                fd = os.open('lock-%d-%d' % (os.getpid(), f), os.O_CREAT | os.O_RDWR)
                for k in range(locks):
                    if kind == 'process': fcntl.lockf(fd, fcntl.LOCK_EX, 1, 2 * k)
                    else: fcntl.fcntl(fd, 37, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 2 * k, 1, 0))
                if kind == 'transit':
                    a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))])
                    os.close(fd)
                else: kept.append(fd)
            os.write(w, b'k')
            time.sleep(keep + 1)
        finally: os._exit(0)
    os.close(w)
    children.append(r)
print('held', sum(os.read(r, 1) == b'k' for r in children), flush=True)
time.sleep(keep)
print('kept')
";

/// File locks are memory of the kernel that no control group counts.
#[test]
fn file_locks_have_a_limit() {
    let world = World::new();
    world.write("locks.py", LOCKS);
    for kind in ["process", "transit"] {
        let control =
            finish(world.host("python3").args(["locks.py", kind, "90", "700", "4"]), b"").expect(0).text();
        assert_eq!(control, "held 2\nkept\n", "{kind}");
        for backend in ["native", "bubblewrap"] {
            let flags = ["--backend", backend, "--memory", "150m"];
            let object = world.json(&flags, &["python3", "locks.py", kind, "90", "700", PATIENT]);
            assert!(!object["stdout"].as_str().unwrap().contains("kept"), "{backend} {kind}: {object}");
            assert_eq!(object["outcome"]["limit_hit"], "memory", "{backend} {kind}: {object}");
            // The kernel releases the files in transit of the call before after its end, and they count until then.
            let mut few = Value::Null;
            for _ in 0..120 {
                few = world.json(&flags, &["python3", "locks.py", kind, "90", "100", "4"]);
                if few["stdout"] == "held 2\nkept\n" {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(500));
            }
            assert_eq!(few["stdout"], "held 2\nkept\n", "{backend} {kind}: {few}");
        }
    }
}

/// Mappings without a page take memory of the kernel.
#[test]
fn mappings_without_pages_count() {
    let world = World::new();
    let script = "import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
children, (wait, release) = [], os.pipe()
for n in range(24):
    r, w = os.pipe()
    if os.fork() == 0:
        os.close(release)
        at = libc.mmap(None, 60000 * 4096, 0, 0x22, -1, 0)
        for i in range(0, 60000, 2):
            if libc.mprotect(at + i * 4096, 4096, 1): break
        os.write(w, b'k')
        os.read(wait, 1)
        os._exit(0)
    os.close(w)
    children.append(r)
print('held', sum(os.read(r, 1) == b'k' for r in children), flush=True)
time.sleep(int(sys.argv[1]))
print('kept')
";
    world.write("mappings.py", script);
    let control = finish(world.host("python3").args(["mappings.py", "1"]), b"").expect(0);
    assert_eq!(control.text(), "held 24\nkept\n");
    let object = world.json(&["--memory", "200m"], &["python3", "mappings.py", PATIENT]);
    assert!(!object["stdout"].as_str().unwrap().contains("kept"), "{object}");
    assert_eq!(object["outcome"]["limit_hit"], "memory", "{object}");
    let object = world.json(&["--memory", "2g"], &["python3", "mappings.py", "10"]);
    assert_eq!(object["stdout"], "held 24\nkept\n", "{object}");
}

/// Fills both directions of connections that no process reads, and prints how much memory the kernel took.
const CONNECTIONS: &str = "import socket, sys, time
server = socket.socket()
server.bind(('127.0.0.1', 0))
server.listen(99)
kept, queued, blob = [], 0, bytes(1 << 16)
for n in range(int(sys.argv[1])):
    c = socket.create_connection(server.getsockname())
    s, _ = server.accept()
    for end in (c, s): end.setblocking(False)
    def fill():
        sent = 0
        for attempt in range(6):
            try:
                while True: sent += c.send(blob)
            except BlockingIOError: time.sleep(0.002)
        return sent
    for warm in range(12):
        fill()
        try:
            while s.recv(1 << 20): pass
        except BlockingIOError: pass
    queued += fill()
    kept.append((c, s))
print(queued >> 20)
";

/// TCP has one pool of memory for the whole machine.
#[test]
fn buffers_of_connections_have_a_limit() {
    let world = World::new();
    world.write("connections.py", CONNECTIONS);
    let queued = |text: &str| text.trim().parse::<u64>().unwrap();
    let control = finish(world.host("python3").args(["connections.py", "30"]), b"").expect(0).text();
    assert!(queued(&control) > 60, "the control: {control} MiB");
    let object = world.json(&["--memory", "150m"], &["python3", "connections.py", "30"]);
    assert!(queued(object["stdout"].as_str().unwrap()) < 30, "{object}");
    // Where the network is made by another program, the posture has the number.
    let object =
        world.json(&["--backend", "bubblewrap", "--memory", "150m"], &["python3", "connections.py", "30"]);
    let missing = object["posture"]["controls"]["limits"]["missing"].as_str().unwrap();
    let taken = object["stdout"].as_str().unwrap();
    assert!(taken.is_empty() || queued(taken) < 40 || missing.contains("each"), "{object}");
}

/// A session leaves half of what its user may watch to the host, or says that it does not.
#[test]
fn inotify_watches_are_left_to_the_host() {
    let world = World::new();
    let most = fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").unwrap();
    let most: u64 = most.trim().parse().unwrap();
    for (flags, holds) in
        [(&["--backend", "native"][..], true), (&["--backend", "bubblewrap"], false), (LANDLOCK, false)]
    {
        let object = world.json(flags, &["cat", "/proc/sys/user/max_inotify_watches"]);
        let inside = object["stdout"].as_str().unwrap().trim().parse::<u64>();
        assert_eq!(inside == Ok(most / 2), holds, "{object}");
        let missing = object["posture"]["controls"]["limits"]["missing"].as_str().unwrap();
        assert_eq!(missing.contains("shared with the host"), !holds, "{object}");
    }
}

/// What has no name takes as much room as what has one, also in the hands of a thread whose process has lost its first one, or
/// that has open files of its own.
#[test]
fn disk_space_of_files_without_a_name_counts() {
    let world = World::new();
    let script = "import ctypes, os, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def work():
    if sys.argv[1] == 'own-files': libc.unshare(0x400)
    kept = []
    for n in range(4):
        kept.append(os.open('nameless', os.O_CREAT | os.O_RDWR))
        os.unlink('nameless')
        for part in range(20): os.write(kept[-1], bytes(1 << 20))
    time.sleep(int(sys.argv[2]))
    os.write(1, b'kept\\n')
    os._exit(0)
if sys.argv[1] == 'process': work()
threading.Thread(target=work).start()
time.sleep(0.2)
libc.syscall(60, 0)
";
    world.write("nameless.py", script);
    for kind in ["process", "dead-main", "own-files"] {
        let object = world.json(&["--disk", "30m"], &["python3", "nameless.py", kind, PATIENT]);
        assert_eq!(object["outcome"]["limit_hit"], "disk", "{kind}: {object}");
        assert_eq!(object["stdout"], "", "{kind}: {object}");
        let limits = &object["posture"]["controls"]["limits"];
        assert!(limits["missing"].as_str().unwrap().contains("disk space"), "{object}");
        let control = world.json(&[], &["python3", "nameless.py", kind, "1"]);
        assert_eq!(control["stdout"], "kept\n", "{kind}: the control: {control}");
    }
}

/// Without namespaces System V segments are the host's and stay, so that only small ones can be made.
#[test]
fn landlock_says_what_its_limits_leave_open() {
    let world = World::new();
    let script = "import ctypes
libc = ctypes.CDLL(None, use_errno=True)
id = libc.shmget(0, ctypes.c_size_t(50 << 20), 0o600)
if id >= 0: libc.shmctl(id, 0, None)
print('made' if id >= 0 else ctypes.get_errno())
";
    world.write("segment.py", script);
    let control = finish(world.host("python3").arg("segment.py"), b"").expect(0);
    assert_eq!(control.text(), "made\n");
    let object = world.json(LANDLOCK, &["python3", "segment.py"]);
    assert_eq!(object["stdout"], "1\n", "{object}");
    let limits = &object["posture"]["controls"]["limits"];
    assert_eq!(limits["level"], "partial", "{object}");
    for part in ["--tmp-size", "System V segments", "file locks"] {
        assert!(limits["missing"].as_str().unwrap().contains(part), "{part}: {object}");
    }
    // Not the first gap alone.
    let open = ["--backend", "none", "--danger", "--danger-required-controls", "env"];
    let object = world.json(&open, &["true"]);
    let missing = object["posture"]["controls"]["limits"]["missing"].as_str().unwrap();
    assert!(missing.contains("/tmp") && missing.contains("file locks"), "{object}");
    assert_eq!(missing.contains("leave its control groups"), is_root(), "{object}");
}

/// Memory that no process has mapped or open: rules of Landlock, pages of a file that a pipe keeps, what connections hold that
/// wait for a listener, policies of the pages of a shared file.
const KEPT_ELSEWHERE: &str = "import ctypes, os, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
def done(answer):
    if answer < 0:
        print('refused', ctypes.get_errno())
        sys.exit()
    return answer
def rules():
    kept, access = [], (ctypes.c_uint64 * 2)(0, 1)
    for n in range(24):
        kept.append(done(libc.syscall(444, access, 16, 0)))
        for port in range(65536):
            done(libc.syscall(445, kept[-1], 2, struct.pack('=QQ', 1, port), 0))
    return kept
def spliced():
    kept, chunk = [], bytes(2 << 20)
    file = os.open('pages', os.O_CREAT | os.O_RDWR)
    for n in range(6):
        r, w = os.pipe()
        for slot in range(16):
            os.pwrite(file, chunk, 0)
            at = ctypes.c_int64(0)
            done(libc.splice(file, ctypes.byref(at), w, None, ctypes.c_size_t(1), 0))
            os.ftruncate(file, 0)
        kept.append((r, w))
    return kept
def waiting():
    server = socket.socket(socket.AF_UNIX)
    server.bind('\\0' + sys.argv[2])
    server.listen(4000)
    for n in range(600):
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        client.connect('\\0' + sys.argv[2])
        try:
            while True: client.send(bytes(1 << 16))
        except BlockingIOError: client.close()
    return server
def policies():
    kept, mask = [], ctypes.c_ulong(1)
    for n in range(4):
        kept.append(os.memfd_create('m'))
        os.ftruncate(kept[-1], 20000 * 4096)
        at = libc.mmap(None, 20000 * 4096, 3, 1, kept[-1], 0)
        for page in range(20000):
            place = ctypes.c_void_p(at + page * 4096)
            done(libc.syscall(237, place, ctypes.c_size_t(4096), 2 + page % 2, ctypes.byref(mask), ctypes.c_ulong(2), 0))
        libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(20000 * 4096))
    return kept
kept = {'rules': rules, 'spliced': spliced, 'waiting': waiting, 'policies': policies}[sys.argv[1]]()
time.sleep(int(sys.argv[3]))
print('kept')
";

#[test]
#[cfg(target_arch = "x86_64")]
fn memory_that_no_process_has_is_counted_or_refused() {
    let world = World::new();
    world.write("elsewhere.py", KEPT_ELSEWHERE);
    let mark = marker(&world);
    for kind in ["rules", "spliced", "waiting", "policies"] {
        let control = finish(world.host("python3").args(["elsewhere.py", kind, &mark, "0"]), b"").expect(0);
        assert_eq!(control.text(), "kept\n", "{kind}");
        for backend in [&["--backend", "native"][..], &["--backend", "bubblewrap"], LANDLOCK] {
            let flags = [backend, &["--memory", "64m"]].concat();
            let object = world.json(&flags, &["python3", "elsewhere.py", kind, &mark, PATIENT]);
            let output = object["stdout"].as_str().unwrap();
            let by = object["posture"]["controls"]["limits"]["by"].as_str().unwrap();
            // Near the limit of a group the kernel takes smaller pages for a file, so that a pipe keeps little.
            if kind == "spliced" && !by.contains("memory counted") && output.contains("kept") {
                continue;
            }
            assert!(!output.contains("kept"), "{kind}: {object}");
            let counted = object["outcome"]["limit_hit"] == "memory";
            assert!(counted || output.starts_with("refused"), "{kind}: {object}");
        }
    }
}

/// A terminal of the host, its name, and what was written to it.
const TERMINAL: &str = "import os, pty, select, sys
master, slave = pty.openpty()
print(os.ttyname(slave), flush=True)
os.write(master, b'typed\\n')
sys.stdin.read()
print('written' if select.select([master], [], [], 0)[0] and b'forged' in os.read(master, 999) else 'nothing')
";

/// Where the terminals of the host can be reached, the posture says so.
#[test]
fn terminals_of_the_host_are_out_of_reach_or_named_in_the_posture() {
    let world = World::new();
    let script = "import os, sys
try: terminal = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
except OSError: sys.exit()
print(os.read(terminal, 99).decode().strip())
os.write(terminal, b'forged')
";
    world.write("reach.py", script);
    for (flags, holds) in
        [(&["--backend", "native"][..], true), (&["--backend", "bubblewrap"], true), (LANDLOCK, false)]
    {
        let mut host = Command::new("/usr/bin/python3");
        let mut host =
            host.args(["-c", TERMINAL]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = std::io::BufReader::new(host.stdout.take().unwrap());
        let mut name = String::new();
        std::io::BufRead::read_line(&mut output, &mut name).unwrap();
        let object = world.json(flags, &["python3", "reach.py", name.trim()]);
        drop(host.stdin.take());
        let mut written = String::new();
        std::io::Read::read_to_string(&mut output, &mut written).unwrap();
        host.wait().unwrap();
        assert_eq!(object["stdout"] == "", holds, "{object}");
        assert_eq!(written.trim() == "nothing", holds, "{object}");
        for control in ["fs-read", "fs-write"] {
            let missing = object["posture"]["controls"][control]["missing"].as_str().unwrap_or_default();
            assert_eq!(missing.contains("terminals"), !holds, "{object}");
        }
    }
}
