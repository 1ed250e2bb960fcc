//! The API of Podman and Docker: the one place that talks to an engine ([ADR 27](../../../docs/adr/0027-engine-client.md)).
//!
//! Both speak Docker's protocol on a Unix socket. Nothing here pulls: an image that the engine does not have is missing.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::future::Future;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error as ApiError;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{CreateContainerOptions, CreateImageOptions, RemoveContainerOptions};
use futures_util::TryStreamExt as _;
use ringfence_types::{ImageId, NotAnImageId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    Podman,
    Docker,
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Podman => "Podman",
            Self::Docker => "Docker",
        })
    }
}

/// Whose rights the engine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnginePrivilege {
    Rootful,
    Rootless,
}

impl fmt::Display for EnginePrivilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rootful => "rootful",
            Self::Rootless => "rootless",
        })
    }
}

/// Why an engine did not do what was asked of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    #[error("there is no engine at `{}`", .0.display())]
    NoSocket(PathBuf),
    #[error("the engine's socket `{}` belongs to another user", .0.display())]
    Foreign(PathBuf),
    #[error("the engine at `{}` does not answer", path.display())]
    Silent { path: PathBuf, source: io::Error },
    #[error("the engine does not have the image `{0}`")]
    NoImage(String),
    #[error("the engine refused: {0}")]
    Refused(String),
    #[error("cannot talk to the engine")]
    Api(#[source] Box<ApiError>),
    #[error("cannot read the root file system")]
    Input(#[source] io::Error),
    #[error("the engine gave an image a name that is no digest")]
    Id(#[from] NotAnImageId),
    #[error("cannot start the client of the engine")]
    Client(#[source] io::Error),
}

impl EngineError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoSocket(_) | Self::Silent { .. } => Some(
                "start the engine's API: `systemctl --user start podman.socket`, or `podman system service --time 0 \
                 unix://SOCKET` and name it with --engine SOCKET"
                    .to_owned(),
            ),
            Self::NoImage(_) => Some(
                "images are never pulled: bring it to the engine yourself, then `ringfence image add`".to_owned(),
            ),
            _ => None,
        }
    }
}

/// An image as the engine has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineImage {
    pub id: ImageId,
    pub bytes: u64,
    /// Digests of its manifest, as registries name it and signatures are about.
    pub manifests: Vec<String>,
    /// Places for which an engine makes something writable, unless it is told of something else there.
    pub volumes: Vec<String>,
}

/// A container and what we have written on it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct LabelledContainer {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) names: Vec<String>,
    #[serde(default)]
    pub(crate) labels: HashMap<String, String>,
}

