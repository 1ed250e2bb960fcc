//! Finds the daemon of a state directory, for commands that use it if it runs and work without it otherwise.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ringfence_api::CheckHealth;
use ringfence_api::methods::ApiRequest;
use ringfence_client::{Client, ClientError};
use ringfence_types::ByteString;
use serde::Serialize;

use crate::args::FAILED;
use crate::environment::Environment;
use crate::error;
use crate::host;
use crate::output::note;

/// The file in the state directory that names the daemon's socket. Commands inside a fence can neither read
/// nor write it.
const NAME: &str = "daemon.socket";

/// Timeout for the daemon. A hanging daemon must not block access to the store.
const PATIENCE: Duration = Duration::from_secs(10);

/// Publishes the daemon's socket while this value lives.
#[derive(Debug)]
pub(crate) struct DaemonAddressFile {
    file: PathBuf,
    socket: PathBuf,
}

impl DaemonAddressFile {
    pub(crate) fn new(state_dir: &Path, socket: &Path) -> io::Result<Self> {
        let (file, draft) = (state_dir.join(NAME), state_dir.join(format!(".{NAME}.{}", std::process::id())));
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&draft)?.write_all(socket.as_os_str().as_bytes())?;
        fs::rename(&draft, &file)?;
        Ok(Self { file, socket: socket.to_owned() })
    }
}

impl Drop for DaemonAddressFile {
    fn drop(&mut self) {
        // Another daemon may have replaced the file since. A file left by a killed daemon leads nowhere.
        if posted(&self.file).is_some_and(|socket| socket == self.socket) {
            let _gone = fs::remove_file(&self.file);
        }
    }
}

/// The socket that the daemon of this user's state directory published.
pub(crate) fn posted_at(environment: &Environment) -> Option<PathBuf> {
    posted(&host::state_dir(environment).ok()?.join(NAME))
}

fn posted(file: &Path) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;
    fs::read(file).ok().map(|text| PathBuf::from(std::ffi::OsString::from_vec(text)))
}

/// A responding daemon.
#[derive(Debug)]
pub(crate) struct DaemonClient {
    client: RefCell<Client>,
    pub(crate) socket: PathBuf,
}

impl DaemonClient {
    /// The daemon of this user's state directory, if it runs.
    pub(crate) fn find(environment: &Environment) -> Option<Self> {
        let socket = posted_at(environment)?;
        let mut client = Client::connect(&socket, None).ok()?.with_patience(PATIENCE);
        if let Err(error @ ClientError::Silent { .. }) = client.call(&CheckHealth {}) {
            note!(
                "ringfence: {}; continuing without the daemon",
                ByteString::from(error.to_string().as_str()).display()
            );
            return None;
        }
        Some(Self { client: RefCell::new(client), socket })
    }

    /// Sends a request. Prints an error with the next step.
    pub(crate) fn ask<T: ApiRequest + Serialize>(&self, request: &T) -> Result<T::Answer, ExitCode> {
        self.call(request).map_err(|error| failed(&error))
    }

    /// Sends a request and leaves the error to the caller.
    pub(crate) fn call<T: ApiRequest + Serialize>(&self, request: &T) -> Result<T::Answer, ClientError> {
        self.client.borrow_mut().call(request)
    }
}

/// Prints why there is no answer, and the next step.
pub(crate) fn failed(error: &ClientError) -> ExitCode {
    match error {
        ClientError::Api(told) => {
            note!("ringfence: {}", ByteString::from(told.message.as_str()).display());
            if let Some(rule) = &told.rule {
                note!("  rule: {}", ByteString::from(rule.as_str()).display());
            }
            if let Some(hint) = &told.hint {
                note!("  hint: {}", ByteString::from(hint.as_str()).display());
            }
            ExitCode::from(if told.code == ringfence_api::ErrorCode::Refused {
                error::REFUSED
            } else {
                FAILED
            })
        }
        ClientError::Connect { .. } => error::failed(error, Some("`ringfence serve` starts one")),
        ClientError::Json(_) => error::failed_text(
            &error.to_string(),
            Some("the daemon has another version: restart it with this one"),
        ),
        error => error::failed(error, None),
    }
}
