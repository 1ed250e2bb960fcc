//! Package managers behind the filter.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::everyday_work::toolchain;
use crate::internet::Internet;
use crate::internet::client::{Client, over_tls, words};
use crate::testkit::{Done, finish, quoted};

/// A wheel with nothing in it.
fn wheel(directory: &Path) {
    const MAKE: &str = "\
import sys, zipfile
with zipfile.ZipFile(sys.argv[1] + '/tiny-1.0-py3-none-any.whl', 'w') as z:
    z.writestr('tiny.py', '')
    z.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')
    z.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    z.writestr('tiny-1.0.dist-info/RECORD', '')
";
    let mut command = Command::new("python3");
    finish(command.args(["-c", MAKE]).arg(directory), b"").expect(0);
}

#[test]
fn pip_gets_packages_from_the_allowed_host_alone() {
    let internet = Internet::new();
    let site = internet.place.join("site/simple/tiny");
    fs::create_dir_all(&site).unwrap();
    wheel(&site);
    fs::write(site.join("index.html"), "<a href=\"tiny-1.0-py3-none-any.whl\">tiny-1.0-py3-none-any.whl</a>")
        .unwrap();
    let got = internet.world.workspace.join("got");
    let attempt = |host: &str| {
        let _earlier = fs::remove_dir_all(&got);
        let index = format!("https://{host}/simple/");
        let pip = ["python3", "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir", "--retries", "0"];
        [words(&pip), words(&["--disable-pip-version-check", "-d", "got", "--index-url", &index, "tiny"])]
            .concat()
    };
    let got_it =
        |done: &Done, _: &str| done.code == Some(0) && got.join("tiny-1.0-py3-none-any.whl").exists();
    over_tls(&internet, &attempt, &got_it);
}

#[test]
fn npm_installs_from_the_allowed_host_alone() {
    let internet = Internet::new();
    tarballs(&internet.place.join("site"));
    let world = &internet.world;
    let attempt = |host: &str| {
        let _earlier = fs::remove_dir_all(world.workspace.join("got"));
        let registry = format!("--registry=https://{host}/{host}/");
        let npm = ["npm", "install", "tiny", "--prefix=got", "--cache=got/cache", "--no-audit", "--no-fund"];
        [words(&npm), words(&[&registry, "--fetch-retries=0", "--no-save", "--loglevel=error"])].concat()
    };
    let got_it = |done: &Done, _: &str| {
        done.code == Some(0)
            && world.read("got/node_modules/tiny/index.js").as_deref() == Some("// from a tarball\n")
    };
    over_tls(&internet, &attempt, &got_it);
}

/// A registry for each of the hosts with one package, which sends nobody elsewhere.
fn tarballs(site: &Path) {
    const MAKE: &str = "\
import io, json, os, sys, tarfile
for host in ['web.test', 'other.test']:
    at = f'{sys.argv[1]}/{host}'
    os.makedirs(at)
    with tarfile.open(f'{at}/tiny.tgz', 'w:gz') as package:
        for name, text in [('package.json', json.dumps({'name': 'tiny', 'version': '1.0.0'})), ('index.js', '// from a tarball\\n')]:
            entry = tarfile.TarInfo('package/' + name)
            entry.size = len(text)
            package.addfile(entry, io.BytesIO(text.encode()))
    version = {'name': 'tiny', 'version': '1.0.0', 'dist': {'tarball': f'https://{host}/{host}/tiny.tgz'}}
    json.dump({'name': 'tiny', 'dist-tags': {'latest': '1.0.0'}, 'versions': {'1.0.0': version}}, open(f'{at}/tiny', 'w'))
";
    finish(Command::new("python3").args(["-c", MAKE]).arg(site), b"").expect(0);
}

#[test]
fn cargo_fetches_crates_from_the_allowed_host_alone() {
    let internet = Internet::new();
    registry(&internet.place.join("site"));
    let world = &internet.world;
    let manifest = "[package]\nname = \"uses\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
                    [dependencies]\ntiny = { version = \"1\", registry = \"x\" }\n";
    world.write("Cargo.toml", manifest);
    world.write("src/lib.rs", "");
    let toolchain = toolchain();
    let fetch = format!(
        "rm -rf Cargo.lock got; PATH={}:$PATH CARGO_HOME=$PWD/got CARGO_NET_RETRY=0 exec {} fetch --config \"registries.x.index='$1'\"",
        quoted(toolchain.join("bin")),
        quoted(toolchain.join("bin/cargo"))
    );
    let attempt = |host: &str| words(&["sh", "-c", &fetch, "sh", &format!("sparse+https://{host}/{host}/")]);
    let got_it = |done: &Done, _: &str| {
        done.code == Some(0) && find(&world.workspace.join("got/registry/src"), "tiny-1.0.0/src/lib.rs")
    };
    let read = ["--read", toolchain.to_str().unwrap(), "--allow-host", "web.test", "--net", "filtered"];
    let visits = |address: &str| internet.came_to(address);
    let client = Client {
        internet: &internet,
        flags: words(&read),
        attempt: &attempt,
        got_it: &got_it,
        visits: &visits,
    };
    client.reaches_the_allowed_host_alone();
}

/// Whether a directory below `place` has this file.
fn find(place: &Path, file: &str) -> bool {
    fs::read_dir(place).is_ok_and(|entries| entries.flatten().any(|entry| entry.path().join(file).exists()))
}

/// A sparse registry with one crate for each of the hosts, which sends nobody elsewhere.
fn registry(site: &Path) {
    const MAKE: &str = "\
import hashlib, io, json, os, sys, tarfile
for host in ['web.test', 'other.test']:
    at = f'{sys.argv[1]}/{host}'
    os.makedirs(f'{at}/ti/ny')
    with tarfile.open(f'{at}/tiny.crate', 'w:gz') as crate:
        for name, text in [('Cargo.toml', '[package]\\nname = \"tiny\"\\nversion = \"1.0.0\"\\nedition = \"2021\"\\n'), ('src/lib.rs', '')]:
            entry = tarfile.TarInfo('tiny-1.0.0/' + name)
            entry.size = len(text)
            crate.addfile(entry, io.BytesIO(text.encode()))
    sum = hashlib.sha256(open(f'{at}/tiny.crate', 'rb').read()).hexdigest()
    version = {'name': 'tiny', 'vers': '1.0.0', 'deps': [], 'cksum': sum, 'features': {}, 'yanked': False}
    open(f'{at}/ti/ny/tiny', 'w').write(json.dumps(version) + '\\n')
    open(f'{at}/config.json', 'w').write(json.dumps({'dl': f'https://{host}/{host}/{{crate}}.crate'}))
";
    finish(Command::new("python3").args(["-c", MAKE]).arg(site), b"").expect(0);
}
