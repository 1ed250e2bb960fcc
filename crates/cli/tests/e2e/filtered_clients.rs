//! Clients that people really use behind the filter: requests, Go, Java over TLS, cargo, and git over ssh.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::internet::Internet;
use crate::testkit::{Done, eventually, finish, marker, quoted};
use crate::work::toolchain;

const WEB_ADDRESS: &str = "30.0.0.10";
const OTHER_ADDRESS: &str = "30.0.0.20";
const SSH_PORT: u16 = 2222;

/// What leads to the proxy, taken away; what says whom to trust stays.
const UNSET: &str = "unset $(env | cut -d= -f1 | grep -iE '_proxy$|^npm_config|NODE_USE_ENV'); exec \"$@\"";

/// One client in one world: what it runs to get something from a host, and how it is known that it did.
struct Client<'a> {
    internet: &'a Internet,
    flags: Vec<String>,
    attempt: &'a dyn Fn(&str) -> Vec<String>,
    got_it: &'a dyn Fn(&Done, &str) -> bool,
    /// How many times somebody was at the server of an address.
    visits: &'a dyn Fn(&str) -> usize,
}

impl Client<'_> {
    /// The allowed host is reached and the other is not, with the variables of the proxy and without; without the fence the
    /// other is reached as well.
    fn reaches_the_allowed_host_alone(&self) {
        for how in [&[][..], &["sh", "-c", UNSET, "sh"]] {
            let before = (self.visits)(WEB_ADDRESS);
            let done = self.inside(how, "web.test");
            let told = format!("{how:?} {:?} {} {}", done.code, done.text(), done.err);
            assert!((self.got_it)(&done, WEB_ADDRESS), "{told}");
            assert!((self.visits)(WEB_ADDRESS) > before, "it came from nowhere: {told}");
            self.internet.forget_visits();
            let other = self.inside(how, "other.test");
            assert!(!(self.got_it)(&other, OTHER_ADDRESS), "{how:?} {}", other.text());
            assert!(other.err.contains("--allow-host other.test"), "{how:?} {}", other.err);
            assert_eq!((self.visits)(OTHER_ADDRESS), 0, "{how:?} {:?}", self.internet.visits());
            assert_eq!(self.internet.names_asked(), Vec::<String>::new(), "{how:?}");
        }
        let control = self.outside("other.test");
        assert!((self.got_it)(&control, OTHER_ADDRESS), "the control: {} {}", control.text(), control.err);
        assert!((self.visits)(OTHER_ADDRESS) > 0, "the control");
    }

    /// Whoever comes to this host from another mount namespace has no name for where it is until it goes there again.
    fn outside(&self, host: &str) -> Done {
        let mut command = self.internet.host("sh");
        command.args(["-c", "cd \"$0\" && exec \"$@\""]).arg(&self.internet.world.workspace);
        finish(command.args((self.attempt)(host)), b"")
    }

    fn inside(&self, how: &[&str], host: &str) -> Done {
        let mut command = self.internet.ringfence();
        command.arg("run").args(&self.flags).arg("--").args(how).args((self.attempt)(host));
        finish(&mut command, b"")
    }
}

