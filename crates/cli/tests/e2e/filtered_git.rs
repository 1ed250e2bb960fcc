//! git behind the filter, over https and over ssh.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::internet::Internet;
use crate::internet::client::{Client, OTHER_ADDRESS, WEB_ADDRESS, over_tls, words};
use crate::test_timeouts::end;
use crate::testkit::{Done, eventually, finish};

const SSH_PORT: u16 = 2222;

#[test]
fn git_clones_over_https_from_the_allowed_host_alone() {
    let internet = Internet::new();
    let world = &internet.world;
    let served = served_repository(&internet, "site/repo.git");
    world.git(&served, &["update-server-info"]);
    let attempt = |host: &str| {
        remove_clone(&internet);
        words(&["git", "clone", "-q", &format!("https://{host}/repo.git"), "clone"])
    };
    let got_it = |done: &Done, _: &str| done.code == Some(0) && is_cloned(&internet);
    over_tls(&internet, &attempt, &got_it);
}

/// Inside nobody can: what a clone would run is held there.
fn remove_clone(internet: &Internet) {
    let _earlier = fs::remove_dir_all(internet.world.workspace.join("clone"));
}

fn is_cloned(internet: &Internet) -> bool {
    internet.world.read("clone/readme").as_deref() == Some("cloned\n")
}

#[test]
fn git_clones_over_ssh_from_the_allowed_host_alone() {
    let internet = Internet::new();
    let repository = served_repository(&internet, "repo.git");
    let server = SshServer::new(&internet);
    let ssh = "ssh -F none -i deploy -o BatchMode=yes -o IdentitiesOnly=yes -o StrictHostKeyChecking=no \
               -o UserKnownHostsFile=/dev/null -o ConnectTimeout=20";
    let script = "exec git -c core.sshCommand=\"$1\" clone -q \"$2\" clone";
    let attempt = |host: &str| {
        remove_clone(&internet);
        let url = format!("ssh://git@{host}:{SSH_PORT}{}", repository.display());
        words(&["sh", "-c", script, "sh", ssh, &url])
    };
    let got_it = |done: &Done, _: &str| done.code == Some(0) && is_cloned(&internet);
    let visits = |address: &str| server.logins(address);
    let flags = words(&["--net", "filtered", "--allow-host", &format!("web.test:{SSH_PORT}")]);
    let client = Client { internet: &internet, flags, attempt: &attempt, got_it: &got_it, visits: &visits };
    client.reaches_the_allowed_host_alone();
}

fn served_repository(internet: &Internet, at: &str) -> PathBuf {
    let source = internet.world.beside("source");
    let git = |arguments: &[&str]| internet.world.git(&source, arguments);
    git(&["init", "-q", "-b", "main", "."]);
    fs::write(source.join("readme"), "cloned\n").unwrap();
    git(&["add", "readme"]);
    git(&["commit", "-q", "-m", "first"]);
    let served = internet.place.join(at);
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
            finish(command, b"").expect(0);
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
            end(server);
        }
    }
}
