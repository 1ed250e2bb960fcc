//! The daemon as a service: started by the manager of a user, and heard when something goes wrong.

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::Signal;

use crate::approvals::configure;
use crate::daemon_fixture::raw;
use crate::packaging::{SERVICE, SOCKET};
use crate::test_timeouts::{comes_true, ended, mortal};
use crate::testkit::{World, binary, eventually, finish, is_root, send};

const HEALTH: &[u8] = b"GET /v1/health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

/// A manager of an ordinary user in a control group and mounts of its own. `$1` is the group, `$2` the home, `$3` the user.
const MANAGER: &str = r#"
set -e
echo $$ >"$1/cgroup.procs"
exec unshare --mount --cgroup --propagation private sh -c '
  mount -t tmpfs none /run && mkdir -p /run/systemd/system && mount -t cgroup2 none /sys/fs/cgroup
  exec setpriv --reuid "$2" --regid "$2" --clear-groups env -i HOME="$1" \
    XDG_RUNTIME_DIR="$1/r" PATH=/usr/bin:/bin \
    /usr/lib/systemd/systemd --user --unit=ringfence.socket' manager "$2" "$3"
"#;
/// Nobody's files are of this user.
const USER: &str = "64123";

/// A group of the unified hierarchy that the user may divide; gone with this.
struct Group(PathBuf);

impl Group {
    fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("ringfence-unit.").tempdir_in(unified()).unwrap();
        // From here on it is removed in any case.
        let group = Self(directory.keep());
        for name in ["", "cgroup.procs", "cgroup.subtree_control"] {
            std::os::unix::fs::chown(group.0.join(name), USER.parse().ok(), USER.parse().ok()).unwrap();
        }
        group
    }
}

/// Where the unified hierarchy is.
fn unified() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mount = mounts.find(|fields| fields.get(2) == Some(&"cgroup2"));
    let mount = mount
        .expect("a manager of services needs version two of control groups, and no cgroup2 is mounted here");
    PathBuf::from(mount[1])
}

impl Drop for Group {
    fn drop(&mut self) {
        // What the test has left is the test's own.
        let _killed = fs::write(self.0.join("cgroup.kill"), "1");
        // The test may be failing already, and whoever panics then ends all tests. What is not empty is not removed.
        let _empty = comes_true(|| {
            fs::read_to_string(self.0.join("cgroup.events")).is_ok_and(|text| text.contains("populated 0"))
        });
        remove(&self.0);
    }
}

fn remove(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let _busy = fs::remove_dir(group);
}

struct Manager {
    child: Child,
    group: Group,
    home: PathBuf,
}

impl Manager {
    fn start(world: &World, service: &str) -> Self {
        // Short: the doors beside the socket have to fit into an address.
        let home = world.beside("o");
        let units = home.join(".config/systemd/user");
        fs::create_dir_all(&units).unwrap();
        fs::create_dir_all(home.join("r")).unwrap();
        fs::write(units.join("ringfence.service"), service.replace("/usr/bin/ringfence", "%h/ringfence"))
            .unwrap();
        fs::write(units.join("ringfence.socket"), SOCKET).unwrap();
        fs::copy(binary(), home.join("ringfence")).unwrap();
        finish(world.host("chown").args(["-R", &format!("{USER}:{USER}")]).arg(&home), b"").expect(0);
        finish(world.host("chmod").args(["700"]).arg(home.join("r")), b"").expect(0);
        let group = Group::new();
        let mut command = world.host("sh");
        command.args(["-c", MANAGER, "sh"]).arg(&group.0).arg(&home).arg(USER).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        mortal(&child);
        let manager = Self { child, group, home };
        eventually("the manager listens", || manager.socket().exists());
        manager
    }

    fn socket(&self) -> PathBuf {
        self.home.join("r/ringfence/daemon.sock")
    }

    fn systemctl(&self, world: &World, arguments: &[&str]) -> String {
        let mut command = world.host("setpriv");
        command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "systemctl", "--user"]);
        command.env("XDG_RUNTIME_DIR", self.home.join("r")).args(arguments);
        finish(&mut command, b"").text()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        send(&self.child, Signal::TERM);
        let _status = ended("the manager, told to end", &mut self.child);
        let _group = &self.group;
    }
}

