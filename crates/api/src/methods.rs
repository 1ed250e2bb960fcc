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

/// What becomes of a method while the daemon is about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Course {
    /// It makes something new, which is refused then.
    Begins,
    /// It looks, answers, takes back or ends, and goes on until the last call is over. Another password is a taking back, and ends
    /// who signed in with the old one.
    GoesOn,
}

/// What a method touches, and so which limits of a token it is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// No limit is about it, for this reason.
    Nothing(&'static str),
    /// The whole machine: not for a token for some workspaces.
    Machine,
    /// It looks itself at which workspaces a token is for.
    Workspaces,
    /// The files that the request names.
    Path,
    /// The host that the request names.
    Host,
    /// Whatever a command can touch.
    Command,
    /// What somebody else has begun: not for a token that anything was taken away from.
    Call,
}

/// What a request brings along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Brings {
    /// Its fields.
    Fields,
    /// Its fields, one of which is a file.
    File,
    /// A file as it is.
    Bytes,
}

/// What comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// One value.
    Json,
    /// One value for which may be waited; nobody keeps a thread meanwhile.
    Later,
    /// What happens, until one side has enough. Who does not keep up is cut off.
    Events,
    /// What a command says, by line, until its end. It waits for whoever reads it.
    Lines,
    Text,
    /// A file as it is.
    Bytes,
}

