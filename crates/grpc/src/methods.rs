//! The table of gRPC methods.

use prost::{Message, Name};
use ringfence_api::methods::ApiRequest;
use ringfence_api::{ApiError, ErrorCode, Method, Response};
use serde_json::Value;

use crate::{known_fields, v1};

/// A message that maps to a request of the daemon.
pub(crate) trait MapsToRequest: Message + Name + Default {
    type Request: ApiRequest;
    type Answer: Message + Name + TryFrom<<Self::Request as ApiRequest>::Answer, Error = ApiError>;

    /// Converts the message to the daemon's JSON. The daemon validates it after authentication.
    fn said(self) -> Value;
}

/// Streaming mode of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RpcStreaming {
    /// One request, one response.
    Once,
    /// One request, and responses until either side ends the stream.
    Watch,
    /// A stream of requests, each authorized separately, with one response each.
    Conversation,
}

/// A gRPC method.
#[derive(Debug)]
pub struct Rpc {
    /// Path: `/ringfence.v1.SessionService/CreateSession`.
    pub path: &'static str,
    /// Method of the table.
    pub method: Method,
    pub flow: RpcStreaming,
    /// Full names of request and response message.
    pub messages: fn() -> (String, String),
    read: fn(&[u8]) -> Result<Value, ApiError>,
    write: fn(Response) -> Result<Vec<u8>, ApiError>,
}

impl Rpc {
    pub const ALL: &'static [Self] = &[
        Self::of::<v1::CheckHealthRequest>("/ringfence.v1.DaemonService/CheckHealth"),
        Self::of::<v1::CheckReadyRequest>("/ringfence.v1.DaemonService/CheckReady"),
        Self::of::<v1::WhoAmIRequest>("/ringfence.v1.DaemonService/WhoAmI"),
        Self::of::<v1::ShutdownRequest>("/ringfence.v1.DaemonService/Shutdown"),
        Self::of::<v1::CreateSessionRequest>("/ringfence.v1.SessionService/CreateSession"),
        Self::of::<v1::ListSessionsRequest>("/ringfence.v1.SessionService/ListSessions"),
        Self::of::<v1::GetSessionRequest>("/ringfence.v1.SessionService/GetSession"),
        Self::of::<v1::StopSessionRequest>("/ringfence.v1.SessionService/StopSession"),
        Self::of::<v1::ReportActivityRequest>("/ringfence.v1.ActivityService/ReportActivity"),
        Self::conversation::<v1::ReportActivityRequest>("/ringfence.v1.ActivityService/StreamAgentActivity"),
        Self::of::<v1::WatchEventsRequest>("/ringfence.v1.ActivityService/WatchEvents"),
        Self::of::<v1::ExecRequest>("/ringfence.v1.CallService/Exec"),
        Self::of::<v1::ExecStreamRequest>("/ringfence.v1.CallService/ExecStream"),
        Self::of::<v1::ListCallsRequest>("/ringfence.v1.CallService/ListCalls"),
        Self::of::<v1::GetCallRequest>("/ringfence.v1.CallService/GetCall"),
        Self::of::<v1::WatchOutputRequest>("/ringfence.v1.CallService/WatchOutput"),
        Self::of::<v1::SendInputRequest>("/ringfence.v1.CallService/SendInput"),
        Self::of::<v1::SendSignalRequest>("/ringfence.v1.CallService/SendSignal"),
        Self::of::<v1::ResizeTerminalRequest>("/ringfence.v1.CallService/ResizeTerminal"),
        Self::of::<v1::CancelCallRequest>("/ringfence.v1.CallService/CancelCall"),
        Self::of::<v1::ListApprovalsRequest>("/ringfence.v1.ApprovalService/ListApprovals"),
        Self::of::<v1::WatchApprovalsRequest>("/ringfence.v1.ApprovalService/WatchApprovals"),
        Self::of::<v1::GetApprovalRequest>("/ringfence.v1.ApprovalService/GetApproval"),
        Self::of::<v1::AnswerApprovalRequest>("/ringfence.v1.ApprovalService/AnswerApproval"),
        Self::of::<v1::ListGrantsRequest>("/ringfence.v1.ApprovalService/ListGrants"),
        Self::of::<v1::RevokeGrantRequest>("/ringfence.v1.ApprovalService/RevokeGrant"),
        Self::of::<v1::RevokeAllGrantsRequest>("/ringfence.v1.ApprovalService/RevokeAllGrants"),
        Self::of::<v1::ReadFileRequest>("/ringfence.v1.FileService/ReadFile"),
        Self::of::<v1::WriteFileRequest>("/ringfence.v1.FileService/WriteFile"),
        Self::of::<v1::ListDirectoryRequest>("/ringfence.v1.FileService/ListDirectory"),
        Self::of::<v1::StatFileRequest>("/ringfence.v1.FileService/StatFile"),
        Self::of::<v1::MoveFileRequest>("/ringfence.v1.FileService/MoveFile"),
        Self::of::<v1::RemoveFileRequest>("/ringfence.v1.FileService/RemoveFile"),
        Self::of::<v1::SendFileRequest>("/ringfence.v1.FileService/SendFile"),
        Self::of::<v1::FetchRequest>("/ringfence.v1.CallService/Fetch"),
        Self::of::<v1::ExplainRequest>("/ringfence.v1.CallService/Explain"),
        Self::of::<v1::ListTokensRequest>("/ringfence.v1.IdentityService/ListTokens"),
        Self::of::<v1::CreateTokenRequest>("/ringfence.v1.IdentityService/CreateToken"),
        Self::of::<v1::RotateTokenRequest>("/ringfence.v1.IdentityService/RotateToken"),
        Self::of::<v1::RevokeTokenRequest>("/ringfence.v1.IdentityService/RevokeToken"),
        Self::of::<v1::AttenuateTokenRequest>("/ringfence.v1.IdentityService/AttenuateToken"),
        Self::of::<v1::LogoutRequest>("/ringfence.v1.IdentityService/Logout"),
        Self::of::<v1::ListOperatorsRequest>("/ringfence.v1.IdentityService/ListOperators"),
        Self::of::<v1::AddOperatorRequest>("/ringfence.v1.IdentityService/AddOperator"),
        Self::of::<v1::SetPasswordRequest>("/ringfence.v1.IdentityService/SetPassword"),
        Self::of::<v1::RemoveOperatorRequest>("/ringfence.v1.IdentityService/RemoveOperator"),
        Self::of::<v1::RequestPairingRequest>("/ringfence.v1.DeviceService/RequestPairing"),
        Self::of::<v1::RequestChallengeRequest>("/ringfence.v1.DeviceService/RequestChallenge"),
        Self::of::<v1::ProvePairingRequest>("/ringfence.v1.DeviceService/ProvePairing"),
        Self::of::<v1::ClaimDeviceTokenRequest>("/ringfence.v1.DeviceService/ClaimDeviceToken"),
        Self::of::<v1::RefreshDeviceRequest>("/ringfence.v1.DeviceService/RefreshDevice"),
        Self::of::<v1::ListPairingsRequest>("/ringfence.v1.DeviceService/ListPairings"),
        Self::of::<v1::ApprovePairingRequest>("/ringfence.v1.DeviceService/ApprovePairing"),
        Self::of::<v1::RefusePairingRequest>("/ringfence.v1.DeviceService/RefusePairing"),
    ];

    const fn of<M: MapsToRequest>(path: &'static str) -> Self {
        let method = M::Request::METHOD;
        let flow = if method.reply().is_stream() { RpcStreaming::Watch } else { RpcStreaming::Once };
        Self { path, method, flow, messages: messages::<M>, read: read::<M>, write: write::<M> }
    }

    const fn conversation<M: MapsToRequest>(path: &'static str) -> Self {
        Self { flow: RpcStreaming::Conversation, ..Self::of::<M>(path) }
    }

    pub fn at(path: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|rpc| rpc.path == path)
    }

    /// Converts a message to a request of the daemon.
    pub fn read(&self, message: &[u8]) -> Result<Value, ApiError> {
        (self.read)(message)
    }

    /// Converts a response, or one value of a stream, to a message.
    pub fn write(&self, answer: Response) -> Result<Vec<u8>, ApiError> {
        (self.write)(answer)
    }
}

