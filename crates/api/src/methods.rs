//! The table of methods.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::*;

/// Access to a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MethodAccess {
    /// Every client that reaches the daemon.
    Anyone,
    /// Every authenticated client.
    Known,
    /// An operator with this scope. Never an agent.
    Operator(Scope),
    /// An agent about its own session, or an operator with this scope.
    Session(Scope),
}

/// What the ledger records about a method, besides its own records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AuditRule {
    /// Only refused calls.
    Refusals,
    /// Every call, with its caller.
    Always,
}

/// Behaviour of a method while the daemon drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DrainBehavior {
    /// Starts something new, and is refused.
    Begins,
    /// Reads, answers, revokes or ends, and works until the last call has ended. Setting a password counts as a revocation, because
    /// it ends logins with the old one.
    GoesOn,
}

/// What a method touches, and so which limits of a token apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MethodTarget {
    /// Nothing that a limit covers, with the reason.
    Nothing(&'static str),
    /// The whole machine: refused for a token limited to some workspaces.
    Machine,
    /// The method itself checks the workspaces of the token.
    Workspaces,
    /// The files in the request.
    Path,
    /// The host in the request.
    Host,
    /// Everything a command can touch.
    Command,
    /// A call of another holder: refused for an attenuated token.
    Call,
}

/// Body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestBodyKind {
    /// Its fields.
    Fields,
    /// Its fields, one of which is a file.
    File,
    /// A file as it is.
    Bytes,
}

/// Body of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResponseKind {
    /// One value.
    Json,
    /// One value that may take long; no thread waits for it.
    Later,
    /// A stream of events. A slow subscriber is disconnected.
    Events,
    /// The output of a command, by line. The command waits for its reader.
    Lines,
    Text,
    /// A file as it is.
    Bytes,
}

impl ResponseKind {
    /// Whether it is a stream of values.
    pub const fn is_stream(self) -> bool {
        matches!(self, Self::Events | Self::Lines)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HttpVerb {
    Get,
    Post,
}

impl HttpVerb {
    pub fn word(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
        }
    }

    pub fn of_word(word: &str) -> Option<Self> {
        [Self::Get, Self::Post].into_iter().find(|verb| verb.word() == word)
    }
}

impl fmt::Display for HttpVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// HTTP route of a method. `{name}` in a path is a field of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    pub verb: HttpVerb,
    pub path: &'static str,
}

/// A request that names its method.
pub trait ApiRequest: DeserializeOwned + JsonSchema + Into<Request> + Send {
    const METHOD: Method;
    type Answer: JsonSchema + DeserializeOwned + Send;

    /// The answer in a response of this method.
    fn answer(response: Response) -> Result<Self::Answer, ApiError>;
}

/// Performs the methods of the table, in this process or as a client of the daemon. Only what performs a method has an effect, and
/// it takes the pipeline.
pub trait Api {
    fn call<R: ApiRequest + Serialize>(
        &self,
        request: R,
    ) -> impl Future<Output = Result<R::Answer, ApiError>>;
}

/// Types of a method, for the schema generator.
#[derive(Debug)]
pub struct MethodTypes {
    pub request: Schema,
    pub answer: Schema,
}

