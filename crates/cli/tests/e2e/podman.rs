//! A Podman of one test: its storage, its sockets and its processes are in a directory of their own and end with it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

use crate::test_timeouts::{PATIENCE, ended};
use crate::testkit::{Done, World, attempt, binary, eventually, finish, is_root, processes_with};

pub(crate) struct Podman {
    place: TempDir,
    service: Child,
    runtime: Runtime,
}

/// What containers are started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runtime {
    Runc,
    Crun,
    /// With storage that is soon full: 200 MiB in memory, that only the service sees. Without root it makes no container there.
    InSmallStorage,
    /// In the mount and network namespaces of this process, as root: the bridge that it makes is there and nowhere else.
    In(u32),
}

/// What the image has, besides what our own binary needs.
const PROGRAMS: &[&str] = &[
    "awk", "bash", "cat", "chmod", "cp", "curl", "cut", "dd", "diff", "echo", "env", "find", "flock", "git",
    "grep", "gzip", "head", "id", "ln", "ls", "mkdir", "mkfifo", "mv", "readlink", "rm", "sed", "seq",
    "setsid", "sh", "sleep", "sort", "stat", "stty", "tail", "tar", "timeout", "touch", "tr", "true", "tty",
    "wc",
];

/// Where they are, by which name.
const PLACES: &str = "/var/tmp";
const PREFIX: &str = "rfp.";

const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

impl Podman {
    pub(crate) fn start() -> Self {
        Self::with(Runtime::Runc)
    }

    pub(crate) fn with(runtime: Runtime) -> Self {
        // A short name, whatever TMPDIR is: without root Podman refuses a place for its state of over 50 bytes.
        let place = tempfile::Builder::new().prefix(PREFIX).tempdir_in(PLACES).unwrap();
        for directory in ["home", "xdg", "tmp"] {
            fs::create_dir(place.path().join(directory)).unwrap();
        }
        without_network_programs(&place.path().join("home"));
        let service = serve(place.path(), runtime);
        let mut podman = Self { place, service, runtime };
        podman.wait();
        podman
    }

    fn wait(&mut self) {
        let socket = self.socket();
        let log = self.place.path().join("log");
        eventually("the engine listens", || {
            let ended = self.service.try_wait().unwrap();
            assert!(ended.is_none(), "the engine ended: {}", fs::read_to_string(&log).unwrap());
            UnixStream::connect(&socket).is_ok()
        });
    }

    /// The process that holds the engine's namespaces, and where its storage is in them.
    pub(crate) fn storage(&self) -> (u32, PathBuf) {
        (self.service.id(), self.place.path().join("root"))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.place.path().join("api.sock")
    }

    /// Everything that it keeps is below this.
    pub(crate) fn place(&self) -> &Path {
        self.place.path()
    }

    /// A program that may read what belongs to those inside: without root they are other users.
    pub(crate) fn unshared(&self, program: &str) -> Command {
        if is_root() {
            return Command::new(program);
        }
        self.command(&["unshare", program])
    }

    /// Podman's own command, in the same storage.
    pub(crate) fn podman(&self, arguments: &[&str]) -> Done {
        finish(&mut self.command(arguments), b"")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = podman(self.place.path(), self.runtime);
        command.args(arguments);
        command
    }

    /// Ids of all containers, whatever their state.
    pub(crate) fn containers(&self) -> Vec<String> {
        self.listed(&["ps", "--all", "--quiet", "--no-trunc"])
    }

    /// Ids of those that run.
    pub(crate) fn running(&self) -> Vec<String> {
        self.listed(&["ps", "--quiet", "--no-trunc"])
    }

    fn listed(&self, arguments: &[&str]) -> Vec<String> {
        self.podman(arguments).expect(0).text().lines().map(str::to_owned).collect()
    }

    /// Podman removes what has ended in a process of its own, which may still be at it when the session has ended.
    #[track_caller]
    pub(crate) fn nothing_stays(&self) {
        eventually("no container stays", || self.containers().is_empty());
    }

    /// Kills the engine: without root it is two processes.
    pub(crate) fn stop(&mut self) {
        kill_process_group(Pid::from_child(&self.service), Signal::KILL).unwrap();
        ended("the engine, killed", &mut self.service);
        fs::remove_file(self.socket()).unwrap();
    }

    /// It is there and says nothing.
    pub(crate) fn fall_silent(&self) {
        kill_process_group(Pid::from_child(&self.service), Signal::STOP).unwrap();
    }

    pub(crate) fn speak_again(&self) {
        kill_process_group(Pid::from_child(&self.service), Signal::CONT).unwrap();
    }