/// Whether a method of the table is available over gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcExposure {
    Here,
    /// Not available over gRPC, with the reason.
    Elsewhere(&'static str),
}

/// Exposure of a method. The match is exhaustive, so a new method does not compile without a decision.
pub fn place(method: Method) -> GrpcExposure {
    match method {
        Method::Metrics => GrpcExposure::Elsewhere("Prometheus asks for its own text, over HTTP"),
        Method::OpenApi => GrpcExposure::Elsewhere("it describes HTTP; `proto/` describes this"),
        Method::FileUpload | Method::FileDownload => {
            GrpcExposure::Elsewhere("`WriteFile` and `ReadFile` have bytes as they are")
        }
        Method::Mcp => GrpcExposure::Elsewhere("the Model Context Protocol is for HTTP"),
        Method::Login => GrpcExposure::Elsewhere("a password is for browsers, over HTTP on TCP"),
        Method::Health
        | Method::Ready
        | Method::WhoAmI
        | Method::Shutdown
        | Method::SessionCreate
        | Method::SessionList
        | Method::SessionShow
        | Method::SessionStop
        | Method::SessionReportActivity
        | Method::CallExec
        | Method::CallExecStream
        | Method::CallList
        | Method::CallShow
        | Method::CallOutput
        | Method::CallInput
        | Method::CallSignal
        | Method::CallResize
        | Method::CallCancel
        | Method::FileRead
        | Method::FileWrite
        | Method::FileList
        | Method::FileStat
        | Method::FileMove
        | Method::FileRemove
        | Method::FileSend
        | Method::CallFetch
        | Method::PolicyExplain
        | Method::ApprovalList
        | Method::ApprovalWatch
        | Method::ApprovalShow
        | Method::ApprovalAnswer
        | Method::GrantList
        | Method::GrantRevoke
        | Method::GrantRevokeAll
        | Method::TokenList
        | Method::TokenCreate
        | Method::TokenRotate
        | Method::TokenRevoke
        | Method::TokenAttenuate
        | Method::Logout
        | Method::OperatorList
        | Method::OperatorAdd
        | Method::OperatorSetPassword
        | Method::OperatorRemove
        | Method::PairingRequest
        | Method::DeviceChallenge
        | Method::PairingProve
        | Method::PairingClaim
        | Method::DeviceRefresh
        | Method::PairingList
        | Method::PairingApprove
        | Method::PairingRefuse
        | Method::Events => GrpcExposure::Here,
    }
}

