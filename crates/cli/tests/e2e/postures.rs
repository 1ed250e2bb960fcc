//! What a posture says is what attacks find: host sockets, memory that is used together, work between directories.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::testkit::{LANDLOCK, World, finish, is_root, marker};

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
    while !world.workspace.join("started").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
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
        while !world.workspace.join("started").exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
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

/// Each keeps less than the limit; together they keep more.
const TOGETHER: &str = "import mmap, os, sys, time
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
kind = {'private': private, 'shared': shared, 'unmapped': unmapped, 'in-tmp': in_tmp}[sys.argv[1]]
children = []
for n in range(2):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        kept = kind()
        os.write(w, b'k')
        time.sleep(60)
        os._exit(0)
    os.close(w)
    children.append((pid, r))
held = sum(os.read(r, 1) == b'k' for pid, r in children)
time.sleep(1)
alive = sum(os.waitpid(pid, os.WNOHANG) == (0, 0) for pid, r in children)
for pid, r in children:
    try: os.kill(pid, 9)
    except ProcessLookupError: pass
print('together', held, alive)
";

#[test]
fn memory_that_is_used_together_counts_together() {
    let world = World::new();
    world.write("together.py", TOGETHER);
    let mark = marker(&world);
    for kind in ["private", "shared", "unmapped", "in-tmp"] {
        let control = finish(world.host("python3").args(["together.py", kind, &mark]), b"").expect(0);
        assert_eq!(control.text(), "together 2 2\n", "{kind}");
        for entry in fs::read_dir("/dev/shm").unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&mark) {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        let flags = ["--memory", "300m", "--file-size", "200m", "--tmp-size", "1g"];
        let object = world.json(&flags, &["python3", "together.py", kind, &mark]);
        assert!(!object["stdout"].as_str().unwrap().contains("together 2 2"), "{kind}: {object}");
        assert_eq!(object["outcome"]["limit_hit"], "memory", "{kind}: {object}");
        let wide = world.json(
            &["--memory", "1g", "--file-size", "200m", "--tmp-size", "1g"],
            &["python3", "together.py", kind, &mark],
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
    assert_eq!(limits["level"], if counted { "partial" } else { "enforced" }, "{object}");
    if counted {
        assert_eq!(limits["gap"], "bounded", "{object}");
    }
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