    pub(crate) fn start_again(&mut self) {
        self.service = serve(self.place.path(), self.runtime);
        self.wait();
    }

    /// A world whose commands run in containers of this engine, in an image with a shell and everyday tools.
    pub(crate) fn world(&self) -> (World, Flags) {
        let world = World::new();
        let flags = self.equip(&world);
        (world, flags)
    }

    pub(crate) fn equip(&self, world: &World) -> Flags {
        self.equip_by(world.ringfence())
    }

    /// By a `ringfence` with a configuration of its own.
    pub(crate) fn equip_by(&self, ringfence: Command) -> Flags {
        let archive = self.place.path().join("rootfs.tar");
        if !archive.exists() {
            pack(&archive);
        }
        let archive = archive.to_str().unwrap();
        self.images_by(ringfence, &["build", "dev", archive]).expect(0);
        Flags::of(&self.socket())
    }

    pub(crate) fn images(&self, world: &World, arguments: &[&str]) -> Done {
        self.images_by(world.ringfence(), arguments)
    }

    fn images_by(&self, mut ringfence: Command, arguments: &[&str]) -> Done {
        finish(ringfence.arg("image").args(arguments).arg("--engine").arg(self.socket()), b"")
    }

    /// The digest of the image of `world`.
    pub(crate) fn id(&self, world: &World) -> String {
        let listed = self.images(world, &["list", "--json"]).expect(0).json();
        listed["images"][0]["id"].as_str().unwrap().to_owned()
    }
}

/// What to say to `ringfence run`.
pub(crate) struct Flags([String; 6]);

impl Flags {
    pub(crate) fn of(socket: &Path) -> Self {
        let words = ["--backend", "container", "--image", "dev", "--engine", socket.to_str().unwrap()];
        Self(words.map(str::to_owned))
    }

    pub(crate) fn with<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        self.0.iter().map(String::as_str).chain(more.iter().copied()).collect()
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let mut remove = podman(self.place.path(), self.runtime);
        let left = attempt(PATIENCE, remove.args(["rm", "--all", "--force", "--time", "0"]), b"");
        let _stopped = kill_process_group(Pid::from_child(&self.service), Signal::KILL);
        ended("the engine, killed", &mut self.service);
        // Without root Podman leaves a process behind that holds its namespaces.
        for pidfile in ["xdg/libpod/tmp/pause.pid", "tmp/pause.pid"] {
            let pid = fs::read_to_string(self.place.path().join(pidfile)).ok();
            let pid = pid.and_then(|text| text.trim().parse().ok()).and_then(Pid::from_raw);
            if let Some(pid) = pid {
                let _gone = kill_process(pid, Signal::KILL);
            }
        }
        // Shared by all of them: one that begins must not lose what it has just made.
        if others(self.place.path()) == 0 {
            for controller in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
                let _busy = fs::remove_dir(controller.path().join("libpod_parent"));
            }
        }
        let told = left.and_then(|_| taken_down(self.place.path()));
        assert!(told.is_ok() || std::thread::panicking(), "{told:?}");
    }
}

/// Removes the place of an engine that has ended, with what it has mounted there. What it has started to clean up may still be at
/// it, and mounts again.
pub(crate) fn taken_down(place: &Path) -> Result<(), String> {
    let start = Instant::now();
    while place.exists() {
        for mount in mounts_below(place) {
            let _unmounted = attempt(PATIENCE, Command::new("umount").arg("--lazy").arg(mount), b"")?;
        }
        // Without root the directories of an image cannot be emptied by whom they belong to until they are writable.
        attempt(PATIENCE, Command::new("chmod").args(["-R", "u+rwX"]).arg(place), b"")?;
        let removed = fs::remove_dir_all(place);
        if start.elapsed() > PATIENCE {
            let still = processes_with(&place.to_string_lossy());
            return Err(format!("{} is still there: {removed:?} {still:?}", place.display()));
        }
    }
    Ok(())
}

/// The last one first: it may be inside another.
fn mounts_below(place: &Path) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let mut below: Vec<PathBuf> = points.filter(|point| point.starts_with(place)).collect();
    below.reverse();
    below
}

/// How many more there are on this machine.
fn others(place: &Path) -> usize {
    let all = fs::read_dir(PLACES).into_iter().flatten().flatten();
    let is_other = |entry: &fs::DirEntry| {
        entry.path() != place && entry.file_name().to_string_lossy().starts_with(PREFIX)
    };
    all.filter(is_other).count()
}

