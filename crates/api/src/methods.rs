//! The table.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::*;

/// Who may call a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Whoever reaches the daemon.
    Anyone,
    /// Whoever it knows.
    Known,
    /// An operator with this scope. Never an agent.
    Operator(Scope),
    /// An agent about its own session, or an operator with this scope.
    Session(Scope),
}

/// What of a method is written to the ledger besides what it does there itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Audit {
    /// Only that somebody was not let in.
    Refusals,
    /// Every call, with who made it.
    Always,
}

/// What comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// One value.
    Json,
    /// Values, one after the other, until one side has enough.
    Stream,
    Text,
    /// A file as it is.
    Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    Get,
    Post,
    Delete,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        })
    }
}

/// Where a method is in HTTP. `{name}` in a path is a field of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    pub verb: Verb,
    pub path: &'static str,
}

/// A request that names its method.
pub trait Asks: DeserializeOwned + JsonSchema {
    const METHOD: Method;
    type Answer: JsonSchema + DeserializeOwned;
}

/// The types of a method, as the generator of a description wants them.
#[derive(Debug)]
pub struct Types {
    pub request: Schema,
    pub answer: Schema,
}

macro_rules! methods {
    ($($(#[$doc:meta])* $method:ident $name:literal $verb:ident $path:literal $request:ty => $answer:ty, $reply:ident, $access:expr, $audit:ident;)+) => {
        /// Everything the daemon can be asked.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Method { $($(#[$doc])* $method),+ }

        impl Method {
            pub const ALL: &'static [Self] = &[$(Self::$method),+];

            /// On every transport but HTTP, and in the ledger.
            pub fn name(self) -> &'static str {
                match self { $(Self::$method => $name),+ }
            }

            pub fn of_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$method),)+ _ => None }
            }

            pub fn route(self) -> Route {
                match self { $(Self::$method => Route { verb: Verb::$verb, path: $path }),+ }
            }

            pub fn access(self) -> Access {
                match self { $(Self::$method => $access),+ }
            }

            pub fn audit(self) -> Audit {
                match self { $(Self::$method => Audit::$audit),+ }
            }

            pub const fn reply(self) -> Reply {
                match self { $(Self::$method => Reply::$reply),+ }
            }

            pub fn types(self, generator: &mut SchemaGenerator) -> Types {
                match self {
                    $(Self::$method => Types {
                        request: generator.subschema_for::<$request>(),
                        answer: generator.subschema_for::<$answer>(),
                    }),+
                }
            }
        }

        /// A request that makes sense.
        #[derive(Clone, Debug)]
        pub enum Request { $($method($request)),+ }

        impl Request {
            /// From what a transport received.
            pub fn parse(method: Method, value: Value) -> Result<Self, ApiError> {
                match method { $(Method::$method => parsed(value).map(Self::$method)),+ }
            }

            pub fn method(&self) -> Method {
                match self { $(Self::$method(_) => Method::$method),+ }
            }
        }

        $(impl Asks for $request {
            const METHOD: Method = Method::$method;
            type Answer = $answer;
        })+
    };
}

fn parsed<T: DeserializeOwned>(mut value: Value) -> Result<T, ApiError> {
    whole_numbers(&mut value);
    T::deserialize(value)
        .map_err(|error| ApiError::new(ErrorCode::Malformed, format!("the request makes no sense: {error}")))
}

/// In JSON `7.0` and `7` are one number, and some clients write all of theirs in the first way.
fn whole_numbers(value: &mut Value) {
    /// Up to here every whole number is one.
    const MOST: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Array(values) => values.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        Value::Number(number) if number.is_f64() => {
            let whole =
                number.as_f64().filter(|number| number.fract() == 0.0 && (0.0..MOST).contains(number));
            // Written without a fraction it is read as what it is.
            let whole = whole.and_then(|number| format!("{number:.0}").parse::<u64>().ok());
            if let Some(whole) = whole {
                *value = Value::from(whole);
            }
        }
        _ => {}
    }
}

