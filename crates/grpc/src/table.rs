//! The table.

use prost::{Message, Name};
use ringfence_api::methods::Asks;
use ringfence_api::{ApiError, ErrorCode, Method};
use serde_json::Value;

use crate::{fields, v1};

/// A message that stands for a request of the daemon.
pub(crate) trait Stands: Message + Name + Default {
    type Request: Asks;
    type Answer: Message + Name + TryFrom<<Self::Request as Asks>::Answer, Error = ApiError>;

    /// What it says, as the daemon reads it. Whether it makes sense is found out there, when it is known who asks.
    fn said(self) -> Value;
}

/// Who says how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flow {
    /// One request, one answer.
    Once,
    /// One request, and answers until one side has enough.
    Watch,
    /// Requests one after the other, each let in by itself, with an answer each.
    Conversation,
}

/// A method of gRPC.
#[derive(Debug)]
pub struct Rpc {
    /// As in the address: `/ringfence.v1.SessionService/CreateSession`.
    pub path: &'static str,
    /// What it is in the table of methods.
    pub method: Method,
    pub flow: Flow,
    /// Full names of its messages.
    pub messages: fn() -> (String, String),
    read: fn(&[u8]) -> Result<Value, ApiError>,
    write: fn(Value) -> Result<Vec<u8>, ApiError>,
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
        Self::of::<v1::RunRequest>("/ringfence.v1.CallService/Run"),
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
        Self::of::<v1::FetchPageRequest>("/ringfence.v1.CallService/FetchPage"),
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
        Self::of::<v1::AskToPairRequest>("/ringfence.v1.DeviceService/AskToPair"),
        Self::of::<v1::AskChallengeRequest>("/ringfence.v1.DeviceService/AskChallenge"),
        Self::of::<v1::ProvePairingRequest>("/ringfence.v1.DeviceService/ProvePairing"),
        Self::of::<v1::CollectDeviceRequest>("/ringfence.v1.DeviceService/CollectDevice"),
        Self::of::<v1::RefreshDeviceRequest>("/ringfence.v1.DeviceService/RefreshDevice"),
        Self::of::<v1::ListPairingsRequest>("/ringfence.v1.DeviceService/ListPairings"),
        Self::of::<v1::ApprovePairingRequest>("/ringfence.v1.DeviceService/ApprovePairing"),
        Self::of::<v1::RefusePairingRequest>("/ringfence.v1.DeviceService/RefusePairing"),
    ];

    const fn of<M: Stands>(path: &'static str) -> Self {
        let method = M::Request::METHOD;
        let flow = if method.reply().is_stream() { Flow::Watch } else { Flow::Once };
        Self { path, method, flow, messages: messages::<M>, read: read::<M>, write: write::<M> }
    }

    const fn conversation<M: Stands>(path: &'static str) -> Self {
        Self { flow: Flow::Conversation, ..Self::of::<M>(path) }
    }

    pub fn at(path: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|rpc| rpc.path == path)
    }

    /// From a message to what the daemon is asked.
    pub fn read(&self, message: &[u8]) -> Result<Value, ApiError> {
        (self.read)(message)
    }

    /// From what the daemon answers, or one value of a stream, to a message.
    pub fn write(&self, answer: Value) -> Result<Vec<u8>, ApiError> {
        (self.write)(answer)
    }
}

/// Whether a method of the table is a method of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Here,
    /// Over another transport alone, and why.
    Elsewhere(&'static str),
}

