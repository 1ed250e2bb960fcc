//! PostgreSQL servers of the test's own: data, socket and log in a temporary directory, no port.
//!
//! A server runs under a shell that waits for the end of a pipe from here. However this process ends, the pipe does, and the
//! shell takes the server and its directory away.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_ledger::{Ledger, LedgerNode, LedgerSettings};
use rustix::process::{Pid, Signal, kill_process};

use crate::bounded;

const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// Somebody without rights who exists everywhere: the server refuses to run as root.
const NOBODY: u32 = 65_534;

/// Who owns everything in the server.
pub(crate) const OWNER: &str = "owner";

const GUARD: &str = r#"
    "$1"/postgres -D "$2/data" -c unix_socket_directories="$2" -c listen_addresses= -c port=5432 -c shared_buffers=16MB \
        -c max_connections=60 -c fsync=on -c restart_after_crash=off $3 </dev/null >>"$2/log" 2>&1 &
    echo $!
    read -r word
    case "$word" in
        leave) wait $!; exit 0 ;;
        *) kill -QUIT $!; wait $!; rm -rf "$2" 2>/dev/null ;;
    esac
"#;

pub(crate) struct Cluster {
    pub(crate) directory: PathBuf,
    server: Mutex<Option<Server>>,
    extra: String,
    disk: Disk,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Disk {
    Real,
    /// The directory `small` is a file system of its own that only the server sees.
    Small,
}

/// Mounts it, and becomes somebody without rights again: nested namespaces give an ordinary user the one and take the other.
const SMALL_DISK: &str = r#"
    mount -t tmpfs -o size=24m,mode=700,$1 tmpfs "$2" && shift 2 && exec "$@"
"#;

struct Server {
    guard: Child,
    pipe: Option<ChildStdin>,
    postmaster: Pid,
}

/// The server that all tests share which do nothing to it.
pub(crate) fn shared() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(|| Cluster::new(""))
}

impl Cluster {
    /// A server of its own, with further options.
    pub(crate) fn new(extra: &str) -> Self {
        Self::prepare(extra, Disk::Real, &|_| {})
    }

    pub(crate) fn with_small_disk() -> Self {
        Self::prepare("", Disk::Small, &|directory| {
            let small = directory.join("small");
            fs::create_dir(&small).unwrap();
            give_away(&small);
        })
    }

    /// On the loopback interface as well, with the certificate and key in `certificate`.
    pub(crate) fn with_certificate(certificate: &Path, port: u16) -> Self {
        let extra = format!("-c listen_addresses=127.0.0.1 -c port={port} -c ssl=on");
        Self::prepare(&extra, Disk::Real, &|directory| {
            for name in ["server.key", "server.crt"] {
                let path = directory.join("data").join(name);
                fs::copy(certificate.join(name), &path).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
                give_away(&path);
            }
        })
    }

    fn prepare(extra: &str, disk: Disk, more: &dyn Fn(&Path)) -> Self {
        let directory = tempfile::Builder::new().prefix("pg.").tempdir().unwrap().keep();
        let directory = directory.canonicalize().unwrap();
        give_away(&directory);
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
        let cluster = Self { directory, server: Mutex::default(), extra: extra.to_owned(), disk };
        cluster.initialise();
        more(&cluster.directory);
        cluster.start();
        cluster
    }

    fn initialise(&self) {
        let mut command = as_ordinary_user(&format!("{PROGRAMS}/initdb"));
        command.arg("--pgdata").arg(self.directory.join("data"));
        command.args([
            "--username",
            OWNER,
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
        ]);
        succeeded(&bounded::output(&mut command));
        // Whoever is called `guarded` has to know a password.
        let rules =
            "local all guarded scram-sha-256\nlocal all all trust\nhostssl all all 127.0.0.1/32 trust\n";
        fs::write(self.directory.join("data/pg_hba.conf"), rules).unwrap();
    }

    pub(crate) fn start(&self) {
        let started = Instant::now();
        while !self.try_start() {
            // What a killed server leaves behind is in use for a moment.
            assert!(started.elapsed() < Duration::from_secs(60), "{}", self.log());
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn try_start(&self) -> bool {
        let mut command = self.shell();
        command.args(["-c", GUARD, "guard", PROGRAMS]).arg(&self.directory).arg(&self.extra);
        let mut guard =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(bounded::Patient(guard.stdout.take().unwrap())).read_line(&mut line).unwrap();
        let postmaster = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        let pipe = guard.stdin.take();
        let started = Instant::now();
        while !self.psql("postgres", "SELECT 1").status.success() {
            let is_gone = rustix::process::test_kill_process(postmaster).is_err();
            if is_gone || started.elapsed() > Duration::from_secs(60) {
                let _gone = kill_process(postmaster, Signal::QUIT);
                release(guard, pipe, "leave");
                return false;
            }
            thread::sleep(Duration::from_millis(20));
        }
        *self.held() = Some(Server { guard, pipe, postmaster });
        true
    }

    fn shell(&self) -> Command {
        if self.disk == Disk::Real {
            return as_ordinary_user("/bin/sh");
        }
        let mut command = Command::new("/usr/bin/unshare");
        let small = self.directory.join("small");
        if is_root() {
            let owner = format!("uid={NOBODY},gid={NOBODY}");
            command.args(["--mount", "/bin/sh", "-c", SMALL_DISK, "disk", &owner]).arg(small);
            command.args(["/usr/bin/setpriv", "--clear-groups"]);
            command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "/bin/sh".to_owned()]);
        } else {
            command
                .args(["--map-root-user", "--mount", "/bin/sh", "-c", SMALL_DISK, "disk", "uid=0,gid=0"])
                .arg(small);
            command.args(["/usr/bin/unshare", "--user", "--map-user=1000", "--map-group=1000", "/bin/sh"]);
        }
        command.env_clear().envs([("PATH", "/usr/bin:/bin"), ("LC_ALL", "C.UTF-8")]).current_dir("/");
        command
    }

