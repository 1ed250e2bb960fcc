//! Conversion of messages to requests of the daemon, field by field.

use ringfence_api as api;
use ringfence_api::TextOrBase64;
use serde_json::{Value, json};

use crate::methods::MapsToRequest;
use crate::v1;

/// One line per message: its request and response.
macro_rules! stand {
    ($($message:ident => $request:ty, $answer:ident, |$said:pat_param| $value:expr;)+) => {
        $(impl MapsToRequest for v1::$message {
            type Request = $request;
            type Answer = v1::$answer;

            fn said(self) -> Value {
                // Destructures all fields, so that none can be forgotten.
                let $said = self;
                $value
            }
        })+
    };
}

stand! {
    CheckHealthRequest => api::CheckHealth, Health, |Self {}| json!({});
    CheckReadyRequest => api::CheckReady, Ready, |Self {}| json!({});
    WhoAmIRequest => api::WhoAmI, Identity, |Self {}| json!({});
    ShutdownRequest => api::Shutdown, ShuttingDown, |Self {}| json!({});

    CreateSessionRequest => api::CreateSession, Session, |request| create(request);
    ListSessionsRequest => api::ListSessions, SessionList, |Self { include_ended }| {
        json!({ "include_ended": include_ended })
    };
    GetSessionRequest => api::ShowSession, Session, |Self { session }| json!({ "session": session });
    StopSessionRequest => api::StopSession, Session, |Self { session, grace_ms }| {
        json!({ "session": session, "grace_ms": grace_ms })
    };

    ReportActivityRequest => api::ReportActivity, ActivityReceipt, |Self { session, activity, claim }| {
        json!({ "session": session, "activity": activity, "claim": claim })
    };
    WatchEventsRequest => api::Subscribe, Event, |Self { after, session }| {
        json!({ "after": after, "session": session })
    };

    ExecRequest => api::ExecRequest, Call, |Self { command, background }| exec(command, background.into());
    ExecStreamRequest => api::ExecStreamRequest, CallChunk, |Self { command }| exec(command, false.into());
    ListCallsRequest => api::ListCalls, CallList, |Self { session }| json!({ "session": session });
    GetCallRequest => api::ShowCall, Call, |Self { session, call, wait_ms }| {
        json!({ "session": session, "call": call, "wait_ms": wait_ms })
    };
    WatchOutputRequest => api::StreamCall, CallChunk, |Self { session, call, after }| {
        json!({ "session": session, "call": call, "after": after })
    };
    SendInputRequest => api::CallInput, CallDone, |Self { session, call, data, close }| {
        json!({ "session": session, "call": call, "data": TextOrBase64::from(data), "close": close })
    };
    SendSignalRequest => api::SignalCall, CallDone, |Self { session, call, signal }| {
        json!({ "session": session, "call": call, "signal": signal_word(signal) })
    };
    ResizeTerminalRequest => api::ResizeCall, CallDone, |Self { session, call, size }| {
        json!({ "session": session, "call": call, "size": size.map(terminal) })
    };
    CancelCallRequest => api::CancelCall, CallDone, |Self { session, call }| {
        json!({ "session": session, "call": call })
    };

    ListApprovalsRequest => api::ListApprovals, ApprovalList, |Self {}| json!({});
    WatchApprovalsRequest => api::WatchApprovals, Approval, |Self {}| json!({});
    GetApprovalRequest => api::ShowApproval, Approval, |Self { id }| json!({ "id": id });
    AnswerApprovalRequest => api::AnswerApproval, ApprovalResult, |request| answer(request);
    ListGrantsRequest => api::ListGrants, GrantList, |Self {}| json!({});
    RevokeGrantRequest => api::RevokeGrant, GrantsRevoked, |Self { id, reason }| {
        json!({ "id": id, "reason": reason })
    };
    RevokeAllGrantsRequest => api::RevokeAllGrants, GrantsRevoked, |Self { reason }| json!({ "reason": reason });

    ReadFileRequest => api::ReadFile, FileContent, |Self { session, path }| at(&session, &path);
    WriteFileRequest => api::WriteFile, FileWritten, |Self { session, path, content }| {
        json!({ "session": session, "path": path, "content": TextOrBase64::from(content) })
    };
    ListDirectoryRequest => api::ListDirectory, DirectoryListing, |Self { session, path }| {
        json!({ "session": session, "path": path })
    };
    StatFileRequest => api::StatFile, FileStatus, |Self { session, path }| at(&session, &path);
    MoveFileRequest => api::MoveFile, FileChanged, |Self { session, path, to }| {
        json!({ "session": session, "path": path, "to": to })
    };
    RemoveFileRequest => api::RemoveFile, FileChanged, |Self { session, path }| at(&session, &path);
    SendFileRequest => api::SendFile, Attachment, |Self { session, path }| at(&session, &path);
    FetchRequest => api::FetchUrl, FetchResult, |Self { session, url }| json!({ "session": session, "url": url });
    ExplainRequest => api::ExplainRequest, Explanation, |Self { session, subject }| {
        json!({ "session": session, "subject": subject.map(subject_word) })
    };

    ListTokensRequest => api::ListTokens, TokenList, |Self {}| json!({});
    CreateTokenRequest => api::CreateToken, MintedToken, |Self { label, rights, lifetime_s, operator }| {
        json!({ "label": label, "rights": rights.map(given), "lifetime_s": lifetime_s, "operator": operator })
    };
    RotateTokenRequest => api::RotateToken, MintedToken, |Self { id }| json!({ "id": id });
    RevokeTokenRequest => api::RevokeToken, IdentityDone, |Self { id }| json!({ "id": id });
    AttenuateTokenRequest => api::AttenuateToken, MintedToken, |Self { session, label, attenuation_json, lifetime_s }| {
        let left: Value = serde_json::from_str(&attenuation_json).unwrap_or_default();
        json!({ "session": session, "label": label, "attenuation": left, "lifetime_s": lifetime_s })
    };
    LogoutRequest => api::Logout, IdentityDone, |Self {}| json!({});
    ListOperatorsRequest => api::ListOperators, OperatorList, |Self {}| json!({});
    AddOperatorRequest => api::AddOperator, Operator, |Self { name, rights, password }| {
        json!({ "name": name, "rights": rights.map(given), "password": password })
    };
    SetPasswordRequest => api::SetPassword, Operator, |Self { name, password }| {
        json!({ "name": name, "password": password })
    };
    RemoveOperatorRequest => api::RemoveOperator, Operator, |Self { name }| json!({ "name": name });

    RequestPairingRequest => api::RequestPairing, DeviceChallenge, |Self { label, key, wants }| {
        json!({ "label": label, "key": key, "wants": wants.map(given) })
    };
    RequestChallengeRequest => api::RequestChallenge, DeviceChallenge, |Self { subject }| json!({ "subject": subject });
    ProvePairingRequest => api::ProvePairing, Pairing, |Self { proof }| proven(proof);
    ClaimDeviceTokenRequest => api::ClaimDeviceToken, MintedToken, |Self { proof }| proven(proof);
    RefreshDeviceRequest => api::RefreshDevice, MintedToken, |Self { proof }| proven(proof);
    ListPairingsRequest => api::ListPairings, PairingList, |Self {}| json!({});
    ApprovePairingRequest => api::ApprovePairing, Pairing, |Self { code, rights }| {
        json!({ "code": code, "rights": rights.map(given) })
    };
    RefusePairingRequest => api::RefusePairing, Pairing, |Self { code }| json!({ "code": code });
}