/// A client that gets something over TLS from `https://HOST/`.
fn over_tls(
    internet: &Internet,
    attempt: &dyn Fn(&str) -> Vec<String>,
    got_it: &dyn Fn(&Done, &str) -> bool,
) {
    let flags = words(&["--net", "filtered", "--allow-host", "web.test"]);
    let visits = |address: &str| internet.came_to(address);
    Client { internet, flags, attempt, got_it, visits: &visits }.reaches_the_allowed_host_alone();
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn is_the_page(done: &Done, address: &str) -> bool {
    done.text() == format!("hello from {address}\n")
}

#[test]
fn python_requests_reaches_the_allowed_host_alone() {
    const GET: &str = "import requests, sys; print(requests.get(sys.argv[1], timeout=20).text, end='')";
    let internet = Internet::new();
    // On the host it trusts a bundle of its own unless it is told otherwise.
    fs::copy(internet.place.join("roots.pem"), internet.world.workspace.join("roots.pem")).unwrap();
    let script = "REQUESTS_CA_BUNDLE=${REQUESTS_CA_BUNDLE:-roots.pem} exec \"$@\"";
    let attempt = |host: &str| {
        words(&["sh", "-c", script, "sh", "/usr/bin/python3", "-c", GET, &format!("https://{host}/")])
    };
    over_tls(&internet, &attempt, &is_the_page);
}

/// direnv is written in Go and downloads with the client of its standard library.
#[test]
fn a_go_client_reaches_the_allowed_host_alone() {
    let internet = Internet::new();
    let script = "rm -rf go; HOME=$PWD/go XDG_CACHE_HOME=$PWD/go direnv fetchurl \"$1\" && find go -type f -exec cat {} +";
    let attempt = |host: &str| words(&["sh", "-c", script, "sh", &format!("https://{host}/")]);
    over_tls(&internet, &attempt, &|done, address| {
        done.code == Some(0) && done.text().contains(&format!("hello from {address}\n"))
    });
}

/// A JVM trusts what its own store holds, and reads none of the variables. A store named `.p12` would be hidden as a key.
#[test]
fn a_java_client_over_tls_reaches_the_allowed_host_alone() {
    let internet = Internet::new();
    let source = "import java.net.*;\npublic class Get { public static void main(String[] a) throws Exception {\n\
                  var c = new URL(a[0]).openConnection(); c.setConnectTimeout(20000); c.setReadTimeout(20000);\n\
                  System.out.print(new String(c.getInputStream().readAllBytes())); } }\n";
    internet.world.write("Get.java", source);
    let word = marker(&internet.world);
    trust_store(&internet, &word);
    let options = [
        "-XX:TieredStopAtLevel=1".to_owned(),
        "-Djavax.net.ssl.trustStore=roots.store".to_owned(),
        format!("-Djavax.net.ssl.trustStorePassword={word}"),
    ];
    let attempt = |host: &str| {
        [&words(&["java"]), &options[..], &words(&["Get.java", &format!("https://{host}/")])].concat()
    };
    over_tls(&internet, &attempt, &is_the_page);
}

fn trust_store(internet: &Internet, word: &str) {
    let mut keytool = internet.world.host("keytool");
    keytool.args([
        "-importcert",
        "-noprompt",
        "-alias",
        "root",
        "-storetype",
        "PKCS12",
        "-keystore",
        "roots.store",
    ]);
    keytool.args(["-storepass", word, "-file"]).arg(internet.place.join("roots.pem"));
    finish(&mut keytool, b"").expect(0);
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
    assert!(Command::new("python3").args(["-c", MAKE]).arg(site).status().unwrap().success());
}

#[test]
fn git_clones_over_ssh_from_the_allowed_host_alone() {
    let internet = Internet::new();
    let world = &internet.world;
    let repository = served_repository(&internet);
    let server = SshServer::new(&internet);
    let ssh = "ssh -F none -i deploy -o BatchMode=yes -o IdentitiesOnly=yes -o StrictHostKeyChecking=no \
               -o UserKnownHostsFile=/dev/null -o ConnectTimeout=20";
    let script = "exec git -c core.sshCommand=\"$1\" clone -q \"$2\" clone";
    let attempt = |host: &str| {
        // Inside nobody can: what a clone would run is held there.
        let _earlier = fs::remove_dir_all(world.workspace.join("clone"));
        let url = format!("ssh://git@{host}:{SSH_PORT}{}", repository.display());
        words(&["sh", "-c", script, "sh", ssh, &url])
    };
    let got_it = |done: &Done, _: &str| {
        done.code == Some(0) && world.read("clone/readme").as_deref() == Some("over ssh\n")
    };
    let visits = |address: &str| server.logins(address);
    let flags = words(&["--net", "filtered", "--allow-host", &format!("web.test:{SSH_PORT}")]);
    let client = Client { internet: &internet, flags, attempt: &attempt, got_it: &got_it, visits: &visits };
    client.reaches_the_allowed_host_alone();
}

fn served_repository(internet: &Internet) -> PathBuf {
    let source = internet.world.beside("source");
    let git = |arguments: &[&str]| internet.world.git(&source, arguments);
    git(&["init", "-q", "-b", "main", "."]);
    fs::write(source.join("readme"), "over ssh\n").unwrap();
    git(&["add", "readme"]);
    git(&["commit", "-q", "-m", "first"]);
    let served = internet.place.join("repo.git");
    git(&["clone", "-q", "--bare", ".", served.to_str().unwrap()]);
    served
}

/// A real server of ssh at both hosts, for a user `git` whose key is in the workspace. Each host has a server and a log of its
/// own, so that it is known who came where.
struct SshServer {
    place: PathBuf,
    servers: Vec<Child>,
}

impl SshServer {
    fn new(internet: &Internet) -> Self {
        let place = internet.place.clone();
        let mut server = Self { place, servers: Vec::new() };
        server.accounts(&internet.world.workspace.join("deploy"));
        for address in [WEB_ADDRESS, OTHER_ADDRESS] {
            server.start(internet, address);
        }
        server
    }

    /// The key pair, and a password file with nobody but `git`, who is whoever runs the test.
    fn accounts(&self, key: &Path) {
        let home = self.place.join("git-home");
        fs::create_dir_all(home.join(".ssh")).unwrap();
        let run = |command: &mut Command| {
            assert!(command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success())
        };
        run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"]).arg(key));
        run(Command::new("dropbearkey").args(["-t", "ed25519", "-f"]).arg(self.place.join("host-key")));
        fs::copy(key.with_extension("pub"), home.join(".ssh/authorized_keys")).unwrap();
        for (path, mode) in [("", 0o700), (".ssh", 0o700), (".ssh/authorized_keys", 0o600)] {
            fs::set_permissions(home.join(path), fs::Permissions::from_mode(mode)).unwrap();
        }
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let line = format!("git:x:{user}:{group}::{}:/bin/sh\n", home.display());
        fs::write(self.place.join("passwd"), line).unwrap();
    }

    fn start(&mut self, internet: &Internet, address: &str) {
        let script = format!(
            "mount --bind passwd /etc/passwd; exec dropbear -F -E -s -r host-key -p {address}:{SSH_PORT} -P {address}.pid 2>{address}.log"
        );
        self.servers.push(internet.beside_servers(&script).stdin(Stdio::null()).spawn().unwrap());
        // It is written once the server listens.
        eventually("the server of ssh is there", || self.place.join(format!("{address}.pid")).exists());
    }

    /// How many connections came to an address.
    fn logins(&self, address: &str) -> usize {
        let log = fs::read_to_string(self.place.join(format!("{address}.log"))).unwrap();
        log.matches("Child connection from").count()
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _gone = server.kill();
            let _status = server.wait();
        }
    }
}