/// The manager of an ordinary user starts the daemon when somebody connects, and ends it. Only root can give such a manager
/// a control group here; as an ordinary user the same unit is looked at by `packaging`.
#[test]
fn the_unit_starts_under_the_manager_of_an_ordinary_user() {
    if !is_root() {
        // The control of the other half: nobody but root can make the group.
        assert!(tempfile::tempdir_in(unified()).is_err());
        return;
    }
    let world = World::new();
    let manager = Manager::start(&world, SERVICE);
    assert_eq!(raw(&manager.socket(), HEALTH).0, 200, "{}", status(&world, &manager));
    assert_eq!(manager.systemctl(&world, &["is-active", "ringfence.service"]).trim(), "active");
    manager.systemctl(&world, &["stop", "ringfence.service"]);
    let shown = manager.systemctl(&world, &["show", "-p", "Result", "ringfence.service"]);
    assert_eq!(shown.trim(), "Result=success", "{}", status(&world, &manager));
    drop(manager);
    // The control: what an ordinary user's manager cannot do keeps the daemon from starting.
    let world = World::new();
    let wrong = SERVICE.replace("UMask=0077", "UMask=0077\nCapabilityBoundingSet=");
    let manager = Manager::start(&world, &wrong);
    let _connected = UnixStream::connect(manager.socket()).unwrap();
    eventually("it fails", || status(&world, &manager).contains("218/CAPABILITIES"));
}

fn status(world: &World, manager: &Manager) -> String {
    manager.systemctl(world, &["status", "--no-pager", "ringfence.service"])
}

/// What goes wrong is said where the manager keeps it, without anybody asking, and without what is secret.
#[test]
fn the_daemon_says_what_goes_wrong_and_no_secret() {
    for (level, is_told) in [(None, true), (Some("off"), false)] {
        let world = World::new();
        configure(&world, "");
        let secret = ["lantern", "orchard", "meadow", "7182818284"].join("-");
        finish(world.ringfence().args(["secret", "set", "tool-key"]), secret.as_bytes()).expect(0);
        let socket = world.beside("s").join("d");
        let log = world.beside("log").join("daemon");
        let mut command = world.ringfence();
        command.args(["serve", "--socket"]).arg(&socket).stdin(Stdio::null());
        command.stderr(fs::File::create(&log).unwrap());
        level.map(|level| command.env("RINGFENCE_LOG", level));
        let mut child = command.spawn().unwrap();
        mortal(&child);
        eventually("it serves", || UnixStream::connect(&socket).is_ok());
        assert_eq!(raw(&socket, HEALTH).0, 200);
        configure(&world, &format!("profile = \"{secret}\"\n"));
        let refused = || {
            let records = world.all_records();
            let changes = records.iter().filter_map(|record| record["event"]["change"].as_str());
            changes.into_iter().any(|change| change.starts_with("not taken"))
        };
        eventually("it is looked at", refused);
        send(&child, Signal::TERM);
        let status = ended("the daemon, told to end", &mut child);
        let said = fs::read_to_string(&log).unwrap();
        assert!(status.success(), "{status:?} {said}");
        assert_eq!(said.contains("configuration rejected"), is_told, "{said}");
        assert!(!said.contains(&secret), "{said}");
    }
}

/// `--check` looks at the address, the names and the certificate, too.
#[test]
fn a_check_looks_at_everything_that_a_start_needs() {
    let world = World::new();
    let socket = world.beside("s").join("d");
    let check = |daemon: &str| {
        configure(&world, daemon);
        finish(world.ringfence().args(["serve", "--check", "--socket"]).arg(&socket), b"")
    };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let listen = format!("[daemon]\nlisten = \"127.0.0.1:{port}\"\n");
    check(&listen).expect(125).says("cannot listen");
    check("[daemon]\nlisten = \"127.0.0.1:0\"\n").expect(0);
    let files = "tls = \"files\"\ncertificate = \"/no/such.pem\"\nkey = \"/no/such.key\"\n";
    check(&format!("{listen}{files}")).expect(125).says("cannot be read");
}