/// crun refuses a machine with both kinds of control groups, so that as root it does not see one of them.
const WITHOUT_CGROUP2: &str = "umount /sys/fs/cgroup/unified 2>/dev/null; exec podman \"$@\"";

const IN_SMALL_STORAGE: &str = "mkdir -p root && mount -t tmpfs -o size=200m tmpfs root && \
    mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs /run && exec podman \"$@\"";

fn podman(place: &Path, runtime: Runtime) -> Command {
    let (name, before) = match runtime {
        Runtime::Runc | Runtime::In(_) => ("runc", None),
        Runtime::Crun => ("crun", Some(WITHOUT_CGROUP2).filter(|_| is_root())),
        Runtime::InSmallStorage => ("runc", Some(IN_SMALL_STORAGE)),
    };
    let mut command = Command::new(match (runtime, before) {
        (Runtime::In(_), _) => "/usr/bin/nsenter",
        (_, Some(_)) => "/usr/bin/unshare",
        (_, None) => "/usr/bin/podman",
    });
    if let Runtime::In(process) = runtime {
        let place = place.display();
        command.args(["--target", &process.to_string(), "--mount", "--net", &format!("--wdns={place}")]);
        command.args(["--", "podman", &format!("--network-config-dir={place}/net")]);
    }
    if let Some(before) = before {
        let own = if is_root() { &["--mount"][..] } else { &["--mount", "--user", "--map-root-user"] };
        command.args(own).args(["sh", "-c", before, "podman"]);
    }
    let at = |name: &str| place.join(name);
    command
        .arg("--root")
        .arg(at("root"))
        .arg("--runroot")
        .arg(at("run"))
        .arg("--tmpdir")
        .arg(at("tmp"))
        .args(["--runtime", name, "--cgroup-manager", "cgroupfs", "--storage-driver", "overlay"])
        .args(["--events-backend", "none", "--log-level", "error"])
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", at("home"))
        .env("XDG_RUNTIME_DIR", at("xdg"))
        .env("TMPDIR", at("tmp"))
        .current_dir(place);
    command
}

/// Without root an engine makes networks with a program that a machine has or has not. These tests are the same everywhere: here
/// there is none.
fn without_network_programs(home: &Path) {
    let directory = home.join(".config/containers");
    fs::create_dir_all(&directory).unwrap();
    let none = "[engine]\nnetwork_cmd_path = \"/nonexistent/slirp4netns\"\n\
         [network]\ndefault_rootless_network_cmd = \"slirp4netns\"\n";
    fs::write(directory.join("containers.conf"), none).unwrap();
}

fn serve(place: &Path, runtime: Runtime) -> Child {
    let socket = format!("unix://{}/api.sock", place.display());
    let log = fs::File::options().create(true).append(true).open(place.join("log")).unwrap();
    podman(place, runtime)
        .args(["system", "service", "--time", "0", &socket])
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .expect("these tests need the packages `podman`, `runc` and `uidmap`")
}

/// Programs of this machine with the libraries they need, as a tar archive.
pub(crate) fn pack(archive: &Path) {
    let mut files = BTreeSet::new();
    let programs = PROGRAMS.iter().map(|name| {
        let candidates = ["/usr/bin", "/bin", "/usr/sbin"].map(|directory| Path::new(directory).join(name));
        candidates.into_iter().find(|path| path.exists()).unwrap_or_else(|| panic!("{name} is not installed"))
    });
    for program in programs.chain([binary()]) {
        let needed = finish(Command::new("ldd").arg(&program), b"").text();
        let libraries = needed.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from);
        let own = Some(program).filter(|program| program.starts_with("/usr") || program.starts_with("/bin"));
        for file in libraries.chain(own) {
            let directory = fs::canonicalize(file.parent().unwrap()).unwrap();
            files.insert(directory.join(file.file_name().unwrap()));
        }
    }
    let tar = |mode: &str, files: &[&str]| {
        let mut command = Command::new("tar");
        command.arg(mode).arg(archive).args(["--owner=0", "--group=0", "-C", "/"]).args(files);
        finish(&mut command, b"").expect(0);
    };
    let links: Vec<&str> = ["bin", "lib", "lib64", "sbin"]
        .into_iter()
        .filter(|name| Path::new("/").join(name).exists())
        .collect();
    tar("-cf", &links);
    let files: Vec<&str> =
        files.iter().map(|file| file.strip_prefix("/").unwrap().to_str().unwrap()).collect();
    tar("-rhf", &files);
    tar("-rf", &["usr/share/git-core/templates"]);
}
