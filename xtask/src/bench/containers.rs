//! Sessions in containers, by the example program `bench_container` of `ringfence-runtime`, against the engine's own commands on
//! the same image. Podman is started here, with storage of its own.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::arena::Arena;
use super::measure::{Contender, Invocation, Probe, interleave, named};
use super::report::{Bound, Report};
use crate::{Result, command};

const CALLS_PER_TURN: &str = "10";

pub(super) fn run(arena: &Arena, report: &mut Report) -> Result<()> {
    let program = arena.example("ringfence-runtime", "bench_container")?;
    let podman = Podman::start()?;
    let bench = Bench { arena, program: &program, podman: &podman };
    calls(&bench, report)?;
    starts(&bench, report)
}

struct Bench<'a> {
    arena: &'a Arena,
    program: &'a Path,
    podman: &'a Podman,
}

impl Bench<'_> {
    fn own(&self, name: &str, mode: &str, count: &str) -> Contender {
        let podman = self.podman;
        let (socket, place) = (podman.path("api.sock"), podman.path("bench"));
        let arguments =
            [mode, &socket.display().to_string(), &podman.image, &place.display().to_string(), count];
        let invocation = self.arena.invocation(self.program, &arguments, podman.place.path());
        Contender { name: name.into(), probe: Probe::Reports(invocation) }
    }

    fn engine(&self, name: &str, words: &[&str]) -> Contender {
        Contender { name: name.into(), probe: Probe::Process(self.podman.invocation(words)) }
    }

    /// What Podman's own `exec` runs in the end, without Podman.
    fn runtime(&self, name: &str, container: &str) -> Contender {
        let podman = self.podman.invocation(&[]);
        let arguments = ["exec", container, "/usr/bin/true"].map(str::to_owned).to_vec();
        let invocation = Invocation { program: "/usr/sbin/runc".into(), arguments, ..podman };
        Contender { name: name.into(), probe: Probe::Process(invocation) }
    }
}

/// The limits that an engine may set here.
const LIMITS: &[&str] = &["--ulimit", "nofile=256:256", "--ulimit", "nproc=4096:4096", "--network", "none"];

fn calls(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let image = bench.podman.image.as_str();
    let running =
        [&["run", "--detach", "--name", "bench"], LIMITS, &[image, "/usr/bin/sleep", "10000"]].concat();
    bench.podman.must(&running)?;
    let contenders = [
        bench.own("call in a running session", "call", CALLS_PER_TURN),
        bench.engine("podman exec", &["exec", "bench", "/usr/bin/true"]),
        bench.runtime("runc exec", &bench.podman.id_of("bench")?),
    ];
    let times = interleave(&contenders, bench.arena.effort.rounds(40))?;
    bench.podman.must(&["rm", "--force", "--time", "0", "bench"])?;
    report.table("a call in a container", &times, &["podman exec", "runc exec"]);
    let call = named(&times, "call in a running session")?.median();
    report.target("container: call in a running session", call, Bound::AtMost(5.0), "ms");
    let ratio = call / named(&times, "podman exec")?.median();
    report.target("container: call / podman exec", ratio, Bound::AtMost(0.05), "x");
    Ok(())
}

fn starts(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let image = bench.podman.image.as_str();
    let whole = [&["run", "--rm"], LIMITS, &[image, "/usr/bin/true"]].concat();
    let contenders = [
        bench.own("first call, and its end", "first", "1"),
        bench.own("first call, prewarmed", "prewarmed", "1"),
        bench.engine("podman run --rm", &whole),
    ];
    let times = interleave(&contenders, bench.arena.effort.rounds(40))?;
    report.table("a first call in a container", &times, &["podman run --rm"]);
    let median = |name: &str| named(&times, name).map(|times| times.median());
    let ratio = median("first call, and its end")? / median("podman run --rm")?;
    report.target("container: first call and end / podman run --rm", ratio, Bound::AtMost(1.1), "x");
    report.target(
        "container: first call, prewarmed",
        median("first call, prewarmed")?,
        Bound::AtMost(10.0),
        "ms",
    );
    Ok(())
}

struct Podman {
    place: tempfile::TempDir,
    service: Child,
    image: String,
}

