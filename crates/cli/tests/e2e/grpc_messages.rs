//! A message of every method of gRPC that makes sense: the same requests as [`crate::daemon_rights::sensible`] has them.

use prost::Message;
use ringfence_api::Method;
use ringfence_grpc::{Rpc, v1};

/// About this session, and for a new one in this workspace.
pub(crate) struct About<'a> {
    pub(crate) session: &'a str,
    pub(crate) workspace: &'a str,
}

/// Of a call that nobody made.
const CALL: u64 = 999;

impl About<'_> {
    pub(crate) fn message(&self, rpc: &Rpc) -> Vec<u8> {
        let of_call = rpc.method.route().path.contains("{call}");
        let of_file = rpc.method.name().starts_with("file.");
        let of_device = rpc.method.name().starts_with("device.") || rpc.method.name().starts_with("pairing.");
        let of_identity = rpc.path.contains("IdentityService");
        match rpc.method {
            _ if of_call => self.of_call(rpc.method),
            _ if of_file => self.of_file(rpc.method),
            _ if of_device => of_device_or_pairing(rpc.method),
            _ if of_identity => self.of_identity(rpc.method),
            method => self.of_session(method),
        }
    }

    fn of_session(&self, method: Method) -> Vec<u8> {
        let session = self.session.to_owned();
        let id = "tx_0".to_owned();
        let command = || {
            let argv = vec!["true".to_owned()];
            Some(v1::Command { session: session.clone(), argv, ..Default::default() })
        };
        match method {
            Method::SessionCreate => bytes(&v1::CreateSessionRequest {
                workspace: self.workspace.to_owned(),
                profile: Some("danger".to_owned()),
                ..Default::default()
            }),
            Method::SessionList => bytes(&v1::ListSessionsRequest { include_ended: true }),
            Method::SessionShow => bytes(&v1::GetSessionRequest { session }),
            Method::SessionStop => bytes(&v1::StopSessionRequest { session, grace_ms: Some(10) }),
            Method::SessionReportActivity => {
                let (kind, text) = ("k".to_owned(), "t".to_owned());
                bytes(&v1::ReportActivityRequest { session, activity: kind, claim: text })
            }
            Method::CallExec => bytes(&v1::ExecRequest { command: command(), background: false }),
            Method::CallExecStream => bytes(&v1::ExecStreamRequest { command: command() }),
            Method::CallList => bytes(&v1::ListCallsRequest { session }),
            Method::CallFetch => bytes(&v1::FetchRequest { session, url: "http://localhost:1/".to_owned() }),
            Method::PolicyExplain => {
                let subject = Some(v1::explain_request::Subject::Tool("x".to_owned()));
                bytes(&v1::ExplainRequest { session, subject })
            }
            Method::ApprovalShow => bytes(&v1::GetApprovalRequest { id }),
            Method::ApprovalAnswer => bytes(&v1::AnswerApprovalRequest {
                id,
                answer: v1::Answer::Deny.into(),
                ..Default::default()
            }),
            Method::GrantRevoke => bytes(&v1::RevokeGrantRequest { id, reason: None }),
            Method::GrantRevokeAll => bytes(&v1::RevokeAllGrantsRequest { reason: Some("r".to_owned()) }),
            Method::Events => bytes(&v1::WatchEventsRequest { after: Some(0), session: Some(session) }),
            // Without anything in it.
            _ => Vec::new(),
        }
    }

    fn of_call(&self, method: Method) -> Vec<u8> {
        let (session, call) = (self.session.to_owned(), CALL);
        match method {
            Method::CallOutput => bytes(&v1::WatchOutputRequest { session, call, after: 1 }),
            Method::CallInput => {
                bytes(&v1::SendInputRequest { session, call, data: b"x".to_vec(), close: true })
            }
            Method::CallSignal => {
                bytes(&v1::SendSignalRequest { session, call, signal: v1::Signal::Term.into() })
            }
            Method::CallResize => {
                let size = Some(v1::TerminalSize { rows: 1, columns: 1 });
                bytes(&v1::ResizeTerminalRequest { session, call, size })
            }
            Method::CallCancel => bytes(&v1::CancelCallRequest { session, call }),
            _ => bytes(&v1::GetCallRequest { session, call, wait_ms: Some(1) }),
        }
    }

    fn of_file(&self, method: Method) -> Vec<u8> {
        let (session, path) = (self.session.to_owned(), "none".to_owned());
        match method {
            Method::FileWrite => {
                bytes(&v1::WriteFileRequest { session, path: "f".to_owned(), content: b"c".to_vec() })
            }
            Method::FileList => bytes(&v1::ListDirectoryRequest { session, path: Some(".".to_owned()) }),
            Method::FileMove => bytes(&v1::MoveFileRequest { session, path, to: "nowhere".to_owned() }),
            Method::FileStat => bytes(&v1::StatFileRequest { session, path }),
            Method::FileRemove => bytes(&v1::RemoveFileRequest { session, path }),
            Method::FileSend => bytes(&v1::SendFileRequest { session, path }),
            _ => bytes(&v1::ReadFileRequest { session, path }),
        }
    }

    fn of_identity(&self, method: Method) -> Vec<u8> {
        let (id, name, password) = ("0".repeat(16), "nobody".to_owned(), "short".to_owned());
        match method {
            // For a time that cannot be.
            Method::TokenCreate => bytes(&v1::CreateTokenRequest {
                label: "t".to_owned(),
                rights: rights(),
                lifetime_s: Some(0),
                operator: None,
            }),
            Method::TokenRotate => bytes(&v1::RotateTokenRequest { id }),
            Method::TokenRevoke => bytes(&v1::RevokeTokenRequest { id }),
            Method::TokenAttenuate => bytes(&v1::AttenuateTokenRequest {
                session: self.session.to_owned(),
                label: "t".to_owned(),
                attenuation_json: "{}".to_owned(),
                lifetime_s: Some(1),
            }),
            Method::OperatorAdd => bytes(&v1::AddOperatorRequest { name, rights: rights(), password }),
            Method::OperatorSetPassword => bytes(&v1::SetPasswordRequest { name, password }),
            Method::OperatorRemove => bytes(&v1::RemoveOperatorRequest { name }),
            _ => Vec::new(),
        }
    }
}

fn of_device_or_pairing(method: Method) -> Vec<u8> {
    let word = || "0".repeat(16);
    let proof = Some(v1::DeviceProof { subject: word(), nonce: word(), signature: word() });
    match method {
        Method::PairingRequest => bytes(&v1::RequestPairingRequest {
            label: "l".to_owned(),
            key: "none".to_owned(),
            wants: rights(),
        }),
        Method::DeviceChallenge => bytes(&v1::RequestChallengeRequest { subject: word() }),
        Method::PairingProve => bytes(&v1::ProvePairingRequest { proof }),
        Method::PairingClaim => bytes(&v1::ClaimDeviceTokenRequest { proof }),
        Method::DeviceRefresh => bytes(&v1::RefreshDeviceRequest { proof }),
        Method::PairingApprove => bytes(&v1::ApprovePairingRequest { code: word(), rights: None }),
        Method::PairingRefuse => bytes(&v1::RefusePairingRequest { code: word() }),
        _ => Vec::new(),
    }
}

fn rights() -> Option<v1::Rights> {
    Some(v1::Rights { scopes: vec!["admin".to_owned()], workspaces: None })
}

fn bytes(message: &impl Message) -> Vec<u8> {
    message.encode_to_vec()
}