/// What an engine says of a container that it has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InspectedContainer {
    /// Its PID 1, while it runs.
    pub(crate) pid: Option<u32>,
    /// By its name alone.
    pub(crate) runtime: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InspectResponse {
    state: InspectState,
    #[serde(rename = "OCIRuntime")]
    oci_runtime: Option<String>,
    host_config: Option<HostConfig>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InspectState {
    pid: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HostConfig {
    runtime: Option<String>,
}

impl From<InspectResponse> for InspectedContainer {
    fn from(told: InspectResponse) -> Self {
        let runtime = told.oci_runtime.or(told.host_config.and_then(|config| config.runtime));
        let name = |path: String| path.rsplit('/').next().unwrap_or_default().to_owned();
        Self { pid: Some(told.state.pid).filter(|pid| *pid != 0), runtime: runtime.map(name) }
    }
}

/// A connection to one engine.
pub struct ContainerEngine {
    docker: Docker,
    executor: tokio::runtime::Runtime,
    socket: PathBuf,
    pub kind: EngineKind,
    pub version: String,
    pub privilege: EnginePrivilege,
}

impl fmt::Debug for ContainerEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("kind", &self.kind)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Far longer than an engine takes for anything that is asked of it here. It lists, inspects and removes nothing while it starts
/// another container, so that on a busy machine one waits for all that came before.
const PATIENCE_SECONDS: u64 = 300;

impl ContainerEngine {
    /// Connects to the engine and asks it who it is.
    pub fn connect(socket: &Path) -> Result<Self, EngineError> {
        let privilege = trusted(socket)?;
        let executor = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(EngineError::Client)?;
        let (kind, version) =
            introduction(socket).map_err(|source| EngineError::Silent { path: socket.to_owned(), source })?;
        let text = socket.to_str().ok_or_else(|| EngineError::NoSocket(socket.to_owned()))?;
        let entered = executor.enter();
        let docker = Docker::connect_with_unix(text, PATIENCE_SECONDS, bollard::API_DEFAULT_VERSION)
            .map_err(|error| EngineError::Api(Box::new(error)))?;
        drop(entered);
        Ok(Self { docker, executor, socket: socket.to_owned(), kind, version, privilege })
    }

    /// Looks an image up by name or digest.
    pub fn image(&self, reference: &str) -> Result<EngineImage, EngineError> {
        let found = self.wait(self.docker.inspect_image(reference)).map_err(|error| match error {
            EngineError::Refused(_) => EngineError::NoImage(reference.to_owned()),
            other => other,
        })?;
        let id = found.id.as_deref().unwrap_or_default().parse()?;
        let bytes = found.size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0);
        let named = found.repo_digests.unwrap_or_default();
        let manifests = named.iter().filter_map(|name| Some(name.rsplit_once('@')?.1.to_owned())).collect();
        let volumes = found.config.and_then(|config| config.volumes).unwrap_or_default();
        let volumes = volumes.into_iter().collect();
        Ok(EngineImage { id, bytes, manifests, volumes })
    }

    /// Makes an image of one layer from a tar archive of a root file system.
    pub fn import(&self, archive: &Path, name: &str) -> Result<EngineImage, EngineError> {
        let content = fs::read(archive).map_err(EngineError::Input)?;
        let options = CreateImageOptions {
            from_src: Some("-".to_owned()),
            repo: Some(name.to_owned()),
            tag: Some("latest".to_owned()),
            ..CreateImageOptions::default()
        };
        let answers: Vec<_> = self.wait(
            self.docker
                .create_image(Some(options), Some(bollard::body_full(content.into())), None)
                .try_collect(),
        )?;
        let last = answers.iter().rev().find_map(|answer| answer.status.clone()).unwrap_or_default();
        // Docker and Podman both end with the id of what they have made.
        self.image(&last.trim().parse::<ImageId>()?.to_string())
    }

    pub(crate) fn create(&self, name: &str, body: ContainerCreateBody) -> Result<(), EngineError> {
        let options =
            CreateContainerOptions { name: Some(name.to_owned()), ..CreateContainerOptions::default() };
        self.wait(self.docker.create_container(Some(options), body)).map(drop)
    }

    pub(crate) fn start(&self, name: &str) -> Result<(), EngineError> {
        self.wait(self.docker.start_container(name, None))
    }

    /// What became of a container.
    ///
    /// WHY NOT the client: what Podman has started it with is only in its own API.
    pub(crate) fn inspect(&self, name: &str) -> Result<InspectedContainer, EngineError> {
        let path = match self.kind {
            EngineKind::Podman => format!("/v4.0.0/libpod/containers/{name}/json"),
            EngineKind::Docker => format!("/containers/{name}/json"),
        };
        self.ask::<InspectResponse>(&path).map(InspectedContainer::from)
    }

    /// Ends a container and removes it with its volumes.
    pub(crate) fn remove(&self, name: &str) -> Result<(), EngineError> {
        let options = RemoveContainerOptions { force: true, v: true, link: false };
        self.wait(self.docker.remove_container(name, Some(options)))
    }

    /// The containers that carry this label, whatever their state.
    ///
    /// WHY NOT the client: it knows the states that Docker documents, and answers with an error where Podman has another.
    pub(crate) fn labelled(&self, name: &str, value: &str) -> Result<Vec<LabelledContainer>, EngineError> {
        debug_assert!(
            name.bytes().chain(value.bytes()).all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
        );
        let path =
            format!("/containers/json?all=true&filters=%7B%22label%22%3A%5B%22{name}%3D{value}%22%5D%7D");
        self.ask(&path)
    }

    fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T, EngineError> {
        let silent = |source| EngineError::Silent { path: self.socket.clone(), source };
        let answer = get(&self.socket, path).map_err(silent)?;
        let body = answered(&answer)?;
        serde_json::from_str(body).map_err(|error| silent(error.into()))
    }

    fn wait<T>(&self, answer: impl Future<Output = Result<T, ApiError>>) -> Result<T, EngineError> {
        self.executor.block_on(answer).map_err(|error| match error {
            ApiError::DockerResponseServerError { message, .. }
            | ApiError::DockerStreamError { error: message } => {
                EngineError::Refused(message.trim().to_owned())
            }
            other => EngineError::Api(Box::new(other)),
        })
    }
}

/// What the engine says of itself in the header of an answer.
///
/// WHY NOT `/version`: Podman asks the package manager about its programs before it answers, which takes a second.
fn introduction(socket: &Path) -> io::Result<(EngineKind, String)> {
    const ENOUGH: u64 = 4096;
    let mut stream = UnixStream::connect(socket)?;
    let patience = Some(Duration::from_secs(PATIENCE_SECONDS));
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(patience)?;
    stream.write_all(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ENOUGH).read_to_end(&mut answer)?;
    introduced(&String::from_utf8_lossy(&answer)).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "it does not say that it is Podman or Docker")
    })
}

