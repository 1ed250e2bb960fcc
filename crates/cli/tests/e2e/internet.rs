//! A test's own internet: servers with global addresses in a network namespace of their own, joined by a wire to the one in
//! which ringfence and the controls run. No packet leaves it.

pub(crate) mod client;
pub(crate) mod daemon;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use rustix::process::Pid;
use serde_json::Value;

use crate::test_timeouts::{Patient, end, ended};
use crate::testkit::{Done, World, binary, finish};

const PROGRAM: &str = include_str!("internet/internet.py");

pub(crate) struct Internet {
    pub(crate) world: World,
    /// Of the servers: certificates, what they serve, who came.
    pub(crate) place: PathBuf,
    holder: Child,
    answers: Mutex<BufReader<Patient<ChildStdout>>>,
}

impl Internet {
    pub(crate) fn new() -> Self {
        let world = World::new();
        let place = world.beside("internet");
        fs::write(place.join("internet.py"), PROGRAM).unwrap();
        fs::write(place.join("resolv.conf"), "nameserver 30.0.0.53\noptions timeout:2 attempts:1\n").unwrap();
        fs::write(place.join("hosts"), "127.0.0.1 localhost\n").unwrap();
        for name in ["site", "root", "operator"] {
            fs::create_dir(place.join(name)).unwrap();
        }
        certificates(&place);
        let mut command = apart();
        command.arg("python3").arg(place.join("internet.py")).arg("hold").arg(&place);
        command.env_clear().env("PATH", PATH).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.spawn().unwrap();
        let answers = Mutex::new(BufReader::new(Patient(holder.stdout.take().unwrap())));
        let internet = Self { world, place, holder, answers };
        assert_eq!(internet.answer(), "ready\n", "the namespaces cannot be made");
        internet
    }

    fn answer(&self) -> String {
        let mut line = String::new();
        self.answers.lock().unwrap().read_line(&mut line).unwrap();
        line
    }

    /// A shell script by whoever made the host of this internet, who may mount there.
    pub(crate) fn arrange(&self, script: &str) {
        let mut orders = self.holder.stdin.as_ref().unwrap();
        writeln!(orders, "{}", Value::from(script)).unwrap();
        assert_eq!(self.answer(), "done\n", "{script}");
    }

