"""An internet of its own for tests: two network namespaces joined by a wire, nothing else.

`hold DIR` runs in a fresh mount and network namespace, the "host" where ringfence runs. It makes the second one, starts the
servers of `serve DIR` there, and says `ready`. Each line of its standard input is then a shell script (a string of JSON), which it
runs with all it may do there, and says `done`. Everything ends when its standard input does.
"""

import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

HOST, DNS = "30.0.0.1", "30.0.0.53"
# Names and where they lead. Those below are made up by `dns()` itself.
NAMES = {
    "web.test": "30.0.0.10",
    "api.web.test": "30.0.0.11",
    "other.test": "30.0.0.20",
    "evil.test": "30.0.0.66",
    "git.test": "30.0.0.30",
    "inside.test": "10.9.8.7",
    "meta.test": "169.254.169.254",
    "loop.test": "127.0.0.1",
    "self.test": HOST,
    "stall.test": "30.0.0.40",
    "dead.test": "30.0.0.99",
}
ADDRESSES = sorted({a for a in NAMES.values() if not a.startswith("127.")} - {HOST, "30.0.0.99"} | {DNS, "30.0.0.77"})


def run(*words):
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)


def bind(directory, name, target):
    target = os.path.realpath(target)
    if os.path.exists(target):
        run("mount", "--bind", f"{directory}/{name}", target)


def own_root(directory):
    """A root that is ours, with everything of the real one in it. Whoever is not root has a user namespace in which the files
    of root are nobody's, and ringfence takes no policy from below a directory of nobody's."""
    root = f"{directory}/root"
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", root)
    for name in os.listdir("/"):
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{root}/{name}")
        elif os.path.isdir(f"/{name}"):
            os.mkdir(f"{root}/{name}")
            run("mount", "--rbind", f"/{name}", f"{root}/{name}")
    for name in ["operator", "before"]:
        os.mkdir(f"{root}/{name}")
    run("mount", "--bind", f"{directory}/operator", f"{root}/operator")
    run("pivot_root", root, f"{root}/before")
    os.chdir("/")
    run("umount", "-l", "/before")


def hold(directory):
    run("mount", "--make-rprivate", "/")
    if os.geteuid() != 0:
        own_root(directory)
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "wire", "type", "veth", "peer", "name", "far")
    run("ip", "address", "add", f"{HOST}/24", "dev", "wire")
    run("ip", "link", "set", "wire", "up")
    read, write = os.pipe()
    servers = subprocess.Popen(
        ["unshare", "--net", "--", sys.executable, __file__, "serve", directory],
        stdin=read, stdout=subprocess.PIPE, text=True)
    os.close(read)
    assert servers.stdout.readline() == "apart\n"
    run("ip", "link", "set", "far", "netns", str(servers.pid))
    run("ip", "route", "add", "default", "dev", "wire")
    os.write(write, b"go\n")
    assert servers.stdout.readline() == "ready\n"
    for name, target in [
        ("resolv.conf", "/etc/resolv.conf"), ("hosts", "/etc/hosts"),
        ("roots.pem", "/etc/ssl/certs/ca-certificates.crt"),
    ]:
        bind(directory, name, target)
    print("ready", flush=True)
    for line in sys.stdin:
        run("sh", "-euc", json.loads(line))
        print("done", flush=True)
    os.close(write)
    servers.wait()


def serve(directory):
    print("apart", flush=True)
    sys.stdin.readline()
    run("ip", "link", "set", "lo", "up")
    for address in ADDRESSES:
        run("ip", "address", "add", f"{address}/32", "dev", "lo")
    run("ip", "address", "add", "30.0.0.2/24", "dev", "far")
    run("ip", "link", "set", "far", "up")
    run("ip", "route", "add", "default", "dev", "far")
    log = Log(f"{directory}/visits")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{directory}/server.pem")
    context.sni_callback = lambda connection, name, _: setattr(connection, "asked_for", name)
    for address in ADDRESSES:
        if address == "30.0.0.40":
            listen(address, 443, stall)
            listen(address, 80, stall)
            continue
        for port, tls in [(80, None), (443, context), (8443, context), (9000, None), (22, None)]:
            handler = {22: greet, 9000: echo}.get(port, http)
            listen(address, port, lambda c, p, h=handler, t=tls, o=port: h(c, p, o, t, directory, log))
    for address in [NAMES["web.test"], NAMES["other.test"]]:
        quic = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        quic.bind((address, 443))
        threading.Thread(target=echo_datagrams, args=(quic, address, log), daemon=True).start()
    resolver = Resolver(directory, log)
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind((DNS, 53))
    threading.Thread(target=resolver.datagrams, args=(datagrams,), daemon=True).start()
    listen(DNS, 53, lambda c, p: resolver.stream(c))
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)


class Log:
    """One line of JSON for each thing that somebody did here."""

    def __init__(self, path):
        self.file = open(path, "a", buffering=1)
        self.lock = threading.Lock()

    def note(self, **what):
        with self.lock:
            self.file.write(json.dumps(what) + "\n")