    pub(crate) fn make_small_tablespace(&self) {
        let location = self.directory.join("small");
        succeeded(
            &self.psql("postgres", &format!("CREATE TABLESPACE small LOCATION '{}'", location.display())),
        );
    }

    /// `kill -9` for every process of the server, or for those that serve connections, and waits until they are gone.
    pub(crate) fn kill(&self, whom: Victims) {
        let mut server = self.held();
        let Some(running) = server.take() else { return };
        let backends = children(running.postmaster);
        if whom == Victims::Everything {
            kill_process(running.postmaster, Signal::KILL).unwrap();
        }
        for backend in &backends {
            // One may have ended by itself.
            let _gone = kill_process(*backend, Signal::KILL);
        }
        // After the death of a backend the postmaster ends all others and, as it was told, itself.
        release(running.guard, running.pipe, "leave");
        let killed = Instant::now();
        while backends.iter().any(|backend| is_running(*backend)) {
            assert!(killed.elapsed() < bounded::PATIENCE, "killed processes of the server are still there");
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let server = self.held();
        let postmaster = server.as_ref().unwrap().postmaster;
        for process in children(postmaster).into_iter().chain([postmaster]) {
            let _gone = kill_process(process, signal);
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Option<Server>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The database as somebody with `psql` sees it.
    pub(crate) fn psql(&self, database: &str, sql: &str) -> Output {
        let mut command = Command::new(format!("{PROGRAMS}/psql"));
        command.env_clear().args([
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "--set=ON_ERROR_STOP=1",
        ]);
        command.arg("--host").arg(&self.directory).args([
            "--username",
            OWNER,
            "--dbname",
            database,
            "--port",
            &self.port(),
            "--command",
            sql,
        ]);
        bounded::output(&mut command)
    }

    /// The socket is called after the port.
    fn port(&self) -> String {
        let port = self.extra.split("port=").nth(1).and_then(|rest| rest.split(' ').next());
        port.unwrap_or("5432").to_owned()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// A database of the test's own.
    pub(crate) fn database(&self) -> Database<'_> {
        self.database_in("pg_default")
    }

    pub(crate) fn database_in(&self, tablespace: &str) -> Database<'_> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("d{}", NEXT.fetch_add(1, Ordering::Relaxed));
        succeeded(&self.psql("postgres", &format!("CREATE DATABASE {name} TABLESPACE {tablespace}")));
        Database { cluster: self, name, state: tempfile::tempdir().unwrap() }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(Server { guard, pipe, .. }) = self.held().take() {
            release(guard, pipe, "stop");
        }
        // What only the server could see is gone with it, and its place can go, too.
        let _gone = fs::remove_dir_all(&self.directory);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victims {
    Everything,
    Backends,
}

/// Says the last word to a shell and waits for it.
fn release(mut guard: Child, pipe: Option<ChildStdin>, word: &str) {
    use std::io::Write as _;
    if let Some(mut pipe) = pipe {
        // It may be gone.
        let _told = writeln!(pipe, "{word}");
    }
    bounded::ended(&mut guard);
}

fn as_ordinary_user(program: &str) -> Command {
    let mut command = if is_root() {
        let mut command = Command::new("/usr/bin/setpriv");
        command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()]);
        command.arg(program);
        command
    } else {
        Command::new(program)
    };
    command
        .env_clear()
        .envs([("PATH", "/usr/bin:/bin"), ("LC_ALL", "C.UTF-8")])
        .current_dir("/")
        .stdin(Stdio::null());
    command
}

fn children(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero();
    let listed = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    listed.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

fn is_running(process: Pid) -> bool {
    let mut stat = String::new();
    let path = format!("/proc/{}/stat", process.as_raw_nonzero());
    let read = fs::File::open(path).and_then(|mut file| file.read_to_string(&mut stat));
    read.is_ok() && !stat.contains(") Z ")
}

pub(crate) fn succeeded(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

pub(crate) struct Database<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) name: String,
    state: tempfile::TempDir,
}

impl Database<'_> {
    pub(crate) fn url(&self, role: &str) -> String {
        format!(
            "postgres://{role}@/{}?host={}&port={}",
            self.name,
            self.cluster.directory.display(),
            self.cluster.port()
        )
    }

    pub(crate) fn state(&self, node: &str) -> PathBuf {
        self.state.path().join(node)
    }

    pub(crate) fn node(&self, name: &str) -> LedgerNode {
        self.node_as(name, OWNER)
    }

    pub(crate) fn node_as(&self, name: &str, role: &str) -> LedgerNode {
        LedgerNode::in_directory(&self.url(role), &self.state(name), name).unwrap()
    }

    pub(crate) fn open(&self, node: &str) -> Ledger {
        Ledger::connect(&self.node(node), LedgerSettings::default()).unwrap()
    }

    pub(crate) fn sql(&self, sql: &str) -> String {
        succeeded(&self.cluster.psql(&self.name, sql))
    }

    pub(crate) fn verified(&self) -> Vec<ringfence_ledger::Verification> {
        ringfence_ledger::verify_database(&self.node("any"), ringfence_ledger::ExpectedHead::default())
            .and_then(ringfence_ledger::DatabaseVerification::whole)
            .unwrap()
    }
}

/// To whoever runs the server.
fn give_away(path: &Path) {
    if is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) fn write_private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}