macro_rules! methods {
    ($($(#[$doc:meta])* $method:ident $name:literal $verb:ident $path:literal $request:ty => $answer:ty, $brings:ident $reply:ident, $access:expr, $audit:ident, $course:ident, $reach:expr;)+) => {
        /// The methods of the daemon.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Method { $($(#[$doc])* $method),+ }

        impl Method {
            pub const ALL: &'static [Self] = &[$(Self::$method),+];

            /// Name on every transport except HTTP, and in the ledger.
            pub fn name(self) -> &'static str {
                match self { $(Self::$method => $name),+ }
            }

            pub fn of_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$method),)+ _ => None }
            }

            pub fn route(self) -> Route {
                match self { $(Self::$method => Route { verb: HttpVerb::$verb, path: $path }),+ }
            }

            pub fn access(self) -> MethodAccess {
                match self { $(Self::$method => $access),+ }
            }

            pub fn audit(self) -> AuditRule {
                match self { $(Self::$method => AuditRule::$audit),+ }
            }

            pub fn course(self) -> DrainBehavior {
                match self { $(Self::$method => DrainBehavior::$course),+ }
            }

            pub fn reach(self) -> MethodTarget {
                match self { $(Self::$method => $reach),+ }
            }

            pub fn brings(self) -> RequestBodyKind {
                match self { $(Self::$method => RequestBodyKind::$brings),+ }
            }

            pub const fn reply(self) -> ResponseKind {
                match self { $(Self::$method => ResponseKind::$reply),+ }
            }

            pub fn types(self, generator: &mut SchemaGenerator) -> MethodTypes {
                match self {
                    $(Self::$method => MethodTypes {
                        request: generator.subschema_for::<$request>(),
                        answer: generator.subschema_for::<$answer>(),
                    }),+
                }
            }
        }

        /// A parsed request.
        #[derive(Clone, Debug)]
        pub enum Request { $($method($request)),+ }

        impl Request {
            /// Parses what a transport received.
            pub fn parse(method: Method, value: Value) -> Result<Self, ApiError> {
                match method { $(Method::$method => parsed(value).map(Self::$method)),+ }
            }

            pub fn method(&self) -> Method {
                match self { $(Self::$method(_) => Method::$method),+ }
            }
        }

        /// The response of a method, or one value of its stream.
        #[derive(Clone, Debug, Serialize)]
        #[serde(untagged)]
        pub enum Response { $($method($answer)),+ }

        $(impl ApiRequest for $request {
            const METHOD: Method = Method::$method;
            type Answer = $answer;

            fn answer(response: Response) -> Result<Self::Answer, ApiError> {
                match response {
                    Response::$method(answer) => Ok(answer),
                    _ => Err(ApiError::new(ErrorCode::Internal, "this is the response of another method")),
                }
            }
        }

        impl From<$request> for Request {
            fn from(request: $request) -> Self {
                Self::$method(request)
            }
        })+
    };
}

impl Response {
    /// Says in the response of a method whose record may be late that it is.
    pub fn set_record_error(&mut self, why: String) {
        let told = match self {
            Self::SessionStop(info) => &mut info.record_error,
            Self::OperatorRemove(info) => &mut info.record_error,
            Self::CallCancel(done) | Self::TokenRevoke(done) | Self::Logout(done) | Self::Shutdown(done) => {
                &mut done.record_error
            }
            _ => return,
        };
        *told = Some(why);
    }
}

fn parsed<T: DeserializeOwned>(mut value: Value) -> Result<T, ApiError> {
    whole_numbers(&mut value);
    T::deserialize(value)
        .map_err(|error| ApiError::new(ErrorCode::InvalidArgument, format!("invalid request: {error}")))
}

/// In JSON `7.0` equals `7`, and some clients write all numbers like that.
fn whole_numbers(value: &mut Value) {
    /// Up to here an `f64` represents every integer exactly.
    const MOST: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Array(values) => values.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        Value::Number(number) if number.is_f64() => {
            let whole =
                number.as_f64().filter(|number| number.fract() == 0.0 && (0.0..MOST).contains(number));
            // Without a fraction it parses as an integer.
            let whole = whole.and_then(|number| format!("{number:.0}").parse::<u64>().ok());
            if let Some(whole) = whole {
                *value = Value::from(whole);
            }
        }
        _ => {}
    }
}

