//! A blocking client of the daemon: sends the request of one method and returns its response.
//!
//! What it is not: it reads no environment and searches for no socket and no token. Its caller has both, and the daemon decides
//! what they allow.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use ringfence_api::methods::ApiRequest;
use ringfence_api::{
    ApiError, Approval, DownloadFile, EventMessage, ExecStreamRequest, HttpVerb, Method, OutputChunk,
    StreamCall, Subscribe, UploadFile, WatchApprovals, WriteResult,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize as _, Serialize};
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

/// A client of the daemon. One connection, one request at a time.
pub struct Client {
    runtime: Runtime,
    socket: PathBuf,
    token: Option<String>,
    sender: Option<SendRequest<Full<Bytes>>>,
    /// Last use of the connection.
    used: Instant,
    /// Response timeout; `None`: unlimited.
    patience: Option<Duration>,
}

/// The daemon closes a connection after ten idle seconds. The client does not reuse one after half of that.
const SILENCE: Duration = Duration::from_secs(5);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("socket", &self.socket).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    #[error("no daemon answers at `{}`", path.display())]
    Connect {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("cannot talk to the daemon")]
    Start(#[source] io::Error),
    #[error("the daemon does not speak as expected")]
    Protocol(#[source] hyper::Error),
    #[error("the daemon at `{}` gives no answer", path.display())]
    Silent { path: PathBuf },
    #[error("the request cannot be written")]
    Request(#[source] http::Error),
    #[error("unexpected response from the daemon")]
    Json(#[from] serde_json::Error),
    /// An error response of the daemon.
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl Client {
    /// Creates a client with the rights of the socket's owner, or of `token`.
    pub fn connect(socket: &Path, token: Option<String>) -> Result<Self, ClientError> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ClientError::Start)?;
        let mut client = Self {
            runtime,
            socket: socket.to_owned(),
            token,
            sender: None,
            used: Instant::now(),
            patience: None,
        };
        client.reconnect()?;
        Ok(client)
    }

    /// Sets the response timeout.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self }
    }

    /// Path of the daemon's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    fn reconnect(&mut self) -> Result<(), ClientError> {
        let failed = |error| ClientError::Connect { path: self.socket.clone(), error };
        let sender = self.runtime.block_on(async {
            let stream = UnixStream::connect(&self.socket).await.map_err(failed)?;
            let (sender, connection) =
                handshake(TokioIo::new(stream)).await.map_err(ClientError::Protocol)?;
            let _driver = tokio::spawn(connection);
            Ok::<_, ClientError>(sender)
        })?;
        self.sender = Some(sender);
        self.used = Instant::now();
        Ok(())
    }

    /// Calls one method.
    pub fn call<T: ApiRequest + Serialize>(&mut self, request: &T) -> Result<T::Answer, ClientError> {
        let answer = self.raw(T::METHOD, serde_json::to_value(request)?)?;
        Ok(T::Answer::deserialize(answer)?)
    }

    /// Calls a method with any JSON. The daemon validates it.
    pub fn raw(&mut self, method: Method, value: Value) -> Result<Value, ClientError> {
        let response = self.send(method, value)?;
        let kind = response.headers().get(CONTENT_TYPE).cloned();
        let body = self.body(response)?;
        if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/plain")) {
            return Ok(Value::from(String::from_utf8_lossy(&body).into_owned()));
        }
        Ok(serde_json::from_slice(&body)?)
    }

    /// Writes `content` to a file, byte by byte.
    pub fn upload(&mut self, request: &UploadFile, content: Vec<u8>) -> Result<WriteResult, ClientError> {
        let value = serde_json::to_value(request)?;
        let (path, value) = located(Method::FileUpload, value);
        let response = self.send_body(Method::FileUpload, path + &query(&value), content)?;
        Ok(serde_json::from_slice(&self.body(response)?)?)
    }

    /// Returns the bytes of a file.
    pub fn download(&mut self, request: &DownloadFile) -> Result<Bytes, ClientError> {
        let response = self.send(Method::FileDownload, serde_json::to_value(request)?)?;
        self.body(response)
    }

    fn body(&mut self, response: http::Response<Incoming>) -> Result<Bytes, ClientError> {
        let status = response.status();
        let body =
            self.runtime.block_on(response.into_body().collect()).map_err(ClientError::Protocol)?.to_bytes();
        if status.is_success() { Ok(body) } else { Err(ClientError::Api(serde_json::from_slice(&body)?)) }
    }

    /// Runs a command and streams its output. A caller that stops reading blocks the command.
    pub fn run(&mut self, request: &ExecStreamRequest) -> Result<JsonLines<'_, OutputChunk>, ClientError> {
        self.lines(Method::CallExecStream, serde_json::to_value(request)?)
    }

    /// The output of a call in the background.
    pub fn output(&mut self, request: &StreamCall) -> Result<JsonLines<'_, OutputChunk>, ClientError> {
        self.lines(Method::CallOutput, serde_json::to_value(request)?)
    }

    /// Streams events.
    pub fn events(&mut self, request: &Subscribe) -> Result<JsonLines<'_, EventMessage>, ClientError> {
        self.lines(Method::Events, serde_json::to_value(request)?)
    }

    /// Streams pending approvals, then each new request and decision.
    pub fn questions(&mut self) -> Result<JsonLines<'_, Approval>, ClientError> {
        self.lines(Method::ApprovalWatch, serde_json::to_value(WatchApprovals {})?)
    }

    fn lines<T>(&mut self, method: Method, value: Value) -> Result<JsonLines<'_, T>, ClientError> {
        let response = self.send(method, value)?;
        if !response.status().is_success() {
            let body =
                self.runtime.block_on(response.into_body().collect()).map_err(ClientError::Protocol)?;
            return Err(ClientError::Api(serde_json::from_slice(&body.to_bytes())?));
        }
        Ok(JsonLines {
            client: self,
            body: response.into_body(),
            rest: Vec::new(),
            ready: VecDeque::new(),
            is_cut: false,
        })
    }

    fn send(&mut self, method: Method, value: Value) -> Result<http::Response<Incoming>, ClientError> {
        let (path, value) = located(method, value);
        match method.route().verb {
            HttpVerb::Post => self.send_body(method, path, serde_json::to_vec(&value)?),
            _ => self.send_body(method, path + &query(&value), Vec::new()),
        }
    }

    fn send_body(
        &mut self,
        method: Method,
        path: String,
        body: Vec<u8>,
    ) -> Result<http::Response<Incoming>, ClientError> {
        let verb = method.route().verb.to_string();
        let mut request = http::Request::builder().method(verb.as_str()).uri(path);
        request = request.header(HOST, "ringfence").header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(ClientError::Request)?;
        let ready = match &mut self.sender {
            Some(_) if self.used.elapsed() > SILENCE => false,
            Some(sender) => self.runtime.block_on(sender.ready()).is_ok(),
            None => false,
        };
        if !ready {
            self.reconnect()?;
        }
        let Some(sender) = &mut self.sender else {
            return Err(ClientError::Start(io::ErrorKind::NotConnected.into()));
        };
        let sent = sender.send_request(request);
        let answer = match self.patience {
            None => self.runtime.block_on(sent).map_err(ClientError::Protocol),
            Some(patience) => {
                let in_time = self.runtime.block_on(async { tokio::time::timeout(patience, sent).await });
                let silent = |_late| ClientError::Silent { path: self.socket.clone() };
                in_time.map_err(silent)?.map_err(ClientError::Protocol)
            }
        };
        self.used = Instant::now();
        answer
    }
}