impl Reply {
    /// Whether it is values, one after the other.
    pub const fn is_stream(self) -> bool {
        matches!(self, Self::Events | Self::Lines)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    Get,
    Post,
}

impl Verb {
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

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
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
    ($($(#[$doc:meta])* $method:ident $name:literal $verb:ident $path:literal $request:ty => $answer:ty, $brings:ident $reply:ident, $access:expr, $audit:ident, $course:ident, $reach:expr;)+) => {
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

            pub fn course(self) -> Course {
                match self { $(Self::$method => Course::$course),+ }
            }

            pub fn reach(self) -> Reach {
                match self { $(Self::$method => $reach),+ }
            }

            pub fn brings(self) -> Brings {
                match self { $(Self::$method => Brings::$brings),+ }
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
    Health "health" Get "/v1/health" CheckHealth => Health, Fields Json, Access::Anyone, Refusals, GoesOn, Reach::Nothing("it needs no right");
    /// That it takes sessions and calls.
    Ready "ready" Get "/v1/ready" CheckReady => Ready, Fields Json, Access::Anyone, Refusals, GoesOn, Reach::Nothing("it needs no right");
    /// Numbers for Prometheus.
    Metrics "metrics" Get "/v1/metrics" ReadMetrics => String, Fields Text, Access::Operator(Scope::Read), Refusals, GoesOn, Reach::Machine;
    /// The description of this interface.
    OpenApi "openapi" Get "/v1/openapi.json" ReadOpenApi => Value, Fields Json, Access::Known, Refusals, GoesOn, Reach::Nothing("it is about whoever asks");
    /// Who the daemon takes you for.
    WhoAmI "whoami" Get "/v1/whoami" WhoAmI => Identity, Fields Json, Access::Known, Refusals, GoesOn, Reach::Nothing("it is about whoever asks");
    /// End the daemon.
    Shutdown "daemon.shutdown" Post "/v1/shutdown" Shutdown => Done, Fields Json, Access::Operator(Scope::Admin), Always, GoesOn, Reach::Machine;

    /// Start a session.
    SessionCreate "session.create" Post "/v1/sessions" CreateSession => SessionInfo, Fields Json, Access::Operator(Scope::Run), Always, Begins, Reach::Workspaces;
    /// The sessions of the workspaces you may know of.
    SessionList "session.list" Get "/v1/sessions" ListSessions => SessionList, Fields Json, Access::Operator(Scope::Read), Refusals, GoesOn, Reach::Workspaces;
    /// One session.
    SessionShow "session.show" Get "/v1/sessions/{session}" ShowSession => SessionInfo, Fields Json, Access::Session(Scope::Read), Refusals, GoesOn, Reach::Nothing("of its own session it knows this already");
    /// End a session.
    SessionStop "session.stop" Post "/v1/sessions/{session}/stop" StopSession => SessionInfo, Fields Json, Access::Operator(Scope::Run), Always, GoesOn, Reach::Workspaces;
    /// An agent says what it does.
    SessionReport "session.report" Post "/v1/sessions/{session}/activity" ReportActivity => Reported, Fields Json, Access::Session(Scope::Run), Refusals, GoesOn, Reach::Nothing("it says what it does; whoever says less is not held better");

    /// Run a command.
    CallExec "call.exec" Post "/v1/sessions/{session}/exec" Exec => CallInfo, Fields Json, Access::Session(Scope::Run), Refusals, Begins, Reach::Command;
    /// Run a command and get its output as it comes.
    CallRun "call.run" Post "/v1/sessions/{session}/run" RunCommand => Chunk, Fields Lines, Access::Session(Scope::Run), Refusals, Begins, Reach::Command;
    /// The calls of a session.
    CallList "call.list" Get "/v1/sessions/{session}/calls" ListCalls => CallList, Fields Json, Access::Session(Scope::Read), Refusals, GoesOn, Reach::Call;
    /// One call; with `wait_ms` when it has ended.
    CallShow "call.show" Get "/v1/sessions/{session}/calls/{call}" ShowCall => CallInfo, Fields Later, Access::Session(Scope::Read), Refusals, GoesOn, Reach::Call;
    /// The output of a call as it comes.
    CallOutput "call.output" Get "/v1/sessions/{session}/calls/{call}/output" StreamCall => Chunk, Fields Lines, Access::Session(Scope::Read), Refusals, GoesOn, Reach::Call;
    /// More standard input.
    CallInput "call.input" Post "/v1/sessions/{session}/calls/{call}/input" CallInput => Done, Fields Json, Access::Session(Scope::Run), Refusals, GoesOn, Reach::Call;
    /// A signal for everything of a call.
    CallSignal "call.signal" Post "/v1/sessions/{session}/calls/{call}/signal" SignalCall => Done, Fields Json, Access::Session(Scope::Run), Refusals, GoesOn, Reach::Call;
    /// Another size for the terminal of a call.
    CallResize "call.resize" Post "/v1/sessions/{session}/calls/{call}/resize" ResizeCall => Done, Fields Json, Access::Session(Scope::Run), Refusals, GoesOn, Reach::Call;
    /// End a call, also one that waits for a person.
    CallCancel "call.cancel" Post "/v1/sessions/{session}/calls/{call}/cancel" CancelCall => Done, Fields Json, Access::Session(Scope::Run), Refusals, GoesOn, Reach::Call;

    /// Read a file.
    FileRead "file.read" Post "/v1/sessions/{session}/files/read" ReadFile => FileContent, Fields Json, Access::Session(Scope::Run), Refusals, Begins, Reach::Path;
    /// Make a file, or replace all of it.
    FileWrite "file.write" Post "/v1/sessions/{session}/files/write" WriteFile => Written, File Json, Access::Session(Scope::Run), Refusals, Begins, Reach::Path;
    /// What is in a directory.
    FileList "file.list" Post "/v1/sessions/{session}/files/list" ListDirectory => Listing, Fields Json, Access::Session(Scope::Run), Refusals, Begins, Reach::Path;

    /// What is at a path.
    FileStat "file.stat" Post "/v1/sessions/{session}/files/stat" StatFile => FileStatus, Fields Json, Access::Session(Scope::Run), Refusals, Begins, Reach::Path;
    /// Move a file.
    FileMove "file.move" Post "/v1/sessions/{session}/files/move" MoveFile => Changed, Fields Json, Access::Session(Scope::Run), Refusals, Begins, Reach::Path;
    /// Remove a file, a link or an empty directory.
    FileRemove "file.remove" Post "/v1/sessions/{session}/files/remove" RemoveFile => Changed, Fields Json, Access::Session(Scope::Run), Refusals, Begins, Reach::Path;
    /// Make a file of the body of the request.
    FileUpload "file.upload" Post "/v1/sessions/{session}/files/upload" UploadFile => Written, Bytes Json, Access::Session(Scope::Run), Refusals, Begins, Reach::Path;
    /// A file as the body of the answer.
    FileDownload "file.download" Get "/v1/sessions/{session}/files/download" DownloadFile => String, Fields Bytes, Access::Session(Scope::Run), Refusals, Begins, Reach::Path;

    /// A file for somebody outside, if nothing in it is secret.
    FileSend "file.send" Post "/v1/sessions/{session}/files/send" SendFile => Attachment, Fields Json, Access::Session(Scope::Run), Refusals, Begins, Reach::Path;

    /// A page from the network.
    Fetch "fetch" Post "/v1/sessions/{session}/fetch" FetchUrl => Fetched, Fields Json, Access::Session(Scope::Run), Refusals, Begins, Reach::Host;
    /// Would it be allowed?
    Explain "explain" Post "/v1/sessions/{session}/explain" Explain => Explained, Fields Json, Access::Session(Scope::Run), Refusals, GoesOn, Reach::Nothing("it does nothing, and says no to what the token was handed on without");

    /// The tools of the session for a client of the Model Context Protocol, over HTTP alone.
    Mcp "mcp" Post "/v1/sessions/{session}/mcp" UseTools => Value, Fields Json, Access::Session(Scope::Run), Refusals, Begins, Reach::Nothing("each tool is a method of its own");

    /// The questions that wait.
    ApprovalList "approval.list" Get "/v1/approvals" ListApprovals => ApprovalList, Fields Json, Access::Operator(Scope::Approve), Refusals, GoesOn, Reach::Workspaces;
    /// The questions that wait, then each as it is asked and as it is decided.
    ApprovalWatch "approval.watch" Get "/v1/approvals/watch" WatchApprovals => Question, Fields Events, Access::Operator(Scope::Approve), Refusals, GoesOn, Reach::Workspaces;
    /// One question.
    ApprovalShow "approval.show" Get "/v1/approvals/{id}" ShowApproval => Question, Fields Json, Access::Operator(Scope::Approve), Refusals, GoesOn, Reach::Workspaces;
    /// Answer a question.
    ApprovalAnswer "approval.answer" Post "/v1/approvals/{id}/answer" AnswerApproval => Answered, Fields Json, Access::Operator(Scope::Approve), Always, GoesOn, Reach::Workspaces;

    /// The stored answers that hold.
    GrantList "grant.list" Get "/v1/grants" ListGrants => GrantList, Fields Json, Access::Operator(Scope::Approve), Refusals, GoesOn, Reach::Workspaces;
    /// Take a stored answer back.
    GrantRevoke "grant.revoke" Post "/v1/grants/{id}/revoke" RevokeGrant => GrantsRevoked, Fields Json, Access::Operator(Scope::Approve), Always, GoesOn, Reach::Workspaces;
    /// Take back every stored answer.
    GrantRevokeAll "grant.revoke-all" Post "/v1/grants/revoke-all" RevokeAllGrants => GrantsRevoked, Fields Json, Access::Operator(Scope::Approve), Always, GoesOn, Reach::Workspaces;

    /// Every token you may know of, without its secret.
    TokenList "token.list" Get "/v1/tokens" ListTokens => TokenList, Fields Json, Access::Operator(Scope::Admin), Always, GoesOn, Reach::Machine;
    /// A new token, never wider than yours.
    TokenCreate "token.create" Post "/v1/tokens" CreateToken => MintedToken, Fields Json, Access::Operator(Scope::Admin), Always, Begins, Reach::Workspaces;
    /// Another secret for a token; nothing else about it changes.
    TokenRotate "token.rotate" Post "/v1/tokens/{id}/rotate" RotateToken => MintedToken, Fields Json, Access::Operator(Scope::Admin), Always, Begins, Reach::Machine;
    /// End a token and what was made with it.
    TokenRevoke "token.revoke" Post "/v1/tokens/{id}/revoke" RevokeToken => Done, Fields Json, Access::Operator(Scope::Admin), Always, GoesOn, Reach::Machine;
    /// An agent hands a part of its rights on.
    TokenAttenuate "token.attenuate" Post "/v1/sessions/{session}/tokens" AttenuateToken => MintedToken, Fields Json, Access::Session(Scope::Run), Refusals, Begins, Reach::Nothing("it hands on no more than it has");
    /// A name and a password for a cookie.
    Login "login" Post "/v1/login" Login => LoggedIn, Fields Json, Access::Anyone, Refusals, Begins, Reach::Nothing("it needs no right");
    /// End the token that this comes with.
    Logout "logout" Post "/v1/logout" Logout => Done, Fields Json, Access::Known, Refusals, GoesOn, Reach::Nothing("it is about whoever asks");

    /// Every operator.
    OperatorList "operator.list" Get "/v1/operators" ListOperators => OperatorList, Fields Json, Access::Operator(Scope::Admin), Always, GoesOn, Reach::Machine;
    /// A new operator, never with more rights than yours.
    OperatorAdd "operator.add" Post "/v1/operators" AddOperator => OperatorShown, Fields Json, Access::Operator(Scope::Admin), Always, Begins, Reach::Machine;
    /// Another password for an operator.
    OperatorPassword "operator.password" Post "/v1/operators/password" SetPassword => OperatorShown, Fields Json, Access::Operator(Scope::Admin), Always, GoesOn, Reach::Machine;
    /// Remove an operator and revoke all that is theirs.
    OperatorRemove "operator.remove" Post "/v1/operators/remove" RemoveOperator => OperatorShown, Fields Json, Access::Operator(Scope::Admin), Always, GoesOn, Reach::Machine;

    /// A device asks to be let in.
    DeviceAsk "device.ask" Post "/v1/devices" AskToPair => DeviceChallenge, Fields Json, Access::Anyone, Refusals, Begins, Reach::Nothing("it needs no right");
    /// Something to sign.
    DeviceChallenge "device.challenge" Post "/v1/devices/challenge" AskChallenge => DeviceChallenge, Fields Json, Access::Anyone, Refusals, Begins, Reach::Nothing("it needs no right");
    /// A device shows that it has its key; from here on operators see its request.
    DeviceProve "device.prove" Post "/v1/devices/prove" ProvePairing => PairingShown, Fields Json, Access::Anyone, Refusals, Begins, Reach::Nothing("it needs no right");
    /// The first token of a device that was let in.
    DeviceCollect "device.collect" Post "/v1/devices/collect" CollectDevice => MintedToken, Fields Json, Access::Anyone, Refusals, Begins, Reach::Nothing("it needs no right");
    /// The next token of a device.
    DeviceRefresh "device.refresh" Post "/v1/devices/refresh" RefreshDevice => MintedToken, Fields Json, Access::Anyone, Refusals, Begins, Reach::Nothing("it needs no right");
    /// Requests of devices that wait.
    PairingList "pairing.list" Get "/v1/pairings" ListPairings => PairingList, Fields Json, Access::Operator(Scope::Pair), Refusals, GoesOn, Reach::Machine;
    /// Let a device in.
    PairingApprove "pairing.approve" Post "/v1/pairings/approve" ApprovePairing => PairingShown, Fields Json, Access::Operator(Scope::Pair), Always, Begins, Reach::Machine;
    /// Say no to a device.
    PairingRefuse "pairing.refuse" Post "/v1/pairings/refuse" RefusePairing => PairingShown, Fields Json, Access::Operator(Scope::Pair), Always, GoesOn, Reach::Machine;

    /// What happens, as it happens.
    Events "events" Get "/v1/events" Subscribe => Happened, Fields Events, Access::Operator(Scope::Read), Refusals, GoesOn, Reach::Workspaces;
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

    /// What a token of an agent is held to is said for what an agent may ask, and the rest for what it may not.
    #[test]
    fn every_method_has_a_reach_that_fits_its_access() {
        for method in Method::ALL {
            let (reach, of_operators) = (method.reach(), matches!(method.access(), Access::Operator(_)));
            assert_eq!(
                of_operators,
                matches!(reach, Reach::Machine | Reach::Workspaces),
                "{}",
                method.name()
            );
            if method.route().path.contains("/files/") {
                assert_eq!(reach, Reach::Path, "{}", method.name());
            }
            if method.route().path.contains("{call}") {
                assert_eq!(reach, Reach::Call, "{}", method.name());
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
                assert_eq!(refused.code, ErrorCode::Malformed);
            }
        }
    }
}
