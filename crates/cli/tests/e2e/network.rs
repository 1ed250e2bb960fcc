//! No network but the sandbox's own loopback, unless it was asked for.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use crate::testkit::{LANDLOCK, World, finish};

/// Answers everybody on the host's loopback and counts them when asked.
struct Listener {
    listener: TcpListener,
    port: u16,
}

impl Listener {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        Self { listener, port }
    }

    fn visitors(&self) -> usize {
        thread::sleep(Duration::from_millis(100));
        let mut visitors = 0;
        loop {
            match self.listener.accept() {
                Ok(_) => visitors += 1,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return visitors,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn knock(port: u16) -> String {
    format!(
        "import socket\ns = socket.socket()\ns.settimeout(3)\ns.connect(('127.0.0.1', {port}))\nprint('connected')\n"
    )
}

/// S002-33, S001-22: with the control that the same attempt succeeds without the fence.
#[test]
fn the_hosts_loopback_is_reached_only_with_net_full() {
    let world = World::new();
    let host = Listener::new();
    let script = knock(host.port);
    finish(world.host("python3").args(["-c", &script]), b"").expect(0);
    assert_eq!(host.visitors(), 1, "the control");
    for backend in ["native", "bubblewrap"] {
        for flags in [&["--backend", backend][..], &["--backend", backend, "--net", "none"]] {
            let done = world.run(flags, &["python3", "-c", &script]).expect(1);
            assert!(done.err.contains("refused"), "{}", done.err);
            assert_eq!(host.visitors(), 0, "{flags:?}");
        }
        world.run(&["--backend", backend, "--net", "full"], &["python3", "-c", &script]).expect(0);
        assert_eq!(host.visitors(), 1, "{backend}");
    }
    world.run(LANDLOCK, &["python3", "-c", &script]).expect(1);
    assert_eq!(host.visitors(), 0, "landlock");
}

#[test]
fn loopback_works_inside() {
    let world = World::new();
    world.write("page", "hello from inside\n");
    let script = r#"
python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 &
server=$!
python3 - <<'END'
import time, urllib.request
for _ in range(200):
    try:
        print(urllib.request.urlopen('http://localhost:8000/page').read().decode(), end='')
        break
    except OSError:
        time.sleep(0.05)
END
kill $server
ls /sys/class/net 2>/dev/null; cut -d: -f1 /proc/net/dev | tail -n +3
"#;
    let done = world.sh(script).expect(0);
    assert!(done.text().starts_with("hello from inside\n"), "{} {}", done.text(), done.err);
    let interfaces: Vec<String> = done.text().lines().skip(1).map(|line| line.trim().to_owned()).collect();
    assert_eq!(interfaces, ["lo"]);
}

/// S004-3: what is no host is refused before anything runs.
#[test]
fn host_rules_are_checked() {
    let world = World::new();
    let done = world.run(&["--net", "full", "--allow-host", "example.test"], &["touch", "made"]).expect(126);
    assert!(done.err.contains("nothing holds"), "{}", done.err);
    for wrong in [
        "",
        "http://example.test/",
        "exa mple.test",
        "example.test:0",
        "example.test:99999",
        "*",
        "a..b",
        "-a.test",
    ] {
        let done = world.run(&["--allow-host", wrong], &["touch", "made"]);
        assert!(matches!(done.code, Some(125 | 126)), "`{wrong}`: {:?}", done.code);
        assert!(!done.err.is_empty(), "`{wrong}`");
    }
    assert!(!world.workspace.join("made").exists());
}

/// Unix sockets of the host, by path and by abstract name.
#[test]
fn unix_sockets_of_the_host_are_out_of_reach() {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let world = World::new();
    let outside = world.beside("outside").join("socket");
    let by_path = UnixListener::bind(&outside).unwrap();
    let name = crate::testkit::marker(&world);
    let by_name = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let script = format!(
        "import socket\nn = 0\nfor a in [{path:?}, '\\0{name}']:\n    s = socket.socket(socket.AF_UNIX)\n    try:\n        s.connect(a); s.sendall(b'x'); n += 1\n    except OSError as e:\n        pass\nprint(n)\n",
        path = outside.to_str().unwrap(),
    );
    let control = finish(world.host("python3").args(["-c", &script]), b"").expect(0);
    assert_eq!(control.text(), "2\n");
    for listener in [&by_path, &by_name] {
        let (mut peer, _) = listener.accept().unwrap();
        let mut byte = [0];
        peer.read_exact(&mut byte).unwrap();
        drop(peer.write_all(b""));
        listener.set_nonblocking(true).unwrap();
    }
    for net in ["none", "full"] {
        let done = world.run(&["--net", net], &["python3", "-c", &script]).expect(0);
        assert_eq!(done.text(), "0\n", "--net {net}");
        for listener in [&by_path, &by_name] {
            assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "--net {net}");
        }
    }
}
