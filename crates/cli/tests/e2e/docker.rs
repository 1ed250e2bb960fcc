//! A Docker of one test: its storage, its socket and its processes are in a directory of their own and end with it. It makes no
//! bridge and no rule of a firewall. Only root can start one.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::podman::{Flags, pack, taken_down};
use crate::test_timeouts::{PATIENCE, end, ended};
use crate::testkit::{Done, World, attempt, eventually, finish};

pub(crate) struct Docker {
    place: TempDir,
    daemon: Child,
}

const LIST: [&str; 4] = ["ps", "--all", "--quiet", "--no-trunc"];

const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

impl Docker {
    pub(crate) fn start() -> Self {
        let place = tempfile::Builder::new().prefix("rfd.").tempdir_in("/var/tmp").unwrap();
        fs::write(place.path().join("daemon.json"), "{}").unwrap();
        let daemon = serve(place.path());
        let mut docker = Self { place, daemon };
        docker.wait();
        docker
    }

    fn wait(&mut self) {
        let (socket, log) = (self.socket(), self.place.path().join("log"));
        eventually("Docker listens", || {
            let ended = self.daemon.try_wait().unwrap();
            assert!(ended.is_none(), "it ended: {}", fs::read_to_string(&log).unwrap());
            UnixStream::connect(&socket).is_ok()
        });
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.place.path().join("api.sock")
    }

    pub(crate) fn docker(&self, arguments: &[&str]) -> Done {
        finish(&mut self.command(arguments), b"")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("/usr/bin/docker");
        command.env_clear().env("PATH", PATH).env("HOME", self.place.path());
        command.arg("--host").arg(format!("unix://{}", self.socket().display())).args(arguments);
        command
    }

    /// Ids of all containers, whatever their state.
    pub(crate) fn containers(&self) -> Vec<String> {
        let listed = self.docker(&LIST).expect(0);
        listed.text().lines().map(str::to_owned).collect()
    }

    #[track_caller]
    pub(crate) fn nothing_stays(&self) {
        eventually("no container stays", || self.containers().is_empty());
    }

    /// Without a chance to clean up.
    pub(crate) fn kill(&mut self) {
        end(&mut self.daemon);
        self.end_containerd();
        for left in ["api.sock", "pid"] {
            fs::remove_file(self.place.path().join(left)).unwrap();
        }
    }

    pub(crate) fn start_again(&mut self) {
        self.daemon = serve(self.place.path());
        self.wait();
    }

    /// The root file system of the image of a world.
    pub(crate) fn archive(&self) -> PathBuf {
        self.place.path().join("rootfs.tar")
    }

    pub(crate) fn world(&self) -> (World, Flags) {
        let world = World::new();
        let archive = self.archive();
        pack(&archive);
        self.images(&world, &["build", "dev", archive.to_str().unwrap()]).expect(0);
        (world, Flags::of(&self.socket()))
    }

    pub(crate) fn images(&self, world: &World, arguments: &[&str]) -> Done {
        finish(world.ringfence().arg("image").args(arguments).arg("--engine").arg(self.socket()), b"")
    }

    /// The one that Docker has started for itself.
    fn end_containerd(&self) {
        let pid = fs::read_to_string(self.place.path().join("exec/containerd/containerd.pid")).ok();
        let pid = pid.and_then(|text| text.trim().parse().ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _gone = kill_process(pid, Signal::KILL);
            eventually("containerd is gone", || rustix::process::test_kill_process(pid).is_err());
        }
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        // A failed test may have left it without a daemon.
        let listed = attempt(PATIENCE, &mut self.command(&LIST), b"");
        let left = listed.map_or_else(|_| String::new(), |listed| listed.text());
        for id in left.lines() {
            let _left = attempt(PATIENCE, &mut self.command(&["rm", "--force", id]), b"");
        }
        let _stopped = kill_process(Pid::from_child(&self.daemon), Signal::TERM);
        ended("Docker, told to end", &mut self.daemon);
        self.end_containerd();
        // Docker binds its data to themselves and leaves that.
        let told = taken_down(self.place.path());
        for controller in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            let _busy = fs::remove_dir(controller.path().join("docker"));
        }
        assert!(told.is_ok() || thread::panicking(), "{told:?}");
    }
}

fn serve(place: &Path) -> Child {
    let at = |name: &str| place.join(name);
    let log = fs::File::options().create(true).append(true).open(at("log")).unwrap();
    Command::new("/usr/sbin/dockerd")
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", place)
        .arg("--config-file")
        .arg(at("daemon.json"))
        .arg("--data-root")
        .arg(at("data"))
        .arg("--exec-root")
        .arg(at("exec"))
        .arg("--pidfile")
        .arg(at("pid"))
        .arg("--host")
        .arg(format!("unix://{}", at("api.sock").display()))
        .args([
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
            "--ip-forward=false",
            "--ip-masq=false",
        ])
        .args(["--storage-driver=overlay2", "--group=root", "--log-level=error"])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .expect("these tests need the package `docker.io`")
}