fn at(session: &str, path: &str) -> Value {
    json!({ "session": session, "path": path })
}

fn given(rights: v1::Rights) -> Value {
    let v1::Rights { scopes, workspaces } = rights;
    let within = workspaces.map_or_else(|| json!("any"), |v1::Workspaces { paths }| json!({ "only": paths }));
    json!({ "scopes": scopes, "workspaces": within })
}

fn proven(proof: Option<v1::DeviceProof>) -> Value {
    let Some(v1::DeviceProof { subject, nonce, signature }) = proof else { return json!({}) };
    json!({ "subject": subject, "nonce": nonce, "signature": signature })
}

fn subject_word(subject: v1::explain_request::Subject) -> Value {
    use v1::explain_request::Subject;
    match subject {
        Subject::Command(v1::ExplainCommand { argv }) => json!({ "argv": argv }),
        Subject::Shell(text) => json!({ "shell": text }),
        Subject::Read(path) => json!({ "read": path }),
        Subject::Write(path) => json!({ "write": path }),
        Subject::Url(url) => json!({ "url": url }),
        Subject::Tool(name) => json!({ "tool": name }),
    }
}

fn create(request: v1::CreateSessionRequest) -> Value {
    let v1::CreateSessionRequest {
        workspace,
        agent_name,
        agent_argv,
        profile,
        net,
        environment,
        timeout_s,
        idle_timeout_s,
        limits,
        secrets,
        parent,
        label,
    } = request;
    json!({
        "workspace": workspace,
        "agent_name": agent_name,
        "agent_argv": Some(agent_argv).filter(|argv| !argv.is_empty()),
        "profile": profile,
        "net": net,
        "environment": environment,
        "timeout_s": timeout_s,
        "idle_timeout_s": idle_timeout_s,
        "limits": session_limits(limits.unwrap_or_default()),
        "secrets": secrets,
        "parent": parent,
        "label": label,
    })
}