    /// Writes the policy of the operator, for whoever runs ringfence here.
    pub(crate) fn operator(&self, rules: &str) {
        let place = self.place.join("operator/ringfence");
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("config.toml"), rules).unwrap();
    }

    /// Whose programs are root's. Whoever is not root has this internet in a user namespace in which they are nobody's, and
    /// ringfence starts no such bubblewrap: that backend is tested as root.
    pub(crate) fn knows_root(&self) -> bool {
        rustix::process::geteuid().is_root()
    }

    /// Where the configuration of the operator is, as it is seen there (`own_root` in `internet.py`).
    fn configuration(&self) -> PathBuf {
        if rustix::process::geteuid().is_root() { self.place.join("operator") } else { "/operator".into() }
    }

    /// A program of the host of this internet: a control, or ringfence itself.
    pub(crate) fn host(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.holder.id().to_string()]);
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.args(["--mount", "--net", &format!("--wdns={}", self.world.workspace.display()), "--"]);
        if !rustix::process::geteuid().is_root() {
            // Whoever joins a user namespace has everything in it; ringfence runs without.
            command.args(["setpriv", "--ambient-caps=-all", "--inh-caps=-all", "--bounding-set=-all", "--"]);
        }
        self.world.dress(&mut command);
        command.env("XDG_CONFIG_HOME", self.configuration());
        // Node brings its own roots along.
        command.env("NODE_EXTRA_CA_CERTS", self.place.join("roots.pem"));
        command.arg(program);
        command
    }

    /// A shell script beside the servers, with mounts of its own: one more server. Each program on the way there becomes
    /// the next one.
    pub(crate) fn beside_servers(&self, script: &str) -> Command {
        let holder = self.holder.id();
        let children = fs::read_to_string(format!("/proc/{holder}/task/{holder}/children")).unwrap();
        let mut command = Command::new("nsenter");
        command.args(["--target", children.split_whitespace().next().unwrap()]);
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.args(["--mount", "--net", &format!("--wdns={}", self.place.display()), "--"]);
        command.arg("unshare");
        if !rustix::process::geteuid().is_root() {
            // Whoever joins the namespace of a user loses what it may do there with the next program.
            command.args(["--user", "--map-current-user", "--keep-caps"]);
        }
        command.args(["--mount", "--", "sh", "-euc", script]);
        command.env_clear().env("PATH", PATH);
        command
    }

    pub(crate) fn ringfence(&self) -> Command {
        self.host(binary().to_str().unwrap())
    }

    /// `ringfence run FLAGS -- COMMAND`, without input.
    pub(crate) fn run(&self, flags: &[&str], command: &[&str]) -> Done {
        finish(self.ringfence().arg("run").args(flags).arg("--").args(command), b"")
    }

    /// The same in the background, with a shell script and its output in pipes.
    pub(crate) fn start(&self, flags: &[&str], script: &str) -> Child {
        let mut command = self.ringfence();
        command.arg("run").args(flags).args(["--", "sh", "-c", script]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Who holds the namespaces of the host, for an engine that is to be there.
    pub(crate) fn holder(&self) -> u32 {
        self.holder.id()
    }

    /// Of a child of [`Self::start`]: each program on the way there becomes the next one.
    pub(crate) fn pid_of_ringfence(&self, child: &Child) -> Pid {
        Pid::from_child(child)
    }

    /// Somebody who listens on every address of the host, and counts.
    pub(crate) fn listen_on_host(&self) -> HostListener {
        const LISTEN: &str = "import socket, sys\ns = socket.socket(socket.AF_INET6)\ns.bind(('::', 0))\ns.listen(64)\n\
             print(s.getsockname()[1], flush=True)\nwhile True:\n c, _ = s.accept()\n open(sys.argv[1], 'a').write('x')\n c.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\nhost'); c.close()\n";
        let count = self.place.join("host-visitors");
        let mut command = self.host("python3");
        command.args(["-c", LISTEN]).arg(&count).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(Patient(child.stdout.take().unwrap())).read_line(&mut line).unwrap();
        HostListener { port: line.trim().parse().unwrap(), count, child }
    }

    /// The same command on the host, without the fence: the control of what is tried inside.
    pub(crate) fn control(&self, command: &[&str]) -> Done {
        let (program, arguments) = command.split_first().unwrap();
        finish(self.host(program).args(arguments), b"")
    }

    /// Everything that anybody did at the servers, in order.
    pub(crate) fn visits(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.place.join("visits")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn forget_visits(&self) {
        fs::OpenOptions::new().write(true).open(self.place.join("visits")).unwrap().set_len(0).unwrap();
    }

    /// How many connections or requests came to an address.
    pub(crate) fn came_to(&self, address: &str) -> usize {
        self.visits().iter().filter(|visit| visit["at"] == address).count()
    }

    /// The names that were asked for.
    pub(crate) fn names_asked(&self) -> Vec<String> {
        let visits = self.visits();
        let names = visits.iter().filter(|visit| visit["what"] == "dns");
        names.map(|visit| visit["name"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        // The end of its input is the end of all of it.
        drop(self.holder.stdin.take());
        ended("the internet of this test, whose orders have ended", &mut self.holder);
    }
}

/// A listener in the namespace of the host; it ends when this is dropped.
pub(crate) struct HostListener {
    pub(crate) port: u16,
    count: PathBuf,
    child: Child,
}

impl HostListener {
    pub(crate) fn visitors(&self) -> usize {
        fs::read(&self.count).map_or(0, |count| count.len())
    }
}

impl Drop for HostListener {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// Namespaces of its own; whoever is not root gets them with a user namespace.
fn apart() -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    command.args(["--mount", "--net", "--"]);
    command
}

/// A root that only this internet knows, and one certificate for all of its servers.
fn certificates(place: &Path) {
    const NAMES: &str = "subjectAltName=DNS:web.test,DNS:*.web.test,DNS:other.test,DNS:evil.test,DNS:git.test,DNS:inside.test,\
         DNS:meta.test,DNS:rebind.test,DNS:self.test,DNS:stall.test";
    let openssl = |arguments: &[&str]| {
        let mut command = Command::new("openssl");
        finish(command.args(arguments).current_dir(place), b"").expect(0);
    };
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"];
    let root =
        ["req", "-x509", "-days", "2", "-subj", "/CN=Test root", "-keyout", "root.key", "-out", "roots.pem"];
    openssl(&[&root[..], &key[..]].concat());
    let server =
        ["req", "-x509", "-days", "2", "-subj", "/CN=web.test", "-CA", "roots.pem", "-CAkey", "root.key"];
    let more = [
        "-addext",
        NAMES,
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-keyout",
        "server.key",
        "-out",
        "server.crt",
    ];
    openssl(&[&server[..], &more[..], &key[..]].concat());
    let both =
        [fs::read(place.join("server.crt")).unwrap(), fs::read(place.join("server.key")).unwrap()].concat();
    fs::write(place.join("server.pem"), both).unwrap();
}