impl Podman {
    fn start() -> Result<Self> {
        // Short: without root Podman refuses a place for its state of over 50 bytes.
        let place = tempfile::Builder::new().prefix("rfb.").tempdir_in("/var/tmp")?;
        for name in ["home", "xdg", "tmp", "bench"] {
            fs::create_dir(place.path().join(name))?;
        }
        let image = import(place.path())?;
        let socket = place.path().join("api.sock");
        let words = ["system", "service", "--time", "0", &format!("unix://{}", socket.display())];
        let service =
            invocation(place.path(), &words).command().process_group(0).stderr(Stdio::null()).spawn()?;
        let podman = Self { place, service, image };
        podman.wait(&socket)?;
        Ok(podman)
    }

    fn wait(&self, socket: &Path) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            if Instant::now() > deadline {
                return Err(
                    "podman does not listen: install the packages `podman`, `runc` and `uidmap`".into()
                );
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn invocation(&self, words: &[&str]) -> Invocation {
        invocation(self.place.path(), words)
    }

    fn id_of(&self, container: &str) -> Result<String> {
        said(&self.invocation(&["inspect", "--format", "{{.Id}}", container]))
    }

    fn must(&self, words: &[&str]) -> Result<()> {
        command::must_succeed(&mut self.invocation(words).command())
    }
}

/// An image with `sleep` and `true` of this machine, and what they need.
fn import(place: &Path) -> Result<String> {
    // Once each: tar makes a link to itself of what it is told twice.
    let mut files: BTreeSet<String> = BTreeSet::new();
    for program in ["/usr/bin/sleep", "/usr/bin/true"] {
        let needed = Command::new("ldd").arg(program).output()?;
        let needed = String::from_utf8(needed.stdout)?;
        files.extend(needed.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned));
        files.insert(program.to_owned());
    }
    let archive = place.join("rootfs.tar");
    let relative = files.iter().filter_map(|file| file.strip_prefix('/'));
    command::must_succeed(Command::new("tar").arg("-chf").arg(&archive).args(["-C", "/"]).args(relative))?;
    let imported = said(&invocation(place, &["import", "--quiet", &archive.display().to_string()]))?;
    Ok(imported.trim_start_matches("sha256:").to_owned())
}

/// The one line that a command prints.
fn said(invocation: &Invocation) -> Result<String> {
    let told = invocation.command().stdout(Stdio::piped()).output()?;
    if !told.status.success() {
        return Err(format!("podman failed: {}", String::from_utf8_lossy(&told.stderr)).into());
    }
    Ok(String::from_utf8(told.stdout)?.trim().to_owned())
}

fn invocation(place: &Path, words: &[&str]) -> Invocation {
    let at = |name: &str| place.join(name).display().to_string();
    let own = [
        ("--root", at("root")),
        ("--runroot", at("run")),
        ("--tmpdir", at("tmp")),
        ("--runtime", "runc".to_owned()),
        ("--cgroup-manager", "cgroupfs".to_owned()),
        ("--storage-driver", "overlay".to_owned()),
        ("--events-backend", "none".to_owned()),
        ("--log-level", "error".to_owned()),
    ];
    let own = own.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
    let variable = |name: &str, value: String| (name.to_owned(), value);
    Invocation {
        program: "/usr/bin/podman".into(),
        arguments: own.chain(words.iter().map(|word| (*word).to_owned())).collect(),
        directory: place.to_path_buf(),
        environment: vec![
            variable("PATH", "/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
            variable("HOME", at("home")),
            variable("XDG_RUNTIME_DIR", at("xdg")),
            variable("TMPDIR", at("tmp")),
        ],
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let _emptied = self.must(&["rm", "--all", "--force", "--time", "0"]);
        let group = rustix::process::Pid::from_child(&self.service);
        let _stopped = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _status = self.service.wait();
        // Without root Podman leaves a process behind that holds its namespaces.
        for pidfile in ["xdg/libpod/tmp/pause.pid", "tmp/pause.pid"] {
            let pid = fs::read_to_string(self.path(pidfile)).ok();
            let pid = pid.and_then(|text| text.trim().parse().ok()).and_then(rustix::process::Pid::from_raw);
            if let Some(pid) = pid {
                let _gone = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}