/// Splits a request into the path of its method and the remaining fields.
fn located(method: Method, mut value: Value) -> (String, Value) {
    let route = method.route();
    let mut path = route.path.to_owned();
    let fields: Vec<&str> = route.path.split(['{', '}']).skip(1).step_by(2).collect();
    for field in fields {
        let known = value.as_object_mut().and_then(|object| object.remove(field)).unwrap_or_default();
        let text = known.as_str().map_or_else(|| known.to_string(), str::to_owned);
        path = path.replace(&format!("{{{field}}}"), &escaped(&text).replace('/', "%2F"));
    }
    (path, value)
}

fn query(value: &Value) -> String {
    let fields = value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let pairs: Vec<String> =
        fields.map(|(name, value)| format!("{name}={}", escaped(&text(value)))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

/// Percent-encodes reserved characters.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                escaped.push(char::from(byte));
            }
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// A stream of JSON values, one per line or as server-sent events.
pub struct JsonLines<'c, T> {
    client: &'c mut Client,
    body: Incoming,
    rest: Vec<u8>,
    ready: VecDeque<T>,
    /// The next value is the error that ended the stream.
    is_cut: bool,
}

impl<T> fmt::Debug for JsonLines<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

impl<T> Drop for JsonLines<'_, T> {
    /// Unread data would precede the next response, so the connection is closed.
    fn drop(&mut self) {
        self.client.sender = None;
    }
}

impl<T: DeserializeOwned> Iterator for JsonLines<'_, T> {
    type Item = Result<T, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(value) = self.ready.pop_front() {
                return Some(Ok(value));
            }
            let frame = match self.client.runtime.block_on(self.body.frame())? {
                Ok(frame) => frame,
                Err(error) => return Some(Err(ClientError::Protocol(error))),
            };
            if let Ok(data) = frame.into_data() {
                self.rest.extend_from_slice(&data);
            }
            if let Err(error) = self.take_lines() {
                return Some(Err(error));
            }
        }
    }
}

impl<T: DeserializeOwned> JsonLines<'_, T> {
    fn take_lines(&mut self) -> Result<(), ClientError> {
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = line.trim_ascii();
            if let Some(kind) = line.strip_prefix(b"event:") {
                self.is_cut = kind.trim_ascii() == b"cut";
            }
            // Only the data of an event; it contains the number too.
            let value = line.strip_prefix(b"data:").or_else(|| line.starts_with(b"{").then_some(line));
            match value {
                Some(value) if self.is_cut => return Err(ClientError::Api(serde_json::from_slice(value)?)),
                Some(value) => self.ready.push_back(serde_json::from_slice(value)?),
                None => {}
            }
        }
        Ok(())
    }
}