fn session_limits(limits: v1::SessionLimits) -> Value {
    let v1::SessionLimits { memory_bytes, processes, cpu_seconds, open_files, file_size_bytes } = limits;
    json!({
        "memory_bytes": memory_bytes,
        "processes": processes,
        "cpu_seconds": cpu_seconds,
        "open_files": open_files,
        "file_size_bytes": file_size_bytes,
    })
}

fn exec(command: Option<v1::Command>, background: Value) -> Value {
    let Some(command) = command else { return json!({}) };
    let v1::Command {
        session,
        argv,
        cwd,
        environment,
        stdin,
        timeout_ms,
        interactive,
        terminal: size,
        reason,
        ceiling: narrowed,
    } = command;
    json!({
        "session": session,
        "argv": argv,
        "cwd": cwd,
        "environment": environment,
        "stdin": stdin.map(TextOrBase64::from),
        "timeout_ms": timeout_ms,
        "background": background,
        "interactive": interactive,
        "terminal": size.map(terminal),
        "reason": reason,
        "ceiling": narrowed.map(ceiling),
    })
}

fn ceiling(ceiling: v1::CallCeiling) -> Value {
    let v1::CallCeiling { roots, net, backend, limits } = ceiling;
    json!({
        "roots": roots.map(|listed| listed.roots.into_iter().map(root).collect::<Vec<_>>()),
        "net": net.map(net_ceiling),
        "backend": backend,
        "limits": limit_ceilings(limits.unwrap_or_default()),
    })
}

fn root(root: v1::RootCeiling) -> Value {
    let v1::RootCeiling { path, access } = root;
    json!({ "path": path, "access": access })
}

/// A ceiling with both variants or none is invalid; the daemon refuses it.
fn net_ceiling(net: v1::NetCeiling) -> Value {
    let v1::NetCeiling { mode, hosts } = net;
    match (mode, hosts) {
        (Some(mode), None) => json!(mode),
        (None, Some(listed)) => json!({ "hosts": listed.hosts }),
        (mode, hosts) => json!({ "mode": mode, "hosts": hosts.map(|listed| listed.hosts) }),
    }
}

fn limit_ceilings(limits: v1::LimitCeilings) -> Value {
    let v1::LimitCeilings { memory_bytes, processes, cpu_seconds, open_files, file_size_bytes } = limits;
    json!({
        "memory_bytes": memory_bytes,
        "processes": processes,
        "cpu_seconds": cpu_seconds,
        "open_files": open_files,
        "file_size_bytes": file_size_bytes,
    })
}