/// The whole answer to one request, header included. In HTTP/1.0 it ends with the connection.
fn get(socket: &Path, path: &str) -> io::Result<String> {
    const ENOUGH: u64 = 16 << 20;
    let mut stream = UnixStream::connect(socket)?;
    let patience = Some(Duration::from_secs(PATIENCE_SECONDS));
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(patience)?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: engine\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ENOUGH).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The body of an answer, or what the engine says instead of one.
fn answered(answer: &str) -> Result<&str, EngineError> {
    #[derive(Deserialize)]
    struct Complaint {
        message: String,
    }
    let (header, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = header.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) == Some("200") {
        return Ok(body);
    }
    let complaint = serde_json::from_str::<Complaint>(body);
    let why = complaint.map_or_else(|_other| status.to_owned(), |complaint| complaint.message);
    Err(EngineError::Refused(why))
}

/// `Server: Libpod/4.3.1 (linux)` or `Server: Docker/27.0.1 (linux)`.
fn introduced(answer: &str) -> Option<(EngineKind, String)> {
    let mut lines = answer.lines().take_while(|line| !line.is_empty());
    let server = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("server").then_some(value.trim())
    })?;
    let (product, rest) = server.split_once('/')?;
    let kind = match product {
        "Libpod" => EngineKind::Podman,
        "Docker" => EngineKind::Docker,
        _ => return None,
    };
    Some((kind, rest.split(' ').next().unwrap_or_default().to_owned()))
}

/// The owner of the socket decides what is run: only root and the caller may.
fn trusted(socket: &Path) -> Result<EnginePrivilege, EngineError> {
    let missing = |_error: io::Error| EngineError::NoSocket(socket.to_owned());
    let found = fs::metadata(socket).map_err(missing)?;
    if !found.file_type().is_socket() {
        return Err(EngineError::NoSocket(socket.to_owned()));
    }
    match (found.uid(), rustix::process::geteuid().as_raw()) {
        (0, _) => Ok(EnginePrivilege::Rootful),
        (owner, caller) if owner == caller => Ok(EnginePrivilege::Rootless),
        _ => Err(EngineError::Foreign(socket.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_socket_is_no_engine() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [file, directory.path().join("missing")] {
            assert!(matches!(ContainerEngine::connect(&path), Err(EngineError::NoSocket(_))));
        }
    }

    #[test]
    fn an_engine_introduces_itself() {
        let podman = "HTTP/1.0 200 OK\r\nApi-Version: 1.41\r\nserver: Libpod/4.3.1 (linux)\r\n\r\nOK";
        assert_eq!(introduced(podman), Some((EngineKind::Podman, "4.3.1".to_owned())));
        let docker = "HTTP/1.0 200 OK\r\nServer: Docker/27.0.1 (linux)\r\n\r\nOK";
        assert_eq!(introduced(docker), Some((EngineKind::Docker, "27.0.1".to_owned())));
        for other in
            ["", "HTTP/1.0 200 OK\r\n\r\nServer: Docker/1 (x)", "HTTP/1.0 200 OK\r\nServer: nginx/1\r\n\r\n"]
        {
            assert_eq!(introduced(other), None);
        }
    }

    #[test]
    fn an_answer_is_a_body_or_a_complaint() {
        let refused = |answer| match answered(answer) {
            Err(EngineError::Refused(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(answered("HTTP/1.0 200 OK\r\nServer: x\r\n\r\n[]").unwrap(), "[]");
        let gone = "HTTP/1.0 404 Not Found\r\n\r\n{\"cause\":\"x\",\"message\":\"no such container\"}";
        assert_eq!(refused(gone), "no such container");
        let broken = "HTTP/1.0 500 Internal Server Error\r\n\r\nno JSON";
        assert_eq!(refused(broken), "HTTP/1.0 500 Internal Server Error");
        assert_eq!(refused(""), "");
    }

    #[test]
    fn a_socket_that_nobody_listens_on_is_silent() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let error = ContainerEngine::connect(&path).unwrap_err();
        assert!(matches!(error, EngineError::Silent { .. }), "{error:?}");
        assert!(error.hint().unwrap().contains("podman"));
    }
}
