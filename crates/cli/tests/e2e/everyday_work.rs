//! Legitimate work passes: what people do all day works inside as it does outside.

use std::path::PathBuf;

use crate::testkit::{World, finish, variable};

/// What it is, a script, and what that prints.
pub(crate) const CASES: [(&str, &str, &str); 12] = [
    ("pipes", "seq 1 100 | grep 7 | sort -rn | head -2 | tr '\\n' ' '", "97 87 "),
    ("here-document", "cat <<END\na $((1+1))\nEND", "a 2\n"),
    ("fifo", "mkfifo f && (echo through >f &) && cat f && rm f", "through\n"),
    ("fifo in /tmp", "mkfifo /tmp/f && (echo through >/tmp/f &) && cat /tmp/f", "through\n"),
    ("lock", "exec 9>lock; flock -n 9 && (flock -n lock true; echo $?)", "1\n"),
    ("jobs", "(sleep 0.1; echo a) & p=$!; wait $p; echo b; true & wait", "a\nb\n"),
    ("process substitution", "bash -c 'diff <(echo 1) <(echo 1) && echo same'", "same\n"),
    (
        "links and times",
        "echo x >a; ln a b; ln -s a c; touch -d 2001-01-01 a; cat b c; stat -c %Y a",
        "x\nx\n978307200\n",
    ),
    ("archives", "mkdir d; echo x >d/f; tar czf d.tgz d; rm -r d; tar xzf d.tgz; cat d/f", "x\n"),
    ("who am I", "test \"$(id -un)\" != '' && test -w . && test -w ~ && test -w /tmp && echo ok", "ok\n"),
    (
        "devices",
        "head -c 4 /dev/urandom | wc -c; echo x >/dev/null; echo y >/dev/stdout; head -c 1 /dev/zero | wc -c",
        "4\ny\n1\n",
    ),
    ("timeouts inside", "timeout 0.2 sleep 10; echo $?", "124\n"),
];

/// S004-18
#[test]
fn legitimate_work_passes_inside() {
    let world = World::new();
    for (what, script, expected) in CASES {
        let done = world.sh(script);
        assert_eq!((done.code, done.text().as_str()), (Some(0), expected), "{what}: {}", done.err);
    }
}

/// With the programs of the machine, whatever the fence is made of.
pub(crate) fn real_tools_work(world: &World, flags: &[&str]) {
    compilers_work(world, flags);
    python_works(world, flags);
    node_works(world, flags);
    cargo_builds(world, flags);
}

#[test]
fn compilers_and_build_tools_work() {
    compilers_work(&World::new(), &[]);
}

fn compilers_work(world: &World, flags: &[&str]) {
    world.write("main.c", "#include <stdio.h>\n#include <pthread.h>\nstatic void *f(void *x) { return x; }\nint main(void) { pthread_t t; pthread_create(&t, 0, f, 0); pthread_join(t, 0); puts(\"compiled\"); return 0; }\n");
    world.write("Makefile", "main: main.c\n\tgcc -pthread -o $@ $<\ntest: main\n\t./main\n");
    let done = world.run(flags, &["make", "-j2", "test"]).expect(0);
    assert!(done.text().ends_with("compiled\n"), "{}", done.text());
    assert!(world.workspace.join("main").exists(), "this test needs gcc, make and libc6-dev");
}

#[test]
fn python_works_with_processes_sockets_and_shared_memory() {
    python_works(&World::new(), &[]);
}

fn python_works(world: &World, flags: &[&str]) {
    world.write(
        "work.py",
        r#"
import multiprocessing, socket, threading, os, tempfile, asyncio, subprocess, mmap, json, sqlite3
from multiprocessing import shared_memory

def square(x):
    return x * x

async def nap():
    await asyncio.sleep(0.01)
    return 'async'

if __name__ == '__main__':
    with multiprocessing.Pool(3) as pool:
        print(sum(pool.map(square, range(10))))
    memory = shared_memory.SharedMemory(create=True, size=4096)
    memory.buf[0] = 7
    print(memory.buf[0])
    memory.close(); memory.unlink()
    a, b = socket.socketpair()
    a.sendall(b'pair'); print(b.recv(4).decode())
    path = os.path.join(tempfile.mkdtemp(), 's')
    server = socket.socket(socket.AF_UNIX); server.bind(path); server.listen()
    def serve():
        c, _ = server.accept(); c.sendall(b'unix'); c.close()
    threading.Thread(target=serve).start()
    client = socket.socket(socket.AF_UNIX); client.connect(path); print(client.recv(4).decode())
    print(asyncio.run(nap()))
    print(subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout.strip())
    with sqlite3.connect('db') as db:
        db.execute('create table t (x)'); db.execute('insert into t values (1)')
    print(len(mmap.mmap(-1, 4096)))
"#,
    );
    let done = world.run(flags, &["python3", "work.py"]).expect(0);
    assert_eq!(done.text(), "285\n7\npair\nunix\nasync\nchild\n4096\n", "{}", done.err);
}

#[test]
fn node_works_inside() {
    node_works(&World::new(), &[]);
}

fn node_works(world: &World, flags: &[&str]) {
    world.write(
        "work.js",
        "const { Worker } = require('worker_threads'); const fs = require('fs'); const http = require('http');\n\
         const w = new Worker(\"require('worker_threads').parentPort.postMessage('worker')\", { eval: true });\n\
         w.on('message', m => { console.log(m); fs.writeFileSync('out', m);\n\
           const s = http.createServer((q, r) => r.end('http')).listen(0, '127.0.0.1', () =>\n\
             http.get({ port: s.address().port, host: '127.0.0.1' }, r => r.on('data', d => { console.log(String(d)); s.close(); process.exit(0); }))); });\n",
    );
    let done = world.run(flags, &["node", "work.js"]);
    assert_eq!(done.code, Some(0), "this test needs the package `nodejs`: {} {}", done.text(), done.err);
    assert_eq!(done.text(), "worker\nhttp\n");
}

/// A toolchain as people have it: below the home, read-only inside.
#[test]
fn cargo_builds_offline() {
    cargo_builds(&World::new(), &[]);
}

fn cargo_builds(world: &World, flags: &[&str]) {
    let toolchain = toolchain();
    world.write("Cargo.toml", "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    world.write("src/main.rs", "fn main() { println!(\"built inside\"); }\n");
    let cargo = toolchain.join("bin/cargo");
    let flags = [flags, &["--read", toolchain.to_str().unwrap(), "--timeout", "100s"]].concat();
    let script = format!(
        "export RUSTFLAGS=-Clinker=gcc PATH={}/bin:$PATH; {} run -q --offline",
        toolchain.display(),
        cargo.display()
    );
    let done = world.sh_with(&flags, &script).expect(0);
    assert_eq!(done.text(), "built inside\n", "{}", done.err);
}

pub(crate) fn toolchain() -> PathBuf {
    variable("RINGFENCE_TEST_TOOLCHAIN").map_or_else(sysroot, PathBuf::from)
}

/// Outside `cargo xtask test` the tests run with the toolchain that built them.
fn sysroot() -> PathBuf {
    let output = finish(std::process::Command::new("rustc").args(["--print", "sysroot"]), b"");
    PathBuf::from(output.text().trim())
}