fn messages<M: MapsToRequest>() -> (String, String) {
    (M::full_name(), M::Answer::full_name())
}

/// Maximum number of values in one message, as for JSON. Commands have the most: one per word.
const VALUES: usize = 100_000;

fn read<M: MapsToRequest>(bytes: &[u8]) -> Result<Value, ApiError> {
    let malformed = |message| ApiError::new(ErrorCode::InvalidArgument, message);
    // A megabyte can hold half a million empty words.
    if known_fields::count(&M::full_name(), bytes, VALUES) > VALUES {
        return Err(malformed(format!("there are more than {VALUES} values in the request")));
    }
    let message = M::decode(bytes)
        .map_err(|error| malformed(format!("the request is not a `{}`: {error}", M::full_name())))?;
    // As for JSON: a request with an unknown field is refused.
    if let Some(number) = known_fields::unknown(&M::full_name(), bytes) {
        return Err(malformed(format!("a `{}` has no field {number}", M::full_name())));
    }
    Ok(message.said())
}

fn write<M: MapsToRequest>(response: Response) -> Result<Vec<u8>, ApiError> {
    Ok(M::Answer::try_from(M::Request::answer(response)?)?.encode_to_vec())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost_types::{FileDescriptorSet, MethodDescriptorProto};

    use super::*;

    /// Path, streaming mode and messages of every method in `proto/`.
    fn declared() -> BTreeSet<(String, RpcStreaming, String, String)> {
        let described = FileDescriptorSet::decode(crate::DESCRIPTORS).unwrap();
        let mut declared = BTreeSet::new();
        for file in &described.file {
            for service in &file.service {
                for method in &service.method {
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    let name = |name: &str| name.trim_start_matches('.').to_owned();
                    let types = (name(method.input_type()), name(method.output_type()));
                    assert!(declared.insert((path, flow(method), types.0, types.1)));
                }
            }
        }
        declared
    }

    fn flow(method: &MethodDescriptorProto) -> RpcStreaming {
        match (method.client_streaming(), method.server_streaming()) {
            (false, false) => RpcStreaming::Once,
            (false, true) => RpcStreaming::Watch,
            (true, true) => RpcStreaming::Conversation,
            (true, false) => panic!("nothing is said without an answer"),
        }
    }

    /// S003-17: `proto/` and the table declare the same methods with the same messages.
    #[test]
    fn every_declared_method_is_a_method_of_the_table() {
        let served: BTreeSet<_> = Rpc::ALL
            .iter()
            .map(|rpc| {
                let (request, answer) = (rpc.messages)();
                (rpc.path.to_owned(), rpc.flow, request, answer)
            })
            .collect();
        assert_eq!(declared(), served);
        assert_eq!(served.len(), Rpc::ALL.len());
        for rpc in Rpc::ALL {
            assert!(Method::ALL.contains(&rpc.method));
            assert_eq!(rpc.method.reply().is_stream(), rpc.flow == RpcStreaming::Watch, "{}", rpc.path);
            assert!(Rpc::at(rpc.path).is_some_and(|found| found.method == rpc.method));
        }
    }

    #[test]
    fn every_method_is_where_its_place_says() {
        for method in Method::ALL {
            let served = Rpc::ALL.iter().any(|rpc| rpc.method == *method);
            assert_eq!(served, place(*method) == GrpcExposure::Here, "{}", method.name());
        }
    }

    #[test]
    fn a_message_that_makes_no_sense_is_refused_for_every_method() {
        for rpc in Rpc::ALL {
            // Field 100 with a byte, a length without its bytes, an unterminated number.
            for bytes in [&[0xa0, 0x06, 0x01][..], &[0x0a, 0x7f, 0x00], &[0xff; 16]] {
                let refused = rpc.read(bytes).expect_err(rpc.path);
                assert_eq!(refused.code, ErrorCode::InvalidArgument, "{}", rpc.path);
            }
        }
    }
}
