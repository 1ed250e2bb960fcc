//! A daemon of one test: the real binary, at a socket of its own.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use ringfence_api::{CallInfo, CreateSession, ExecRequest, ListSessions, SessionInfo};
use ringfence_client::Client;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::approvals::configure;
use crate::test_timeouts::{Patient, ended, mortal};
use crate::testkit::{Done, World, eventually, finish, send};

pub(crate) struct Served {
    pub(crate) world: World,
    pub(crate) child: Child,
    pub(crate) socket: PathBuf,
}

impl Served {
    pub(crate) fn new() -> Self {
        Self::with(World::new(), &[])
    }

    pub(crate) fn with(world: World, flags: &[&str]) -> Self {
        let socket = world.beside("r").join("ringfence/daemon.sock");
        Self::at(world, socket, flags)
    }

    /// One that also listens on loopback, at a port that the kernel chooses: see [`Self::port`]. `more` follows in its
    /// `[daemon]`, `before` stands above it.
    pub(crate) fn listening(world: World, before: &str, more: &str) -> Self {
        configure(&world, &format!("{before}[daemon]\nlisten = \"127.0.0.1:0\"\n{more}"));
        let served = Self::with(world, &[]);
        let _listens = served.port();
        served
    }

    pub(crate) fn at(world: World, socket: PathBuf, flags: &[&str]) -> Self {
        let mut command = world.ringfence();
        let said = File::create(said(&world)).unwrap();
        command.env("XDG_RUNTIME_DIR", world.beside("r"));
        let child = command
            .arg("serve")
            .arg("--socket")
            .arg(&socket)
            .args(flags)
            .stdin(Stdio::null())
            .stderr(said)
            .spawn()
            .unwrap();
        mortal(&child);
        let served = Self { world, child, socket };
        eventually("the daemon answers", || UnixStream::connect(&served.socket).is_ok());
        served
    }

    /// What it has said so far.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(said(&self.world)).unwrap()
    }

    /// Of the address on TCP that it says.
    pub(crate) fn port(&self) -> u16 {
        let named = || {
            let said = self.said();
            let mut lines = said.lines().filter_map(|line| line.strip_prefix("ringfence: serving at http"));
            lines.find_map(|line| line.rsplit(':').next()?.parse().ok())
        };
        eventually("it says where it listens", || named().is_some());
        named().unwrap()
    }

    /// Another daemon over the same state, when this one is gone.
    pub(crate) fn again(mut self, end: Signal) -> Self {
        Self::with(self.ended_by(end), &[])
    }

    /// What a daemon that was killed has left.
    pub(crate) fn killed(mut self) -> World {
        self.ended_by(Signal::KILL)
    }

    /// What is left of it, and where its socket was.
    pub(crate) fn over(mut self) -> (World, PathBuf) {
        let world = self.ended_by(Signal::TERM);
        (world, self.socket.clone())
    }

    fn ended_by(&mut self, end: Signal) -> World {
        send(&self.child, end);
        ended("the daemon, told to end", &mut self.child);
        std::mem::replace(&mut self.world, World::new())
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.socket, None).unwrap()
    }

    pub(crate) fn client_with(&self, token: &str) -> Client {
        Client::connect(&self.socket, Some(token.to_owned())).unwrap()
    }

    /// `ringfence` beside the daemon.
    pub(crate) fn ringfence(&self, arguments: &[&str]) -> Done {
        let mut command = self.world.ringfence();
        command.env("XDG_RUNTIME_DIR", self.world.beside("r"));
        finish(command.args(arguments), b"")
    }

    pub(crate) fn wanted(&self) -> CreateSession {
        serde_json::from_value(json!({ "workspace": self.world.workspace })).unwrap()
    }

    pub(crate) fn session(&self) -> SessionInfo {
        self.client().call(&self.wanted()).unwrap()
    }

    /// A session whose provider is this script of a shell.
    pub(crate) fn provider(&self, script: &str) -> SessionInfo {
        let provider = Some(["sh", "-c", script].map(str::to_owned).to_vec());
        self.client().call(&CreateSession { agent_argv: provider, ..self.wanted() }).unwrap()
    }

    pub(crate) fn sessions(&self) -> Vec<SessionInfo> {
        self.client().call(&ListSessions { include_ended: true }).unwrap().sessions
    }

    pub(crate) fn sh(&self, session: &SessionInfo, script: &str) -> CallInfo {
        self.client().call(&exec(session, script)).unwrap()
    }

    /// Whether a session takes no more commands.
    pub(crate) fn sh_is_refused(&self, session: &SessionInfo) -> bool {
        self.client().call(&exec(session, "true")).is_err()
    }

    /// Records of this kind, oldest first.
    pub(crate) fn records(&self, kind: &str) -> Vec<Value> {
        let mut records = self.world.all_records();
        records.retain(|record| record["event"]["kind"] == kind);
        records
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            send(&self.child, Signal::TERM);
            ended("the daemon, told to end", &mut self.child);
        }
    }
}

/// Where a daemon of this world says what it has to say.
fn said(world: &World) -> PathBuf {
    world.beside("r").join("said")
}

pub(crate) fn exec(session: &SessionInfo, script: &str) -> ExecRequest {
    let argv = ["sh", "-c", script];
    serde_json::from_value(json!({ "session": session.session, "argv": argv })).unwrap()
}

pub(crate) fn stdout(info: &CallInfo) -> String {
    let data = info.stdout.clone().unwrap_or_else(|| panic!("{info:?}"));
    String::from_utf8(data.bytes().unwrap()).unwrap()
}

/// One request as bytes, and the status and body of the answer.
pub(crate) fn raw(socket: &Path, request: &[u8]) -> (u16, String) {
    let mut stream = Patient(UnixStream::connect(socket).unwrap());
    // Whoever has heard enough does not listen to the rest.
    let _heard_enough = stream.write_all(request);
    let mut answer = Vec::new();
    let _closed = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    (status, answer)
}

/// A shell function for inside: `ask VERB PATH BODY` prints the status and writes the answer to `answer`.
pub(crate) const ASK: &str = r#"
ask() { curl -s -o answer -w '%{http_code}\n' --unix-socket "$RINGFENCE_SESSION_SOCKET" \
  -H "Authorization: Bearer $RINGFENCE_SESSION_TOKEN" -X "$1" ${3:+-d "$3"} "http://door$2"; }
S="/v1/sessions/$RINGFENCE_SESSION_ID"
"#;