methods! {
    /// That it lives.
    Health "health" Get "/v1/health" CheckHealth => Health, Json, Access::Anyone, Refusals;
    /// That it takes sessions and calls.
    Ready "ready" Get "/v1/ready" CheckReady => Ready, Json, Access::Anyone, Refusals;
    /// Numbers for Prometheus.
    Metrics "metrics" Get "/v1/metrics" ReadMetrics => String, Text, Access::Operator(Scope::Read), Refusals;
    /// The description of this interface.
    OpenApi "openapi" Get "/v1/openapi.json" ReadOpenApi => Value, Json, Access::Known, Refusals;
    /// Who the daemon takes you for.
    WhoAmI "whoami" Get "/v1/whoami" WhoAmI => Identity, Json, Access::Known, Refusals;
    /// End the daemon.
    Shutdown "daemon.shutdown" Post "/v1/shutdown" Shutdown => Done, Json, Access::Operator(Scope::Admin), Always;

    /// Start a session.
    SessionCreate "session.create" Post "/v1/sessions" CreateSession => SessionInfo, Json, Access::Operator(Scope::Run), Always;
    /// The sessions of the workspaces you may know of.
    SessionList "session.list" Get "/v1/sessions" ListSessions => SessionList, Json, Access::Operator(Scope::Read), Refusals;
    /// One session.
    SessionShow "session.show" Get "/v1/sessions/{session}" ShowSession => SessionInfo, Json, Access::Session(Scope::Read), Refusals;
    /// End a session.
    SessionStop "session.stop" Post "/v1/sessions/{session}/stop" StopSession => SessionInfo, Json, Access::Operator(Scope::Run), Always;
    /// An agent says what it does.
    SessionReport "session.report" Post "/v1/sessions/{session}/activity" ReportActivity => Reported, Json, Access::Session(Scope::Run), Refusals;

    /// Run a command.
    CallExec "call.exec" Post "/v1/sessions/{session}/exec" Exec => CallInfo, Json, Access::Session(Scope::Run), Refusals;
    /// Run a command and get its output as it comes.
    CallRun "call.run" Post "/v1/sessions/{session}/run" RunCommand => Chunk, Stream, Access::Session(Scope::Run), Refusals;
    /// The calls of a session.
    CallList "call.list" Get "/v1/sessions/{session}/calls" ListCalls => CallList, Json, Access::Session(Scope::Read), Refusals;
    /// One call; with `wait_ms` when it has ended.
    CallShow "call.show" Get "/v1/sessions/{session}/calls/{call}" ShowCall => CallInfo, Json, Access::Session(Scope::Read), Refusals;
    /// The output of a call as it comes.
    CallOutput "call.output" Get "/v1/sessions/{session}/calls/{call}/output" StreamCall => Chunk, Stream, Access::Session(Scope::Read), Refusals;
    /// More standard input.
    CallInput "call.input" Post "/v1/sessions/{session}/calls/{call}/input" CallInput => Done, Json, Access::Session(Scope::Run), Refusals;
    /// A signal for everything of a call.
    CallSignal "call.signal" Post "/v1/sessions/{session}/calls/{call}/signal" SignalCall => Done, Json, Access::Session(Scope::Run), Refusals;
    /// Another size for the terminal of a call.
    CallResize "call.resize" Post "/v1/sessions/{session}/calls/{call}/resize" ResizeCall => Done, Json, Access::Session(Scope::Run), Refusals;
    /// End a call, also one that waits for a person.
    CallCancel "call.cancel" Post "/v1/sessions/{session}/calls/{call}/cancel" CancelCall => Done, Json, Access::Session(Scope::Run), Refusals;

    /// Read a file.
    FileRead "file.read" Post "/v1/sessions/{session}/files/read" ReadFile => FileContent, Json, Access::Session(Scope::Run), Refusals;
    /// Make a file, or replace all of it.
    FileWrite "file.write" Post "/v1/sessions/{session}/files/write" WriteFile => Written, Json, Access::Session(Scope::Run), Refusals;
    /// What is in a directory.
    FileList "file.list" Post "/v1/sessions/{session}/files/list" ListDirectory => Listing, Json, Access::Session(Scope::Run), Refusals;

    /// What is at a path.
    FileStat "file.stat" Post "/v1/sessions/{session}/files/stat" StatFile => FileStatus, Json, Access::Session(Scope::Run), Refusals;
    /// Move a file.
    FileMove "file.move" Post "/v1/sessions/{session}/files/move" MoveFile => Changed, Json, Access::Session(Scope::Run), Refusals;
    /// Remove a file, a link or an empty directory.
    FileRemove "file.remove" Post "/v1/sessions/{session}/files/remove" RemoveFile => Changed, Json, Access::Session(Scope::Run), Refusals;
    /// Make a file of the body of the request.
    FileUpload "file.upload" Post "/v1/sessions/{session}/files/upload" UploadFile => Written, Json, Access::Session(Scope::Run), Refusals;
    /// A file as the body of the answer.
    FileDownload "file.download" Get "/v1/sessions/{session}/files/download" DownloadFile => String, Bytes, Access::Session(Scope::Run), Refusals;

    /// A file for somebody outside, if nothing in it is secret.
    FileSend "file.send" Post "/v1/sessions/{session}/files/send" SendFile => Attachment, Json, Access::Session(Scope::Run), Refusals;

    /// A page from the network.
    Fetch "fetch" Post "/v1/sessions/{session}/fetch" FetchUrl => Fetched, Json, Access::Session(Scope::Run), Refusals;
    /// Would it be allowed?
    Explain "explain" Post "/v1/sessions/{session}/explain" Explain => Explained, Json, Access::Session(Scope::Run), Refusals;

    /// The tools of the session for a client of the Model Context Protocol, over HTTP alone.
    Mcp "mcp" Post "/v1/sessions/{session}/mcp" UseTools => Value, Json, Access::Session(Scope::Run), Refusals;

    /// The questions that wait.
    ApprovalList "approval.list" Get "/v1/approvals" ListApprovals => ApprovalList, Json, Access::Operator(Scope::Approve), Refusals;
    /// The questions that wait, then each as it is asked and as it is decided.
    ApprovalWatch "approval.watch" Get "/v1/approvals/watch" WatchApprovals => Question, Stream, Access::Operator(Scope::Approve), Refusals;
    /// One question.
    ApprovalShow "approval.show" Get "/v1/approvals/{id}" ShowApproval => Question, Json, Access::Operator(Scope::Approve), Refusals;
    /// Answer a question.
    ApprovalAnswer "approval.answer" Post "/v1/approvals/{id}/answer" AnswerApproval => Answered, Json, Access::Operator(Scope::Approve), Always;

    /// The stored answers that hold.
    GrantList "grant.list" Get "/v1/grants" ListGrants => GrantList, Json, Access::Operator(Scope::Approve), Refusals;
    /// Take a stored answer back.
    GrantRevoke "grant.revoke" Post "/v1/grants/{id}/revoke" RevokeGrant => GrantsRevoked, Json, Access::Operator(Scope::Approve), Always;
    /// Take back every stored answer.
    GrantRevokeAll "grant.revoke-all" Post "/v1/grants/revoke-all" RevokeAllGrants => GrantsRevoked, Json, Access::Operator(Scope::Approve), Always;

    /// Every token you may know of, without its secret.
    TokenList "token.list" Get "/v1/tokens" ListTokens => TokenList, Json, Access::Operator(Scope::Admin), Always;
    /// A new token, never wider than yours.
    TokenCreate "token.create" Post "/v1/tokens" CreateToken => MintedToken, Json, Access::Operator(Scope::Admin), Always;
    /// Another secret for a token; nothing else about it changes.
    TokenRotate "token.rotate" Post "/v1/tokens/{id}/rotate" RotateToken => MintedToken, Json, Access::Operator(Scope::Admin), Always;
    /// End a token and what was made with it.
    TokenRevoke "token.revoke" Post "/v1/tokens/{id}/revoke" RevokeToken => Done, Json, Access::Operator(Scope::Admin), Always;
    /// An agent hands a part of its rights on.
    TokenAttenuate "token.attenuate" Post "/v1/sessions/{session}/tokens" AttenuateToken => MintedToken, Json, Access::Session(Scope::Run), Refusals;
    /// A name and a password for a cookie.
    Login "login" Post "/v1/login" Login => LoggedIn, Json, Access::Anyone, Refusals;
    /// End the token that this comes with.
    Logout "logout" Post "/v1/logout" Logout => Done, Json, Access::Known, Refusals;

    /// Every operator.
    OperatorList "operator.list" Get "/v1/operators" ListOperators => OperatorList, Json, Access::Operator(Scope::Admin), Always;
    /// A new operator, never with more rights than yours.
    OperatorAdd "operator.add" Post "/v1/operators" AddOperator => OperatorShown, Json, Access::Operator(Scope::Admin), Always;
    /// Another password for an operator.
    OperatorPassword "operator.password" Post "/v1/operators/password" SetPassword => OperatorShown, Json, Access::Operator(Scope::Admin), Always;
    /// Remove an operator and revoke all that is theirs.
    OperatorRemove "operator.remove" Post "/v1/operators/remove" RemoveOperator => OperatorShown, Json, Access::Operator(Scope::Admin), Always;

    /// A device asks to be let in.
    DeviceAsk "device.ask" Post "/v1/devices" AskToPair => DeviceChallenge, Json, Access::Anyone, Refusals;
    /// Something to sign.
    DeviceChallenge "device.challenge" Post "/v1/devices/challenge" AskChallenge => DeviceChallenge, Json, Access::Anyone, Refusals;
    /// A device shows that it has its key; from here on operators see its request.
    DeviceProve "device.prove" Post "/v1/devices/prove" ProvePairing => PairingShown, Json, Access::Anyone, Refusals;
    /// The first token of a device that was let in.
    DeviceCollect "device.collect" Post "/v1/devices/collect" CollectDevice => MintedToken, Json, Access::Anyone, Refusals;
    /// The next token of a device.
    DeviceRefresh "device.refresh" Post "/v1/devices/refresh" RefreshDevice => MintedToken, Json, Access::Anyone, Refusals;
    /// Requests of devices that wait.
    PairingList "pairing.list" Get "/v1/pairings" ListPairings => PairingList, Json, Access::Operator(Scope::Pair), Refusals;
    /// Let a device in.
    PairingApprove "pairing.approve" Post "/v1/pairings/approve" ApprovePairing => PairingShown, Json, Access::Operator(Scope::Pair), Always;
    /// Say no to a device.
    PairingRefuse "pairing.refuse" Post "/v1/pairings/refuse" RefusePairing => PairingShown, Json, Access::Operator(Scope::Pair), Always;

    /// What happens, as it happens.
    Events "events" Get "/v1/events" Subscribe => Happened, Stream, Access::Operator(Scope::Read), Refusals;
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_and_routes_are_unique() {
        let names: HashSet<&str> = Method::ALL.iter().map(|method| method.name()).collect();
        assert_eq!(names.len(), Method::ALL.len());
        let routes: HashSet<Route> = Method::ALL.iter().map(|method| method.route()).collect();
        assert_eq!(routes.len(), Method::ALL.len());
        for method in Method::ALL {
            assert_eq!(Method::of_name(method.name()), Some(*method));
        }
    }

    /// What an agent may do is this and nothing else (S000-53, S000-54).
    #[test]
    fn the_methods_of_a_session_are_a_short_list() {
        let open: Vec<&str> = Method::ALL
            .iter()
            .filter(|method| !matches!(method.access(), Access::Operator(_)))
            .map(|method| method.name())
            .collect();
        let known = [
            "health",
            "ready",
            "openapi",
            "whoami",
            "session.show",
            "session.report",
            "call.exec",
            "call.run",
            "call.list",
            "call.show",
            "call.output",
            "call.input",
            "call.signal",
            "call.resize",
            "call.cancel",
            "file.read",
            "file.write",
            "file.list",
            "file.stat",
            "file.move",
            "file.remove",
            "file.upload",
            "file.download",
            "file.send",
            "fetch",
            "explain",
            "mcp",
            "token.attenuate",
            "login",
            "logout",
            "device.ask",
            "device.challenge",
            "device.prove",
            "device.collect",
            "device.refresh",
        ];
        assert_eq!(open, known);
    }

    #[test]
    fn a_whole_number_is_one_however_it_is_written() {
        let wait = |number: &str| {
            let text = format!("{{\"session\":\"s\",\"call\":1.0,\"wait_ms\":{number}}}");
            let value = serde_json::from_str(&text).unwrap();
            match Request::parse(Method::CallShow, value) {
                Ok(Request::CallShow(show)) => Some((show.call, show.wait_ms)),
                _ => None,
            }
        };
        assert_eq!(wait("7"), Some((1, Some(7))));
        assert_eq!(wait("7.0"), Some((1, Some(7))));
        assert_eq!(wait("7e3"), Some((1, Some(7000))));
        for wrong in ["7.5", "-7.0", "1e300", "-0.5"] {
            assert_eq!(wait(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_request_that_makes_no_sense_is_refused_for_every_method() {
        for method in Method::ALL {
            for value in [Value::Null, Value::from(7), serde_json::json!({ "no-such-field": 1 })] {
                let refused = Request::parse(*method, value).expect_err(method.name());
                assert_eq!(refused.code, ErrorCode::Malformed);
            }
        }
    }
}