fn terminal(size: v1::TerminalSize) -> Value {
    let v1::TerminalSize { rows, columns } = size;
    json!({ "rows": rows, "columns": columns })
}

/// An unset signal maps to none, which the daemon refuses.
fn signal_word(signal: i32) -> Option<&'static str> {
    v1::Signal::try_from(signal)
        .ok()?
        .as_str_name()
        .strip_prefix("SIGNAL_")
        .filter(|word| *word != "UNSPECIFIED")
}

fn answer(request: v1::AnswerApprovalRequest) -> Value {
    let v1::AnswerApprovalRequest { id, answer, offer, reason, grant_terms, replacement, accept_orphaned } =
        request;
    let terms = |v1::GrantTerms { expires_in_ms, max_uses }| json!({ "expires_in_ms": expires_in_ms, "max_uses": max_uses });
    json!({
        "id": id,
        "answer": answer_word(answer, offer, replacement),
        "grant_terms": grant_terms.map(terms),
        "reason": reason,
        "accept_orphaned": accept_orphaned,
    })
}

/// A missing or unexpected offer or command is invalid.
fn answer_word(answer: i32, offer: Option<u64>, replacement: Vec<Vec<u8>>) -> Value {
    match (v1::Answer::try_from(answer), offer, replacement.is_empty()) {
        (Ok(v1::Answer::Once), None, true) => json!("once"),
        (Ok(v1::Answer::Session), None, true) => json!("session"),
        (Ok(v1::Answer::Deny), None, true) => json!("deny"),
        (Ok(v1::Answer::AlwaysHere), Some(offer), true) => json!({ "always-here": { "offer": offer } }),
        (Ok(v1::Answer::Replace), None, false) => {
            let argv: Vec<TextOrBase64> = replacement.into_iter().map(TextOrBase64::from).collect();
            json!({ "replace": { "argv": argv } })
        }
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use ringfence_api::{CallSignal, Method, Request};

    use super::*;

    const SESSION: &str = "ses_01jabcdefghjkmnpqrstvwxyz0";

    fn said(answer: v1::Answer, offer: Option<u64>, instead: &[&[u8]]) -> Option<api::AnswerApproval> {
        let message = v1::AnswerApprovalRequest {
            id: "tx".to_owned(),
            answer: answer.into(),
            offer,
            grant_terms: Some(v1::GrantTerms { expires_in_ms: Some(5), max_uses: None }),
            replacement: instead.iter().map(|word| word.to_vec()).collect(),
            reason: None,
            accept_orphaned: true,
        };
        match Request::parse(Method::ApprovalAnswer, message.said()) {
            Ok(Request::ApprovalAnswer(asked)) => Some(asked),
            _ => None,
        }
    }

    #[test]
    fn an_answer_is_one_of_those_there_are() {
        let answer =
            |answer, offer, instead: &[&[u8]]| said(answer, offer, instead).map(|asked| asked.answer);
        assert_eq!(answer(v1::Answer::Once, None, &[]), Some(api::ApprovalReply::Once));
        assert_eq!(answer(v1::Answer::Session, None, &[]), Some(api::ApprovalReply::Session));
        assert_eq!(answer(v1::Answer::Deny, None, &[]), Some(api::ApprovalReply::Deny));
        assert_eq!(
            answer(v1::Answer::AlwaysHere, Some(2), &[]),
            Some(api::ApprovalReply::AlwaysHere { offer: 2 })
        );
        let argv = vec![TextOrBase64::Text("ls".to_owned()), TextOrBase64::from(vec![0xff])];
        assert_eq!(
            answer(v1::Answer::Replace, None, &[b"ls", b"\xff"]),
            Some(api::ApprovalReply::Replace { argv })
        );
        assert_eq!(answer(v1::Answer::Replace, None, &[]), None);
        assert_eq!(answer(v1::Answer::Once, None, &[b"ls"]), None);
        assert_eq!(answer(v1::Answer::AlwaysHere, None, &[]), None);
        assert_eq!(answer(v1::Answer::Deny, Some(0), &[]), None);
        assert_eq!(answer(v1::Answer::Unspecified, None, &[]), None);
        assert!(said(v1::Answer::Once, None, &[]).is_some_and(|asked| asked.accept_orphaned));
        let terms = said(v1::Answer::Session, None, &[]).and_then(|asked| asked.grant_terms);
        assert_eq!(terms, Some(api::ReplyTerms { expires_in_ms: Some(5), max_uses: None }));
    }

    /// Unset rights are no rights, never all.
    #[test]
    fn a_token_without_rights_is_no_request() {
        let mut request = v1::CreateTokenRequest { label: "t".to_owned(), ..Default::default() };
        assert!(Request::parse(Method::TokenCreate, request.clone().said()).is_err());
        let workspaces = Some(v1::Workspaces { paths: vec!["/w".to_owned()] });
        request.rights = Some(v1::Rights { scopes: vec!["read".to_owned()], workspaces });
        let Ok(Request::TokenCreate(read)) = Request::parse(Method::TokenCreate, request.said()) else {
            panic!("a token is made");
        };
        assert!(read.rights.covers_workspace(std::path::Path::new("/w")));
        assert!(!read.rights.covers_workspace(std::path::Path::new("/x")));
        let none = v1::Rights { scopes: Vec::new(), workspaces: Some(v1::Workspaces::default()) };
        assert_eq!(given(none), json!({ "scopes": [], "workspaces": { "only": [] } }));
    }

    #[test]
    fn a_signal_is_one_of_those_there_are() {
        for (number, signal) in [
            (v1::Signal::Int, Some(CallSignal::Int)),
            (v1::Signal::Term, Some(CallSignal::Term)),
            (v1::Signal::Kill, Some(CallSignal::Kill)),
            (v1::Signal::Hup, Some(CallSignal::Hup)),
            (v1::Signal::Usr1, Some(CallSignal::Usr1)),
            (v1::Signal::Usr2, Some(CallSignal::Usr2)),
            (v1::Signal::Unspecified, None),
        ] {
            let word = signal_word(number.into()).map(Value::from).unwrap_or_default();
            assert_eq!(serde_json::from_value(word).ok(), signal);
        }
        assert_eq!(signal_word(99), None);
    }

    /// Every field of a session and a command is converted.
    #[test]
    fn a_whole_request_is_understood() {
        let text = |text: &str| Some(text.to_owned());
        let create = v1::CreateSessionRequest {
            workspace: "/w".to_owned(),
            agent_name: text("a"),
            agent_argv: vec!["p".to_owned()],
            profile: text("guarded"),
            net: text("none"),
            environment: [("A".to_owned(), "b".to_owned())].into(),
            timeout_s: Some(1),
            idle_timeout_s: Some(2),
            limits: Some(v1::SessionLimits { memory_bytes: Some(3), ..Default::default() }),
            secrets: vec!["s".to_owned()],
            parent: None,
            label: text("l"),
        };
        let Ok(Request::SessionCreate(read)) = Request::parse(Method::SessionCreate, create.said()) else {
            panic!("a session is created");
        };
        assert_eq!(
            (read.timeout_s, read.idle_timeout_s, read.limits.memory_bytes),
            (Some(1), Some(2), Some(3))
        );
        assert_eq!(read.agent_argv, Some(vec!["p".to_owned()]));
        let bare = v1::CreateSessionRequest { workspace: "/w".to_owned(), ..Default::default() };
        let Ok(Request::SessionCreate(read)) = Request::parse(Method::SessionCreate, bare.said()) else {
            panic!("a session is created");
        };
        assert!(read.agent_argv.is_none() && read.limits == api::SessionLimits::default());
        let missing = v1::ExecRequest { command: None, background: false };
        assert!(Request::parse(Method::CallExec, missing.said()).is_err());
        let wide = v1::ResizeTerminalRequest {
            session: SESSION.to_owned(),
            call: 1,
            size: Some(v1::TerminalSize { rows: 70_000, columns: 1 }),
        };
        assert!(Request::parse(Method::CallResize, wide.said()).is_err());
    }
}