/// Every method has a place: one that has none does not compile.
pub fn place(method: Method) -> Place {
    match method {
        Method::Metrics => Place::Elsewhere("Prometheus asks for its own text, over HTTP"),
        Method::OpenApi => Place::Elsewhere("it describes HTTP; `proto/` describes this"),
        Method::FileUpload | Method::FileDownload => {
            Place::Elsewhere("`WriteFile` and `ReadFile` have bytes as they are")
        }
        Method::Mcp => Place::Elsewhere("the Model Context Protocol is for HTTP"),
        Method::Login => Place::Elsewhere("a password is for browsers, over HTTP on TCP"),
        Method::Health
        | Method::Ready
        | Method::WhoAmI
        | Method::Shutdown
        | Method::SessionCreate
        | Method::SessionList
        | Method::SessionShow
        | Method::SessionStop
        | Method::SessionReport
        | Method::CallExec
        | Method::CallRun
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
        | Method::Fetch
        | Method::Explain
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
        | Method::OperatorPassword
        | Method::OperatorRemove
        | Method::DeviceAsk
        | Method::DeviceChallenge
        | Method::DeviceProve
        | Method::DeviceCollect
        | Method::DeviceRefresh
        | Method::PairingList
        | Method::PairingApprove
        | Method::PairingRefuse
        | Method::Events => Place::Here,
    }
}

fn messages<M: Stands>() -> (String, String) {
    (M::full_name(), M::Answer::full_name())
}

/// In one message, as in JSON. Commands have the most: a word each.
const VALUES: usize = 100_000;

fn read<M: Stands>(bytes: &[u8]) -> Result<Value, ApiError> {
    let malformed = |message| ApiError::new(ErrorCode::Malformed, message);
    // A megabyte of empty words is half a million of them.
    if fields::count(&M::full_name(), bytes, VALUES) > VALUES {
        return Err(malformed(format!("there are more than {VALUES} values in the request")));
    }
    let message = M::decode(bytes)
        .map_err(|error| malformed(format!("the request is not a `{}`: {error}", M::full_name())))?;
    // As in JSON: what is not understood is not done without it.
    if let Some(number) = fields::unknown(&M::full_name(), bytes) {
        return Err(malformed(format!("a `{}` has no field {number}", M::full_name())));
    }
    Ok(message.said())
}

fn write<M: Stands>(answer: Value) -> Result<Vec<u8>, ApiError> {
    let answer: <M::Request as Asks>::Answer = serde_json::from_value(answer)
        .map_err(|error| ApiError::new(ErrorCode::Internal, format!("the answer makes no sense: {error}")))?;
    Ok(M::Answer::try_from(answer)?.encode_to_vec())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost_types::{FileDescriptorSet, MethodDescriptorProto};

    use super::*;

    /// Address, flow and messages of every method that `proto/` declares.
    fn declared() -> BTreeSet<(String, Flow, String, String)> {
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

    fn flow(method: &MethodDescriptorProto) -> Flow {
        match (method.client_streaming(), method.server_streaming()) {
            (false, false) => Flow::Once,
            (false, true) => Flow::Watch,
            (true, true) => Flow::Conversation,
            (true, false) => panic!("nothing is said without an answer"),
        }
    }

    /// S003-17: what the protocol declares is what there is, with these messages, and each is a method of the one table.
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
            assert_eq!(rpc.method.reply().is_stream(), rpc.flow == Flow::Watch, "{}", rpc.path);
            assert!(Rpc::at(rpc.path).is_some_and(|found| found.method == rpc.method));
        }
    }

    #[test]
    fn every_method_is_where_its_place_says() {
        for method in Method::ALL {
            let served = Rpc::ALL.iter().any(|rpc| rpc.method == *method);
            assert_eq!(served, place(*method) == Place::Here, "{}", method.name());
        }
    }

    #[test]
    fn a_message_that_makes_no_sense_is_refused_for_every_method() {
        for rpc in Rpc::ALL {
            // Field 100 with a byte, a length without its bytes, a number without its end.
            for bytes in [&[0xa0, 0x06, 0x01][..], &[0x0a, 0x7f, 0x00], &[0xff; 16]] {
                let refused = rpc.read(bytes).expect_err(rpc.path);
                assert_eq!(refused.code, ErrorCode::Malformed, "{}", rpc.path);
            }
        }
    }
}
