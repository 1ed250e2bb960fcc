//! A client of gRPC at the daemon's socket: tonic over one HTTP/2 connection.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, BufMut as _, Bytes};
use http::uri::PathAndQuery;
use http::{HeaderValue, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ringfence_api::ErrorCode;
use ringfence_grpc::Rpc;
use ringfence_grpc::v1::activity_service_client::ActivityServiceClient;
use ringfence_grpc::v1::approval_service_client::ApprovalServiceClient;
use ringfence_grpc::v1::call_service_client::CallServiceClient;
use ringfence_grpc::v1::daemon_service_client::DaemonServiceClient;
use ringfence_grpc::v1::device_service_client::DeviceServiceClient;
use ringfence_grpc::v1::file_service_client::FileServiceClient;
use ringfence_grpc::v1::identity_service_client::IdentityServiceClient;
use ringfence_grpc::v1::session_service_client::SessionServiceClient;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataValue;
use tonic::{Status, Streaming};
use tonic_types::{ErrorInfo, StatusExt as _};

use crate::test_timeouts::PATIENCE;

/// One connection, with the token that every request on it shows.
#[derive(Clone)]
pub(crate) struct Wire {
    sender: SendRequest<tonic::body::Body>,
    token: Option<HeaderValue>,
}

impl tower_service::Service<http::Request<tonic::body::Body>> for Wire {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.sender.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<tonic::body::Body>) -> Self::Future {
        if let Some(token) = &self.token {
            let _new = request.headers_mut().insert("authorization", token.clone());
        }
        Box::pin(self.sender.send_request(request))
    }
}

/// Somebody who speaks gRPC.
pub(crate) struct Speaker {
    runtime: tokio::runtime::Runtime,
    wire: Wire,
    origin: Uri,
}

impl Speaker {
    pub(crate) fn at(socket: &Path, token: Option<&str>) -> Self {
        Self::over("http://ringfence", token, async {
            let stream = tokio::net::UnixStream::connect(socket).await.unwrap();
            let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
            let _driver = tokio::spawn(connection);
            sender
        })
    }

    /// Over whatever connection, to somebody who is called so.
    pub(crate) fn over(
        origin: &str,
        token: Option<&str>,
        connected: impl Future<Output = SendRequest<tonic::body::Body>>,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let sender = runtime.block_on(connected);
        let token = token.map(|token| format!("Bearer {token}").parse().unwrap());
        Self { runtime, wire: Wire { sender, token }, origin: origin.parse().unwrap() }
    }

    /// What comes of it, if it comes.
    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime
            .block_on(async { tokio::time::timeout(PATIENCE, work).await })
            .expect("an answer in time")
    }

    /// The next message of a stream, and with the end its status.
    pub(crate) fn next<M>(&self, stream: &mut Streaming<M>) -> Result<Option<M>, Status> {
        self.wait(stream.message())
    }

    pub(crate) fn find<M>(&self, stream: &mut Streaming<M>, wanted: impl Fn(&M) -> bool) -> M {
        loop {
            let message = self.next(stream).unwrap().expect("more of the stream");
            if wanted(&message) {
                return message;
            }
        }
    }

    pub(crate) fn daemon(&self) -> DaemonServiceClient<Wire> {
        DaemonServiceClient::with_origin(self.wire.clone(), self.origin.clone())
    }

    pub(crate) fn sessions(&self) -> SessionServiceClient<Wire> {
        SessionServiceClient::with_origin(self.wire.clone(), self.origin.clone())
    }

    pub(crate) fn calls(&self) -> CallServiceClient<Wire> {
        CallServiceClient::with_origin(self.wire.clone(), self.origin.clone())
    }

    pub(crate) fn approvals(&self) -> ApprovalServiceClient<Wire> {
        ApprovalServiceClient::with_origin(self.wire.clone(), self.origin.clone())
    }

    /// Whoever reads whole files takes long messages.
    pub(crate) fn files(&self) -> FileServiceClient<Wire> {
        let client = FileServiceClient::with_origin(self.wire.clone(), self.origin.clone());
        client.max_decoding_message_size(64 << 20)
    }

    pub(crate) fn identities(&self) -> IdentityServiceClient<Wire> {
        IdentityServiceClient::with_origin(self.wire.clone(), self.origin.clone())
    }

    pub(crate) fn devices(&self) -> DeviceServiceClient<Wire> {
        DeviceServiceClient::with_origin(self.wire.clone(), self.origin.clone())
    }

    pub(crate) fn activity(&self) -> ActivityServiceClient<Wire> {
        ActivityServiceClient::with_origin(self.wire.clone(), self.origin.clone())
    }

    /// Whatever bytes as the message of a method, and the first message that comes back.
    pub(crate) fn raw(&self, path: &'static str, message: Vec<u8>) -> Result<Option<Bytes>, Status> {
        self.first(path, tonic::Request::new(message))
    }

    /// The same, with `grpc-timeout` as it is sent.
    pub(crate) fn within(
        &self,
        time: &'static str,
        path: &'static str,
        message: Vec<u8>,
    ) -> Result<Option<Bytes>, Status> {
        let mut request = tonic::Request::new(message);
        let _new = request.metadata_mut().insert("grpc-timeout", MetadataValue::from_static(time));
        self.first(path, request)
    }

    fn first(&self, path: &'static str, request: tonic::Request<Vec<u8>>) -> Result<Option<Bytes>, Status> {
        self.wait(async {
            let mut client = tonic::client::Grpc::with_origin(self.wire.clone(), self.origin.clone());
            client.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
            let path = PathAndQuery::from_static(path);
            let answer = client.server_streaming(request, path, Raw).await?;
            answer.into_inner().message().await
        })
    }

    /// The same, for a method that does not answer before something happens: only how it is refused.
    pub(crate) fn refused(&self, rpc: &Rpc, message: Vec<u8>) -> Status {
        self.raw(rpc.path, message).expect_err(rpc.path)
    }
}

/// Bytes as they are.
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, frame: &mut EncodeBuf<'_>) -> Result<(), Status> {
        frame.put_slice(&message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, frame: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(frame.copy_to_bytes(frame.remaining())))
    }
}

/// What the details of a status say: our own code, hint, rule and request id.
pub(crate) fn info(status: &Status) -> ErrorInfo {
    status.get_error_details().error_info().cloned().unwrap_or_else(|| panic!("no details: {status:?}"))
}

pub(crate) fn reason(status: &Status) -> ErrorCode {
    let info = info(status);
    assert_eq!(info.domain, "ringfence");
    assert!(info.metadata["request-id"].starts_with("req_"), "{info:?}");
    serde_json::from_value(info.reason.into()).unwrap()
}