def listen(address, port, handler):
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    server.listen(64)

    def accept():
        while True:
            connection, peer = server.accept()
            threading.Thread(target=guarded, args=(handler, connection, peer), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def guarded(handler, connection, peer):
    try:
        handler(connection, peer)
    except (OSError, ValueError, struct.error):
        pass
    finally:
        connection.close()


def stall(connection, _):
    connection.recv(1)
    time.sleep(3600)


def echo(connection, peer, port, _tls, _directory, log):
    at = connection.getsockname()[0]
    while data := connection.recv(65536):
        log.note(what="tcp", at=at, port=port, data=data.decode("latin-1"))
        connection.sendall(data)


def echo_datagrams(server, at, log):
    while True:
        data, peer = server.recvfrom(4096)
        log.note(what="udp", at=at, port=443, data=data.decode("latin-1"))
        server.sendto(data, peer)


def greet(connection, peer, port, _tls, _directory, log):
    """Hears what a client says first, and hangs up."""
    at = connection.getsockname()[0]
    log.note(what="tcp", at=at, port=port, data=connection.recv(65536).decode("latin-1"))


def http(connection, peer, port, tls, directory, log):
    at = connection.getsockname()[0]
    name = None
    if tls:
        connection = tls.wrap_socket(connection, server_side=True)
        name = getattr(connection, "asked_for", None)
    stream = connection.makefile("rb")
    while True:
        line = stream.readline(65536).decode("latin-1").rstrip("\r\n")
        if not line:
            return
        method, target, _version = line.split(" ")
        headers = {}
        while field := stream.readline(65536).decode("latin-1").rstrip("\r\n"):
            key, value = field.split(":", 1)
            headers[key.lower()] = value.strip()
        body = b""
        if headers.get("transfer-encoding") == "chunked":
            while size := int(stream.readline().split(b";")[0], 16):
                body += stream.read(size)
                stream.readline()
            stream.readline()
        else:
            body = stream.read(int(headers.get("content-length", "0")))
        log.note(what="http", at=at, port=port, sni=name, method=method, target=target, headers=headers,
                 body=body.decode("latin-1"))
        status, kind, answer, more = page(method, target, headers, body, directory, at)
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(answer)}\r\n{more}\r\n"
        connection.sendall(head.encode() + (b"" if method == "HEAD" else answer))
        if headers.get("connection", "").lower() == "close":
            return


def page(method, target, headers, body, directory, at):
    path = target.split("?")[0]
    if path.startswith("/redirect/"):
        return "302 Found", "text/plain", b"", f"Location: {path.removeprefix('/redirect/').replace(':/', '://', 1)}\r\n"
    if path == "/echo":
        return "200 OK", "application/json", json.dumps({"headers": headers, "body": body.decode("latin-1")}).encode(), ""
    file = os.path.realpath(f"{directory}/site{path}")
    if os.path.isdir(file):
        file += "/index.html"
    if file.startswith(f"{directory}/site/") and os.path.isfile(file):
        with open(file, "rb") as content:
            return "200 OK", kind_of(file), content.read(), ""
    if path == "/":
        return "200 OK", "text/plain", f"hello from {at}\n".encode(), ""
    return "404 Not Found", "text/plain", b"nothing here\n", ""


def kind_of(file):
    return "text/html" if file.endswith(".html") else "application/json" if file.endswith(".json") else "application/octet-stream"


class Resolver:
    """Answers A for known names. `rebind.test` is a good address the first time and this machine ever after."""

    def __init__(self, directory, log):
        self.log, self.asked, self.silent = log, {}, f"{directory}/resolver-is-silent"

    def answer(self, query):
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode("latin-1"))
            at += query[at] + 1
        name, (kind,) = ".".join(labels).lower(), struct.unpack(">H", query[at + 1:at + 3])
        self.log.note(what="dns", name=name, kind=kind)
        if os.path.exists(self.silent):
            return None
        address = NAMES.get(name)
        if name == "rebind.test" and kind == 1:
            self.asked[name] = self.asked.get(name, 0) + 1
            address = "30.0.0.77" if self.asked[name] == 1 else "127.0.0.1"
        question = query[12:at + 5]
        records = b""
        if address and kind == 1:
            records = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x00\x00\x04" + socket.inet_aton(address)
        flags = 0x8180 if address or name == "rebind.test" else 0x8183
        return query[:2] + struct.pack(">HHHHH", flags, 1, 1 if records else 0, 0, 0) + question + records

    def datagrams(self, server):
        while True:
            query, peer = server.recvfrom(4096)
            try:
                if answer := self.answer(query):
                    server.sendto(answer, peer)
            except (OSError, IndexError, struct.error):
                pass

    def stream(self, connection):
        while size := connection.recv(2):
            query = connection.recv(struct.unpack(">H", size)[0])
            if answer := self.answer(query):
                connection.sendall(struct.pack(">H", len(answer)) + answer)


if __name__ == "__main__":
    {"hold": hold, "serve": serve}[sys.argv[1]](sys.argv[2])
