//! A daemon on the host of a test's internet.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use ringfence_client::Client;
use rustix::process::Signal;

use crate::internet::Internet;
use crate::test_timeouts::{ended, eventually, mortal};
use crate::testkit::{Done, finish, send};

/// By the configuration of the operator as it is when this is made; it ends when this is dropped.
pub(crate) struct Daemon<'a> {
    internet: &'a Internet,
    child: Child,
}

impl<'a> Daemon<'a> {
    pub(crate) fn new(internet: &'a Internet) -> Self {
        let said = File::create(internet.world.beside("r").join("said")).unwrap();
        let mut command = internet.ringfence();
        command.env("XDG_RUNTIME_DIR", internet.world.beside("r"));
        let child = command.arg("serve").stdin(Stdio::null()).stderr(said).spawn().unwrap();
        mortal(&child);
        let daemon = Self { internet, child };
        eventually("the daemon answers", || UnixStream::connect(daemon.socket()).is_ok());
        daemon
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.internet.world.beside("r").join("ringfence/daemon.sock")
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.socket(), None).unwrap()
    }

    /// What it has said so far.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.internet.world.beside("r").join("said")).unwrap()
    }

    /// `ringfence` beside the daemon.
    pub(crate) fn ringfence(&self, arguments: &[&str]) -> Done {
        let mut command = self.internet.ringfence();
        command.env("XDG_RUNTIME_DIR", self.internet.world.beside("r"));
        finish(command.args(arguments), b"")
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        send(&self.child, Signal::TERM);
        ended("the daemon, told to end", &mut self.child);
    }
}
