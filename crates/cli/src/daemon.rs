//! The daemon of a state directory, for commands that ask it where one runs and do without where none does.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ringfence_api::CheckHealth;
use ringfence_api::methods::Asks;
use ringfence_client::{Client, ClientError};
use ringfence_types::Bytes;
use serde::Serialize;

use crate::args::FAILED;
use crate::environment::Environment;
use crate::error;
use crate::host;
use crate::output::note;

/// In the state directory: where its daemon listens. What is inside a fence neither reads nor writes it.
const NAME: &str = "daemon.socket";

/// How long a daemon may take for what is asked here. One that hangs does not keep anybody from the store.
const PATIENCE: Duration = Duration::from_secs(10);

/// Says where the daemon of a state directory listens, as long as this lives.
#[derive(Debug)]
pub(crate) struct Posted {
    file: PathBuf,
    socket: PathBuf,
}

impl Posted {
    pub(crate) fn new(state_dir: &Path, socket: &Path) -> io::Result<Self> {
        let (file, draft) = (state_dir.join(NAME), state_dir.join(format!(".{NAME}.{}", std::process::id())));
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&draft)?.write_all(socket.as_os_str().as_bytes())?;
        fs::rename(&draft, &file)?;
        Ok(Self { file, socket: socket.to_owned() })
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        // Another daemon may have taken the place since. What is left by one that was killed leads nowhere.
        if posted(&self.file).is_some_and(|socket| socket == self.socket) {
            let _gone = fs::remove_file(&self.file);
        }
    }
}

/// Where the daemon of this user's state directory says that it listens.
pub(crate) fn posted_at(environment: &Environment) -> Option<PathBuf> {
    posted(&host::state_dir(environment).ok()?.join(NAME))
}

fn posted(file: &Path) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;
    fs::read(file).ok().map(|text| PathBuf::from(std::ffi::OsString::from_vec(text)))
}

/// A daemon that answers.
#[derive(Debug)]
pub(crate) struct Daemon {
    client: RefCell<Client>,
    pub(crate) socket: PathBuf,
}

impl Daemon {
    /// The one that works on the state directory of this user, if there is one.
    pub(crate) fn find(environment: &Environment) -> Option<Self> {
        let socket = posted_at(environment)?;
        let mut client = Client::connect(&socket, None).ok()?.with_patience(PATIENCE);
        if let Err(error @ ClientError::Silent { .. }) = client.call(&CheckHealth {}) {
            note!("ringfence: {}; it is done without it", Bytes::from(error.to_string().as_str()).display());
            return None;
        }
        Some(Self { client: RefCell::new(client), socket })
    }

    /// What it says to a request. A no is told with what would change it.
    pub(crate) fn ask<T: Asks + Serialize>(&self, request: &T) -> Result<T::Answer, ExitCode> {
        self.try_ask(request).map_err(|error| failed(&error))
    }

    /// The same for whoever tells it in their own way.
    pub(crate) fn try_ask<T: Asks + Serialize>(&self, request: &T) -> Result<T::Answer, ClientError> {
        self.client.borrow_mut().call(request)
    }
}

/// Why there is no answer, and what would change that.
pub(crate) fn failed(error: &ClientError) -> ExitCode {
    match error {
        ClientError::Api(told) => {
            note!("ringfence: {}", Bytes::from(told.message.as_str()).display());
            if let Some(rule) = &told.rule {
                note!("  rule: {}", Bytes::from(rule.as_str()).display());
            }
            if let Some(hint) = &told.hint {
                note!("  hint: {}", Bytes::from(hint.as_str()).display());
            }
            ExitCode::from(if told.code == ringfence_api::ErrorCode::Refused {
                error::REFUSED
            } else {
                FAILED
            })
        }
        ClientError::Connect { .. } => error::failed(error, Some("`ringfence serve` starts one")),
        error => error::failed(error, None),
    }
}