methods! {
    /// Tells that the daemon runs.
    Health "health" Get "/v1/health" CheckHealth => Health, Fields Json, MethodAccess::Anyone, Refusals, GoesOn, MethodTarget::Nothing("it needs no right");
    /// Tells whether the daemon accepts sessions and calls.
    Ready "ready" Get "/v1/ready" CheckReady => Readiness, Fields Json, MethodAccess::Anyone, Refusals, GoesOn, MethodTarget::Nothing("it needs no right");
    /// Metrics for Prometheus.
    Metrics "metrics" Get "/v1/metrics" ReadMetrics => String, Fields Text, MethodAccess::Operator(Scope::Read), Refusals, GoesOn, MethodTarget::Machine;
    /// The OpenAPI description.
    OpenApi "openapi" Get "/v1/openapi.json" ReadOpenApi => Value, Fields Json, MethodAccess::Known, Refusals, GoesOn, MethodTarget::Nothing("it concerns the caller alone");
    /// The caller as the daemon authenticated it.
    WhoAmI "whoami" Get "/v1/whoami" WhoAmI => CallerInfo, Fields Json, MethodAccess::Known, Refusals, GoesOn, MethodTarget::Nothing("it concerns the caller alone");
    /// Stops the daemon.
    Shutdown "daemon.shutdown" Post "/v1/shutdown" Shutdown => Empty, Fields Json, MethodAccess::Operator(Scope::Admin), Always, GoesOn, MethodTarget::Machine;

    /// Starts a session.
    SessionCreate "session.create" Post "/v1/sessions" CreateSession => SessionInfo, Fields Json, MethodAccess::Operator(Scope::Run), Always, Begins, MethodTarget::Workspaces;
    /// Lists the sessions of the workspaces that the caller may see.
    SessionList "session.list" Get "/v1/sessions" ListSessions => SessionList, Fields Json, MethodAccess::Operator(Scope::Read), Refusals, GoesOn, MethodTarget::Workspaces;
    /// Shows a session.
    SessionShow "session.show" Get "/v1/sessions/{session}" ShowSession => SessionInfo, Fields Json, MethodAccess::Session(Scope::Read), Refusals, GoesOn, MethodTarget::Nothing("an agent may see its own session");
    /// Ends a session.
    SessionStop "session.stop" Post "/v1/sessions/{session}/stop" StopSession => SessionInfo, Fields Json, MethodAccess::Operator(Scope::Run), Always, GoesOn, MethodTarget::Workspaces;
    /// Reports the activity of an agent.
    SessionReportActivity "session.report-activity" Post "/v1/sessions/{session}/activity" ReportActivity => ActivityReceipt, Fields Json, MethodAccess::Session(Scope::Run), Refusals, GoesOn, MethodTarget::Nothing("a report is only text");

    /// Runs a command.
    CallExec "call.exec" Post "/v1/sessions/{session}/exec" ExecRequest => CallInfo, Fields Json, MethodAccess::Session(Scope::Run), Refusals, Begins, MethodTarget::Command;
    /// Runs a command and streams its output.
    CallExecStream "call.exec-stream" Post "/v1/sessions/{session}/exec-stream" ExecStreamRequest => OutputChunk, Fields Lines, MethodAccess::Session(Scope::Run), Refusals, Begins, MethodTarget::Command;
    /// Lists the calls of a session.
    CallList "call.list" Get "/v1/sessions/{session}/calls" ListCalls => CallList, Fields Json, MethodAccess::Session(Scope::Read), Refusals, GoesOn, MethodTarget::Call;
    /// Shows a call; with `wait_ms`, when it has ended.
    CallShow "call.show" Get "/v1/sessions/{session}/calls/{call}" ShowCall => CallInfo, Fields Later, MethodAccess::Session(Scope::Read), Refusals, GoesOn, MethodTarget::Call;
    /// Streams the output of a call.
    CallOutput "call.output" Get "/v1/sessions/{session}/calls/{call}/output" StreamCall => OutputChunk, Fields Lines, MethodAccess::Session(Scope::Read), Refusals, GoesOn, MethodTarget::Call;
    /// Sends standard input to a call.
    CallInput "call.input" Post "/v1/sessions/{session}/calls/{call}/input" CallInput => Empty, Fields Json, MethodAccess::Session(Scope::Run), Refusals, GoesOn, MethodTarget::Call;
    /// Sends a signal to all processes of a call.
    CallSignal "call.signal" Post "/v1/sessions/{session}/calls/{call}/signal" SignalCall => Empty, Fields Json, MethodAccess::Session(Scope::Run), Refusals, GoesOn, MethodTarget::Call;
    /// Resizes the terminal of a call.
    CallResize "call.resize" Post "/v1/sessions/{session}/calls/{call}/resize" ResizeCall => Empty, Fields Json, MethodAccess::Session(Scope::Run), Refusals, GoesOn, MethodTarget::Call;
    /// Ends a call, also one that waits for an approval.
    CallCancel "call.cancel" Post "/v1/sessions/{session}/calls/{call}/cancel" CancelCall => Empty, Fields Json, MethodAccess::Session(Scope::Run), Refusals, GoesOn, MethodTarget::Call;

    /// Reads a file.
    FileRead "file.read" Post "/v1/sessions/{session}/files/read" ReadFile => FileContent, Fields Json, MethodAccess::Session(Scope::Run), Refusals, Begins, MethodTarget::Path;
    /// Creates or replaces a file.
    FileWrite "file.write" Post "/v1/sessions/{session}/files/write" WriteFile => WriteResult, File Json, MethodAccess::Session(Scope::Run), Refusals, Begins, MethodTarget::Path;
    /// Lists a directory.
    FileList "file.list" Post "/v1/sessions/{session}/files/list" ListDirectory => DirectoryListing, Fields Json, MethodAccess::Session(Scope::Run), Refusals, Begins, MethodTarget::Path;

    /// Shows type, size and times of a path.
    FileStat "file.stat" Post "/v1/sessions/{session}/files/stat" StatFile => FileInfo, Fields Json, MethodAccess::Session(Scope::Run), Refusals, Begins, MethodTarget::Path;
    /// Moves a file.
    FileMove "file.move" Post "/v1/sessions/{session}/files/move" MoveFile => FileChangeResult, Fields Json, MethodAccess::Session(Scope::Run), Refusals, Begins, MethodTarget::Path;
    /// Removes a file, a link or an empty directory.
    FileRemove "file.remove" Post "/v1/sessions/{session}/files/remove" RemoveFile => FileChangeResult, Fields Json, MethodAccess::Session(Scope::Run), Refusals, Begins, MethodTarget::Path;
    /// Creates or replaces a file from the request body.
    FileUpload "file.upload" Post "/v1/sessions/{session}/files/upload" UploadFile => WriteResult, Bytes Json, MethodAccess::Session(Scope::Run), Refusals, Begins, MethodTarget::Path;
    /// Downloads a file as the response body.
    FileDownload "file.download" Get "/v1/sessions/{session}/files/download" DownloadFile => String, Fields Bytes, MethodAccess::Session(Scope::Run), Refusals, Begins, MethodTarget::Path;

    /// Sends a file out of the session, if the scanner finds no secret in it.
    FileSend "file.send" Post "/v1/sessions/{session}/files/send" SendFile => Attachment, Fields Json, MethodAccess::Session(Scope::Run), Refusals, Begins, MethodTarget::Path;

    /// Fetches a URL.
    CallFetch "call.fetch" Post "/v1/sessions/{session}/fetch" FetchUrl => FetchResult, Fields Json, MethodAccess::Session(Scope::Run), Refusals, Begins, MethodTarget::Host;
    /// Evaluates an action without executing it.
    PolicyExplain "policy.explain" Post "/v1/sessions/{session}/explain" ExplainRequest => ExplainResult, Fields Json, MethodAccess::Session(Scope::Run), Refusals, GoesOn, MethodTarget::Nothing("it executes nothing and applies the attenuation of the token");

    /// The tools of the session over the Model Context Protocol; HTTP only.
    Mcp "mcp" Post "/v1/sessions/{session}/mcp" McpRequest => Value, Fields Json, MethodAccess::Session(Scope::Run), Refusals, Begins, MethodTarget::Nothing("each tool is a method with its own check");

    /// Lists the pending approvals.
    ApprovalList "approval.list" Get "/v1/approvals" ListApprovals => ApprovalList, Fields Json, MethodAccess::Operator(Scope::Approve), Refusals, GoesOn, MethodTarget::Workspaces;
    /// Streams the pending approvals, then each new or decided one.
    ApprovalWatch "approval.watch" Get "/v1/approvals/watch" WatchApprovals => Approval, Fields Events, MethodAccess::Operator(Scope::Approve), Refusals, GoesOn, MethodTarget::Workspaces;
    /// Shows an approval.
    ApprovalShow "approval.show" Get "/v1/approvals/{id}" ShowApproval => Approval, Fields Json, MethodAccess::Operator(Scope::Approve), Refusals, GoesOn, MethodTarget::Workspaces;
    /// Answers an approval.
    ApprovalAnswer "approval.answer" Post "/v1/approvals/{id}/answer" AnswerApproval => ReplyResult, Fields Json, MethodAccess::Operator(Scope::Approve), Always, GoesOn, MethodTarget::Workspaces;

    /// Lists the active grants.
    GrantList "grant.list" Get "/v1/grants" ListGrants => GrantList, Fields Json, MethodAccess::Operator(Scope::Approve), Refusals, GoesOn, MethodTarget::Workspaces;
    /// Revokes a grant.
    GrantRevoke "grant.revoke" Post "/v1/grants/{id}/revoke" RevokeGrant => GrantsRevoked, Fields Json, MethodAccess::Operator(Scope::Approve), Always, GoesOn, MethodTarget::Workspaces;
    /// Revokes every grant.
    GrantRevokeAll "grant.revoke-all" Post "/v1/grants/revoke-all" RevokeAllGrants => GrantsRevoked, Fields Json, MethodAccess::Operator(Scope::Approve), Always, GoesOn, MethodTarget::Workspaces;

    /// Lists the tokens that the caller may see, without secrets.
    TokenList "token.list" Get "/v1/tokens" ListTokens => TokenList, Fields Json, MethodAccess::Operator(Scope::Admin), Always, GoesOn, MethodTarget::Machine;
    /// Creates a token, never wider than the credential of the caller.
    TokenCreate "token.create" Post "/v1/tokens" CreateToken => MintedToken, Fields Json, MethodAccess::Operator(Scope::Admin), Always, Begins, MethodTarget::Workspaces;
    /// Replaces the secret of a token.
    TokenRotate "token.rotate" Post "/v1/tokens/{id}/rotate" RotateToken => MintedToken, Fields Json, MethodAccess::Operator(Scope::Admin), Always, Begins, MethodTarget::Machine;
    /// Revokes a token and every token created with it.
    TokenRevoke "token.revoke" Post "/v1/tokens/{id}/revoke" RevokeToken => Empty, Fields Json, MethodAccess::Operator(Scope::Admin), Always, GoesOn, MethodTarget::Machine;
    /// Creates a narrower token from a session token.
    TokenAttenuate "token.attenuate" Post "/v1/sessions/{session}/tokens" AttenuateToken => MintedToken, Fields Json, MethodAccess::Session(Scope::Run), Refusals, Begins, MethodTarget::Nothing("the new token has at most the rights of the caller");
    /// Exchanges a name and a password for a cookie.
    Login "login" Post "/v1/login" Login => LoginResult, Fields Json, MethodAccess::Anyone, Refusals, Begins, MethodTarget::Nothing("it needs no right");
    /// Revokes the token of this request.
    Logout "logout" Post "/v1/logout" Logout => Empty, Fields Json, MethodAccess::Known, Refusals, GoesOn, MethodTarget::Nothing("it concerns the caller alone");

    /// Lists the operators.
    OperatorList "operator.list" Get "/v1/operators" ListOperators => OperatorList, Fields Json, MethodAccess::Operator(Scope::Admin), Always, GoesOn, MethodTarget::Machine;
    /// Adds an operator, never with more rights than the caller has.
    OperatorAdd "operator.add" Post "/v1/operators" AddOperator => OperatorInfo, Fields Json, MethodAccess::Operator(Scope::Admin), Always, Begins, MethodTarget::Machine;
    /// Sets the password of an operator.
    OperatorSetPassword "operator.set-password" Post "/v1/operators/set-password" SetPassword => OperatorInfo, Fields Json, MethodAccess::Operator(Scope::Admin), Always, GoesOn, MethodTarget::Machine;
    /// Removes an operator and revokes all credentials of that operator.
    OperatorRemove "operator.remove" Post "/v1/operators/remove" RemoveOperator => OperatorInfo, Fields Json, MethodAccess::Operator(Scope::Admin), Always, GoesOn, MethodTarget::Machine;

    /// Requests the pairing of a device.
    PairingRequest "pairing.request" Post "/v1/pairings" RequestPairing => DeviceChallenge, Fields Json, MethodAccess::Anyone, Refusals, Begins, MethodTarget::Nothing("it needs no right");
    /// Creates a challenge for a device to sign.
    DeviceChallenge "device.challenge" Post "/v1/devices/challenge" RequestChallenge => DeviceChallenge, Fields Json, MethodAccess::Anyone, Refusals, Begins, MethodTarget::Nothing("it needs no right");
    /// Proves that a device has its key. Then operators see the pairing.
    PairingProve "pairing.prove" Post "/v1/pairings/prove" ProvePairing => PairingInfo, Fields Json, MethodAccess::Anyone, Refusals, Begins, MethodTarget::Nothing("it needs no right");
    /// Claims the first token of a paired device.
    PairingClaim "pairing.claim" Post "/v1/pairings/claim" ClaimDeviceToken => MintedToken, Fields Json, MethodAccess::Anyone, Refusals, Begins, MethodTarget::Nothing("it needs no right");
    /// Creates the next token of a device.
    DeviceRefresh "device.refresh" Post "/v1/devices/refresh" RefreshDevice => MintedToken, Fields Json, MethodAccess::Anyone, Refusals, Begins, MethodTarget::Nothing("it needs no right");
    /// Lists the pending pairings.
    PairingList "pairing.list" Get "/v1/pairings" ListPairings => PairingList, Fields Json, MethodAccess::Operator(Scope::Pair), Refusals, GoesOn, MethodTarget::Machine;
    /// Approves a pairing.
    PairingApprove "pairing.approve" Post "/v1/pairings/approve" ApprovePairing => PairingInfo, Fields Json, MethodAccess::Operator(Scope::Pair), Always, Begins, MethodTarget::Machine;
    /// Refuses a pairing.
    PairingRefuse "pairing.refuse" Post "/v1/pairings/refuse" RefusePairing => PairingInfo, Fields Json, MethodAccess::Operator(Scope::Pair), Always, GoesOn, MethodTarget::Machine;

    /// Streams events.
    Events "events" Get "/v1/events" Subscribe => EventMessage, Fields Events, MethodAccess::Operator(Scope::Read), Refusals, GoesOn, MethodTarget::Workspaces;
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

    /// The complete list of methods for an agent (S000-53, S000-54).
    #[test]
    fn the_methods_of_a_session_are_a_short_list() {
        let open: Vec<&str> = Method::ALL
            .iter()
            .filter(|method| !matches!(method.access(), MethodAccess::Operator(_)))
            .map(|method| method.name())
            .collect();
        let known = [
            "health",
            "ready",
            "openapi",
            "whoami",
            "session.show",
            "session.report-activity",
            "call.exec",
            "call.exec-stream",
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
            "call.fetch",
            "policy.explain",
            "mcp",
            "token.attenuate",
            "login",
            "logout",
            "pairing.request",
            "device.challenge",
            "pairing.prove",
            "pairing.claim",
            "device.refresh",
        ];
        assert_eq!(open, known);
    }

    /// Limits of a token are set for methods of agents; other methods have none.
    #[test]
    fn every_method_has_a_reach_that_fits_its_access() {
        for method in Method::ALL {
            let (reach, of_operators) =
                (method.reach(), matches!(method.access(), MethodAccess::Operator(_)));
            assert_eq!(
                of_operators,
                matches!(reach, MethodTarget::Machine | MethodTarget::Workspaces),
                "{}",
                method.name()
            );
            if method.route().path.contains("/files/") {
                assert_eq!(reach, MethodTarget::Path, "{}", method.name());
            }
            if method.route().path.contains("{call}") {
                assert_eq!(reach, MethodTarget::Call, "{}", method.name());
            }
        }
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
                assert_eq!(refused.code, ErrorCode::InvalidArgument);
            }
        }
    }
}
